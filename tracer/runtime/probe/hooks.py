"""Wraps the plan's functions on their class or module, the moment their module has been imported."""

from __future__ import annotations

import functools
import inspect
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .probe import SIDES, Probe, Side, Site
from .selectors import STEP, Selector, SelectorError, compile_selector


class CannotWrap(Exception):
    """A site that cannot be wrapped, and why."""


def wrap_site(
    probe: Probe, site: Site, module: types.ModuleType, qualname: str, selectors: Mapping[str, Sequence[str]]
) -> None:
    """Replace the function ``qualname`` of ``module`` by one that records. Raises ``CannotWrap``.

    ``selectors`` say what is recorded on each of ``probe.SIDES``.
    """
    owner: Any = module
    *outer, name = qualname.split(".")
    for part in outer:
        owner = vars(owner).get(part)
        if not isinstance(owner, type):
            raise CannotWrap(f"no class {part} in {module.__name__}")
    if name not in vars(owner):
        raise CannotWrap(f"no {qualname} in {module.__name__}")
    stored = vars(owner)[name]
    function, rebuild = _unwrap_descriptor(stored)
    if hasattr(function, "__sgltrace_site__"):
        return  # the module was reloaded around it
    if not isinstance(function, types.FunctionType):
        raise CannotWrap(f"{qualname} is a {type(function).__name__}, not a function")
    if (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        raise CannotWrap(f"{qualname} is a generator or coroutine; only its creation could be recorded")
    compile_sides(probe, site, function, selectors)
    wrapper = make_wrapper(probe, site, function)
    setattr(owner, name, rebuild(wrapper))
    if owner is module:
        _replace_copies(function, wrapper, module.__name__.partition(".")[0])


def _unwrap_descriptor(stored: Any) -> tuple[Any, Callable[[Any], Any]]:
    if isinstance(stored, staticmethod):
        return stored.__func__, staticmethod
    if isinstance(stored, classmethod):
        return stored.__func__, classmethod
    if isinstance(stored, property):
        return stored.fget, lambda wrapper: property(wrapper, stored.fset, stored.fdel, stored.__doc__)
    return stored, lambda wrapper: wrapper


def compile_sides(
    probe: Probe, site: Site, function: types.FunctionType, selectors: Mapping[str, Sequence[str]]
) -> None:
    """Compile the selectors. One that does not fit is left out and told, the others stand."""
    parameters = _parameters(function)
    for at, side in enumerate(SIDES):
        names: list[str] = []
        readers: list[Selector] = []
        for text in _expand(selectors.get(side, ()), parameters):
            try:
                readers.append(compile_selector(text, parameters))
            except SelectorError as error:
                if probe.on_problem is not None:
                    probe.on_problem(f"{site.ident}: {error}")
                continue
            names.append("of_step" if text.startswith(STEP) else text)
        site.sides[at] = Side(site.sides[at].owner, tuple(names), tuple(readers))


def _expand(texts: Sequence[str], parameters: Sequence[str]) -> list[str]:
    """``args`` to every parameter, ``arg.?A|B`` to whichever of these the function has."""
    expanded: list[str] = []
    for text in texts:
        step, bare = (STEP, text.removeprefix(STEP)) if text.startswith(STEP) else ("", text)
        if bare == "args":
            names = [p for p in parameters if p not in ("self", "cls")]
            expanded += ["self"] * ("self" in parameters) + [f"arg.{name}" for name in names]
        elif bare.startswith("arg.?"):
            name, dot, rest = bare.removeprefix("arg.?").partition(".")
            expanded += [f"{step}arg.{p}{dot}{rest}" for p in name.split("|") if p in parameters]
        else:
            expanded.append(text)
    return expanded


def _parameters(function: types.FunctionType) -> list[str]:
    """The names of the parameters, of the function under its decorators where those pass everything on."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    own = _own_parameters(function)
    if not own.variadic:
        return [*own.positional, *own.keyword_only]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return [*own.positional, *own.keyword_only]
    return [p.name for p in signature.parameters.values() if p.kind in kinds]


class _Parameters(NamedTuple):
    """A function's own parameters, as its code has them."""

    positional: tuple[str, ...]
    only_positional: int
    keyword_only: tuple[str, ...]
    rest: str | None
    rest_keywords: str | None

    @property
    def variadic(self) -> bool:
        """Whether it takes more than it names."""
        return self.rest is not None or self.rest_keywords is not None


def _own_parameters(function: types.FunctionType) -> _Parameters:
    code = function.__code__
    names = code.co_varnames
    keywords = code.co_argcount + code.co_kwonlyargcount
    rest = names[keywords] if code.co_flags & inspect.CO_VARARGS else None
    after = keywords + (rest is not None)
    return _Parameters(
        names[: code.co_argcount],
        code.co_posonlyargcount,
        names[code.co_argcount : keywords],
        rest,
        names[after] if code.co_flags & inspect.CO_VARKEYWORDS else None,
    )


_WRAPPER = """
def sgltrace_wrapper({parameters}):
    {gate}
    _sgltrace_args = ({args})
    _sgltrace_kwargs = {{{kwargs}}}
    _sgltrace_thread = _sgltrace_enter(_sgltrace_name, _sgltrace_args, _sgltrace_kwargs)
    if _sgltrace_thread is None:
        return _sgltrace_function({call})
    try:
        _sgltrace_result = _sgltrace_function({call})
    except BaseException as _sgltrace_error:
        _sgltrace_raised(_sgltrace_name, _sgltrace_thread, _sgltrace_error)
        raise
    _sgltrace_leave(_sgltrace_name, _sgltrace_thread, _sgltrace_args, _sgltrace_kwargs, _sgltrace_result)
    return _sgltrace_result
"""


def make_wrapper(probe: Probe, site: Site, function: types.FunctionType) -> Callable[..., Any]:
    """A function with the parameters of ``function`` that records around it.

    It is generated, since passing on named parameters costs a fraction of ``*args, **kwargs``; most of its calls are
    in steps that are not recorded in full, and leave it at the gate.
    """
    own = _own_parameters(function)
    name, enter, leave, raised = probe.entries(site)
    tests = []
    if "traceable" in site.flags:
        # The scheduler's and workers' own functions are never inside of what torch.compile traces; others may be.
        tests.append("_sgltrace_is_compiling()")
    if "watch" in site.flags:
        tests.append("not _sgltrace_watch[0]")
    elif not site.flags & _UNGATED:
        tests.append("not _sgltrace_gate[0]")
    call = ", ".join(
        [
            *own.positional,
            *([f"*{own.rest}"] if own.rest else []),
            *(f"{k}={k}" for k in own.keyword_only),
            *([f"**{own.rest_keywords}"] if own.rest_keywords else []),
        ]
    )
    given = [*own.positional, *([f"*{own.rest}"] if own.rest else own.keyword_only)]
    named = [f"{k!r}: {k}" for k in own.keyword_only] if own.rest else []
    source = _WRAPPER.format(
        parameters=_parameter_list(own, function),
        gate=f"if {' or '.join(tests)}: return _sgltrace_function({call})" if tests else "",
        args="".join(f"{part}, " for part in given),
        kwargs=", ".join([*named, *([f"**{own.rest_keywords}"] if own.rest_keywords else [])]),
        call=call,
    )
    namespace: dict[str, Any] = {
        "_sgltrace_function": function,
        "_sgltrace_name": name,
        "_sgltrace_enter": enter,
        "_sgltrace_leave": leave,
        "_sgltrace_raised": raised,
        "_sgltrace_gate": probe.gate,
        "_sgltrace_watch": probe.watch,
        "_sgltrace_is_compiling": _is_compiling(),
        "__name__": __name__,
    }
    exec(compile(source, f"<sgltrace wrapper of {site.ident}>", "exec"), namespace)
    wrapper: Any = namespace["sgltrace_wrapper"]
    wrapper.__defaults__ = function.__defaults__
    wrapper.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(wrapper, function)
    wrapper.__sgltrace_site__ = site.ident
    return wrapper  # type: ignore[no-any-return]


_UNGATED = frozenset({"open", "step", "process", "compile", "capture", "graph begin", "graph end"})


def _parameter_list(own: _Parameters, function: types.FunctionType) -> str:
    """The parameters as they are written; defaults only have to be there, their values are set afterwards."""
    required = len(own.positional) - len(function.__defaults__ or ())
    parts = [name if at < required else f"{name}=None" for at, name in enumerate(own.positional)]
    if own.only_positional:
        parts.insert(own.only_positional, "/")
    if own.rest or own.keyword_only:
        parts.append(f"*{own.rest or ''}")
    parts += [f"{name}=None" if name in (function.__kwdefaults__ or {}) else name for name in own.keyword_only]
    if own.rest_keywords:
        parts.append(f"**{own.rest_keywords}")
    return ", ".join(parts)


def _is_compiling() -> Callable[[], bool]:
    """PyTorch's own test, which its compiler knows: under it a wrapper is as if it were not there."""
    compiler: Any = sys.modules.get("torch.compiler")
    test: Callable[[], bool] | None = getattr(compiler, "is_compiling", None)
    return test if test is not None else _never


def _never() -> bool:
    return False


def _replace_copies(function: Any, wrapper: Any, package: str) -> None:
    """Replace the names that ``from module import function`` made before the module had run (import cycles)."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] != package or module is None:
            continue
        for name, value in list(vars(module).items()):
            if value is function:
                setattr(module, name, wrapper)


def measure(probe: Probe) -> tuple[float, float]:
    """What a wrapper costs in ns beside what is measured inside of it, and one that goes no further than its gate.

    Measured here and now with functions of our own, since it differs by machine and Python.
    """

    def through(self: object, batch: object) -> None:
        return None

    def watched(self: object, batch: object) -> None:
        return None

    idle = (None, lambda *_: 0, lambda *_: None, lambda *_: None)
    stand_in = types.SimpleNamespace(gate=[False], watch=[True], entries=lambda site: idle)
    closed = make_wrapper(stand_in, Site(0, "closed", frozenset()), through)  # type: ignore[arg-type]
    opened = make_wrapper(stand_in, Site(0, "open", frozenset({"watch"})), watched)  # type: ignore[arg-type]
    bare, gate, wrapper = (min(_time(f) for _ in range(5)) for f in (through, closed, opened))
    clocks = min(_time(lambda *_: None) for _ in range(5)) - bare
    return max(0.0, wrapper - bare - 2 * clocks), max(0.0, gate - bare)


def _time(function: Callable[..., Any]) -> float:
    count = 200
    start = time.perf_counter_ns()
    for _ in range(count):
        function(None, None)
    return (time.perf_counter_ns() - start) / count
