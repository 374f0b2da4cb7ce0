"""The off step of an experiment: the target's plain decode inside of the worker's step, with the bridges it is given.

A bridge is plain data: a kind, and the field it is for. Kinds: ``unset``, ``newest``, ``slots`` and ``advance`` set a
field of the batch before the target runs it (and put it back); ``eager`` keeps the target's graphs out; ``tokens``,
``width``, ``ones``, ``object`` and ``lengths`` set a field of the result; ``state newest``, ``state lengths``, ``state
carried`` and ``event`` one of the state that the next step starts from; ``call`` hands on what a step with speculation
hands to a function it was given; ``extend`` runs the draft's own writer for one token a request.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

from .objects import fields, follow, is_tensor


class OffStep:
    """One worker's off step."""

    def __init__(self, plan: dict[str, Any], target_step: Any) -> None:
        self.bridges: list[dict[str, Any]] = plan["bridges"]
        self.learned: dict[str, Any] = plan["learned"]
        self.parts: dict[str, Any] = plan["parts"]
        """Cycles for which the GPU is kept busy before the lengths are written, to show a race."""
        self.target_step = target_step
        self.torch: Any = sys.modules["torch"]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The bridges of a kind."""
        return [b for b in self.bridges if b["kind"] == kind]

    def run(self, worker: Any, batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run it, and return a result."""
        learned = self.learned
        target = follow(worker, learned["target"])
        state = getattr(batch, learned["state"])
        lengths = getattr(batch, learned["lengths"])
        kept: dict[str, Any] = {}
        self.set_inputs(worker, target, batch, state, lengths, kept)
        taken = self.without_graphs(target)
        try:
            result = self.target_step(target, batch)
        finally:
            for owner, name, runner in taken:
                setattr(owner, name, runner)
            if learned.get("put back", True):
                for name, value in kept.items():
                    setattr(batch, name, value)
        return self.supply(worker, target, batch, state, lengths, result, args, kwargs)

    # --- what the target runs ---

    def set_inputs(self, worker: Any, target: Any, batch: Any, state: Any, lengths: Any, kept: dict[str, Any]) -> None:
        """Set the fields of the batch that the target's plain decode reads."""
        for bridge in self.bridges:
            name, kind = bridge.get("name", ""), bridge["kind"]
            if kind not in ("unset", "newest", "slots", "advance") or not hasattr(batch, name):
                continue
            old = getattr(batch, name)
            if kind == "unset":
                new = None
            elif kind == "newest":
                new = self.typed(getattr(state, self.learned["newest"]), name)
            elif kind == "slots":
                new = self.slots(worker, target, batch, lengths, name, 1)
            elif is_tensor(old):
                new = old + 1
            elif isinstance(old, int):
                new = old + len(lengths)
            else:
                continue
            kept.setdefault(name, old)
            setattr(batch, name, new)

    def typed(self, value: Any, name: str) -> Any:
        """A tensor with the dtype that the target is given in this field."""
        dtype = self.learned.get("dtypes", {}).get(name)
        return value if dtype is None else value.to(getattr(self.torch, dtype.removeprefix("torch.")))

    def slots(self, worker: Any, target: Any, batch: Any, lengths: Any, name: str, width: int) -> Any:
        """The slots of the next tokens of each request, (bs * width,)."""
        root, *way = self.learned["table"]
        table = follow(worker if root == "worker" else target, way)
        rows = getattr(batch, self.learned["rows"]).long()
        columns = lengths.long()[:, None] + self.torch.arange(width, device=lengths.device)
        return self.typed(table[rows[:, None], columns].flatten(), name)

    def without_graphs(self, target: Any) -> list[tuple[Any, str, Any]]:
        """Keep the graphs that were captured for a verify out of the target's way."""
        taken = []
        if self.of("eager"):
            for way in self.learned["graphs"]:
                owner = follow(target, way[:-1])
                taken.append((owner, way[-1], getattr(owner, way[-1])))
                setattr(owner, way[-1], None)
        return taken

    # --- what it leaves ---

    def supply(
        self,
        worker: Any,
        target: Any,
        batch: Any,
        state: Any,
        lengths: Any,
        result: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Give the result what a step with speculation would have left in it."""
        torch, bs, stride = self.torch, len(lengths), self.learned["stride"]
        tokens = getattr(result, self.learned["tokens"])
        ended = lengths + 1
        for bridge in self.bridges:
            kind, name = bridge["kind"], bridge.get("name", "")
            if kind == "tokens":
                padded = torch.zeros((bs * stride,), dtype=tokens.dtype, device=tokens.device)
                padded[::stride] = tokens
                setattr(result, name, padded)
            elif kind == "width":
                setattr(result, name, stride)
            elif kind == "ones":
                setattr(result, name, torch.ones((bs,), dtype=torch.int32, device=lengths.device))
            elif kind == "lengths":
                setattr(result, name, ended)
            elif kind == "count":
                for req in getattr(batch, self.learned["requests"]):
                    setattr(req, name, getattr(req, name) + 1)
        made = self.of("object")
        if made:
            setattr(result, made[0]["name"], self.next_state(state, tokens, ended))
        for bridge in self.of("call"):
            call = kwargs.get(bridge["name"])
            if callable(call):
                call(ended)
        if self.of("extend"):
            self.extend(worker, target, batch, lengths, result, tokens)
        return result

    def next_state(self, state: Any, tokens: Any, ended: Any) -> Any:
        """What the next step starts from."""
        made = type(state)()
        for bridge in self.bridges:
            kind, name = bridge["kind"], bridge.get("name", "")
            if kind == "state newest":
                old = getattr(state, name)
                setattr(made, name, tokens.to(old.dtype) if is_tensor(old) else tokens)
            elif kind == "state lengths":
                setattr(made, name, ended)
            elif kind == "state carried":
                setattr(made, name, getattr(state, name))
            elif kind == "event":
                event = self.device_module(ended).Event()
                event.record()
                setattr(made, name, event)
        return made

    def device_module(self, tensor: Any) -> Any:
        """What torch has for the device of a tensor."""
        return self.torch.get_device_module(tensor.device)

    def extend(self, worker: Any, target: Any, batch: Any, lengths: Any, result: Any, tokens: Any) -> None:
        """Run what brings the draft's KV up to date in a step with speculation; the first of each row is the token."""
        how = self.learned["extend"]
        torch, bs, stride = self.torch, len(lengths), self.learned["stride"]
        owner = follow(worker, how["owner"])
        lent = copy.copy(batch)
        for name in self.learned.get("slots inputs", []):
            setattr(lent, name, self.slots(worker, target, batch, lengths, name, stride))
        padded = torch.zeros((bs * stride,), dtype=tokens.dtype, device=tokens.device)
        padded[::stride] = tokens
        given = copy.copy(result)
        setattr(given, self.learned["tokens"], padded.to(getattr(torch, how["tokens"].removeprefix("torch."))))
        for name, value in fields(given).items():
            wide = {n: v for n, v in fields(value).items() if is_tensor(v) and v.dim() == 2 and len(v) == bs}
            if wide and value is not getattr(given, self.learned.get("made", ""), None):
                lifted = copy.copy(value)
                for n, v in wide.items():
                    rows = torch.zeros((bs * stride, v.shape[1]), dtype=v.dtype, device=v.device)
                    rows[::stride] = v
                    setattr(lifted, n, rows)
                setattr(given, name, lifted)
        getattr(owner, how["function"])(lent, given)
