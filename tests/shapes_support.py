"""Interprets a function of a small program, and says what its variables are."""

from __future__ import annotations

from typing import Any

from sgltrace.index.fields import field_flow
from sgltrace.index.program import Program
from sgltrace.index.shapes.interpreter import calls
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.interpreter.machine import Machine
from sgltrace.index.shapes.interpreter.stages import Stages
from sgltrace.index.shapes.interpreter.vocabulary import shape_vocabulary
from sgltrace.index.shapes.symbolic.formulas import shape_text

BATCH = """
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import List, Optional
import copy, dataclasses
import torch
import torch.nn.functional as F
import numpy as np
import triton

class ForwardMode(Enum):
    DECODE = auto()
    TARGET_VERIFY = auto()

    def is_decode(self):
        return self == ForwardMode.DECODE

@dataclass
class ServerArgs:
    speculative_eagle_topk: int = 1
    speculative_num_steps: int = 3
    speculative_num_draft_tokens: int = 4
    page_size: int = 1
    enable_lora: Optional[bool] = None

class Req:
    def __init__(self):
        self.kv_committed_len = 0
        self.finished_reason = None

@dataclass
class ScheduleBatch:
    reqs: List[Req] = None
    seq_lens: torch.Tensor = None
    req_pool_indices: torch.Tensor = None
    forward_mode: ForwardMode = None
    out_cache_loc: Optional[torch.Tensor] = None
    enable_overlap: bool = False

    def batch_size(self):
        return len(self.reqs)
"""


class EveryPhase:
    """Every function runs all the time."""

    def runs(self, *_: Any) -> bool:
        return True


def machine_for(program: Program, path: str = "v2") -> Machine:
    program.phases = EveryPhase()  # type: ignore[assignment]
    return Machine(program, field_flow(program), path, Stages(shape_vocabulary().step))


def shapes_in(program: Program, function: str = "main", path: str = "v2") -> dict[str, str | None]:
    """The variables of a function after it ran, as text."""
    machine = machine_for(program, path)
    found = program.find_functions(function)[0]
    frame = Frame(found, lazy=True)
    kwargs = {p.name: machine.by_type(found, p) for p in found.parameters}
    calls.call_function(machine, frame, machine.function_ref(found, None), [], kwargs, 1)
    ran = machine.frames[found]
    return {name: shape_text(machine.view(value)) for name, value in machine.store.under(ran.number)}
