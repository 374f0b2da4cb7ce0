"""What a plan asks of an index: roles of fields, rows of the contract, who does a part already, what is struck."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from sgltrace.configuration import Configuration
from sgltrace.configuration.vocabulary import condition_words
from sgltrace.explain.vocabulary import hints
from sgltrace.insight.configured import ALWAYS, OTHERS, Configured
from sgltrace.insight.plan_words import FAILURES, LEAVE
from sgltrace.insight.reach import Reach
from sgltrace.model import Access, ContractField, CouplingPoint, Field, Guard, Index, Met, Place

BATCHES = frozenset({"scheduler_batch", "worker_batch", "forward_batch"})
STATES = frozenset({"draft_input", "spec_input", "draft_extend_input", "future_indices"})
ROLES = {
    "batch": BATCHES | {"sampling_info"},
    "draft": STATES,
    "result": frozenset({"result", "logits_output"}),
    "requests": frozenset({"request"}),
    "graphs": frozenset({"graph_runner", "graph_buffers"}),
}
"""Whose fields an edit supplies."""
EDITS = {
    "cuda_graph": "graphs", "bound_width": "graphs", "tbo": "batch", "comm": "decide",
    "draft_state": "draft", "draft_kv": "draft", "hidden_capture": "draft", "stream_order": "draft",
    "attn_metadata": "batch", "input_ids": "batch", "seq_lens_semantics": "batch", "kv_alloc": "batch",
    "step_preparation": "batch", "forward_mode": "batch", "step_state": "batch", "sampling": "batch",
    "result_format": "result", "future_map": "result", "logprob": "result", "batch_filter_merge": "state",
    "mamba_state": "batch", "request_state": "requests", "kv_bookkeeping": "requests", "metrics": "requests",
    "grammar": "requests",
}  # fmt: skip
"""The edit that a kind of point asks for, where its fields do not say it."""
FAILS = {
    "stream_order": "race", "draft_state": "acceptance", "draft_kv": "acceptance", "hidden_capture": "acceptance",
    "kv_bookkeeping": "leak", "cuda_graph": "crash at once", "bound_width": "crash at once",
    "batch_filter_merge": "crash a step later", "refusal": "crash at once", "dp_attention": "crash at once",
    "tp_agreement": "crash at once", "tbo": "crash at once", "future_map": "crash at once",
}  # fmt: skip
"""What a kind of point does where nothing is struck; silent otherwise."""
CRASH, LATE, SILENT, ACCEPTANCE = "crash at once", "crash a step later", "silent", "acceptance"
EVERY_STEP = "every step"
CAPTURED = "graph capture"
"""What is bound then is answered by other graphs."""
STRIKES = "raises"
"""How a place begins where something is struck."""
ON_STAGES = ("draft", "verify", "draft-extend")
"""Stages of a step with speculation that leave their widths on the batch."""
WIDE = re.compile(r"num_draft_tokens|num_steps|topk")
RUNNER_EDIT = "edit here"


class Facts:
    """One path of an index, and a configuration where one is given."""

    def __init__(self, index: Index, path: str, configured: Configured | None) -> None:
        self.index, self.path, self.configured = index, path, configured
        self.fields: dict[str, list[Field]] = defaultdict(list)
        for uses in index.fields:
            self.fields[f"{uses.cls.rpartition(':')[2]}.{uses.field}"].append(uses)
        self.functions = {function.id: function for function in index.functions}
        self.entry = index.entry_points.get(path)
        self.met = [met for met in index.met if met.path == path]
        self.contract = [
            row
            for row in index.contract
            if row.path == path and (configured is None or configured.row(row).state != OTHERS)
        ]
        self.state_names = {
            row.field.rpartition(".")[2] for row in self.contract if row.requirement == "must stay unset"
        }

    def role(self, field: str) -> str:
        """The role of the class of ``Class.field``."""
        return next((uses.role for uses in self.fields.get(field, ()) if uses.role), "")

    # --- which edit ---

    def is_unconditional(self, point: CouplingPoint) -> bool:
        """Whether a point's condition is one of the off step, and none on the configuration or the requests."""
        if point.condition == ALWAYS:
            return True
        table = condition_words()
        pattern = next((known for known in table if fnmatchcase(point.condition, known)), None)
        if pattern is not None and table[pattern] == ("True",):
            return True
        return self.edit_of(point) == "graphs"  # graphs are an edit of their own

    def edit_of(self, point: CouplingPoint) -> str:
        """The edit that answers a point: by whose state it is, else by its kind."""
        roles = [self.role(field) for field in point.fields]
        names = {field.rpartition(".")[2] for field in point.fields}
        if names and names <= self.state_names:
            return "batch" if point.kind == "attn_metadata" else "state"
        if point.binding_time.startswith(CAPTURED):
            return "graphs"
        kind = EDITS.get(point.kind, "decide")
        if kind in ("graphs", "draft", "state") and not (kind == "state" and set(roles) & STATES):
            return kind
        for edit in ("result", "batch", "draft", "requests"):
            if any(role in ROLES[edit] for role in roles):
                return edit
        return kind

    # --- what to supply ---

    def rows(self, edit: str) -> list[ContractField]:
        """The contract's rows of the objects that an edit supplies."""
        if edit == "state":
            return []
        kept = [row for row in self.contract if self._is_state(row) and row.requirement != "must stay unset"]
        roles = ROLES.get(edit, frozenset())
        return [row for row in self.contract if self.role(row.field) in roles and row not in kept]

    def _is_state(self, row: ContractField) -> bool:
        return self.role(row.field) in BATCHES and row.field.rpartition(".")[2] in self.state_names

    def left_alone(self, edit: str) -> list[str]:
        """What an edit must not touch, and why."""
        rows = [row for row in self.rows(edit) if row.requirement in LEAVE]
        own = [kept for row in self.rows(edit) if edit == "requests" and (kept := self.kept(row))]
        if edit == "state":
            rows = [row for row in self.contract if self._is_state(row) and row.requirement == "required"]
        if edit == "batch":
            rows += [row for row in self.contract if row.requirement == "untouched"]
        found = [f"{row.field}: {row.off_step_value.removeprefix('leave alone: ')}" for row in rows]
        return list(dict.fromkeys([*own, *found]))

    def done_by_path(self, point: CouplingPoint) -> list[str]:
        """For each field that an off step leaves, the code of a step with speculation that keeps it up once the result
        is complete; empty where some field has none."""
        told = []
        lost = {(place.function, place.line) for place in point.consumers}
        for field in point.fields:
            kept = self._kept(field, {place.function for place in point.producers}, lost)
            if kept:
                told.append(kept)
        return told

    def kept(self, row: ContractField) -> str:
        """The same of a row; empty where the off step must see to it."""
        writers = {place.function for place in row.writers}
        below = {edge.callee for edge in self.index.calls if edge.caller in self._processing}
        return self._kept(row.field, writers & (self._processing | below), set())

    def _kept(self, field: str, decides: set[str], lost: set[tuple[str, int]]) -> str:
        uses = [u for u in self.fields.get(field, ()) if u.role in ("request", "scheduler_batch")]
        if not any(EVERY_STEP in r.phase for u in uses for r in u.reads):
            return ""
        near = decides | self._processing
        writes = [
            w
            for u in uses
            for w in u.writes
            if w.kind != "default" and w.function in near and (w.function, w.line) not in lost and not _is_reset(w)
            and self._runs(w.function) and not self._is_on(w.function) and self._open(w.function, w.guards)
        ]  # fmt: skip
        writes.sort(key=lambda w: w.function not in decides)
        if not writes:
            return ""
        return f"{field}: {self._name(writes[0].function)} line {writes[0].line} does it, as after speculation"

    @cached_property
    def _processing(self) -> set[str]:
        """The functions that take a result apart, and those that call them."""
        found = {met.function for met in self.met if met.stage == "result"}
        return found | {edge.caller for edge in self.index.calls if edge.callee in found}

    def _runs(self, function: str) -> bool:
        known = self.functions.get(function)
        return known is not None and EVERY_STEP in known.phase and self.path in known.paths

    def _open(self, function: str, guards: Sequence[Guard]) -> bool:
        return self._reach.open(function, guards) is not False

    @cached_property
    def _reach(self) -> Reach:
        if self.configured is not None:
            return self.configured.reach
        speculating = [
            answers
            for answers in self.index.conditions.algorithms.values()
            if not any(truth for name, truth in answers.items() if name.endswith(".is_none"))
        ]
        shared = {name: truth for name, truth in (speculating[0] if speculating else {}).items()
                  if all(other.get(name) is truth for other in speculating)}  # fmt: skip
        overlaps = {worker.overlap for worker in self.index.workers if worker.path == self.path}
        overlap = overlaps.pop() if len(overlaps) == 1 else None
        switch = hints().words["overlap"].removeprefix("!")
        return Reach(
            self.index,
            Configuration(
                predicates=shared,
                overlap=overlap,
                values={} if overlap is None else {switch: not overlap},
                meanings=self.index.conditions.meanings,
            ),
        )

    def running(self, places: Sequence[Place]) -> list[Place]:
        """The places of the path that run under the configuration."""
        here = [p for p in places if p.function not in self.functions or self.path in self.functions[p.function].paths]
        return self.configured.places(here) if self.configured is not None else here

    # --- where ---

    def words(self, design: str) -> dict[str, str]:
        """What sentences name: where the step is taken, and who prepares a plain one."""
        place = self._place(design)
        plain = [
            row.writers[0].function
            for row in self.contract
            if row.off_step_value.startswith("as a plain step") and row.writers
        ]
        most = max(sorted(set(plain)), key=plain.count, default="")
        return {"place": self._name(place) if place else "the step", "plain": self._name(most) or "the plain path"}

    def _name(self, function: str) -> str:
        return function.rpartition(":")[2]

    def _place(self, design: str) -> str | None:
        """Where a design takes the off step: the worker's step, or the scheduler's function that calls it."""
        if design != "A" or self.entry is None:
            return self.entry
        callers = [e.caller for e in self.index.calls if e.callee == self.entry and self._runs(e.caller)]
        return min(callers, default=self.entry)

    def places(
        self, edit: str, design: str, points: Sequence[CouplingPoint], conditional: bool
    ) -> list[dict[str, Any]]:
        """The functions of an edit, each once: where it is made, and where it shows."""
        found: dict[tuple[str, int], dict[str, Any]] = {}

        def add(function: str, line: int, what: str) -> None:
            known = self.functions.get(function)
            if known is not None and self.path in known.paths:
                spot = {"function": function, "file": known.file, "line": line, "what": what}
                found.setdefault((function, line), spot)

        place = self._place(design)
        if place is not None and not conditional and edit in ("decide", "batch", "draft", "result"):
            add(place, self.functions[place].line, RUNNER_EDIT)
        for point in points:
            starts = edit == "graphs" or conditional
            for side, verb in ((point.producers, RUNNER_EDIT if starts else "see"), (point.consumers, "see")):
                for spot in self.running(side)[:4]:
                    add(spot.function, spot.line, f"{verb}: {spot.what}")
        return list(found.values())

    # --- how it fails ---

    def met_by(self, edit: str, points: Sequence[CouplingPoint]) -> list[Met]:
        """The strikes that an edit answers, in order."""
        places = {
            (p.function, p.line)
            for point in points
            for p in (*point.producers, *point.consumers)
            if p.what.startswith(STRIKES)
        }
        return [met for met in self.met if (met.function, met.line) in places]

    def failure(self, point: CouplingPoint) -> str:
        """What a point does to an off step."""
        places = {(p.function, p.line) for p in point.consumers if p.what.startswith(STRIKES)}
        struck = [met for met in self.met if (met.function, met.line) in places]
        if struck:
            return LATE if struck[0].later else CRASH
        return FAILS.get(point.kind, "silent")

    def without(self, row: ContractField) -> str:
        """What an off step does that leaves a row as it is."""
        role, name = self.role(row.field), row.field.rpartition(".")[2]
        if row.requirement == "must stay unset":
            return SILENT
        if role in STATES:
            return LATE if self._is_taken_apart(row.field) else self.stale(row)
        if role in BATCHES:
            wide = [t for t in self.index.tensors if t.path == self.path and t.name == name and t.stage in ON_STAGES]
            return CRASH if any(WIDE.search(t.shape or "") for t in wide) else SILENT
        asked = [point for point in self.index.coupling_points if row.field in point.fields]
        return min((self.failure(point) for point in asked), key=FAILURES.index, default=SILENT)

    def stale(self, row: ContractField) -> str:
        """What an old value of the draft's state does; empty for other rows."""
        if self.role(row.field) not in STATES:
            return ""
        return SILENT if self._is_of_result(row) else ACCEPTANCE

    def _is_taken_apart(self, field: str) -> bool:
        """Whether a reader asks something of the value, which None does not have."""
        part = re.compile(rf"\.{re.escape(field.rpartition('.')[2])}[.\[]")
        return any(
            part.search(read.expression) and EVERY_STEP in read.phase and self.path in read.paths
            for uses in self.fields.get(field, ())
            for read in uses.reads
        )

    def _is_of_result(self, row: ContractField) -> bool:
        """Whether what makes the result makes the row, too: it says which tokens count."""
        makers = {p.function for r in self.contract if self.role(r.field) == "result" for p in r.writers}
        return any(place.function in makers for place in row.writers)

    def slots(self, row: ContractField) -> str:
        """Where slots are taken from that are reserved beforehand; empty for rows that are no slots."""
        taken = [p for p in self.index.coupling_points if p.kind == "kv_alloc" and p.fields == [row.field]]
        kept = [r for r in self.contract if r.requirement == "untouched" and r.writers]
        if not taken or not kept:
            return ""
        reserves = kept[0].writers[0].function
        on = [p for p in taken[0].producers if p.what.startswith(("sets", "stores")) and self._is_on(p.function)]
        as_in = f", as {self._name(on[-1].function)} line {on[-1].line} does" if on else ""
        return f"; {self._name(reserves)} has reserved the slots: take those at the request's length{as_in}"

    def _is_on(self, function: str) -> bool:
        known = self.functions.get(function)
        return known is not None and self.path in known.paths and known.component.startswith("speculative")

    def handed(self, row: ContractField, design: str) -> str:
        """The same field of the batch that the worker is handed, where that is another class."""
        if design == "A" or self.role(row.field) != "scheduler_batch":
            return ""
        name = row.field.rpartition(".")[2]
        found = [n for n, uses in self.fields.items() if n.endswith(f".{name}") and uses[0].role == "worker_batch"]
        return found[0] if found else ""

    # --- what needs what ---

    def needs(self, edit: str) -> dict[str, str]:
        """The edits that must come before one, and why."""
        found: dict[str, str] = {}
        if edit in ("draft", "result", "graphs"):
            found["batch"] = {
                "draft": "its newest token is what the target samples from that batch",
                "result": "its tokens are what the target samples from that batch",
                "graphs": "what is captured is that batch",
            }[edit]
        if edit == "result":
            states = {uses.cls.rpartition(":")[2] for u in self.fields.values() for uses in u if uses.role in STATES}
            carried = [row.field for row in self.rows(edit) if any(name in row.off_step_value for name in states)]
            if carried:
                found["draft"] = f"{carried[0]} is that state"
        if edit == "batch" and any(row.requirement == "untouched" for row in self.contract):
            row = next(row for row in self.contract if row.requirement == "untouched")
            found["state"] = (
                f"{row.off_step_value.removeprefix('leave alone: ')}: its slots are those that the batch uses"
            )
        if edit == "requests":
            found["result"] = "they are kept by what the result says"
        return found


def _is_reset(access: Access) -> bool:
    """Whether a write only clears the field."""
    return access.expression in ("None", "0", "False", "''") and access.kind != "augment"
