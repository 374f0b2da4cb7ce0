"""Tensors of a decode step that came, went, or have another shape."""

from __future__ import annotations

from sgltrace.insight.changes.model import Change
from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.sides import Side
from sgltrace.model import Tensor


def compare_tensors(before: Side, after: Side, names: Names) -> list[Change]:
    """The changes of tensors, on paths that both sources have. A shape that was not derived is not compared."""
    both = [path for path in before.paths if path in after.paths]
    left = {_key(t, names): t for t in before.index.tensors if t.path in both}
    right = {_key(t, None): t for t in after.index.tensors if t.path in both}
    found: dict[tuple[str, ...], Change] = {}
    for key in sorted({*left, *right}):
        old, new = left.get(key), right.get(key)
        change = _change(old, new, names)
        if change is None:
            continue
        # One tensor goes through several stages: the same difference is told once.
        same = (change.change, change.title, change.before or "", change.after or "", *change.paths)
        if same in found:
            found[same].where = None if found[same].where is None else f"{found[same].where}, {change.where}"
        else:
            found[same] = change
    return list(found.values())


def _key(tensor: Tensor, names: Names | None) -> tuple[str, str, str, str]:
    if names is None:
        return tensor.path, tensor.stage, tensor.cls or "", tensor.name
    cls = names.classes.get(tensor.cls or "", tensor.cls or "")
    if tensor.cls and tensor.field and tensor.field == tensor.name:
        _, _, name = names.field(f"{tensor.cls}.{tensor.name}").rpartition(".")
    else:
        name = names.text(tensor.name)
    return tensor.path, tensor.stage, cls, name


def _change(old: Tensor | None, new: Tensor | None, names: Names) -> Change | None:
    tensor = new or old
    assert tensor is not None
    if old is not None and new is not None:
        if any(t.shape is None or "?" in t.shape for t in (old, new)):
            return None
        assert old.shape is not None and new.shape is not None
        was = (names.text(old.shape), old.dtype, old.stride and names.text(old.stride))
        if was == (new.shape, new.dtype, new.stride):
            return None
        if was[0] == new.shape and (was[1] is None or new.dtype is None or was[1] == new.dtype) and (
            was[2] is None or new.stride is None or was[2] == new.stride
        ):  # fmt: skip
            return None
        why = (
            f"Its shape was `{old.shape}`, and is `{new.shape}` now." if was[0] != new.shape else "Its layout differs."
        )
    else:
        why = "No step before had it." if old is None else "No step has it any more."
    widths = {w for t in (old, new) if t is not None and t.shape for w in ("num_draft_tokens", "topk", "num_steps")
              if w in t.shape}  # fmt: skip
    return Change(
        of="tensor",
        change="new" if old is None else "gone" if new is None else "changed",
        title=f"{tensor.cls + '.' if tensor.cls else ''}{tensor.name} on {tensor.path}",
        fields=[f"{tensor.cls}.{tensor.field}"] if tensor.cls and tensor.field else [],
        functions=[tensor.producer.function],
        before=_told(old),
        after=_told(new),
        where=f"stage {tensor.stage}",
        why=why,
        paths=[tensor.path],
        weight=(12 if old is not None and new is not None else 3) + (6 if widths else 0),
    )


def _told(tensor: Tensor | None) -> str | None:
    if tensor is None:
        return None
    return ", ".join(filter(None, (tensor.shape or "shape unknown", tensor.dtype, tensor.stride)))
