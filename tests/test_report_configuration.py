"""A configuration in the report: the browser's answers are those of the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from sgltrace.cli import run
from sgltrace.configuration import Configuration
from sgltrace.configuration.model import Open
from sgltrace.insight.configured import Configured
from sgltrace.reports.views.switch import switch_data
from sgltrace.workspace import Workspace

ROOT = Path(__file__).parent.parent
PROGRAM = """
const fs = require("fs");
globalThis.sgl = { page() {}, state: { read: () => ({}) } };
globalThis.document = {};
eval(fs.readFileSync(process.argv[1], "utf8"));
const { data, asked } = JSON.parse(fs.readFileSync(0, "utf8"));
const out = asked.map((text) => {
  const given = sgl.server(data, text);
  return { given, ...sgl.stand(data, given) };
});
console.log(JSON.stringify(out));
"""
ASKED = [
    "eagle,topk=1", "eagle,no-overlap", "eagle,no-cuda-graph,tp=1", "eagle,tp=2", "tp=1",
    "python -m sglang.launch_server --speculative-algorithm EAGLE --tp-size 4 --disable-cuda-graph",
    "python -m sglang.launch_server --speculative-algorithm=EAGLE --disable-overlap-schedule",
]  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("switch")
    source = ROOT / "fixtures/toysgl/sglang"
    shutil.copytree(source, folder / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
    assert run(["index", str(folder / "sglang"), "-o", str(folder / "work"), "--no-report", "--jobs", "1"]) == 0
    return Workspace.open(folder / "work").load_index()


@pytest.fixture(scope="module")
def told(index):
    data = switch_data(index)
    script = str(ROOT / "templates/assets/configuration.js")
    asked = json.dumps({"data": data, "asked": ASKED})
    done = subprocess.run(["node", "-e", PROGRAM, script], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(ASKED, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("text", ASKED)
def test_the_browser_says_what_the_command_line_says(index, told, text):
    given = told[text]["given"]
    values = {name: options[0] for name, options in given["values"].items() if len(options) == 1}
    answers = index.conditions.algorithms.get(str(values["speculative_algorithm"] or "NONE").upper(), {})
    cut = Configured(
        index,
        Configuration(
            values=values,
            open={n: Open(o, []) for n, o in given["values"].items() if len(o) > 1},
            path=given["path"],
            overlap=given["overlap"],
            predicates={**answers, **{f"self.{n.rpartition('.')[2]}": a for n, a in answers.items()}},
            meanings=index.conditions.meanings,
        ),
    )
    assert told[text]["points"] == {point.id: cut.point(point).state for point in index.coupling_points}
    assert told[text]["rows"] == {f"{row.path} {row.field}": cut.row(row).state for row in index.contract}


def test_the_path_follows_from_words_and_from_commands(told):
    paths = [told[text]["given"]["path"] for text in ASKED]
    assert paths == ["v2", "v1", "v2", "v2", "none", "v2", "v1"]


def test_what_is_no_option_is_said(index):
    asked = json.dumps({"data": switch_data(index), "asked": ["eagle,nothing=3"]})
    script = str(ROOT / "templates/assets/configuration.js")
    done = subprocess.run(["node", "-e", PROGRAM, script], input=asked, capture_output=True, text=True, check=False)
    assert "nothing=3: no such option in this release" in done.stderr
