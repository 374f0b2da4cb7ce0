"""Builds the optional C part of the recorder, once for each version of its source, and puts it beside the probe.

It uses CPython's limited API, so one build serves every CPython from 3.10 on. Without it the recorder works in Python
and records the same.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.files import user_cache_dir

from .target import Target

PROBE = Path(__file__).with_name("probe")
SOURCE = PROBE / "_fast.c"
LIBRARY = "_fast.abi3.so"
OFF = "SGLTRACE_NO_C"
"""Set to anything: use the recorder in Python."""
_FLAGS = ("-O2", "-fPIC", "-shared", "-pthread")
_TIMEOUT_S = 120


def stage_fast(folder: Path, target: Target) -> str | None:
    """Put the C part into the trace folder's probe; or say in one line why the slower recorder will do."""
    if os.environ.get(OFF):
        return f"{OFF} is set"
    try:
        library = build(target)
        shutil.copyfile(library, folder / "probe" / "sgltrace_probe" / LIBRARY)
    except (InputError, OSError) as error:
        return str(error)
    return None


def why_not_fast(target: Target) -> str | None:
    """Why the C part cannot be used with ``target``; None if it can."""
    try:
        build(target)
    except (InputError, OSError) as error:
        return str(error)
    return None


def build(target: Target) -> Path:
    """The built library, from the cache or made now. Raises ``InputError`` where that is not possible."""
    if not target.limited_api:
        raise InputError("the server's Python does not load extensions for CPython's limited API")
    source = b"".join(path.read_bytes() for path in sorted(PROBE.glob("_fast*.c")))
    digest = hashlib.sha256(source + repr((_FLAGS, platform.machine(), platform.libc_ver())).encode()).hexdigest()[:16]
    library = user_cache_dir() / "fast" / digest / LIBRARY
    if not library.exists():
        _compile(library, target)
    return library


def _compile(library: Path, target: Target) -> None:
    compiler = next(
        (found for name in (os.environ.get("CC") or "cc", "gcc", "clang") if (found := shutil.which(name))), None
    )
    if compiler is None:
        raise InputError("no C compiler (cc, gcc or clang) on PATH")
    places = [place for place in (sysconfig.get_path("include"), target.include) if place]
    include = next((place for place in places if Path(place, "Python.h").exists()), None)
    if include is None:
        raise InputError(f"no Python.h in {' or '.join(places)}")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch, LIBRARY)
        try:
            done = subprocess.run(
                [compiler, *_FLAGS, f"-I{include}", str(SOURCE), "-o", str(made)],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{compiler}: {error}") from None
        if done.returncode != 0:
            last = next((line for line in done.stderr.splitlines() if "error" in line), "failed")
            raise InputError(f"{compiler}: {last}")
        made.replace(library)
