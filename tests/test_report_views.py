"""What the pages say, before it is drawn: tables of what was seen, charts, conditions, lanes and questions."""

from __future__ import annotations

import msgspec
import pytest
from sample_index import sample_index, sample_runs

from sgltrace.insight.answer import answers
from sgltrace.insight.observed import Observed, Shape
from sgltrace.model import CallEdge, CallSite, Function, Guard, Index, OffStep, Place
from sgltrace.reports import ReportOptions
from sgltrace.reports.context import Context
from sgltrace.reports.views.chain import Call, Group, chain
from sgltrace.reports.views.chart import Series, chart
from sgltrace.reports.views.lanes import LANES, lanes
from sgltrace.reports.views.overview import overview
from sgltrace.reports.views.questions import QUESTIONS, questions
from sgltrace.reports.views.runs import run_pages
from sgltrace.reports.views.seen import COLUMNS, seen_table
from sgltrace.reports.views.unknowns import reason_without_names
from sgltrace.reports.views.verdict import verdict


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(sample_index(), None, ReportOptions(runs=sample_runs()))


def tensor(name: str, verdict: str, *shapes: tuple[int, list[int], str]) -> Observed:
    seen = [Shape(batch=batch, shape=shape, dtype="int64", how=how, count=2) for batch, shape, how in shapes]
    return Observed(name=name, function="m:f", line=1, formula="(bs,)", verdict=verdict, shapes=seen)


def test_what_was_seen_has_a_column_for_each_batch_size_and_what_is_refuted_comes_first(context):
    table = seen_table(
        context,
        [
            tensor("a", "confirmed", (1, [1], "eager"), (8, [8, 2], "eager"), (8, [8], "capture")),
            tensor("b", "refuted", (8, [7], "eager"), (8, [8], "eager")),
            tensor("c", "confirmed"),
        ],
    )
    assert table.batches == [1, 8]
    rows = [(row.name, row.how, [cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row.cells]) for row in table.rows]
    assert rows == [
        ("b", "eager", ["", "(7,) or (8,)"]),
        ("a", "capture", ["", "(8,)"]),
        ("a", "eager", ["(1,)", "(8, 2)"]),
    ]
    assert [row.first for row in table.rows] == [True, True, False]


def test_of_many_batch_sizes_the_largest_is_shown(context):
    table = seen_table(context, [tensor("a", "confirmed", *((n, [n], "eager") for n in range(1, 41)))])
    assert len(table.batches) == COLUMNS and table.batches[-1] == 40
    assert table.left_out == 40 - COLUMNS


def test_a_line_of_a_chart_is_broken_where_only_another_line_has_a_point():
    drawn = chart(
        "t", "", [Series("live", [(n, 1.0) for n in range(1, 6)]), Series("padded", [(1, 1.0), (2, 1.0), (5, 1.0)])]
    )
    assert drawn is not None
    assert [line.path.count("M") for line in drawn.lines] == [1, 2]


def test_a_line_that_is_sampled_is_not_broken():
    drawn = chart("t", "ms", [Series("", [(n, float(n)) for n in range(0, 100, 10)])])
    assert drawn is not None and drawn.lines[0].path.count("M") == 1
    assert drawn.summary == "Steps 0 to 90. 0 to 90, mean 45 ms."


def test_conditions_of_calls_that_follow_each_other_are_said_once():
    def site(line: int, *texts: str) -> list[CallSite]:
        return [CallSite(line=line, guards=[Guard(text=text, holds=True, line=1, kind="if") for text in texts])]

    functions = [
        Function(id=f"m:{name}", file="m.py", line=1, end_line=9, phase=["every step"], paths=["v1"], component="c")
        for name in ("loop", "a", "b", "d", "work")
    ]
    calls = [
        CallEdge(caller="m:loop", callee=f"m:{name}", kind="direct", confidence=1.0, sites=sites)
        for name, sites in (
            ("a", site(2, "x", "y")),
            ("b", site(3, "x", "y", "z")),
            ("d", site(4, "x")),
            ("work", site(5)),
        )
    ]
    calls += [CallEdge(caller=f"m:{n}", callee="m:work", kind="direct", confidence=1.0, sites=site(7)) for n in "abd"]
    sample = sample_index(modules=1, functions=1)
    index = Index(
        source=sample.source,
        entry_points={"v1": "m:work", "v2": None},
        event_loops=["m:loop"],
        functions=functions,
        calls=calls,
        unresolved=[],
    )
    root = chain(Context(index, None, ReportOptions()), "v1").roots[0]

    def told(items: list[Call | Group]) -> list[object]:
        return [
            ([g.text for g in item.conditions], told(item.inside))
            if isinstance(item, Group)
            else (item.function.name, [g.text for g in item.shown])
            for item in items
        ]

    assert told(root.inside) == [
        (["x"], [(["y"], [("a", []), ("b", ["z"])]), ("d", [])]),
        ("work", []),
    ]
    assert [len(call.guards) for call in root.calls] == [2, 3, 1, 0]


def test_lanes_are_the_parts_of_a_step_on_both_paths(context):
    view = lanes(context, [chain(context, path) for path in context.paths])
    assert view.paths == ["v1", "v2"] and view.overlap == ["v2"]
    names = [name for name, _ in view.lanes]
    assert names == [name for name in LANES if name in names]
    assert {"scheduler", "worker", "result processing"} <= set(names)
    texts = {row.mark.text for path in view.paths for row in view.calls.rows[path]}
    assert "scheduler calls worker" in texts and "scheduler calls result processing" in texts


def test_every_point_answers_one_question(context):
    found = questions(context)
    kinds = [kind for _, kinds in QUESTIONS for kind in kinds]
    assert len(kinds) == len(set(kinds))
    assert sum(q.hard + q.soft + q.none for q in found) == len(context.index.coupling_points)


def test_a_kind_that_nobody_asked_for_is_not_lost():
    index = sample_index()
    index.coupling_points[0] = msgspec.structs.replace(index.coupling_points[0], kind="news")
    found = questions(Context(index, None, ReportOptions()))
    assert found[-1].text == "What else?" and "kind=news&" in found[-1].url


def test_the_first_screen_counts_what_the_filter_of_the_table_finds(context):
    view = overview(context)
    assert sum(view.evidence.values()) == len(context.index.coupling_points)
    assert [(a.path, a.design, a.hard) for a in view.verdict.nearest] == [("v1", "C", 1), ("v2", "C", 2)]


def test_a_run_lists_the_points_that_it_speaks_of(context):
    page = run_pages(context)[0]
    assert page.points and {verdict for _, verdict in page.points} <= {"confirmed", "refuted"}
    assert len(page.points) + page.silent == len(context.index.coupling_points)
    assert sum(row.steps for row in page.modes) == len(page.run.steps)


def test_reasons_are_counted_together_whatever_they_name():
    index = sample_index()
    call = index.unresolved[0]

    def reason(expression: str, why: str) -> str:
        return reason_without_names(msgspec.structs.replace(call, expression=expression, why=why))

    assert reason("a.is_done", "nothing is known of a") == reason("b.x()", "nothing is known of b.x()")
    assert reason("a.is_done", "nothing is known of a") == "nothing is known of ‹name›"


def test_the_verdict_names_the_switch_and_the_gates_of_a_releases_own_off_step():
    index = sample_index()
    entry = index.entry_points["v2"]
    gate = Place(
        function="sglang.srt.managers.scheduler:Scheduler.run_batch",
        line=3,
        what="refused where cfg.topk != 1: only topk=1",
        file="",
    )
    index.off_steps[:] = [
        OffStep(path="v2", function=entry, line=9, what="runs without draft steps where self.steps == 0", gates=[gate])
    ]
    asks = Guard(text="cfg.some_mode", holds=True, line=7, kind="if")
    index.calls.append(
        CallEdge(
            caller="sglang.srt.managers.scheduler:Scheduler.event_loop_overlap",
            callee=gate.function,
            kind="direct",
            confidence=1.0,
            sites=[CallSite(line=8, guards=[asks])],
        )
    )
    found = verdict(Context(index, None, ReportOptions()), answers(index))
    (own,) = found.own
    assert (found.word, found.tone, own.condition) == ("Yes, under conditions", "yes", "self.steps == 0")
    assert [(g.condition, g.reason) for g in own.gates] == [("cfg.topk != 1", "only topk=1")]
    assert own.switch is not None and (own.switch.option, own.switch.place.line) == ("--some-mode", 7)
