"""The interpreter's state and the services that its parts share: frames, variables, lists, types, what is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.fields.tracked import roles
from sgltrace.index.shapes.interpreter import lazy
from sgltrace.index.shapes.interpreter.frames import FieldWrite, Frame, LocalWrite, Records
from sgltrace.index.shapes.interpreter.limits import Limits, MemoKey, moving_functions
from sgltrace.index.shapes.interpreter.seeds import literal
from sgltrace.index.shapes.interpreter.stages import RELAY, Stages
from sgltrace.index.shapes.interpreter.types import Types
from sgltrace.index.shapes.interpreter.vocabulary import ShapeVocabulary, shape_vocabulary
from sgltrace.index.shapes.interpreter.world import World
from sgltrace.index.shapes.symbolic.dims import symbol
from sgltrace.index.shapes.symbolic.joins import join, join_all
from sgltrace.index.shapes.symbolic.lists import Lists
from sgltrace.index.shapes.symbolic.store import Key, Store
from sgltrace.index.shapes.symbolic.values import (
    A_NUMBER,
    NONE,
    Const,
    Int,
    Obj,
    Place,
    Range,
    Ref,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
)

if TYPE_CHECKING:
    from sgltrace.index.fields import FieldFlow
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, ModuleInfo


class Machine(Types, Lists, Limits):
    """Interprets the program on one path."""

    MOST_QUESTIONS = 40

    def __init__(self, program: Program, flow: FieldFlow, path: str, stages: Stages) -> None:
        self.world = World(program)
        self.tracked = flow.tracked
        self.moving = moving_functions(program, flow)
        """The functions that write a field of the step, themselves or through what they call."""
        self.unused: s.Expr | None = None
        """The call whose result nobody uses."""
        self.path = path
        self.vocabulary: ShapeVocabulary = shape_vocabulary()
        self.last_layer = self.world.role_class(self.vocabulary.model.last_layer)
        names = roles()["server_args"].classes
        self.options_class = next((cls for name in names for cls in program.find_classes(name)), None)
        self.store = Store()
        self.records = Records()
        self.stages = stages
        self.entry: FunctionInfo | None = None
        """The worker's function that the scheduler calls each step."""
        self.batch: Obj | None = None
        """The scheduler's batch."""
        self.stack: list[FunctionInfo] = []
        self.frames: dict[FunctionInfo, Frame] = {}
        """Of each function that was run, the frame of its last call."""
        self.each_symbols: set[str] = set()
        self.in_model = False
        """Whether the last layer of a model is run: its variables are nothing that a step hands on."""
        self.memo: dict[MemoKey, Value] = {}
        self.being_asked: set[Key] = set()
        self.questions: list[tuple[int, int]] = []
        """Of each evaluation under way, how deep in calls and after how many statements it began."""
        self.spent = 0
        self._order = 0
        self._modules: dict[ModuleInfo, Frame] = {}
        self._assumed: dict[FunctionInfo, Value | None] = {}

    # --- running functions ---

    def enter(self, frame: Frame, caller: Frame, line: int) -> None:
        """A call begins."""
        caller.line = line
        self.stack.append(frame.function)
        if frame.function is self.entry:
            self.stages.entered()

    def leave(self, frame: Frame) -> None:
        """A call ends."""
        self.stack.pop()
        self.frames[frame.function] = frame
        if frame.function is self.entry:
            self.stages.begin(RELAY)

    def returned(self, frame: Frame) -> Value:
        """What a call gave: the join of its returns, special cases giving way to the general one."""
        if not frame.returns:
            return NONE
        general = [value for value, given in frame.returns if not given]
        value = join_all(general) if general else frame.returns[-1][0]
        for special, given in frame.returns:
            if given:
                value = special if special is value else join(special, value, given)
        owner = frame.function.owner
        return self.assumed(value) if owner is not None and owner.name in self.vocabulary.members else value

    # --- frames and variables ---

    def module_frame(self, module: ModuleInfo) -> Frame:
        """The frame of a module's own statements; its variables are evaluated when asked for."""
        frame = self._modules.get(module)
        if frame is None:
            frame = self._modules[module] = Frame(module.body, lazy=True)
        return frame

    def lazy_frame(self, function: FunctionInfo, receiver: Value | None) -> Frame:
        """A frame for a single question about a function."""
        return Frame(function, receiver=receiver, lazy=True)

    def nested(self, frame: Frame) -> Frame:
        """A frame inside another, as a comprehension has."""
        return Frame(frame.function, frame, frame.receiver, line=frame.line)

    def closure(self, frame: Frame, node: s.Func | s.Lambda) -> Value:
        """A nested function or lambda, with the frame around it."""
        inner = frame.function.nested.get(id(node))
        if inner is None:
            return Unknown("a nested function that is never called")
        return Ref("function", inner.id, None, inner, frame)

    def variable(self, frame: Frame, name: str, node: s.Expr) -> Value:
        """The value of a name."""
        inner: Frame | None = frame
        while inner is not None:
            value = self.store.get((inner.number, name))
            if value is not None:
                return value
            if inner.lazy:
                value = lazy.variable(self, inner, name)
                if value is not None:
                    self.store.put((inner.number, name), value)
                    return value
            inner = inner.parent
        found = self.world.static(frame.function, node)
        if found is not None and found.kind != "external":
            return found
        module = self.module_frame(frame.function.module)
        if module is not frame:
            value = self.variable(module, name, node)
            if not isinstance(value, Unknown):
                return value
        if found is not None and not found.target.startswith("builtins."):
            return found
        imported = self.world.imported(frame.function, name)
        if imported is not None:
            return self.variable(self.module_frame(imported[0]), imported[1], s.Name(imported[1]))
        return found if found is not None else Unknown(f"{name} is not known here")

    def assign_name(self, frame: Frame, name: str, value: Value, line: int = 0) -> None:
        """``name = value``"""
        self.store.set((frame.number, name), value)
        frame.implied.pop(name, None)
        if isinstance(value, Tensor) and line and not frame.lazy and not self.in_model:
            self._order += 1
            place = frame.place(line)
            self.records.locals.append(LocalWrite(self._order, self.stages.now, place, name, value))

    def element(self, value: Value) -> Value:
        """What a loop over a value gives."""
        from sgltrace.index.shapes.interpreter.loops import turns

        found = [element for element, _ in turns(self, value)]
        return join_all(found) if found else Unknown("an element of nothing")

    def assumption(self, function: FunctionInfo) -> Value | None:
        """The answer of a function that asks for the platform."""
        if function not in self._assumed:
            answer = self.vocabulary.platform.get(function.name)
            known = answer if function.owner is None else None
            self._assumed[function] = None if known is None else literal(known)
        return self._assumed[function]

    # --- what is noted ---

    def note_write(self, frame: Frame, obj: Obj, name: str, value: Value, line: int) -> None:
        """A field was given a value."""
        if isinstance(value, Unknown) and self._counts(obj, name, value):
            if obj.each:
                self.each_symbols.add(name)
            self.store.set((obj.number, name), Int(symbol(name)))
        if frame.lazy or not self.is_tracked(obj.cls):
            return
        self._order += 1
        self.stages.on_write(self.role(obj.cls), name, value)
        calls = tuple(function.id for function in self.stack)
        place = frame.place(line)
        self.records.fields.append(FieldWrite(self._order, self.stages.now, place, obj, name, value, calls))

    def _counts(self, obj: Obj, name: str, value: Unknown) -> bool:
        """Whether an unknown value is at least a number."""
        return value == A_NUMBER or (obj.each and obj.cls is not None and self.world.is_number(obj.cls, name))

    def note_read(self, obj: Obj, name: str, place: Place, value: Value) -> None:
        """A field was read."""
        self.records.read(obj, name, place, value)
        for part in alternatives(value):
            if isinstance(part, Tensor):
                self.note_use(part, place)

    def note_use(self, tensor: Tensor, place: Place) -> None:
        """A tensor was read or passed on."""
        if tensor.place is not None and tensor.place != place:
            self.records.uses.setdefault(tensor.place, {})[place] = None

    def note_run(self, frame: Frame, batch: Obj, draft: bool, line: int) -> None:
        """The model was run."""
        mode = self.store.get((batch.number, self.vocabulary.step.mode_field))
        self.stages.on_run(mode, draft)

    # --- symbols ---

    def is_of_each(self, key: Key) -> bool:
        """Whether a field belongs to an object that stands for every element of a list."""
        return key[0] in self.each_numbers

    def first_argument(self, ref: Ref) -> Value | None:
        """What a bound method gets first: its object, or its class."""
        function: FunctionInfo = ref.info
        if ref.bound is None or function.kind == "staticmethod" or function.owner is None:
            return None
        if function.kind == "classmethod" and isinstance(ref.bound, Obj):
            return self.class_ref(ref.bound.cls) if ref.bound.cls is not None else None
        return ref.bound

    def function_ref(self, function: FunctionInfo, bound: Value | None) -> Ref:
        """A function as a value."""
        return Ref("function", function.id, bound, function)

    def class_ref(self, cls: ClassInfo) -> Ref:
        """A class as a value."""
        return Ref("class", cls.id, None, cls)

    def is_instance(self, value: Value, cls: Value) -> bool | None:
        """``isinstance(value, cls)``"""
        if isinstance(value, Unknown) or isinstance(cls, Unknown):
            return None
        if isinstance(cls, Ref) and cls.kind == "class":
            if isinstance(value, Obj) and value.kind == "object" and value.cls is not None:
                return True if self.world.is_subclass(value.cls, cls.info) else None
            return False if isinstance(value, Tensor | Const | Int | Tuple | Range) else None
        if isinstance(cls, Ref) and cls.target == "torch.Tensor":
            return isinstance(value, Tensor)
        if isinstance(cls, Ref) and cls.target in ("builtins.list", "builtins.tuple", "builtins.int"):
            kinds = {"list": lambda v: isinstance(v, Obj) and v.kind == "list", "int": lambda v: isinstance(v, Int),
                     "tuple": lambda v: isinstance(v, Tuple)}  # fmt: skip
            return bool(kinds[cls.target.rpartition(".")[2]](value))
        return None
