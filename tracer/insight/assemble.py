"""The whole static half in its order: program, field flow, shapes, coupling points, put into one index."""

from __future__ import annotations

from sgltrace.coupling import derive
from sgltrace.index import IndexOptions, analyse, to_index
from sgltrace.index.collection import no_collection
from sgltrace.index.fields import field_flow
from sgltrace.index.fields_index import index_fields
from sgltrace.index.shapes import Shapes
from sgltrace.model import Index
from sgltrace.progress import Progress
from sgltrace.sources import SourceTree


def make_index(tree: SourceTree, options: IndexOptions, progress: Progress) -> Index:
    """Analyse a source tree. Raises InputError where it has no speculative worker."""
    with no_collection():
        return _make_index(tree, options, progress)


def _make_index(tree: SourceTree, options: IndexOptions, progress: Progress) -> Index:
    program = analyse(tree, options, progress)
    index = to_index(program)
    progress.stage("Following fields")
    flow = field_flow(program)
    progress.stage("Deriving shapes")
    shapes = Shapes(program, flow)
    index.fields = index_fields(program, flow, shapes)
    index.tensors = shapes.tensors()
    progress.stage("Deriving coupling points")
    coupling = derive(program, index.tensors)
    index.coupling_points = coupling.points
    index.contract = coupling.contract
    index.off_steps = coupling.off_steps
    index.notes = [*index.notes, *coupling.notes]
    return index
