"""Records put in order: calls nested in calls, and steps with what is known of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

from .decode import Record
from .observations import Enumerated, ListValue, TensorValue, Value
from .plan import Plan
from .probe import wire
from .step import DECODE, OFF, ON, PLAIN, Call, GpuSpan, Step
from .trace import ProcessTrace, Trace

_BATCH = ("arg.batch.forward_mode", "arg.batch.reqs")
_RESULT = ("return.can_run_cuda_graph", "return.next_token_ids")
_SIZES = ("self.bs", "self.raw_bs")
_LENGTHS = (".kv_allocated_len", ".kv_committed_len")
_RETURN = ("return",)
_OF_STEP = ("of_step",)
_HELD = 2  # steps behind the newest one that may still change: results are processed a step later under overlap


_CALLS = frozenset((wire.ENTER, wire.EXIT, wire.RAISE))


class _Roles:
    """The numbers of the sites that play a role in putting steps together."""

    def __init__(self, plan: Plan) -> None:
        sites = plan.sites
        self.accepted_drafts = tuple(plan.accepted_drafts)

        def numbers(*names: str) -> frozenset[int]:
            return frozenset(n for n, site in enumerate(sites, 1) if site.role in names)

        self.step = numbers("step")
        self.replay = numbers("replay", "prepare replay")
        self.may_replay = numbers("can run graph")
        self.prepare = numbers("prepare batch", "prepare draft input")
        self.resolve = numbers("resolve tokens")
        self.result = numbers("process decode result", "process result")
        self.allocate = numbers("allocate")
        self.worker = numbers("worker step")
        self.verify = numbers("verify", "prepare verify")
        self.forward = numbers("model forward")
        whole = self.step | self.replay | self.may_replay | self.prepare | self.resolve | self.result
        self.all = whole | self.allocate | self.worker | self.verify
        self.noted = self.all | self.forward
        self.beside = self.step | self.prepare | self.allocate | self.worker | self.verify
        """What is read beside the records of steps, where the trace has those."""


class _Speculation:
    """Tells what kind of step it was, from what the step did; a setting alone does not say."""

    def __init__(self, config: dict[str, Any]) -> None:
        algorithm = config.get("speculative_algorithm")
        self.known = bool(config)
        self.speculates = isinstance(algorithm, str) and algorithm.upper() != "NONE"
        width = config.get("speculative_num_draft_tokens")
        self.width = width if isinstance(width, int) and width > 1 else None
        # Under overlap a result has a row for each token that was verified, else one for each that was accepted.
        self.padded = config.get("disable_overlap_schedule") is False

    def of(self, step: Step, worker: bool, verified: bool) -> str:
        if DECODE not in step.mode:
            return ""
        if self.known and not self.speculates:
            return PLAIN
        if self.width is not None and (step.verified is not None or (step.width is not None and self.padded)):
            return OFF if step.width == 1 else ON
        if verified or (step.accept_lens and max(step.accept_lens) > 1):
            return ON
        return OFF if worker else ""


def calls(process: ProcessTrace, sites: Container[int] | None = None) -> Iterator[Call]:
    """The calls of a process in the order they began, with nesting by thread; of ``sites`` alone if given."""
    for item in _items(process, sites):
        if isinstance(item, Call):
            yield item


def _items(process: ProcessTrace, sites: Container[int] | None) -> Iterator[Call | Record]:
    """Calls in the order they began, and in between the records that are no calls."""
    open_calls: dict[int, list[Call]] = {}
    done: list[Call | Record] = []
    for record in process.records(sites):
        if record.kind not in _CALLS:
            if done:
                done.append(record)
            else:
                yield record
            continue
        stack = open_calls.setdefault(record.thread, [])
        if record.kind == wire.ENTER:
            call = Call(
                record.site, record.step, record.thread, record.phase, record.time_ns, before=record, depth=len(stack)
            )
            stack.append(call)
            done.append(call)
            continue
        at = len(stack) - 1
        while at >= 0 and stack[at].site != record.site:
            at -= 1
        if at < 0:  # its beginning was not recorded (quiet), or is lost
            call = Call(record.site, record.step, record.thread, record.phase, record.time_ns, depth=len(stack))
            done.append(call)
        else:
            call = stack[at]
            del stack[at:]
        call.end_ns, call.after = record.time_ns, record
        if record.kind == wire.RAISE:
            call.raised = _raised(record)
            call.after = None
        if not stack and len(done) > 64:
            yield from done
            done.clear()
    yield from done


def steps(trace: Trace, process: ProcessTrace, detail: bool = True) -> Iterator[Step]:
    """The steps of a process in order; calls outside of steps are in step 0.

    Without ``detail`` only what says something about a whole step is read, which takes a fraction of the time: the
    steps then have no ``calls``.
    """
    roles = _Roles(trace.plan)
    held = _Held(_Speculation(process.info.config))
    early = bool(trace.plan.options.gpu_time)  # they may come later than the step is held
    held.spans = _gpu_spans(process) if early else {}
    stack: list[Call] = []
    rank = process.rank
    for item in _items(process, None if detail else roles.beside if _says_how(process) else roles.all):
        step = held.get(item.step)
        if step is None:
            if isinstance(item, Record) and item.kind != wire.STEP:
                continue  # what came too late for its step, or is of none
            for number in sorted(n for n in held if n < item.step - _HELD):
                yield held.finished(number)
            step = held[item.step] = Step(number=item.step, rank=rank)
        if isinstance(item, Record):
            if item.kind != wire.GPU:
                _take(held, step, item)
            elif not early:
                _add_span(held.spans, item)
            continue
        if detail:
            step.calls.append(item)
        del stack[item.depth :]
        stack.append(item)
        _note(roles, held, step, item, stack)
    _end(process, held)
    for number in sorted(held):
        yield held.finished(number)


def _says_how(process: ProcessTrace) -> bool:
    """Whether the records of steps say how each one ran, so that replays need not be looked at for that."""
    try:
        return any(kind.replayed or kind.eager for kind in process.histogram())
    except (OSError, ValueError):
        return False


class _Held(dict[int, Step]):
    """The newest steps, by number: what still comes may belong to them."""

    def __init__(self, speculation: _Speculation) -> None:
        super().__init__()
        self.speculation = speculation
        self.worked: set[int] = set()
        self.verified: set[int] = set()
        self.after_idle: set[int] = set()
        """Steps before which the loop had nothing to run."""
        self.waits: dict[int, int] = {}
        self.spans: dict[int, list[GpuSpan]] = {}

    def finished(self, number: int) -> Step:
        """Take a step out, with what is known once the next one has begun."""
        step, following = self.pop(number), self.get(number + 1)
        if following is not None and number and following.number not in self.after_idle:
            step.next_start_ns = following.start_ns
            step.wait_ns = self.waits.get(number)
        step.gpu = self.spans.pop(number, [])
        step.speculation = self.speculation.of(step, number in self.worked, number in self.verified)
        self.worked.discard(number)
        self.verified.discard(number)
        self.after_idle.discard(number)
        self.waits.pop(number, None)
        return step


def by_step(trace: Trace, detail: bool = True) -> Iterator[tuple[int, list[Step]]]:
    """The steps of all ranks that have the same number, in order; ranks in theirs. Holds one step of each at a time."""
    from heapq import merge

    number = attrgetter("number")
    streams: list[Iterable[Step]] = [_once(steps(trace, process, detail)) for process in trace.recording()]
    for found, together in groupby(merge(*streams, key=number), key=number):
        yield found, list(together)


def _once(found: Iterator[Step]) -> Iterator[Step]:
    """Steps in the order of their numbers: a damaged record cannot send the others back."""
    last = -1
    for step in found:
        if step.number > last:
            last = step.number
            yield step


def _take(held: _Held, step: Step, record: Record) -> None:
    """What a record says of its step, and of the one before."""
    ints = record.ints
    if record.kind == wire.STEP and len(ints) == len(wire.STEP_FIELDS):
        size, run, flags, turn, before, before_wait, graph, padded, replays, width, compiled = ints
        step.mode = record.mode
        step.batch_size = size if size >= 0 else None
        step.start_ns, step.end_ns = record.time_ns, record.time_ns + run
        step.flags, step.compiled = flags, compiled
        step.window = ", ".join(n for f, n in wire.FLAG_NAMES.items() if f & wire.FLAG_WINDOW and f & flags)
        step.turn_ns, step.verified, step.replays = (n if n >= 0 else None for n in (turn, width, replays))
        if graph >= 0:
            step.graph, step.padded = graph == 1, padded if padded >= 0 else None
        step.complete = not flags & wire.FLAG_RAISED
        if before > 0:
            held.waits[record.step - 1] = before_wait
        else:
            held.after_idle.add(record.step)
    elif record.kind == wire.ACCEPT:
        step.accept_lens = list(ints)


def _gpu_spans(process: ProcessTrace) -> dict[int, list[GpuSpan]]:
    """What was measured on the device, by step: it is read, and recorded, some steps later."""
    found: dict[int, list[GpuSpan]] = {}
    for record in process.records(sites=()):
        if record.kind == wire.GPU:
            _add_span(found, record)
    return found


def _add_span(spans: dict[int, list[GpuSpan]], record: Record) -> None:
    if len(record.ints) == len(wire.GPU_FIELDS):
        offset, elapsed, padded = record.ints
        span = GpuSpan(record.site, record.time_ns, offset, elapsed, padded if padded >= 0 else None)
        spans.setdefault(record.step, []).append(span)


def _end(process: ProcessTrace, held: _Held) -> None:
    """At the end of a trace: the step in which the process ended, and calls after the last one.

    Under overlap a turn processes the result of the step before, also where it has no batch of its own: such calls
    belong to that step, and there is no step that was not finished.
    """
    head = process.head
    if head is not None and head.inside and head.last_step:
        number = head.last_step
        step = held.setdefault(number, Step(number=number, rank=process.rank))
        if step.start_ns is None:
            step.mode, step.start_ns = head.mode, head.began_ns + process.shift_ns
            step.batch_size = head.size if head.size >= 0 else None
    for number in sorted(held, reverse=True):
        step, before = held[number], held.get(number - 1)
        unfinished = any(call.end_ns is None for call in step.calls)
        if number and step.start_ns is None and before is not None and not unfinished:
            before.calls += step.calls
            before.accept_lens = before.accept_lens or step.accept_lens
            del held[number]


def _note(roles: _Roles, held: _Held, step: Step, call: Call, stack: list[Call]) -> None:
    site = call.site
    if site not in roles.noted:
        return
    if site in roles.step:
        _note_step(step, call)
    elif site in roles.replay:
        for outer in stack:
            if outer.step == call.step:
                outer.replayed = True
        if call.after is not None:
            _note_replay(step, call, stack)
    elif site in roles.forward:
        for outer in stack:
            if outer.step == call.step and call.end_ns is not None:
                outer.forwarded = True
    elif site in roles.may_replay:
        if call.after is not None and step.graph is None and call.after.pick(_RETURN).get("return") is False:
            step.graph = False
    elif site in roles.prepare:
        if call.after is not None:
            values = call.after.pick(_LENGTHS)
            step.allocated = _list(values, _LENGTHS[0]) or step.allocated
            step.committed = _list(values, _LENGTHS[1]) or step.committed
    elif site in roles.allocate:
        if call.after is not None and not any(outer.site in roles.allocate for outer in stack[:-1]):
            slots = _slots(call)
            if slots is not None:
                step.slots = (step.slots or 0) + slots
    elif site in roles.worker:
        held.worked.add(step.number)
    elif site in roles.verify:
        held.verified.add(step.number)
    elif site in roles.resolve and call.after is not None:
        lengths = call.after.pick(_RETURN).get("return")
        if isinstance(lengths, ListValue) and lengths.values is not None:
            _accept(held, _of_step(stack) or step.number, list(lengths.values))
    elif site in roles.result and call.after is not None and call.after.signature is not None:
        for name, value in call.after.pick(roles.accepted_drafts).items():
            if (
                name.rpartition(".")[2] in roles.accepted_drafts
                and isinstance(value, ListValue)
                and value.values is not None
            ):
                _accept(held, _of_step(stack) or step.number, [n + 1 for n in value.values])


def _note_step(step: Step, call: Call) -> None:
    step.flags |= wire.FLAG_FULL
    if call.before is not None:
        values = call.before.pick(_BATCH)
        step.mode = _enum(values.get("arg.batch.forward_mode"))
        reqs = values.get("arg.batch.reqs")
        step.batch_size = reqs.length if isinstance(reqs, ListValue) else None
    step.start_ns, step.end_ns = call.start_ns, call.end_ns
    step.complete = call.after is not None
    if call.after is None or call.after.signature is None:
        return
    values = call.after.pick(_RESULT)
    told = values.get("return.can_run_cuda_graph")
    if isinstance(told, bool):
        # What SGLang itself says of the target's forward pass, and logs.
        step.graph = told
        if not told:
            step.padded = None
    tokens = values.get("return.next_token_ids")
    if isinstance(tokens, TensorValue) and len(tokens.shape) == 1:
        step.rows = tokens.shape[0]


def _note_replay(step: Step, call: Call, stack: list[Call]) -> None:
    values = call.after.pick(_SIZES) if call.after is not None else {}
    padded, raw = values.get("self.bs"), values.get("self.raw_bs")
    if not isinstance(padded, int) or isinstance(padded, bool):
        return
    if step.graph is None:
        step.graph = True
    if step.graph:
        # The draft's graphs may be of a batch that has lost its finished requests: the step's is the largest.
        step.padded = max(padded, step.padded or 0)
    for outer in stack:
        if outer.step == call.step:
            outer.padded = max(padded, outer.padded or 0)
            outer.raw = raw if isinstance(raw, int) else outer.raw


def _slots(call: Call) -> int | None:
    """How many slots an allocator returned: the length of the first vector in what it returned."""
    signature = call.after.signature if call.after is not None else None
    for found in signature.tensors() if signature is not None else ():
        if found.path.startswith("return") and len(found.tensor.shape) == 1:
            return found.tensor.shape[0]
    return None


def _of_step(stack: list[Call]) -> int | None:
    for call in reversed(stack):
        number = call.before.pick(_OF_STEP).get("of_step") if call.before is not None else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
    return None


def _accept(held: dict[int, Step], number: int, lengths: list[int]) -> None:
    step = held.get(number)
    if step is None or not lengths:
        return
    if step.accept_lens is None:
        step.accept_lens = lengths
    else:
        step.accept_again = lengths


def _list(values: dict[str, Value], name: str) -> list[int] | None:
    for selector, value in values.items():
        if selector.endswith(name) and isinstance(value, ListValue) and value.values is not None:
            return list(value.values)
    return None


def _enum(value: Value) -> str:
    return value.name if isinstance(value, Enumerated) else ""


def _raised(record: Record) -> str:
    signature = record.signature
    return signature.layout.fields[0][2] if signature is not None and signature.layout.fields else "?"
