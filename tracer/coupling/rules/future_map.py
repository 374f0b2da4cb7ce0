"""Future maps: buffers that carry a step's results on the device to the next step."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Call
from sgltrace.coupling.point import HARD, NONE, Finding, sites
from sgltrace.coupling.query import decides
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import Universe
from sgltrace.coupling.wording import reads_of, writes_of


class FutureMap(Rule):
    """The relay is laid out for the process's algorithm when it is made, and for the first draft state it sees."""

    kind = "future_map"
    positive = (
        Example(
            {
                "scheduler": """
                    class FutureMap:
                        def __init__(self, spec_algo):
                            if spec_algo.is_none():
                                self.token_ids_buf = make()

                        def resolve(self, batch: ScheduleBatch):
                            batch.input_ids = self.token_ids_buf[batch.input_ids]
                """,
            },
            producers=("scheduler:FutureMap.__init__",),
            consumers=("scheduler:FutureMap.resolve",),
            severity={"v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Buffers:
                        def __init__(self, spec_algo):
                            if spec_algo.is_none():
                                self.token_ids_buf = make()
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Methods of the relay that decide by the algorithm, and the buffers that only one regime has."""
        buffers = universe.fields("future_map", "buffers")
        relay = {fn.id for fn in universe.fns.values() if universe.role(fn.cls) == "future_map"}
        if not relay:
            return
        producers, consumers = [], []
        fields: set[str] = set()
        for function in sorted(relay):
            facts = universe.facts.get(function)
            if facts is None:
                continue
            fn = universe.fns[function]
            writes = [a for a in facts.accesses if a.write and a.field in buffers]
            reads = [a for a in facts.accesses if not a.write and a.field in buffers]
            fields |= {a.field for a in (*writes, *reads)}
            makes = [a for a in writes if a.how == "assign"]
            if fn.at_start or makes:
                producers += sites(makes, writes_of, 5) + decides(universe, function, [b.line for b in facts.branches])
            if fn.per_step:
                consumers += sites(reads, reads_of, 4)
                consumers += sites([a for a in writes if a.how == "item"], writes_of, 5)
                consumers += decides(universe, function, [b.line for b in facts.branches])
        users = [c for c in _calls_of_relay(universe, relay) if c.function not in relay and universe.fn(c).per_step]
        producers += sites(users, "has the relay store a result", 3)
        consumers += sites(users, "has the relay resolve a batch", 3)
        if not producers or not consumers:
            return
        reason = (
            "the relay stores and resolves a draft state; a plain result has none, and the plain buffer is not there"
        )
        width = "rows keep the widths of the first draft state: an off step must hand over rows of the same widths"
        yield Finding(
            kind=self.kind,
            title="The relay between steps is laid out for draft states",
            producers=producers,
            consumers=consumers,
            binding_time="process start, and the first decode",
            why=(
                "Which buffers the relay has, and which of them it fills and resolves, depends on "
                "the process's algorithm; their widths on the first draft state stored. A result "
                "without a draft state cannot be stored, and the next step resolves whatever the row "
                "held before."
            ),
            refactor=(
                "Have the off step return a full draft state, or keep the plain buffer beside the others "
                "and mark each row."
            ),
            verdicts={"A": (HARD, reason), "B": (HARD, width), "C": (NONE, "verify returns a draft state")},
            formula="buffer rows: future_buffer_len or request-pool size, one row for each request",
            fields=[f"FutureMap.{f}" for f in sorted(fields)],
            only=("v2",),
            weight=8,
        )


def _calls_of_relay(universe: Universe, relay: set[str]) -> list[Call]:
    names = {universe.fns[f].name for f in relay if not universe.fns[f].name.startswith("__")}
    out = []
    for name in sorted(names):
        for call in universe.calls.get(name, ()):
            if any(c in relay for c in universe.callees.get(call.function, ()) if universe.fns[c].name == name):
                out.append(call)
    return out
