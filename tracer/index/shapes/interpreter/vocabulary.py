"""What the vocabulary says about shapes: symbols, configuration, what a step starts with, how a model runs."""

from __future__ import annotations

from functools import cache
from typing import Union

import msgspec

from sgltrace.index.fields.tracked import VOCABULARY


class SeededTensor(msgspec.Struct, frozen=True):
    """A tensor that is there when a step starts: its shape in symbols."""

    shape: list[str]
    dtype: str | None = None


Seed = Union[SeededTensor, str, bool]  # noqa: UP007 (msgspec reads it at run time)
"""``"[bs]"``: a list of so many elements; ``"model"``: the model; ``"'EAGLE'"``: that text;
``"none"``: None; a boolean: that."""


class ModelRun(msgspec.Struct, frozen=True):
    """How a forward pass of the model is recognised, and the layer that makes its output."""

    methods: list[str]
    batch_role: str
    last_layer: str
    arguments: list[str]
    """What that layer's forward takes in order: ``input_ids``, ``hidden_states``, ``lm_head``, ``batch``."""
    draft_flag: str
    """The attribute of a model runner that says that it runs the draft model."""


class StepNames(msgspec.Struct, frozen=True):
    """The fields and enum members by which a step's stages are told apart."""

    mode_field: str
    extend: str
    """A batch of new requests, which runs before it joins the decode batch."""
    decode: str
    verify: list[str]
    draft_extend: list[str]


class ShapeVocabulary(msgspec.Struct, frozen=True):
    """The ``[shapes]`` tables."""

    symbols: dict[str, str]
    config: dict[str, str]
    draft_config: dict[str, str]
    """What a symbol of ``config`` is called where the configuration is the draft model's."""
    entry: dict[str, dict[str, Seed]]
    paths: dict[str, dict[str, bool]]
    """Attributes that a path fixes, as ``enable_overlap``."""
    fixed: dict[str, Union[bool, int]]  # noqa: UP007
    """Attributes that are fixed on every path."""
    preferred: list[str]
    """Of several classes that an object may be of, the ones of a plain server."""
    absent: list[str]
    """Attributes that are taken to be None."""
    members: dict[str, str]
    """By the name of an enum class: the member that its values are taken to be."""
    opaque: list[str]
    """Patterns of the names of classes of which only configuration values are asked."""
    platform: dict[str, Union[bool, int]]  # noqa: UP007
    """Functions without arguments that ask for the platform or the number of processes, by name, and their answer on
    one NVIDIA GPU."""
    model: ModelRun
    step: StepNames


class _File(msgspec.Struct):
    shapes: ShapeVocabulary


@cache
def shape_vocabulary() -> ShapeVocabulary:
    """The tables, read once."""
    return msgspec.toml.decode(VOCABULARY.read_bytes(), type=_File).shapes
