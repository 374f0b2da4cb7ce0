"""Edits of 0.5.12.post1, of both paths."""

from __future__ import annotations

from ..checks import About, every, found, gone, others_stay, path_stays, quiet, same
from ..registry import Copy, edit

RELEASE = "0.5.12.post1"
PROCESSOR = "managers/scheduler_output_processor_mixin.py"
OVERLAPPED = ("speculative/eagle_worker_v2.py", "speculative/multi_layer_eagle_worker_v2.py")
GRAPHS = About(words=("num_tokens_per_bs",), ends=("CudaGraphRunner.replay_prepare",))


# --- couplings removed --------------------------------------------------------------------------------------------


@edit(
    RELEASE,
    "removed",
    every(
        gone("verify's graphs", GRAPHS, "v2", "AB"),
        gone("verify's graphs", GRAPHS, "v1", "AB"),
        others_stay(GRAPHS, About(words=("CudaGraphRunner",))),
    ),
)
def graphs_that_know_their_mode(copy: Copy) -> None:
    """Graphs that were captured for verify say that they cannot run a plain decode."""
    copy.replace(
        "model_executor/cuda_graph_runner.py",
        (
            "        # Disable for token embedding overrides (dynamic per-request)\n",
            """        if (
            self.capture_forward_mode.is_target_verify()
            and forward_batch.forward_mode.is_decode()
        ):
            return False
        # Disable for token embedding overrides (dynamic per-request)
""",
        ),
        after="    def can_run(self, forward_batch: ForwardBatch):",
    )


# --- couplings added ----------------------------------------------------------------------------------------------


TAIL_EVENT = About(words=("tail_event",), either=("Scheduler.run_batch", ".verify"))


@edit(RELEASE, "added", found("event that nobody records", TAIL_EVENT, "v2", "AB", spared="C"))
def event_of_verify(copy: Copy) -> None:
    """Verify records an event on the result, and the scheduler's stream waits for it after each decode of v2."""
    copy.replace(
        "managers/utils.py",
        (
            "    accept_lens: Optional[torch.Tensor] = None\n",
            "    accept_lens: Optional[torch.Tensor] = None\n    tail_event: Optional[torch.cuda.Event] = None\n",
        ),
    )
    for path in OVERLAPPED:
        copy.replace(
            path,
            (
                "            accept_lens=accept_lens,\n",
                "            accept_lens=accept_lens,\n            tail_event=verify_done,\n",
            ),
            after="        return GenerationBatchResult(\n",
        )
    copy.replace(
        "managers/scheduler.py",
        (
            "                if batch.is_spec_v2:\n                    # FIXME(lsyin): tmp code for spec v2\n",
            """                if batch.is_spec_v2:
                    if batch.forward_mode.is_decode():
                        self.schedule_stream.wait_event(batch_result.tail_event)
                    # FIXME(lsyin): tmp code for spec v2
""",
        ),
        after="    def run_batch(\n",
    )


FIRST_ROWS = About(words=("lane_width",), either=("TritonAttnBackend.init_forward_metadata",))


@edit(
    RELEASE,
    "added",
    every(
        found("width in the backend's view", FIRST_ROWS, "v2", "AB", spared="C"),
        found("width in the backend's view", FIRST_ROWS, "v1", "AB", spared="C"),
    ),
)
def backend_that_cuts_rows_by_the_width(copy: Copy) -> None:
    """The target's Triton backend folds a plain decode's requests by the draft tokens that it was started with."""
    copy.replace(
        "layers/attention/triton_backend.py",
        (
            "        self.num_draft_tokens = model_runner.server_args.speculative_num_draft_tokens\n",
            """        self.num_draft_tokens = model_runner.server_args.speculative_num_draft_tokens
        self.lane_width = model_runner.server_args.speculative_num_draft_tokens or 1
        self.serves_draft = model_runner.is_draft_worker
""",
        ),
    )
    copy.replace(
        "layers/attention/triton_backend.py",
        (
            "        bs = forward_batch.batch_size\n",
            """        if forward_batch.forward_mode.is_decode() and not self.serves_draft:
            lanes = forward_batch.req_pool_indices.view(-1, self.lane_width)
            self.first_rows = lanes[:, 0]
        bs = forward_batch.batch_size
""",
        ),
        after="    def init_forward_metadata(self, forward_batch: ForwardBatch):",
    )


ADMISSION = About(words=("verified_steps",), either=("Scheduler._get_new_batch_prefill_raw", ".verify"))


@edit(
    RELEASE,
    "added",
    every(
        found("refused admission", ADMISSION, "v2", "AB", bar="soft", spared="C"),
        quiet("refused admission", ADMISSION, "v1"),
        path_stays("v1"),
    ),
)
def admission_that_waits_for_a_verify(copy: Copy) -> None:
    """On v2 a batch is admitted beside a running one only when the target has verified since the last admission."""
    copy.replace(
        "managers/tp_worker.py",
        (
            "        self.is_draft_worker = is_draft_worker\n",
            "        self.is_draft_worker = is_draft_worker\n        self.verified_steps = 0\n        self.admitted_at = -1\n",
        ),
        after="class TpModelWorker(",
    )
    for path in OVERLAPPED:
        copy.replace(
            path,
            (
                "        return GenerationBatchResult(\n",
                "        self.target_worker.verified_steps += 1\n        return GenerationBatchResult(\n",
            ),
        )
    copy.replace(
        "managers/scheduler.py",
        (
            "        running_bs = len(self.running_batch.reqs)\n",
            """        running_bs = len(self.running_batch.reqs)
        if (
            self.enable_overlap
            and not self.spec_algorithm.is_none()
            and self.chunked_req is None
            and running_bs > 0
        ):
            if self.tp_worker.verified_steps == self.tp_worker.admitted_at:
                return None
            self.tp_worker.admitted_at = self.tp_worker.verified_steps
""",
        ),
        after="    def _get_new_batch_prefill_raw(\n",
    )


# --- look-alikes that do no harm ----------------------------------------------------------------------------------


@edit(RELEASE, "harmless", quiet("read in a try", About(words=("tail_rows",))))
def result_read_in_a_try(copy: Copy) -> None:
    """A tensor that verify alone puts on the result is summed in a try that expects it to be missing."""
    copy.replace(
        "managers/utils.py",
        (
            "    accept_lens: Optional[torch.Tensor] = None\n",
            "    accept_lens: Optional[torch.Tensor] = None\n    tail_rows: Optional[torch.Tensor] = None\n",
        ),
    )
    copy.replace(
        OVERLAPPED[0],
        (
            "            accept_lens=accept_lens,\n",
            "            accept_lens=accept_lens,\n            tail_rows=accept_lens - 1,\n",
        ),
        after="        return GenerationBatchResult(\n",
    )
    copy.replace(
        PROCESSOR,
        (
            "        self.num_generated_tokens += len(batch.reqs)\n",
            """        try:
            self.tail_total = result.tail_rows.sum().item()
        except AttributeError:
            self.tail_total = 0
        self.num_generated_tokens += len(batch.reqs)
""",
        ),
        after="    def process_batch_result_decode(",
    )


@edit(RELEASE, "harmless", quiet("read behind hasattr", About(words=("lane_order",))))
def draft_state_asked_for_an_attribute(copy: Copy) -> None:
    """Draft-extend hangs an order on the draft state, which filtering drops where the state has one."""
    copy.replace(
        OVERLAPPED[0],
        (
            "        next_draft_input = batch_result.next_draft_input\n",
            "        next_draft_input = batch_result.next_draft_input\n        next_draft_input.lane_order = select_index\n",
        ),
        after="    def _draft_extend_for_decode(",
    )
    copy.replace(
        "managers/schedule_batch.py",
        (
            "        if self.spec_info:\n            self.spec_info.filter_batch(\n",
            """        if hasattr(self.spec_info, "lane_order"):
            del self.spec_info.lane_order
        if self.spec_info:
            self.spec_info.filter_batch(
""",
        ),
    )


@edit(RELEASE, "harmless", quiet("helper that returns early", About(words=("note_width",))))
def helper_that_returns_early(copy: Copy) -> None:
    """A helper of the scheduler looks at the result's width, and leaves at once where it has none."""
    copy.replace(
        PROCESSOR,
        (
            "        self.num_generated_tokens += len(batch.reqs)\n",
            "        self.note_width(result)\n        self.num_generated_tokens += len(batch.reqs)\n",
        ),
        (
            "    def _mamba_prefix_cache_update(\n",
            """    def note_width(self: Scheduler, result: GenerationBatchResult) -> None:
        width = result.speculative_num_draft_tokens
        if not width:
            return
        self.widths_seen = getattr(self, "widths_seen", 0) + width * len(result.accept_lens)

    def _mamba_prefix_cache_update(
""",
        ),
        after="    def process_batch_result_decode(",
    )


# --- meaning as it was --------------------------------------------------------------------------------------------

NEW_CLASSES = {"ScheduleBatch": "StepBatch", "ModelWorkerBatch": "LaunchBatch", "EagleDraftInput": "DraftState"}
NEW_FIELDS = {
    "bonus_tokens": "fresh_token",
    "decode_batch_idx": "decode_ordinal",
    "verify_done": "tail_event",
    "new_seq_lens": "lens_after",
    "next_draft_input": "follow_state",
}


@edit(RELEASE, "same", same("classes renamed", NEW_CLASSES))
def batches_and_draft_state_renamed(copy: Copy) -> None:
    """Both batches and the draft state get other names."""
    copy.rename(NEW_CLASSES)


@edit(RELEASE, "same", same("fields renamed", NEW_FIELDS))
def five_fields_renamed(copy: Copy) -> None:
    """Five fields of the draft state, the request and the result get other names."""
    copy.rename(NEW_FIELDS)


@edit(RELEASE, "same", same("wait in one condition"))
def wait_in_one_condition(copy: Copy) -> None:
    """The wait for verify asks its two questions in one condition, with a walrus."""
    copy.replace(
        "managers/schedule_batch.py",
        (
            """        if self.is_spec_v2:
            draft_input: EagleDraftInput = self.spec_info
            if draft_input.verify_done is not None:
                draft_input.verify_done.synchronize()
""",
            """        if self.is_spec_v2 and (event := self.spec_info.verify_done) is not None:
            event.synchronize()
""",
        ),
    )


@edit(RELEASE, "same", same("relay in a module of its own"))
def relay_moved(copy: Copy) -> None:
    """The relay between steps moves into another module, which the old one imports it from."""
    copy.create("managers/step_relay.py", copy.read("managers/overlap_utils.py"))
    copy.write(
        "managers/overlap_utils.py",
        "from sglang.srt.managers.step_relay import FutureIndices, FutureMap\n\n"
        '__all__ = ["FutureIndices", "FutureMap"]\n',
    )


@edit(RELEASE, "same", same("result filled after it was made"))
def result_filled_by_assignment(copy: Copy) -> None:
    """Verify makes its result with the tensors of any step, and then sets what is speculation's on it."""
    copy.replace(
        OVERLAPPED[0],
        ("        return GenerationBatchResult(\n", "        outcome = GenerationBatchResult(\n"),
        (
            """            speculative_num_draft_tokens=self.speculative_num_draft_tokens,
            next_draft_input=next_draft_input,
            accept_lens=accept_lens,
            routed_experts_output=forward_batch_output.routed_experts_output,
            indexer_topk_output=forward_batch_output.indexer_topk_output,
        )
""",
            """            routed_experts_output=forward_batch_output.routed_experts_output,
            indexer_topk_output=forward_batch_output.indexer_topk_output,
        )
        outcome.speculative_num_draft_tokens = self.speculative_num_draft_tokens
        outcome.next_draft_input = next_draft_input
        outcome.accept_lens = accept_lens
        return outcome
""",
        ),
    )
