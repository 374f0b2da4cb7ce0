"""A whole decode step of a small engine: prepare, draft, verify, draft-extend, relay; and its graph buffers."""

from __future__ import annotations

from pathlib import Path

import pytest
from index_support import sources
from trees import write_tree

from sgltrace.index import IndexOptions, analyse
from sgltrace.index.fields import field_flow
from sgltrace.index.program import Program
from sgltrace.index.shapes import Shapes
from sgltrace.index.shapes.field_rows import index_fields
from sgltrace.model import Tensor
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source

STATE = """
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import List, Optional
import torch


class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND_V2 = auto()


class SpeculativeAlgorithm(Enum):
    NONE = auto()
    EAGLE = auto()

    def is_none(self):
        return self == SpeculativeAlgorithm.NONE

    def is_eagle(self):
        return self == SpeculativeAlgorithm.EAGLE

    @classmethod
    def from_string(cls, name):
        return SpeculativeAlgorithm[name]

    def create_worker(self, server_args):
        enable_overlap = not server_args.disable_overlap_schedule
        if self.is_eagle():
            from sglang.srt.speculative.worker import EAGLEWorkerV2

            if enable_overlap:
                return EAGLEWorkerV2
        raise ValueError


@dataclass
class ServerArgs:
    speculative_algorithm: Optional[str] = None
    speculative_eagle_topk: Optional[int] = None
    speculative_num_steps: Optional[int] = None
    speculative_num_draft_tokens: Optional[int] = None
    disable_overlap_schedule: bool = False


class Req:
    def __init__(self, ids):
        self.fill_ids = ids
        self.output_ids = []


@dataclass
class EagleDraftInput:
    topk_p: torch.Tensor = None
    verified_id: torch.Tensor = None


@dataclass
class EagleVerifyInput:
    draft_token: torch.Tensor
    draft_token_num: int


@dataclass
class GenerationBatchResult:
    next_token_ids: torch.Tensor = None
    accept_lens: torch.Tensor = None
    next_draft_input: Optional[EagleDraftInput] = None


@dataclass
class LogitsProcessorOutput:
    next_token_logits: torch.Tensor
    hidden_states: Optional[torch.Tensor] = None


@dataclass
class ScheduleBatch:
    reqs: List[Req]
    forward_mode: ForwardMode = None
    input_ids: torch.Tensor = None
    seq_lens: torch.Tensor = None
    out_cache_loc: torch.Tensor = None
    spec_info: Optional[EagleDraftInput] = None

    def prepare_for_extend(self):
        self.forward_mode = ForwardMode.EXTEND
        self.seq_lens = torch.tensor([len(r.fill_ids) for r in self.reqs])
        self.spec_info = EagleDraftInput(
            topk_p=torch.zeros(len(self.reqs), 3), verified_id=torch.zeros(len(self.reqs))
        )

    def prepare_for_decode(self):
        self.forward_mode = ForwardMode.DECODE


@dataclass
class ForwardBatch:
    forward_mode: ForwardMode
    input_ids: torch.Tensor

    @classmethod
    def init_new(cls, batch: ScheduleBatch):
        return cls(forward_mode=batch.forward_mode, input_ids=batch.input_ids)
"""
SCHEDULER = """
from sglang.srt.managers.state import *


class Scheduler:
    def __init__(self, server_args: ServerArgs):
        self.server_args = server_args
        self.spec_algorithm = SpeculativeAlgorithm.from_string(server_args.speculative_algorithm)
        self.enable_overlap = not server_args.disable_overlap_schedule
        if self.spec_algorithm.is_none():
            self.draft_worker = None
        else:
            WorkerClass = self.spec_algorithm.create_worker(server_args)
            self.draft_worker = WorkerClass(server_args)

    def event_loop_overlap(self):
        while True:
            batch = self.get_next_batch_to_run()
            result = self.run_batch(batch)
            self.process_batch_result(batch, result)

    def get_next_batch_to_run(self) -> ScheduleBatch:
        batch = ScheduleBatch(reqs=[Req([1])])
        batch.prepare_for_extend()
        batch.prepare_for_decode()
        return batch

    def run_batch(self, batch: ScheduleBatch) -> GenerationBatchResult:
        result = self.draft_worker.forward_batch_generation(batch)
        batch.spec_info = result.next_draft_input
        return result

    def process_batch_result(self, batch: ScheduleBatch, result: GenerationBatchResult):
        ids = result.next_token_ids.tolist()
        stride = self.draft_worker.speculative_num_draft_tokens
        for i, req in enumerate(batch.reqs):
            req.output_ids.extend(ids[i * stride : i * stride + 1])


def run_scheduler_process(server_args: ServerArgs):
    Scheduler(server_args).event_loop_overlap()
"""
WORKER = """
from sglang.srt.managers.state import *


class LogitsProcessor:
    def __init__(self, config):
        self.config = config

    def forward(self, input_ids, hidden_states, lm_head, batch: ForwardBatch):
        logits = torch.matmul(hidden_states, lm_head.weight.T)
        return LogitsProcessorOutput(logits[:, : self.config.vocab_size], hidden_states)


class ModelRunner:
    def __init__(self, server_args: ServerArgs, is_draft_worker: bool = False):
        self.server_args = server_args
        self.is_draft_worker = is_draft_worker
        self.model = load(server_args)
        self.graph_runner = CudaGraphRunner(self)

    def forward(self, batch: ForwardBatch):
        self.graph_runner.fill(batch)
        return self.model.forward(batch.input_ids, batch)


class CudaGraphRunner:
    def __init__(self, model_runner: ModelRunner):
        self.width = 1
        if not model_runner.is_draft_worker:
            self.width = model_runner.server_args.speculative_num_draft_tokens
        self.max_bs = max(sizes())
        self.input_ids = torch.zeros((self.max_bs * self.width,), dtype=torch.int64)

    def fill(self, batch: ForwardBatch):
        self.input_ids[: batch.input_ids.shape[0]].copy_(batch.input_ids)


class EAGLEWorkerV2:
    def __init__(self, server_args: ServerArgs):
        self.topk = server_args.speculative_eagle_topk
        self.speculative_num_steps = server_args.speculative_num_steps
        self.speculative_num_draft_tokens = server_args.speculative_num_draft_tokens
        self.target = ModelRunner(server_args)
        self.draft_runner = ModelRunner(server_args, is_draft_worker=True)

    def forward_batch_generation(self, batch: ScheduleBatch) -> GenerationBatchResult:
        batch.spec_info = self.draft(batch)
        result = self.verify(batch)
        self.extend(batch, result)
        return result

    def draft(self, batch: ScheduleBatch) -> EagleVerifyInput:
        bs = len(batch.seq_lens)
        batch.out_cache_loc = torch.empty((bs * self.topk * self.speculative_num_steps,), dtype=torch.int64)
        tokens = []
        for i in range(self.speculative_num_steps):
            batch.input_ids = torch.zeros(bs * self.topk, dtype=torch.int64)
            logits = self.draft_runner.forward(ForwardBatch.init_new(batch)).next_token_logits
            tokens.append(torch.topk(logits, 1, dim=-1).indices.reshape(bs, self.topk))
        found = torch.topk(torch.cat(tokens, dim=1), self.speculative_num_draft_tokens - 1).indices
        first = batch.spec_info.verified_id.unsqueeze(1)
        return EagleVerifyInput(torch.cat((first, found), dim=1).flatten(), self.speculative_num_draft_tokens)

    def verify(self, batch: ScheduleBatch) -> GenerationBatchResult:
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        info: EagleVerifyInput = batch.spec_info
        batch.input_ids = info.draft_token
        batch.out_cache_loc = torch.empty((len(batch.seq_lens) * info.draft_token_num,), dtype=torch.int64)
        logits = self.target.forward(ForwardBatch.init_new(batch)).next_token_logits
        accepted = torch.ones(len(batch.seq_lens), dtype=torch.int32)
        draft_input = EagleDraftInput(verified_id=torch.empty_like(accepted))
        return GenerationBatchResult(torch.argmax(logits, dim=-1), accepted, draft_input)

    def extend(self, batch: ScheduleBatch, result: GenerationBatchResult):
        batch.forward_mode = ForwardMode.DRAFT_EXTEND_V2
        batch.input_ids = result.next_token_ids
        output = self.draft_runner.forward(ForwardBatch.init_new(batch))
        rows = torch.arange(len(batch.seq_lens)) * self.speculative_num_draft_tokens + result.accept_lens - 1
        result.next_draft_input.topk_p = torch.topk(output.next_token_logits[rows], self.topk).values
"""
FILES = {"managers.state": STATE, "managers.scheduler": SCHEDULER, "speculative.worker": WORKER}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder: Path = tmp_path_factory.mktemp("engine")
    write_tree(folder, sources(FILES))
    tree = open_source(str(folder), cache_dir=folder / "cache", progress=SilentProgress())
    return analyse(tree, IndexOptions(cache_dir=None, jobs=1), SilentProgress())


@pytest.fixture(scope="module")
def shapes(program: Program) -> Shapes:
    return Shapes(program, field_flow(program))


def shape(tensors: list[Tensor], stage: str, name: str) -> set[str | None]:
    return {t.shape for t in tensors if (t.stage, t.name) == (stage, name)}


@pytest.mark.parametrize(
    ("stage", "name", "expected"),
    [
        ("draft", "out_cache_loc", "(bs*num_steps*topk,)"),
        ("draft step", "input_ids", "(bs*topk,)"),
        ("verify input", "draft_token", "(bs*num_draft_tokens,)"),
        ("verify", "out_cache_loc", "(bs*num_draft_tokens,)"),
        ("verify", "input_ids", "(bs*num_draft_tokens,)"),
        ("verify out", "next_token_logits", "(bs*num_draft_tokens, vocab_size)"),
        ("verify out", "hidden_states", "(bs*num_draft_tokens, hidden_size)"),
        ("verify out", "next_token_ids", "(bs*num_draft_tokens,)"),
        ("verify out", "accept_lens", "(bs,)"),
        ("draft-extend out", "next_token_logits", "(bs*num_draft_tokens, draft_vocab_size)"),
        ("draft-extend out", "topk_p", "(bs, topk)"),
        ("graph buffers", "input_ids", "(max_bs*num_draft_tokens,)"),
    ],
)
def test_stages(shapes: Shapes, stage: str, name: str, expected: str) -> None:
    assert expected in shape(shapes.tensors(), stage, name)


def test_a_tensor_has_stride_dtype_producer_and_consumers(shapes: Shapes) -> None:
    (found,) = [t for t in shapes.tensors() if (t.stage, t.name) == ("verify out", "next_token_ids")]
    assert (found.path, found.cls, found.field) == ("v2", "GenerationBatchResult", "next_token_ids")
    assert (found.stride, found.dtype) == ("i*num_draft_tokens", "int64")
    assert found.producer.function == "sglang.srt.speculative.worker:EAGLEWorkerV2.verify"
    readers = {use.function.rpartition(".")[2] for use in found.consumers}
    assert {"extend", "process_batch_result"} <= readers


def test_a_row_is_of_a_tensor_and_there_once(shapes: Shapes) -> None:
    rows = [(t.path, t.stage, t.cls, t.name, t.shape, t.dtype, t.stride) for t in shapes.tensors()]
    assert len(rows) == len(set(rows))
    assert not [t.name for t in shapes.tensors() if t.dtype == "int"]


def test_a_graph_s_buffer_is_taken_by_what_fills_and_reads_it(shapes: Shapes) -> None:
    (found,) = [t for t in shapes.tensors() if (t.stage, t.name) == ("graph buffers", "input_ids")]
    assert {use.function.rpartition(":")[2] for use in found.consumers} == {"CudaGraphRunner.fill"}


def test_the_same_program_gives_the_same_list(program: Program, shapes: Shapes) -> None:
    assert Shapes(program, field_flow(program)).tensors() == shapes.tensors()


def test_questions_about_expressions_and_accesses(program: Program, shapes: Shapes) -> None:
    (draft,) = program.find_functions("EAGLEWorkerV2.draft")
    found = next(statement.value for statement in draft.body if getattr(statement, "targets", None))
    assert shapes.shape_of(found, draft, "v2") == "bs"
    assert shapes.shape_of(found, draft, "v1") is None
    writes = {a.function.name: a for a in shapes.flow.find("ScheduleBatch.out_cache_loc")[0].writes}
    assert shapes.shape_at(writes["draft"], "v2") == "(bs*num_steps*topk,)"
    assert shapes.shape_at(writes["verify"], "v2") == "(bs*num_draft_tokens,)"


def test_the_index_lists_fields_with_phases_paths_and_shapes(program: Program, shapes: Shapes) -> None:
    fields = {(f.cls.rpartition(":")[2], f.field): f for f in index_fields(program, shapes.flow, shapes)}
    field = fields["ScheduleBatch", "out_cache_loc"]
    assert field.role == "scheduler_batch"
    assert [(w.function.rpartition(".")[2], w.shape) for w in field.writes if w.kind == "assign"] == [
        ("draft", "(bs*num_steps*topk,)"),
        ("verify", "(bs*num_draft_tokens,)"),
    ]
    assert all("every step" in w.phase and "v2" in w.paths for w in field.writes if w.kind == "assign")


def test_binding_times(shapes: Shapes) -> None:
    flow = shapes.flow
    (worker,) = flow.find("EAGLEWorkerV2.topk")
    assert flow.binding.of_field(worker) == "process start"
    (tokens,) = flow.find("GenerationBatchResult.next_token_ids")
    assert flow.binding.of_field(tokens) == "every step"
    (count,) = [w for w in flow.find("EagleVerifyInput.draft_token_num")[0].writes if w.kind != "default"]
    assert flow.binding.of_write(count) == "process start"
