"""A hand-made index of a small engine of our own, for the report's tests.

The engine's text is below; ``ast`` gives functions and lines, and calls are joined by bare name, which is enough
to have a realistic shape (an event loop, two workers, graphs, a pool) without running the real analysis.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator

from sgltrace.insight.observed import ContractEvidence, Crash, Observed, PointEvidence, Run, Shape, Step
from sgltrace.model import (
    Access,
    CallEdge,
    CallSite,
    ContractField,
    CouplingPoint,
    Field,
    Function,
    Guard,
    Index,
    OffStep,
    Place,
    SkippedFile,
    Source,
    Tensor,
    Unresolved,
    Verdict,
    Worker,
)

SRT = "sglang/srt"

FILES: dict[str, str] = {
    f"{SRT}/managers/scheduler.py": '''
class Scheduler:
    """Keeps the running batch and decides what runs next."""

    def __init__(self, server_args):
        self.spec_algorithm = server_args.speculative_algorithm
        self.draft_worker = self.launch_draft_worker()
        self.running_batch = None

    def launch_draft_worker(self):
        return EAGLEWorkerV2() if self.server_args.overlap else EAGLEWorker()

    def event_loop_normal(self):
        while True:
            batch = self.get_next_batch_to_run()
            if batch:
                result = self.run_batch(batch)
                self.process_batch_result(batch, result)

    def event_loop_overlap(self):
        while True:
            batch = self.get_next_batch_to_run()
            if batch:
                self.run_batch(batch)
            if self.last_batch:
                self.process_batch_result(self.last_batch, self.result_queue.popleft())

    def get_next_batch_to_run(self):
        self.running_batch.merge_batch(self.last_batch)
        return self.update_running_batch(self.running_batch)

    def update_running_batch(self, batch):
        batch.filter_batch()
        if batch.is_empty():
            return None
        batch.prepare_for_decode()
        return batch

    def run_batch(self, batch):
        if self.spec_algorithm.is_none():
            return self.tp_worker.forward_batch_plain(batch)
        # The speculative worker is taken for granted from here on.
        result = self.draft_worker.forward_batch_generation(batch)
        batch.spec_info = result.next_draft_input
        return result

    def process_batch_result(self, batch, result):
        stride = self.draft_worker.num_draft_tokens
        for i, req in enumerate(batch.reqs):
            tokens = result.next_token_ids[i * stride : i * stride + result.accept_lens[i]]
            req.output_ids.extend(tokens)
        self.log_decode_stats(batch)

    def log_decode_stats(self, batch):
        self.metrics.observe(batch.accepted / batch.spec_forward_ct)
''',
    f"{SRT}/managers/schedule_batch.py": '''
class ScheduleBatch:
    def merge_batch(self, other):
        if self.spec_info:
            self.spec_info.merge(other.spec_info)

    def filter_batch(self):
        keep = [i for i, req in enumerate(self.reqs) if not req.finished()]
        if self.spec_info:
            self.spec_info.keep_rows(keep)

    def is_empty(self):
        return not self.reqs

    def prepare_for_decode(self):
        """Gives every request a slot for its next token."""
        self.forward_mode = "DECODE"
        if not self.spec_algorithm.is_none():
            return
        self.input_ids = self.output_ids
        self.out_cache_loc = alloc_for_decode(self, 1)
        self.seq_lens = self.seq_lens + 1
''',
    f"{SRT}/mem_cache/allocator.py": '''
def alloc_for_decode(batch, tokens_per_req):
    """(bs * tokens_per_req,) int64 slots."""
    return batch.allocator.alloc_slots(len(batch.reqs) * tokens_per_req)


class SlotAllocator:
    def alloc_slots(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def free_slots(self, slots):
        self.free.extend(slots)
''',
    f"{SRT}/speculative/eagle_worker.py": """
class EAGLEWorker:
    def forward_batch_generation(self, batch):
        spec_info = self.draft(batch)
        result = self.verify(batch, spec_info)
        self.forward_draft_extend_after_decode(batch)
        return result

    def draft(self, batch):
        batch.out_cache_loc = batch.allocator.alloc_slots(batch.bs * self.topk * self.num_steps)
        for step in range(self.num_steps):
            self.draft_runner.forward_draft(batch, step)
        return build_tree(batch, self.topk)

    def verify(self, batch, spec_info):
        batch.spec_info = spec_info
        logits = self.target_worker.forward_batch_plain(batch)
        return accept_tokens(logits, spec_info)

    def forward_draft_extend_after_decode(self, batch):
        self.draft_runner.forward_draft(batch, -1)
""",
    f"{SRT}/speculative/eagle_worker_v2.py": """
class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        batch.spec_info.prepare_for_v2_draft(batch)
        tree = self.draft_tree(batch)
        result = self.verify_v2(batch, tree)
        self.draft_extend_v2(batch, result)
        return result

    def draft_tree(self, batch):
        for step in range(self.num_steps):
            self.draft_runner.forward_draft(batch, step)
        return build_tree(batch, 1)

    def verify_v2(self, batch, tree):
        logits = self.target_worker.forward_batch_plain(batch)
        predict, accept_lens = accept_tokens(logits, tree)
        return predict, accept_lens

    def draft_extend_v2(self, batch, result):
        select_index = result.accept_lens - 1
        self.draft_runner.forward_draft(batch, select_index)
""",
    f"{SRT}/speculative/eagle_info.py": """
class EagleDraftInput:
    def keep_rows(self, keep):
        self.topk_p = self.topk_p[keep]
        self.topk_index = self.topk_index[keep]
        self.hidden_states = self.hidden_states[keep]

    def merge(self, other):
        self.topk_p = cat(self.topk_p, other.topk_p)

    def prepare_for_v2_draft(self, batch):
        batch.out_cache_loc = batch.req_to_token[batch.rows, : self.topk * self.num_steps]


def build_tree(batch, topk):
    return verify_tree_greedy(batch, topk)


def verify_tree_greedy(batch, topk):
    return [batch] * topk


def accept_tokens(logits, tree):
    accept_lens = verify_tree_greedy(logits, tree)
    return logits.argmax(-1), accept_lens
""",
    f"{SRT}/model_executor/model_runner.py": """
class TpModelWorker:
    def forward_batch_plain(self, batch):
        return self.model_runner.forward(batch)


class ModelRunner:
    def init_device_graphs(self):
        self.graph_runner = CudaGraphRunner(self)

    def forward(self, batch):
        if self.graph_runner.can_run(batch):
            return self.graph_runner.replay(batch)
        self.attn_backend.init_forward_metadata(batch)
        return self.model(batch)


class DraftRunner:
    def forward_draft(self, batch, step):
        return self.draft_graph_runner.replay_draft(batch)


class CudaGraphRunner:
    def __init__(self, model_runner):
        self.num_tokens_per_bs = model_runner.server_args.speculative_num_draft_tokens
        self.capture()

    def capture(self):
        for bs in self.capture_bs:
            self.capture_one_batch_size(bs)

    def capture_one_batch_size(self, bs):
        self.input_ids = zeros(bs * self.num_tokens_per_bs)

    def can_run(self, batch):
        return batch.bs <= self.max_bs

    def replay(self, batch):
        self.input_ids[: batch.input_ids.numel()].copy_(batch.input_ids)
        self.attn_backend.init_forward_metadata_replay(batch)
        return self.graph.launch()

    def replay_draft(self, batch):
        return self.graph.launch()
""",
    f"{SRT}/layers/attention/backend.py": """
class AttentionBackend:
    def init_forward_metadata(self, batch):
        if batch.spec_info is not None:
            self.kv_indptr = batch.spec_info.kv_indptr
        else:
            self.kv_indptr = batch.seq_lens.cumsum(0)

    def init_forward_metadata_replay(self, batch):
        self.init_forward_metadata(batch)
""",
}

COMPONENTS = {
    "managers/scheduler.py": "scheduler",
    "managers/schedule_batch.py": "batch",
    "mem_cache/": "memory pool",
    "speculative/eagle_worker": "speculative worker",
    "speculative/eagle_info": "draft state",
    "model_executor/": "model runner",
    "layers/attention/": "attention",
    "filler": "model",
}


def filler(modules: int, functions: int) -> dict[str, str]:
    """Modules of many small functions that call one another, to have a graph of some size."""
    files = {}
    for m in range(modules):
        lines = ["", "class Layer:"]
        for f in range(functions):
            lines += [
                f"    def filler_{m}_{f}(self, x):",
                f'        """Layer {m}, step {f}: (bs, hidden_size)."""',
                f"        if x > {f}:  # a guard",
                f"            x = self.filler_{m}_{f + 1}(x) * {f}.5",
                f"        return self.filler_{(m + 1) % modules}_{f}(x)" if f % 5 == 0 else "        return x",
                "",
            ]
        files[f"{SRT}/models/filler_{m:02d}.py"] = "\n".join(lines)
    return files


def sample_files(modules: int = 10, functions: int = 30) -> dict[str, bytes]:
    """The engine's files, as a source tree holds them."""
    texts = {**FILES, **filler(modules, functions)}
    return {path: text.encode() for path, text in texts.items()}


class DictSource:
    """A source tree out of a dictionary."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, relative_path: str) -> bytes | None:
        return self.files.get(relative_path)


def module_of(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def component_of(path: str) -> str:
    return next((name for part, name in COMPONENTS.items() if part in path), "")


def functions_of(path: str, tree: ast.AST, prefix: str = "") -> Iterator[tuple[Function, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions_of(path, node, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found = Function(
                id=f"{module_of(path)}:{prefix}{node.name}",
                file=path,
                line=node.lineno,
                end_line=node.end_lineno or node.lineno,
                phase=[],
                paths=[],
                component=component_of(path),
            )
            yield found, node
            yield from functions_of(path, node, f"{prefix}{node.name}.<locals>.")


def sites_of(node: ast.AST, guards: tuple[Guard, ...] = ()) -> Iterator[tuple[str, int, tuple[Guard, ...]]]:
    """Called names, with line and enclosing conditions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(child, ast.If):
            text = ast.unparse(child.test)
            yield from sites_of(child.test, guards)
            for holds, body in ((True, child.body), (False, child.orelse)):
                inner = (*guards, Guard(text=text, holds=holds, line=child.lineno))
                for statement in body:
                    yield from sites_of(ast.Module([statement], []), inner)
            continue
        if isinstance(child, ast.Call):
            name = child.func.attr if isinstance(child.func, ast.Attribute) else getattr(child.func, "id", "")
            yield name, child.lineno, guards
        yield from sites_of(child, guards)


def index_of(
    files: dict[str, bytes], entry_points: dict[str, str | None], loops: dict[str, str], most: int = 1
) -> Index:
    """Functions and calls of ``files``, joined by bare name where at most ``most`` functions have it."""
    nodes: dict[str, tuple[Function, ast.AST]] = {}
    for path, text in sorted(files.items()):
        for function, node in functions_of(path, ast.parse(text)):
            nodes.setdefault(function.id, (function, node))
    by_name: dict[str, list[str]] = {}
    for identifier in nodes:
        by_name.setdefault(identifier.split(":")[1].rsplit(".", 1)[-1], []).append(identifier)
    edges: dict[tuple[str, str], list[CallSite]] = {}
    unresolved = []
    for identifier, (_, node) in nodes.items():
        for name, line, guards in sites_of(node):
            targets = by_name.get(name, [])
            if name == "forward_batch_generation":
                targets = [target for target in entry_points.values() if target and target in nodes]
            elif len(targets) > most:
                unresolved.append(
                    Unresolved(caller=identifier, line=line, expression=f"{name}(...)", why="several have this name")
                )
                continue
            for target in targets:
                edges.setdefault((identifier, target), []).append(CallSite(line=line, guards=list(guards)))
            if not targets:
                unresolved.append(
                    Unresolved(
                        caller=identifier, line=line, expression=f"self.{name}(...)", why="type of the receiver unknown"
                    )
                )
    after: dict[str, list[str]] = {}
    for caller, callee in edges:
        after.setdefault(caller, []).append(callee)
    other = {"v1": entry_points.get("v2"), "v2": entry_points.get("v1")}
    for path, loop in loops.items():
        for identifier in reach(after, [loop], {other[path] or ""}):
            mark(nodes[identifier][0], "every step", path)
    for identifier, (function, _) in nodes.items():
        if identifier.endswith("__init__") or "launch" in identifier or "init_" in identifier:
            mark(function, "process start")
        if "capture" in identifier:
            mark(function, "graph capture")
    return Index(
        tool="sample",
        source=Source(name="sglang", version="0.0.1", root="sample", kind="folder", requested="sample"),
        entry_points=entry_points,
        event_loops=sorted(set(loops.values())),
        functions=[function for _, (function, _) in sorted(nodes.items())],
        calls=[
            CallEdge(caller=a, callee=b, kind="method", confidence=1.0, sites=sorted(sites, key=lambda s: s.line))
            for (a, b), sites in sorted(edges.items())
        ],
        unresolved=sorted(unresolved, key=lambda u: (u.caller, u.line, u.expression)),
        fields=[],
    )


def reach(after: dict[str, list[str]], start: list[str], closed: set[str]) -> list[str]:
    seen, queue = set(start), deque(start)
    while queue:
        for callee in after.get(queue.popleft(), []):
            if callee not in seen and callee not in closed:
                seen.add(callee)
                queue.append(callee)
    return sorted(seen)


def mark(function: Function, phase: str, path: str | None = None) -> None:
    if phase not in function.phase:
        function.phase.append(phase)
    if path and path not in function.paths:
        function.paths.append(path)


S = "sglang.srt."
V1 = S + "speculative.eagle_worker:EAGLEWorker.forward_batch_generation"
V2 = S + "speculative.eagle_worker_v2:EAGLEWorkerV2.forward_batch_generation"
PREPARE = S + "managers.schedule_batch:ScheduleBatch.prepare_for_decode"
RUN_BATCH = S + "managers.scheduler:Scheduler.run_batch"
RESULT = S + "managers.scheduler:Scheduler.process_batch_result"
REPLAY = S + "model_executor.model_runner:CudaGraphRunner.replay"
GRAPH_INIT = S + "model_executor.model_runner:CudaGraphRunner.__init__"
METADATA = S + "layers.attention.backend:AttentionBackend.init_forward_metadata"
KEEP_ROWS = S + "speculative.eagle_info:EagleDraftInput.keep_rows"
FILTER = S + "managers.schedule_batch:ScheduleBatch.filter_batch"
VERIFY = S + "speculative.eagle_worker_v2:EAGLEWorkerV2.verify_v2"
ACCEPT = S + "speculative.eagle_info:accept_tokens"
STATS = S + "managers.scheduler:Scheduler.log_decode_stats"


def sample_index(modules: int = 10, functions: int = 30) -> Index:
    """The whole sample: the engine's graph, and coupling points, fields, tensors and a contract written by hand."""
    files = sample_files(modules, functions)
    scheduler = files[f"{SRT}/managers/scheduler.py"]
    files[f"{SRT}/managers/scheduler.py"] = scheduler
    index = index_of(
        files,
        {"v1": V1, "v2": V2},
        {
            "v1": S + "managers.scheduler:Scheduler.event_loop_normal",
            "v2": S + "managers.scheduler:Scheduler.event_loop_overlap",
        },
    )
    for function in index.functions:
        if "filler" in function.id and int(function.id.rsplit("_", 1)[1]) < 12:
            mark(function, "every step", "v1")
            mark(function, "every step", "v2")
    start = {function.id: function.line for function in index.functions}

    def at(function: str, offset: int, what: str) -> Place:
        return Place(function=function, line=start[function] + offset, what=what)

    index.workers = [
        Worker(cls=V1.rsplit(".", 1)[0], file=f"{SRT}/speculative/eagle_worker.py", line=2, path="v1",
               algorithms=["EAGLE", "EAGLE3"], overlap=False),
        Worker(cls=V2.rsplit(".", 1)[0], file=f"{SRT}/speculative/eagle_worker_v2.py", line=2, path="v2",
               algorithms=["EAGLE", "EAGLE3"], overlap=True),
    ]  # fmt: skip
    index.skipped = [SkippedFile(file=f"{SRT}/broken.py", why="line 3: expected an indented block")]
    index.notes = ["The registry of models could not be read: models are reached by their declared base only."]
    index.coupling_points = points(at)
    index.fields = fields(start)
    index.tensors = tensors(at)
    index.contract = contract(at)
    index.off_steps = [
        OffStep(
            path="v1", function=V1, line=start[V1], what="a verify of width one", gates=[at(RUN_BATCH, 1, "is_none")]
        )
    ]
    return index


def verdicts(**given: str) -> list[Verdict]:
    """``v1A="hard: reason"`` and so on."""
    found = []
    for key, text in sorted(given.items()):
        severity, reason = text.split(": ", 1)
        found.append(Verdict(path=key[:2], design=key[2], severity=severity, reason=reason))
    return found


def points(at) -> list[CouplingPoint]:
    made = [
        CouplingPoint(
            id="kv-alloc-prepare-for-decode",
            title="prepare_for_decode returns before it allocates a slot",
            kind="kv_alloc",
            severity={"v1": "hard", "v2": "hard"},
            designs=["A", "B"],
            binding_time="every step",
            condition="not self.spec_algorithm.is_none()",
            producers=[at(PREPARE, 3, "returns early under speculation")],
            consumers=[at(PREPARE, 6, "allocates the slot"), at(REPLAY, 1, "copies input_ids")],
            formula="bs",
            why_it_blocks="An off step finds no KV slot for the next token: out_cache_loc is that of the step before.",
            refactor="Let the early return depend on the batch, not on the process.",
            verdicts=verdicts(
                v1A="hard: out_cache_loc has no writer on the off step",
                v1B="hard: out_cache_loc has no writer on the off step",
                v1C="none: the degenerate verify allocates its own slots",
                v2A="hard: out_cache_loc has no writer on the off step",
                v2B="hard: out_cache_loc has no writer on the off step",
                v2C="none: slots are gathered by prepare_for_v2_draft",
            ),
            fields=["ScheduleBatch.out_cache_loc", "ScheduleBatch.input_ids"],
            related=["graph-shape-verify"],
            components=["batch", "model runner"],
            rule="kv_allocation",
            rank=1,
        ),
        CouplingPoint(
            id="result-stride",
            title="next_token_ids is read with a stride of num_draft_tokens",
            kind="result_format",
            severity={"v1": None, "v2": "hard"},
            designs=["A", "B", "C"],
            binding_time="every step",
            condition="always",
            producers=[at(VERIFY, 3, "returns predict, (bs * num_draft_tokens,)")],
            consumers=[at(RESULT, 3, "slices with the worker's stride")],
            formula="bs*num_draft_tokens",
            why_it_blocks="A (bs,) result is cut wrongly for every request but the first.",
            refactor="Carry the stride on the result.",
            verdicts=verdicts(
                v2A="hard: (bs,) is read with stride num_draft_tokens",
                v2B="hard: (bs,) is read with stride num_draft_tokens",
                v2C="hard: the stride is read from the worker when the result is processed",
            ),
            fields=["GenerationBatchResult.next_token_ids"],
            related=["metrics-accept"],
            components=["speculative worker", "scheduler"],
            rule="result_format",
            rank=2,
        ),
        CouplingPoint(
            id="graph-shape-verify",
            title="target graphs are captured for num_draft_tokens per request",
            kind="cuda_graph",
            severity={"v1": "hard", "v2": "hard"},
            designs=["A", "B"],
            binding_time="graph capture",
            condition="always",
            producers=[at(GRAPH_INIT, 1, "fixes num_tokens_per_bs")],
            consumers=[at(REPLAY, 1, "copies (bs,) into (bs * num_draft_tokens,)")],
            formula="max_bs*num_draft_tokens",
            why_it_blocks="A plain decode batch passes can_run and is replayed on the verify graph.",
            refactor="Capture a second set of graphs with one token per request.",
            verdicts=verdicts(
                v1A="hard: replay copies (bs,) into a buffer of bs*num_draft_tokens",
                v1B="hard: replay copies (bs,) into a buffer of bs*num_draft_tokens",
                v1C="soft: runs without a graph unless width one is captured",
                v2A="hard: replay copies (bs,) into a buffer of bs*num_draft_tokens",
                v2B="hard: replay copies (bs,) into a buffer of bs*num_draft_tokens",
                v2C="soft: runs without a graph unless width one is captured",
            ),
            related=["kv-alloc-prepare-for-decode"],
            components=["model runner"],
            rule="cuda_graph",
            rank=3,
        ),
        CouplingPoint(
            id="draft-state-stale",
            title="topk_p, topk_index and hidden_states must be valid at the next on step",
            kind="draft_state",
            severity={"v1": "hard", "v2": "hard"},
            designs=["A", "B", "C"],
            binding_time="every step",
            condition="always",
            producers=[at(KEEP_ROWS, 1, "draft state of the last on step")],
            consumers=[at(FILTER, 3, "keeps rows")],
            formula="(bs, topk)",
            why_it_blocks="An off step leaves them stale.",
            refactor="Extend the draft model over the tokens of the off steps before the next draft.",
            verdicts=verdicts(
                v1A="hard: one writer, which an off step skips", v2A="hard: one writer, which an off step skips"
            ),
            fields=["EagleDraftInput.topk_p"],
            components=["draft state", "batch"],
            rule="draft_state",
            rank=4,
        ),
        CouplingPoint(
            id="metrics-accept",
            title="accept length divides by the number of speculative forwards",
            kind="metrics",
            severity={"v1": "soft", "v2": "soft"},
            designs=["A", "B", "C"],
            binding_time="every step",
            condition="always",
            producers=[at(ACCEPT, 1, "counts accepted tokens")],
            consumers=[at(STATS, 1, "divides by spec_forward_ct")],
            formula="accepted/spec_forward_ct",
            why_it_blocks="An interval without a speculative forward divides by zero.",
            refactor="Skip the rate where nothing was drafted.",
            verdicts=verdicts(v1A="soft: only logging", v2A="soft: only logging", v2B="soft: only logging"),
            components=["draft state", "scheduler"],
            rule="metrics",
            rank=5,
        ),
        CouplingPoint(
            id="metadata-buffers",
            title="kv_indptr is sized for the draft",
            kind="attn_metadata",
            severity={"v1": "none", "v2": "none"},
            designs=[],
            binding_time="process start",
            condition="always",
            producers=[at(GRAPH_INIT, 1, "sizes buffers")],
            consumers=[at(METADATA, 2, "takes kv_indptr from spec_info")],
            formula="max_bs*topk + 1",
            why_it_blocks="",
            refactor="Nothing: the buffer is large enough.",
            components=["model runner", "attention"],
            rule="attention_metadata",
            rank=6,
        ),
    ]
    return made


def fields(start: dict[str, int]) -> list[Field]:
    def access(function: str, offset: int, expression: str, kind: str, shape: str | None = None) -> Access:
        return Access(
            function=function,
            line=start[function] + offset,
            phase=["every step"],
            paths=["v1", "v2"],
            guards=[Guard(text="self.spec_algorithm.is_none()", holds=True, line=start[function])],
            expression=expression,
            shape=shape,
            kind=kind,
        )

    return [
        Field(
            cls="GenerationBatchResult",
            field="next_token_ids",
            role="result",
            writes=[access(VERIFY, 1, "predict", "assign", "(bs*num_draft_tokens,)")],
            reads=[access(RESULT, 3, "result.next_token_ids", "read")],
        ),
        Field(
            cls="EagleDraftInput",
            field="topk_p",
            role="draft input",
            writes=[access(KEEP_ROWS, 1, "self.topk_p[keep]", "assign", "(bs, topk)")],
            reads=[access(KEEP_ROWS, 1, "self.topk_p[keep]", "read")],
        ),
        Field(
            cls="ScheduleBatch",
            field="out_cache_loc",
            role="scheduler batch",
            writes=[access(PREPARE, 6, "alloc_for_decode(self, 1)", "assign", "(bs,)")],
            reads=[access(REPLAY, 1, "batch.input_ids", "read")],
        ),
        Field(
            cls="ScheduleBatch",
            field="spec_info",
            role="scheduler batch",
            writes=[access(RUN_BATCH, 5, "result.next_draft_input", "assign")],
            reads=[access(FILTER, 2, "self.spec_info", "read"), access(METADATA, 1, "batch.spec_info", "read")],
        ),
    ]


def tensors(at) -> list[Tensor]:
    def tensor(path: str, stage: str, name: str, shape: str | None, producer: Place, *consumers: Place) -> Tensor:
        return Tensor(
            path=path, stage=stage, name=name, shape=shape, dtype="int64", producer=producer, consumers=list(consumers),
            why_unknown=None if shape else "comes out of a kernel",
        )  # fmt: skip

    draft_v1 = S + "speculative.eagle_worker:EAGLEWorker.draft"
    draft_v2 = S + "speculative.eagle_worker_v2:EAGLEWorkerV2.draft_tree"
    forward_draft = S + "model_executor.model_runner:DraftRunner.forward_draft"
    return [
        tensor("v1", "draft", "out_cache_loc", "(bs*topk*num_steps,)", at(draft_v1, 1, ""), at(forward_draft, 1, "")),
        tensor("v1", "verify", "logits", "(bs*num_draft_tokens, vocab_size)", at(REPLAY, 3, ""), at(ACCEPT, 1, "")),
        tensor("v2", "draft", "draft_tokens", "(bs, num_draft_tokens - 1)", at(draft_v2, 3, ""), at(VERIFY, 1, "")),
        tensor("v2", "verify", "custom_mask", None, at(draft_v2, 3, ""), at(METADATA, 2, "")),
        tensor("v2", "verify", "next_token_ids", "(bs*num_draft_tokens,)", at(VERIFY, 2, ""), at(RESULT, 3, "")),
        tensor("v2", "verify", "accept_lens", "(bs,)", at(VERIFY, 2, ""), at(RESULT, 3, "")),
        tensor("v2", "prepare", "slots", "(Max(num_draft_tokens, num_steps*topk)*bs,)", at(PREPARE, 6, ""),
            at(REPLAY, 1, "")),
    ]  # fmt: skip


def contract(at) -> list[ContractField]:
    def row(field: str, shape: str | None, requirement: str, value: str, why: str) -> ContractField:
        return ContractField(
            path="v2", field=field, shape=shape, dtype="int32", stride=None, requirement=requirement,
            off_step_value=value, writers=[at(VERIFY, 2, "")], readers=[at(RESULT, 3, "")], why=why,
        )  # fmt: skip

    return [
        row("result.accept_lens", "(bs,)", "required", "ones(bs)", "each request takes one token"),
        row("result.next_token_ids", "(bs*num_draft_tokens,)", "required",
            "token at i*num_draft_tokens, filler elsewhere",
            "sliced with the worker's stride"),
        row("batch.spec_info.kv_indptr", None, "must stay unset", "None", "else the draft's metadata is read"),
    ]  # fmt: skip


def sample_runs() -> list[Run]:
    """One run of forty steps on two ranks that ends in a crash, as the join of a trace makes it."""
    steps = []
    for number in range(40):
        batch = 1 + number % 8
        for rank in (0, 1):
            steps.append(
                Step(
                    number=number,
                    rank=rank,
                    mode="extend" if number == 0 else "decode",
                    how="eager" if number == 0 else "replay",
                    start_ms=12.5 * number + rank,
                    period_ms=9.0 + number % 5 + rank * 0.5,
                    batch=batch,
                    padded=None if number == 0 else 1 << (batch - 1).bit_length(),
                    accept_lens=None if number == 0 else [1 + (number + i) % 4 for i in range(batch)],
                    allocated=64 * batch + 8 * number,
                    committed=64 * batch + 6 * number,
                )
            )
    ids = Observed(
        name="next_token_ids",
        function=VERIFY,
        line=0,
        path="v2",
        formula="(bs*num_draft_tokens,)",
        verdict="confirmed",
        shapes=[
            Shape(batch=b, shape=[b * 4], dtype="int32", how="replay", count=5, first_step=b, last_step=b + 32)
            for b in (1, 2, 8)
        ],
    )
    stale = Observed(
        name="topk_p",
        function=KEEP_ROWS,
        line=0,
        formula="(bs, topk)",
        verdict="refuted",
        shapes=[Shape(batch=3, shape=[4, 1], dtype="float32", how="eager", count=2, first_step=3, last_step=19)],
    )
    return [
        Run(
            name="h200-eagle3",
            version="0.0.1",
            command="python -m sglang.launch_server --speculative-algorithm EAGLE3",
            path="v2",
            config={"topk": 1, "num_steps": 3, "num_draft_tokens": 4},
            ranks=[0, 1],
            steps=steps,
            tensors=[ids, stale],
            points=[
                PointEvidence(point="result-stride", verdict="confirmed", observed=[ids]),
                PointEvidence(point="draft-state-stale", verdict="refuted", observed=[stale]),
            ],
            contract=[ContractEvidence(path="v2", field="result.next_token_ids", verdict="confirmed", observed=[ids])],
            edges=[(RUN_BATCH, V2, 39), (V2, VERIFY, 39)],
            missing_edges=[(RESULT, PREPARE, 3)],
            crashes=[
                Crash(rank=1, why="killed by signal 9", last_steps=["run_batch bs=7", "verify_v2 bs=7", "replay bs=8"])
            ],
            unattached=["pid 4242: started with -I, which keeps sitecustomize out"],
            notes=["The window of the timeline was closed after 40 steps."],
        )
    ]
