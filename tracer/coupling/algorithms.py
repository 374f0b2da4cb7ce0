"""What the predicates of the speculative algorithm answer for each of its members."""

from __future__ import annotations

from sgltrace.coupling.offstep.domain import member
from sgltrace.coupling.offstep.lookup import Lookup, Sites, takes_self
from sgltrace.coupling.offstep.parts import Parts
from sgltrace.coupling.offstep.scenario import Scenario
from sgltrace.index.fields import FieldFlow
from sgltrace.index.program import Program


def algorithm_answers(program: Program, flow: FieldFlow, sites: Sites, parts: Parts) -> dict[str, dict[str, bool]]:
    """By member, and by ``field.predicate`` where ``field`` is what classes call the algorithm that they hold."""
    enum = parts.algorithm
    if enum is None:
        return {}
    lookup = Lookup(program, flow, sites, Scenario("a member"))
    fields = sorted(
        {
            uses.field
            for uses in flow
            if any(a.value is not None and enum in program.classes_of(a.value, a.function) for a in uses.writes)
        }
    )
    asked = [
        functions[-1]
        for _, functions in sorted(enum.functions.items())
        if takes_self(functions[-1]) and not functions[-1].is_property and len(functions[-1].parameters) == 1
    ]
    found: dict[str, dict[str, bool]] = {}
    for name in sorted(sites.members(enum)):
        answers = found[name] = {}
        for function in asked:
            value = lookup.apply(function, member(enum, [name]), [], 0)
            if value is not None and value.truth is not None:
                answers.update({f"{field}.{function.name}": value.truth for field in fields})
    return found
