"""What is said of a diff: what it resolves, adds and only touches; and of a diff that is damaged or does not fit."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from changes_support import engine, opened

from benchmarks.variants.registry import Copy
from sgltrace.cli import run as sgltrace
from sgltrace.commands.schema import schema_of
from sgltrace.insight.changes import Change
from sgltrace.insight.impact import Impact, assess
from sgltrace.insight.impact.opening import sides
from sgltrace.progress import SilentProgress
from sgltrace.sources.patch import DoesNotApply, apply_patch, read_patch

SCHEDULER = "managers/scheduler.py"
WORKER = "speculative/eagle_worker_v2.py"
Edit = Callable[[Copy], None]


def diff_of(folder: Path, edit: Edit, prefix: str = "python/sglang/srt/") -> bytes:
    """The diff that an edit of the engine is."""
    before, after = engine(folder / "a"), engine(folder / "b")
    edit(after)
    out = ""
    for path in sorted({p.relative_to(after.srt) for p in after.changed} | {Path(SCHEDULER), Path(WORKER)}):
        old = (before.srt / path).read_text() if (before.srt / path).exists() else ""
        new = (after.srt / path).read_text() if (after.srt / path).exists() else ""
        lines = difflib.unified_diff(
            old.splitlines(True),
            new.splitlines(True),
            f"a/{prefix}{path}" if old else "/dev/null",
            f"b/{prefix}{path}" if new else "/dev/null",
        )
        out += "".join(lines)
    return out.encode()


def impact_of(folder: Path, edit: Edit) -> Impact:
    from sgltrace.insight.impact.opening import Opened

    tree = opened(engine(folder / "source"))
    made = apply_patch(tree, read_patch(diff_of(folder, edit), "it"), "it")
    before, after = sides(Opened(tree, made.tree, made.files), SilentProgress())
    return assess(before, after, made.files)


def about(changes: list[Change], field: str) -> list[Change]:
    return [c for c in changes if any(name.rpartition(".")[2] == field for name in c.fields)]


def lengths_may_be_absent(copy: Copy) -> None:
    copy.replace(
        SCHEDULER,
        (
            "result.accept_lens.tolist()",
            "[1] * len(batch.reqs) if result.accept_lens is None else result.accept_lens.tolist()",
        ),
    )


def test_a_repair_resolves_its_point_and_touches_its_function(tmp_path: Path):
    found = impact_of(tmp_path, lengths_may_be_absent)
    assert about(found.resolves, "accept_lens") and not found.beside and not found.new_hard
    assert [id.partition(":")[2] for id in found.touches] == ["Scheduler.process_batch_result_decode"]
    assert found.paths == ["v2"]
    assert any(name.endswith(".accept_lens") for name in found.fields)
    entry = found.edited[0]
    assert entry.way and "event_loop" in entry.way[0] and entry.way[-1] == entry.function


def a_flag_that_nobody_sets(copy: Copy) -> None:
    copy.replace(
        SCHEDULER,
        ("    spec_info: EagleDraftInput | None = None\n",
         "    spec_info: EagleDraftInput | None = None\n    without_drafts: bool = False\n"),
        ("        accept_lens = result.accept_lens.tolist()\n",
         "        if batch.without_drafts:\n"
         "            for req, token in zip(batch.reqs, tokens):\n"
         "                req.output_ids.append(token)\n"
         "            return\n"
         "        accept_lens = result.accept_lens.tolist()\n"),
    )  # fmt: skip


def test_a_flag_that_nobody_sets_resolves_nothing(tmp_path: Path):
    found = impact_of(tmp_path, a_flag_that_nobody_sets)
    assert not about(found.resolves, "accept_lens")
    half = about(found.partly, "accept_lens")
    assert half and "nobody sets `without_drafts`" in half[0].why


def a_flag_that_is_set(copy: Copy) -> None:
    a_flag_that_nobody_sets(copy)
    copy.replace(
        SCHEDULER,
        ("        result = self.model_worker.forward_batch_generation(batch)\n",
         "        batch.without_drafts = len(batch.reqs) > 8\n"
         "        result = self.model_worker.forward_batch_generation(batch)\n"),
    )  # fmt: skip


def test_a_flag_that_somebody_sets_is_none_of_these(tmp_path: Path):
    found = impact_of(tmp_path, a_flag_that_is_set)
    assert not [c for c in found.partly if "nobody sets" in c.why]


def a_field_that_verify_alone_writes(copy: Copy) -> None:
    copy.replace(
        SCHEDULER,
        ("    logits: torch.Tensor | None = None\n",
         "    logits: torch.Tensor | None = None\n    tree_depths: torch.Tensor | None = None\n"),
        ("        stride = len(tokens)", "        depths = result.tree_depths.tolist()\n        stride = len(tokens)"),
        ("            req.kv_committed_len += accept_lens[i]\n",
         "            req.kv_committed_len += accept_lens[i]\n            req.depth = depths[i]\n"),
    )  # fmt: skip
    copy.replace(
        WORKER, ("accept_lens=accept_lens, next_draft", "accept_lens=accept_lens, tree_depths=accept_lens, next_draft")
    )


def test_a_field_that_verify_alone_writes_is_added(tmp_path: Path):
    found = impact_of(tmp_path, a_field_that_verify_alone_writes)
    assert about(found.new_hard, "tree_depths")
    assert not found.resolves and not found.beside


def a_field_whose_readers_do_without(copy: Copy) -> None:
    a_field_that_verify_alone_writes(copy)
    copy.replace(
        SCHEDULER,
        ("result.tree_depths.tolist()", "[0] * len(batch.reqs) if result.tree_depths is None else result.tree_depths"),
    )


def test_a_field_whose_readers_do_without_is_no_obligation(tmp_path: Path):
    found = impact_of(tmp_path, a_field_whose_readers_do_without)
    assert not about(found.new_hard, "tree_depths")
    assert not [c for c in about(found.adds, "tree_depths") if c.of == "contract"]


def another_log_line(copy: Copy) -> None:
    copy.replace(
        SCHEDULER,
        ("tokens = result.next_token_ids.tolist()\n        if",
         "tokens = result.next_token_ids.tolist()\n        print(len(tokens))\n        if"),
    )  # fmt: skip


def test_what_changes_nothing_for_an_off_step_is_beside(tmp_path: Path):
    found = impact_of(tmp_path, another_log_line)
    assert found.beside and found.touches and found.why.startswith("Beside")


def a_comment(copy: Copy) -> None:
    copy.replace(SCHEDULER, ("        tokens =", "        # as they are\n        tokens ="))


def test_a_comment_touches_nothing(tmp_path: Path):
    found = impact_of(tmp_path, a_comment)
    assert found.beside and found.touches == []


def the_reader_is_not_called(copy: Copy) -> None:
    copy.replace(SCHEDULER, ("            self.process_batch_result_decode(batch, result)\n", "            pass\n"))


def test_what_nothing_reaches_is_not_repaired(tmp_path: Path):
    found = impact_of(tmp_path, the_reader_is_not_called)
    assert not about(found.resolves, "accept_lens")
    gone = about(found.no_progress, "accept_lens")
    assert gone and "reaches" in gone[0].why


# --- diffs ---


def test_nothing_of_the_source_is_written(tmp_path: Path):
    source = engine(tmp_path / "source")
    before = {path: path.read_bytes() for path in source.root.rglob("*") if path.is_file()}
    apply_patch(opened(source), read_patch(diff_of(tmp_path, lengths_may_be_absent), "it"), "it")
    assert before == {path: path.read_bytes() for path in source.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("prefix", ["python/sglang/srt/", "sglang/srt/", "srt/"])
def test_paths_are_found_wherever_the_diff_begins(prefix: str, tmp_path: Path):
    tree = opened(engine(tmp_path / "source"))
    made = apply_patch(tree, read_patch(diff_of(tmp_path, lengths_may_be_absent, prefix), "it"), "it")
    assert made.files == [f"sglang/srt/{SCHEDULER}"]
    assert b"result.accept_lens is None" in made.tree.read(made.files[0])


def test_a_hunk_fits_where_its_lines_are(tmp_path: Path):
    source = engine(tmp_path / "source")
    source.write(SCHEDULER, "# one more\n# and another\n" + source.read(SCHEDULER))
    made = apply_patch(opened(source), read_patch(diff_of(tmp_path, lengths_may_be_absent), "it"), "it")
    assert b"result.accept_lens is None" in made.tree.read(made.files[0]) and made.notes


def test_new_and_deleted_files(tmp_path: Path):
    def moves(copy: Copy) -> None:
        copy.create("speculative/other.py", "def f():\n    return 1\n")

    tree = opened(engine(tmp_path / "source"))
    diff = diff_of(tmp_path, moves)
    made = apply_patch(tree, read_patch(diff, "it"), "it")
    assert made.tree.read("sglang/srt/speculative/other.py") == b"def f():\n    return 1\n"
    gone = diff_of(tmp_path / "other", lambda copy: copy.delete(WORKER))
    after = apply_patch(tree, read_patch(gone, "it"), "it").tree
    assert "sglang.srt.speculative.eagle_worker_v2" not in after.modules


def test_no_newline_at_the_end(tmp_path: Path):
    source = engine(tmp_path / "source")
    source.write(SCHEDULER, source.read(SCHEDULER).rstrip("\n"))
    path = f"python/sglang/srt/{SCHEDULER}"
    last = source.read(SCHEDULER).splitlines()[-1]
    count = len(source.read(SCHEDULER).splitlines())
    diff = (
        f"--- a/{path}\n+++ b/{path}\n@@ -{count} +{count} @@\n-{last}\n\\ No newline at end of file\n+    pass\n"
        f"\\ No newline at end of file\n"
    )
    made = apply_patch(opened(source), read_patch(diff.encode(), "it"), "it")
    assert made.tree.read(made.files[0]).endswith(b"\n    pass")


def write(folder: Path, data: bytes) -> str:
    path = folder / "a.diff"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"hello\n", "holds no change"),
        (b"", "holds no change"),
        (b"--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n a\n-b\n", "damaged"),
        (b"--- a/x.py\n+++ b/x.py\n@@ nonsense @@\n a\n", "damaged"),
        (
            b"diff --git a/python/sglang/srt/managers/scheduler.py b/python/sglang/srt/managers/scheduler.py\n"
            b"index 1..2 100644\nBinary files a/python/sglang/srt/managers/scheduler.py and "
            b"b/python/sglang/srt/managers/scheduler.py differ\n",
            "binary",
        ),
    ],
    ids=["no diff", "empty", "cut off", "bad header", "binary"],
)
def test_damaged_diffs_get_one_line(data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = engine(tmp_path / "source")
    assert sgltrace(["impact", write(tmp_path, data), "--source", str(source.root)]) == 3
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_diff_of_another_state_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = engine(tmp_path / "source")
    diff = write(tmp_path, diff_of(tmp_path, a_flag_that_is_set))
    source.replace(SCHEDULER, ("accept_lens = result.accept_lens.tolist()", "lens = result.accept_lens.tolist()"))
    assert sgltrace(["impact", diff, "--source", str(source.root), "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["applies"] is False
    assert "only" in captured.err and "fit" in captured.err and "scheduler.py:" in captured.err


def test_a_diff_that_is_applied_already(tmp_path: Path):
    source = engine(tmp_path / "source")
    lengths_may_be_absent(source)
    with pytest.raises(DoesNotApply, match="already"):
        apply_patch(opened(source), read_patch(diff_of(tmp_path, lengths_may_be_absent), "it"), "it")


def test_a_diff_that_breaks_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = engine(tmp_path / "source")
    broken = diff_of(tmp_path, lambda copy: copy.replace(WORKER, ("    def draft(", "    def draft((")))
    diff = write(tmp_path, broken)
    assert sgltrace(["impact", diff, "--source", str(source.root)]) == 3
    assert "syntax error" in capsys.readouterr().err


def test_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = str(engine(tmp_path / "source").root)
    diff = write(tmp_path, diff_of(tmp_path, a_field_that_verify_alone_writes))
    assert sgltrace(["impact", diff, "--source", source, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.validate(printed, schema_of("impact"), cls=jsonschema.Draft202012Validator)
    assert printed["applies"] and printed["adds"]
    page = tmp_path / "page.html"
    assert sgltrace(["impact", diff, "--source", source, "--fail-on", "new-hard", "-o", str(page)]) == 1
    assert "tree_depths" in capsys.readouterr().out and b"tree_depths" in page.read_bytes()
    assert sgltrace(["impact", diff, "--source", source, "--markdown"]) == 0
    assert "tree\\_depths" in capsys.readouterr().out


def test_a_range_of_revisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    import subprocess

    source = engine(tmp_path / "source")

    def git(*words: str) -> None:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", "-C", str(source.root), *who, *words], check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    lengths_may_be_absent(source)
    git("commit", "-qam", "two")
    assert sgltrace(["impact", "HEAD~1..HEAD", "--source", str(source.root), "--json"]) == 0
    assert about_json(json.loads(capsys.readouterr().out)["resolves"], "accept_lens")
    assert sgltrace(["impact", "HEAD~1..nowhere", "--source", str(source.root)]) == 3


def test_a_format_patch_with_a_rename_and_files_elsewhere(tmp_path: Path):
    import subprocess

    source = engine(tmp_path / "source")

    def git(*words: str) -> bytes:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(source.root), *who, *words]
        return subprocess.run(command, check=True, capture_output=True).stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    before = opened(engine(tmp_path / "before"))
    (source.root / "docs").mkdir()
    (source.root / "docs" / "speculation.md").write_text("words\n")
    git("mv", "sglang/srt/speculative/eagle_worker_v2.py", "sglang/srt/speculative/overlap_worker.py")
    source.replace(SCHEDULER, ("speculative.eagle_worker_v2 import", "speculative.overlap_worker import"))
    git("add", "-A")
    git("commit", "-qm", "A worker's file gets another name")
    made = apply_patch(before, read_patch(git("format-patch", "--stdout", "-1"), "it"), "it")
    assert made.elsewhere == 1 and "sglang/srt/speculative/overlap_worker.py" in made.files
    assert "sglang.srt.speculative.eagle_worker_v2" not in made.tree.modules
    assert made.tree.read_module("sglang.srt.speculative.overlap_worker") == before.read(f"sglang/srt/{WORKER}")


def test_a_diff_that_leads_out_of_the_source_is_none_of_its_files(tmp_path: Path):
    diff = b"--- a/../../outside.py\n+++ b/../../outside.py\n@@ -0,0 +1 @@\n+x = 1\n"
    made = apply_patch(opened(engine(tmp_path / "source")), read_patch(diff, "it"), "it")
    assert (made.files, made.elsewhere) == ([], 1)


def about_json(changes: list[dict[str, list[str]]], field: str) -> bool:
    return any(name.endswith(f".{field}") for change in changes for name in change["fields"])
