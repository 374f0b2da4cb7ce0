"""The answer: worker, path, overlap, values, the error, the release's own off step, and what is not known."""

from __future__ import annotations

from typing import Any

import msgspec

from sgltrace.configuration.model import Configuration, Open, Value
from sgltrace.evaluate import Machine, Maybe, Unknown
from sgltrace.evaluate.functions import Function, Opaque
from sgltrace.evaluate.unknown import has_unknown, roots_of
from sgltrace.explain.cast import Parts
from sgltrace.explain.offstep import OffStep, off_step
from sgltrace.explain.session import Handled, field_names
from sgltrace.explain.vocabulary import Hints

EXPLANATION_SCHEMA = "sgltrace.explanation/1"


class Failure(msgspec.Struct):
    """An exception that the user gets, and where it arises."""

    exception: str
    message: str
    function: str
    line: int
    condition: str = ""


class Step(msgspec.Struct):
    """A link of the chain: where, under which condition, what."""

    function: str
    line: int
    condition: str
    effect: str
    kind: str = ""
    argument: str = ""
    file: str = ""
    certain: bool = True
    """Whether it happens whatever is not known."""


class Explanation(msgspec.Struct, kw_only=True):
    """What ``sgltrace explain --json`` prints."""

    schema: str = EXPLANATION_SCHEMA
    command: str = ""
    source: str = ""
    worker: str | None
    path: str | None
    overlap: bool | None
    values: dict[str, Value]
    rewritten: dict[str, Value] = {}
    """Of ``values``, those that are not what the command line set."""
    open: dict[str, Open] = {}
    error: Failure | None
    off_step: OffStep
    unknown: list[str]
    chain: list[Step]
    possible_errors: list[Failure] = []
    """Refusals that hang on what is not known."""
    assumed: dict[str, str] = {}
    problems: list[str] = []
    """What could not be read or found."""

    def configuration(self) -> Configuration:
        """The configuration that points, plan and contract are pruned to."""
        return Configuration(
            values=self.values, open=self.open, worker=self.worker, path=self.path, overlap=self.overlap
        )


def make_answer(handled: Handled, parts: Parts, hints: Hints) -> Explanation:
    """Put the answer together from what came of a command."""
    machine, recorder = handled.machine, handled.recorder
    resolved = _resolved(handled, hints)
    values, opened = _settled(resolved)
    worker, base = _worker_class(handled, hints)
    error = _failure(handled.error) if handled.error is not None else None
    if error is not None and handled.phase == "arguments":
        worker = None
    overlap = _first_known(recorder.written, hints.overlap_fields) if error is None else None
    path = _path(worker, base, handled, values, hints) if error is None else "none"
    undecided = [value for value in (worker, overlap) if isinstance(value, Unknown)]
    unknown = sorted(roots_of([*undecided, *resolved.values()]))
    refusals = [
        Failure(type(r.error).__name__, _text(r.error), r.function, r.line, r.condition.name) for r in machine.refusals
    ]
    if error is not None and values.get(hints.algorithm) is None and handled.phase == "arguments":
        path = "none"
    return Explanation(
        worker=worker.__name__ if isinstance(worker, type) else None,
        path=path,
        overlap=overlap if isinstance(overlap, bool) else None,
        values=values,
        rewritten=_rewritten(handled, values),
        open=opened,
        error=error,
        off_step=off_step(handled, values, error is not None, hints),
        unknown=unknown,
        chain=[
            Step(x.function, x.line, x.condition, x.effect, x.kind, x.argument, x.path, x.certain)
            for x in recorder.links
        ],
        possible_errors=refusals,
        assumed={name: _short(value) for name, value in sorted(machine.used.items())},
        problems=[*handled.problems, *machine.skipped[: handled.skipped_before]],
    )


def _resolved(handled: Handled, hints: Hints) -> dict[str, Any]:
    """The record's values once it is handled: its own fields, or what its views say."""
    record, machine = handled.record, handled.machine
    if record is None:
        return dict(handled.recorder.raw)
    names = field_names(type(record))
    own = {name: getattr(record, name, None) for name in names}
    if not getattr(record, "__dict__", None) or not hasattr(type(record), "__struct_fields__"):
        return own
    view = _view(handled, hints)
    if isinstance(view, dict):
        return {name: view.get(name, own[name]) for name in names}
    if view is None:
        return own
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = machine.get_attribute(view, name)
        except Exception:
            found[name] = own[name]
    return found


def _view(handled: Handled, hints: Hints) -> Any:
    machine, record = handled.machine, handled.record
    for name in hints.views:
        if isinstance(getattr(type(record), name, None), Function):
            try:
                return machine.call(machine.get_attribute(record, name), (), {})
            except Exception:
                continue
        for module in list(machine.modules.loaded.values()):
            function = module.scope.get(name)
            if callable(function) and not isinstance(function, Unknown):
                try:
                    return machine.call(function, (record,), {})
                except Exception:
                    continue
    return None


def _settled(resolved: dict[str, Any]) -> tuple[dict[str, Value], dict[str, Open]]:
    values: dict[str, Value] = {}
    opened: dict[str, Open] = {}
    for name, value in resolved.items():
        if isinstance(value, Maybe):
            value = value.value
        if isinstance(value, Unknown):
            opened[name] = Open([plain(option) for option in value.options], sorted(value.roots))
        elif has_unknown((value,)):
            opened[name] = Open([], sorted(roots_of((value,))))
        else:
            values[name] = plain(value)
    return values, opened


def plain(value: Any) -> Value:
    """A value as JSON may hold it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Unknown):
        return str(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    inner = getattr(value, "__dict__", None)
    if isinstance(inner, dict) and inner and not isinstance(value, (type, Opaque)):
        return {str(key): plain(item) for key, item in inner.items() if not key.startswith("_")}
    return repr(value) if not isinstance(value, Opaque) else type(value).__name__


def _rewritten(handled: Handled, values: dict[str, Value]) -> dict[str, Value]:
    touched = {link.argument for link in handled.recorder.links if link.argument}
    return {name: values[name] for name in sorted(touched) if name in values}


def _worker_class(handled: Handled, hints: Hints) -> tuple[Any, type | None]:
    """The class of the draft worker (None without one), and the class of the target's worker."""
    written = handled.recorder.written
    target = next((getattr(type(written[n]), "of", None) for n in hints.target_fields if n in written), None)
    for name in hints.worker_fields:
        if name in written:
            value = written[name]
            if isinstance(value, Unknown):
                classes = {getattr(type(option), "of", option) for option in value.options}
                return (classes.pop() if len(classes) == 1 else value), target
            return (getattr(type(value), "of", None) if value is not None else None), target
    if handled.phase == "scheduler" and handled.error is None:
        return Unknown("the worker that the scheduler starts"), target
    return None, target


def _first_known(written: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((written[name] for name in names if name in written), None)


def _path(worker: Any, target: type | None, handled: Handled, values: dict[str, Value], hints: Hints) -> str | None:
    if isinstance(worker, Unknown):
        return None
    if worker is None:
        return "none" if handled.phase == "scheduler" else None
    names = [base.__name__ for base in worker.__mro__]
    algorithm = str(values.get(hints.algorithm) or "")
    main = hints.main_algorithm.lower()
    if main not in algorithm.lower() and not any(main in name.lower() for name in names):
        return "other"
    if hints.second_schema in worker.__name__:
        return "v2"
    return "v1" if target is None or target in worker.__mro__ else "v2"


def _failure(error: BaseException) -> Failure:
    function, line = getattr(error, "sgltrace_place", ("", 0))
    kind = "SystemExit" if isinstance(error, SystemExit) else type(error).__name__
    return Failure(kind, _text(error), function, line)


def _text(error: BaseException) -> str:
    if isinstance(error, KeyError) and error.args:
        return repr(error.args[0])
    return str(error)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:77]}..."


__all__ = ["Explanation", "Failure", "Machine", "Step", "make_answer", "plain"]
