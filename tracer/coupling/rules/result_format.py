"""Result format: what a worker returns, and who does what with it."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access, Stride
from sgltrace.coupling.point import HARD, NONE, Finding, site, sites
from sgltrace.coupling.query import comes_from, held_by, is_copy, is_reset, paths_of, spec_writes
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.strides import line_of_stride, on_result, set_at_start, wide_values
from sgltrace.coupling.universe import SCHEDULER, WORKER, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, show, writes_of
from sgltrace.index.facts import syntax as s


class ResultFormat(Rule):
    """The scheduler reads fields, strides and counts of a result that only a speculative worker gives it."""

    kind = "result_format"
    positive = (
        Example(
            {
                "v1": """
                    class EAGLEWorker:
                        def check(self, batch: ScheduleBatch, tokens):
                            for req in batch.reqs:
                                req.output_ids.append(tokens[req])
                """,
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch, tokens):
                            for req in batch.reqs:
                                if batch.spec_algorithm.is_none():
                                    req.output_ids.append(tokens[req])
                """,
            },
            producers=("v1:EAGLEWorker.check",),
            consumers=("scheduler:Scheduler.process",),
            severity={"v1": "hard", "v2": None},
        ),
        Example(
            {
                "v2": """
                    class EAGLEWorkerV2:
                        def check(self, predicted):
                            return GenerationBatchResult(next_token_ids=predicted.flatten())
                """,
                "scheduler": """
                    class Scheduler:
                        def cut(self, result: GenerationBatchResult, lengths):
                            stride = self.draft_worker.speculative_num_draft_tokens
                            tokens = result.next_token_ids.tolist()
                            return [tokens[i * stride : i * stride + n] for i, n in enumerate(lengths)]
                """,
            },
            producers=("v2:EAGLEWorkerV2.check",),
            consumers=("scheduler:Scheduler.cut",),
            severity={"v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch, result: GenerationBatchResult):
                            for req, token in zip(batch.reqs, result.next_token_ids.tolist()):
                                req.output_ids.append(token)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The relayed draft state, the stride, the counts, and who appends tokens."""
        yield from self._relayed(universe)
        yield from self._strided(universe)
        yield from self._counts(universe)
        yield from self._owner(universe)

    def _relayed(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("result", "relay")
        writes = [
            a for a in held_by(universe, spec_writes(universe, names), ("result",), unknown=False) if not is_copy(a)
        ]
        reads = [
            a
            for a in held_by(universe, universe.read(names), ("result",), unknown=False)
            if universe.fn(a).per_step and universe.fn(a).side in (SCHEDULER, WORKER)
        ]
        if not writes or not any(universe.fn(a).side == SCHEDULER for a in reads):
            return
        infos = universe.vocabulary.spec.info_fields
        idle = [b for b in universe.branches if universe.fn(b).side == WORKER and set(b.reading.atoms) & infos]
        reason = "a plain result has no draft state: it is dereferenced without a question"
        yield Finding(
            kind=self.kind,
            title="The scheduler installs the draft state that the result must carry",
            producers=sites(writes, writes_of, 6),
            consumers=sites(reads, reads_of, 5)
            + sites(
                [a for a in universe.written(infos) if a.regime == "spec" and universe.fn(a).side == SCHEDULER],
                writes_of,
                4,
            )
            + [site(b, "takes a batch without draft state for an idle one", 3) for b in idle],
            binding_time="per step",
            why=(
                "After each launch the scheduler puts the result's draft state and its new lengths "
                "on the batch. The target worker's own result has none; and a batch without draft "
                "state is taken for an idle one by the worker."
            ),
            refactor="Build a full draft state in the bypass: next token, new lengths, event, and the draft's rows.",
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify builds it")},
            fields=sorted({f"GenerationBatchResult.{a.field}" for a in (*writes, *reads)}),
            only=_relaying_paths(universe, reads),
            weight=8,
        )

    def _strided(self, universe: Universe) -> Iterator[Finding]:
        """``ids[i * stride : ...]`` in the scheduler: whose stride it is, and who lays the tokens out by it."""
        by_owner: dict[bool, list[tuple[Stride, s.Expr]]] = {}
        for stride, source in self._cuts(universe):
            carried = on_result(universe, source, universe.facts[stride.function].local)
            by_owner.setdefault(carried, []).append((stride, source))
        for carried, cuts in sorted(by_owner.items()):
            yield self._stride(universe, carried, cuts)

    @staticmethod
    def _cuts(universe: Universe) -> Iterator[tuple[Stride, s.Expr]]:
        """Where step code outside of the workers cuts a result's tokens by a width, with the width."""
        tokens = universe.fields("result", "tokens")
        for stride in sorted(universe.strides, key=lambda x: (universe.fn(x).file, x.line)):
            fn, facts = universe.fn(stride), universe.facts[stride.function]
            own = universe.role(fn.cls) in ("spec_worker", "draft_worker")
            if own or fn.side not in (SCHEDULER, WORKER) or not fn.per_step:
                continue
            if comes_from(stride.base, tokens, facts.local) and mentions_width(universe, stride.stride, facts):
                name = stride.stride
                yield stride, facts.local.get(name.id, name) if isinstance(name, s.Name) else name

    def _stride(self, universe: Universe, carried: bool, cuts: list[tuple[Stride, s.Expr]]) -> Finding:
        tokens = universe.fields("result", "tokens")
        made = [
            a for a in universe.written(tokens | {"accept_lens"}) if universe.fn(a).side == WORKER and not is_reset(a)
        ]
        writes = [a for a in held_by(universe, made, ("result",), unknown=False) if a.field in tokens]
        producers = sites(writes, writes_of, 6) + sites(made, writes_of, 3)
        producers += wide_values(universe, {a.function for a in made})
        consumers = []
        for stride, source in cuts:
            producers += set_at_start(universe, source)
            consumers.append(site(stride, f"cuts tokens at multiples of {show(source)}", 8))
            reads = [a for a in universe.facts[stride.function].accesses if not a.write and a.field in tokens]
            consumers += sites(reads, reads_of, 4) + line_of_stride(universe, stride.function, source)
        if carried:
            late = "is carried by the result"
            reason = "a result must say its own stride: one of (bs,) with the draft's stride is cut at the wrong places"
            moved = (NONE, "the result in flight carries its own stride")
            refactor = "Set the result's own stride to 1 in the off step, or pad its tokens."
        else:
            late = "is read from the worker when the result is processed"
            reason = "a result of one token for each request is cut at the wrong places"
            moved = (HARD, "the result in flight has another width than the worker has by then")
            refactor = "Carry the stride on the result, or pad the off step's tokens to bs * num_draft_tokens."
        return Finding(
            kind=self.kind,
            title=f"The token stride {late}",
            producers=producers,
            consumers=consumers,
            binding_time="per step, consumed one step later",
            why=(
                f"The flat tokens of request i are cut at i * {show(cuts[0][1])}. A worker that returns (bs,) "
                "tokens, or changes its width while a result is in flight, has them cut wrongly."
            ),
            refactor=refactor,
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": moved},
            formula="tokens of request i: next_token_ids[i * stride : i * stride + accept_lens[i]]",
            fields=["GenerationBatchResult.next_token_ids"],
            only=paths_of(universe, [stride.function for stride, _ in cuts]),
            weight=8,
        )

    def _counts(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("result", "counts")
        writes = [
            a for a in held_by(universe, spec_writes(universe, names), ("result",), unknown=False) if not is_copy(a)
        ]
        reads = [
            a
            for a in held_by(universe, universe.read(names), ("result",), unknown=False)
            if universe.fn(a).per_step and universe.fn(a).side in (SCHEDULER, WORKER)
        ]
        if not writes or not reads:
            return
        reason = "the scheduler reads accept counts that a plain result leaves unset"
        yield Finding(
            kind=self.kind,
            title="Accept counts of the result drive what the scheduler does with it",
            producers=sites(writes, writes_of, 5),
            consumers=sites(reads, reads_of, 5),
            binding_time="per step, consumed one step later",
            why=(
                f"{', '.join(sorted({a.field for a in writes}))} are set by speculation and read "
                "where results are processed: to cut "
                "tokens, to advance KV lengths, to count. A plain result leaves them at their defaults."
            ),
            refactor="Return counts of one accepted token (the bonus) for each request.",
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify sets them")},
            formula="accept_lens: (bs,), at least 1, the bonus token counted",
            fields=sorted({f"GenerationBatchResult.{a.field}" for a in writes}),
            weight=6,
        )

    def _owner(self, universe: Universe) -> Iterator[Finding]:
        """A field of the request that the worker writes, and the scheduler only without speculation."""
        names = universe.fields("result", "output")
        worker = [
            a
            for a in held_by(universe, universe.written(names), ("request",), unknown=False)
            if universe.fn(a).in_worker and universe.fn(a).side == WORKER and universe.fn(a).per_step
        ]
        scheduler = [
            a
            for a in held_by(universe, universe.written(names), ("request",), unknown=False)
            if universe.fn(a).side == SCHEDULER and universe.fn(a).per_step and a.regime is not None
        ]
        if not worker or not scheduler:
            return
        producers = sites(worker, "appends the tokens itself", 6)
        request = universe.vocabulary.roles.get("request", frozenset())
        for function in sorted({a.function for a in worker}):
            facts = universe.facts[function]
            producers += [site(a, writes_of(a), 4) for a in facts.accesses if a.write and a.cls in request]
            producers += [
                site(c, f"calls {c.name} of the request", 4) for c in facts.calls if universe.role(c.cls) == "request"
            ]
        results = [
            a
            for a in universe.written(universe.fields("result", "tokens"))
            if a.cls in universe.vocabulary.roles.get("result", frozenset()) and universe.fn(a).side == WORKER
        ]
        on_paths = paths_of(universe, [a.function for a in worker])
        producers += sites([a for a in results if universe.paths_of(a.function) & set(on_paths)], writes_of, 3)
        consumers = sites(scheduler, "appends only in another regime", 6)
        for function in sorted({a.function for a in scheduler}):
            facts = universe.facts[function]
            consumers += [site(b, f"decides by {show(b.test)}", 4) for b in facts.branches]
        reason = (
            "no branch of the scheduler appends a plain result's token on this path: it is lost, and nothing finishes"
        )
        yield Finding(
            kind=self.kind,
            title="The worker appends tokens and finishes requests itself",
            producers=producers,
            consumers=consumers,
            binding_time="per step",
            why=(
                "Verify appends accepted tokens to the requests, checks whether they have finished, "
                "moves the grammar and the KV lengths; the scheduler's own branches for this ask for "
                "no algorithm, or for the other path. A plain result is neither appended nor checked."
            ),
            refactor="Do the same in the off step's worker code, or let the scheduler's branches ask the batch.",
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify does it")},
            formula="result tokens: all accepted ones, sum(accepted + 1), without a stride",
            fields=sorted({f"Req.{a.field}" for a in worker}),
            only=on_paths,
            weight=9,
        )


def _relaying_paths(universe: Universe, reads: list[Access]) -> tuple[str, ...]:
    """The paths on which the scheduler reads the relayed state."""
    found: set[str] = set()
    for access in reads:
        if universe.fn(access).side == SCHEDULER:
            paths = universe.paths_of(access.function)
            found |= paths & {access.path} if access.path else paths
    return tuple(sorted(found))
