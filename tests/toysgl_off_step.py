"""Decode with the toy engine, and take some steps off: the scheduler sends the batch to the target's worker.

    python toysgl_off_step.py v1|v2|none [on|narrow] [LEFT_OUT ...]

What the engine as it stands lacks for such a step is supplied here, but for what is LEFT_OUT (the words that
``supplied`` is called with). With ``on`` no step is off, with ``narrow`` an off step of v2 is a verify of one token a
request, without drafts (design C). Prints the tokens of each request. An edit that adds a coupling must break the run
or change its tokens; one that takes a coupling away must not need what is left out. A run that leaks a KV slot fails.
"""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache.common import alloc_for_decode
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.eagle_info import EagleDraftInput, EagleVerifyInput

PATH, LEFT_OUT = sys.argv[1], set(sys.argv[2:])


class Pipe:
    """The engine's end: nothing comes in, what goes out is kept."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def poll(self, timeout: float = 0.0) -> bool:
        return False

    def send(self, output: Any) -> None:
        self.sent.append(output)


def supplied(what: str) -> bool:
    """Whether an off step gets this from here."""
    return what not in LEFT_OUT


def without_graphs(scheduler: Scheduler, batch: Any) -> GenerationBatchResult:
    """A forward pass of the target, eagerly."""
    runner = scheduler.tp_worker.model_runner
    kept = runner.graph_runner
    if supplied("no-graphs"):
        runner.graph_runner = None
    try:
        return scheduler.tp_worker.forward_batch_generation(batch)
    finally:
        runner.graph_runner = kept


def run_off_v2(scheduler: Scheduler, batch: ScheduleBatch) -> GenerationBatchResult:
    seq_lens = batch.seq_lens
    launched = batch.get_model_worker_batch()
    launched.sampling_info = launched.sampling_info.copy_for_forward()
    rows = scheduler.future_map.alloc_future_indices(len(seq_lens))
    scheduler.future_map.resolve_future(launched)
    state = launched.spec_info
    if supplied("no-draft-state"):
        launched.spec_info = None
    if supplied("input-ids"):
        launched.input_ids = state.bonus_tokens.to(torch.int64)
    if supplied("lengths"):
        launched.seq_lens = seq_lens + 1
    if supplied("lengths-cpu"):
        launched.seq_lens_cpu = batch.seq_lens_cpu + 1
    if supplied("lengths-sum"):
        launched.seq_lens_sum = batch.seq_lens_sum + len(seq_lens)
    if supplied("slots"):
        slots = batch.req_to_token_pool.req_to_token[batch.req_pool_indices, seq_lens]
        launched.out_cache_loc = slots.to(torch.int64)
    result = without_graphs(scheduler, launched)
    # The draft's candidates are stale: fewer are accepted, and verify keeps the tokens right.
    next_state = EagleDraftInput()
    if supplied("candidates"):
        next_state.topk_p, next_state.topk_index = state.topk_p, state.topk_index
    if supplied("hidden-states"):
        next_state.hidden_states = state.hidden_states
    if supplied("newest-token"):
        next_state.bonus_tokens = result.next_token_ids
    else:
        next_state.bonus_tokens = state.bonus_tokens
    next_state.new_seq_lens = seq_lens + 1 if supplied("next-lengths") else seq_lens
    result.next_draft_input = next_state if supplied("next-state") else None
    if supplied("counts"):
        result.accept_lens = torch.ones(len(seq_lens), dtype=torch.int32)
    if supplied("stride"):
        result.speculative_num_draft_tokens = 1
    result.copy_done = scheduler.device_module.Event()
    scheduler.future_map.store_to_map(rows, result)
    result.copy_to_cpu(return_hidden_states=False)
    batch.spec_info = result.next_draft_input
    batch.spec_info.future_indices = rows
    batch.seq_lens = result.next_draft_input.new_seq_lens
    batch.output_ids = -rows.indices
    return result


def run_narrow_v2(scheduler: Scheduler, batch: ScheduleBatch) -> GenerationBatchResult:
    bs = len(batch.seq_lens)
    launched = batch.get_model_worker_batch()
    launched.sampling_info = launched.sampling_info.copy_for_forward()
    rows = scheduler.future_map.alloc_future_indices(bs)
    scheduler.future_map.resolve_future(launched)
    state = launched.spec_info
    launched.spec_info = EagleVerifyInput(
        draft_token=state.bonus_tokens.to(torch.int64),
        custom_mask=torch.ones((batch.seq_lens_sum + bs,), dtype=torch.bool),
        positions=batch.seq_lens,
        retrieve_index=torch.arange(bs)[:, None],
        retrieve_next_token=torch.full((bs, 1), -1),
        retrieve_next_sibling=torch.full((bs, 1), -1),
        spec_steps=0,
        topk=1,
        draft_token_num=1,
        capture_hidden_mode=CaptureHiddenMode.FULL,
        seq_lens_sum=None,
        seq_lens_cpu=None,
    )
    worker, runner = scheduler.draft_worker, scheduler.tp_worker.model_runner
    kept, width = runner.graph_runner, worker.speculative_num_draft_tokens
    if supplied("no-graphs"):
        runner.graph_runner = None
    if supplied("width"):
        worker.speculative_num_draft_tokens = 1
    result = worker.verify(launched)
    runner.graph_runner, worker.speculative_num_draft_tokens = kept, width
    if supplied("candidates"):
        result.next_draft_input.topk_p = state.topk_p
        result.next_draft_input.topk_index = state.topk_index
    if supplied("hidden-states"):
        result.next_draft_input.hidden_states = state.hidden_states
    result.copy_done = scheduler.device_module.Event()
    scheduler.future_map.store_to_map(rows, result)
    result.copy_to_cpu(return_hidden_states=False)
    batch.spec_info = result.next_draft_input
    batch.spec_info.future_indices = rows
    batch.seq_lens = result.next_draft_input.new_seq_lens
    batch.output_ids = -rows.indices
    return result


def run_off_v1(scheduler: Scheduler, batch: ScheduleBatch) -> GenerationBatchResult:
    state = batch.spec_info
    if supplied("no-draft-state"):
        batch.spec_info = None
    if supplied("input-ids"):
        batch.input_ids = state.bonus_tokens.to(torch.int64)
    if supplied("slots"):
        batch.out_cache_loc = alloc_for_decode(batch, token_per_req=1)
    for req in batch.reqs:
        req.decode_batch_idx += 1
        req.kv_committed_len += supplied("committed")
        req.kv_allocated_len += supplied("allocated")
    if supplied("lengths"):
        batch.seq_lens.add_(1)
    if supplied("lengths-cpu"):
        batch.seq_lens_cpu.add_(1)
    if supplied("lengths-sum"):
        batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    launched = batch.get_model_worker_batch() if supplied("worker-batch") else batch
    result = without_graphs(scheduler, launched)
    for req, token in zip(batch.reqs, result.next_token_ids.tolist(), strict=True):
        if supplied("output-ids"):
            req.output_ids.append(token)
        if supplied("finish-check"):
            req.check_finished()
    kept = torch.tensor([i for i, req in enumerate(batch.reqs) if not req.finished()], dtype=torch.int64)
    if not supplied("filtered-state"):
        kept = torch.arange(len(batch.reqs))
    batch.spec_info = EagleDraftInput(
        topk_p=state.topk_p[kept] if supplied("candidates") else None,
        topk_index=state.topk_index[kept] if supplied("candidates") else None,
        hidden_states=state.hidden_states[kept] if supplied("hidden-states") else None,
        bonus_tokens=(result.next_token_ids if supplied("newest-token") else state.bonus_tokens)[kept],
    )
    batch.output_ids = result.next_token_ids
    return result


def run(scheduler: Scheduler, batch: ScheduleBatch, off_steps: list[int]) -> GenerationBatchResult:
    """An on step, or the second and third of every four decode steps off."""
    if batch.forward_mode.is_decode() and PATH != "none" and "on" not in LEFT_OUT:
        off_steps[0] += 1
        if off_steps[0] % 4 >= 2:
            if PATH == "v1":
                return run_off_v1(scheduler, batch)
            return run_narrow_v2(scheduler, batch) if "narrow" in LEFT_OUT else run_off_v2(scheduler, batch)
    return scheduler.run_batch(batch)


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    speculative = {} if PATH == "none" else {"speculative_algorithm": "EAGLE"}
    args = ServerArgs(disable_overlap_schedule=PATH != "v2", max_running_requests=4, cuda_graph_max_bs=4, **speculative)
    set_global_server_args_for_scheduler(args)
    pipe = Pipe()
    scheduler = Scheduler(args, 0, pipe, pipe, [])
    rng = random.Random(3)
    for i in range(9):  # short ones, so that some end in an off step
        prompt = [rng.randrange(1, 64) for _ in range(rng.randint(4, 12))]
        scheduler.waiting_queue.append(Req(f"req-{i}", prompt, rng.randint(4, 10), i))
    results: deque[tuple[ScheduleBatch, GenerationBatchResult]] = deque()
    off_steps = [0]
    while True:
        batch = scheduler.get_next_batch_to_run()
        scheduler.cur_batch = batch
        if batch:
            results.append((batch.copy() if PATH == "v2" else batch, run(scheduler, batch, off_steps)))
        if results and (PATH != "v2" or scheduler.last_batch):
            scheduler.process_batch_result(*results.popleft())
        if batch is None and not results and not scheduler.waiting_queue:
            break
        scheduler.last_batch = batch
    scheduler.check_memory()
    tokens = {rid: ids for output in pipe.sent for rid, ids in zip(output.rids, output.output_ids, strict=True)}
    print(json.dumps([tokens[rid] for rid in sorted(tokens)]))


if __name__ == "__main__":
    main()
