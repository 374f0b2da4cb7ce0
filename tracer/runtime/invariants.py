"""What holds at every step of a healthy server, one small test for each.

A test says that it held (``""``), how it was broken, or that the step does not tell (None).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from .observations import ListValue
from .step import DECODE, OFF, ON, PLAIN, Call, Step

Learned = tuple[int, str, str]
"""A tensor in a call's values: the site's number, ``before`` or ``after``, and the path."""


class View(msgspec.Struct, kw_only=True):
    """One step of one rank, with what it is held against."""

    step: Step
    before: Step | None
    """The rank's step of the number before."""
    two_before: Step | None
    after: Step | None
    others: Sequence[Step]
    """The same step on the other ranks."""
    config: Mapping[str, Any]
    captured: Mapping[str, frozenset[int]]
    """Batch sizes that were captured, by the class of the graph runner."""
    runners: Mapping[int, str]
    """The class of the graph runner of each replay's site."""
    draft_rows: frozenset[Learned]
    """Tensors of the draft's state that have a row for each request."""

    @property
    def sizes(self) -> set[int]:
        """The batch's size, and those of the steps beside it: requests finish and join within a step."""
        beside = (self.step, self.before, self.after)
        return {step.batch_size for step in beside if step is not None and step.batch_size is not None}

    def width(self) -> int | None:
        """The most tokens that a request can keep of a step."""
        if self.step.speculation in (PLAIN, OFF):
            return 1
        steps, drafts = self.config.get("speculative_num_steps"), self.config.get("speculative_num_draft_tokens")
        if isinstance(steps, int):
            return steps + 1
        return drafts if isinstance(drafts, int) else None


def result_rows(view: View) -> str | None:
    """Rows of ``next_token_ids`` are the batch times the stride, or one for each token that was accepted."""
    step = view.step
    if DECODE not in step.mode or step.rows is None or not step.batch_size:
        return None
    if step.speculation == PLAIN:
        return _equal(step.rows, step.batch_size, "rows of next_token_ids", "requests in the batch")
    drafts = view.config.get("speculative_num_draft_tokens")
    if view.config.get("disable_overlap_schedule") is False and isinstance(drafts, int):
        wanted = {step.batch_size, step.batch_size * drafts}
        told = f"{step.rows} rows of next_token_ids for {step.batch_size} requests, neither 1 nor {drafts} each"
        return "" if step.rows in wanted else told
    if step.accept_lens is None:
        return None
    return _equal(step.rows, sum(step.accept_lens), "rows of next_token_ids", "accepted tokens")


def accept_lengths(view: View) -> str | None:
    """A request keeps at least one token of a step, and at most as many as were verified for it."""
    lengths, width = view.step.accept_lens, view.width()
    if not lengths or DECODE not in view.step.mode:
        return None
    again = view.step.accept_again
    if again is not None and again != lengths:
        return f"accept lengths {lengths} in one place, {again} in another"
    if min(lengths) < 1:
        return f"accept lengths {lengths}: {min(lengths)} is less than 1"
    return f"accept lengths {lengths}: {max(lengths)} is more than {width}" if width and max(lengths) > width else ""


def accept_count(view: View) -> str | None:
    """There is an accept length for each request of the batch."""
    if view.step.accept_lens is None or view.step.batch_size is None:
        return None
    return _equal(len(view.step.accept_lens), view.step.batch_size, "accept lengths", "requests in the batch")


def allocated(view: View) -> str | None:
    """No request has more committed KV slots than allocated ones, and each of the batch has both."""
    step = view.step
    if step.allocated is None or step.committed is None:
        return None
    for have, name in ((step.allocated, "allocated"), (step.committed, "committed")):
        if step.batch_size is not None and len(have) not in view.sizes:
            return f"{len(have)} requests have {name} lengths, {step.batch_size} are in the batch"
    over = [(c, a) for c, a in zip(step.committed, step.allocated, strict=False) if c > a]
    return f"a request has {over[0][0]} slots committed and {over[0][1]} allocated" if over else ""


def committed(view: View) -> str | None:
    """From step to step a request commits what it kept of the step before, or of the one before that."""
    step, before = view.step, view.before
    if before is None or step.committed is None or before.committed is None:
        return None
    same = step.batch_size == before.batch_size and len(step.committed) == len(before.committed)
    if not same or DECODE not in step.mode or DECODE not in before.mode:
        return None
    grown = [now - then for now, then in zip(step.committed, before.committed, strict=True)]
    if min(grown) < 0:
        return f"committed lengths shrank from {before.committed} to {step.committed}"
    if step.speculation == PLAIN:
        return "" if set(grown) == {1} else f"committed lengths grew by {grown}, not by 1 each"
    # Under overlap the step before is not processed yet.
    kept = [s.accept_lens for s in (before, view.two_before) if s is not None and s.accept_lens is not None]
    kept = [lengths for lengths in kept if len(lengths) == len(grown)]
    if len(kept) < 2:
        return None
    return (
        "" if grown in kept else f"committed lengths grew by {grown}, the requests kept {' and '.join(map(str, kept))}"
    )


def graph_size(view: View) -> str | None:
    """A graph that is replayed was captured, and holds the batch."""
    told: str | None = None
    for call in view.step.calls:
        runner = view.runners.get(call.site)
        size, raw = _sizes(call) if runner is not None else (None, None)
        if runner is None or size is None:
            continue
        if raw is not None and raw > size:
            return f"{runner} replayed a graph of {size} for {raw} requests"
        # A runner whose captures do not say a size captures those of the others.
        known = view.captured.get(runner) or frozenset().union(*view.captured.values())
        if known and size not in known:
            return f"{runner} replayed a graph of {size}; captured were {sorted(known)}"
        told = ""
    step = view.step
    if step.graph and step.padded is not None and step.batch_size is not None and DECODE in step.mode:
        if step.padded < step.batch_size:
            return f"the largest graph replayed is of {step.padded}, the batch of {step.batch_size}"
        told = ""
    return told


def draft_state(view: View) -> str | None:
    """The draft's state has a row for each request."""
    if not view.draft_rows or DECODE not in view.step.mode or view.step.speculation != ON:
        return None
    told: str | None = None
    for call in view.step.calls:
        for side, record in (("before", call.before), ("after", call.after)):
            if record is None or record.signature is None:
                continue
            for at in record.signature.tensors():
                if (call.site, side, at.path) not in view.draft_rows or not at.tensor.shape:
                    continue
                if at.tensor.shape[0] not in view.sizes:
                    return f"{at.path} has {at.tensor.shape[0]} rows, the batch {view.step.batch_size} requests"
                told = ""
    return told


def slots(view: View) -> str | None:
    """No two live requests hold the same slot or the same row of the pool, where the host has their numbers."""
    told: str | None = None
    for call in view.step.calls:
        for record in (call.before, call.after):
            for name, value in record.values().items() if record is not None else ():
                last = name.rpartition(".")[2]
                if not isinstance(value, ListValue) or value.values is None or not _names_slots(last):
                    continue
                if len(set(value.values)) != len(value.values):
                    return f"{name} holds {list(value.values)}: one of them twice"
                told = ""
    return told


def ranks(view: View) -> str | None:
    """All ranks of a step run the same batch in the same mode, and accept the same."""
    if not view.others:
        return None
    for name in ("mode", "batch_size", "rows", "accept_lens", "graph", "padded"):
        mine = getattr(view.step, name)
        for other in view.others:
            theirs = getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                told = name.replace("_", " ")
                return f"{told}: {view.step.rank} has {mine}, {other.rank} has {theirs}"
    return ""


def times(view: View) -> str | None:
    """A step ends after it began, and the next one begins after it."""
    step = view.step
    if step.start_ns is None:
        return None
    if step.end_ns is not None and step.end_ns < step.start_ns:
        return "it ended before it began"
    if step.period_ns is not None and step.period_ns < 0:
        return "the next step began before it"
    return ""


TESTS: tuple[Callable[[View], str | None], ...] = (
    result_rows, accept_lengths, accept_count, allocated, committed, graph_size, draft_state, slots, ranks, times,
)  # fmt: skip


def _equal(found: int, wanted: int, what: str, than: str) -> str:
    return "" if found == wanted else f"{found} {what}, {wanted} {than}"


def _sizes(call: Call) -> tuple[int | None, int | None]:
    values = call.after.values() if call.after is not None else {}
    found = [values.get(name) for name in ("self.bs", "self.raw_bs")]
    size, raw = (n if isinstance(n, int) and not isinstance(n, bool) else None for n in found)
    return size, raw


def _names_slots(name: str) -> bool:
    return name.endswith(("_loc", "pool_idx", "pool_indices", "slots"))


def learn_draft_rows(counts: Mapping[Learned, Sequence[int]]) -> frozenset[Learned]:
    """Of tensors of the draft's state those that nearly always had a row for each request."""
    return frozenset(key for key, (fits, seen) in counts.items() if seen >= _ENOUGH and fits >= _MOSTLY * seen)


_ENOUGH, _MOSTLY = 5, 0.8


def captured_sizes(found: Iterable[tuple[str, int]]) -> dict[str, frozenset[int]]:
    """Captured batch sizes by the class of the graph runner."""
    sizes: dict[str, set[int]] = {}
    for runner, size in found:
        sizes.setdefault(runner, set()).add(size)
    return {runner: frozenset(known) for runner, known in sizes.items()}
