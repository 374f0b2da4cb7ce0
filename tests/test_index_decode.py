"""What a decode step takes: conditions on the forward mode, and call paths shown as evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from index_support import Resolve, resolve
from test_index_roles import ENGINE, tree_of

from sgltrace.index import IndexOptions, build
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.parse import parse_source
from sgltrace.index.program.modes import DecodeModes
from sgltrace.index.program.vocabulary import roles
from sgltrace.insight.query import CallGraph
from sgltrace.progress import SilentProgress

__all__ = ["resolve"]

MODES = """
from enum import IntEnum, auto
class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    MIXED = auto()
    IDLE = auto()
    TARGET_VERIFY = auto()
    SPLIT_PREFILL = auto()
    def is_split_prefill(self): return self == ForwardMode.SPLIT_PREFILL
    def is_mixed(self): return self in (ForwardMode.MIXED, ForwardMode.EXTEND)
    def is_decode(self): return self == ForwardMode.DECODE
    def is_new(self, with_verify: bool = False):
        return self == ForwardMode.EXTEND or (with_verify and self == ForwardMode.TARGET_VERIFY)
    def is_fresh(self): return not self.is_new(with_verify=True) and not self.is_new()
    def is_prompt(self): return self.is_mixed() or self.is_split_prefill()
def main(): ForwardMode.DECODE.is_decode()
"""


@pytest.mark.parametrize(
    ("test", "answer"),
    [
        ("batch.forward_mode.is_split_prefill()", False),
        ("batch.forward_mode.is_prompt()", False),
        ("mode.is_mixed()", False),
        ("mode.is_decode()", None),
        ("mode.is_new()", False),
        ("mode.is_new(True)", None),
        ("mode.is_fresh()", None),
        ("mode == ForwardMode.EXTEND", False),
        ("mode != ForwardMode.EXTEND", True),
        ("mode == ForwardMode.IDLE", None),
        ("mode.is_full()", None),
    ],
)
def test_what_a_decode_step_knows_of_its_mode(test: str, answer: bool | None, resolve: Resolve):
    [statement] = parse_source(f"x = {test}\n").body
    assert isinstance(statement, s.Assign)
    assert DecodeModes(resolve(MODES), roles()).truth(statement.value) is answer


def test_a_path_goes_where_a_decode_can(tmp_path: Path):
    files = {
        **ENGINE,
        "modes": MODES,
        "worker": ENGINE["worker"].replace(
            "            def forward_batch_generation(self, batch): self.runner.replay()",
            """
            def forward_batch_generation(self, batch): self.step()
            def step(self): self.runner.replay()
            def forward_batch_embedding(self, batch): self.runner.replay()
            def forward_batch_split_prefill(self, batch): self.runner.replay()""",
        ),
        "managers.scheduler": ENGINE["managers.scheduler"].replace(
            "                self.draft_worker.forward_batch_generation(batch)",
            """
                from sglang.srt.modes import ForwardMode
                batch.forward_mode = ForwardMode.DECODE
                if self.is_generation:
                    if batch.forward_mode.is_split_prefill():
                        self.tp_worker.forward_batch_split_prefill(batch)
                    else:
                        self.tp_worker.forward_batch_generation(batch)
                else:
                    self.tp_worker.forward_batch_embedding(batch)""",
        ),
    }
    index = build(tree_of(tmp_path, files), IndexOptions(cache_dir=None, jobs=1), SilentProgress())
    graph = CallGraph(index)
    path = graph.shortest_path(graph.find("run_batch"), graph.find("replay"))
    assert path is not None
    assert [edge.callee.rpartition(".")[2] for edge in path] == ["forward_batch_generation", "step", "replay"]
    around = graph.shortest_path(graph.find("run_batch"), graph.find("forward_batch_embedding"))
    assert around is not None and not around[0].decode


def test_no_path_leads_through_a_decorator_that_others_share(tmp_path: Path):
    scheduler = ENGINE["managers.scheduler"]
    for name in ("admit", "run_batch"):
        scheduler = scheduler.replace(f"            def {name}(", f"            @staged\n            def {name}(")
    files = {
        **ENGINE,
        "managers.scheduler": "        from sglang.srt.stage import staged\n" + scheduler,
        "stage": """
            import functools
            def staged(f):
                @functools.wraps(f)
                def call(*args, **kwargs): return f(*args, **kwargs)
                return call
            """,
    }
    graph = CallGraph(build(tree_of(tmp_path, files), IndexOptions(cache_dir=None, jobs=1), SilentProgress()))
    wrapper, step = graph.find("staged.call"), graph.find("Scheduler.run_batch")
    taking = graph.find("process_input_requests")
    assert graph.shortest_path(taking, wrapper) is not None
    assert graph.shortest_path(wrapper, step) is not None
    assert graph.shortest_path(taking, step) is None
