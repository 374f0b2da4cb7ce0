"""``python -m sgltrace``: the same as the command ``sgltrace``."""

from sgltrace.cli import main

main()
