"""Field flow on programs of a few lines: what counts as a write, a read, a copy, and what a value is one with."""

from __future__ import annotations

import pytest
from index_support import Resolve, resolve

from sgltrace.index.fields import Access, FieldFlow, field_flow

__all__ = ["resolve"]

BATCH = """
import copy, dataclasses
from dataclasses import dataclass
from typing import List, Optional
import torch
import triton
import triton.language as tl

class Req:
    def __init__(self):
        self.output_ids = []
        self.kv_allocated_len = 0

@dataclass
class ScheduleBatch:
    reqs: List[Req] = None
    seq_lens: torch.Tensor = None
    out_cache_loc: torch.Tensor = None

    def touch(self): pass

@dataclass
class ModelWorkerBatch:
    seq_lens: torch.Tensor
    out_cache_loc: Optional[torch.Tensor] = None

@dataclass
class GenerationBatchResult:
    next_token_ids: torch.Tensor = None
    accept_lens: torch.Tensor = None
    speculative_num_draft_tokens: int = None
"""

# name: (source with ``main(b: ScheduleBatch)``, writes "kind Class.field", reads likewise)
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "assignment and read": (
        "def main(b: ScheduleBatch):\n    b.seq_lens = torch.ones(3)\n    return b.out_cache_loc\n",
        ["assign ScheduleBatch.seq_lens"],
        ["read ScheduleBatch.out_cache_loc"],
    ),
    "a method is no field": (
        "def main(b: ScheduleBatch):\n    b.touch()\n",
        [],
        [],
    ),
    "an argument is passed": (
        "def main(b: ScheduleBatch):\n    len(b.seq_lens)\n",
        [],
        ["pass ScheduleBatch.seq_lens"],
    ),
    "a tuple is unpacked": (
        "def main(b: ScheduleBatch):\n    x, y = b.seq_lens, b.out_cache_loc\n",
        [],
        ["unpack ScheduleBatch.out_cache_loc", "unpack ScheduleBatch.seq_lens"],
    ),
    "targets of a tuple": (
        "def main(b: ScheduleBatch):\n    b.seq_lens, b.out_cache_loc = f()\ndef f(): return 1, 2\n",
        ["assign ScheduleBatch.out_cache_loc", "assign ScheduleBatch.seq_lens"],
        [],
    ),
    "a constructor: keyword, copy and default": (
        "def main(b: ScheduleBatch):\n    return ModelWorkerBatch(seq_lens=b.seq_lens)\n",
        ["copy ModelWorkerBatch.seq_lens", "default ModelWorkerBatch.out_cache_loc"],
        ["pass ScheduleBatch.seq_lens"],
    ),
    "a constructor by position": (
        "def main(b: ScheduleBatch):\n    return ModelWorkerBatch(torch.ones(1), None)\n",
        ["constructor ModelWorkerBatch.out_cache_loc", "constructor ModelWorkerBatch.seq_lens"],
        [],
    ),
    "in place, through an alias and a slice": (
        "def main(b: ScheduleBatch):\n    x = b.seq_lens\n    x[1:].add_(1)\n    b.out_cache_loc[0] = 1\n",
        ["in-place ScheduleBatch.out_cache_loc", "in-place ScheduleBatch.seq_lens"],
        ["pass ScheduleBatch.out_cache_loc", "read ScheduleBatch.seq_lens"],
    ),
    "an alias that was assigned again is none": (
        "def main(b: ScheduleBatch):\n    x = b.seq_lens\n    x = x.clone()\n    x.add_(1)\n",
        [],
        ["read ScheduleBatch.seq_lens"],
    ),
    "an alias of one branch": (
        "def main(b: ScheduleBatch, c):\n    x = torch.ones(1)\n    if c:\n        x = b.seq_lens\n    x.fill_(0)\n",
        ["in-place ScheduleBatch.seq_lens"],
        ["read ScheduleBatch.seq_lens"],
    ),
    "augmented assignment": (
        "def main(b: ScheduleBatch):\n    b.seq_lens += 1\n",
        ["augment ScheduleBatch.seq_lens"],
        ["read ScheduleBatch.seq_lens"],
    ),
    "a loop over requests": (
        "def main(b: ScheduleBatch):\n    for r in b.reqs:\n        r.kv_allocated_len += 1\n"
        "        r.output_ids.append(1)\n",
        ["augment Req.kv_allocated_len", "in-place Req.output_ids"],
        ["read Req.kv_allocated_len", "read Req.output_ids", "read ScheduleBatch.reqs"],
    ),
    "a function that changes what it is given": (
        "def main(b: ScheduleBatch):\n    g(b.seq_lens)\ndef g(x): f(x, 1)\ndef f(y, n): y.add_(n)\n",
        ["in-place ScheduleBatch.seq_lens"],
        ["pass ScheduleBatch.seq_lens"],
    ),
    "a function that only reads": (
        "def main(b: ScheduleBatch):\n    f(b.seq_lens)\ndef f(y):\n    y = y + 1\n    y.add_(1)\n",
        [],
        ["pass ScheduleBatch.seq_lens"],
    ),
    "a kernel that stores through a pointer": (
        "@triton.jit\ndef k(src, out):\n    p = out + tl.program_id(0)\n    tl.store(p, tl.load(src))\n"
        "def main(b: ScheduleBatch):\n    k[(1,)](b.seq_lens, b.out_cache_loc)\n",
        ["kernel ScheduleBatch.out_cache_loc"],
        ["pass ScheduleBatch.out_cache_loc", "pass ScheduleBatch.seq_lens"],
    ),
    "out=": (
        "def main(b: ScheduleBatch):\n    torch.add(1, 2, out=b.seq_lens)\n",
        ["in-place ScheduleBatch.seq_lens"],
        ["pass ScheduleBatch.seq_lens"],
    ),
    "dataclasses.replace": (
        "def main(b: ScheduleBatch):\n    return dataclasses.replace(b, seq_lens=None)\n",
        ["constructor ScheduleBatch.seq_lens"],
        [],
    ),
    "by name, and deleted": (
        "def main(b: ScheduleBatch):\n    setattr(b, 'seq_lens', 1)\n    del b.out_cache_loc\n"
        "    return getattr(b, 'reqs', None)\n",
        ["assign ScheduleBatch.seq_lens", "delete ScheduleBatch.out_cache_loc"],
        ["read ScheduleBatch.reqs"],
    ),
}


def flow_of(resolve: Resolve, source: str) -> FieldFlow:
    return field_flow(resolve(BATCH + source))


def in_function(flow: FieldFlow, name: str) -> list[Access]:
    return [a for f, found in flow.by_function.items() if f.qualname == name for a in found]


@pytest.mark.parametrize("name", CASES)
def test_accesses(resolve: Resolve, name: str) -> None:
    source, writes, reads = CASES[name]
    found = in_function(flow_of(resolve, source), "main")
    shown = [(a.is_write, f"{a.kind} {a.cls.name}.{a.field}") for a in found]
    assert sorted({text for written, text in shown if written}) == writes
    assert sorted({text for written, text in shown if not written}) == reads


def test_an_access_knows_line_guards_and_expression(resolve: Resolve) -> None:
    flow = flow_of(resolve, "def main(b: ScheduleBatch, n):\n    if n > 1:\n        b.seq_lens = n * 2\n")
    (write,) = flow.find("ScheduleBatch.seq_lens")[0].writes
    assert write.expression == "n * 2"
    assert [(c.guard.text, c.guard.holds) for c in flow.guards(write)] == [("n > 1", True)]
    assert write.line == BATCH.count("\n") + 3


def test_a_field_is_found_by_class_and_by_role(resolve: Resolve) -> None:
    flow = flow_of(resolve, "def main(b: ScheduleBatch):\n    b.seq_lens = 1\n")
    assert flow.find("ScheduleBatch.seq_lens") == flow.find("scheduler_batch.seq_lens") == flow.find("seq_lens")
    assert flow.find("Req.seq_lens") == []


def test_origins_go_through_parameters_and_returns(resolve: Resolve) -> None:
    source = (
        "def main(b: ScheduleBatch):\n    w = ModelWorkerBatch(seq_lens=None)\n    put(w, pick(b))\n"
        "def pick(b: ScheduleBatch): return b.seq_lens\n"
        "def put(w: ModelWorkerBatch, x):\n    w.seq_lens = x\n"
    )
    flow = flow_of(resolve, source)
    (write,) = [a for a in in_function(flow, "put") if a.is_write]
    assert [(a.cls.name, a.field, a.function.name) for a in flow.origins(write)] == [
        ("ScheduleBatch", "seq_lens", "pick")
    ]


def test_a_subclass_shares_its_base_field(resolve: Resolve) -> None:
    source = "class More(ScheduleBatch): pass\ndef main(b: More):\n    b.seq_lens = 1\n    return b.seq_lens\n"
    flow = flow_of(resolve, source)
    assert [uses.name for uses in flow.find("seq_lens")] == ["ScheduleBatch.seq_lens"]


STRIDED = """
class EAGLEWorkerV2:
    def __init__(self):
        self.speculative_num_draft_tokens = 4

class Scheduler:
    def __init__(self):
        self.draft_worker = EAGLEWorkerV2()

    def split(self, result: GenerationBatchResult, b: ScheduleBatch):
        ids = result.next_token_ids.tolist()
        stride = {stride}
        return [ids[i * stride : i * stride + 2] for i in range(3)]

def width(result: GenerationBatchResult):
    return result.speculative_num_draft_tokens

def main(r: GenerationBatchResult, b: ScheduleBatch): Scheduler().split(r, b)
"""


@pytest.mark.parametrize(
    ("stride", "carried", "where"),
    [
        ("self.draft_worker.speculative_num_draft_tokens", False, "EAGLEWorkerV2"),
        ("result.speculative_num_draft_tokens", True, "GenerationBatchResult"),
        ("width(result)", True, "GenerationBatchResult"),
    ],
)
def test_a_stride_is_carried_or_read_late(resolve: Resolve, stride: str, carried: bool, where: str) -> None:
    (read,) = flow_of(resolve, STRIDED.format(stride=stride)).strided
    assert read.carried is carried
    assert {a.cls.name for a in read.stride_from} == {where}
    assert {a.field for a in read.read} == {"next_token_ids"}


def test_a_plain_index_is_no_stride(resolve: Resolve) -> None:
    assert flow_of(resolve, "def main(b: ScheduleBatch):\n    return b.seq_lens[2 * 3 : 7]\n").strided == []
