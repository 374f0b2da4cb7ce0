"""Records put in order: calls nested in calls, and steps with what is known of them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .decode import Record
from .observations import Enumerated, ListValue, Value
from .plan import Site
from .probe import wire
from .trace import ProcessTrace, Trace


class Call(msgspec.Struct):
    """A recorded call. Either end may be missing: the process ended inside, or the record is lost."""

    site: int
    step: int
    thread: int
    phase: int
    start_ns: int
    end_ns: int | None = None
    before: Record | None = None
    after: Record | None = None
    raised: str | None = None
    depth: int = 0
    padded: int | None = None
    """Batch size of the CUDA graph that was replayed in this call."""
    raw: int | None = None


class Step(msgspec.Struct, kw_only=True):
    """A step of one rank. What is not known is None; times are monotonic nanoseconds."""

    number: int
    rank: str
    mode: str = ""
    batch_size: int | None = None
    padded: int | None = None
    graph: bool | None = None
    """Whether a CUDA graph was replayed in it; False where one was asked for and could not be."""
    start_ns: int | None = None
    end_ns: int | None = None
    accept_lens: list[int] | None = None
    """Tokens accepted for each request, the bonus token included."""
    allocated: list[int] | None = None
    """KV slots allocated to each request, after the step was prepared."""
    committed: list[int] | None = None
    complete: bool = False
    """Whether the step's call returned."""
    calls: list[Call] = []


class _Roles:
    """The numbers of the sites that play a role in putting steps together."""

    def __init__(self, sites: list[Site]) -> None:
        def numbers(*names: str) -> frozenset[int]:
            return frozenset(n for n, site in enumerate(sites, 1) if site.role in names)

        self.step = numbers("step")
        self.replay = numbers("replay", "prepare replay")
        self.may_replay = numbers("can run graph")
        self.prepare = numbers("prepare batch", "prepare draft input")
        self.resolve = numbers("resolve tokens")
        self.result = numbers("process decode result", "process result")
        self.worker = numbers("worker step")


def calls(process: ProcessTrace) -> Iterator[Call]:
    """The calls of a process in the order they began, with nesting by thread."""
    open_calls: dict[int, list[Call]] = {}
    done: list[Call] = []
    for record in process.records():
        stack = open_calls.setdefault(record.thread, [])
        if record.kind == wire.ENTER:
            call = Call(
                record.site, record.step, record.thread, record.phase, record.time_ns, before=record, depth=len(stack)
            )
            stack.append(call)
            done.append(call)
            continue
        at = next((n for n in range(len(stack) - 1, -1, -1) if stack[n].site == record.site), None)
        if at is None:  # its beginning was not recorded (quiet), or is lost
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


def steps(trace: Trace, process: ProcessTrace) -> Iterator[Step]:
    """The steps of a process in order; calls outside of steps are in step 0."""
    roles = _Roles(trace.plan.sites)
    held: dict[int, Step] = {}
    stack: list[Call] = []
    for call in calls(process):
        step = held.get(call.step)
        if step is None:
            for number in sorted(n for n in held if n < call.step - 2):
                yield held.pop(number)
            step = held[call.step] = Step(number=call.step, rank=process.rank)
        step.calls.append(call)
        del stack[call.depth :]
        stack.append(call)
        _note(trace, roles, held, step, call, stack)
    for number in sorted(held):
        yield held[number]


def _note(trace: Trace, roles: _Roles, held: dict[int, Step], step: Step, call: Call, stack: list[Call]) -> None:
    if call.site in roles.step:
        values = call.before.values() if call.before is not None else {}
        step.mode = _enum(values.get("arg.batch.forward_mode"))
        reqs = values.get("arg.batch.reqs")
        step.batch_size = reqs.length if isinstance(reqs, ListValue) else None
        step.start_ns, step.end_ns = call.start_ns, call.end_ns
        step.complete = call.after is not None
    elif call.site in roles.replay and call.after is not None:
        values = call.after.values()
        padded, raw = values.get("self.bs"), values.get("self.raw_bs")
        if isinstance(padded, int):
            step.graph, step.padded = True, padded
            for outer in stack:
                if outer.padded is None and outer.step == call.step:
                    outer.padded, outer.raw = padded, raw if isinstance(raw, int) else None
    elif call.site in roles.may_replay and call.after is not None:
        if call.after.values().get("return") is False and step.graph is None:
            step.graph = False
    elif call.site in roles.prepare and call.after is not None:
        values = call.after.values()
        step.allocated = _list(values, "kv_allocated_len") or step.allocated
        step.committed = _list(values, "kv_committed_len") or step.committed
    elif call.site in roles.resolve and call.after is not None:
        lengths = call.after.values().get("return")
        if isinstance(lengths, ListValue) and lengths.values is not None:
            _accept(held, _of_step(stack) or step.number, list(lengths.values))
    elif call.site in roles.result and call.after is not None:
        for name, value in call.after.values().items():
            if name.rpartition(".")[2] in trace.plan.accepted_drafts and isinstance(value, ListValue) and value.values:
                _accept(held, _of_step(stack) or step.number, [n + 1 for n in value.values])


def _of_step(stack: list[Call]) -> int | None:
    for call in reversed(stack):
        number = call.before.values().get("of_step") if call.before is not None else None
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
    return None


def _accept(held: dict[int, Step], number: int, lengths: list[int]) -> None:
    step = held.get(number)
    if step is not None and step.accept_lens is None:
        step.accept_lens = lengths


def _list(values: dict[str, Value], name: str) -> list[int] | None:
    for selector, value in values.items():
        if selector.endswith("." + name) and isinstance(value, ListValue) and value.values is not None:
            return list(value.values)
    return None


def _enum(value: Value) -> str:
    return value.name if isinstance(value, Enumerated) else ""


def _raised(record: Record) -> str:
    signature = record.signature
    return signature.layout.fields[0][2] if signature is not None and signature.layout.fields else "?"
