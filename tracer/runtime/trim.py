"""Cuts the unused rest off the segments and histograms of a finished run."""

from __future__ import annotations

import os
from pathlib import Path

from .decode import Loss, complete_end
from .probe import wire
from .processes import is_running


def trim(folder: Path) -> None:
    """Shorten each segment to its last complete record and each histogram to its last kind, once nobody writes them."""
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
    for path in sorted(folder.glob("*.hist")):
        if not is_running(path.name.partition(".")[0]):
            _trim_histogram(path)


def _trim_histogram(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(wire.HIST_HEADER.size)
        if len(head) < wire.HIST_HEADER.size or head[:8] != wire.HIST_MAGIC:
            return
        used = min(wire.HIST_HEADER.unpack(head)[-1], wire.HIST_SLOTS)
        end = wire.HIST_HEADER_SIZE + used * wire.HIST_SLOT_SIZE
        if end < path.stat().st_size:
            os.truncate(path, end)
    except OSError:
        return  # as above
