"""An engine of two files in SGLang's shape: a scheduler with overlap, a target's worker, and one that speculates.

It is small enough for everything that an off step would meet to be read off in a minute: what a plain result lacks
(``accept_lens``, ``next_draft_input``), what the batch still carries (verify's ``input_ids``), and what the next draft
starts from (``bonus_tokens``, ``topk_index``). Nobody reads ``hidden_states``.
"""

SCHEDULER = '''\
"""A scheduler, its batches, and the target's worker, in one file."""

from __future__ import annotations

import dataclasses
from collections import deque
from enum import Enum, IntEnum, auto

import torch


class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    TARGET_VERIFY = auto()

    def is_extend(self):
        return self == ForwardMode.EXTEND

    def is_decode(self):
        return self == ForwardMode.DECODE

    def is_target_verify(self):
        return self == ForwardMode.TARGET_VERIFY


class SpeculativeAlgorithm(Enum):
    EAGLE = auto()
    NONE = auto()

    @classmethod
    def from_string(cls, name):
        return cls.NONE if name is None else cls[name]

    def is_none(self):
        return self == SpeculativeAlgorithm.NONE

    def is_eagle(self):
        return self == SpeculativeAlgorithm.EAGLE

    def create_worker(self, server_args):
        from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

        return EAGLEWorkerV2


@dataclasses.dataclass
class GenerationBatchResult:
    next_token_ids: torch.Tensor = None
    accept_lens: torch.Tensor | None = None
    next_draft_input: EagleDraftInput | None = None
    logits: torch.Tensor | None = None


class Req:
    def __init__(self, rid, origin_input_ids):
        self.rid = rid
        self.origin_input_ids = origin_input_ids
        self.output_ids = []
        self.kv_committed_len = 0

    def finished(self):
        return len(self.output_ids) > 100


@dataclasses.dataclass
class ScheduleBatch:
    reqs: list[Req]
    spec_algorithm: SpeculativeAlgorithm = None
    forward_mode: ForwardMode = None
    input_ids: torch.Tensor = None
    output_ids: torch.Tensor = None
    seq_lens: torch.Tensor = None
    spec_info: EagleDraftInput | None = None

    def prepare_for_extend(self):
        self.forward_mode = ForwardMode.EXTEND
        self.input_ids = torch.tensor([t for r in self.reqs for t in r.origin_input_ids])
        self.seq_lens = torch.tensor([len(r.origin_input_ids) for r in self.reqs])

    def prepare_for_decode(self):
        self.forward_mode = ForwardMode.DECODE
        if not self.spec_algorithm.is_none():
            return
        self.input_ids = self.output_ids
        self.seq_lens = self.seq_lens + 1

    def filter_batch(self):
        keep = [i for i, req in enumerate(self.reqs) if not req.finished()]
        self.reqs = [self.reqs[i] for i in keep]
        self.seq_lens = self.seq_lens[keep]


class ModelRunner:
    def __init__(self, server_args):
        self.server_args = server_args
        self.width = server_args.speculative_num_draft_tokens or 1

    def forward(self, batch):
        return torch.zeros((len(batch.input_ids), 32))


class TpModelWorker:
    def __init__(self, server_args):
        self.server_args = server_args
        self.model_runner = ModelRunner(server_args)

    def forward_batch_generation(self, batch: ScheduleBatch, is_verify: bool = False) -> GenerationBatchResult:
        logits = self.model_runner.forward(batch)
        if is_verify:
            return GenerationBatchResult(logits=logits)
        return GenerationBatchResult(next_token_ids=torch.argmax(logits, dim=-1))


class Scheduler:
    def __init__(self, server_args):
        self.server_args = server_args
        self.spec_algorithm = SpeculativeAlgorithm.from_string(server_args.speculative_algorithm)
        self.enable_overlap = not server_args.disable_overlap_schedule
        self.tp_worker = TpModelWorker(server_args)
        self.draft_worker = None
        self.model_worker = self.tp_worker
        if not self.spec_algorithm.is_none():
            DraftWorkerClass = self.spec_algorithm.create_worker(server_args)
            self.draft_worker = DraftWorkerClass(server_args, self.tp_worker)
            self.model_worker = self.draft_worker
        self.waiting_queue = []
        self.running_batch = None
        self.last_batch = None
        self.result_queue = deque()

    def event_loop_overlap(self):
        while True:
            batch = self.get_next_batch_to_run()
            if batch:
                result = self.run_batch(batch)
                self.result_queue.append((batch, result))
            if self.last_batch:
                self.process_batch_result(*self.result_queue.popleft())
            self.last_batch = batch

    def get_next_batch_to_run(self) -> ScheduleBatch | None:
        if self.running_batch is None:
            batch = ScheduleBatch(self.waiting_queue, spec_algorithm=self.spec_algorithm)
            batch.prepare_for_extend()
            self.running_batch = batch
            return batch
        self.running_batch.filter_batch()
        self.running_batch.prepare_for_decode()
        return self.running_batch

    def run_batch(self, batch: ScheduleBatch) -> GenerationBatchResult:
        result = self.model_worker.forward_batch_generation(batch)
        batch.output_ids = result.next_token_ids
        if not self.spec_algorithm.is_none():
            batch.spec_info = result.next_draft_input
            batch.seq_lens = batch.spec_info.new_seq_lens
        return result

    def process_batch_result(self, batch: ScheduleBatch, result: GenerationBatchResult):
        if batch.forward_mode.is_decode():
            self.process_batch_result_decode(batch, result)
        else:
            for req, token in zip(batch.reqs, result.next_token_ids.tolist()):
                req.output_ids.append(token)

    def process_batch_result_decode(self, batch: ScheduleBatch, result: GenerationBatchResult):
        tokens = result.next_token_ids.tolist()
        if batch.spec_algorithm.is_none():
            for req, token in zip(batch.reqs, tokens):
                req.output_ids.append(token)
            return
        accept_lens = result.accept_lens.tolist()
        stride = len(tokens) // len(batch.reqs)
        for i, req in enumerate(batch.reqs):
            req.output_ids.extend(tokens[i * stride : i * stride + accept_lens[i]])
            req.kv_committed_len += accept_lens[i]


def run_scheduler_process(server_args):
    scheduler = Scheduler(server_args)
    scheduler.event_loop_overlap()
'''

WORKER = '''\
"""The worker that speculates, and what it leaves on the batch."""

from __future__ import annotations

import dataclasses

import torch
from sglang.srt.managers.scheduler import ForwardMode, GenerationBatchResult, ScheduleBatch, TpModelWorker


@dataclasses.dataclass
class EagleDraftInput:
    topk_index: torch.Tensor = None
    hidden_states: torch.Tensor = None
    bonus_tokens: torch.Tensor = None
    new_seq_lens: torch.Tensor = None


@dataclasses.dataclass
class EagleVerifyInput:
    draft_token: torch.Tensor
    draft_token_num: int


class EAGLEWorkerV2:
    def __init__(self, server_args, target_worker: TpModelWorker):
        self.server_args = server_args
        self.target_worker = target_worker
        self.speculative_num_steps = server_args.speculative_num_steps
        self.speculative_num_draft_tokens = server_args.speculative_num_draft_tokens

    def forward_batch_generation(self, batch: ScheduleBatch) -> GenerationBatchResult:
        if batch.forward_mode.is_extend():
            result = self.target_worker.forward_batch_generation(batch)
            result.next_draft_input = self.draft_extend(batch, result.next_token_ids)
            return result
        batch.spec_info = self.draft(batch)
        return self.verify(batch)

    def draft(self, batch: ScheduleBatch) -> EagleVerifyInput:
        draft_input: EagleDraftInput = batch.spec_info
        rows = [draft_input.bonus_tokens]
        for _ in range(self.speculative_num_steps):
            rows.append(draft_input.topk_index)
        return EagleVerifyInput(torch.stack(rows, dim=1).flatten(), self.speculative_num_draft_tokens)

    def verify(self, batch: ScheduleBatch) -> GenerationBatchResult:
        verify_input: EagleVerifyInput = batch.spec_info
        batch.input_ids = verify_input.draft_token
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        logits = self.target_worker.forward_batch_generation(batch, is_verify=True).logits
        batch.forward_mode = ForwardMode.DECODE
        predict = torch.argmax(logits, dim=-1)
        accept_lens = torch.ones((len(batch.reqs),), dtype=torch.int32)
        bonus_tokens = predict[:: verify_input.draft_token_num]
        next_draft_input = EagleDraftInput(bonus_tokens=bonus_tokens, new_seq_lens=batch.seq_lens + accept_lens)
        extended = self.draft_extend(batch, bonus_tokens)
        next_draft_input.topk_index = extended.topk_index
        next_draft_input.hidden_states = extended.hidden_states
        return GenerationBatchResult(
            next_token_ids=predict, accept_lens=accept_lens, next_draft_input=next_draft_input
        )

    def draft_extend(self, batch: ScheduleBatch, tokens: torch.Tensor) -> EagleDraftInput:
        return EagleDraftInput(
            topk_index=tokens + 1,
            hidden_states=torch.zeros((len(tokens), 8)),
            bonus_tokens=tokens,
            new_seq_lens=batch.seq_lens,
        )
'''

ARGUMENTS = """\
import dataclasses


@dataclasses.dataclass
class ServerArgs:
    speculative_algorithm: str | None = None
    disable_overlap_schedule: bool = False
    speculative_num_steps: int | None = None
    speculative_num_draft_tokens: int | None = None
"""

FILES = {
    "sglang/__init__.py": "",
    "sglang/version.py": '__version__ = "0.0.0"\n',
    "sglang/srt/server_args.py": ARGUMENTS,
    "sglang/srt/managers/scheduler.py": SCHEDULER,
    "sglang/srt/speculative/eagle_worker_v2.py": WORKER,
}
