"""Learns from steps with speculation what an off step needs: which field holds the newest tokens, where slots come
from, how wide a row is. Nothing is known by name: values are held against each other, in every step that is watched.

Watching waits for the GPU; it is for servers that were started to be tried out.
"""

from __future__ import annotations

from typing import Any

from .objects import fields, follow, is_one_of, is_tensor, is_whole, same, way_to, ways_to

ENOUGH = 3
"""Steps of each kind, of at least two requests, after which all that will be known is known."""


class Lesson:
    """What is known so far. ``found`` is plain data: it goes to the other processes of the experiment."""

    def __init__(self, parts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        self.parts = parts
        self.rows = rows
        self.found: dict[str, Any] = {}
        self.possible: dict[str, set[Any]] = {}
        self.first: dict[int, tuple[Any, int]] = {}
        """The first token of each request."""
        self.watched = {"prefill": 0, "decode": 0}
        self.tokens = next((r["name"] for r in rows if r["supply"] == "tokens"), None)
        self.made = next((r["name"] for r in rows if r["supply"] == "object"), None)
        self.width = next((r["name"] for r in rows if r["supply"] == "width"), None)
        self.counts = next((r["name"] for r in rows if r["supply"] == "ones"), None)
        self.inputs = sorted({r["name"] for r in rows if r["role"] == "batch" and r["supply"] != "unset"})

    @property
    def done(self) -> bool:
        """Whether enough was watched."""
        return min(self.watched.values()) >= ENOUGH

    def only(self, fact: str, now: set[Any]) -> None:
        """A fact is one of these: what another step said, too."""
        known = self.possible.get(fact)
        self.possible[fact] = now if known is None else known & now

    # --- a prefill ---

    def prefilled(self, batch: Any, result: Any, lengths: dict[str, list[int]]) -> None:
        """After a prefill: the state left holds the tokens of the result, and lengths."""
        tokens: Any = getattr(result, self.tokens, None) if self.tokens else None
        state = getattr(result, self.made, None) if self.made else None
        if state is None:
            state = self.state_of(batch)
        if not is_tensor(tokens) or state is None:
            return
        rows = {n: v for n, v in fields(state).items() if is_whole(v) and tuple(v.shape) == tuple(tokens.shape)}
        self.only("newest", {n for n, v in rows.items() if same(v, tokens)})
        self.only("ended", {n for n, v in rows.items() if v.tolist() in lengths.values()})
        own = {n: v for n, v in fields(result).items() if is_whole(v) and tuple(v.shape) == tuple(tokens.shape)}
        self.only("result lengths", {n for n, v in own.items() if v.tolist() in lengths.values()})
        self.watched["prefill"] += 1
        self.requests(batch, tokens, lengths)

    def requests(self, batch: Any, tokens: Any, lengths: dict[str, list[int]]) -> None:
        """Which lists of a request are its prompt and its output: one as long as the batch says, one empty as yet."""
        for name, value in fields(batch).items():
            if not isinstance(value, list) or len(value) != len(tokens):
                continue
            if not value or not is_one_of(value[0], frozenset(self.parts["requests"])):
                continue
            self.found["requests"] = name
            for i, req in enumerate(value):
                lists = {n: v for n, v in fields(req).items() if hasattr(v, "__len__") and hasattr(v, "append")}
                mine = {known[i] for known in lengths.values() if len(known) == len(value)}
                self.only("prompt", {n for n, v in lists.items() if v and len(v) in mine and _whole_numbers(v)})
                self.only("output", {n for n, v in lists.items() if len(v) == 0})
                self.first[id(req)] = (req, int(tokens[i]))

    def grown(self, requests: list[Any]) -> None:
        """After a decode step: an output begins with its first token by now."""
        for req in requests:
            lists, first = fields(req), self.first.get(id(req), (None, None))[1]
            now = {n for n in self.possible.get("output", set()) if len(lists[n]) > 0 and lists[n][0] == first}
            if now:
                self.possible["output"] = now

    # --- a decode step ---

    def state_of(self, batch: Any) -> Any:
        """The draft's state that a batch carries."""
        for name in self.parts["state_fields"]:
            if getattr(batch, name, None) is not None:
                self.found["state"] = name
                return getattr(batch, name)
        return None

    def decoded(self, before: dict[str, Any], inputs: dict[str, Any], result: Any, worker: Any, target: Any) -> None:
        """After a decode step: what the target got, as made of what the worker was given."""
        lens = before["sized"]
        bs = before["bs"]
        table = self.table(worker, target)
        newest = set()
        for name, value in inputs.items():
            if not is_whole(value) or value.dim() != 1 or len(value) % bs or name not in self.inputs:
                continue
            first = value[:: len(value) // bs]
            state = {n: v for n, v in before["state"].items() if is_whole(v) and v.dim() == 1}
            hit = {n for n, v in state.items() if n in self.possible.get("newest", ()) and same(v, first)}
            if hit:
                newest |= hit
                self.only("newest inputs", {name} | self.possible.get("newest inputs", {name}))
                self.found["stride"] = len(value) // bs
                self.found.setdefault("dtypes", {})[name] = str(value.dtype)
            if table is not None:
                pairs = {
                    (rows, length)
                    for rows, r in lens.items()
                    for length, n in lens.items()
                    if rows != length and _fits(table, r, n) and same(table[r.long(), n.long()], first)
                }
                if pairs:
                    self.only(f"slots {name}", pairs)
                    self.found.setdefault("dtypes", {})[name] = str(value.dtype)
        self.only("newest", newest)
        self.left(result)
        self.watched["decode"] += 1

    def table(self, worker: Any, target: Any) -> Any:
        """The table of the requests' slots."""
        wanted = frozenset(self.parts["request_pools"])
        if "table" not in self.found:
            for root, start in (("worker", worker), ("target", target)):
                for way in ways_to(start, wanted):
                    pool = follow(start, way)
                    tables = [n for n, v in fields(pool).items() if is_whole(v) and v.dim() == 2]
                    if len(tables) == 1:
                        self.found["table"] = [root, *way, tables[0]]
                        break
                if "table" in self.found:
                    break
        if "table" not in self.found:
            return None
        root, *way = self.found["table"]
        return follow(worker if root == "worker" else target, way)

    def left(self, result: Any) -> None:
        """What a step with speculation leaves set in its result, and in the state that is in it."""
        self.found["result set"] = sorted(n for n, v in fields(result).items() if v is not None)
        if self.width is not None:
            width = getattr(result, self.width, None)
            if isinstance(width, int):
                self.found["width"] = width
        state = getattr(result, self.made, None) if self.made else None
        if state is not None:
            held = {n: v for n, v in fields(state).items() if v is not None}
            self.found["state set"] = sorted(held)
            self.found["state tensors"] = sorted(n for n, v in held.items() if is_tensor(v))
            self.found["state defaults"] = sorted(n for n, v in fields(type(state)()).items() if v is not None)

    def parts_of(self, worker: Any, target: Any) -> None:
        """How to come from the worker to the target's, and to the runner of its graphs."""
        way = way_to(worker, target)
        if way is not None:
            self.found["target"] = way
        wanted = frozenset(self.parts["graph_runners"])
        self.found["graphs"] = list(ways_to(target, wanted))
        self.found["graph classes"] = sorted({type(follow(target, way)).__qualname__ for way in self.found["graphs"]})

    def summary(self) -> dict[str, Any]:
        """All that is known, as plain data. ``unsure`` says where more than one answer is left, or none."""
        out = dict(self.found)
        possible = {fact: sorted(values) for fact, values in self.possible.items()}
        advanced = [r["name"] for r in self.rows if r["supply"] == "advance"]
        pairs = [p for fact, ps in possible.items() if fact.startswith("slots ") for p in ps]
        pairs.sort(key=lambda pair: (pair[1] not in advanced, pair))
        if pairs:
            out["rows"], out["lengths"] = pairs[0]
        out["slots inputs"] = [f.removeprefix("slots ") for f, ps in possible.items() if f.startswith("slots ") and ps]
        if "prompt" in possible:
            possible["prompt"] = [n for n in possible["prompt"] if n not in possible.get("output", ())]
        for fact in ("newest", "prompt", "output"):
            if possible.get(fact):
                out[fact] = possible[fact][0]
        out["newest inputs"] = possible.get("newest inputs", [])
        out["ended"] = possible.get("ended", [])
        out["result lengths"] = [n for n in possible.get("result lengths", []) if n in out.get("result set", [])]
        out["tokens"], out["made"], out["counts"] = self.tokens, self.made, self.counts
        out["unsure"] = {f: v for f, v in possible.items() if len(v) != 1 and f in ("newest", "prompt", "output")}
        out["watched"] = dict(self.watched)
        return out


def before_step(batch: Any, state: Any) -> dict[str, Any]:
    """Copies of what a worker is given: what each request has one of, on the batch and in the state."""
    own = {n: v for n, v in fields(batch).items() if is_whole(v) and v.dim() == 1}
    held = {} if state is None else fields(state)
    bs = next((len(v) for v in own.values()), 0)
    for value in held.values():
        if is_whole(value) and value.dim() == 1 and len(value):
            bs = len(value)
            break
    return {
        "bs": bs,
        "sized": {n: v.clone() for n, v in own.items() if len(v) == bs},
        "state": {n: v.clone() for n, v in held.items() if is_tensor(v)},
    }


def _fits(table: Any, rows: Any, lengths: Any) -> bool:
    if rows.device != table.device or lengths.device != table.device:
        return False
    low, high = int(rows.min()), int(rows.max())
    return bool(low >= 0 and high < table.shape[0] and int(lengths.min()) >= 0 and int(lengths.max()) < table.shape[1])


def _whole_numbers(values: Any) -> bool:
    return all(isinstance(v, int) for v in list(values)[:8])
