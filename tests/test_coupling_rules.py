"""Each rule finds what its positive examples show, and nothing in its negative ones."""

from __future__ import annotations

import pytest
from coupling_support import universe

from sgltrace.coupling.point import build
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.rules import all_rules
from sgltrace.model import CouplingPoint


def found(rule: Rule, example: Example) -> list[CouplingPoint]:
    made = universe(example)
    return [point for finding in rule.find(made) if (point := build(made, finding)) is not None]


def examples(which: str) -> list[object]:
    return [
        pytest.param(rule, example, id=f"{type(rule).__name__}-{number}")
        for rule in all_rules()
        for number, example in enumerate(getattr(rule, which))
    ]


@pytest.mark.parametrize(("rule", "example"), examples("positive"))
def test_positive_example(rule, example):
    points = found(rule, example)

    def shows(point):
        producers = {place.function for place in point.producers}
        consumers = {place.function for place in point.consumers}
        severity = {path: point.severity[path] for path in example.severity}
        return (
            set(example.producers) <= producers and set(example.consumers) <= consumers and severity == example.severity
        )

    assert any(map(shows, points)), [
        (p.title, p.severity, [x.function for x in p.producers], [x.function for x in p.consumers]) for p in points
    ]


@pytest.mark.parametrize(("rule", "example"), examples("negative"))
def test_negative_example(rule, example):
    assert [(p.title, p.severity) for p in found(rule, example)] == []


def test_every_rule_has_examples():
    missing = [type(rule).__name__ for rule in all_rules() if not rule.positive or not rule.negative]
    assert missing == []


def test_one_rule_for_each_kind():
    kinds = [rule.kind for rule in all_rules()]
    assert len(kinds) == len(set(kinds))
