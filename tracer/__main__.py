"""``python -m sgltrace``, and the command ``sgltrace``: what an interrupt meets while the program is being loaded."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    try:
        from sgltrace.cli import EXIT_INTERRUPTED, main
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
