"""A run of the model: which class it is only the configuration knows, so its outcome is that of its last layer.

Whatever the model, its hidden states have a row for each input token, and the logits processor makes the output of
them, under the forward mode of the batch. The vocabulary names that class and the order of its arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import calls
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.symbolic.dims import symbol
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.values import NONE, Const, Obj, Tensor, Unknown, Value, alternatives

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.machine import Machine


def is_run(m: Machine, node: s.Call | None, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a call of something unknown is a run of the model: it hands on the tokens and the batch."""
    if node is None or not isinstance(node.func, s.Attr) or node.func.attr not in m.vocabulary.model.methods:
        return False
    return _batch(m, args, kwargs) is not None and any(
        isinstance(part, Tensor) for arg in args for part in alternatives(arg)
    )


def _batch(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Obj | None:
    for value in (*args, *kwargs.values()):
        for part in alternatives(value):
            if isinstance(part, Obj) and m.role(part.cls) == m.vocabulary.model.batch_role:
                return part
    return None


def run(m: Machine, frame: Frame, model: Value, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
    """What the model's forward pass gives."""
    batch = _batch(m, args, kwargs)
    tokens = next((arg for arg in args if isinstance(arg, Tensor)), None)
    if tokens is None:  # where all may be of one shape or another, the tokens come first
        either = next((arg for arg in args if any(isinstance(part, Tensor) for part in alternatives(arg))), NONE)
        shaped = [part for part in alternatives(either) if isinstance(part, Tensor)]
        if shaped:
            return join_all(run(m, frame, model, [part, *args], kwargs, line) for part in shaped)
    if batch is None or tokens is None:
        return Unknown("a run of the model on tokens that are unknown")
    rows = tokens.shape[0] if tokens.shape else None
    draft = isinstance(model, Obj) and m.is_draft_model(model)
    m.note_run(frame, batch, draft, line)
    hidden = symbol("draft_hidden_size" if draft else "hidden_size")
    vocab = symbol("draft_vocab_size" if draft else "vocab_size")
    place = frame.place(line)
    states = Tensor((rows, hidden), "model dtype", place)
    processor = m.last_layer
    if processor is None:
        return Unknown("no class of this program is the model's last layer")
    owner = model.owner if isinstance(model, Obj) else None
    layer = Obj(processor, "logits_processor", lazy=True, owner=owner)
    m.store.put((layer.number, "config"), m.config(draft))
    head = Obj(None, "lm_head", kind="weights")
    m.store.put((head.number, "weight"), Tensor((vocab, hidden), "model dtype", place))
    values: dict[str, Value] = {"input_ids": tokens, "hidden_states": states, "lm_head": head, "batch": batch}
    given: list[Value] = [values.get(name, Const(None)) for name in m.vocabulary.model.arguments]
    m.in_model, outer = True, m.in_model
    result = calls.method(m, frame, layer, "forward", given, {}, line)
    m.in_model = outer
    return result if result is not None else Unknown("the model's last layer has no forward")
