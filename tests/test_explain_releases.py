"""Commands against a real release: what its own argument handling did with them was recorded before."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from sgltrace.files import user_cache_dir
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source

ROOT = Path(__file__).parent.parent
CASES = [c for c in json.loads((ROOT / "fixtures/explain/answers.json").read_text("utf-8")) if c["release"] == "0.5.9"]
CHOSEN = (2, 3, 5, 9)
"""Both paths, a refusal, and numbers that are not consistent: a few seconds of processor time each."""


@pytest.fixture(scope="module")
def truth():
    spec = importlib.util.spec_from_file_location("explain_truth", ROOT / "benchmarks" / "explain_truth.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def source():
    """The release, fetched once."""
    open_source("sglang==0.5.9", cache_dir=user_cache_dir(), progress=SilentProgress())
    return "sglang==0.5.9"


@pytest.mark.parametrize("position", CHOSEN)
def test_a_recorded_answer(truth, source, position):
    verdict = truth.judge(CASES[position], source)
    assert all(right for right in verdict.values() if isinstance(right, bool)), verdict
