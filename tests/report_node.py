"""What the report's tests take from the npm registry, installed from its lock file when it is not there yet."""

from __future__ import annotations

import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent / "browser"


def node_file(path: str) -> str:
    """The text of a file of a package, ``axe-core/axe.min.js``."""
    file = FOLDER / "node_modules" / path
    if not file.is_file():
        command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run(command, cwd=FOLDER, check=True, capture_output=True)
    return file.read_text(encoding="utf-8")
