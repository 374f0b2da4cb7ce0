"""Do the coupling points follow the code of an engine of two files? Each test edits it, and says what is true then."""

from pathlib import Path

import pytest
from small_engine import FILES
from trees import write_tree

from benchmarks.variants.checks import About, Check, Index, every, found, gone, quiet, same
from benchmarks.variants.registry import Copy
from benchmarks.variants.scoring import indexed, load

SCHEDULER = "managers/scheduler.py"
WORKER = "speculative/eagle_worker_v2.py"
NOTHING: Index = {"coupling_points": []}

ACCEPT_LENS = About("accept_lens", either=("Scheduler.process_batch_result_decode",))
NEXT_STATE = About("next_draft_input", either=("Scheduler.run_batch",))
NEWEST_TOKEN = About("bonus_tokens", either=("EAGLEWorkerV2.draft",))


def engine(folder: Path) -> Copy:
    return Copy(write_tree(folder, {path: text.encode() for path, text in FILES.items()}))


def index_of(copy: Copy) -> Index:
    copy.compile()
    return load(indexed(copy.root / "sglang", copy.root / "workspace", jobs=1))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return index_of(engine(tmp_path_factory.mktemp("engine")))


def passes(check: Check, before: Index, after: Index) -> None:
    failed = [said for ok, said in check(before, after) if not ok]
    assert not failed, "\n".join(failed)


def test_what_a_plain_result_lacks_is_hard(base: Index):
    passes(
        every(
            found("accept lengths", ACCEPT_LENS, "v2", "AB", spared="C"),
            found("next draft state", NEXT_STATE, "v2", "AB"),
            found("token to draft from", NEWEST_TOKEN, "v2", "AB"),
        ),
        NOTHING,
        base,
    )


def test_a_field_that_nobody_reads_couples_nothing(base: Index):
    passes(quiet("hidden states", About("hidden_states")), NOTHING, base)


def test_a_field_that_the_next_draft_reads_is_hard(tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        WORKER,
        (
            "        rows = [draft_input.bonus_tokens]\n",
            "        rows = [draft_input.bonus_tokens + draft_input.hidden_states.argmax(dim=-1)]\n",
        ),
    )
    about = About("hidden_states", either=("EAGLEWorkerV2.draft",))
    passes(found("hidden states", about, "v2", "AB"), NOTHING, index_of(copy))


@pytest.mark.parametrize(
    "counts",
    [
        "[1] * len(batch.reqs) if result.accept_lens is None else result.accept_lens.tolist()",
        "result.accept_lens.tolist() if result.accept_lens is not None else [1] * len(batch.reqs)",
        "(lens if (lens := result.accept_lens) is not None else torch.ones(len(batch.reqs), dtype=int)).tolist()",
    ],
    ids=["is None", "is not None", "walrus"],
)
def test_a_none_check_saves_the_accept_lengths(counts: str, base: Index, tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(SCHEDULER, ("result.accept_lens.tolist()", counts))
    passes(gone("accept lengths", ACCEPT_LENS, "v2", "AB"), base, index_of(copy))


def test_an_early_return_saves_the_accept_lengths(base: Index, tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "        if batch.spec_algorithm.is_none():\n            for",
            "        if result.accept_lens is None:\n            for",
        ),
    )
    passes(gone("accept lengths", ACCEPT_LENS, "v2", "AB"), base, index_of(copy))


def test_a_default_on_the_class_saves_the_accept_lengths(base: Index, tmp_path: Path):
    """Every result has accept lengths: its constructor makes ones where it is given none."""
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "    logits: torch.Tensor | None = None\n",
            """    logits: torch.Tensor | None = None

    def __post_init__(self):
        if self.accept_lens is None and self.next_token_ids is not None:
            self.accept_lens = torch.ones(len(self.next_token_ids), dtype=torch.int32)
""",
        ),
    )
    passes(gone("accept lengths", ACCEPT_LENS, "v2", "AB"), base, index_of(copy))


def test_a_draft_that_primes_itself_needs_no_state(base: Index, tmp_path: Path):
    """Without a state from the result the batch has none, and the next draft makes one from the newest tokens."""
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "            batch.spec_info = result.next_draft_input\n"
            "            batch.seq_lens = batch.spec_info.new_seq_lens\n",
            """            batch.spec_info = result.next_draft_input
            if batch.spec_info is None:
                batch.seq_lens = batch.seq_lens + 1
            else:
                batch.seq_lens = batch.spec_info.new_seq_lens
""",
        ),
    )
    copy.replace(
        WORKER,
        (
            "        rows = [draft_input.bonus_tokens]\n",
            """        if draft_input is None:
            draft_input = self.draft_extend(batch, batch.output_ids)
        rows = [draft_input.bonus_tokens]
""",
        ),
    )
    passes(
        every(gone("next draft state", NEXT_STATE, "v2", "AB"), gone("token to draft from", NEWEST_TOKEN, "v2", "AB")),
        base,
        index_of(copy),
    )


def test_a_width_of_the_start_in_a_view_is_hard(tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "        return GenerationBatchResult(next_token_ids=torch.argmax(logits, dim=-1))\n",
            """        if batch.forward_mode.is_decode():
            logits = logits.view(-1, self.model_runner.width, 32)[:, 0]
        return GenerationBatchResult(next_token_ids=torch.argmax(logits, dim=-1))
""",
        ),
    )
    about = About("width", either=("TpModelWorker.forward_batch_generation",))
    passes(found("width", about, "v2", "AB", spared="C"), NOTHING, index_of(copy))


def test_a_width_of_the_start_that_only_verify_meets_is_not(tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "            return GenerationBatchResult(logits=logits)\n",
            "            logits = logits.view(-1, self.model_runner.width, 32).flatten(0, 1)\n"
            "            return GenerationBatchResult(logits=logits)\n",
        ),
    )
    about = About("width", either=("TpModelWorker.forward_batch_generation",))
    passes(quiet("width", about, "v2", "AB"), NOTHING, index_of(copy))


def test_a_refusal_is_hard_where_an_off_step_meets_it(tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "        logits = self.model_runner.forward(batch)\n",
            """        if self.server_args.speculative_algorithm and batch.forward_mode.is_decode() and not is_verify:
            raise NotImplementedError("a decode without drafts")
        logits = self.model_runner.forward(batch)
""",
        ),
    )
    about = About(some=("without drafts", "NotImplementedError"), either=("TpModelWorker.forward_batch_generation",))
    passes(found("refusal", about, "v2", "AB", spared="C"), NOTHING, index_of(copy))


def test_a_refusal_that_only_a_prefill_meets_is_not(tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "        logits = self.model_runner.forward(batch)\n",
            """        if self.server_args.speculative_algorithm and batch.forward_mode.is_extend() and not batch.reqs:
            raise RuntimeError("a prefill without requests")
        logits = self.model_runner.forward(batch)
""",
        ),
    )
    passes(quiet("refusal", About(words=("without requests",))), NOTHING, index_of(copy))


RENAMED = {"EAGLEWorkerV2": "TreeWorker", "EagleDraftInput": "DraftState", "GenerationBatchResult": "StepOutcome"}
RENAMED_FIELDS = {"accept_lens": "taken_lens", "bonus_tokens": "newest_token", "next_draft_input": "follow_state"}


@pytest.mark.parametrize("names", [RENAMED, RENAMED_FIELDS], ids=["classes", "fields"])
def test_names_change_nothing(names: dict[str, str], base: Index, tmp_path: Path):
    copy = engine(tmp_path)
    copy.rename(names)
    passes(same("renamed", names), base, index_of(copy))


def test_a_method_of_its_own_changes_nothing(base: Index, tmp_path: Path):
    copy = engine(tmp_path)
    copy.replace(
        SCHEDULER,
        (
            "        if not self.spec_algorithm.is_none():\n            return\n",
            "        if self.spec_algorithm.is_none():\n            self.advance()\n\n    def advance(self):\n",
        ),
        after="    def prepare_for_decode(self):",
    )
    passes(same("plain block in a method", moved=("ScheduleBatch.prepare_for_decode",)), base, index_of(copy))


def test_the_result_in_a_module_of_its_own_changes_nothing(base: Index, tmp_path: Path):
    copy = engine(tmp_path)
    text = copy.cut(SCHEDULER, "@dataclasses.dataclass\nclass GenerationBatchResult:\n", "class Req:\n")
    copy.create(
        "managers/outcome.py", "from __future__ import annotations\n\nimport dataclasses\n\nimport torch\n\n\n" + text
    )
    copy.replace(
        SCHEDULER, ("import torch\n", "import torch\nfrom sglang.srt.managers.outcome import GenerationBatchResult\n")
    )
    passes(same("result moved"), base, index_of(copy))
