"""Config gates: what the server's arguments refuse, rewrite or choose for speculation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.facts import Access, Refusal
from sgltrace.coupling.loops import asks_one, gathering
from sgltrace.coupling.offsteps import gates_of_adaptive, off_steps
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, Site, of, sites
from sgltrace.coupling.query import callers, reads_after, start_writes
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import WORKER, Fn, Universe
from sgltrace.coupling.widths import mentions_width, width_reads
from sgltrace.coupling.wording import reads_of, show, writes_of
from sgltrace.index.facts import syntax as s


class ConfigGate(Rule):
    """Arguments are rewritten, or configurations refused, because the process speculates."""

    kind = "config_gate"
    positive = (
        Example(
            {
                "start": """
                    class ServerArgs:
                        def check(self):
                            if self.speculative_algorithm is not None:
                                if self.enable_mixed_chunk:
                                    raise ValueError("no mixed chunks with speculation")
                """,
                "scheduler": """
                    class Scheduler:
                        def pick(self):
                            return self.server_args.enable_mixed_chunk
                """,
            },
            producers=("start:ServerArgs.check",),
            consumers=("scheduler:Scheduler.pick",),
            severity={"v1": "none", "v2": "none"},
        ),
    )
    negative = (
        Example(
            {
                "start": """
                    class ServerArgs:
                        def check(self):
                            if self.enable_mixed_chunk and self.chunked_prefill_size < 0:
                                raise ValueError("no mixed chunks without chunks")
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The widths and what keeps them consistent; then other refusals; then features that are switched off."""
        yield from self._widths(universe)
        yield from self._refusals(universe)
        yield from self._no_steps(universe)
        yield from self._off_step_gates(universe)

    def _widths(self, universe: Universe) -> Iterator[Finding]:
        names = universe.vocabulary.spec.widths & {n for n in universe.writes if n.startswith("speculative_")}
        writes = [a for a in universe.written(names) if universe.is_args(universe.fn(a))]
        gates = [r for r in self.gates(universe) if self.asks(universe, r) & names]
        chosen = [
            fn
            for fn in universe.fns.values()
            if universe.is_args(fn)
            and fn.cls is None
            and fn.id in universe.facts
            and len([1 for _, v, _ in universe.facts[fn.id].returns if isinstance(v, s.Seq) and len(v.items) >= 3]) >= 1
            and any(
                fn.id in universe.callees.get(a.function, ()) or _calls(universe, a.function, fn.name) for a in writes
            )
        ]
        readers = [
            m
            for name in sorted(names | universe.vocabulary.spec.widths)
            for m in universe.mentions.get(name, ())
            if universe.fn(m).side == WORKER and not universe.is_args(universe.fn(m))
        ]
        strides = [a for a in width_reads(universe) if universe.fn(a).side == WORKER and universe.fn(a).per_step]
        kernels = [
            fn
            for fn in universe.fns.values()
            if fn.side == WORKER
            and fn.per_step
            and fn.cls is None
            and any(p.name in universe.vocabulary.spec.widths for p in fn.params)
        ]
        drafts = [
            m
            for name in sorted(names)
            for m in universe.mentions.get(name, ())
            if universe.fn(m).at_start
            and universe.is_a(universe.fn(m).cls, universe.vocabulary.names("cuda_graph", "classes"))
        ]
        if not writes or not (readers or strides):
            return
        strided = {
            path
            for stride in universe.strides
            if not (universe.fn(stride).in_worker or universe.elsewhere(universe.fn(stride)))
            and mentions_width(universe, stride.stride, universe.facts[stride.function])
            for path in universe.paths_of(stride.function)
        }
        reason = (
            "the strides of this path hold only under the rewritten widths: a degenerate step must keep the equality"
        )
        yield Finding(
            kind=self.kind,
            title="The draft's widths are checked, chosen and rewritten by the arguments",
            producers=sites(writes, writes_of, 5)
            + sites(gates, "refuses a width", 6)
            + [of(fn, "chooses widths", 5, universe.facts[fn.id].returns[0][0]) for fn in chosen],
            consumers=[of(fn, "uses the width as a stride", 5) for fn in kernels]
            + sites(strides, reads_of, 3)
            + sites(drafts, lambda m: f"takes {m.name}", 5)
            + sites(readers, lambda m: f"takes {m.name}", 2),
            binding_time="process start",
            why=(
                "Strides in verify and in the draft's extend are consistent only where the number of "
                "draft tokens is the number of steps plus one for a single branch. The arguments "
                "rewrite it so; where one branch is required, more are refused."
            ),
            refactor=(
                "For a degenerate verify keep the equality with no steps and one token; check again "
                "after widths are chosen."
            ),
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            by_path={
                path: dict.fromkeys("ABC", (NONE, "this path takes any widths: it cuts no tokens by one"))
                for path in sorted(universe.paths - strided)
            },
            formula="one branch: num_draft_tokens = num_steps + 1",
            fields=sorted({f"ServerArgs.{n}" for n in names}),
            weight=2,
        )

    @staticmethod
    def gates(universe: Universe) -> list[Refusal]:
        """Refusals of the arguments that are reached only in a speculative configuration."""
        return [
            r
            for r in universe.refusals
            if r.how != "reason" and universe.is_args(universe.fn(r)) and _speaks(universe, r)
        ]

    @staticmethod
    def asks(universe: Universe, refusal: Refusal) -> set[str]:
        """The names that the conditions of a refusal ask for, innermost condition only."""
        if not refusal.tests:
            return set()
        return {p.attr for p in s.descend(refusal.tests[-1][0]) if isinstance(p, s.Attr)}

    def _refusals(self, universe: Universe) -> Iterator[Finding]:
        """The features that speculation refuses, or switches off."""
        turned = self._switched_off(universe)
        by_feature: dict[str, list[Refusal]] = defaultdict(list)
        for refusal in self.gates(universe):
            asked = self.asks(universe, refusal)
            features = sorted(a for a in asked if not universe.vocabulary.spec.is_config(a) and a.islower())
            if features and features[0] not in universe.vocabulary.spec.overlap_fields:
                by_feature[features[0]].append(refusal)
        features = sorted(by_feature.keys() | {t.field for t in turned})
        readers = {feature: reads_after(universe, {feature}) for feature in features}
        # A word that half of the engine reads (the device) is no feature that somebody could turn on.
        refused = [f for f, found in readers.items() if found and len({a.function for a in found}) <= 40]
        switched = {t.field for t in turned}
        if not refused:
            return
        yield Finding(
            kind=self.kind,
            title="Features that the arguments refuse or switch off for speculation",
            producers=sites(
                [r for f in refused for r in by_feature[f]], lambda r: f"refuses: {show(r.tests[-1][0])}", 5
            )
            + sites([t for t in turned if t.field in refused], writes_of, 5),
            consumers=[
                site
                for f in refused
                for site in _first(universe, sites(readers[f], reads_of, 5 if f in switched else 3))
            ],
            binding_time="process start",
            why=(
                f"With an algorithm the arguments refuse, or turn off, {', '.join(refused)}. A server that only "
                "sometimes speculates does without them too."
            ),
            refactor="Lift a gate where the on step supports the feature; off steps need nothing.",
            verdicts=dict.fromkeys("ABC", (NONE, "no step of the process, on or off, has the feature")),
            fields=[f"ServerArgs.{feature}" for feature in refused],
        )

    def _no_steps(self, universe: Universe) -> Iterator[Finding]:
        """Loops over the draft's steps whose results are put together: with no steps there is nothing to put."""
        ready = {step.path for step in off_steps(universe)}
        only = tuple(sorted(universe.paths - ready))
        loops = [found for fn in sorted(universe.fns.values(), key=lambda f: f.id) for found in gathering(universe, fn)]
        if not only or not loops:
            return
        widths = universe.vocabulary.spec.widths
        workers = ("spec_worker", "draft_worker")
        functions = {loop.function for loop, _ in loops}
        fixed = [a for a in start_writes(universe, widths) if universe.role(a.cls) in workers]
        changed = [a for a in universe.written(widths) if universe.role(a.cls) in workers and a.how == "assign"]
        controllers = universe.of_class("control_surface")
        speaking = {a.function for a in universe.read(widths)} | {fn.id for fn in controllers}
        told = [universe.fns[f] for f in sorted(speaking)]
        told = [fn for fn in told if fn.at_start and not fn.other and not universe.elsewhere(fn)]
        told = [fn for fn in told if fn in controllers or asks_one(universe, fn)]
        reason = "with no draft steps the lists are empty, and putting them together raises"
        yield Finding(
            kind=self.kind,
            title="The draft loop and what is built for it know no number of steps below one",
            producers=sites(fixed, writes_of, 3)
            + [of(fn, "builds, or leaves out, what a number of steps needs", 5) for fn in told],
            consumers=[loop for loop, _ in loops]
            + [of(fn, "puts the steps' results together", 5) for _, takers in loops for fn in takers]
            + sites([a for a in changed if universe.fn(a).per_step and a.function not in functions], writes_of, 4),
            binding_time="process start",
            why=(
                "A degenerate verify has no draft steps. The loop that drafts fills lists step by step, and what "
                "follows joins them, or takes their first element; backends and states are built for one step or more."
            ),
            refactor="Branch before the loop where there are no steps, and build verify's input from the last token.",
            verdicts={"C": (HARD, reason)},
            only=only,
            fields=sorted({f"ServerArgs.{a.field}" for a in fixed if a.field.startswith("speculative_")}),
            weight=1,
        )

    def _off_step_gates(self, universe: Universe) -> Iterator[Finding]:
        """What refuses the changing number of steps, and with it the step without drafts."""
        gates = gates_of_adaptive(universe)
        steps = off_steps(universe)
        if not gates or not steps:
            return
        functions = sorted({gate.function for gate in gates})
        adaptive = universe.of_class("control_surface")
        users = {
            c.id: c
            for fn in [*(universe.fns[f] for f in functions), *adaptive]
            for c in callers(universe, fn)
            if c.side == WORKER or universe.role(c.cls) in ("spec_worker", "draft_worker")
        }
        consumers = [Site(step.function, step.line, step.what, 6) for step in steps]
        consumers += [of(fn, "goes by the adaptive mode", 5) for fn in users.values() if not fn.other]
        if not consumers:
            return
        reason = "where it is refused no such state is built, and speculation stays on"
        yield Finding(
            kind=self.kind,
            title="A changing number of draft steps is refused in several configurations",
            producers=[Site(gate.function, gate.line, gate.what, 5) for gate in gates],
            consumers=consumers,
            binding_time="process start",
            why=(
                "The mode that changes the number of steps, down to none where the release allows it, is refused for "
                + "; ".join(sorted({gate.what.removeprefix("refused where ").partition(":")[0] for gate in gates})[:7])
                + "."
            ),
            refactor="Lift the gates one by one: each names what its configuration lacks.",
            verdicts={"C": (SOFT, reason)},
            condition="a configuration that a gate names",
            weight=2,
        )

    def _switched_off(self, universe: Universe) -> list[Access]:
        """Features of the server that the arguments turn off for speculation."""
        skip = universe.vocabulary.spec.overlap_fields | universe.fields("scheduler_policy", "limits")
        return [
            a
            for found in universe.writes.values()
            for a in found
            if universe.is_args(universe.fn(a))
            and a.regime == "spec"
            and isinstance(a.value, s.Const)
            and isinstance(a.value.value, bool)
            and a.field not in skip
            and not universe.vocabulary.spec.is_config(a.field)
            and a.owner in ("self", "server_args")
        ]


def _first(universe: Universe, found: list[Site], most: int = 4) -> list[Site]:
    """The sites of the functions that tell most."""
    order = sorted({s.function for s in found}, key=lambda f: _order(universe, universe.fns[f]))[:most]
    return [s for s in found if s.function in order]


def _order(universe: Universe, fn: Fn) -> tuple[int, str, int]:
    return (-universe.importance(fn), fn.file, fn.line)


def _calls(universe: Universe, function: str, name: str) -> bool:
    return any(c.name == name for c in universe.facts[function].calls)


def _speaks(universe: Universe, refusal: Refusal) -> bool:
    if refusal.regime == "spec":
        return True
    words = universe.vocabulary.spec
    for test, _ in refusal.tests[-1:]:
        for part in s.descend(test):
            if isinstance(part, s.Attr) and words.is_config(part.attr):
                return True
    return False
