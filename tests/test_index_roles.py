"""Entry points by role, paths and phases, on a small engine of SGLang's shape."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from index_support import sources
from trees import write_tree

from sgltrace.errors import InputError, UsageError
from sgltrace.index import IndexOptions, Program, analyse, build
from sgltrace.insight.assemble import make_index
from sgltrace.insight.points import select
from sgltrace.insight.state import contract_of
from sgltrace.insight.summary import lines, summarise
from sgltrace.progress import SilentProgress
from sgltrace.sources import SourceTree, open_source

ENGINE = {
    "managers.scheduler": """
        from sglang.srt.spec.algorithm import Algorithm
        from sglang.srt.worker import TpWorker

        def run_scheduler_process(args):
            scheduler = Scheduler(args)
            if scheduler.enable_overlap:
                scheduler.event_loop_overlap()
            else:
                scheduler.event_loop_normal()

        class Scheduler:
            def __init__(self, args):
                self.enable_overlap = args.overlap
                self.spec_algorithm = Algorithm.EAGLE
                self.tp_worker = TpWorker()
                self.init_draft()

            def init_draft(self):
                if self.spec_algorithm.is_none():
                    self.draft_worker = None
                    return
                Worker = self.spec_algorithm.create_worker(self.enable_overlap)
                self.draft_worker = Worker(self.tp_worker)

            def event_loop_normal(self):
                while True:
                    self.process_input_requests(self.recv_requests())
                    self.run_batch(None)

            def event_loop_overlap(self):
                while True:
                    self.process_input_requests(self.recv_requests())
                    self.run_batch(None)
                    self.relay()

            def recv_requests(self): return []
            def process_input_requests(self, reqs): self.admit()
            def admit(self): pass
            def relay(self): pass
            def run_batch(self, batch):
                self.draft_worker.forward_batch_generation(batch)
        """,
    "spec.algorithm": """
        from enum import Enum, auto
        class Algorithm(Enum):
            NONE = auto()
            EAGLE = auto()
            NGRAM = auto()
            def is_none(self): return self == Algorithm.NONE
            def is_eagle(self): return self == Algorithm.EAGLE
            def is_ngram(self): return self == Algorithm.NGRAM
            def create_worker(self, enable_overlap):
                if self.is_eagle():
                    if enable_overlap:
                        from sglang.srt.spec.v2 import EagleWorkerV2
                        return EagleWorkerV2
                    from sglang.srt.spec.v1 import EagleWorker
                    return EagleWorker
                elif self.is_ngram():
                    from sglang.srt.spec.ngram import NgramWorker
                    return NgramWorker
                raise ValueError
        """,
    "worker": """
        class TpWorker:
            def __init__(self): self.runner = GraphRunner()
            def forward_batch_generation(self, batch): self.runner.replay()
        class GraphRunner:
            def __init__(self): self.capture()
            def capture(self): self.run_once()
            def run_once(self): self.model_forward()
            def replay(self): self.model_forward()
            def model_forward(self): pass
        """,
    "spec.v1": """
        from sglang.srt.worker import TpWorker
        class EagleWorker(TpWorker):
            def __init__(self, target):
                super().__init__()
                self.target = target
            def forward_batch_generation(self, batch):
                self.draft()
                self.target.forward_batch_generation(batch)
            def draft(self): pass
        """,
    "spec.v2": """
        class EagleWorkerV2:
            def __init__(self, target):
                self.target = target
                self.draft_part = DraftPart()
            def forward_batch_generation(self, batch):
                self.draft_part.draft()
                self.target.forward_batch_generation(batch)
        class DraftPart:
            def draft(self): pass
        """,
    "spec.ngram": """
        class NgramWorker:
            def __init__(self, target): self.target = target
            def forward_batch_generation(self, batch): self.lookup()
            def lookup(self): pass
        """,
}


def tree_of(folder: Path, files: dict[str, str]) -> SourceTree:
    write_tree(folder, sources(files))
    return open_source(str(folder), cache_dir=folder / "cache", progress=SilentProgress())


def analysed(folder: Path, files: dict[str, str] = ENGINE) -> Program:
    return analyse(tree_of(folder, files), IndexOptions(cache_dir=None, jobs=1), SilentProgress())


def one(program: Program, name: str):
    [found] = program.find_functions(name)
    return found


def test_workers_and_entry_points(tmp_path: Path):
    index = build(tree_of(tmp_path, ENGINE), IndexOptions(cache_dir=None, jobs=1), SilentProgress())
    assert index.entry_points == {
        "v1": "sglang.srt.spec.v1:EagleWorker.forward_batch_generation",
        "v2": "sglang.srt.spec.v2:EagleWorkerV2.forward_batch_generation",
    }
    assert [(w.cls.split(":")[1], w.path, w.algorithms, w.overlap) for w in index.workers] == [
        ("NgramWorker", None, ["NGRAM"], None),
        ("EagleWorker", "v1", ["EAGLE"], False),
        ("EagleWorkerV2", "v2", ["EAGLE"], True),
    ]
    assert [loop.rpartition(".")[2] for loop in index.event_loops] == ["event_loop_normal", "event_loop_overlap"]
    assert index.processes == ["sglang.srt.managers.scheduler:run_scheduler_process"]


def test_a_path_that_a_release_lacks_is_null_and_noted(tmp_path: Path):
    algorithm = """
        from enum import Enum, auto
        class Algorithm(Enum):
            EAGLE = auto()
            def is_none(self): return False
            def is_eagle(self): return True
            def create_worker(self, enable_overlap):
                if self.is_eagle():
                    from sglang.srt.spec.v2 import EagleWorkerV2
                    return EagleWorkerV2
        """
    program = analysed(tmp_path, {**ENGINE, "spec.algorithm": algorithm})
    assert program.cast.entry_points["v1"] is None
    assert program.cast.entry_points["v2"] == "sglang.srt.spec.v2:EagleWorkerV2.forward_batch_generation"
    assert any("v1 is absent" in note for note in program.cast.notes)


def test_a_worker_that_is_a_target_worker_is_v1(tmp_path: Path):
    algorithm = (
        ENGINE["spec.algorithm"].replace("if enable_overlap:", "if False:").replace("return EagleWorkerV2", "pass")
    )
    program = analysed(tmp_path, {**ENGINE, "spec.algorithm": algorithm})
    assert program.cast.entry_points["v1"] == "sglang.srt.spec.v1:EagleWorker.forward_batch_generation"
    assert program.cast.entry_points["v2"] is None


# The scheduler's choice between the two workers, in one statement; the second worker inherits from the first.
CHOICES = {
    "a conditional expression": "Worker = EagleWorkerV2 if self.enable_overlap else EagleWorker",
    "its negation": "Worker = EagleWorker if not self.enable_overlap else EagleWorkerV2",
    "one that is called at once": "return (EagleWorkerV2 if self.enable_overlap else EagleWorker)(self.tp_worker)",
    "and, or": "Worker = self.enable_overlap and EagleWorkerV2 or EagleWorker",
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_workers_that_are_chosen_in_one_expression(tmp_path: Path, choice: str):
    choice, returned = (choice, "Worker(self.tp_worker)") if "return" not in choice else ("pass", choice[7:])
    scheduler = textwrap.dedent(ENGINE["managers.scheduler"])
    a, b = scheduler.index("    def init_draft"), scheduler.index("    def event_loop_normal")
    init = f"""
    def init_draft(self):
        self.draft_worker = self.make() if self.spec_algorithm.is_eagle() else None
    def make(self):
        from sglang.srt.spec.v1 import EagleWorker
        from sglang.srt.spec.v2 import EagleWorkerV2
        if self.spec_algorithm.is_eagle():
            {choice}
            return {returned}

"""
    second = """
        from sglang.srt.spec.v1 import EagleWorker
        class EagleWorkerV2(EagleWorker):
            def forward_batch_generation(self, batch): self.draft()
        """
    files = {**ENGINE, "managers.scheduler": scheduler[:a] + init + scheduler[b:], "spec.v2": second}
    program = analysed(tmp_path, files)
    assert program.cast.entry_points == {
        "v1": "sglang.srt.spec.v1:EagleWorker.forward_batch_generation",
        "v2": "sglang.srt.spec.v2:EagleWorkerV2.forward_batch_generation",
    }


BROKEN = "<<<<<<< HEAD\n"


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("managers.scheduler", "no scheduler process found"),
        ("spec.algorithm", "no speculative worker found"),
    ],
)
def test_what_is_missing_for_a_broken_file_is_not_said_to_be_missing(tmp_path: Path, module: str, said: str):
    broken = textwrap.dedent(ENGINE[module]) + BROKEN
    with pytest.raises(InputError, match=said) as caught:
        analysed(tmp_path, {**ENGINE, module: broken})
    line = broken.count("\n")
    assert f"sglang/srt/{module.replace('.', '/')}.py (line {line}: " in str(caught.value)
    assert "release" not in str(caught.value) and "mend that" in str(caught.value)


@pytest.mark.parametrize(("broken", "path", "other"), [("spec.v2", "v2", "v1"), ("spec.v1", "v1", "v2")])
def test_a_path_whose_worker_cannot_be_read_is_unknown(tmp_path: Path, broken: str, path: str, other: str):
    files = {**ENGINE, broken: textwrap.dedent(ENGINE[broken]) + BROKEN}
    index = build(tree_of(tmp_path, files), IndexOptions(cache_dir=None, jobs=1), SilentProgress())
    assert index.entry_points[path] is None and index.entry_points[other] is not None
    assert f"sglang/srt/spec/{path}.py (line " in index.unknown_paths[path]
    assert not any("absent" in note and "unknown" not in note for note in index.notes)
    told = dict(lines(summarise(index, "")))
    assert told[f"path {path}"].startswith("unknown: ")
    for ask in (contract_of, select):
        with pytest.raises(UsageError, match=f"whether sglang of unknown version has a path {path} is unknown: "):
            ask(index, path)


def test_a_broken_file_that_names_no_part_leaves_absence_as_it_is(tmp_path: Path):
    index = build(
        tree_of(tmp_path, {**ENGINE, "spec.ngram": BROKEN}), IndexOptions(cache_dir=None, jobs=1), SilentProgress()
    )
    assert index.unknown_paths == {} and [skipped.file for skipped in index.skipped] == ["sglang/srt/spec/ngram.py"]


@pytest.mark.parametrize(
    ("function", "phases", "paths"),
    [
        ("Scheduler.__init__", ["process start"], ["v1", "v2"]),
        ("EagleWorkerV2.__init__", ["process start"], ["v2"]),
        ("EagleWorker.draft", ["every step"], ["v1"]),
        ("DraftPart.draft", ["every step"], ["v2"]),
        ("EagleWorkerV2.forward_batch_generation", ["every step"], ["v2"]),
        ("TpWorker.forward_batch_generation", ["every step"], ["v1", "v2"]),
        ("GraphRunner.capture", ["graph capture"], ["v1", "v2"]),
        ("GraphRunner.replay", ["every step"], ["v1", "v2"]),
        ("GraphRunner.model_forward", ["graph capture", "every step"], ["v1", "v2"]),
        ("Scheduler.admit", ["request admission"], ["v1", "v2"]),
        ("Scheduler.event_loop_normal", ["every step"], ["v1"]),
        ("Scheduler.relay", ["every step"], ["v2"]),
        ("NgramWorker.lookup", ["every step"], []),
    ],
)
def test_phases_and_paths(function: str, phases: list[str], paths: list[str], tmp_path: Path):
    program = analysed(tmp_path)
    found = one(program, function)
    assert (program.phases.phases(found), program.phases.paths(found)) == (phases, paths)


def test_without_a_scheduler_or_a_speculative_worker_there_is_no_index(tmp_path: Path):
    with pytest.raises(InputError, match="no scheduler process found"):
        analysed(tmp_path / "a", {"m": "def main(): pass\n"})
    plain = textwrap.dedent(ENGINE["managers.scheduler"]).replace("self.init_draft()", "pass")
    with pytest.raises(InputError, match="no speculative worker"):
        analysed(tmp_path / "b", {**ENGINE, "managers.scheduler": plain})


def test_the_same_tree_gives_the_same_index(tmp_path: Path):
    import msgspec

    tree = tree_of(tmp_path, ENGINE)
    first, second = (
        msgspec.json.encode(build(tree, IndexOptions(cache_dir=tmp_path / "facts", jobs=jobs), SilentProgress()))
        for jobs in (1, 2)
    )
    assert first == second


def test_a_file_that_does_not_parse_is_skipped(tmp_path: Path):
    files = {**ENGINE, "spec.ngram": "class NgramWorker(:\n"}
    program = analysed(tmp_path, files)
    assert list(program.engine.modules.skipped) == ["sglang/srt/spec/ngram.py"]
    assert program.cast.entry_points["v2"] is not None


def test_whole_reads_what_nothing_calls(tmp_path: Path):
    files = {**ENGINE, "tools": "def unused(): helper()\ndef helper(): pass\n"}
    options = IndexOptions(whole=("sglang.srt",), cache_dir=None, jobs=1)
    index = build(tree_of(tmp_path, files), options, SilentProgress())
    assert ("sglang.srt.tools:unused", "sglang.srt.tools:helper") in {(c.caller, c.callee) for c in index.calls}
    assert next(f for f in index.functions if f.id == "sglang.srt.tools:unused").phase == []


def _calls_made(tree: SourceTree) -> int:
    """How many calls of Python's an index takes."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        make_index(tree, IndexOptions(cache_dir=None, jobs=1), SilentProgress())
    finally:
        sys.setprofile(None)
    return count


SHAPES = {
    "functions that call one another and assign fields": lambda i, n: (
        f"def f{i}(batch, w):\n    batch.x{i} = batch.x{(i + 5) % n}\n    batch.spec_info = w\n    w.y{i} = batch\n"
        f"    f{(i + 1) % n}(batch, w)\n    return f{(i * 7 + 3) % n}(w.y{(i + 2) % n}, w)\n"
    ),
    "functions in a table": lambda i, n: (
        ("def f0(batch, w):\n    return TABLE[batch.mode](batch, w)\n" if i == 0 else "")
        + f"TABLE['k{i}'] = lambda batch, w: batch.go{i}(w)\n"
    ),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_twice_as_much_of_anything_takes_no_more_than_that(tmp_path: Path, shape):
    """Ten times as many functions of one kind as any release has: where that took the square, an index never came."""
    draft = textwrap.dedent(ENGINE["spec.v2"]).replace(
        "def draft(self): pass", "def draft(self):\n        from sglang.srt.many import f0\n        f0(Batch(), self)"
    )
    counts = []
    for n in (0, 0, 40, 80):  # the first has everything imported
        many = "TABLE = {}\n" + "".join(shape(i, n) for i in range(n)) + ("" if n else "def f0(batch, w): pass\n")
        files = {**ENGINE, "spec.v2": f"{draft}\nclass Batch: pass\n", "many": many}
        counts.append(_calls_made(tree_of(tmp_path / str(len(counts)), files)))
    _, none, once, twice = counts
    assert twice - none < 2.6 * (once - none)
