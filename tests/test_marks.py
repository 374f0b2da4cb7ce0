"""Where a small engine depends on speculation, and the points that groups make of that: each follows an edit."""

from __future__ import annotations

import pytest
from small_engine import FILES
from test_offstep import SCHEDULER, WORKER, edited, resolve, scene

from sgltrace.coupling.derive import derive
from sgltrace.coupling.offstep.marks import ALGORITHM, CAPTURED, SIZE, STAGE, TEST, WIDTH
from sgltrace.model import CouplingPoint

SAMPLED = "        return GenerationBatchResult(next_token_ids=torch.argmax(logits, dim=-1))\n"
ROWS = """        if self.model_runner.captured.is_target_verify():
            logits = logits[:: batch.spec_info.draft_token_num]
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return resolve(tmp_path_factory.mktemp("engine"), FILES)


def marks(program_and_flow, name: str):
    found = scene(*program_and_flow).marks
    return [(m.source, m.use) for f in found.program.find_functions(name) for m in found.of(f)]


def points(program_and_flow, kind: str) -> list[CouplingPoint]:
    return [p for p in derive(*program_and_flow).points if p.kind == kind]


def levels(point: CouplingPoint) -> str:
    return "".join(v.severity[0] for v in point.verdicts if v.path == "v2")


# --- marks -------------------------------------------------------------------------------------------------------


def test_the_algorithm_is_known_by_its_type(engine):
    assert (ALGORITHM, TEST) in marks(engine, "ScheduleBatch.prepare_for_decode")


def test_a_renamed_algorithm_is_still_known(tmp_path):
    files = {path: text.replace("spec_algorithm", "regime") for path, text in FILES.items()}
    assert (ALGORITHM, TEST) in marks(resolve(tmp_path, files), "ScheduleBatch.prepare_for_decode")


def test_a_mode_that_only_verify_sets_is_a_stage(engine):
    found = scene(*engine).marks
    assert found.stages == {"TARGET_VERIFY"}
    assert (STAGE, "value") in marks(engine, "EAGLEWorkerV2.verify")


def test_a_width_is_followed_through_a_field_a_local_and_a_parameter(tmp_path):
    found = edited(
        tmp_path,
        SCHEDULER,
        (
            "        logits = self.model_runner.forward(batch)\n",
            "        logits = self.model_runner.pad(self.rows())\n",
        ),
        (
            "    def forward(self, batch):\n",
            """    def pad(self, rows):
        return torch.zeros((rows, 32))

    def forward(self, batch):
""",
        ),
        (
            "    def forward_batch_generation(self, batch: ScheduleBatch, is_verify",
            """    def rows(self):
        wide = self.model_runner.width
        return wide

    def forward_batch_generation(self, batch: ScheduleBatch, is_verify""",
        ),
    )
    assert (WIDTH, SIZE) in marks(found, "ModelRunner.pad")


def test_what_is_made_of_rows_and_a_width_is_no_width_itself(tmp_path):
    grown = ("or 1\n", "or 1\n        self.slots = self.width * 64\n        self.half = self.slots\n")
    found = scene(*edited(tmp_path, SCHEDULER, grown)).marks
    assert "width" in found.widths and "half" not in found.widths


# --- groups ------------------------------------------------------------------------------------------------------


def test_a_mode_that_is_captured_at_the_start_is_not_the_mode_of_an_off_step(tmp_path):
    found = edited(
        tmp_path,
        SCHEDULER,
        (
            "or 1\n",
            "or 1\n        self.captured = ForwardMode.TARGET_VERIFY if self.width > 1 else ForwardMode.DECODE\n",
        ),
    )
    assert scene(*found).marks.captured == set()  # which of the two is not known
    found = edited(
        tmp_path / "always",
        SCHEDULER,
        ("or 1\n", "or 1\n        self.captured = ForwardMode.TARGET_VERIFY\n"),
        (SAMPLED, f"{ROWS}{SAMPLED}"),
    )
    assert scene(*found).marks.captured == {"captured"}
    assert (CAPTURED, TEST) in marks(found, "TpModelWorker.forward_batch_generation")
    titled = "forward_batch_generation goes by the mode that graphs were captured for"
    assert [levels(p) for p in derive(*found).points if p.title == titled] == ["hhn"]


def test_a_loop_whose_lists_are_joined_takes_one_step_at_least(engine, tmp_path):
    [point] = points(engine, "config_gate")
    assert levels(point) == "h" and "draft" in point.title
    rows = (
        "        for _ in range(self.speculative_num_steps):\n            rows.append(draft_input.topk_index)\n",
        "",
    )
    assert not points(edited(tmp_path, WORKER, rows), "config_gate")


GATHERED = """    def tell_ranks(self, batch: ScheduleBatch):
        batch.reqs[0].told = torch.distributed.all_reduce(batch.seq_lens)

    def run_batch(self, batch: ScheduleBatch)"""


def test_ranks_that_do_not_tell_whether_a_step_speculates_decide_on_their_own(tmp_path):
    tells = ("    def run_batch(self, batch: ScheduleBatch)", GATHERED)
    called = (
        "        result = self.model_worker.",
        "        self.tell_ranks(batch)\n        result = self.model_worker.",
    )
    [point] = points(edited(tmp_path, SCHEDULER, tells, called), "tp_agreement")
    assert levels(point) == "hhh"
    said = ("all_reduce(batch.seq_lens)", "all_reduce(batch.seq_lens if batch.spec_info is None else None)")
    [point] = points(edited(tmp_path / "said", SCHEDULER, tells, called, said), "tp_agreement")
    assert levels(point) == "nnn"


COUNTER = """class Tally:
    def __init__(self):
        self.seen = 0

    def count(self, n):
        self.seen += n


class Scheduler:
"""


def test_what_each_regime_calls_on_its_own_an_off_step_does_not(tmp_path):
    files = dict(FILES)
    text = files[SCHEDULER].replace("class Scheduler:\n", COUNTER, 1)
    text = text.replace(
        "        self.waiting_queue = []\n", "        self.tally = Tally()\n        self.waiting_queue = []\n", 1
    )
    plain = "        if batch.spec_algorithm.is_none():\n            for"
    text = text.replace(plain, plain.replace("            for", "            self.tally.count(1)\n            for"), 1)
    accepted = "        accept_lens = result.accept_lens.tolist()\n"
    files[SCHEDULER] = text.replace(accepted, f"{accepted}        self.tally.count(2)\n", 1)
    titles = [p.title for p in derive(*resolve(tmp_path, files)).points]
    assert "count of Tally is called by each regime on its own" in titles


def test_a_callback_that_the_worker_calls_is_not_called_in_an_off_step(tmp_path):
    files = dict(FILES)
    handed = "self.model_worker.forward_batch_generation(batch, on_lengths=self.publish)"
    text = files[SCHEDULER].replace("self.model_worker.forward_batch_generation(batch)", handed, 1)
    publish = "    def publish(self, lengths):\n        self.lengths = lengths\n\n    def run_batch"
    files[SCHEDULER] = text.replace("    def run_batch", publish, 1)
    begins = "(self, batch: ScheduleBatch) -> GenerationBatchResult:\n        if"
    calls = """(self, batch: ScheduleBatch, on_lengths=None) -> GenerationBatchResult:
        if on_lengths is not None:
            on_lengths(batch.seq_lens)
        if"""
    files[WORKER] = files[WORKER].replace(begins, calls, 1)
    found = [p for p in derive(*resolve(tmp_path, files)).points if "publish" in p.title]
    assert [levels(p) for p in found] == ["hhn"]
