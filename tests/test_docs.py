"""What the documentation says of this repository is there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMED = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (ROOT / "docs/threat-model.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED)))
def test_each_test_that_the_threat_model_names_is_there(file, name):
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert name in {statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef)}


def test_every_threat_has_a_test():
    rows = [
        line for line in (ROOT / "docs/threat-model.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"
    ]
    assert len(rows) > 15
    assert all("::" in row.split("|")[4] for row in rows[2:])


def test_the_site_builds_and_each_link_leads_somewhere(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert 'id="points"' in (tmp_path / "reference/commands/index.html").read_text(encoding="utf-8")
