"""The interpreter's state and the services that its parts share: frames, variables, lists, types, what is noted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sgltrace.index import syntax as s
from sgltrace.index.fields_tracked import roles
from sgltrace.index.shapes import evaluate as ev
from sgltrace.index.shapes import lazy
from sgltrace.index.shapes.dims import ONE, Dim, symbol
from sgltrace.index.shapes.frames import FieldWrite, Frame, LocalWrite, Records
from sgltrace.index.shapes.stages import RELAY, Stages
from sgltrace.index.shapes.store import Key, Store
from sgltrace.index.shapes.torchcall import elements
from sgltrace.index.shapes.types import Types, literal
from sgltrace.index.shapes.values import (
    A_NUMBER,
    NONE,
    Const,
    Either,
    Int,
    Obj,
    Place,
    Range,
    Ref,
    Run,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
    join,
    join_all,
)
from sgltrace.index.shapes.vocabulary import ShapeVocabulary, shape_vocabulary
from sgltrace.index.shapes.world import World
from sgltrace.model import PHASES

if TYPE_CHECKING:
    from sgltrace.index.entities import ClassInfo, FunctionInfo, ModuleInfo
    from sgltrace.index.fields import FieldFlow
    from sgltrace.index.program import Program

MemoKey = tuple["FunctionInfo", tuple["Value | None", ...], tuple[tuple[str, "Value"], ...]]
DEEPEST = 24
"""Calls nested deeper than this are not entered."""
DEEPEST_QUESTION = 5
"""Nor are calls nested so deep in the evaluation of a field that was set when the process started."""
MOST_IN_QUESTION = 300
"""Nor after so many statements in one such evaluation."""
MOST_STATEMENTS = 20_000
"""After so many statements no further function is entered."""


class Machine(Types):
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

    def spend(self) -> None:
        """Count a statement."""
        self.spent += 1

    def may_enter(self, function: FunctionInfo) -> bool:
        """Whether a call may still be followed."""
        if len(self.stack) >= DEEPEST or self.spent > MOST_STATEMENTS or function.is_generator:
            return False
        if not self.questions and not self.runs_in_step(function):
            return False
        if self.questions:
            depth, spent = self.questions[0]
            if len(self.stack) - depth >= DEEPEST_QUESTION or self.spent - spent > MOST_IN_QUESTION:
                return False
        return self.stack.count(function) < 2

    def runs_in_step(self, function: FunctionInfo) -> bool:
        """Whether a function runs while the scheduler turns, and not only before, by the call graph."""
        phases = self.world.program.phases
        if any(phases.runs(function, path, phase) for path in (self.path, "any") for phase in PHASES[2:]):
            return True
        return not any(phases.runs(function, "any", phase) for phase in PHASES[:2])

    def is_idle_work(self, function: FunctionInfo, args: list[Value]) -> bool:
        """Whether a call whose result nobody uses leaves nothing behind that shapes depend on."""
        if function in self.moving or function.parent is not None:
            return False
        return not any(isinstance(arg, Obj) and arg.kind in ("list", "dict") for arg in args)

    def memo_key(
        self, function: FunctionInfo, first: Value | None, args: list[Value], kwargs: dict[str, Value]
    ) -> MemoKey | None:
        """What the result of a function that writes no step's field depends on; None where it is not kept."""
        if function in self.moving or function.parent is not None:
            return None
        values = (first, *args, *kwargs.values())
        if any(isinstance(value, Obj) and value.kind in ("list", "dict") for value in values):
            return None
        return function, (first, *args), tuple(kwargs.items())

    @contextmanager
    def aside(self, function: FunctionInfo) -> Iterator[None]:
        """While a function runs that writes no step's field: only its result counts, so it is followed less far."""
        if function in self.moving or self.questions:
            yield
            return
        self.questions.append((len(self.stack), self.spent))
        try:
            yield
        finally:
            self.questions.pop()

    @contextmanager
    def question(self) -> Iterator[None]:
        """While something is evaluated that was there before the step: calls are followed less far, and what they
        change holds for good."""
        mark = self.store.mark()
        self.questions.append((len(self.stack), self.spent))
        try:
            yield
        finally:
            self.questions.pop()
            self.store.keep(mark)

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

    def bind(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> None:
        """Give a function's parameters their arguments, defaults, or what their types say."""
        position = 0
        for param in frame.function.parameters:
            value: Value | None = None
            if param.kind == "*":
                value = Tuple(tuple(args[position:]))
                position = len(args)
            elif param.kind == "**":
                value = self.new_dict({k: v for k, v in kwargs.items() if not _names(frame.function, k)})
            elif param.kind != "=" and position < len(args):
                value = args[position]
                position += 1
            elif param.name in kwargs:
                value = kwargs[param.name]
            elif param.default is not None:
                value = ev.evaluate(self, self.module_frame(frame.function.module), param.default)
            if value is None or isinstance(value, Unknown):
                typed = self.by_type(frame.function, param)
                value = typed if value is None or not isinstance(typed, Unknown) else value
            elif param.annotation is not None:
                value = self.narrowed_to(value, self.world.param_classes(frame.function, param))
            self.store.set((frame.number, param.name), value)

    def bind_one(
        self, function: FunctionInfo, param: s.Param, args: list[Value], kwargs: dict[str, Value]
    ) -> Value | None:
        """The argument that a method's parameter gets from a call, ``self`` not counted; its default; or None."""
        if param.name in kwargs:
            return kwargs[param.name]
        names = [p.name for p in function.parameters if p.kind in ("", "/")][1:]
        if param.name in names and names.index(param.name) < len(args):
            return args[names.index(param.name)]
        if param.default is not None:
            return ev.evaluate(self, self.module_frame(function.module), param.default)
        return None

    def fill_dataclass(self, frame: Frame, obj: Obj, args: list[Value], kwargs: dict[str, Value], line: int) -> None:
        """Set a dataclass's fields from a constructor's arguments and the defaults."""
        from sgltrace.index.shapes import objects

        assert obj.cls is not None
        for i, name in enumerate(self.world.fields(obj.cls)):
            if i < len(args):
                value: Value | None = args[i]
            else:
                value = kwargs.get(name)
            if value is None:
                default = self.world.class_value(obj.cls, name)
                if default is not None:
                    value = self._default(default[0].module, default[1])
                    self.store.set((obj.number, name), value)
                continue
            objects.set_field(self, frame, obj, name, value, line)

    def _default(self, module: ModuleInfo, expression: s.Expr) -> Value:
        """A field's default; ``field(default_factory=list)`` is an empty one."""
        if isinstance(expression, s.Call):
            for arg in expression.args:
                if arg.name == "default_factory" and isinstance(arg.value, s.Name) and arg.value.id == "list":
                    return self.new_list(())
                if arg.name == "default":
                    return self._default(module, arg.value)
        return ev.evaluate(self, self.module_frame(module), expression)

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
        if isinstance(value, Tensor) and line and not frame.lazy and not self.in_model:
            self._order += 1
            place = frame.place(line)
            self.records.locals.append(LocalWrite(self._order, self.stages.now, place, name, value))

    # --- lists and dicts ---

    def new_list(self, segments: tuple[tuple[Value, Dim], ...]) -> Obj:
        """A list with these elements."""
        made = Obj(None, kind="list")
        self.store.set((made.number, "[]"), Run(segments))
        return made

    def new_dict(self, items: dict[str, Value]) -> Obj:
        """A dict with these keys."""
        made = Obj(None, kind="dict")
        for key, value in items.items():
            self.store.set((made.number, repr(Const(key))), value)
        return made

    def list_segments(self, obj: Obj) -> tuple[tuple[Value, Dim], ...]:
        """A list's elements."""
        held = self.store.get((obj.number, "[]"))
        return held.segments if isinstance(held, Run) else ()

    def set_list(self, obj: Obj, segments: tuple[tuple[Value, Dim], ...]) -> None:
        """Change a list's elements."""
        self.store.set((obj.number, "[]"), Run(segments))

    def extend(self, obj: Obj, more: Value) -> None:
        """``obj += more``"""
        view = self.view(more)
        if isinstance(view, Run):
            self.set_list(obj, self.list_segments(obj) + view.segments)
        elif isinstance(view, Tuple):
            self.set_list(obj, self.list_segments(obj) + tuple((item, ONE) for item in view.items))

    def view(self, value: Value) -> Value:
        """A value as operations take it: a list by its elements."""
        if isinstance(value, Obj) and value.kind == "list":
            segments = self.list_segments(value)
            whole = elements(Run(segments))
            return Tuple(whole) if whole is not None else Run(segments)
        return value

    def whole_view(self, value: Value) -> Value:
        """``view``, of what is inside too: nested lists."""
        view = self.view(value)
        if isinstance(view, Tuple):
            return Tuple(tuple(self.whole_view(item) for item in view.items), view.names)
        if isinstance(view, Run):
            return Run(tuple((self.whole_view(item), count) for item, count in view.segments))
        return view

    def items(self, value: Value) -> list[Value] | None:
        """The elements of a sequence of known length."""
        view = self.view(value)
        if isinstance(view, Tensor) and view.shape and view.shape[0] is not None:
            count = view.shape[0].constant
            return None if count is None else [view.same_data(view.shape[1:])] * count
        found = elements(view)
        return None if found is None else list(found)

    def parts(self, value: Value, count: int) -> list[Value]:
        """The values that so many targets get."""
        known = next((part for part in alternatives(value) if self.items(part) is not None), value)
        found = self.items(known)
        if found is not None and len(found) == count:
            return found
        return [Unknown("a part of a value that is unknown")] * count

    def element(self, value: Value) -> Value:
        """What a loop over a value gives."""
        from sgltrace.index.shapes.loops import turns

        found = [element for element, _ in turns(self, value)]
        return join_all(found) if found else Unknown("an element of nothing")

    def fields_of(self, obj: Obj) -> list[tuple[str, Value]]:
        """The fields of an object that hold something."""
        return self.store.under(obj.number)

    # --- conditions ---

    @contextmanager
    def narrowed(self, frame: Frame, test: s.Expr | None, holds: bool) -> Iterator[None]:
        """While a test is taken to hold (or not), what it says of a variable or field counts."""
        if test is not None:
            self._narrow(frame, test, holds)
        yield

    def assume(self, frame: Frame, test: s.Expr) -> None:
        """An ``assert``: what it says counts from here on."""
        ev.evaluate(self, frame, test)
        self._narrow(frame, test, True)

    def _narrow(self, frame: Frame, test: s.Expr, holds: bool) -> None:
        if isinstance(test, s.Unary) and test.op == "not":
            self._narrow(frame, test.value, not holds)
        elif isinstance(test, s.Bool) and (test.op == "and") is holds:
            self._narrow(frame, test.left, holds)
            self._narrow(frame, test.right, holds)
        elif isinstance(test, s.Cmp) and test.ops in (["is"], ["is not"]) and _is_none(test.rights[0]):
            self._keep(frame, test.left, (test.ops == ["is"]) is holds)
        elif isinstance(test, s.Call) and holds and isinstance(test.func, s.Name) and test.func.id == "isinstance":
            self._narrow_class(frame, test)
        elif isinstance(test, s.Name | s.Attr) and holds:
            self._keep(frame, test, False)

    def _narrow_class(self, frame: Frame, test: s.Call) -> None:
        if len(test.args) == 2:
            cls = ev.evaluate(self, frame, test.args[1].value)
            if isinstance(cls, Ref) and cls.kind == "class":
                self.narrowed_to(ev.evaluate(self, frame, test.args[0].value), [cls.info])

    def _keep(self, frame: Frame, node: s.Expr, none: bool) -> None:
        """Of the values that a variable or field may have, keep None or the others."""
        if not isinstance(node, s.Name | s.Attr):
            return
        value = ev.evaluate(self, frame, node)
        if not isinstance(value, Either) or NONE not in value.values:
            return
        kept = NONE if none else join_all(part for part in value.values if part != NONE)
        if isinstance(node, s.Name):
            self.store.set((frame.number, node.id), kept)
        else:
            for obj in alternatives(ev.evaluate(self, frame, node.value)):
                if isinstance(obj, Obj):
                    self.store.set((obj.number, node.attr), kept)

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


def moving_functions(program: Program, flow: FieldFlow) -> set[FunctionInfo]:
    """The functions from which a write of a field that lives for a step or a request is reached."""
    callers: dict[FunctionInfo, list[FunctionInfo]] = {}
    for caller, callee, _ in program.engine.edges:
        callers.setdefault(callee, []).append(caller)
    lasting = {key for key, role in roles().items() if role.carries == "process"} - {"future_map"}
    pending = [
        function
        for function, accesses in flow.by_function.items()
        if any(a.is_write and a.kind != "default" and flow.role(a.cls) not in lasting for a in accesses)
    ]
    found = set(pending)
    while pending:
        for caller in callers.get(pending.pop(), ()):
            if caller not in found:
                found.add(caller)
                pending.append(caller)
    return found


def _names(function: FunctionInfo, name: str) -> bool:
    return any(param.name == name and param.kind != "**" for param in function.parameters)


def _is_none(node: s.Expr) -> bool:
    return isinstance(node, s.Const) and node.value is None
