"""The schemas that other programs read by: what is written fits them, and what an earlier version wrote is read."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from sample_index import sample_index

from sgltrace import cli
from sgltrace.commands.schema import schema_of
from sgltrace.insight.query import CallGraph
from sgltrace.insight.state import contract_of
from sgltrace.runtime import read_trace
from sgltrace.workspace import encode_index, load_index

TRACES = Path(__file__).parent.parent / "fixtures/traces"
EARLIER = Path(__file__).parent / "data/index-1.json"
"""An index of ``sgltrace.index/1`` as the first version wrote it; it stays as it is."""


def check(name: str, data: bytes) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(data), schema, cls=jsonschema.Draft202012Validator)


def test_what_is_written_fits_its_schema():
    check("index", encode_index(sample_index()))


@pytest.mark.parametrize("trace", sorted(path.parent.name for path in TRACES.glob("*/run.json")))
def test_recorded_traces_fit_their_schemas(trace):
    check("run", (TRACES / trace / "run.json").read_bytes())
    check("plan", (TRACES / trace / "plan.json").read_bytes())


@pytest.mark.parametrize(("key", "wrong"), [("functions", None), ("source", []), ("unresolved", [{"caller": 1}])])
def test_what_is_not_an_index_does_not_fit(key, wrong):
    plain = json.loads(encode_index(sample_index(modules=1, functions=2)))
    with pytest.raises(jsonschema.ValidationError):
        check("index", json.dumps({**plain, key: wrong}).encode())


def test_an_earlier_index_fits_and_is_read():
    check("index", EARLIER.read_bytes())
    index = load_index(EARLIER)
    assert CallGraph(index).calls(index.functions[0].id) is not None
    assert contract_of(index, "v2")
    earlier, now = json.loads(EARLIER.read_bytes()), json.loads(msgspec.json.encode(index))
    assert lost(earlier, now) == []


def lost(earlier: object, now: object, place: str = "") -> list[str]:
    """What stood in an earlier file and is not in the same file written now."""
    if isinstance(earlier, dict) and isinstance(now, dict):
        gone = [f"{place}.{key}" for key in earlier if key not in now]
        return gone + [each for key in earlier if key in now for each in lost(earlier[key], now[key], f"{place}.{key}")]
    if isinstance(earlier, list) and isinstance(now, list) and len(earlier) == len(now):
        return [
            each
            for i, (one, other) in enumerate(zip(earlier, now, strict=True))
            for each in lost(one, other, f"{place}[{i}]")
        ]
    return [] if earlier == now else [place]


def test_earlier_traces_are_read():
    trace = read_trace(TRACES / "base")
    assert sum(1 for process in trace.recording() for _ in process.records()) > 100


def test_the_command_prints_them(capsys):
    assert cli.run(["schema", "index"]) == 0
    assert json.loads(capsys.readouterr().out) == schema_of("index")
