"""What a run would do with a launch command, and what is in its way; nothing of the server is started."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import target as targets
from .fast import why_not_fast
from .plan import Options, Plan, make_plan
from .session import nobody_plays, target_problems
from .staging import stage
from .target import Target


class Diagnosis(msgspec.Struct, kw_only=True):
    """What was found out. ``problems`` keep the probe out or blind, ``notes`` do not."""

    target: Target
    plan: Plan
    attaches: bool | None
    """Whether the probe got into the interpreter when it was tried; None if it could not be tried."""
    problems: list[str]
    notes: list[str]


def diagnose(command: Sequence[str]) -> Diagnosis:
    """Look at ``command`` and try the probe in its interpreter. Raises ``UsageError`` if there is no such command."""
    environment = dict(os.environ)
    target = targets.resolve(command, environment)
    problems = target_problems(target)
    notes = []
    root = None if target.package_root is None else Path(target.package_root)
    plan = make_plan(targets.PACKAGE, root, target.version, Options())
    if root is not None and not plan.sites:
        problems.append(f"no function of {root} plays a role that is known; is this SGLang?")
    elif plan.roles_missing and root is not None:
        notes.append(nobody_plays(plan, plan.roles_missing))
    notes += [f"{file} could not be parsed" for file in plan.unreadable]
    slow = why_not_fast(target)
    if slow is not None:
        notes.append(f"the recorder will be the slower one in Python: {slow}")
    attaches = _try_probe(target, plan) if target.problem is None and target.interpreter else None
    if attaches is False and not problems:
        shadow = target.sitecustomize or "something"
        problems.append(f"tried, the probe did not attach; {shadow} comes before it")
    return Diagnosis(target=target, plan=plan, attaches=attaches, problems=problems, notes=notes)


def _try_probe(target: Target, plan: Plan) -> bool | None:
    folder = Path(tempfile.mkdtemp(prefix="sgltrace-doctor-"))
    try:
        stage(folder, plan)
        answer = targets.look(target, targets.injected(os.environ, folder))
        return bool(answer["probe"]) if isinstance(answer, dict) else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """The diagnosis as labels and texts."""
    target, plan = diagnosis.target, diagnosis.plan
    rows = [
        ("command", " ".join(target.command)),
        ("interpreter", f"{target.interpreter or 'not found'} ({target.how})"),
    ]
    if target.python:
        rows.append(("Python", f"{target.python}, {target.executable}"))
    if target.package_root:
        rows.append(("SGLang", f"{target.version or 'of unknown version'}, {target.package_root}"))
    roles = Counter(site.role for site in plan.sites)
    rows.append(("sites", f"{len(plan.sites)} functions in {len(plan.modules)} modules"))
    rows += [("roles", f"{role}: {count}") for role, count in roles.items()]
    attaches = {True: "yes", False: "no", None: "could not be tried"}[diagnosis.attaches]
    rows.append(("attaches", attaches))
    rows += [("note", note) for note in diagnosis.notes]
    rows += [("problem", problem) for problem in diagnosis.problems]
    return rows
