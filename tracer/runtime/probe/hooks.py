"""Wraps the plan's functions on their class or module, the moment their module has been imported."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .probe import Probe, Site
from .selectors import CALL, Selector, SelectorError, compile_selector


class CannotWrap(Exception):
    """A site that cannot be wrapped, and why."""


def wrap_site(
    probe: Probe, site: Site, module: types.ModuleType, qualname: str, before: Sequence[str], after: Sequence[str]
) -> None:
    """Replace the function ``qualname`` of ``module`` by one that records. Raises ``CannotWrap``."""
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
    _compile(probe, site, function, before, after)
    wrapper = _make_wrapper(probe, site, function)
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


def _compile(
    probe: Probe, site: Site, function: types.FunctionType, before: Sequence[str], after: Sequence[str]
) -> None:
    """Compile the selectors. One that does not fit is left out and told, the others stand."""
    parameters = _parameters(function)
    for side, texts in (("before", before), ("after", after)):
        names: list[str] = []
        readers: list[Selector] = []
        for text in _expand(texts, parameters):
            try:
                if text.startswith("step:"):
                    readers.append(_step_reader(probe, compile_selector(text.removeprefix("step:"), parameters)))
                    text = "of_step"
                else:
                    readers.append(compile_selector(text, parameters))
            except SelectorError as error:
                if probe.on_problem is not None:
                    probe.on_problem(f"{site.ident}: {error}")
                continue
            names.append(text)
        setattr(site, side, tuple(readers))
        setattr(site, f"{side}_names", tuple(names))


def _expand(texts: Sequence[str], parameters: Sequence[str]) -> list[str]:
    expanded: list[str] = []
    for text in texts:
        if text == "args":
            names = [p for p in parameters if p not in ("self", "cls")]
            expanded += ["self"] * ("self" in parameters) + [f"arg.{name}" for name in names]
        elif text.startswith("arg.?"):  # whichever of these parameters the function has
            name, dot, rest = text.removeprefix("arg.?").partition(".")
            expanded += [f"arg.{p}{dot}{rest}" for p in name.split("|") if p in parameters]
        elif text.startswith("step:arg.?"):
            names = text.removeprefix("step:arg.?").split("|")
            expanded += [f"step:arg.{p}" for p in names if p in parameters]
        else:
            expanded.append(text)
    return expanded


def _step_reader(probe: Probe, read: Selector) -> Selector:
    return Selector(CALL, call=lambda args, kwargs, result: probe.step_of(read(args, kwargs, result)))


def _parameters(function: types.FunctionType) -> list[str]:
    """The names of the parameters that can be given by position, of the function under its decorators."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return list(function.__code__.co_varnames[: function.__code__.co_argcount])
    return [p.name for p in signature.parameters.values() if p.kind in kinds]


def _make_wrapper(probe: Probe, site: Site, function: types.FunctionType) -> Callable[..., Any]:
    name, enter, leave, raised = probe.entries(site)
    # The scheduler's and workers' own functions are never inside of what torch.compile traces; others may be.
    is_compiling = _is_compiling() if "traceable" in site.flags else None

    @functools.wraps(function)
    def sgltrace_wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling is not None and is_compiling():
            return function(*args, **kwargs)
        thread = enter(name, args, kwargs)
        if thread is None:
            return function(*args, **kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            raised(name, thread, error)
            raise
        leave(name, thread, args, kwargs, result)
        return result

    sgltrace_wrapper.__sgltrace_site__ = site.ident  # type: ignore[attr-defined]
    return sgltrace_wrapper


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
