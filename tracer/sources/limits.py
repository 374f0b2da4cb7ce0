"""What an archive may hold: far more than any release of SGLang, far less than fills a disk."""

from __future__ import annotations

from sgltrace.errors import InputError

MAX_MEMBERS = 100_000
MAX_FILE = 256 << 20
MAX_TOTAL = 2 << 30
MAX_RATIO = 100
"""Unpacked over packed size; SGLang's releases have 3 to 5. Not looked at below RATIO_FROM bytes."""
RATIO_FROM = 64 << 20


class Limits:
    """Adds up what an archive unpacks to, and raises InputError at the first limit that is passed."""

    def __init__(self, shown: str, packed: int) -> None:
        self._shown = shown
        self._packed = max(packed, 1)
        self._members = 0
        self._total = 0

    def add(self, name: str, size: int) -> None:
        """A member of ``size`` bytes, unpacked."""
        self._members += 1
        self._total += size
        if self._members > MAX_MEMBERS:
            self._refuse(f"more than {MAX_MEMBERS} members")
        if size > MAX_FILE:
            self._refuse(f"its member {name!r} unpacks to more than {MAX_FILE >> 20} MiB")
        self.check_total(self._total)

    def check_total(self, total: int) -> None:
        """``total`` bytes have been unpacked, or will be."""
        if total > MAX_TOTAL:
            self._refuse(f"it unpacks to more than {MAX_TOTAL >> 30} GiB")
        if total > RATIO_FROM and total > MAX_RATIO * self._packed:
            self._refuse(f"it unpacks to more than {MAX_RATIO} times its size")

    def _refuse(self, why: str) -> None:
        raise InputError(f"{self._shown} is refused as a likely decompression bomb: {why}")


def refuse_name(name: str, shown: str) -> None:
    """Raise InputError for a member name that is absolute or climbs out of the archive on any platform."""
    parts = name.replace("\\", "/").split("/")
    if not parts[0] or ".." in parts or ":" in parts[0] or "\\" in name or "\0" in name:
        raise InputError(f"{shown} is refused: its member {name!r} points outside the archive")
