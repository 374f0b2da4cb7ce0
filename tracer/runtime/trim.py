"""Cuts the unused rest off the segments of a finished run."""

from __future__ import annotations

import os
from pathlib import Path

from .decode import Loss, complete_end
from .probe import wire
from .processes import is_running


def trim(folder: Path) -> None:
    """Shorten each segment to its last complete record. Only for traces that nobody writes any more."""
    for path in sorted(folder.glob("*.seg")):
        if is_running(path.name.partition(".")[0]):
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
