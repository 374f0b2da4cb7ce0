"""Edits of 0.5.9 on the overlapped path (v2)."""

from __future__ import annotations

from ..checks import About, every, found, gone, others_stay, quiet, same
from ..registry import Copy, edit

RELEASE = "0.5.9"
PROCESSOR = "managers/scheduler_output_processor_mixin.py"
RESOLVE = "._resolve_spec_overlap_token_ids"
GRAPHS = About(words=("num_tokens_per_bs",), ends=("CudaGraphRunner.replay_prepare",))


# --- couplings removed --------------------------------------------------------------------------------------------


@edit(
    RELEASE,
    "removed",
    every(
        gone("accept counts", About("accept_lens", ends=(RESOLVE,)), "v2", "AB"),
        gone("stride", About("next_token_ids", ends=(RESOLVE,)), "v2", "AB"),
        found("stride of a narrower verify", About("next_token_ids", ends=(RESOLVE,)), "v2", "C"),
        others_stay(About("accept_lens"), About("next_token_ids"), About("kv_committed_len")),
    ),
)
def plain_result_returns_early(copy: Copy) -> None:
    """A result without accept lengths is a token a request, committed like one; the rest is for verify's results."""
    copy.replace(
        PROCESSOR,
        (
            """        assert result.next_token_ids.is_cpu
        assert result.accept_lens.is_cpu
""",
            """        assert result.next_token_ids.is_cpu
        if result.accept_lens is None:
            result.accept_length_per_req_cpu = [0] * len(batch.reqs)
            for req in batch.reqs:
                req.kv_committed_len += 1
            return [[token] for token in result.next_token_ids.tolist()]
        assert result.accept_lens.is_cpu
""",
        ),
    )


@edit(
    RELEASE,
    "removed",
    every(
        gone("stride of a narrower verify", About("next_token_ids", ends=(RESOLVE,)), "v2", "C"),
        found("accept counts", About("accept_lens", ends=(RESOLVE,)), "v2", "AB", spared="C"),
        others_stay(About("next_token_ids")),
    ),
)
def stride_of_the_result(copy: Copy) -> None:
    """The stride is what the result has a request, whatever the worker was started with."""
    copy.replace(
        PROCESSOR,
        (
            "        stride = self.draft_worker.speculative_num_draft_tokens\n",
            "        stride = len(next_token_ids) // max(len(batch.reqs), 1)\n",
        ),
    )


@edit(
    RELEASE,
    "removed",
    every(
        gone("verify's graphs", GRAPHS, "v2", "AB"),
        gone("verify's graphs", GRAPHS, "v1", "AB"),
        found("verify's graphs for a narrower verify", GRAPHS, "v2", "C"),
    ),
)
def plain_decode_without_a_graph(copy: Copy) -> None:
    """The target of a speculative process runs a plain decode eagerly: slower, and right."""
    copy.replace(
        "model_executor/model_runner.py",
        (
            """        can_run_graph = bool(
            mode_check()
            and self.graph_runner
""",
            """        plain_decode = forward_batch.forward_mode.is_decode() and not self.spec_algorithm.is_none()
        can_run_graph = bool(
            mode_check()
            and not plain_decode
            and self.graph_runner
""",
        ),
        after="    def _forward_raw(",
    )


@edit(
    RELEASE,
    "removed",
    every(
        gone("verify's graphs", GRAPHS, "v2", "AB"),
        gone("verify's graphs", GRAPHS, "v1", "AB"),
        found("verify's graphs for a narrower verify", GRAPHS, "v2", "C"),
    ),
)
def second_graph_runner(copy: Copy) -> None:
    """The target has graphs of its own for plain decode, with a token a request, beside those for verify."""
    copy.replace(
        "model_executor/cuda_graph_runner.py",
        (
            "    def __init__(self, model_runner: ModelRunner):\n",
            "    def __init__(self, model_runner: ModelRunner, plain: bool = False):\n",
        ),
        (
            "        self.model_runner = model_runner\n",
            "        self.model_runner = model_runner\n        self.plain = plain\n",
        ),
        (
            "        if (\n            model_runner.spec_algorithm.is_eagle()\n",
            "        if not plain and (\n            model_runner.spec_algorithm.is_eagle()\n",
        ),
        (
            """        self.model_runner.attn_backend.init_cuda_graph_state(
            self.max_bs, self.max_num_token
        )
""",
            """        if not plain:
            # The larger buffers of the verify graphs serve both.
            self.model_runner.attn_backend.init_cuda_graph_state(
                self.max_bs, self.max_num_token
            )
""",
        ),
        after="class CudaGraphRunner:",
    )
    copy.replace(
        "model_executor/cuda_graph_runner.py",
        (
            "        spec_info = None\n        if (\n",
            "        spec_info = None\n        if self.plain:\n            return None\n        if (\n",
        ),
        after="    def get_spec_info(self, num_tokens: int):",
    )
    copy.replace(
        "model_executor/model_runner.py",
        (
            "        self.graph_runner = None\n",
            "        self.graph_runner = None\n        self.plain_graph_runner = None\n",
        ),
        (
            "        self.graph_runner = graph_runners[self.device](self)\n",
            """        self.graph_runner = graph_runners[self.device](self)
        if self.device == "cuda" and not self.spec_algorithm.is_none():
            self.plain_graph_runner = CudaGraphRunner(self, plain=True)
""",
        ),
        after="    def init_device_graphs(self):",
    )
    copy.replace(
        "model_executor/model_runner.py",
        (
            "            self.graph_runner = None\n",
            "            self.graph_runner = None\n            self.plain_graph_runner = None\n",
        ),
    )
    copy.replace(
        "model_executor/model_runner.py",
        (
            """            and self.graph_runner
            and self.graph_runner.can_run(forward_batch)
        )
""",
            """            and graph_runner
            and graph_runner.can_run(forward_batch)
        )
""",
        ),
        ("            ret = self.graph_runner.replay(\n", "            ret = graph_runner.replay(\n"),
        after="    def _forward_raw(",
    )
    copy.replace(
        "model_executor/model_runner.py",
        (
            "        can_run_graph = bool(\n",
            """        graph_runner = self.graph_runner
        if forward_batch.forward_mode.is_decode() and self.plain_graph_runner:
            graph_runner = self.plain_graph_runner
        can_run_graph = bool(
""",
        ),
        after="    def _forward_raw(",
    )


# --- couplings added ----------------------------------------------------------------------------------------------


def _result_field(copy: Copy, declared: str, used: str) -> None:
    """A list that both verifies of v2 put on the result, and that its processing uses."""
    copy.replace(
        "managers/utils.py",
        (
            "    accept_lens: Optional[torch.Tensor] = None\n",
            f"    accept_lens: Optional[torch.Tensor] = None\n    {declared}\n",
        ),
    )
    for worker in ("eagle_worker_v2", "multi_layer_eagle_worker_v2"):
        copy.replace(
            f"speculative/{worker}.py",
            (
                "            accept_lens=accept_length,\n",
                "            accept_lens=accept_length,\n            lane_marks=[bs] * bs,\n",
            ),
        )
    copy.replace(
        PROCESSOR,
        ("        self.num_generated_tokens += len(batch.reqs)\n", used),
        after="    def process_batch_result_decode(",
    )


LANE_MARKS = About(words=("lane_marks",), either=(".process_batch_result_decode", ".verify"))


@edit(RELEASE, "added", found("result field", LANE_MARKS, "v2", "AB", spared="C"))
def result_list(copy: Copy) -> None:
    """A list of the result that verify alone makes, summed wherever a batch speculates on v2."""
    _result_field(
        copy,
        "lane_marks: Optional[List[int]] = None",
        "        self.num_generated_tokens += len(batch.reqs)\n"
        "        if batch.is_spec_v2:\n            self.lane_total = sum(result.lane_marks)\n",
    )


@edit(RELEASE, "harmless", quiet("result field with a guard", About(words=("lane_marks",))))
def result_list_guarded(copy: Copy) -> None:
    """The same list, summed where there is one."""
    _result_field(
        copy,
        "lane_marks: Optional[List[int]] = None",
        "        self.num_generated_tokens += len(batch.reqs)\n"
        "        if result.lane_marks is not None:\n            self.lane_total = sum(result.lane_marks)\n",
    )


@edit(RELEASE, "harmless", quiet("result field with a default", About(words=("lane_marks",))))
def result_list_defaulted(copy: Copy) -> None:
    """The same list, empty where no verify makes one: its sum is 0."""
    _result_field(
        copy,
        "lane_marks: List[int] = dataclasses.field(default_factory=list)",
        "        self.num_generated_tokens += len(batch.reqs)\n        self.lane_total = sum(result.lane_marks)\n",
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
def width_at_start_in_a_view(copy: Copy) -> None:
    """The runner takes its width from the draft tokens at start, and sampling a decode cuts the logits by it."""
    copy.replace(
        "model_executor/model_runner.py",
        (
            "        self.is_draft_worker = is_draft_worker\n",
            "        self.is_draft_worker = is_draft_worker\n"
            "        self.lane_width = server_args.speculative_num_draft_tokens or 1\n",
        ),
    )
    copy.replace(
        "model_executor/model_runner.py",
        (
            "        self._preprocess_logits(logits_output, forward_batch.sampling_info)\n",
            """        if forward_batch.forward_mode.is_decode():
            logits = logits_output.next_token_logits
            logits_output.next_token_logits = logits.view(-1, self.lane_width, logits.shape[-1])[:, 0]
        self._preprocess_logits(logits_output, forward_batch.sampling_info)
""",
        ),
        after="    def sample(\n",
    )


REFUSED = About(some=("without drafts", "NotImplementedError"), either=("TpModelWorker.forward_batch_generation",))


@edit(
    RELEASE,
    "added",
    every(found("refusal", REFUSED, "v2", "AB", spared="C"), found("refusal", REFUSED, "v1", "AB", spared="C")),
)
def refusal_in_the_target_worker(copy: Copy) -> None:
    """The target's worker raises on a decode that verifies nothing while the process speculates."""
    copy.replace(
        "managers/tp_worker.py",
        (
            "        if self.is_dllm():\n            return self._forward_batch_generation_dllm(forward_batch)\n",
            """        if self.enable_spec and not is_verify and forward_batch.forward_mode.is_decode():
            raise NotImplementedError("a decode without drafts")

        if self.is_dllm():
            return self._forward_batch_generation_dllm(forward_batch)
""",
        ),
        after="    def forward_batch_generation(\n        self,\n        model_worker_batch: ModelWorkerBatch,\n        forward_batch",
    )


STEP_TAGS = About(words=("step_tags",), either=(".process_batch_result_decode", ".prepare_for_v2_verify"))


@edit(RELEASE, "added", found("pool's dictionary", STEP_TAGS, "v2", "AB", spared="C"))
def pool_entry_of_verify(copy: Copy) -> None:
    """Preparing a verify leaves an entry a row in the request pool; processing a decode takes each out again."""
    copy.replace(
        "mem_cache/memory_pool.py",
        (
            "        self.free_slots = list(range(size))\n",
            "        self.free_slots = list(range(size))\n        self.step_tags: dict[str, list[int]] = {}\n",
        ),
        after="class ReqToTokenPool:",
    )
    copy.replace(
        "disaggregation/decode.py",
        (
            "        self.free_slots = list(range(size + pre_alloc_size))\n",
            "        self.free_slots = list(range(size + pre_alloc_size))\n        self.step_tags: dict[str, list[int]] = {}\n",
        ),
    )
    copy.replace(
        "speculative/eagle_info_v2.py",
        (
            "            # Assign cache locations\n            bs = len(batch.req_pool_indices)\n",
            """            for req in batch.reqs:
                req_to_token_pool.step_tags.setdefault(req.rid, []).append(self.draft_token_num)
            # Assign cache locations
            bs = len(batch.req_pool_indices)
""",
        ),
        after="class EagleVerifyInputV2Mixin:",
    )
    copy.replace(
        PROCESSOR,
        (
            "            if self.enable_overlap and (req.finished() or req.is_retracted):\n",
            """            if batch.is_spec_v2:
                self.req_to_token_pool.step_tags[req.rid].pop(0)

            if self.enable_overlap and (req.finished() or req.is_retracted):
""",
        ),
        after="    def process_batch_result_decode(",
    )


SPARE_SLOTS = About(words=("spare_slots",), either=("TpModelWorker.forward_batch_generation",))


def _spare_slots(copy: Copy, then: str) -> None:
    """The target's worker takes a page a request before a plain decode of a process that speculates."""
    copy.replace(
        "managers/tp_worker.py",
        (
            "        if self.is_dllm():\n            return self._forward_batch_generation_dllm(forward_batch)\n",
            f"""        if self.enable_spec and not is_verify and forward_batch.forward_mode.is_decode():
            allocator = self.model_runner.token_to_kv_pool_allocator
            self.spare_slots = allocator.alloc(forward_batch.batch_size * allocator.page_size)
{then}
        if self.is_dllm():
            return self._forward_batch_generation_dllm(forward_batch)
""",
        ),
        after="    def forward_batch_generation(\n        self,\n        model_worker_batch: ModelWorkerBatch,\n        forward_batch",
    )


@edit(
    RELEASE,
    "added",
    every(
        found("slots never freed", SPARE_SLOTS, "v2", "AB", spared="C"),
        found("slots never freed", SPARE_SLOTS, "v1", "AB", spared="C"),
    ),
)
def slots_taken_and_forgotten(copy: Copy) -> None:
    """The page that an off step takes besides is overwritten by the next one's: it leaks."""
    _spare_slots(copy, "")


@edit(RELEASE, "harmless", quiet("slots freed at once", SPARE_SLOTS))
def slots_taken_and_given_back(copy: Copy) -> None:
    """The page that an off step takes besides goes back to the allocator at once."""
    _spare_slots(copy, "            allocator.free(self.spare_slots)\n")


TAIL_POS = About(words=("tail_pos",), either=("ForwardBatch.init_new", ".prepare_for_decode"))


@edit(RELEASE, "added", found("two meanings", TAIL_POS, "v2", "AB", spared="C"))
def field_with_two_meanings(copy: Copy) -> None:
    """The scheduler gives a decode its positions, where it prepares it: with the pending token in a plain process.

    On v2 the lengths leave that token out, so that the same expression names the position before it.
    """
    batch = "managers/schedule_batch.py"
    for after in ("class ScheduleBatch(", "class ModelWorkerBatch:"):
        copy.replace(
            batch,
            (
                "    spec_algorithm: SpeculativeAlgorithm = None\n",
                "    spec_algorithm: SpeculativeAlgorithm = None\n    tail_pos: Optional[torch.Tensor] = None\n",
            ),
            after=after,
        )
    copy.replace(
        batch,
        (
            "        self.seq_lens_sum += bs\n",
            "        self.seq_lens_sum += bs\n        self.tail_pos = self.seq_lens - 1\n",
        ),
        (
            "            spec_info=self.spec_info,\n",
            "            spec_info=self.spec_info,\n            tail_pos=self.tail_pos,\n",
        ),
        after="    def prepare_for_decode(self):",
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
            "                ret.positions = (\n                    clamp_position(batch.seq_lens)\n"
            "                    if batch.tail_pos is None\n                    else batch.tail_pos\n                )\n",
        ),
    )


# --- meaning as it was --------------------------------------------------------------------------------------------

NEW_CLASSES = {"FutureMap": "StepRelay", "GenerationBatchResult": "StepOutcome", "EagleDraftWorker": "DraftSide"}
NEW_FIELDS = {
    "topk_index": "branch_tokens",
    "verified_id": "newest_token",
    "new_seq_lens": "lens_after",
    "future_indices": "relay_rows",
    "kv_allocated_len": "kv_owned",
    "accept_lens": "taken_lens",
}


@edit(RELEASE, "same", same("classes renamed", NEW_CLASSES))
def relay_result_and_draft_side_renamed(copy: Copy) -> None:
    """The relay, the result and the draft's side of the worker get other names."""
    copy.rename(NEW_CLASSES)


@edit(RELEASE, "same", same("fields renamed", NEW_FIELDS))
def six_fields_renamed(copy: Copy) -> None:
    """Six fields of the draft state, the result and the request get other names."""
    copy.rename(NEW_FIELDS)


@edit(RELEASE, "same", same("accounting split off"))
def resolution_split_in_two(copy: Copy) -> None:
    """What a resolved result does to the requests moves into a method of its own."""
    copy.replace(
        PROCESSOR,
        (
            """        for i, req in enumerate(batch.reqs):
            req.kv_committed_len += accept_lens[i]
            predict_tokens.append(
                next_token_ids[i * stride : i * stride + accept_lens[i]]
            )
            req.spec_verify_ct += 1

            accepted_draft_tokens = result.accept_length_per_req_cpu[i]
            req.spec_accepted_tokens += accepted_draft_tokens
            req.update_spec_acceptance_histogram(accepted_draft_tokens)

        return predict_tokens
""",
            """        for i, req in enumerate(batch.reqs):
            self._commit_accepted(req, accept_lens[i], result.accept_length_per_req_cpu[i])
            first = i * stride
            predict_tokens.append(next_token_ids[first : first + accept_lens[i]])

        return predict_tokens

    def _commit_accepted(self: Scheduler, req: Req, num_tokens: int, num_drafts: int) -> None:
        req.kv_committed_len += num_tokens
        req.spec_verify_ct += 1
        req.spec_accepted_tokens += num_drafts
        req.update_spec_acceptance_histogram(num_drafts)
""",
        ),
    )


@edit(RELEASE, "same", same("condition kept in a local"))
def early_return_through_a_local(copy: Copy) -> None:
    """The early return before a plain step asks a local, which a conditional expression sets."""
    copy.replace(
        "managers/schedule_batch.py",
        (
            "        if not self.spec_algorithm.is_none():\n            # if spec decoding is used",
            "        prepared_by_worker = False if self.spec_algorithm.is_none() else True\n"
            "        if prepared_by_worker:\n            # if spec decoding is used",
        ),
        after="    def prepare_for_decode(self):",
    )


@edit(RELEASE, "same", same("formatted"))
def formatted(copy: Copy) -> None:
    """Comments, line breaks and quotes as Python's own unparser writes them, in every file of the two paths."""
    import ast

    folders = ("managers", "speculative", "model_executor", "mem_cache")
    for folder in folders:
        for file in sorted((copy.srt / folder).glob("*.py")):
            path = f"{folder}/{file.name}"
            text = copy.read(path)
            copy.write(path, ast.unparse(ast.parse(text)) + "\n")
