"""Edits of 0.5.21, whose worker of v2 serves both schedules, and which has an off step of its own (zero draft steps)."""

from __future__ import annotations

from ..checks import About, every, found, gone, others_stay, quiet, same
from ..registry import Copy, edit

RELEASE = "0.5.21"
PROCESSOR = "managers/scheduler_components/batch_result_processor.py"
RESOLVE = "._resolve_spec_v2_tokens"
WORKER = "speculative/eagle_worker_v2.py"


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
def counts_filled_in_where_missing(copy: Copy) -> None:
    """A result without accept lengths gets those of a plain step, a token a request, before it is resolved."""
    copy.replace(
        PROCESSOR,
        (
            "        assert result.accept_lens.is_cpu\n",
            """        if result.accept_lens is None:
            result.accept_lens = torch.ones(len(batch.reqs), dtype=torch.int32)
            result.speculative_output_stride = 1
        assert result.accept_lens.is_cpu
""",
        ),
        after="    def _resolve_spec_v2_tokens(\n",
    )


@edit(
    RELEASE,
    "removed",
    every(
        gone("publishing", About("publish_ready"), "v2", "A"),
        gone("lengths of the relay", About("new_seq_lens_buf"), "v2", "A"),
    ),
)
def lengths_published_by_the_scheduler(copy: Copy) -> None:
    """The scheduler publishes the lengths after any decode whose worker has said nothing of them."""
    copy.replace(
        "managers/scheduler.py",
        (
            "                        if batch.spec_algorithm.is_none():\n"
            "                            self.future_map.publish(future_indices, batch.seq_lens + 1)\n",
            """                        is_plain = batch.spec_algorithm.is_none() or (
                            batch.forward_mode.is_decode()
                            and batch_result.new_seq_lens is None
                        )
                        if is_plain:
                            self.future_map.publish(future_indices, batch.seq_lens + 1)
""",
        ),
        after="    def run_batch(\n",
    )


# --- couplings added ----------------------------------------------------------------------------------------------


ZERO_STEPS = About(
    words=("speculative_num_steps",), either=("EagleDraftWorker.draft_forward", "EagleDraftWorker.draft")
)


@edit(RELEASE, "added", found("draft loop without steps", ZERO_STEPS, "v2", "C"))
def no_zero_step_round(copy: Copy) -> None:
    """The worker drafts whatever the number of steps: the release's own off step is gone."""
    copy.cut(
        WORKER,
        "            elif self.speculative_num_steps == 0:\n",
        "            else:\n                with (\n",
        after="                verify_input = batch.spec_info\n",
    )


TAIL_EVENT = About(words=("tail_event",), either=("Scheduler.run_batch", "run_eagle_verify"))


@edit(RELEASE, "added", found("event that nobody records", TAIL_EVENT, "v2", "AB", spared="C"))
def event_of_verify_21(copy: Copy) -> None:
    """Verify records an event on the result, and the scheduler's stream waits for it after each decode."""
    copy.replace(
        "managers/utils.py",
        (
            "    accept_lens: Optional[torch.Tensor] = None\n",
            "    accept_lens: Optional[torch.Tensor] = None\n    tail_event: Optional[torch.cuda.Event] = None\n",
        ),
    )
    copy.replace(
        "speculative/eagle_worker_common.py",
        (
            "    next_draft_input = EagleDraftInput(bonus_tokens=bonus_tokens)\n",
            "    next_draft_input = EagleDraftInput(bonus_tokens=bonus_tokens)\n"
            "    tail_event = torch.get_device_module(device).Event()\n    tail_event.record()\n",
        ),
        ("        accept_lens=accept_lens,\n", "        accept_lens=accept_lens,\n        tail_event=tail_event,\n"),
        after="def run_eagle_verify(",
    )
    copy.replace(
        "managers/scheduler.py",
        (
            "                if not batch.spec_algorithm.is_none():\n                    batch.spec_info = ",
            """                if batch.spec_algorithm.is_eagle() and batch.forward_mode.is_decode():
                    self.schedule_stream.wait_event(batch_result.tail_event)
                if not batch.spec_algorithm.is_none():
                    batch.spec_info = """,
        ),
        after="                # Next-iter input_ids relayed via future_map.\n",
    )


ROWS_AT_START = About(words=("rows_at_start",), either=(RESOLVE, "EAGLEWorkerV2.forward_batch_generation"))


@edit(RELEASE, "added", found("stride of the start", ROWS_AT_START, "v2", "C"))
def stride_bound_at_start(copy: Copy) -> None:
    """The worker tells the scheduler the width that it was started with, also where a round is narrower."""
    copy.replace(
        WORKER,
        (
            "        self.speculative_num_draft_tokens = get_spec().speculative_num_draft_tokens\n",
            "        self.speculative_num_draft_tokens = get_spec().speculative_num_draft_tokens\n"
            "        self.rows_at_start = get_spec().speculative_num_draft_tokens\n",
        ),
        (
            "            # Publish before draft_extend so the fence is at verify-end.\n",
            "            batch_output.speculative_output_stride = self.rows_at_start\n"
            "            # Publish before draft_extend so the fence is at verify-end.\n",
        ),
        after="class EAGLEWorkerV2(BaseSpecWorker):",
    )


RELAYED_MARK = About(words=("lane_marks",), either=(RESOLVE, ".process_batch_result_decode", "run_eagle_verify"))


def _lane_marks(copy: Copy, used: str) -> None:
    copy.replace(
        "managers/utils.py",
        (
            "    accept_lens: Optional[torch.Tensor] = None\n",
            "    accept_lens: Optional[torch.Tensor] = None\n    lane_marks: Optional[List[int]] = None\n",
        ),
    )
    copy.replace(
        "speculative/eagle_worker_common.py",
        ("        accept_lens=accept_lens,\n", "        accept_lens=accept_lens,\n        lane_marks=[1] * bs,\n"),
        after="    next_draft_input = EagleDraftInput(bonus_tokens=bonus_tokens)\n",
    )
    copy.replace(
        PROCESSOR,
        ("        batch_size = batch.batch_size()\n", used + "        batch_size = batch.batch_size()\n"),
        after="    def process_batch_result_decode(\n",
    )


@edit(RELEASE, "added", found("result field", RELAYED_MARK, "v2", "AB", spared="C"))
def result_list_21(copy: Copy) -> None:
    """A list of the result that verify alone makes; each request takes its mark, wherever EAGLE speculates."""
    _lane_marks(
        copy,
        "        if batch.spec_algorithm.is_eagle():\n            for req, mark in zip(batch.reqs, result.lane_marks):\n"
        "                req.lane_mark = mark\n",
    )


# --- look-alikes that do no harm ----------------------------------------------------------------------------------


@edit(RELEASE, "harmless", quiet("result field with a stand-in", About(words=("lane_marks",))))
def result_list_21_with_a_stand_in(copy: Copy) -> None:
    """The same list, with ones in its place where there is none."""
    _lane_marks(
        copy,
        "        for req, mark in zip(batch.reqs, result.lane_marks or [1] * len(batch.reqs)):\n"
        "            req.lane_mark = mark\n",
    )


@edit(RELEASE, "harmless", quiet("result field with a new writer", About(words=("lane_marks",))))
def result_list_21_with_a_new_writer(copy: Copy) -> None:
    """The same list without a question, which the target's worker makes for its plain decodes as well."""
    _lane_marks(
        copy,
        "        if batch.spec_algorithm.is_eagle():\n            for req, mark in zip(batch.reqs, result.lane_marks):\n"
        "                req.lane_mark = mark\n",
    )
    copy.replace(
        "managers/tp_worker.py",
        (
            "                logits_output=logits_output,\n                can_run_cuda_graph=can_run_cuda_graph,\n",
            "                logits_output=logits_output,\n                lane_marks=[1] * forward_batch.batch_size,\n"
            "                can_run_cuda_graph=can_run_cuda_graph,\n",
        ),
        after="        if self.pp_group.is_last_rank:\n            out = self.model_runner.forward(\n",
    )


# --- meaning as it was --------------------------------------------------------------------------------------------

NEW_CLASSES = {"FutureMap": "StepRelay", "EAGLEWorkerV2": "OverlappedTreeWorker", "EagleDraftInput": "DraftState"}
NEW_FIELDS = {
    "accept_lens": "taken_lens",
    "bonus_tokens": "newest_token",
    "kv_committed_len": "kv_sealed",
    "publish_ready": "lens_event",
    "next_draft_input": "follow_state",
}


@edit(RELEASE, "same", same("classes renamed", NEW_CLASSES))
def relay_worker_and_draft_state_renamed(copy: Copy) -> None:
    """The relay, the worker and the draft state get other names."""
    copy.rename(NEW_CLASSES)


@edit(RELEASE, "same", same("fields renamed", NEW_FIELDS))
def five_fields_of_0_5_21_renamed(copy: Copy) -> None:
    """Five fields of the result, the relay, the draft state and the request get other names."""
    copy.rename(NEW_FIELDS)


@edit(RELEASE, "same", same("stride as a property", moved=("_get_speculative_output_stride",)))
def stride_as_a_property(copy: Copy) -> None:
    """The result itself says its stride, and refuses where it has none."""
    body = copy.cut(
        PROCESSOR, "def _get_speculative_output_stride(", "@dataclass(kw_only=True, slots=True, frozen=True)\n"
    )
    lines = body.replace("(result: GenerationBatchResult)", "(self)").replace("result.", "self.").rstrip().split("\n")
    method = "\n".join("    " + line if line else "" for line in lines).replace(
        "_get_speculative_output_stride", "row_stride"
    )
    copy.replace_all(PROCESSOR, "_get_speculative_output_stride(result)", "result.row_stride", 3)
    copy.replace(
        "managers/utils.py",
        ("    def copy_to_cpu(", f"    @property\n{method}\n\n    def copy_to_cpu("),
        after="class GenerationBatchResult:",
    )


@edit(RELEASE, "same", same("dispatch turned round"))
def preparation_dispatched_the_other_way(copy: Copy) -> None:
    """Preparing a decode asks first for the plain process, and speculation's part stands in the else of a helper."""
    copy.replace(
        "managers/schedule_batch.py",
        (
            "            spec_prepare_for_decode(self)\n            return\n",
            "            spec_prepare_for_decode(self)\n        else:\n            self._prepare_plain_decode()\n\n"
            "    def _prepare_plain_decode(self):\n",
        ),
        after="    def prepare_for_decode(self):\n        self.forward_mode = ForwardMode.DECODE\n",
    )
