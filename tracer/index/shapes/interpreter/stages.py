"""The stages of a decode step, told apart by what the step itself does.

A step runs the draft model, then the target model in a verify mode, then (often) the draft model again to extend its
cache. The forward mode that is written to a batch and the runs of the model say where it has got to; the class of the
object that a field belongs to says whether it is an input of the next part.
"""

from __future__ import annotations

from sgltrace.index.shapes.interpreter.vocabulary import StepNames
from sgltrace.index.shapes.symbolic.values import Member, Value, alternatives

PREPARE, ENTRY, DRAFT, DRAFT_STEP, DRAFT_OUT = "prepare", "step entry", "draft", "draft step", "draft out"
VERIFY_INPUT, VERIFY, VERIFY_OUT = "verify input", "verify", "verify out"
DRAFT_EXTEND, DRAFT_EXTEND_OUT, RELAY, RESULT = "draft-extend", "draft-extend out", "relay", "result"
ORDER = (PREPARE, ENTRY, DRAFT, DRAFT_STEP, DRAFT_OUT, VERIFY_INPUT, VERIFY, VERIFY_OUT, DRAFT_EXTEND,
         DRAFT_EXTEND_OUT, RELAY, RESULT, "graph buffers")  # fmt: skip


class Stages:
    """Where the step has got to: ``now``."""

    def __init__(self, names: StepNames) -> None:
        self._names = names
        self.now = PREPARE

    def begin(self, stage: str) -> None:
        """A part of the step begins that is known from outside: ``prepare``, ``step entry``, ``relay``, ``result``."""
        self.now = stage

    def entered(self) -> None:
        """The worker's entry point is called."""
        self.now = DRAFT

    def _advance(self, stage: str) -> None:
        """Go on to a later stage; a step never goes back."""
        if ORDER.index(stage) > ORDER.index(self.now):
            self.now = stage

    def on_loop_end(self) -> None:
        """A loop is left: if it ran the draft model, the draft is done."""
        if self.now == DRAFT_STEP:
            self.now = DRAFT_OUT

    def on_write(self, role: str | None, field: str, value: Value) -> None:
        """A tracked field was written."""
        if role == "verify_input" and self.now in (DRAFT, DRAFT_STEP, DRAFT_OUT):
            self._advance(VERIFY_INPUT)
        if field != self._names.mode_field:
            return
        modes = {part.name for part in alternatives(value) if isinstance(part, Member)}
        if modes & set(self._names.verify):
            self._advance(VERIFY)
        elif modes & set(self._names.draft_extend):
            self._advance(DRAFT_EXTEND)

    def on_run(self, mode: Value | None, draft: bool) -> None:
        """The model was run in a mode."""
        modes = {part.name for part in alternatives(mode) if isinstance(part, Member)} if mode is not None else set()
        if modes & set(self._names.verify):
            self._advance(VERIFY_OUT)
        elif modes & set(self._names.draft_extend):
            self._advance(DRAFT_EXTEND_OUT)
        elif self.now == DRAFT:
            self._advance(DRAFT_STEP)
