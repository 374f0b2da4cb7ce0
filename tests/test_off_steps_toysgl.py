"""What an off step of the toy engine lacks was found by leaving it out; the coupling points must say the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.variants.checks import About, Index, found, points, severity
from benchmarks.variants.scoring import indexed, load
from benchmarks.variants.sources import TOYSGL

pytestmark = pytest.mark.skipif(
    os.environ.get("SGLTRACE_VARIANTS") != "1", reason="wanted by SGLTRACE_VARIANTS=1 only: each is a run of the engine"
)

OFF_STEP = Path(__file__).with_name("toysgl_off_step.py")
REFERENCE = Path(__file__).parents[1] / "benchmarks" / "references" / "off_steps_toysgl.json"
CASES: list[dict[str, Any]] = json.loads(REFERENCE.read_text(encoding="utf-8"))["left_out"]


def each(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: f"{case['path']} {case['design']} {case['what']}")


def decode(*arguments: str) -> tuple[str, list[list[int]] | None]:
    command = [sys.executable, str(OFF_STEP), *arguments]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(TOYSGL)}, capture_output=True, text=True, timeout=120
    )
    if done.returncode == 0:
        return "", json.loads(done.stdout)
    return ("leak" if "KV slots leaked" in done.stderr else "raises"), None


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    pytest.importorskip("torch")
    tokens = decode("none")[1]
    assert tokens
    return tokens


@each(CASES)
def test_leaving_it_out_does_what_was_seen(case: dict[str, Any], plain: list[list[int]]):
    failed, tokens = decode(case["path"], case["what"], *(["narrow"] if case["design"] == "C" else []))
    assert (failed or ("none" if tokens == plain else "wrong")) == case["outcome"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return load(indexed(TOYSGL / "sglang", tmp_path_factory.mktemp("toysgl"), jobs=1))


@each([case for case in CASES if case["outcome"] != "none" and "where" not in case])
def test_what_an_off_step_missed_is_hard(case: dict[str, Any], index: Index):
    ok, said = found(case["what"], About(case["field"]), case["path"], case["design"])(index, index)[0]
    assert ok, said


@each([case for case in CASES if case["outcome"] == "none" and "where" not in case])
def test_what_it_did_not_miss_is_hard_by_nothing_else(case: dict[str, Any], index: Index):
    alone = [p for p in points(index) if {f.split(".")[-1] for f in p["fields"]} == {case["field"]}]
    assert not [p["title"] for p in alone if severity(p, case["path"], case["design"]) == "hard"]
