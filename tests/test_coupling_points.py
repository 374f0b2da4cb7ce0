"""``sgltrace points``: what it lists, and what it says where there is nothing."""

from __future__ import annotations

import json

import pytest
from sample_index import sample_index

from sgltrace.cli import run
from sgltrace.errors import UsageError
from sgltrace.insight.points import find, select
from sgltrace.workspace import Workspace


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "ws"
    Workspace.to_write(folder).write_index(sample_index())
    return folder


def test_select_by_path_kind_and_severity():
    index = sample_index()
    every = select(index)
    assert every == index.coupling_points
    for point in select(index, "v1", every[0].kind, "hard"):
        assert (point.kind, point.severity["v1"]) == (every[0].kind, "hard")
    with pytest.raises(UsageError, match="no point of kind 'x'"):
        select(index, kind="x")


def test_find_by_the_beginning_of_an_id():
    index = sample_index()
    point = index.coupling_points[0]
    assert find(index, point.id) is point
    with pytest.raises(UsageError, match="no coupling point"):
        find(index, "there-is-no-such-thing")


def test_command_lists_and_shows(workspace, capsys):
    assert run(["points", "-w", str(workspace)]) == 0
    listed = capsys.readouterr().out
    point = sample_index().coupling_points[0]
    assert point.id in listed
    assert run(["points", point.id, "-w", str(workspace)]) == 0
    assert point.title in capsys.readouterr().out


def test_command_prints_json(workspace, capsys):
    assert run(["points", "-w", str(workspace), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["coupling_points"]) == len(sample_index().coupling_points)
