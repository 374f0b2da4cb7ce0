"""What the conditions of an index hang on: collected while the program is at hand."""

from __future__ import annotations

from collections import defaultdict

from sgltrace.configuration.vocabulary import condition_words
from sgltrace.index import Program
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.index.fields import FieldFlow
from sgltrace.index.fields.meanings import Meanings
from sgltrace.index.resolution.entities import ClassInfo
from sgltrace.model import Conditions, Index, Made


def make_conditions(
    program: Program, flow: FieldFlow, index: Index, algorithms: dict[str, dict[str, bool]]
) -> Conditions:
    """The meanings of what the index's conditions ask, and where the objects are made that decide what runs."""
    made = _made(program, index)
    texts = {guard.text for edge in index.calls for site in edge.sites for guard in site.guards}
    texts |= {guard.text for places in made.values() for place in places for guard in place.guards}
    texts |= {one for words in condition_words().values() for one in words}
    return Conditions(
        meanings=Meanings(program, flow).of(sorted(texts)),
        arguments=sorted({u.field for u in flow if u.role == "server_args" and u.field in u.cls.annotations}),
        defaults=_defaults(flow),
        algorithms={name: dict(sorted(answers.items())) for name, answers in sorted(algorithms.items())},
        made=made,
    )


def _defaults(flow: FieldFlow) -> dict[str, str]:
    """What the class of the arguments sets where the command line says nothing."""
    found: dict[str, str] = {}
    for cls in sorted({u.cls for u in flow if u.role == "server_args"}, key=lambda c: c.id):
        for statement in cls.node.body:
            if not isinstance(statement, s.AnnAssign) or not isinstance(statement.target, s.Name):
                continue
            value = statement.value
            if isinstance(value, s.Const) or (isinstance(value, s.Unary) and isinstance(value.value, s.Const)):
                found.setdefault(statement.target.id, text(value))
    return dict(sorted(found.items()))


def _made(program: Program, index: Index) -> dict[str, list[Made]]:
    """By class, of those of whose methods a call chooses one by the object's class."""
    places: dict[ClassInfo, dict[tuple[str, int], Made]] = defaultdict(dict)
    for function, uses in program.engine.constructed.items():
        guards = program.guards(function)
        for cls, use in uses:
            for expression in use.expressions:
                line = getattr(expression, "line", function.line)
                around = [condition.guard for condition in guards.at(expression)]
                for base in program.engine.classes.mro(cls):
                    places[base].setdefault((function.id, line), Made(function.id, line, around))
    virtual = {edge.callee.rpartition(".")[0] for edge in index.calls if edge.virtual}
    by_id = {cls.id: cls for cls in places}
    return {
        name: [place for _, place in sorted(places[by_id[name]].items())]
        for name in sorted(virtual & set(by_id))
        if not _given(by_id[name])
    }


def _given(cls: ClassInfo) -> bool:
    """Whether objects of the class, or of one that inherits it, come from where nobody sees them made."""
    todo, seen = [cls], {cls}
    while todo:
        at = todo.pop()
        if at.assumed:
            return True
        new = [c for c in at.subclasses if c not in seen]
        seen.update(new)
        todo += new
    return False
