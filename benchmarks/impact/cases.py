"""The diffs, as edits, and what must be said of each. Most edits are those of ``benchmarks.variants``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.variants.edits import EDITS
from benchmarks.variants.edits.forks_v1 import no_graph_for_plain_decode, switch
from benchmarks.variants.registry import Copy


@dataclass(frozen=True)
class Case:
    """A diff of a release. Fields are told by their last names, functions by the tails of their ids."""

    name: str
    release: str
    apply: Callable[[Copy], None]
    resolves: tuple[str, ...] = ()
    """Fields of points that it resolves, in whole or, with other designs left, in part."""
    adds: tuple[str, ...] = ()
    """Fields of points that it makes hard."""
    touches: tuple[str, ...] = ()
    beside: bool = False
    partly: tuple[str, ...] = ()
    """Fields of points that it repairs by half."""
    nothing_hard: bool = True
    """Whether nothing may become hard but what ``adds`` names."""


def variant(
    name: str, release: str | None = None, *, resolves: tuple[str, ...] = (), adds: tuple[str, ...] = (),
    touches: tuple[str, ...] = (), beside: bool = False,
) -> Case:  # fmt: skip
    """A case of an edit of ``benchmarks.variants``, which may fit a later release, too."""
    made = EDITS[name]
    return Case(name, release or made.release, made.apply, resolves, adds, touches, beside)


def grammar_masks_only(copy: Copy) -> None:
    """Masks of a grammar are made for the requests that have one: a row less of work, and the same masks."""
    copy.replace(
        "speculative/spec_utils.py",
        ("    assert len(reqs) == retrieve_next_token_cpu.shape[0]\n    grammar = None\n",
         "    assert len(reqs) == retrieve_next_token_cpu.shape[0]\n    grammar = None\n"
         "    if all(req.grammar is None for req in reqs):\n        return None\n"),
        ("            s = time.perf_counter()\n", "            started = time.perf_counter()\n"),
        ("time.perf_counter() - s\n", "time.perf_counter() - started\n"),
        after="def generate_token_bitmask(",
    )  # fmt: skip


def prepare_for_decode_split(copy: Copy) -> None:
    """What moves a plain step's requests on becomes a method of its own."""
    path = "managers/schedule_batch.py"
    block = copy.cut(
        path, "        # Update req-level memory management fields\n", "        # Update seq_lens after allocation\n",
        after="    def prepare_for_decode(self):",
    )  # fmt: skip
    copy.replace(
        path,
        ("        # Update seq_lens after allocation\n",
         "        self._advance_requests()\n\n        # Update seq_lens after allocation\n"),
        after="    def prepare_for_decode(self):",
    )  # fmt: skip
    copy.replace(path, ("    def prepare_for_decode(self):", f"    def _advance_requests(self):\n{block}\n"
                        "    def prepare_for_decode(self):"))  # fmt: skip


def counts_behind_a_flag(copy: Copy) -> None:
    """A result without accept lengths counts as a token a request, once somebody sets the flag; nobody does."""
    path = "managers/scheduler_output_processor_mixin.py"
    copy.replace(
        path,
        ("        accept_lens = result.accept_lens.tolist()\n",
         "        if batch.plain_round:\n"
         "            accept_lens = [1] * len(batch.reqs)\n"
         "        else:\n"
         "            accept_lens = result.accept_lens.tolist()\n"),
        after="    def _resolve_spec_overlap_token_ids(",
    )  # fmt: skip
    copy.replace(
        "managers/schedule_batch.py",
        ("    # Speculative decoding\n    spec_algorithm:",
         "    plain_round: bool = False\n\n    # Speculative decoding\n    spec_algorithm:"),
        after="class ScheduleBatch(",
    )  # fmt: skip


def attempt_per_batch(copy: Copy) -> None:
    """What a real attempt on the path without overlap did: the scheduler decides for each batch; the target's graphs,
    captured for verify, are not asked for a plain decode; two batches merge without a draft state."""
    switch(copy)
    no_graph_for_plain_decode(copy)


CASES = [
    variant("stride_of_the_result", resolves=("next_token_ids",), touches=("_resolve_spec_overlap_token_ids",)),
    variant("plain_result_returns_early", resolves=("accept_lens",), touches=("_resolve_spec_overlap_token_ids",)),
    variant("second_graph_runner", resolves=("num_tokens_per_bs",), touches=("ModelRunner._forward_raw",)),
    variant("result_list", adds=("*",), touches=("EAGLEWorkerV2.verify",)),
    variant("result_list_guarded", touches=("EAGLEWorkerV2.verify",), beside=True),
    variant("weight_left_for_the_next_draft", adds=("*",)),
    variant("resolution_split_in_two", beside=True),
    Case("grammar_masks_only", "0.5.9", grammar_masks_only, touches=("generate_token_bitmask",), beside=True),
    Case("prepare_for_decode_split", "0.5.9", prepare_for_decode_split, touches=("prepare_for_decode",), beside=True),
    Case("counts_behind_a_flag", "0.5.9", counts_behind_a_flag, partly=("accept_lens",),
         touches=("_resolve_spec_overlap_token_ids",)),
    Case("attempt_per_batch", "0.5.6", attempt_per_batch, resolves=("out_cache_loc",),
         touches=("Scheduler.run_batch", "ModelRunner._forward_raw"), nothing_hard=False),
    variant("counts_filled_in_where_missing", "0.5.23", resolves=("accept_lens",)),
    variant("result_list_21", "0.5.23", adds=("*",)),
    variant("result_list_21_with_a_stand_in", "0.5.23", beside=True),
    variant("no_zero_step_round", "0.5.23", adds=("*",)),
    variant("preparation_dispatched_the_other_way", "0.5.23", beside=True),
    variant("toy_counts_default_to_one", resolves=("accept_lens",)),
    variant("toy_second_graph_runner", resolves=("num_tokens_per_bs",)),
    variant("toy_result_list", adds=("*",)),
    variant("toy_result_list_guarded", beside=True),
    variant("toy_fields_renamed", beside=True),
    variant("toy_plain_block_in_a_helper", beside=True),
]  # fmt: skip
"""``*`` among fields: any field."""
