"""Do the coupling points of the toy engine follow its code? Each edit is indexed, and still decodes the same."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.variants.edits import EDITS
from benchmarks.variants.registry import Edit
from benchmarks.variants.scoring import indexed, load
from benchmarks.variants.sources import TOYSGL, Sources, make

pytestmark = pytest.mark.skipif(
    os.environ.get("SGLTRACE_VARIANTS") != "1", reason="wanted by SGLTRACE_VARIANTS=1 only: one index a test"
)

TOY_EDITS = [pytest.param(e, id=e.name) for e in EDITS.values() if e.release == "toysgl"]
PATHS = (["--path", "v1"], ["--path", "v2"], ["--path", "none"])
LOAD = [
    "--print-tokens",
    "--random-seed",
    "3",
    "--requests",
    "5",
    "--batch",
    "3",
    "--new-tokens",
    "8",
    "--stagger",
    "2",
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return indexed(TOYSGL / "sglang", tmp_path_factory.mktemp("base"), jobs=1)


@pytest.mark.parametrize("edit", TOY_EDITS)
def test_the_points_follow_an_edit(edit: Edit, base: Path, tmp_path: Path):
    make([edit], Sources(tmp_path), tmp_path / "source")
    variant = indexed(tmp_path / "source" / "sglang", tmp_path / "workspace", jobs=1)
    failed = [said for ok, said in edit.check(load(base), load(variant)) if not ok]
    assert not failed, "\n".join([edit.text, *failed])


def tokens(source: Path, path: list[str]) -> list[list[int]]:
    command = [sys.executable, "-m", "toysgl", *path, *LOAD]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["output_ids"] for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    pytest.importorskip("torch")
    return tokens(TOYSGL, ["--path", "none"])


@pytest.mark.parametrize("edit", TOY_EDITS)
def test_an_edit_leaves_what_the_engine_decodes(edit: Edit, expected: list[list[int]], tmp_path: Path):
    make([edit], Sources(tmp_path), tmp_path)
    for path in PATHS:
        assert tokens(tmp_path, path) == expected, path
