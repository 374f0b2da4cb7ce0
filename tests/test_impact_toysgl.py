"""What is said of diffs of the toy engine: the cases of ``benchmarks.impact`` that are small enough for the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.impact.cases import CASES, Case
from benchmarks.impact.scoring import check, impact_of
from benchmarks.variants.sources import Sources

TOYS = [case for case in CASES if case.release == "toysgl"]


@pytest.mark.parametrize("case", TOYS, ids=[case.name for case in TOYS])
def test_a_diff_of_the_toy_engine(case: Case, tmp_path: Path):
    failed = [said for ok, said in check(case, impact_of(case, Sources(tmp_path))) if not ok]
    assert not failed
