"""Who takes part in the steps of each path: what an off step has to be put together from."""

from __future__ import annotations

from collections.abc import Iterable

from sgltrace.coupling.groups.scene import Scene
from sgltrace.coupling.offstep.questions import Questions
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.values import Instance
from sgltrace.model import StepParts


def step_parts(scenes: list[Scene], words: Vocabulary) -> list[StepParts]:
    """The parts of every path of which all could be found."""
    return [made for scene in scenes if (made := _of(scene.questions, scene.path, words)) is not None]


def _of(q: Questions, path: str, words: Vocabulary) -> StepParts | None:
    parts = q.parts
    if parts.target is None or parts.mode is None or parts.scheduler_batch is None:
        return None
    classes = {cls for cls, _ in q.flow.fields}
    arguments = _playing(q, classes, "server_args")
    held = {name for cls, name in q.flow.fields if cls.id in arguments}
    named = {name for name in held if name in words.spec.algorithm_fields or words.spec.is_config(name)}
    return StepParts(
        path=path,
        entry=parts.entries[path].id,
        target=parts.target.id,
        scheduler_batch=parts.scheduler_batch.id,
        batches=_ids(parts.batches),
        results=_ids(parts.results),
        states=_ids(parts.state_classes),
        state_fields=list(parts.state_fields),
        mode=parts.mode.id,
        decode=words.decode,
        requests=_playing(q, classes, "request"),
        request_pools=_playing(q, classes, "request_pool"),
        graph_runners=_playing(q, classes, "graph_runner"),
        arguments=arguments,
        algorithm_fields=sorted(named),
        processing=sorted(f.id for f in _processing(q)),
    )


def _ids(classes: Iterable[ClassInfo]) -> list[str]:
    return sorted({cls.id for cls in classes})


def _playing(q: Questions, classes: Iterable[ClassInfo], role: str) -> list[str]:
    return _ids(cls for cls in classes if q.flow.role(cls) == role)


def _processing(q: Questions) -> Iterable[FunctionInfo]:
    """Functions of the scheduler that take a batch and a result, and that one of its loops calls."""
    parts = q.parts
    order = q.program.engine.classes.mro(parts.scheduler)
    for function in q.on.scheduler.readings:
        if function.owner not in order or len(function.parameters) < 3:
            continue
        handed = [
            {v.cls for v in node.values if isinstance(v, Instance)}
            for p in function.parameters[1:3]
            if (node := function.params.get(p.name)) is not None
        ]
        if len(handed) == 2 and handed[0] & set(parts.batches) and handed[1] & set(parts.results):
            yield function
