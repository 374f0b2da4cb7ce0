"""The contract of an off step: what it owes each object that outlives it, as the answers of its program tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sgltrace.coupling.groups.draft import Spot, places
from sgltrace.coupling.groups.scene import Scene, names, read, said, shown, write
from sgltrace.coupling.groups.waits import waits_for
from sgltrace.coupling.offstep.bodies import expressions_in
from sgltrace.coupling.offstep.order import NEVER
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access, FieldUses
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.model import ContractField, Tensor

RELAYS = 4
"""Tokens are followed through so many fields."""
REQUIRED, OPTIONAL, UNSET, UNTOUCHED = "required", "optional", "must stay unset", "untouched"


class Rows:
    """The rows of one path."""

    def __init__(self, scene: Scene, tensors: Sequence[Tensor]) -> None:
        self.scene, self.q = scene, scene.questions
        self.shapes = Shapes(scene, tensors)
        self.rows: dict[str, ContractField] = {}

    def all(self) -> list[ContractField]:
        """The rows, by field."""
        self._state()
        self._results()
        self._left()
        self._carried()
        return [self.rows[key] for key in sorted(self.rows)]

    def _add(
        self,
        uses: FieldUses,
        requirement: str,
        value: str,
        why: str,
        writers: Iterable[Spot],
        readers: Iterable[Spot],
        stride: str | None = None,
        rows: str | None = None,
        supply: str = "",
    ) -> None:
        if uses.name in self.rows:
            return
        shape, dtype = self.shapes.of(uses, rows)
        self.rows[uses.name] = ContractField(
            path=self.scene.path, field=uses.name, shape=shape, dtype=dtype, stride=stride, requirement=requirement,
            off_step_value=value, writers=places(writers), readers=places(readers), why=why, supply=supply,
        )  # fmt: skip

    # --- the draft's state on the batch ---

    def _state(self) -> None:
        q, answers = self.q, self.scene.answers
        for cls in q.parts.batches:
            for name in q.parts.state_fields:
                uses = q.flow.fields.get((cls, name))
                if uses is None:
                    continue
                asked = [x for d in answers.detached for x in d.strikes if any(f.name == uses.name for f in x.facts)]
                taken = [t for t in answers.taken if t.attached_only and any(f.name == uses.name for f in t.facts)]
                writers = [write(a) for a in uses.writes if a.kind != "default" and q.attached.runs(a)]
                if asked:
                    self._add(
                        uses, REQUIRED, "as the last step with speculation left it",
                        f"{said((x.function for x in asked), 'uses')} it without asking", writers,
                        [Spot(x.function, x.line, f"uses {name}") for x in asked], supply="state",
                    )  # fmt: skip
                elif taken and cls is not q.parts.scheduler_batch:
                    self._add(
                        uses, UNSET, "None on what the target runs",
                        f"{said((t.function for t in taken), 'takes')} a draft's way where it is set", writers,
                        [Spot(t.function, t.line, f"decides by {shown(t.test)}") for t in taken], supply="unset",
                    )  # fmt: skip

    # --- the result ---

    def _results(self) -> None:
        q = self.q
        unset = {(u.cls, u.name): u for u in self.scene.answers.unset}
        counts = self._counts()
        for (cls, name), uses in sorted(q.flow.fields.items(), key=lambda item: (item[0][0].id, item[0][1])):
            if cls not in q.parts.results:
                continue
            readers = [a for a in uses.reads if q.on.scheduler.runs(a) or q.attached.scheduler.runs(a)]
            if not readers:
                continue
            writers = [write(a) for a in uses.writes if a.kind != "default" and q.on.runs(a)]
            found = unset.get((cls, name))
            spots = [read(a) for a in readers]
            if found is None:
                set_by_target = [a for a in uses.writes if a.kind != "default" and q.attached.worker.runs(a)]
                if set_by_target:
                    self._add(uses, OPTIONAL, "as the target's own result sets it", "", writers, spots)
                continue
            stride = shown(found.strided[0].stride) if found.strided else None
            strides = {a.field for r in q.flow.strided for a in r.stride_from if a.cls is cls}
            supply = "tokens" if stride else "width" if name in strides else "ones" if name in counts else ""
            if stride is not None:
                carried = any(a.cls is cls for r in found.strided for a in r.stride_from)
                value = f"bs rows of {stride}, the token of request i at i * {stride}"
                value += "; or one row of 1 where the result carries a width of 1" if carried else ""
            elif name in strides:
                value = "1, for tokens of one row each, or the width that they are padded to"
            elif name in counts:
                value = "ones: one token for each request"
            else:
                value, supply = self._made(uses)
            strikes = [Spot(x.function, x.line, f"raises {x.exception}") for x in found.strikes]
            why = (
                f"{said((x.function for x in found.strikes), 'raises')} where it is unset"
                if strikes
                else (f"{said((r.function for r in found.strided), 'cuts')} it into rows")
            )
            self._add(
                uses, REQUIRED, value, why, writers, strikes or spots,
                stride=f"request i at i * {stride}" if stride else None,
                rows="" if name in strides else "bs" if name in counts else f"bs * {stride}" if stride else None,
                supply=supply,
            )  # fmt: skip

    def _counts(self) -> set[str]:
        """Fields of the result that say how many tokens of a row count: they end a slice, one for each request."""
        out: set[str] = set()
        functions = {x.function for found in self.scene.answers.unset for x in found.strikes}
        functions |= {x.function for found in self.scene.answers.unset for x in found.strided}
        for function in functions:
            for node in expressions_in(function.body):
                if isinstance(node, s.Sub) and isinstance(node.index, s.Slice) and node.index.upper is not None:
                    for part in s.descend(node.index.upper):
                        if isinstance(part, s.Sub) and isinstance(part.value, s.Name):
                            out |= self._behind(function, part.value.id)
        return out

    def _behind(self, function: FunctionInfo, name: str) -> set[str]:
        """The fields of a result that a local name is made of."""
        found = self.q.steps.sites.definitions(function).get(name, [])
        return {
            access.field
            for value in found
            if value is not None
            for part in s.descend(value)
            for access in self.q.flow.at(part)
            if access.cls in self.q.parts.results
        }

    def _made(self, uses: FieldUses) -> tuple[str, str]:
        """What a speculative step puts there, as its own code says, and how it comes by it."""
        q = self.q
        classes = {
            c.name
            for a in uses.writes
            if a.value is not None and q.on.worker.runs(a)
            for c in q.program.classes_of(a.value, a.function)
        }
        if classes:
            return f"a {' or '.join(sorted(classes))}, with every required field of it", "object"
        values = [a for a in uses.writes if a.kind != "default" and a.value is not None and q.on.worker.runs(a)]
        return (
            f"what {names([values[0].function])} sets: {shown(values[0].value)}, for one token" if values else "a value"
        ), "value"

    # --- what is left on batch and requests ---

    def _left(self) -> None:
        q, answers, kept = self.q, self.scene.answers, self._kept()
        for skipped in answers.skipped:
            for access in skipped.unwritten:
                uses = q.flow.fields[access.cls, access.field]
                if uses.role not in ("scheduler_batch", "request") or _counts_alike(access, kept.get(uses.name, ())):
                    continue
                readers = [a for a in uses.reads if q.attached.runs(a)]
                if readers:
                    self._add(
                        uses, REQUIRED, f"as a plain step: {_done(access)}",
                        f"an off step does not come to {names([access.function])} line {access.line}",
                        [write(access)], [read(a) for a in readers], supply=self._as_plain(access),
                    )  # fmt: skip
        for split in answers.split:
            if split.uses.role in ("scheduler_batch", "request"):
                first = split.plain[0]
                if _counts_alike(first, kept.get(split.uses.name, ())):
                    continue
                self._add(
                    split.uses, REQUIRED, f"as a plain step: {_done(first)}", "each regime keeps it up on its own",
                    [write(a) for a in (*split.plain, *split.on)], [read(a) for a in split.reads],
                    supply=self._as_plain(first),
                )  # fmt: skip
        for accesses in kept.values():
            uses = q.flow.fields[accesses[0].cls, accesses[0].field]
            if uses.role in ("scheduler_batch", "request"):
                self._add(
                    uses, UNTOUCHED, f"leave alone: {said((a.function for a in accesses), 'sets')} it beforehand",
                    "the path's own writer runs in an off step, too", [write(a) for a in accesses],
                    [read(a) for a in uses.reads if q.attached.runs(a)], supply="leave",
                )  # fmt: skip

    def _kept(self) -> dict[str, list[Access]]:
        """What the path's own writers do in an off step, too, by field."""
        q = self.q
        kept: dict[str, list[Access]] = defaultdict(list)
        for found in self.scene.answers.detached:
            for callee in found.callees:
                for access in q.flow.by_function.get(callee, []):
                    if access.is_write and access.cls.name and q.attached.completes(access):
                        kept[q.flow.fields[access.cls, access.field].name].append(access)
        return kept

    def _as_plain(self, access: Access) -> str:
        """How an off step comes by what a plain step writes."""
        q, value = self.q, access.value
        if value is not None:
            called = {c for part in s.descend(value) if isinstance(part, s.Call)
                      for c, _ in q.steps.sites.called(part, access.function)}  # fmt: skip
            if self.scene.allocates(called):
                return "slots"
        if self._from_tokens(access):
            return "newest"
        counts = access.kind == "augment" or (access.kind == "in-place" and isinstance(value, s.Const))
        return "advance" if counts or _adds_to_itself(value, access.field) else "plain"

    def _from_tokens(self, access: Access) -> bool:
        """Whether what is written goes back to the tokens of a result, through fields, too."""
        flow, seen, todo = self.q.flow, set[Access](), [access]
        tokens = {(u.cls, u.name) for u in self.scene.answers.unset if u.strided}
        for _ in range(RELAYS):
            found = [o for a in todo for o in flow.origins(a) if o not in seen]
            if any((o.cls, o.field) in tokens for o in found):
                return True
            seen |= set(found)
            todo = [w for o in found for w in flow.fields[o.cls, o.field].writes if w.kind != "default"]
        return False

    # --- what the next draft starts from ---

    def _carried(self) -> None:
        q = self.q
        for stale in self.scene.answers.stale:
            if not stale.carried and not stale.asserted:
                continue
            in_step = [a for a in stale.writes if q.order.of(a) < NEVER] or stale.writes
            if any(waits_for(a) for a in stale.uses.reads):
                value, supply = "an event recorded after the off step's lengths are queued", "event"
            elif stale.carried and not any(self.scene.verifies(a.function) for a in in_step):
                value = "what a one-token extend of the draft gives, or placeholders of the same rows"
                supply = "drafted"
            else:
                supply = "verified"
                value = f"what {names([in_step[0].function])} sets, for one token: {shown(in_step[0].value)}"
            only = "only " if stale.alone else ""
            why = f"{only}{said((a.function for a in in_step), 'sets')} it in a decode step"
            self._add(
                stale.uses, REQUIRED, value, why,
                [write(a) for a in in_step], [read(a) for a in stale.reads], supply=supply,
            )  # fmt: skip


def _counts_alike(plain: Access, kept: Iterable[Access]) -> bool:
    """Whether a path's own writer adds to a field what a plain step adds: an off step that does so counts twice."""
    return plain.kind == "augment" and any(a.kind == "augment" and shown(a.value) == shown(plain.value) for a in kept)


def _adds_to_itself(value: s.Expr | None, field: str) -> bool:
    """Whether a value is the field with a number added."""
    return (
        isinstance(value, s.Bin)
        and isinstance(value.left, s.Attr)
        and value.left.attr == field
        and isinstance(value.right, s.Const)
    )


def _done(access: Access) -> str:
    value = shown(access.value) if access.value is not None else "changed in place"
    return f"{access.field} += {value}" if access.kind == "augment" else f"{access.field} = {value}"


class Shapes:
    """Shapes and dtypes of fields: from the shape interpreter, else from the object that is made for no requests."""

    def __init__(self, scene: Scene, tensors: Sequence[Tensor]) -> None:
        self.scene = scene
        self.derived: dict[tuple[str | None, str], set[tuple[str | None, str | None]]] = defaultdict(set)
        for tensor in tensors:
            if tensor.path == scene.path and tensor.field and tensor.shape and not tensor.shape.startswith("[?]"):
                self.derived[tensor.cls, tensor.field].add((tensor.shape, tensor.dtype))

    def of(self, uses: FieldUses, rows: str | None = None) -> tuple[str | None, str | None]:
        """The shape and dtype of a field in an off step. ``rows`` says what the step's program already knows."""
        found = self.derived.get((uses.cls.name, uses.field)) or self.derived.get((uses.cls.id, uses.field)) or set()
        dtypes = {dtype for _, dtype in found if dtype}
        dtype = dtypes.pop() if len(dtypes) == 1 else None
        if rows == "":
            return "()", "int"
        shapes = {shape for shape, _ in found}
        if len(shapes) == 1:
            return shapes.pop(), dtype
        if rows:
            return f"({rows},)", dtype
        return self._of_no_rows(uses) or (None, dtype)

    def _of_no_rows(self, uses: FieldUses) -> tuple[str, str | None] | None:
        for access in uses.writes:
            value = access.value
            if access.kind != "constructor" or not isinstance(value, s.Call) or not value.args:
                continue
            first = value.args[0].value
            items = first.items if isinstance(first, s.Seq) else [first]
            if not items or not isinstance(items[0], s.Const) or items[0].value != 0:
                continue
            dtype = next((a.value.attr for a in value.args if a.name == "dtype" and isinstance(a.value, s.Attr)), None)
            rest = [item.attr if isinstance(item, s.Attr) else shown(item) for item in items[1:]]
            names_ = ["bs", *rest]
            return f"({', '.join(names_)}{',' if len(names_) == 1 else ''})", None if dtype == "dtype" else dtype
        return None


def contract(scenes: list[Scene], tensors: Sequence[Tensor]) -> list[ContractField]:
    """The rows of every path."""
    return [row for scene in scenes for row in Rows(scene, tensors).all()]
