"""Do comparisons of sources tell what an edit changed, and nothing of what it only renamed or moved?"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from changes_support import engine, side_of

from benchmarks.variants.registry import Copy
from sgltrace.cli import run as sgltrace
from sgltrace.commands.schema import schema_of
from sgltrace.insight.changes import Change, Changes, Side, compare_sources

SCHEDULER = "managers/scheduler.py"
WORKER = "speculative/eagle_worker_v2.py"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Side:
    return side_of(engine(tmp_path_factory.mktemp("base")))


def changed(found: Changes) -> list[Change]:
    return [change for change in found.changes if change.change != "moved"]


def about(found: Changes, field: str, of: str = "point") -> Change:
    return next(c for c in found.changes if c.of == of and any(f.rpartition(".")[2] == field for f in c.fields))


def test_a_source_beside_itself_is_the_same(base: Side, tmp_path: Path):
    found = compare_sources(base, side_of(engine(tmp_path)))
    assert (found.changes, found.renamed) == ([], [])


def test_comments_and_layout_change_nothing(base: Side, tmp_path: Path):
    copy = engine(tmp_path)
    for path in (SCHEDULER, WORKER):
        text = copy.read(path)
        text = text.replace("\n    def ", "\n    # a comment\n\n    def ").replace(
            "(batch, result)", "(\n    batch,\n    result,\n)"
        )
        copy.write(path, f'"""Another docstring."""\n\n# {path}\n{text.partition(chr(10))[2]}')
    copy.compile()
    assert compare_sources(base, side_of(copy)).changes == []


RENAMED = {
    "EAGLEWorkerV2": "TreeWorker", "EagleDraftInput": "DraftState", "GenerationBatchResult": "StepOutcome",
    "accept_lens": "taken_lens", "bonus_tokens": "newest_token", "next_draft_input": "follow_state",
    "draft_extend": "push_draft", "process_batch_result_decode": "take_decode_result",
}  # fmt: skip


def test_renamed_classes_fields_and_functions_are_the_same(base: Side, tmp_path: Path):
    copy = engine(tmp_path)
    copy.rename(RENAMED)
    found = compare_sources(base, side_of(copy))
    assert changed(found) == []
    told = {(r.of, r.before.rpartition(".")[2].rpartition(":")[2], r.after.rpartition(".")[2]) for r in found.renamed}
    assert {("field", "accept_lens", "taken_lens"), ("function", "draft_extend", "push_draft")} <= told
    assert ("class", "EagleDraftInput", "DraftState") in told


def test_functions_in_another_file_are_the_same(base: Side, tmp_path: Path):
    copy = engine(tmp_path)
    classes = copy.cut(SCHEDULER, "class ModelRunner:", "class Scheduler:")
    wanted = "import torch\nfrom sglang.srt.managers.scheduler import GenerationBatchResult, ScheduleBatch\n\n\n"
    imported = "from sglang.srt.managers.tp_worker import TpModelWorker\n"
    copy.create("managers/tp_worker.py", wanted + classes)
    copy.replace(SCHEDULER, ("        self.tp_worker =", f"        {imported}\n        self.tp_worker ="))
    copy.replace(WORKER, ("ScheduleBatch, TpModelWorker\n", f"ScheduleBatch\n{imported}"))
    copy.compile()
    found = compare_sources(base, side_of(copy))
    assert changed(found) == []
    assert any("tp_worker" in r.after for r in found.renamed)


def accepts_none(copy: Copy) -> None:
    copy.replace(
        SCHEDULER,
        (
            "result.accept_lens.tolist()",
            "[1] * len(batch.reqs) if result.accept_lens is None else result.accept_lens.tolist()",
        ),
    )


def test_a_repaired_read_is_a_point_gone_with_its_reason(base: Side, tmp_path: Path):
    copy = engine(tmp_path)
    accepts_none(copy)
    found = compare_sources(base, side_of(copy))
    point = about(found, "accept_lens")
    assert point.change in ("gone", "easier") and point.designs["A"] == "easier" and point.progress
    assert point.why
    assert not [c for c in found.changes if c.of == "point" and c.change in ("new", "harder")]


def test_the_other_way_round_it_is_new(base: Side, tmp_path: Path):
    copy = engine(tmp_path)
    accepts_none(copy)
    point = about(compare_sources(side_of(copy), base), "accept_lens")
    assert point.change in ("new", "harder") and point.designs["A"] == "harder"


def test_a_field_that_the_next_draft_reads_is_new_in_the_contract(base: Side, tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        WORKER,
        (
            "rows = [draft_input.bonus_tokens]",
            "rows = [draft_input.bonus_tokens + draft_input.hidden_states.argmax(-1)]",
        ),
    )
    found = compare_sources(base, side_of(copy))
    row = about(found, "hidden_states", "contract")
    assert row.change == "new" and "required" in (row.after or "") and row.designs["A"] == "harder"


def test_a_path_that_is_deleted_is_no_progress(base: Side, tmp_path: Path):
    """The worker is created for another algorithm alone: nothing of EAGLE's is left, and nothing was repaired."""
    copy = engine(tmp_path)
    copy.replace(SCHEDULER, ("        return EAGLEWorkerV2\n", "        return None\n"))
    copy.replace(SCHEDULER, ("            self.draft_worker = DraftWorkerClass(server_args, self.tp_worker)\n"
                             "            self.model_worker = self.draft_worker\n", ""))  # fmt: skip
    try:
        after = side_of(copy)
    except Exception as error:  # without any speculative worker the source is refused, which is an answer, too
        assert "speculative worker" in str(error)
        return
    gone = [c for c in compare_sources(base, after).changes if c.of == "point"]
    assert gone and not any(c.progress for c in gone)


def test_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    before, after = engine(tmp_path / "before"), engine(tmp_path / "after")
    accepts_none(after)
    sides = [str(before.root), str(after.root)]
    assert sgltrace(["compare", *sides, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, schema_of("compare"), cls=jsonschema.Draft202012Validator)
    assert {c["of"] for c in printed["changes"]} <= {"point", "contract", "gate", "default", "tensor", "call"}
    assert sgltrace(["compare", *sides, "--markdown"]) == 0
    assert "accept\\_lens" in capsys.readouterr().out
    assert sgltrace(["compare", *sides, "-o", str(tmp_path / "page.html")]) == 0
    assert "accept_lens" in capsys.readouterr().out
    assert b"accept_lens" in (tmp_path / "page.html").read_bytes()


def test_one_source_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert sgltrace(["compare", str(engine(tmp_path).root)]) == 2
    assert "two sources" in capsys.readouterr().err


def test_names_of_a_source_do_not_get_into_the_page(tmp_path: Path, base: Side):
    from sgltrace.reports.views.changes import page

    found = compare_sources(base, side_of(engine(tmp_path)))
    found.changes.append(Change(of="call", change="new", title="<script>alert(1)</script>", why="`<img onerror=1>`"))
    assert b"<script>alert" not in page(found) and b"<img" not in page(found)
