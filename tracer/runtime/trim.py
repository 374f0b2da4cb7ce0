"""Cuts the unused rest off the segments of a finished run."""

from __future__ import annotations

import os
from pathlib import Path

from .decode import Loss, complete_end
from .probe import wire


def trim(folder: Path) -> None:
    """Shorten each segment to its last complete record. Only for traces that nobody writes any more."""
    for path in sorted(folder.glob("*.seg")):
        if _is_alive(path):
            continue
        try:
            end = complete_end(path, Loss())
            if end is not None and end < path.stat().st_size:
                with path.open("r+b") as file:
                    file.seek(wire.SEGMENT_SIZE_AT)
                    file.write(end.to_bytes(4, "little"))
                os.truncate(path, end)
        except OSError:
            continue  # it stays as long as it is; that costs space and nothing else


def _is_alive(path: Path) -> bool:
    pid, _, start = path.name.split(".")[0].partition("-")
    try:
        fields = Path("/proc", pid, "stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return False
    return fields[19].decode() == start and fields[0] != b"Z"
