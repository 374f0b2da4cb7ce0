"""Fields in step order, and the contract, on the command line."""

import json

import pytest
from test_cli import call  # noqa: F401

from sgltrace.errors import UsageError
from sgltrace.insight.state import contract_of, find_fields, in_step_order, step_order
from sgltrace.model import Access, CallEdge, CallSite, ContractField, Field, Function, Index, Source


def function(name: str) -> Function:
    return Function(id=f"m:{name}", file="m.py", line=1, end_line=9, phase=["every step"], paths=["v2"])


def edge(caller: str, callee: str, line: int) -> CallEdge:
    sites = [CallSite(line, [])]
    return CallEdge(caller=f"m:{caller}", callee=f"m:{callee}", kind="direct", confidence=1.0, sites=sites)


def access(name: str, line: int) -> Access:
    return Access(function=f"m:{name}", line=line, phase=["every step"], paths=["v2"])


@pytest.fixture
def index() -> Index:
    field = Field(
        cls="m:Batch", field="slots", writes=[access("prepare", 3)], reads=[access("late", 2), access("loop", 8)]
    )
    return Index(
        source=Source(name="sglang", version="1", root="r", kind="folder", requested="r"),
        entry_points={"v1": None, "v2": "m:loop"},
        event_loops=["m:loop"],
        functions=[function(name) for name in ("late", "loop", "prepare")],
        calls=[edge("loop", "late", 7), edge("loop", "prepare", 2)],
        unresolved=[],
        fields=[field],
        contract=[
            ContractField(
                path="v2",
                field="result.ids",
                shape="(bs,)",
                dtype="int32",
                stride=None,
                requirement="required",
                off_step_value="ones",
                writers=[],
                readers=[],
            )
        ],
    )


def test_step_order_is_that_of_the_calls_lines(index):
    assert list(step_order(index)) == ["m:loop", "m:prepare", "m:late"]


def test_accesses_come_in_step_order(index):
    found = in_step_order(index, find_fields(index, "Batch.slots"), "v2")
    assert [(a.access.function, a.writes) for a in found] == [("m:loop", False), ("m:prepare", True), ("m:late", False)]


def test_a_wrong_field_gets_a_suggestion(index):
    with pytest.raises(UsageError, match=r"did you mean Batch\.slots"):
        find_fields(index, "Batch.slotz")


def test_a_path_that_is_not_there_is_said(index):
    assert [row.field for row in contract_of(index, "v2")] == ["result.ids"]
    with pytest.raises(UsageError, match="has no path v1; it has v2"):
        contract_of(index, "v1")


def test_on_the_command_line(call, index, tmp_path):  # noqa: F811
    from sgltrace.workspace import Workspace

    workspace = Workspace.to_write(tmp_path / "w")
    workspace.write_index(index)
    code, out, _ = call("field", "slots", "-w", str(workspace.folder), "--json")
    assert code == 0 and len(json.loads(out)["accesses"]) == 3
    code, out, _ = call("contract", "-w", str(workspace.folder))
    assert code == 0 and "off step: ones" in out
