"""Invariants of a healthy server: recorded runs hold them, and each edited one is caught where it was edited."""

from __future__ import annotations

import json

import pytest
from trace_edit import TRACES, Editor

from sgltrace.cli import run as sgltrace
from sgltrace.runtime import read_trace
from sgltrace.runtime.probe import wire
from sgltrace.runtime.verify import verify

RECORDED = sorted(path.name for path in TRACES.iterdir() if (path / "plan.json").is_file())


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_run_is_healthy(name):
    found = verify(read_trace(TRACES / name))
    assert found.healthy, [held.first for held in found.invariants if held.broken]
    assert found.steps > 20 and sum(held.checked > 0 for held in found.invariants) >= 4


def _accept(editor, change):
    # The result of step 9 is processed in step 10, under overlap.
    (record,) = editor.of("resolve tokens", 10, wire.EXIT)
    editor.change_list(record, "return", change)
    (record,) = editor.of("process decode result", 10, wire.EXIT)
    drafts = "arg.result.num_correct_drafts_per_req_cpu"
    editor.change_list(record, drafts, lambda v: [n - 1 for n in change([n + 1 for n in v])])


def _lengths(editor, name, change, step=9):
    for role, selector in (
        ("prepare draft input", "arg.batch.reqs[*].kv_{}_len"),
        ("prepare batch", "self.reqs[*].kv_{}_len"),
    ):
        for record in editor.of(role, step, wire.EXIT):
            editor.change_list(record, selector.format(name), change)


def _replay(editor, at, value, step=9):
    record = editor.of("replay", step, wire.EXIT)[0]
    names = [name for name, kind in editor.fields(record) if kind == wire.INT]
    record.ints[names.index(at)] = value


def _step_enter(editor):
    (record,) = editor.of("step", 9, wire.ENTER)
    return record


def _requests(editor, count):
    record = _step_enter(editor)
    record.ints[record.ints.index(-1 - 8 if -9 in record.ints else next(n for n in record.ints if n < 0))] = -1 - count


EDITS = {
    "a request kept nothing": ("eagle3_v2", "accept_lengths", lambda e: _accept(e, lambda v: [0, *v[1:]])),
    "a request kept too many": ("eagle3_v2", "accept_lengths", lambda e: _accept(e, lambda v: [*v[:-1], 4])),
    "a request has no accept length": ("eagle3_v2", "accept_count", lambda e: _accept(e, lambda v: v[1:])),
    "committed past what is allocated": (
        "eagle3_v2", "allocated", lambda e: _lengths(e, "allocated", lambda v: [n - 9 for n in v]),
    ),
    "a request without an allocated length": (
        "eagle3_v2", "allocated", lambda e: _lengths(e, "allocated", lambda v: v[:3]),
    ),
    "committed lengths shrink": (
        "eagle3_v2", "committed", lambda e: _lengths(e, "committed", lambda v: [v[0] - 5, *v[1:]]),
    ),
    "committed lengths jump": (
        "eagle3_v2", "committed", lambda e: _lengths(e, "committed", lambda v: [v[0] + 3, *v[1:]]),
    ),
    "a plain step commits two tokens": (
        "base", "committed", lambda e: _lengths(e, "committed", lambda v: [v[0] + 1, *v[1:]]),
    ),
    "rows that are no multiple of the batch": (
        "eagle3_v2", "result_rows", lambda e: e.change_rows(e.of("step", 9, wire.EXIT)[0], "return.next_token_ids", 23),
    ),
    "a plain step with two rows too many": (
        "base", "result_rows", lambda e: e.change_rows(e.of("step", 9, wire.EXIT)[0], "return.next_token_ids", 10),
    ),
    "v1 returns a token less than was accepted": (
        "eagle3_v1", "result_rows", lambda e: e.change_rows(e.of("step", 9, wire.EXIT)[0], "return.next_token_ids", 6),
    ),
    "a graph smaller than the batch": ("eagle3_v2", "graph_size", lambda e: _replay(e, "self.bs", 2)),
    "a graph that was never captured": ("eagle3_v2", "graph_size", lambda e: _replay(e, "self.bs", 77)),
    "a draft state with a row too many": (
        "eagle3_v2", "draft_state",
        lambda e: e.change_rows(e.of("worker step", 9, wire.ENTER)[0], "arg.model_worker_batch.spec_info.topk_p", 11),
    ),
    "a step that ends before it begins": (
        "base", "times", lambda e: setattr(_step_enter(e), "time_ns", _step_enter(e).time_ns + 10**9),
    ),
    "ranks that accept other lengths": ("eagle3_v2_tp2", "ranks", lambda e: _accept(e, lambda v: [2, *v[1:]])),
    "two places that do not agree": (
        "eagle3_v2", "accept_lengths",
        lambda e: e.change_list(e.of("resolve tokens", 10, wire.EXIT)[0], "return", lambda v: [2, *v[1:]]),
    ),
    "ranks with other batches": ("eagle3_v2_tp2", "ranks", lambda e: _requests(e, 5)),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_trace_is_caught_at_its_step(what, tmp_path):
    name, invariant, edit = EDITS[what]
    editor = Editor(tmp_path / "edited", name)
    edit(editor)
    found = {held.name: held for held in verify(read_trace(editor.save())).invariants}
    first = found[invariant].first
    assert first is not None and first.step == 9
    assert len(first.before) == 4 and first.before[-1].split()[1] == "9"


def test_the_command_says_what_broke_and_ends_with_1(tmp_path, capsys):
    name, _, edit = EDITS["a request kept nothing"]
    editor = Editor(tmp_path / "edited", name)
    edit(editor)
    folder = str(editor.save())
    assert sgltrace(["verify", folder]) == 1
    shown = capsys.readouterr().out
    assert "\naccept_lengths: first broken in step 9, rank tp0\n" in shown and "0 is less than 1" in shown
    assert sgltrace(["verify", folder, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is False
    assert next(row["first"]["step"] for row in told["invariants"] if row["broken"]) == 9
    assert sgltrace(["verify", str(TRACES / "base")]) == 0
    assert sgltrace(["verify", str(tmp_path)]) == 3


def test_a_result_without_any_length_is_one_that_lacks_them(tmp_path):
    editor = Editor(tmp_path / "edited", "0512_eagle3_v2")
    step = next(r.step for r in editor.records if r.kind == wire.ACCEPT and r.step > 5)
    for record in editor.records:
        if record.kind == wire.ACCEPT and record.step == step:
            record.ints = []
    found = {held.name: held for held in verify(read_trace(editor.save())).invariants}
    first = found["accept_count"].first
    assert first is not None and first.step == step
