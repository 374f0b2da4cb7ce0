"""Edits of 0.5.9 on the path without overlap (v1)."""

from __future__ import annotations

import textwrap

from ..checks import About, every, fewer, found, gone, others_stay, path_stays, quiet, same
from ..registry import Copy, edit

RELEASE = "0.5.9"
PROCESSOR = "managers/scheduler_output_processor_mixin.py"
DECODED = ".process_batch_result_decode"


# --- couplings removed --------------------------------------------------------------------------------------------


@edit(
    RELEASE,
    "removed",
    every(gone("output tokens", About("output_ids", ends=(DECODED,)), "v1", "AB"), path_stays("v2")),
)
def tokens_appended_where_no_verify_did(copy: Copy) -> None:
    """The scheduler appends the tokens of a v1 result without accept lengths, as in a plain process."""
    copy.replace(
        PROCESSOR,
        (
            "        if batch.spec_algorithm.is_none():\n            next_token_ids = next_token_ids.tolist()\n",
            """        is_plain = batch.spec_algorithm.is_none() or (
            not batch.is_spec_v2
            and result.accept_lens is None
            and result.accept_length_per_req_cpu is None
        )
        if is_plain:
            next_token_ids = next_token_ids.tolist()
""",
        ),
        (
            "            if batch.spec_algorithm.is_none():\n                req.output_ids.append",
            "            if is_plain:\n                req.output_ids.append",
        ),
        (
            "            if req.return_logprob and batch.spec_algorithm.is_none():\n",
            "            if req.return_logprob and is_plain:\n",
        ),
        (
            "                    if batch.spec_algorithm.is_none():\n                        # Normal decode",
            "                    if is_plain:\n                        # Normal decode",
        ),
        after="    def process_batch_result_decode(",
    )


@edit(
    RELEASE,
    "removed",
    every(
        gone(
            "stale positions", About(words=("EagleDraftInput.positions",), ends=("ForwardBatch.init_new",)), "v1", "AB"
        ),
        others_stay(About("positions")),
    ),
)
def positions_of_the_draft_for_the_draft_alone(copy: Copy) -> None:
    """The target's own decode computes its positions, whatever draft state the batch carries."""
    copy.replace(
        "model_executor/forward_batch_info.py",
        (
            "        # Override the positions with diffusion LLM or spec_info\n",
            """        spec_positions = getattr(ret.spec_info, "positions", None)
        if ret.forward_mode.is_decode() and not model_runner.is_draft_worker:
            spec_positions = None

        # Override the positions with diffusion LLM or spec_info
""",
        ),
        (
            """        elif (
            ret.spec_info is not None
            and getattr(ret.spec_info, "positions", None) is not None
        ):
            ret.positions = ret.spec_info.positions
""",
            """        elif spec_positions is not None:
            ret.positions = spec_positions
""",
        ),
        (
            """            if (
                ret.spec_info is not None
                and getattr(ret.spec_info, "positions", None) is not None
            ):
                ret._compute_spec_mrope_positions(model_runner, batch)
""",
            """            if spec_positions is not None:
                ret._compute_spec_mrope_positions(model_runner, batch)
""",
        ),
    )


# What the target's worker reads of its batch and the scheduler's has not, is read there or in what it calls first.
GIVEN_BATCH = About(
    ends=("Scheduler.run_batch",), either=("TpModelWorker.forward_batch_generation", "ForwardBatch.init_new")
)


@edit(
    RELEASE,
    "removed",
    every(
        fewer("class of batch", GIVEN_BATCH, "v1", "A"),
        path_stays("v2"),
    ),
)
def target_worker_takes_either_batch(copy: Copy) -> None:
    """The target's worker makes what it needs out of the scheduler's batch, where it gets that one."""
    copy.replace(
        "managers/tp_worker.py",
        (
            "        if model_worker_batch is not None:\n",
            """        if isinstance(model_worker_batch, ScheduleBatch):
            model_worker_batch = model_worker_batch.get_model_worker_batch()
        if model_worker_batch is not None:
""",
        ),
        after="    def forward_batch_generation(\n        self,\n        model_worker_batch: ModelWorkerBatch,\n        forward_batch",
    )


# --- couplings added ----------------------------------------------------------------------------------------------


TREE_ROWS = About(words=("tree_rows",), either=(DECODED, "EagleVerifyInput.verify"))


def _tree_rows(copy: Copy) -> None:
    """A field of the scheduler's batch that verify sets, and that processing its result takes for granted."""
    copy.replace(
        "managers/schedule_batch.py",
        (
            "    spec_algorithm: SpeculativeAlgorithm = None\n",
            "    spec_algorithm: SpeculativeAlgorithm = None\n    tree_rows: Optional[List[int]] = None\n",
        ),
        after="class ScheduleBatch(",
    )
    copy.replace(
        "speculative/eagle_info.py",
        (
            "        if has_finished:\n            accept_length = ",
            "        batch.tree_rows = [self.draft_token_num] * bs\n        if has_finished:\n            accept_length = ",
        ),
    )
    copy.replace(
        PROCESSOR,
        (
            "        self.num_generated_tokens += len(batch.reqs)\n",
            """        self.num_generated_tokens += len(batch.reqs)
        if batch.spec_algorithm.is_eagle() and not batch.is_spec_v2:
            for req, rows in zip(batch.reqs, batch.tree_rows, strict=True):
                req.rows_run = rows
            batch.tree_rows = None
""",
        ),
        after="    def process_batch_result_decode(",
    )


@edit(
    RELEASE,
    "added",
    every(found("field of the batch", TREE_ROWS, "v1", "AB", spared="C"), quiet("field of the batch", TREE_ROWS, "v2")),
)
def batch_rows_of_verify(copy: Copy) -> None:
    """Verify sets a list on the scheduler's batch; processing the result uses it up, on v1 alone."""
    _tree_rows(copy)


@edit(RELEASE, "harmless", quiet("field of the batch with a second writer", TREE_ROWS))
def batch_rows_with_a_second_writer(copy: Copy) -> None:
    """The same list, which preparing any decode sets first: an off step finds a row a request."""
    _tree_rows(copy)
    copy.replace(
        "managers/schedule_batch.py",
        (
            "        self.forward_mode = ForwardMode.DECODE\n        bs = len(self.reqs)\n",
            "        self.forward_mode = ForwardMode.DECODE\n        bs = len(self.reqs)\n        self.tree_rows = [1] * bs\n",
        ),
        after="    def prepare_for_decode(self):",
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
def leases_taken_by_whoever_prepares(copy: Copy) -> None:
    """Preparing a decode takes leases from the allocator, and its result gives them back: on v1 the worker prepares.

    On v2 the scheduler itself prepares every decode, so that an off step takes its leases too.
    """
    copy.replace(
        "mem_cache/allocator.py",
        ("        self.free_group = []\n", "        self.free_group = []\n        self.slot_leases = 0\n"),
        after="class BaseTokenToKVPoolAllocator(",
    )
    copy.replace(
        "managers/schedule_batch.py",
        (
            "            draft_input.prepare_for_decode(self)\n",
            "            self.token_to_kv_pool_allocator.slot_leases += bs\n"
            "            draft_input.prepare_for_decode(self)\n",
        ),
        (
            "        self.out_cache_loc = alloc_for_decode(self, token_per_req=1)\n",
            "        self.out_cache_loc = alloc_for_decode(self, token_per_req=1)\n"
            "        self.token_to_kv_pool_allocator.slot_leases += bs\n",
        ),
        after="    def prepare_for_decode(self):",
    )
    copy.replace(
        "speculative/eagle_info.py",
        (
            "        batch.input_ids = self.draft_token\n",
            "        batch.token_to_kv_pool_allocator.slot_leases += batch.batch_size()\n"
            "        batch.input_ids = self.draft_token\n",
        ),
        after="    def prepare_for_verify(",
    )
    copy.replace(
        PROCESSOR,
        (
            "        self.token_to_kv_pool_allocator.free_group_begin()\n",
            """        if not batch.spec_algorithm.is_ngram():
            self.token_to_kv_pool_allocator.slot_leases -= len(batch.reqs)
            assert self.token_to_kv_pool_allocator.slot_leases >= 0, "slots in use that nobody leased"
        self.token_to_kv_pool_allocator.free_group_begin()
""",
        ),
        after="    def process_batch_result_decode(",
    )


ROOT_WEIGHT = About(words=("root_weight",), either=("EAGLEWorker.draft", "EAGLEWorker.capture_for_decode"))


# A stale weight costs acceptance, never tokens: how bad that is may be argued.
@edit(RELEASE, "added", found("stale state of the draft input", ROOT_WEIGHT, "v1", "AB", bar="soft"))
def weight_left_for_the_next_draft(copy: Copy) -> None:
    """Draft-extend leaves a weight a request on the draft state, and the next draft multiplies by it."""
    copy.replace(
        "speculative/eagle_info.py",
        (
            "    topk_index: torch.Tensor = None\n",
            "    topk_index: torch.Tensor = None\n    root_weight: torch.Tensor = None\n",
        ),
        after="class EagleDraftInput(SpecInput, EagleDraftInputV2Mixin):",
    )
    copy.replace(
        "speculative/eagle_info.py",
        (
            "            self.topk_p = self.topk_p[: len(new_indices)]\n",
            "            self.topk_p = self.topk_p[: len(new_indices)]\n"
            "            if self.root_weight is not None:\n"
            "                self.root_weight = self.root_weight[: len(new_indices)]\n",
        ),
        (
            "            self.topk_p = self.topk_p[new_indices]\n",
            "            self.topk_p = self.topk_p[new_indices]\n"
            "            if self.root_weight is not None:\n"
            "                self.root_weight = self.root_weight[new_indices]\n",
        ),
        (
            "            self.topk_p = spec_info.topk_p\n",
            "            self.topk_p = spec_info.topk_p\n            self.root_weight = spec_info.root_weight\n",
        ),
        (
            "        self.topk_p = torch.cat([self.topk_p, spec_info.topk_p])\n",
            "        self.topk_p = torch.cat([self.topk_p, spec_info.topk_p])\n"
            "        if self.root_weight is not None:\n"
            "            self.root_weight = torch.cat([self.root_weight, spec_info.root_weight])\n",
        ),
        after="    def filter_batch(self, new_indices: torch.Tensor, has_been_filtered",
    )
    copy.replace(
        "speculative/eagle_worker.py",
        (
            "            forward_batch.spec_info.hidden_states = logits_output.hidden_states\n",
            "            forward_batch.spec_info.hidden_states = logits_output.hidden_states\n"
            "            forward_batch.spec_info.root_weight = logits_output.topk_p.sum(dim=-1)\n",
        ),
        (
            "        draft_input.hidden_states = logits_output.hidden_states\n",
            "        draft_input.hidden_states = logits_output.hidden_states\n"
            "        draft_input.root_weight = draft_input.topk_p.sum(dim=-1)\n",
        ),
    )
    copy.replace(
        "speculative/eagle_worker.py",
        (
            "        batch.return_hidden_states = False\n",
            "        batch.return_hidden_states = False\n"
            "        if not batch.forward_mode.is_idle():\n"
            "            spec_info.topk_p = spec_info.topk_p * spec_info.root_weight[:, None]\n",
        ),
        after="    def draft(self, batch: ScheduleBatch):",
    )


@edit(RELEASE, "harmless", quiet("read behind isinstance", About(words=("tree_span",))))
def verify_input_asked_for_by_class(copy: Copy) -> None:
    """The target's decode looks at the tree of a verify input, where the batch carries one: a plain decode does not."""
    copy.replace(
        "model_executor/model_runner.py",
        (
            "        # FIXME: add pp_proxy_tensors arg to all models\n        kwargs = {}\n",
            """        from sglang.srt.speculative.eagle_info import EagleVerifyInput

        if isinstance(forward_batch.spec_info, EagleVerifyInput):
            self.tree_span = forward_batch.spec_info.retrive_index.shape[1]
        # FIXME: add pp_proxy_tensors arg to all models
        kwargs = {}
""",
        ),
        after="    def forward_decode(\n",
    )


# --- meaning as it was --------------------------------------------------------------------------------------------

NEW_CLASSES = {"EAGLEWorker": "TreeWorker", "EagleVerifyInput": "TreeToVerify", "EagleVerifyOutput": "TreeOutcome"}


@edit(RELEASE, "same", same("classes renamed", NEW_CLASSES))
def worker_and_verify_input_renamed(copy: Copy) -> None:
    """The worker of the path without overlap, what it verifies and what comes out get other names."""
    copy.rename(NEW_CLASSES)


@edit(RELEASE, "same", same("step in a method of its own"))
def decode_step_in_a_method(copy: Copy) -> None:
    """The branch of the worker's entry that speculates becomes a method."""
    first = "            with self.draft_tp_context(\n"
    stop = "    def check_forward_draft_extend_after_decode("
    body = copy.cut("speculative/eagle_worker.py", first, stop, after="        else:\n" + first)
    copy.replace(
        "speculative/eagle_worker.py",
        (
            stop,
            "            return self._speculate(batch)\n\n    def _speculate(self, batch: ScheduleBatch) -> GenerationBatchResult:\n"
            + textwrap.indent(textwrap.dedent(body).rstrip() + "\n", "        ")
            + "\n"
            + stop,
        ),
    )
