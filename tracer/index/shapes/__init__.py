"""Symbolic shapes of a decode step's tensors, by interpreting the step on each path.

``shapes(program, flow)`` runs the step of each path that the program has; ``tensors`` lists what it found. Questions
about single expressions and field accesses go to ``Shapes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.buffers import buffer_tensors
from sgltrace.index.shapes.interpreter.machine import Machine
from sgltrace.index.shapes.questions import ask, found_at
from sgltrace.index.shapes.report import as_listed, step_tensors
from sgltrace.index.shapes.steps import Step, find_steps, run_step
from sgltrace.index.shapes.symbolic.formulas import dtype_text, expression, shape_text, stride_text, why_unknown
from sgltrace.index.shapes.symbolic.values import Tensor, Value

if TYPE_CHECKING:
    from sgltrace import model
    from sgltrace.index.facts import syntax as s
    from sgltrace.index.fields import Access, FieldFlow
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import FunctionInfo


class Shapes:
    """What interpreting the step of each path found. Paths that the program lacks have nothing."""

    def __init__(self, program: Program, flow: FieldFlow) -> None:
        self.program = program
        self.flow = flow
        self.steps: dict[str, Step] = {step.path: step for step in find_steps(program, flow)}
        self.machines: dict[str, Machine] = {path: run_step(program, flow, s) for path, s in self.steps.items()}

    def tensors(self) -> list[model.Tensor]:
        """The tensors of each path, by stage; then the buffers of CUDA graphs."""
        found: list[model.Tensor] = []
        for _, machine in sorted(self.machines.items()):
            found += step_tensors(machine)
            found += buffer_tensors(machine, self.flow)
        return found

    def value_of(self, node: s.Expr, function: FunctionInfo, path: str) -> Value | None:
        """What an expression of a function is on a path, with variables as they are when the function ends; None on a
        path that the program lacks."""
        machine = self.machines.get(path)
        return None if machine is None else ask(machine, function, node)

    def shape_of(self, node: s.Expr, function: FunctionInfo, path: str) -> str | None:
        """The shape or formula of an expression on a path as text; None where it was not derived."""
        value = self.value_of(node, function, path)
        return None if value is None else shape_text(value)

    def value_at(self, access: Access, path: str) -> Value | None:
        """What a field access writes or finds on a path; None where the step did not come by."""
        machine = self.machines.get(path)
        return None if machine is None else found_at(machine, access)

    def shape_at(self, access: Access, path: str) -> str | None:
        """The shape or formula of what a field access writes or finds on a path."""
        value = self.value_at(access, path)
        listed = None if value is None else as_listed(self.machines[path], value)
        return None if listed is None else shape_text(listed)


def shapes(program: Program, flow: FieldFlow) -> Shapes:
    """Interpret the steps of a program."""
    return Shapes(program, flow)


def tensors(program: Program, flow: FieldFlow) -> list[model.Tensor]:
    """The tensors of a program's decode steps."""
    return Shapes(program, flow).tensors()


__all__ = [
    "Shapes", "Tensor", "Value", "dtype_text", "expression", "shape_text", "shapes", "stride_text", "tensors",
    "why_unknown",
]  # fmt: skip
