"""Calls: of the program's own functions (interpreted), of classes, of torch and of Python's built-ins (modelled)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import containers, library, models, parameters
from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.interpreter import execute as ex
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.values import NONE, Either, Obj, Ref, Tensor, Unknown, Value, alternatives

if TYPE_CHECKING:
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
    from sgltrace.index.shapes.interpreter.machine import Machine

FEW_TARGETS = 3
"""Where the receiver is unknown, so many candidates are worth interpreting."""


def call(m: Machine, frame: Frame, node: s.Call) -> Value:
    """The value of a call."""
    frame.line = line = node.line
    unused = m.unused is node
    if isinstance(node.func, s.Name) and node.func.id == "super" and not node.args:
        return _super(m, frame)
    kernel = _kernel(m, frame, node.func)
    func = Unknown("a kernel gives nothing") if kernel else ev.evaluate(m, frame, node.func)
    args, kwargs = arguments(m, frame, node)
    frame.line = line
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            m.note_use(value, frame.place(line))
    if kernel:
        return NONE
    if unused and isinstance(func, Ref) and func.kind == "function" and m.is_idle_work(func.info, args):
        return NONE
    return call_ref(m, frame, func, args, kwargs, line, node)


def arguments(m: Machine, frame: Frame, node: s.Call) -> tuple[list[Value], dict[str, Value]]:
    """The arguments, unpacked ones too where they are known."""
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    for arg in node.args:
        value = ev.evaluate(m, frame, arg.value)
        if arg.name == "*":
            parts = m.items(value)
            args += parts if parts is not None else [Unknown("an unpacked argument")]
        elif arg.name == "**":
            if isinstance(value, Obj) and value.kind == "dict":
                kwargs.update(_by_text(m.fields_of(value)))
        elif arg.name is None:
            args.append(value)
        else:
            kwargs[arg.name] = value
    return args, kwargs


def _by_text(entries: list[tuple[str, Value]]) -> dict[str, Value]:
    """The entries of a dict whose keys are texts."""
    found = {}
    for key, value in entries:
        if key.startswith("Const("):  # how a dict keeps its keys
            name = ast.literal_eval(key.removeprefix("Const(value=").removesuffix(")"))
            if isinstance(name, str):
                found[name] = value
    return found


def _kernel(m: Machine, frame: Frame, func: s.Expr) -> bool:
    """Whether the callee is ``kernel[grid]``."""
    if not isinstance(func, s.Sub):
        return False
    base = ev.evaluate(m, frame, func.value)
    if isinstance(base, Ref) and base.kind == "function":
        ev.evaluate(m, frame, func.index)
        return True
    return False


def _super(m: Machine, frame: Frame) -> Value:
    inner: Frame | None = frame
    while inner is not None and inner.function.owner is None:
        inner = inner.parent
    if inner is None or inner.receiver is None:
        return Unknown("super() outside a method")
    return Ref("super", inner.function.owner.id if inner.function.owner else "", inner.receiver, inner.function.owner)


def call_ref(
    m: Machine,
    frame: Frame,
    func: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    line: int,
    node: s.Call | None = None,
) -> Value:
    """Call a value."""
    match func:
        case Either(values=values):
            return _any_of(m, frame, [value for value in values if value != NONE], args, kwargs, line, node)
        case Ref(kind="function"):
            return call_function(m, frame, func, args, kwargs, line)
        case Ref(kind="class"):
            return construct(m, frame, func.info, args, kwargs, line)
        case Ref(kind="external"):
            return library.external(m, frame, func.target, args, kwargs, line)
        case Ref(kind="builtin method"):
            return containers.builtin_method(m, frame, func.bound or NONE, func.target, args, kwargs, line)
        case Obj(kind="model"):
            return models.run(m, frame, func, args, kwargs, line)
        case Obj(kind="object"):
            for name in ("__call__", "forward"):
                result = method(m, frame, func, name, args, kwargs, line)
                if result is not None:
                    return result
            return Unknown(f"a call of {func.name or func}")
    if models.is_run(m, node, args, kwargs):
        return models.run(m, frame, func, args, kwargs, line)
    if node is not None:
        targets = m.world.targets(frame.function, node)
        if 0 < len(targets) <= FEW_TARGETS:
            refs: list[Value] = [m.function_ref(target, m.receiver_for(target)) for target in targets]
            return _any_of(m, frame, refs, args, kwargs, line, node)
    return func if isinstance(func, Unknown) else Unknown("a call of something that is not followed")


def _any_of(
    m: Machine,
    frame: Frame,
    callees: list[Value],
    args: list[Value],
    kwargs: dict[str, Value],
    line: int,
    node: s.Call | None,
) -> Value:
    """Call one of several: what they leave behind are branches."""
    if not callees:
        return Unknown("a call of None")
    results, ends = [], []
    for callee in callees:
        mark = m.store.mark()
        results.append(call_ref(m, frame, callee, args, kwargs, line, node))
        ends.append((m.store.undo(mark), None))
    m.store.merge(ends)
    return join_all(results)


def method(
    m: Machine, frame: Frame, obj: Obj, name: str, args: list[Value], kwargs: dict[str, Value], line: int
) -> Value | None:
    """``obj.name(...)``; None where the class has no such method."""
    found = m.world.method(obj.cls, name) if obj.cls is not None else None
    return None if found is None else call_function(m, frame, m.function_ref(found, obj), args, kwargs, line)


def call_function(m: Machine, frame: Frame, ref: Ref, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
    """Interpret a function of the program."""
    function: FunctionInfo = ref.info
    first = m.first_argument(ref)
    assumed = m.assumption(function)
    if assumed is not None:
        return assumed
    if function.owner is not None and m.is_opaque(function.owner):
        return Obj(None, function.owner.name, "config")
    key = m.memo_key(function, first, args, kwargs)
    if key is not None and key in m.memo:
        return m.memo[key]
    if not m.may_enter(function):
        return Unknown(f"{function.name} is nested too deeply")
    inner = Frame(function, ref.frame, first if first is not None else (ref.frame.receiver if ref.frame else None))
    parameters.bind(m, inner, [first, *args] if first is not None else args, kwargs)
    m.enter(inner, frame, line)
    try:
        with m.aside(function):
            ex.block(m, inner, function.body)
    finally:
        m.leave(inner)
    if inner.exits:
        m.store.merge([({}, None), *inner.exits])
    value = m.returned(inner)
    if isinstance(value, Unknown) or (value == NONE and inner.returns):
        typed = m.answer(function, first) or m.by_return(function)
        value = value if isinstance(typed, Unknown) else typed
    if key is not None:
        m.memo[key] = value
    return value


def construct(
    m: Machine, frame: Frame, cls: ClassInfo, args: list[Value], kwargs: dict[str, Value], line: int
) -> Value:
    """``cls(...)``"""
    if m.world.is_enum(cls):
        return Unknown(f"a {cls.name}")
    if m.is_opaque(cls):
        return Obj(None, cls.name, "config")
    obj = Obj(cls, cls.name)
    if m.lives_long(cls):
        obj.lazy, obj.arguments = True, (args, kwargs)
        return obj
    init = m.world.method(cls, "__init__")
    if init is not None and not m.world.is_dataclass_init(cls, init):
        call_function(m, frame, m.function_ref(init, obj), args, kwargs, line)
        return obj
    parameters.fill_dataclass(m, frame, obj, args, kwargs, line)
    post = m.world.method(cls, "__post_init__")
    if post is not None:
        call_function(m, frame, m.function_ref(post, obj), [], {}, line)
    return obj


def enter(m: Machine, frame: Frame, context: Value) -> Value:
    """What ``with context as x`` binds."""
    if isinstance(context, Obj) and context.kind == "object":
        result = method(m, frame, context, "__enter__", [], {}, frame.line)
        return result if result is not None else context
    return context


def single(value: Value) -> Value:
    """A value without the None that it may be."""
    kept = [part for part in alternatives(value) if part != NONE]
    return kept[0] if len(kept) == 1 else value
