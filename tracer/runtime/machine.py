"""The machine that a run is on: its GPUs, as the driver names them. ``sgltrace run`` asks, never a server's process."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia")
_TIMEOUT_S = 10.0


def gpus(driver: Path = _DRIVER, ask: bool = True) -> tuple[list[str], str]:
    """Names of the GPUs in the driver's order, and its version; empty where there are none or they cannot be told.

    Where its files do not say, ``nvidia-smi`` is asked, which may take seconds; not without ``ask``.
    """
    names = []
    for place in sorted(driver.glob("gpus/*/information")):
        found = re.search(r"^Model:\s*(.+?)\s*$", _text(place), re.MULTILINE)
        if found is not None:
            names.append(found.group(1))
    version = re.search(r"Kernel Module.*?\s(\d+\.[\d.]*\d)\s", _text(driver / "version"))
    if names and not any(name.lower() == "unknown" for name in names):
        return names, version.group(1) if version else ""
    return _asked() if ask else ([], "")


def _asked() -> tuple[list[str], str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], ""
    try:
        done = subprocess.run(
            [program, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return [], ""
    rows = [line.split(", ") for line in done.stdout.splitlines() if done.returncode == 0 and ", " in line]
    return [row[0] for row in rows], rows[0][1] if rows else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
