"""CUDA graphs: for which mode and width they are captured, what their buffers hold, and when they are captured anew."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import call_line, callers, decides, targets
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.rules.graphs import Graphs
from sgltrace.coupling.universe import WORKER, Fn, Universe
from sgltrace.coupling.widths import mentions_width, widths_behind
from sgltrace.coupling.wording import reads_of, show, writes_of
from sgltrace.index.facts import syntax as s


class CudaGraph(Rule):
    """A graph is captured for one mode and one number of tokens a request; nothing else may be replayed on it."""

    kind = "cuda_graph"
    positive = (
        Example(
            {
                "start": """
                    class CudaGraphRunner:
                        def __init__(self, model_runner: ModelRunner):
                            self.capture_forward_mode = ForwardMode.DECODE
                            if model_runner.spec_algorithm.is_eagle():
                                self.capture_forward_mode = ForwardMode.TARGET_VERIFY
                                self.num_tokens_per_bs = model_runner.server_args.speculative_num_draft_tokens
                """,
                "target": """
                    class CudaGraphRunner:
                        def replay(self, batch: ForwardBatch):
                            return self.graphs[batch.batch_size * self.num_tokens_per_bs]

                    class ModelRunner:
                        def run(self, batch: ForwardBatch):
                            return self.graph_runner.replay(batch)
                """,
            },
            producers=("start:CudaGraphRunner.__init__",),
            consumers=("target:CudaGraphRunner.replay", "target:ModelRunner.run"),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "start": """
                    class CudaGraphRunner:
                        def __init__(self, model_runner: ModelRunner):
                            self.capture_forward_mode = ForwardMode.DECODE
                            self.num_tokens_per_bs = 1
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The target's graphs, their buffers, their re-capture, and the draft's own graphs."""
        graphs = Graphs(universe)
        yield from self._target(universe, graphs)
        yield from self._buffers(universe, graphs)
        yield from self._recapture(universe, graphs)
        yield from self._drafts(universe, graphs)
        yield from self._sizes(universe)

    def _target(self, universe: Universe, graphs: Graphs) -> Iterator[Finding]:
        runners = graphs.target
        ids = {fn.id for fn in runners}
        widths = universe.fields("cuda_graph", "width")
        names = universe.fields("cuda_graph", "mode") | widths
        bound = [
            a
            for a in universe.written(names)
            if a.function in ids
            and (
                a.regime == "spec"
                or (a.field in widths and mentions_width(universe, a.value, universe.facts[a.function]))
            )
        ]
        if not bound:
            return
        reads = [a for a in universe.read(names) if a.function in ids]
        lines = [b.line for b in universe.branches if b.function in ids]
        producers = sites(bound, writes_of, 7)
        for fn in runners:
            producers += [s for s in decides(universe, fn.id, lines) if s.line in {a.via for a in bound}]
        captures = [a for a in reads if graphs.captures(universe.fn(a))]
        producers += sites(captures, reads_of, 4)
        replays = [a for a in reads if universe.fn(a).per_step and not graphs.captures(universe.fn(a))]
        consumers = sites(replays, reads_of, 6)
        users = graphs.users(runners)
        consumers += [of(fn, "asks whether a graph can run, and replays it", 5, line) for fn, line in users]
        consumers += [of(fn, "is asked to replay", 4) for fn in graphs.used(runners) if not graphs.captures(fn)]
        producers += [
            found
            for fn in {a.function: universe.fn(a) for a in bound}.values()
            for found in widths_behind(universe, fn)
        ]
        makers = [c for fn in runners if fn.name == "__init__" for c in callers(universe, fn)]
        producers += [
            of(c, "makes the one runner of the target's graphs", 5) for c in makers if not graphs.of_draft(c.cls)
        ]
        sized = [fn for fn in universe.fns.values() if fn.id in universe.facts and _asked_for_sizes(universe, fn, ids)]
        producers += [of(fn, "says for which batch sizes graphs are captured", 3) for fn in sized]
        buffers = universe.of_class("cuda_graph", "buffers")
        consumers += [
            of(fn, "copies the batch into the graph's inputs", 5) for fn in buffers if fn.per_step and _fills(fn)
        ]
        reason = (
            "the runner asks for the batch size only: a plain decode is replayed on the verify graph, or copies fail"
        )
        yield Finding(
            kind=self.kind,
            title="The target's graphs are captured for verify, with num_draft_tokens a request",
            producers=producers,
            consumers=consumers,
            binding_time="process start",
            why=(
                "Under an algorithm the runner captures in verify mode, with the draft's width of "
                "tokens for each request; keys are batch sizes. A decode of one token a request "
                "passes the check, and its inputs are copied into buffers of another length: an "
                "error for more than one request, a silent broadcast for one."
            ),
            refactor=(
                "A second runner captured for (DECODE, 1), or a key of mode, width and batch size with a "
                "check of the mode."
            ),
            verdicts={
                "A": (HARD, reason),
                "B": (HARD, reason),
                "C": (HARD, "a verify of width one needs graphs captured at that width"),
            },
            formula="graph inputs: bs * num_draft_tokens; key: bs; logits rows: bs * num_draft_tokens",
            condition="CUDA graph enabled",
            fields=sorted({universe.field_name(a) for a in bound}),
            weight=9,
        )

    def _buffers(self, universe: Universe, graphs: Graphs) -> Iterator[Finding]:
        runners = graphs.target
        ids = {fn.id for fn in runners}
        sizes = universe.fields("cuda_graph", "sizes")
        sized = [a for a in universe.written(sizes) if a.function in ids and a.how == "assign"]
        buffers = [fn for fn in universe.of_class("cuda_graph", "buffers") if fn.id in universe.facts]
        makers = [fn for fn in buffers if not fn.per_step or fn.at_start]
        if not sized:
            return
        widths = universe.fields("cuda_graph", "width")
        sized = [a for a in sized if _mentions(a, widths)] or sized
        readers = [a for a in universe.read({"buffers", *sizes}) if a.function in ids]
        yield Finding(
            kind=self.kind,
            title="Graph buffers are sized for the draft's width",
            producers=sites(sized, writes_of, 5) + [of(fn, "makes the graph's input buffers", 5) for fn in makers],
            consumers=sites([a for a in readers if graphs.captures(universe.fn(a))], reads_of, 5)
            + sites(readers, reads_of, 2),
            binding_time="process start",
            why="Buffers hold max_bs times the draft's width; one token a request needs less.",
            refactor="Share the buffers between the runners of both widths.",
            verdicts=dict.fromkeys("ABC", (NONE, "sized for the wider step")),
            formula="inputs: max_bs * num_draft_tokens; logits: (max_bs * num_draft_tokens, vocabulary)",
        )

    def _recapture(self, universe: Universe, graphs: Graphs) -> Iterator[Finding]:
        """A runner's step function that changes the captured hidden mode and captures again."""
        runners = graphs.target
        fields = universe.fields("hidden_capture")
        ids = {fn.id for fn in runners}
        for fn in runners:
            facts = universe.facts.get(fn.id)
            if facts is None or not fn.per_step:
                continue
            changed = [a for a in facts.accesses if a.write and a.field in fields and a.owner == "self"]
            again = [
                c
                for c in facts.calls
                if c.owner == "self" and any(t.id in ids and graphs.captures(t) for t in targets(universe, c))
            ]
            if not changed or not again or graphs.captures(fn):
                continue
            asked = [a for a in facts.accesses if not a.write and a.field in fields]
            captured = [a for a in universe.written(fields) if a.function in ids and a.function != fn.id]
            spec = [a for a in universe.written(fields) if universe.fn(a).side == WORKER and universe.fn(a).per_step]
            spec_input = [a for a in universe.written(fields) if a.how == "keyword" and a.function in ids]
            reason = "a step that asks for another hidden mode captures every graph anew, while requests wait"
            yield Finding(
                kind=self.kind,
                title="A change of the hidden-state mode captures the graphs anew",
                producers=sites(captured, writes_of, 5) + sites(spec_input, writes_of, 5) + sites(spec, writes_of, 2),
                consumers=sites(asked, reads_of, 6)
                + sites(again, "captures again", 6)
                + [of(c, "may capture before it replays", 5, call_line(universe, c, fn)) for c in callers(universe, fn)]
                + sites([a for a in universe.read(fields) if a.function in ids and a.function != fn.id], reads_of, 3),
                binding_time="per step",
                why=(
                    "Graphs are captured with the hidden-state mode of verify. A plain step asks for "
                    "none: where the runner does not take that as covered it captures all sizes "
                    "again, and once more at the next on step."
                ),
                refactor="Ask for the captured mode in off steps, or keep graphs by mode.",
                verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "verify asks for the captured mode")},
                condition="CUDA graph enabled",
                fields=sorted({universe.field_name(a) for a in changed}),
                weight=3,
            )
            return

    def _drafts(self, universe: Universe, graphs: Graphs) -> Iterator[Finding]:
        runners = graphs.draft
        ids = {fn.id for fn in runners}
        widths = (
            universe.fields("cuda_graph", "width")
            | universe.fields("cuda_graph", "sizes")
            | universe.vocabulary.spec.widths
        )
        bound = [a for a in universe.written(widths) if a.function in ids and universe.fn(a).at_start]
        if not bound:
            return
        reads = [a for a in universe.read(widths) if a.function in ids and universe.fn(a).per_step]
        users = graphs.users(runners)
        makers = [c for fn in runners if fn.name == "__init__" for c in callers(universe, fn)]
        reason = (
            "the draft's own graphs take topk, or num_draft_tokens, tokens a request: a one-token extend "
            "runs eagerly or padded"
        )
        yield Finding(
            kind=self.kind,
            title="The draft's graphs are captured for drafting and extending at fixed widths",
            producers=sites(bound, writes_of, 5) + [of(c, "captures the draft's graphs", 4) for c in makers],
            consumers=sites(reads, reads_of, 4) + [of(fn, "replays a draft graph", 4, line) for fn, line in users],
            binding_time="process start",
            why=(
                "Draft graphs hold topk tokens a request, draft-extend graphs the whole width of a "
                "verify. An off step that extends the draft by one token has no graph of its width."
            ),
            refactor="Extend with padding to the captured width, or capture an extend of one token.",
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            formula="draft: bs * topk; draft-extend: bs * num_draft_tokens (or num_steps + 1)",
            condition="CUDA graph enabled",
            fields=sorted({universe.field_name(a) for a in bound}),
            weight=3,
        )

    def _sizes(self, universe: Universe) -> Iterator[Finding]:
        """Batch sizes to capture that the configuration chooses by the algorithm."""
        names = universe.fields("cuda_graph", "sizes")
        chosen = [a for a in universe.written(names) if a.regime is not None and universe.is_args(universe.fn(a))]
        makers = {
            last_name(p.func)
            for a in universe.written(names)
            if universe.is_args(universe.fn(a)) and a.value is not None
            for p in s.descend(a.value)
            if isinstance(p, s.Call)
        }
        branches = [
            b
            for b in universe.branches
            if b.leaves is None and universe.is_args(universe.fn(b)) and universe.fn(b).name in makers
        ]
        reads = [a for a in universe.read(names) if universe.fn(a).at_start and not universe.is_args(universe.fn(a))]
        if not (chosen or branches) or not reads:
            return
        reason = "off steps at large batches may lie beyond the sizes captured for speculation, and run without a graph"
        yield Finding(
            kind=self.kind,
            title="Captured batch sizes are chosen for speculation",
            producers=sites(chosen, writes_of, 5) + sites(branches, lambda b: f"decides by {show(b.test)}", 5),
            consumers=sites(reads, reads_of, 4),
            binding_time="process start",
            why=(
                "With an algorithm fewer and smaller batch sizes are captured; turning speculation off "
                "pays at the large ones."
            ),
            refactor="Choose the sizes of plain graphs apart from those of verify.",
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            condition="CUDA graph enabled",
            weight=2,
        )


def _fills(fn: Fn) -> bool:
    return any(p.name != "self" for p in fn.params[1:2])


def _mentions(access: Access, names: frozenset[str]) -> bool:
    value = access.value
    return value is not None and any(isinstance(p, s.Attr) and p.attr in names for p in s.descend(value))


def _asked_for_sizes(universe: Universe, fn: Fn, ids: set[str]) -> bool:
    """Whether a plain function is called by the runners' constructors and returns the batch sizes."""
    if fn.cls is not None or not universe.facts[fn.id].returns:
        return False
    called_by = [c for c in universe.callers.get(fn.id, ()) if c in ids]
    sizes = universe.fields("cuda_graph", "sizes")
    return bool(called_by) and any(a.field in sizes for a in universe.facts[fn.id].accesses)
