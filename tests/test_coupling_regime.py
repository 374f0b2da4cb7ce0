"""Which regime a condition selects, and what a function does in each."""

from __future__ import annotations

import textwrap

import pytest
from coupling_support import universe

from sgltrace.coupling.regime import PLAIN, SPEC
from sgltrace.coupling.rule import Example
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.parse import parse_source


def facts(body: str, parts: dict[str, str] | None = None):
    made = universe(
        Example({"scheduler": f"def f(self, batch, reqs):\n{textwrap.indent(body, '    ')}\n", **(parts or {})})
    )
    return made.facts["scheduler:f"]


def expression(text: str) -> s.Expr:
    [statement] = parse_source(text).body
    assert isinstance(statement, s.ExprStmt)
    return statement.value


@pytest.mark.parametrize(
    ("text", "true", "false"),
    [
        ("self.spec_algorithm.is_none()", PLAIN, SPEC),
        ("not self.spec_algorithm.is_none()", SPEC, PLAIN),
        ("self.spec_algorithm.is_eagle()", SPEC, PLAIN),
        ("batch.spec_info is not None", SPEC, PLAIN),
        ("batch.spec_info is None", PLAIN, SPEC),
        ("self.server_args.speculative_algorithm is None", PLAIN, SPEC),
        ("self.draft_worker", SPEC, PLAIN),
        ("batch.forward_mode.is_target_verify()", SPEC, None),
        ("batch.forward_mode == ForwardMode.DECODE", None, None),
        ("self.spec_algorithm == SpeculativeAlgorithm.NONE", PLAIN, SPEC),
        ("isinstance(batch.spec_info, EagleDraftInput)", SPEC, None),
        ("self.is_draft_worker", SPEC, None),
        ("batch.return_logprob", None, None),
        ("batch.return_logprob and self.spec_algorithm.is_none()", PLAIN, None),
        ("batch.return_logprob or not self.spec_algorithm.is_none()", None, PLAIN),
        ("getattr(batch, 'spec_info', None)", SPEC, PLAIN),
        ("self.server_args.speculative_algorithm in ('EAGLE', None)", None, SPEC),
    ],
)
def test_reading_of_a_condition(text, true, false):
    reading = universe(Example({})).predicates.read(expression(text))
    assert (reading.when_true, reading.when_false) == (true, false)


def test_predicates_are_found_not_listed():
    made = universe(
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def drafts(self):
                            return self.enable_overlap and not self.spec_algorithm.is_none()
                """
            }
        )
    )
    reading = made.predicates.read(expression("batch.drafts()"))
    assert (reading.when_true, reading.path_true) == (SPEC, "v2")


def test_an_early_return_leaves_the_other_regime():
    found = facts(
        """
        if not self.spec_algorithm.is_none():
            self.a = 1
            return
        self.b = 1
        """
    )
    assert [(a.field, a.regime) for a in found.accesses if a.write] == [("a", SPEC), ("b", PLAIN)]
    assert found.branches[0].leaves == SPEC


def test_both_sides_of_a_conditional_expression():
    found = facts("x = self.a if batch.spec_info is None else self.b")
    assert [(a.field, a.regime) for a in found.accesses if a.owner == "self"] == [("a", PLAIN), ("b", SPEC)]


def test_a_local_name_stands_for_what_it_was_bound_to():
    found = facts("plain = self.spec_algorithm.is_none()\nif plain:\n    self.a = 1\n")
    assert [a.regime for a in found.accesses if a.write] == [PLAIN]


def test_a_loop_ends_its_conditions():
    found = facts(
        """
        for req in reqs:
            if self.spec_algorithm.is_none():
                continue
            req.a = 1
        self.b = 1
        """
    )
    assert [(a.field, a.regime) for a in found.accesses if a.write] == [("a", SPEC), ("b", None)]


def test_refusals_carry_their_conditions():
    found = facts("if self.a:\n    if batch.spec_info is not None:\n        raise ValueError('no')\nassert self.b\n")
    assert [(r.how, len(r.tests), r.regime) for r in found.refusals] == [("raise", 2, SPEC), ("assert", 1, None)]


def test_strides_in_place_changes_and_loops():
    found = facts(
        "for i in reqs:\n    tokens[i * width : i * width + 1]\n    self.lens.add_(1)\n    self.rows[i] += 1\n"
    )
    assert len(found.strides) == 1
    assert [(a.field, a.how) for a in found.accesses if a.write] == [("lens", "in-place"), ("rows", "item")]
    assert [c.loops for c in found.calls if c.name == "add_"] == [1]
