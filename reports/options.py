"""What a caller of the report chooses, and what it gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sgltrace.insight.observed import Run
from sgltrace.whatif.model import Experiment


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """``editor`` is a name of ``EDITORS`` or a template with ``{path}``, ``{file}`` and ``{line}``; None: no links.

    ``source_path`` is the folder in which the indexed files lie, for the editor's links; None where they lie in an
    archive. ``single_file`` writes one page that holds all others. ``jobs`` is the number of processes.
    """

    editor: str | None = None
    source_path: Path | None = None
    single_file: bool = False
    jobs: int | None = None
    runs: list[Run] = field(default_factory=list)
    experiments: list[Experiment] = field(default_factory=list)


@dataclass(frozen=True)
class RenderResult:
    """Where the report begins, and how much was written (files, bytes)."""

    index: Path
    files: int
    bytes: int
