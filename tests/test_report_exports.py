"""The exports, read back by what reads them elsewhere."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import networkx as nx
import pyarrow.parquet as parquet
import pytest
from report_node import node_file
from sample_index import sample_index, sample_runs

from sgltrace import cli
from sgltrace.commands.export import HELP
from sgltrace.errors import UsageError
from sgltrace.model import Function
from sgltrace.reports.exports import FORMATS, export
from sgltrace.workspace import Workspace

EVIL = '"]; a -> b \\ <b>&\x00\u202e|`*'


@pytest.fixture(scope="module")
def index():
    return sample_index(modules=2, functions=4)


@pytest.fixture(scope="module")
def evil(index):
    made = msgspec.json.decode(msgspec.json.encode(index), type=type(index))
    made.functions.append(
        Function(id=f"m:{EVIL}", file=f"{EVIL}.py", line=1, end_line=1, phase=[], paths=["v1"], component=EVIL)
    )
    point = made.coupling_points[0]
    point.title += EVIL
    point.why_it_blocks += f"\n# heading\n{EVIL}"
    point.producers.append(msgspec.structs.replace(point.producers[0], function=f"m:{EVIL}", what=EVIL))
    return made


@pytest.mark.parametrize("which", ["index", "evil"])
def test_sarif_is_valid_and_has_both_ends(which, request):
    index = request.getfixturevalue(which)
    log = json.loads(export("sarif", index))
    jsonschema.validate(log, json.loads(node_file("@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json")))
    results = log["runs"][0]["results"]
    assert len(results) == len(index.coupling_points)
    first = results[0]
    assert first["level"] == "error"
    ends = {location["message"]["text"].split(":")[0] for location in first["relatedLocations"]}
    assert ends == {"fixes it", "relies on it"}
    region = first["locations"][0]["physicalLocation"]
    assert region["artifactLocation"]["uri"] == "sglang/srt/managers/schedule_batch.py"
    assert {result["level"] for result in results} == {"error", "warning", "none"}


def test_sarif_says_what_a_rule_means_and_how_the_value_flows(index):
    made = msgspec.structs.replace(
        index, tool="sgltrace 1.2.3+abc", source=msgspec.structs.replace(index.source, below="python")
    )
    run = json.loads(export("sarif", made))["runs"][0]
    assert run["tool"]["driver"]["version"] == "1.2.3"
    for rule in run["tool"]["driver"]["rules"]:
        assert rule["help"]["text"] and rule["help"]["markdown"] and rule["helpUri"].startswith("https://")
    for result, point in zip(run["results"], made.coupling_points, strict=True):
        (flow,) = result["codeFlows"]
        places = [step["location"]["physicalLocation"] for step in flow["threadFlows"][0]["locations"]]
        assert len(places) == len(point.producers) + len(point.consumers)
        assert places[0]["region"]["startLine"] == point.producers[0].line
        assert all(place["artifactLocation"]["uri"].startswith("python/sglang/") for place in places)


def test_json_lines_have_a_point_each_with_its_release(index):
    lines = export("jsonl", index).splitlines()
    points = [json.loads(line) for line in lines]
    assert {point["id"] for point in points} == {point.id for point in index.coupling_points}
    assert {point["version"] for point in points} == {index.source.version}


@pytest.mark.parametrize("which", ["index", "evil"])
def test_graphml_is_read_back_whole(which, request):
    index = request.getfixturevalue(which)
    graph = nx.read_graphml(io.BytesIO(export("graphml", index)), force_multigraph=True)
    assert graph.number_of_nodes() == len(index.functions)
    assert graph.number_of_edges() == len(index.calls)
    entry = index.entry_points["v2"]
    assert graph.nodes[entry]["component"] == "speculative worker"


@pytest.mark.parametrize("which", ["index", "evil"])
def test_dot_names_each_function_on_a_path_once(which, request):
    index = request.getfixturevalue(which)
    text = export("dot", index).decode()
    assert text.count("tooltip=") == sum(bool(function.paths) for function in index.functions)
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tcanon"], input=text.encode(), check=True, capture_output=True)
    stripped = text.replace("\\\\", "").replace('\\"', "")
    assert all(line.count('"') % 2 == 0 for line in stripped.splitlines())


def test_csv_has_a_row_for_each_shape_and_no_formula_for_a_spreadsheet(index):
    runs = sample_runs()
    runs[0].tensors.append(msgspec.structs.replace(runs[0].tensors[0], name="=cmd|x"))
    rows = list(csv.DictReader(io.StringIO(export("csv", index, runs).decode())))
    assert len(rows) == sum(len(tensor.shapes) for tensor in runs[0].tensors)
    assert rows[0]["tensor"] == "next_token_ids" and rows[0]["shape"] == "4" and rows[0]["verdict"] == "confirmed"
    assert rows[-1]["tensor"] == "'=cmd|x"
    assert list(csv.DictReader(io.StringIO(export("csv", index, []).decode()))) == []


def test_parquet_is_read_back(index):
    table = parquet.read_table(io.BytesIO(export("parquet", index, sample_runs())))
    assert table.num_rows == 4
    assert table.column("batch").to_pylist() == [1, 2, 8, 3]


def test_parquet_says_what_it_needs(index, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pip install pyarrow"):
        export("parquet", index, sample_runs())


def test_markdown_answers_and_lists_blockers(index):
    text = export("markdown", index, sample_runs()).decode()
    assert "| v2 | A: the scheduler sends the batch to the target worker | no | 4 | 1 |" in text
    assert "- [ ] **next\\_token\\_ids is read with a stride of num\\_draft\\_tokens** (hard; designs A, B, C;" in text
    assert "h200-eagle3: 40 steps" in text


def test_markdown_of_hostile_names_is_text(evil):
    text = export("markdown", evil).decode()
    assert "\n# heading" not in text and "<b>" not in text and "\u202e" not in text


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_index_gives_the_same_bytes(name, index):
    assert export(name, index, sample_runs()) == export(name, index, sample_runs())


def test_an_unknown_format_is_refused(index):
    with pytest.raises(UsageError, match="no format 'pdf'"):
        export("pdf", index)


@pytest.fixture
def workspace(index, tmp_path):
    made = Workspace.to_write(tmp_path / "w")
    made.write_index(index)
    return made.folder


def run(*arguments: object) -> int:
    return cli.run([str(argument) for argument in arguments])


def test_the_command_writes_a_file_or_prints(index, workspace, tmp_path, capfdbinary):
    assert run("export", "csv", "-w", workspace) == 0
    assert capfdbinary.readouterr().out == export("csv", index)
    assert run("export", "dot", "-w", workspace, "-o", tmp_path / "x.dot") == 0
    assert (tmp_path / "x.dot").read_bytes() == export("dot", index)
    assert run("export", "dot", "-w", workspace, "-o", tmp_path) == 3
    assert b"cannot write" in capfdbinary.readouterr().err


def test_the_commands_help_names_every_format():
    assert all(name in HELP for name in [*FORMATS, "perfetto"])


def test_a_timeline_of_a_recorded_run(tmp_path, capfdbinary):
    trace = Path(__file__).parent.parent / "fixtures/traces/eagle3_v2"
    assert run("export", "--perfetto", "--run", trace, "-o", tmp_path / "t.json") == 0
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 100


def test_a_timeline_wants_a_run(workspace, capfdbinary):
    assert run("export", "perfetto", "-w", workspace) == 2
    assert run("export", "csv", "--run", workspace) == 2
