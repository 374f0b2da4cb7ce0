"""The optional C part of the recorder."""

from __future__ import annotations

from pathlib import Path

from .target import Target


def stage_fast(folder: Path, target: Target) -> None:
    """Not built yet."""
