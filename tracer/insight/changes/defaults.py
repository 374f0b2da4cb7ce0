"""What a few launch commands get from either source, asked of its own argument handling."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from sgltrace.errors import InputError
from sgltrace.explain.answer import Explanation
from sgltrace.explain.command import parse_command
from sgltrace.explain.explain import explain, make_inputs
from sgltrace.explain.model_file import library_facts
from sgltrace.explain.session import Inputs
from sgltrace.insight.changes.model import Change, Kind
from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.sides import Side
from sgltrace.sources import SourceTree

LAUNCH = "python -m sglang.launch_server --model-path MODEL --speculative-algorithm {algorithm}"
ASKED = {
    "with nothing else given": "",
    "with topk 1": "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
    "with topk 4": "--speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8",
}
"""Options beside the algorithm: what somebody types who wants a chain of drafts, or a tree of them."""
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 131072,
    "intermediate_size": 14336, "torch_dtype": "bfloat16", "head_dim": 128,
}  # fmt: skip
"""A plain dense model: much of what a command gets hangs on the model's config."""
SPECULATION = ("spec", "overlap")
"""Words in the names of arguments that belong to speculation and its scheduling."""


def _inputs() -> Inputs:
    inputs = make_inputs([], None, None)
    return Inputs(inputs.assumed, {**inputs.facts, **library_facts(MODEL)}, has_model=True)


class _Reading:
    """A tree that remembers which of its files were read."""

    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self.files: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def read(self, path: str) -> bytes:
        self.files.add(path)
        return self._tree.read(path)

    def read_module(self, module: str) -> bytes:
        return self.read(self._tree.modules[module])


def compare_defaults(
    before: Side, after: Side, names: Names, said: Callable[[str], None] = lambda text: None
) -> tuple[list[Change], list[str]]:
    """The changes of what launch commands get, and notes on what could not be asked.

    ``said`` is told what is being asked: an answer takes seconds.
    """
    if before.tree is None or after.tree is None:
        return [], []
    algorithm = _algorithm(after) or _algorithm(before)
    out: list[Change] = []
    for what, options in ASKED.items():
        words = shlex.split(f"{LAUNCH.format(algorithm=algorithm)} {options}")
        command, inputs = parse_command(words), _inputs()
        said(f"Asking what a server gets {what}")
        try:
            reading = _Reading(before.tree)
            old = explain(reading, command, inputs)  # type: ignore[arg-type]
            if _same_files(reading, after.tree):
                continue
            new = explain(after.tree, command, inputs)
        except InputError as error:
            return out, [f"What a launch command gets was not compared: {error}"]
        out += _differences(algorithm or "", what, old, new, names, _record(after) or _record(before))
    return _together(out), []


def _together(changes: list[Change]) -> list[Change]:
    """The same difference under several commands is told once."""
    out: dict[tuple[str, ...], Change] = {}
    for change in changes:
        key = (change.change, change.before or "", change.after or "", change.why, *change.fields)
        known = out.setdefault(key, change)
        if known is not change:
            known.title = f"{known.title}, {change.where}"
    for change in out.values():
        change.where = None
    return list(out.values())


def _algorithm(side: Side) -> str | None:
    """The algorithm under which the workers of the paths are created."""
    return next((w.algorithms[0] for w in side.index.workers if w.path is not None and w.algorithms), None)


def _record(side: Side) -> str:
    """The class of the server's arguments."""
    return next((f.cls.rpartition(":")[2] for f in side.index.fields if f.role == "server_args"), "")


def _same_files(reading: _Reading, tree: SourceTree) -> bool:
    """Whether another tree has the files that were read as they are; then it gives the same answer."""
    files = set(tree.modules.values())
    return set(reading.modules.values()) == files and all(
        tree.read(path) == reading._tree.read(path) for path in reading.files
    )


def _differences(
    algorithm: str, what: str, old: Explanation, new: Explanation, names: Names, record: str
) -> list[Change]:
    """Each difference, with the command that shows it in ``where``."""
    out = []
    asked = f"{algorithm} {what}"
    was, now = _outcome(old), _outcome(new)
    if (old.path, old.error and old.error.message, names.classes.get(old.worker or "", old.worker)) != (
        new.path, new.error and new.error.message, new.worker,
    ):  # fmt: skip
        out.append(_change(asked, was, now, _reason(new), 95, [p for p in (new.path,) if p and p.startswith("v")]))
    elif old.overlap != new.overlap:
        out.append(_change(asked, was, now, _reason(new), 60, []))
    if (old.off_step.reachable, bool(old.error)) != (new.off_step.reachable, bool(new.error)):
        easier = new.off_step.reachable is True
        change = _change(
            f"Whether {asked} a step without drafts is reachable",
            f"{_known(old.off_step.reachable)}: {old.off_step.why}",
            f"{_known(new.off_step.reachable)}: {new.off_step.why}",
            new.off_step.why, 65, [],
        )  # fmt: skip
        change.change = "easier" if easier else "changed"
        change.designs = {"C": "easier"} if easier else {}
        out.append(change)
    for name in sorted({*old.values} & {*new.values}):
        if any(word in name for word in SPECULATION) and old.values[name] != new.values[name]:
            change = _change(f"{name}, {asked}", repr(old.values[name]), repr(new.values[name]), "", 24, [])
            change.fields = [f"{record}.{name}"]
            out.append(change)
    out += _arguments(old, new, record)
    for change in out:
        change.where = what
    return out


def _arguments(old: Explanation, new: Explanation, record: str) -> list[Change]:
    """Arguments of speculation that one source lacks."""
    left, right = ({**e.values, **e.open} for e in (old, new))
    out = []
    for name in sorted({*left} ^ {*right}):
        if not any(word in name for word in SPECULATION):
            continue
        kind: Kind = "new" if name in right else "gone"
        value = (new if kind == "new" else old).values.get(name, "not known")
        out.append(
            Change(
                of="default", change=kind, title=f"The argument {name}", fields=[f"{record}.{name}"],
                before=repr(value) if kind == "gone" else None, after=repr(value) if kind == "new" else None,
                why=f"It is {kind}" + (f", and {value!r} unless it is given." if kind == "new" else "."), weight=22,
            )
        )  # fmt: skip
    return out


def _change(title: str, before: str, after: str, why: str, weight: int, paths: list[str]) -> Change:
    kind: Kind = "changed"
    return Change(
        of="default", change=kind, title=title, before=before, after=after, paths=paths, weight=weight,
        why=f"It was {before}, and is {after} now." + (f" {why}" if why and why not in after else ""),
    )  # fmt: skip


def _outcome(found: Explanation) -> str:
    if found.error is not None:
        return f"refused ({found.error.exception}: {found.error.message})"
    overlap = {True: "with overlap", False: "without overlap", None: "overlap not known"}[found.overlap]
    return f"{found.path or 'a path not known'}, {found.worker or 'worker not known'}, {overlap}"


def _reason(found: Explanation) -> str:
    """The last thing that the handling did about overlap, or the refusal's place."""
    if found.error is not None:
        return f"{found.error.function}, line {found.error.line}."
    steps = [s for s in found.chain if "overlap" in s.argument or "overlap" in s.effect]
    if not steps:
        return ""
    step = steps[-1]
    return f"`{step.function}`, line {step.line}: {step.effect}" + (
        f", because `{step.condition}`." if step.condition else "."
    )


def _known(value: bool | None) -> str:
    return {True: "reachable", False: "not reachable", None: "not known"}[value]
