"""Edits of the toy engine, small enough to be indexed by the tests, and run by them."""

from __future__ import annotations

import ast

from ..checks import About, every, found, gone, others_stay, quiet, same
from ..registry import Copy, edit

RELEASE = "toysgl"
PROCESSOR = "managers/scheduler_output_processor_mixin.py"
BATCH = "managers/schedule_batch.py"
RESOLVE = "._resolve_spec_overlap_tokens"
DECODED = ".process_batch_result_decode"
GRAPHS = About(words=("num_tokens_per_bs",), ends=("CudaGraphRunner.replay_prepare",))


# --- couplings removed --------------------------------------------------------------------------------------------


@edit(
    RELEASE,
    "removed",
    every(
        gone("accept counts", About("accept_lens", ends=(RESOLVE,)), "v2", "AB"),
        gone("stride", About("next_token_ids", ends=(RESOLVE,)), "v2", "AB"),
        others_stay(About("accept_lens"), About("next_token_ids"), About("kv_committed_len")),
    ),
)
def toy_counts_default_to_one(copy: Copy) -> None:
    """A result without accept lengths and width has a token a request."""
    copy.replace(
        PROCESSOR,
        (
            "        accept_lens = result.accept_lens.tolist()\n",
            "        accept_lens = [1] * len(batch.reqs) if result.accept_lens is None else result.accept_lens.tolist()\n",
        ),
        (
            "        stride = result.speculative_num_draft_tokens\n",
            "        stride = result.speculative_num_draft_tokens or 1\n",
        ),
    )


@edit(
    RELEASE,
    "removed",
    every(
        gone("verify's graphs", GRAPHS, "v2", "AB"), gone("verify's graphs", GRAPHS, "v1", "AB"), others_stay(GRAPHS)
    ),
)
def toy_second_graph_runner(copy: Copy) -> None:
    """The target captures a second set of graphs, of a token a request, and a plain decode replays those."""
    path = "model_executor/cuda_graph_runner.py"
    copy.replace(
        path,
        (
            "    def __init__(self, model_runner: ModelRunner):\n",
            "    def __init__(self, model_runner: ModelRunner, plain: bool = False):\n",
        ),
        (
            "        self.model_runner = model_runner\n",
            "        self.model_runner = model_runner\n        self.plain = plain\n",
        ),
        (
            "        if model_runner.spec_algorithm.is_eagle():\n",
            "        if model_runner.spec_algorithm.is_eagle() and not plain:\n",
        ),
        (
            "        self.attn_backend.init_cuda_graph_state(self.max_bs, self.max_num_token)\n",
            "        if not plain:\n            # The larger buffers of the verify graphs serve both.\n"
            "            self.attn_backend.init_cuda_graph_state(self.max_bs, self.max_num_token)\n",
        ),
        after="class CudaGraphRunner:",
    )
    copy.replace(
        path,
        (
            "        if not self.model_runner.spec_algorithm.is_eagle():\n",
            "        if self.plain or not self.model_runner.spec_algorithm.is_eagle():\n",
        ),
        after="    def get_spec_info(",
    )
    path = "model_executor/model_runner.py"
    copy.replace(
        path,
        (
            "        self.graph_runner: CudaGraphRunner | None = None\n",
            "        self.graph_runner: CudaGraphRunner | None = None\n        self.plain_graph_runner: CudaGraphRunner | None = None\n",
        ),
        (
            "            self.graph_runner = CudaGraphRunner(self)\n",
            "            self.graph_runner = CudaGraphRunner(self)\n            if not self.spec_algorithm.is_none():\n"
            "                self.plain_graph_runner = CudaGraphRunner(self, plain=True)\n",
        ),
        (
            """        can_run_graph = bool(
            forward_batch.forward_mode.is_cuda_graph()
            and self.graph_runner
            and self.graph_runner.can_run(forward_batch)
        )
        if can_run_graph:
            ret = self.graph_runner.replay(""",
            """        graph_runner = self.graph_runner
        if forward_batch.forward_mode.is_decode() and self.plain_graph_runner:
            graph_runner = self.plain_graph_runner
        can_run_graph = bool(
            forward_batch.forward_mode.is_cuda_graph() and graph_runner and graph_runner.can_run(forward_batch)
        )
        if can_run_graph:
            ret = graph_runner.replay(""",
        ),
    )


# --- couplings added ----------------------------------------------------------------------------------------------


LANE_MARKS = About(words=("lane_marks",), either=(DECODED, ".verify"))


def _lane_marks(copy: Copy, declared: str, used: str) -> None:
    """A list that verify alone puts on the result, and that its processing uses."""
    copy.replace(
        "managers/utils.py",
        ("    next_draft_input: EagleDraftInput", f"    {declared}\n    next_draft_input: EagleDraftInput"),
    )
    copy.replace(
        "speculative/eagle_worker_v2.py",
        (
            "            accept_lens=accept_lens,\n",
            "            accept_lens=accept_lens,\n            lane_marks=[1] * len(batch.seq_lens),\n",
        ),
        after="    def verify(",
    )
    copy.replace(
        PROCESSOR,
        ("        for i, req in enumerate(batch.reqs):\n", used),
        after="    def process_batch_result_decode(",
    )


@edit(RELEASE, "added", found("result field", LANE_MARKS, "v2", "AB", spared="C"))
def toy_result_list(copy: Copy) -> None:
    """A list of the result that verify alone makes, summed wherever a batch speculates on v2."""
    _lane_marks(
        copy,
        "lane_marks: list[int] | None = None",
        "        if batch.is_spec_v2:\n            self.lane_total = sum(result.lane_marks)\n        for i, req in enumerate(batch.reqs):\n",
    )


@edit(RELEASE, "harmless", quiet("result field with a guard", About(words=("lane_marks",))))
def toy_result_list_guarded(copy: Copy) -> None:
    """The same list, summed where there is one."""
    _lane_marks(
        copy,
        "lane_marks: list[int] | None = None",
        "        if (marks := result.lane_marks) is not None:\n            self.lane_total = sum(marks)\n"
        "        for i, req in enumerate(batch.reqs):\n",
    )


@edit(RELEASE, "harmless", quiet("result field with a default", About(words=("lane_marks",))))
def toy_result_list_defaulted(copy: Copy) -> None:
    """The same list, empty where no verify makes one."""
    _lane_marks(
        copy,
        "lane_marks: list[int] = dataclasses.field(default_factory=list)",
        "        self.lane_total = sum(result.lane_marks)\n        for i, req in enumerate(batch.reqs):\n",
    )


@edit(RELEASE, "harmless", quiet("result field behind getattr", About(words=("lane_marks",))))
def toy_result_list_by_getattr(copy: Copy) -> None:
    """The same list, put on the result from outside, and looked up with a default."""
    copy.replace(
        "speculative/eagle_worker_v2.py",
        (
            "        self.draft_worker._draft_extend_for_decode(model_worker_batch, batch_output)\n",
            "        self.draft_worker._draft_extend_for_decode(model_worker_batch, batch_output)\n"
            "        batch_output.lane_marks = [1] * len(model_worker_batch.seq_lens)\n",
        ),
    )
    copy.replace(
        PROCESSOR,
        (
            "        for i, req in enumerate(batch.reqs):\n",
            '        self.lane_total = sum(getattr(result, "lane_marks", ()))\n        for i, req in enumerate(batch.reqs):\n',
        ),
        after="    def process_batch_result_decode(",
    )


LANE_WIDTH = About(words=("lane_width",), either=("ModelRunner.sample",))


@edit(
    RELEASE,
    "added",
    every(
        found("width in a view", LANE_WIDTH, "v2", "AB", spared="C"),
        found("width in a view", LANE_WIDTH, "v1", "AB", spared="C"),
    ),
)
def toy_width_at_start_in_a_view(copy: Copy) -> None:
    """The runner takes its width from the draft tokens at start, and sampling a decode cuts the logits by it."""
    copy.replace(
        "model_executor/model_runner.py",
        (
            "        self.is_draft_worker = is_draft_worker\n",
            "        self.is_draft_worker = is_draft_worker\n"
            "        self.lane_width = server_args.speculative_num_draft_tokens or 1\n",
        ),
        (
            "        return self.sampler(",
            """        if forward_batch.forward_mode.is_decode():
            logits = logits_output.next_token_logits
            logits_output.next_token_logits = logits.view(-1, self.lane_width, logits.shape[-1])[:, 0]
        return self.sampler(""",
        ),
    )


REFUSED = About(some=("without drafts", "NotImplementedError"), either=("TpModelWorker.forward_batch_generation",))


@edit(
    RELEASE,
    "added",
    every(found("refusal", REFUSED, "v2", "AB", spared="C"), found("refusal", REFUSED, "v1", "AB", spared="C")),
)
def toy_refusal_in_the_target_worker(copy: Copy) -> None:
    """The target's worker raises on a decode that verifies nothing while the process speculates."""
    copy.replace(
        "managers/tp_worker.py",
        (
            "        out = self.model_runner.forward(",
            """        speculates = self.server_args.speculative_algorithm is not None
        if speculates and forward_batch.forward_mode.is_decode() and not is_verify:
            raise NotImplementedError("a decode without drafts")
        out = self.model_runner.forward(""",
        ),
    )


TREE_ROWS = About(words=("tree_rows",), either=(DECODED, "EagleVerifyInput.verify"))


def _tree_rows(copy: Copy) -> None:
    copy.replace(
        BATCH,
        (
            "    spec_info: SpecInput | None = None\n",
            "    spec_info: SpecInput | None = None\n    tree_rows: list[int] | None = None\n",
        ),
        after="class ScheduleBatch:",
    )
    copy.replace(
        "speculative/eagle_info.py",
        (
            "        # Only the requests that go on take part in draft-extend.\n",
            "        batch.tree_rows = [self.draft_token_num] * bs\n"
            "        # Only the requests that go on take part in draft-extend.\n",
        ),
    )
    copy.replace(
        PROCESSOR,
        (
            "        for i, req in enumerate(batch.reqs):\n",
            """        if is_spec_v1:
            for req, rows in zip(batch.reqs, batch.tree_rows, strict=True):
                req.rows_run = rows
            batch.tree_rows = None
        for i, req in enumerate(batch.reqs):
""",
        ),
        after="        is_spec_v1 =",
    )


@edit(
    RELEASE,
    "added",
    every(found("field of the batch", TREE_ROWS, "v1", "AB", spared="C"), quiet("field of the batch", TREE_ROWS, "v2")),
)
def toy_batch_rows_of_verify(copy: Copy) -> None:
    """Verify sets a list on the scheduler's batch; processing the result uses it up, on v1 alone."""
    _tree_rows(copy)


@edit(RELEASE, "harmless", quiet("field of the batch with a second writer", TREE_ROWS))
def toy_batch_rows_with_a_second_writer(copy: Copy) -> None:
    """The same list, which preparing any decode sets first: an off step finds a row a request."""
    _tree_rows(copy)
    copy.replace(
        BATCH,
        (
            "        self.forward_mode = ForwardMode.DECODE\n",
            "        self.forward_mode = ForwardMode.DECODE\n        self.tree_rows = [1] * len(self.reqs)\n",
        ),
        after="    def prepare_for_decode(self)",
    )


SLOT_LEASES = About(words=("slot_leases",))


@edit(
    RELEASE,
    "added",
    every(
        found("effect of the worker's own preparation", SLOT_LEASES, "v1", "AB", spared="C"),
        quiet("effect of the scheduler's preparation", SLOT_LEASES, "v2"),
    ),
)
def toy_leases_taken_by_whoever_prepares(copy: Copy) -> None:
    """Preparing a decode takes leases from the allocator, and its result gives them back: on v1 the worker prepares.

    On v2 the scheduler itself prepares every decode, so that an off step takes its leases too.
    """
    copy.replace(
        "mem_cache/allocator.py",
        ("        self.device = device\n", "        self.device = device\n        self.slot_leases = 0\n"),
        after="class BaseTokenToKVPoolAllocator",
    )
    copy.replace(
        BATCH,
        (
            "            draft_input.prepare_for_decode(self)\n",
            "            self.token_to_kv_pool_allocator.slot_leases += len(self.reqs)\n"
            "            draft_input.prepare_for_decode(self)\n",
        ),
        (
            "        self.out_cache_loc = alloc_for_decode(self, token_per_req=1)\n",
            "        self.out_cache_loc = alloc_for_decode(self, token_per_req=1)\n"
            "        self.token_to_kv_pool_allocator.slot_leases += len(self.reqs)\n",
        ),
        after="    def prepare_for_decode(self)",
    )
    copy.replace(
        "speculative/eagle_info.py",
        (
            "        batch.input_ids = self.draft_token\n",
            "        batch.input_ids = self.draft_token\n"
            "        batch.token_to_kv_pool_allocator.slot_leases += batch.batch_size()\n",
        ),
        after="    def prepare_for_verify(",
    )
    copy.replace(
        PROCESSOR,
        (
            "        for i, req in enumerate(batch.reqs):\n",
            """        self.token_to_kv_pool_allocator.slot_leases -= len(batch.reqs)
        assert self.token_to_kv_pool_allocator.slot_leases >= 0, "slots in use that nobody leased"
        for i, req in enumerate(batch.reqs):
""",
        ),
        after="        is_spec_v1 =",
    )


SEALED_LEN = About(words=("sealed_len",), either=("release_kv_cache",))


# On v2 the length is advanced where the result's counts are resolved, which an off step with counts reaches as well.
@edit(RELEASE, "added", found("length of the request", SEALED_LEN, "v1", "AB", spared="C"))
def toy_request_length_of_verify(copy: Copy) -> None:
    """A length of the request that only speculation's code advances, and that releasing the request asserts."""
    copy.replace(
        BATCH,
        ("        self.kv_committed_len = 0\n", "        self.kv_committed_len = 0\n        self.sealed_len = 0\n"),
    )
    copy.replace(
        PROCESSOR,
        (
            "            req.spec_verify_ct += 1\n",
            "            req.spec_verify_ct += 1\n            req.sealed_len += accept_lens[i]\n",
        ),
    )
    copy.replace(
        "speculative/eagle_info.py",
        (
            "            req.spec_verify_ct += 1\n",
            "            req.spec_verify_ct += 1\n            req.sealed_len += num_accept_tokens\n",
        ),
    )
    copy.replace(
        "mem_cache/common.py",
        (
            "    tree_cache.cache_finished_req(req)\n",
            """    if get_global_server_args().speculative_algorithm is not None:
        assert req.sealed_len + 1 == len(req.output_ids), "tokens that no verify sealed"
    tree_cache.cache_finished_req(req)
""",
        ),
        after="def release_kv_cache(",
    )


TAIL_POS = About(words=("tail_pos",), either=("ForwardBatch.init_new", ".prepare_for_decode"))


@edit(
    RELEASE,
    "added",
    found("two meanings", TAIL_POS, "v2", "AB", spared="C"),
)
def toy_field_with_two_meanings(copy: Copy) -> None:
    """The scheduler gives a decode its positions, where it prepares it: with the pending token in a plain process.

    On v2 the lengths leave that token out, so that the same expression names the position before it.
    """
    for after in ("class ScheduleBatch:", "class ModelWorkerBatch:"):
        copy.replace(
            BATCH,
            (
                "    spec_info: SpecInput | None = None\n",
                "    spec_info: SpecInput | None = None\n    tail_pos: torch.Tensor | None = None\n",
            ),
            after=after,
        )
    copy.replace(
        BATCH,
        (
            "        self.seq_lens_sum += len(self.reqs)\n",
            "        self.seq_lens_sum += len(self.reqs)\n        self.tail_pos = self.seq_lens - 1\n",
        ),
        (
            "            spec_info=self.spec_info,\n",
            "            spec_info=self.spec_info,\n            tail_pos=self.tail_pos,\n",
        ),
        after="    def prepare_for_decode(self)",
    )
    copy.replace(
        "speculative/eagle_info_v2.py",
        (
            "        batch.seq_lens_cpu = batch.seq_lens.cpu()\n",
            "        batch.tail_pos = batch.seq_lens - 1\n        batch.seq_lens_cpu = batch.seq_lens.cpu()\n",
        ),
    )
    copy.replace(
        "model_executor/forward_batch_info.py",
        (
            "                ret.positions = clamp_position(batch.seq_lens)\n",
            "                ret.positions = clamp_position(batch.seq_lens) if batch.tail_pos is None else batch.tail_pos\n",
        ),
    )


# --- meaning as it was --------------------------------------------------------------------------------------------

NEW_CLASSES = {
    "EAGLEWorkerV2": "OverlappedTreeWorker",
    "EAGLEWorker": "TreeWorker",
    "EagleDraftInput": "DraftState",
    "GenerationBatchResult": "StepOutcome",
}
NEW_FIELDS = {
    "topk_index": "branch_tokens",
    "bonus_tokens": "newest_token",
    "kv_committed_len": "kv_sealed",
    "next_draft_input": "follow_state",
    "accept_lens": "taken_lens",
}


@edit(RELEASE, "same", same("classes renamed", NEW_CLASSES))
def toy_classes_renamed(copy: Copy) -> None:
    """Both workers, the draft state and the result get other names."""
    copy.rename(NEW_CLASSES)


@edit(RELEASE, "same", same("fields renamed", NEW_FIELDS))
def toy_fields_renamed(copy: Copy) -> None:
    """Five fields of the draft state, the request and the result get other names."""
    copy.rename(NEW_FIELDS)


@edit(RELEASE, "same", same("plain block in a helper"))
def toy_plain_block_in_a_helper(copy: Copy) -> None:
    """What prepares a plain step moves into a method, called under the opposite condition."""
    copy.replace(
        BATCH,
        (
            "        if not self.spec_algorithm.is_none():\n            # The speculative worker prepares the rest itself.\n            return\n",
            "        if self.spec_algorithm.is_none():\n            self._prepare_one_token()\n\n    def _prepare_one_token(self) -> None:\n",
        ),
    )


@edit(RELEASE, "same", same("relay in a module of its own"))
def toy_relay_moved(copy: Copy) -> None:
    """The relay between steps moves into another module, which the old one imports it from."""
    text = copy.read("managers/overlap_utils.py")
    copy.create("managers/step_relay.py", text)
    copy.write(
        "managers/overlap_utils.py",
        '"""Kept for those who import from here."""\n\nfrom sglang.srt.managers.step_relay import FutureIndices, FutureMap\n\n'
        '__all__ = ["FutureIndices", "FutureMap"]\n',
    )


@edit(RELEASE, "same", same("conditions as properties"))
def toy_conditions_as_properties(copy: Copy) -> None:
    """The batch says by properties of its own what its conditions asked of the algorithm."""
    copy.replace(
        BATCH,
        (
            "    def prepare_for_extend(self) -> None:\n",
            """    @property
    def worker_prepares(self) -> bool:
        return self.spec_algorithm is not None and not self.spec_algorithm.is_none()

    def prepare_for_extend(self) -> None:
""",
        ),
    )
    copy.replace(
        BATCH,
        ("        if not self.spec_algorithm.is_none():\n", "        if self.worker_prepares:\n"),
        after="    def prepare_for_decode(self)",
    )
    copy.replace(
        PROCESSOR,
        (
            "        is_spec_v1 = not batch.spec_algorithm.is_none() and not batch.is_spec_v2\n",
            "        is_spec_v1 = batch.worker_prepares and not batch.is_spec_v2\n",
        ),
    )


@edit(RELEASE, "same", same("formatted"))
def toy_formatted(copy: Copy) -> None:
    """Every file as Python's own unparser writes it, without comments."""
    for file in sorted(copy.srt.rglob("*.py")):
        path = str(file.relative_to(copy.srt))
        copy.write(path, ast.unparse(ast.parse(copy.read(path))) + "\n")
