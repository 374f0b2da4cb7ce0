"""An off step of a small engine is run: what it strikes, what it leaves, and what a contract makes of that."""

import pytest
from small_engine import FILES
from trees import write_tree

from sgltrace.coupling.derive import Coupling, derive
from sgltrace.coupling.groups import Scene
from sgltrace.coupling.offstep.lookup import Sites
from sgltrace.coupling.offstep.parts import find_parts
from sgltrace.coupling.offstep.questions import Questions
from sgltrace.coupling.offstep.steps import Steps
from sgltrace.coupling.vocabulary import load
from sgltrace.index import IndexOptions, Program, analyse
from sgltrace.index.fields import FieldFlow, field_flow
from sgltrace.index.program.vocabulary import roles
from sgltrace.interpreter import no_collection
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source

SCHEDULER = "sglang/srt/managers/scheduler.py"
WORKER = "sglang/srt/speculative/eagle_worker_v2.py"


def resolve(folder, files) -> tuple[Program, FieldFlow]:
    root = write_tree(folder, {path: text.encode() for path, text in files.items()})
    tree = open_source(str(root / "sglang"), cache_dir=folder / "cache", progress=SilentProgress())
    with no_collection():
        program = analyse(tree, IndexOptions(cache_dir=None, jobs=1), SilentProgress())
        return program, field_flow(program)


def scene(program: Program, flow: FieldFlow) -> Scene:
    sites = Sites(program)
    parts = find_parts(program, flow, sites, roles(), load())
    questions = Questions(Steps(program, flow, sites, parts, load()), "v2")
    return Scene(questions, questions.answers(), False)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return resolve(tmp_path_factory.mktemp("engine"), FILES)


@pytest.fixture(scope="module")
def seen(engine) -> Scene:
    return scene(*engine)


@pytest.fixture(scope="module")
def coupling(engine) -> Coupling:
    return derive(*engine)


def edited(tmp_path, path, *pairs):
    text = FILES[path]
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return resolve(tmp_path, {**FILES, path: text})


def strikes(found: Scene, attached: bool = False):
    step = found.questions.steps.off("v2", attached)
    return [(x.function.name, x.exception) for run in step.runs_ for x in run.strikes]


# --- parts -------------------------------------------------------------------------------------------------------


def test_parts_are_found_by_what_they_do(seen):
    parts = seen.questions.parts
    assert parts.target is not None and parts.target.qualname == "TpModelWorker.forward_batch_generation"
    assert [f.name for f in parts.launchers] == ["run_batch"]
    assert parts.state_fields == ("spec_info",)
    assert {c.name for c in parts.state_classes} == {"EagleDraftInput", "EagleVerifyInput"}
    assert [c.name for c in parts.results] == ["GenerationBatchResult"]
    assert parts.notes == []


def test_a_part_under_a_new_name_is_taken_and_told(tmp_path):
    files = {
        path: text.replace("GenerationBatchResult", "StepOutcome").replace("EagleDraftInput", "DraftState")
        for path, text in FILES.items()
    }
    found = derive(*resolve(tmp_path, files))
    assert any("StepOutcome is taken for the result" in note for note in found.notes)
    assert any("DraftState is taken for the draft input" in note for note in found.notes)
    assert "StepOutcome.accept_lens" in {f for p in found.points for f in p.fields}


def test_without_an_enum_of_algorithms_the_reader_is_told(tmp_path):
    program, flow = edited(
        tmp_path, SCHEDULER, ("class SpeculativeAlgorithm(Enum)", "class Method(Enum)"),
        ("SpeculativeAlgorithm.from_string", "Method.from_string"),
    )  # fmt: skip
    assert any("algorithms" in note for note in scene(program, flow).questions.parts.notes)


ASSERTED = "        assert result.accept_lens is not None\n        accept_lens = result"
BY_BATCH = "        if self.spec_info is not None:\n            return\n"
COUNTED = "def counted(lens):\n    return lens.tolist()\n\n\ndef run_scheduler_process"


# --- steps -------------------------------------------------------------------------------------------------------


def test_a_step_takes_the_way_of_its_process(seen):
    on, plain = seen.questions.on, seen.questions.plain
    functions = {f.name: f for f in (*on.scheduler.readings, *on.worker.readings)}
    assert "verify" in functions and "draft" in functions
    assert "verify" not in {f.name for f in (*plain.scheduler.readings, *plain.worker.readings)}


def test_an_off_step_strikes_where_the_result_is_bare(seen):
    assert ("process_batch_result_decode", "AttributeError") in strikes(seen)
    assert ("run_batch", "AttributeError") in strikes(seen)


def test_neither_regime_strikes_by_itself(seen):
    for step in (seen.questions.on, seen.questions.plain):
        assert [x for run in step.runs_ for x in run.strikes] == []


def test_what_stands_behind_a_strike_is_not_done(seen):
    flow, off = seen.questions.flow, seen.questions.attached
    [uses] = flow.find("Req.kv_committed_len")
    [moved] = [a for a in uses.writes if a.kind == "augment"]
    assert off.runs(moved) and not off.completes(moved)


@pytest.mark.parametrize(
    "text",
    [
        "([1] if result.accept_lens is None else result.accept_lens.tolist())",
        "(result.accept_lens.tolist() if result.accept_lens is not None else [1])",
        "(lens.tolist() if (lens := result.accept_lens) is not None else [1])",
    ],
)
def test_a_guard_saves_a_read(tmp_path, text):
    found = scene(*edited(tmp_path, SCHEDULER, ("result.accept_lens.tolist()", text)))
    assert ("process_batch_result_decode", "AttributeError") not in strikes(found)


def test_a_local_with_a_default_saves_its_uses(tmp_path):
    lines = "lens = result.accept_lens\n        if lens is None:\n            lens = torch.ones(4)\n        "
    found = scene(
        *edited(
            tmp_path, SCHEDULER, ("accept_lens = result.accept_lens.tolist()", lines + "accept_lens = lens.tolist()")
        )
    )
    assert ("process_batch_result_decode", "AttributeError") not in strikes(found)


def test_none_is_followed_into_a_helper(tmp_path):
    found = scene(
        *edited(
            tmp_path,
            SCHEDULER,
            ("result.accept_lens.tolist()", "counted(result.accept_lens)"),
            (
                "def run_scheduler_process",
                COUNTED,
            ),
        )
    )
    assert ("counted", "AttributeError") in strikes(found)


def test_an_assertion_that_fails_is_met(tmp_path):
    found = scene(
        *edited(
            tmp_path, SCHEDULER, ("        accept_lens = result", ASSERTED)
        )
    )  # fmt: skip
    assert ("process_batch_result_decode", "AssertionError") in strikes(found)


# --- answers -----------------------------------------------------------------------------------------------------


def test_what_only_speculation_keeps_up_is_stale(seen):
    stale = {x.uses.name for x in seen.answers.stale if x.carried}
    assert {"EagleDraftInput.bonus_tokens", "EagleDraftInput.topk_index"} <= stale
    assert "EagleDraftInput.hidden_states" not in stale


def test_a_plain_block_is_skipped_for_its_condition(seen):
    [found] = [x for x in seen.answers.skipped if x.function.name == "prepare_for_decode"]
    assert {a.field for a in found.unwritten} >= {"input_ids"}
    assert {f.scope for f in found.facts} == {"process"}


def test_a_block_that_asks_the_batch_does_not_block(tmp_path):
    program, flow = edited(
        tmp_path, SCHEDULER,
        ("        if not self.spec_algorithm.is_none():\n            return\n", BY_BATCH),
    )  # fmt: skip
    points = derive(program, flow).points
    levels = [p.severity["v2"] for p in points if any(f.endswith(".input_ids") for f in p.fields) and "plain" in p.id]
    assert "hard" not in levels


# --- points and contract -----------------------------------------------------------------------------------------


def test_points_are_ranked_hard_first_and_have_distinct_ids(coupling):
    order = {"hard": 0, "soft": 1, "none": 2, None: 3}
    levels = [min(order[v] for v in p.severity.values()) for p in coupling.points]
    assert [p.rank for p in coupling.points] == list(range(1, len(coupling.points) + 1))
    assert levels == sorted(levels)
    assert len({p.id for p in coupling.points}) == len(coupling.points)


def test_every_verdict_has_its_reason(coupling):
    assert all(v.reason for p in coupling.points for v in p.verdicts)
    struck = next(p for p in coupling.points if p.id == "result-format-result-accept-lens")
    assert "process_batch_result_decode` line" in struck.verdicts[0].reason
    assert {v.design: v.severity for v in struck.verdicts} == {"A": "hard", "B": "hard", "C": "none"}


def test_ids_do_not_change_with_lines(tmp_path, coupling):
    program, flow = edited(tmp_path, SCHEDULER, ("class Req:", "SPACE = 1\n\n\nclass Req:"))
    assert [p.id for p in derive(program, flow).points] == [p.id for p in coupling.points]


def test_contract_rows_are_named_as_fields(coupling, engine):
    flow = engine[1]
    rows = {row.field: row for row in coupling.contract}
    assert all(flow.find(name) for name in rows)
    assert rows["GenerationBatchResult.accept_lens"].requirement == "required"
    assert rows["GenerationBatchResult.accept_lens"].off_step_value.startswith("ones")
    assert rows["GenerationBatchResult.next_draft_input"].off_step_value.startswith("a EagleDraftInput")
    assert rows["EagleDraftInput.bonus_tokens"].requirement == "required"
    assert "EagleDraftInput.hidden_states" not in rows
