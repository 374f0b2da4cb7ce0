"""The whole static half in its order: program, field flow, shapes, coupling points, put into one index."""

from __future__ import annotations

from functools import cache, partial

import msgspec

from sgltrace.coupling import derive
from sgltrace.index import IndexOptions, Program, analyse, to_index
from sgltrace.index.fields import FieldFlow, field_flow
from sgltrace.index.shapes import Shapes
from sgltrace.index.shapes.field_rows import index_fields
from sgltrace.insight.beside import beside
from sgltrace.insight.conditions import make_conditions
from sgltrace.interpreter import no_collection
from sgltrace.model import Field, Index, Tensor
from sgltrace.progress import Progress
from sgltrace.sources import SourceTree

LARGE = 10_000
"""A program of more functions is analysed by one process: two soon have all of it twice, which is a gigabyte. Who asks
for the whole source wants it soon."""


class _Data(msgspec.Struct, array_like=True):
    """What moves through the fields, and its shapes."""

    fields: list[Field]
    tensors: list[Tensor]


def make_index(tree: SourceTree, options: IndexOptions, progress: Progress) -> Index:
    """Analyse a source tree. Raises InputError where it has no speculative worker."""
    with no_collection():
        return _make_index(tree, options, progress)


def _make_index(tree: SourceTree, options: IndexOptions, progress: Progress) -> Index:
    program = analyse(tree, options, progress)
    progress.stage("Following fields, deriving shapes and coupling points")
    jobs = options.jobs if options.whole or len(program.functions) <= LARGE else 1
    flow = field_flow(program)
    with beside(partial(_data, program, flow), jobs) as encoded:
        index = to_index(program)

        @cache
        def data() -> _Data:
            return msgspec.msgpack.decode(encoded(), type=_Data)

        coupling = derive(program, flow, lambda: data().tensors)
        index.fields = data().fields
        index.tensors = data().tensors
    index.coupling_points = coupling.points
    index.contract = coupling.contract
    index.off_steps = coupling.off_steps
    index.met = coupling.met
    index.conditions = make_conditions(program, flow, index, coupling.algorithms)
    index.step_parts = coupling.step_parts
    index.notes = [*index.notes, *coupling.notes]
    return index


def _data(program: Program, flow: FieldFlow) -> bytes:
    """The fields and tensors of a program, encoded."""
    shapes = Shapes(program, flow)
    return msgspec.msgpack.encode(_Data(index_fields(program, flow, shapes), shapes.tensors()))
