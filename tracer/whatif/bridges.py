"""From an index to what an off step has to be given: a bridge for each row of the contract that one can be built for,
with the coupling points that it answers; and why none can be built for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sgltrace.model import ContractField, CouplingPoint, Index, StepParts
from sgltrace.whatif.model import Missing

ORDER = (
    "unset", "eager", "newest", "slots", "object", "state carried", "state newest", "state lengths", "call", "lengths",
    "ones", "width", "advance", "tokens", "extend", "event", "count",
)  # fmt: skip
"""Kinds in the order in which a step would come to lack them; what lacks in silence comes last."""


class Bridge(msgspec.Struct, kw_only=True):
    """One thing that an off step is given."""

    id: str
    kind: str
    name: str = ""
    """The field, or the parameter, that it is for."""
    field: str = ""
    """``Class.field`` of the contract's row."""
    says: str
    """What is supplied, and where, for a reader."""
    points: list[str] = []
    places: list[tuple[str, int]] = []
    """Where it is read: functions and lines."""
    wanted: bool = True
    """Whether the contract asks for it; the others are tried by adding them."""
    listed: bool = True
    """Whether the contract has a row for it."""


class Program(msgspec.Struct, kw_only=True):
    """An off step of one path: what it can be given, in order."""

    path: str
    design: str
    parts: StepParts
    rows: list[dict[str, Any]]
    """The contract as the probe reads it: name, role and supply of each row."""
    loops: list[str]
    writers: list[str]
    bridges: list[Bridge] = []
    not_built: list[Missing] = []


def program(index: Index, path: str, design: str) -> Program | str:
    """What there is of an off step before a server was watched; or why there is none."""
    parts = next((p for p in index.step_parts if p.path == path), None)
    if parts is None:
        return f"this release has no {path}: {index.unknown_paths.get(path) or 'no worker of that path was found'}"
    if design != "B":
        return f"design {design} cannot be forced from a worker's step: give --design B"
    roles = _roles(parts)
    rows = [
        {"name": r.field.rpartition(".")[2], "role": roles.get(r.field.rpartition(".")[0], ""), "supply": r.supply}
        for r in index.contract
        if r.path == path
    ]
    entry = parts.entry.partition(":")[0]
    writers = sorted(
        {
            w.function
            for r in index.contract
            if r.path == path and r.supply == "drafted"
            for w in r.writers
            if w.function.partition(":")[0] == entry and w.function != parts.entry
        }
    )
    return Program(path=path, design=design, parts=parts, rows=rows, loops=index.event_loops, writers=writers)


def _roles(parts: StepParts) -> dict[str, str]:
    named = {
        "batch": parts.batches,
        "result": parts.results,
        "state": parts.states,
        "request": parts.requests,
    }
    return {ident.partition(":")[2]: role for role, ids in named.items() for ident in ids}


def build(index: Index, made: Program, learned: Mapping[str, Any]) -> None:
    """Build the bridges, with what watching a step told. Order: as a step comes to them."""
    builder = _Builder(index, made, learned)
    for row in index.contract:
        if row.path == made.path:
            builder.row(row)
    builder.graphs()
    builder.unlisted()
    builder.extend()
    made.bridges = sorted(builder.bridges.values(), key=lambda b: (ORDER.index(b.kind), b.id))
    made.not_built = builder.not_built


class _Builder:
    def __init__(self, index: Index, made: Program, learned: Mapping[str, Any]) -> None:
        self.index, self.made, self.learned = index, made, learned
        self.roles = _roles(made.parts)
        self.bridges: dict[str, Bridge] = {}
        self.not_built: list[Missing] = []
        self.points = [p for p in index.coupling_points if self._severity(p) is not None]
        self.blocking = [p for p in self.points if self._severity(p) != "none"]

    def _severity(self, point: CouplingPoint) -> str | None:
        wanted = (self.made.path, self.made.design)
        return next((v.severity for v in point.verdicts if (v.path, v.design) == wanted), None)

    @staticmethod
    def _names(idents: Iterable[str]) -> list[str]:
        return [ident.partition(":")[2] for ident in idents]

    def _crossing(self, fields: Iterable[str]) -> list[str]:
        wanted = set(fields)
        return [p.id for p in self.points if wanted & set(p.fields)]

    def _add(self, kind: str, name: str, field: str, says: str, row: ContractField | None, **more: Any) -> None:
        ident = f"{kind}:{name}" if name else kind
        places = [] if row is None else [(p.function, p.line) for p in row.readers]
        known = self.bridges.get(ident)
        if known is not None:  # the same field of another form of the batch
            known.points = sorted({*known.points, *self._crossing([field])})
            known.places += places
            known.wanted = known.wanted or more.get("wanted", True)
            return
        points = more.pop("points", None)
        self.bridges[ident] = Bridge(
            id=ident, kind=kind, name=name, field=field, says=says, places=places,
            points=self._crossing([field]) if points is None else points, **more,
        )  # fmt: skip

    def row(self, row: ContractField) -> None:
        """The bridge of one row of the contract."""
        cls, _, name = row.field.rpartition(".")
        role, supply = self.roles.get(cls, ""), row.supply
        made = getattr(self, f"_{role}", None)
        if supply in ("leave", "state", "") or row.requirement == "optional":
            return
        why = "no part of a step holds such an object" if made is None else made(row, name, supply)
        if why:
            self.not_built.append(Missing(field=row.field, why=why, points=self._crossing([row.field])))

    def _batch(self, row: ContractField, name: str, supply: str) -> str | None:
        if supply == "unset":
            if name == self.learned.get("state"):
                self._add("unset", name, row.field, f"{name} = None for the target's forward, put back after it", row)
            return None
        if name in self.learned.get("newest inputs", ()):
            newest = self.learned.get("newest")
            if newest is None:
                return f"no field of the draft's state holds what the target is given as {name}"
            self._add("newest", name, row.field, f"{name} = the draft state's {newest}, one token a request", row)
        elif name in self.learned.get("slots inputs", ()):
            table = ".".join(self.learned["table"][1:])
            says = (
                f"{name} = {table}[{self.learned['rows']}, {self.learned['lengths']}], the slots that the path prepared"
            )
            self._add("slots", name, row.field, says, row)
        elif supply == "advance":
            self._add("advance", name, row.field, f"{name} counts the token that the step decodes: one more", row)
        else:
            return (
                f"a plain step makes it ({row.off_step_value.removeprefix('as a plain step: ')}); no step told how else"
            )
        return None

    def _result(self, row: ContractField, name: str, supply: str) -> str | None:
        stride = self.learned.get("stride")
        said = {
            "tokens": f"{name} = (bs * {stride},) with the token of request i at i * {stride}",
            "width": f"{name} = {stride}",
            "ones": f"{name} = ones(bs), int32",
            "object": f"{name} = the state that the next step starts from",
        }
        if supply not in said:
            return f"no step told what it is: {row.off_step_value}"
        self._add(supply, name, row.field, said[supply], row)
        return None

    def _state(self, row: ContractField, name: str, supply: str) -> str | None:
        if supply == "event":
            self._add("event", name, row.field, f"{name} = an event recorded after the new lengths were queued", row)
        elif name == self.learned.get("newest"):
            self._add("state newest", name, row.field, f"{name} = the step's own token of each request", row)
        elif name in self.learned.get("ended", ()):
            self._add("state lengths", name, row.field, f"{name} = the batch's lengths + 1", row)
        elif name in self.learned.get("state set", ()):
            self._add("state carried", name, row.field, f"{name} as the last step left it", row)
        else:
            return "a step with speculation did not leave it set in this configuration"
        return None

    def _request(self, row: ContractField, name: str, supply: str) -> str | None:
        if supply == "advance" and self.learned.get("requests"):
            self._add("count", name, row.field, f"{name} += 1 on each request", row)
            return None
        return f"a plain step makes it where results are processed: {row.off_step_value}"

    def graphs(self) -> None:
        """The target's graphs are kept out where a point says that they do not fit."""
        held = {w[-1] for w in self.learned.get("graphs", ())}
        owners = set(self.learned.get("graph classes") or self._names(self.made.parts.graph_runners))
        graphs = [p for p in self.blocking if p.kind == "cuda_graph"]
        points = [p for p in graphs if any(f.rpartition(".")[0] in owners for f in p.fields)]
        if not points:
            return
        if not held:
            why = "the target holds no runner of graphs in this configuration"
            self.not_built.append(Missing(field=points[0].fields[0], why=why, points=[p.id for p in points]))
            return
        says = f"the target runs eagerly: {' and '.join(sorted(held))} = None for its forward"
        self._add("eager", "", points[0].fields[0], says, None, points=[p.id for p in points])
        self.bridges["eager"].places = [(c.function, c.line) for p in points for c in (*p.consumers, *p.producers)]

    def unlisted(self) -> None:
        """What a step with speculation leaves set and the contract does not name."""
        rows = {row["name"] for row in self.made.rows}
        for name in self.learned.get("calls", ()):
            self._add("call", name, "", f"{name}(the batch's lengths + 1)", None, listed=False, points=[])
        ended = self.learned.get("result lengths", ())
        for name in ended:
            if name not in rows:
                says = f"{name} = the batch's lengths + 1"
                self._add("lengths", name, f"result.{name}", says, None, listed=False, points=[])
        for name in self.learned.get("state set", ()):
            if name in rows or name in self.learned.get("state defaults", ()):
                continue
            if name in self.learned.get("ended", ()):
                self._add(
                    "state lengths", name, f"state.{name}", f"{name} = lengths + 1", None, listed=False, points=[]
                )
            elif name in self.learned.get("state tensors", ()):
                says = f"{name} as the last step left it"
                self._add("state carried", name, f"state.{name}", says, None, listed=False, points=[])

    def extend(self) -> None:
        """The draft is kept up to date by its own writer."""
        how = self.learned.get("extend")
        points = [p.id for p in self.blocking if p.kind == "draft_kv"]
        if how is None:
            why = "no step called one of the draft's writers with a batch and a result"
            self.not_built.append(Missing(field="the draft's KV", why=why, points=points))
            return
        says = (
            f"{how['function']}(batch, result) of the draft, with rows of {self.learned.get('stride')} for each request"
        )
        self._add("extend", "", "", says, None, points=points)
