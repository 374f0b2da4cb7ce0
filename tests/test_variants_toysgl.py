"""Do the coupling points of the toy engine follow its code? Each edit is indexed, and each is run.

An edit that adds a coupling breaks a step that is taken off, and no other: what the checks ask of an index was seen.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.variants.edits import EDITS
from benchmarks.variants.registry import Edit
from benchmarks.variants.scoring import indexed, load
from benchmarks.variants.sources import TOYSGL, Sources, copy, make

pytestmark = pytest.mark.skipif(
    os.environ.get("SGLTRACE_VARIANTS") != "1", reason="wanted by SGLTRACE_VARIANTS=1 only: one index a test"
)

TOY_EDITS = [pytest.param(e, id=e.name) for e in EDITS.values() if e.release == "toysgl"]
OFF_STEP = Path(__file__).with_name("toysgl_off_step.py")
BREAKS_ON = {
    "toy_result_list": ("v2",),
    "toy_width_at_start_in_a_view": ("v1", "v2"),
    "toy_refusal_in_the_target_worker": ("v1", "v2"),
    "toy_batch_rows_of_verify": ("v1",),
    "toy_leases_taken_by_whoever_prepares": ("v1",),
    "toy_request_length_of_verify": ("v1",),
    "toy_field_with_two_meanings": ("v2",),
}
NEEDS_NO_MORE = {
    "toy_counts_default_to_one": (["v2", "counts", "stride"],),
    "toy_second_graph_runner": (["v1", "no-graphs"], ["v2", "no-graphs"]),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return indexed(TOYSGL / "sglang", tmp_path_factory.mktemp("base"), jobs=1)


@pytest.mark.parametrize("edit", TOY_EDITS)
def test_the_points_follow_an_edit(edit: Edit, base: Path, tmp_path: Path):
    make([edit], Sources(tmp_path), tmp_path / "source")
    variant = indexed(tmp_path / "source" / "sglang", tmp_path / "workspace", jobs=1)
    failed = [said for ok, said in edit.check(load(base), load(variant)) if not ok]
    assert not failed, "\n".join([edit.text, *failed])


def decode(source: Path, script: Path, *arguments: str) -> list[list[int]] | None:
    """The tokens of each request, or None where the run fails."""
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    pytest.importorskip("torch")
    tokens = decode(TOYSGL, OFF_STEP, "none")
    assert tokens
    return tokens


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_steps_taken_off_leave_what_is_decoded(path: str, plain: list[list[int]]):
    assert decode(TOYSGL, OFF_STEP, path) == plain


@pytest.mark.parametrize(
    "arguments", [["v2", "counts", "stride"], ["v1", "no-graphs"], ["v2", "no-graphs"]], ids=" ".join
)
def test_what_an_off_step_needs_is_missed(arguments: list[str], plain: list[list[int]]):
    assert decode(TOYSGL, OFF_STEP, *arguments) != plain


@pytest.mark.parametrize("edit", TOY_EDITS)
def test_an_edit_is_what_it_says(edit: Edit, plain: list[list[int]], tmp_path: Path):
    edited = copy(TOYSGL, tmp_path)
    script = tmp_path / "off_step.py"  # within the copy, so that it is renamed with it
    shutil.copy(OFF_STEP, script)
    edit.apply(edited)
    assert (edit.sort == "added") == (edit.name in BREAKS_ON)
    assert (edit.sort == "removed") == (edit.name in NEEDS_NO_MORE)
    for path in ("v1", "v2"):
        if path in BREAKS_ON.get(edit.name, ()):
            assert decode(tmp_path, script, path) != plain, path
            assert decode(tmp_path, script, path, "on") == plain, path
            assert path == "v1" or decode(tmp_path, script, path, "narrow") == plain, path
        else:
            assert decode(tmp_path, script, path) == plain, path
    for arguments in NEEDS_NO_MORE.get(edit.name, ()):
        assert decode(tmp_path, script, *arguments) == plain, arguments
