"""Launch commands against small argument handling of our own: order, unknowns, late refusals, the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgltrace.configuration import Configuration, parse_words
from sgltrace.errors import UsageError
from sgltrace.explain.command import parse_command
from sgltrace.explain.explain import explain, make_inputs
from sgltrace.progress import SilentProgress
from sgltrace.sources import SourceTree, open_source

ARGUMENTS = """
import argparse
import dataclasses
import logging
import os

import torch

from sglang.srt.checks import late_check

logger = logging.getLogger(__name__)


@dataclasses.dataclass
class ServerArgs:
    model_path: str = "m"
    speculative_algorithm: str = None
    topk: int = None
    steps: int = None
    draft_tokens: int = None
    page_size: int = 1
    disable_overlap_schedule: bool = False
    backend: str = None

    def __post_init__(self):
        self._handle_aliases()
        self._handle_gpu()
        self._handle_speculation()

    def _handle_aliases(self):
        if self.speculative_algorithm == "NEXTN":
            self.speculative_algorithm = "EAGLE"

    def _handle_gpu(self):
        if self.backend is None:
            self.backend = "fast" if torch.cuda.get_device_capability()[0] >= 9 else "slow"

    def _handle_speculation(self):
        if self.speculative_algorithm is None:
            return
        if os.environ.get("SGL_V2") == "1":
            if self.topk > 1:
                raise ValueError("only topk = 1")
        else:
            self.disable_overlap_schedule = True
            logger.warning("overlap is off")
        if self.topk == 1 and self.draft_tokens != self.steps + 1:
            self.draft_tokens = self.steps + 1
        os.environ["SGL_SPEC"] = "on"

    def check_server_args(self):
        late_check(self)

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser):
        parser.add_argument("--model-path", type=str, required=True)
        parser.add_argument("--speculative-algorithm", type=str, choices=["EAGLE", "NEXTN"])
        for name in ("topk", "steps", "draft-tokens", "page-size"):
            parser.add_argument(f"--{name}", type=int, default=getattr(ServerArgs, name.replace("-", "_")))
        parser.add_argument("--disable-overlap-schedule", action="store_true")
        parser.add_argument("--backend", type=str)

    @classmethod
    def from_cli_args(cls, args):
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: getattr(args, name) for name in names})


def prepare(argv):
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return ServerArgs.from_cli_args(parser.parse_args(argv))
"""
CHECKS = """
def late_check(args):
    problems = []
    if args.page_size > 1 and args.topk is not None and args.topk > 1:
        problems.append("pages and trees")
    if args.backend == "slow" and args.page_size > 64:
        problems.append("slow and large")
    if problems:
        raise ValueError("; ".join(problems))
"""
SCHEDULER = """
from sglang.srt.server_args import ServerArgs
from sglang.srt.managers.workers import TargetWorker


class Scheduler:
    def __init__(self, server_args: ServerArgs, rank):
        self.enable_overlap = not server_args.disable_overlap_schedule
        self.tp_worker = TargetWorker(server_args)
        self.draft_worker = None
        if server_args.speculative_algorithm is not None:
            from sglang.srt.speculative.choose import choose

            self.draft_worker = choose(server_args)(target=self.tp_worker)

    def event_loop_normal(self):
        while True:
            pass


def run_scheduler_process(server_args: ServerArgs, tp_rank):
    scheduler = Scheduler(server_args, tp_rank)
    scheduler.event_loop_normal()
"""
WORKERS = "class TargetWorker:\n    def __init__(self, args):\n        import secret\n"
CHOOSE = """
from sglang.srt.managers.workers import TargetWorker


class EagleOld(TargetWorker):
    pass


class EagleNewV2:
    pass


def choose(args):
    return EagleOld if args.disable_overlap_schedule else EagleNewV2
"""
ENGINE = "def launch(server_args):\n    server_args.check_server_args()\n"


def make_tree(folder: Path, **changed: str) -> SourceTree:
    files = {
        "server_args": ARGUMENTS,
        "checks": CHECKS,
        "managers/scheduler": SCHEDULER,
        "managers/workers": WORKERS,
        "speculative/choose": CHOOSE,
        "entrypoints/engine": ENGINE,
    }
    files.update(changed)
    for name, text in files.items():
        file = folder / "sglang" / "srt" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "sglang" / "__init__.py").write_text('__version__ = "9.9"\n')
    return open_source(str(folder), cache_dir=folder / "cache", progress=SilentProgress())


def asked(tree: SourceTree, line: str, *assume: str, **inputs):
    return explain(tree, parse_command(line.split()), make_inputs(assume, inputs.get("model"), inputs.get("gpu")))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("source"))


SPEC = "python -m sglang.launch_server --model-path m --speculative-algorithm NEXTN --steps 2"


def test_first_path(tree):
    answer = asked(tree, f"{SPEC} --topk 1 --draft-tokens 9")
    assert (answer.worker, answer.path, answer.overlap, answer.error) == ("EagleOld", "v1", False, None)
    assert answer.values["speculative_algorithm"] == "EAGLE"
    assert answer.values["draft_tokens"] == answer.rewritten["draft_tokens"] == 3
    rewritten = next(step for step in answer.chain if step.argument == "draft_tokens")
    assert rewritten.effect == "draft_tokens: 9 -> 3"
    assert rewritten.condition == "self.topk == 1 and self.draft_tokens != self.steps + 1"
    assert rewritten.function == "sglang.srt.server_args:ServerArgs._handle_speculation"
    assert ARGUMENTS.splitlines()[rewritten.line - 1].strip() == "self.draft_tokens = self.steps + 1"
    assert any(step.effect == "sets SGL_SPEC='on'" for step in answer.chain)


def test_second_path_by_the_environment(tree):
    answer = asked(tree, f"SGL_V2=1 {SPEC} --topk 1")
    assert (answer.worker, answer.path, answer.overlap) == ("EagleNewV2", "v2", True)


def test_refused(tree):
    answer = asked(tree, f"SGL_V2=1 {SPEC} --topk 4")
    assert answer.error is not None
    assert (answer.error.exception, answer.error.message) == ("ValueError", "only topk = 1")
    assert answer.worker is None


def test_a_comparison_with_none_is_the_users_type_error(tree):
    answer = asked(tree, f"SGL_V2=1 {SPEC}")
    assert answer.error is not None
    assert answer.error.exception == "TypeError"
    assert "'>' not supported between instances of 'NoneType' and 'int'" in answer.error.message


def test_a_list_of_reasons_far_from_the_raise(tree):
    answer = asked(tree, f"{SPEC} --topk 2 --page-size 16")
    assert answer.error is not None
    assert answer.error.message == "pages and trees"
    assert answer.error.function == "sglang.srt.checks:late_check"


def test_the_parser_refuses(tree):
    answer = asked(tree, f"{SPEC} --no-such-option 3")
    assert answer.error is not None
    assert answer.error.exception == "SystemExit"
    assert "--no-such-option" in answer.error.message


def test_no_speculation(tree):
    answer = asked(tree, "python -m sglang.launch_server --model-path m")
    assert (answer.worker, answer.path, answer.overlap) == (None, "none", True)


def test_what_the_gpu_decides_is_asked_for(tree):
    answer = asked(tree, "python -m sglang.launch_server --model-path m")
    assert "backend" not in answer.values
    assert answer.open["backend"].one_of == ["fast", "slow"]
    assert answer.unknown == ["torch.cuda.get_device_capability()"]
    assert asked(tree, "x --model-path m", gpu="h200").values["backend"] == "fast"
    given = asked(tree, "x --model-path m", "torch.cuda.get_device_capability=(8, 0)")
    assert given.values["backend"] == "slow"


def test_a_refusal_that_hangs_on_the_gpu_is_told_and_not_taken(tree):
    line = "python -m sglang.launch_server --model-path m --page-size 128"
    answer = asked(tree, line)
    assert answer.error is None
    assert [failure.message for failure in answer.possible_errors] == ["slow and large"]
    refused = asked(tree, line, "torch.cuda.get_device_capability=(8, 0)")
    assert refused.error is not None
    assert refused.error.message == "slow and large"
    assert asked(tree, line, gpu="h100").possible_errors == []


def test_an_edit_changes_the_answer(tmp_path):
    edited = ARGUMENTS.replace('if os.environ.get("SGL_V2") == "1"', "if self.topk == 1")
    answer = asked(make_tree(tmp_path, server_args=edited), f"{SPEC} --topk 1")
    assert answer.path == "v2"


def test_renames_change_nothing_but_names(tmp_path):
    renamed = {"server_args": ARGUMENTS, "managers/scheduler": SCHEDULER, "entrypoints/engine": ENGINE}
    renamed = {
        name: text.replace("ServerArgs", "Options").replace("check_server_args", "verify_all")
        for name, text in renamed.items()
    }
    answer = asked(make_tree(tmp_path, **renamed), f"{SPEC} --topk 2 --page-size 16")
    assert answer.error is not None
    assert answer.error.message == "pages and trees"


def test_a_missing_scheduler_is_told(tmp_path):
    answer = asked(make_tree(tmp_path, **{"managers/scheduler": "import os\n"}), f"{SPEC} --topk 1")
    assert answer.worker is None
    assert answer.path is None
    assert any("no scheduler" in problem for problem in answer.problems)


def test_nothing_outside_is_reached(tmp_path):
    evil = f"import os, subprocess\nos.system('touch {tmp_path}/a')\nsubprocess.run(['touch', '{tmp_path}/b'])\n"
    evil += f"open('{tmp_path}/c', 'w').write('x')\n"
    evil += "print.__self__.__dict__['open']\n().__class__.__base__.__subclasses__()\n"
    asked(make_tree(tmp_path, server_args=evil + ARGUMENTS), f"{SPEC} --topk 1")
    assert not [name for name in "abc" if (tmp_path / name).exists()]


def test_the_same_twice(tree):
    line = f"{SPEC} --topk 1"
    assert asked(tree, line) == asked(tree, line)


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("A=1 B=2 python -m sglang.launch_server --tp 8", ("--tp", "8")),
        ("sglang serve --tp 8", ("--tp", "8")),
        ("python3.12 -u run.py --tp 8", ("--tp", "8")),
        ("--tp 8", ("--tp", "8")),
        ("env A=1 python -m sglang.launch_server", ()),
    ],
)
def test_commands(words, arguments):
    assert parse_command(words.split()).arguments == arguments


def test_no_command():
    with pytest.raises(UsageError, match="no launch command"):
        parse_command(["A=1"])


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("self.server_args.tp_size > 1", True),
        ("tp_size == 8 and not enable_lora", None),
        ("tp_size == 1 and not enable_lora", False),
        ("speculative_eagle_topk is None or tp_size > 1", True),
        ("attention_backend in ('fa3', 'triton')", True),
        ("attention_backend == 'fa3'", None),
        ("self.enable_overlap", False),
        ("batch.spec_algorithm.is_eagle()", True),
        ("not batch.forward_mode.is_idle()", None),
        ("this is not Python", None),
    ],
)
def test_conditions_over_a_configuration(condition, expected):
    from sgltrace.configuration.model import Open

    configuration = Configuration(
        values={"tp_size": 8},
        open={"attention_backend": Open(["fa3", "triton"], ["the GPU"])},
        overlap=False,
        predicates={"spec_algorithm.is_eagle": True},
    )
    assert configuration.holds(condition) is expected


def test_a_configuration_in_words():
    words = {"tp": "tp_size", "overlap": "!disable_overlap_schedule", "dp": "dp_size"}
    options = frozenset(["tp_size", "disable_overlap_schedule", "dp_size", "page_size"])
    values = parse_words(
        "eagle3,tp=8,no-dp,no-overlap,page-size=16", words, "algorithm", frozenset(["EAGLE3"]), options
    )
    assert values == {
        "algorithm": "EAGLE3",
        "tp_size": 8,
        "dp_size": 1,
        "disable_overlap_schedule": True,
        "page_size": 16,
    }
    with pytest.raises(UsageError, match="no such option"):
        parse_words("nothing=3", words, "algorithm", frozenset(), options)


def test_json_of_the_command(tree, capsys):
    from sgltrace.cli import run

    root = str(Path(tree.source.root))
    code = run(["explain", root, "--json", "--", *f"{SPEC} --topk 1".split()])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert {"worker", "path", "overlap", "values", "error", "off_step", "unknown", "chain"} <= set(answer)
    assert answer["worker"] == "EagleOld"
    assert run(["explain", root, "--json", "--", "SGL_V2=1", *f"{SPEC} --topk 4".split()]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["message"] == "only topk = 1"


def test_what_to_change(tree):
    from sgltrace.explain.wants import advise

    command = parse_command(f"{SPEC} --topk 1".split())
    inputs = make_inputs([], None, None)
    advice = advise(tree, command, inputs, explain(tree, command, inputs), "v1")
    assert advice.already
