"""Releases out of a package registry, through the user's own pip with the user's own settings.

Wheels only: to tell what an sdist is, pip would run its ``setup.py``, and sgltrace runs no code of what it reads.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from sgltrace.errors import InputError

_PYTHONS = ("3.12", "3.13", "3.11", "3.10", "3.14")
"""Wheels are read, not run, so any Python's will do; the most usual first."""
_MACHINES = ("x86_64", "aarch64")
_PLATFORMS = [f"manylinux_2_{minor}_{machine}" for machine in _MACHINES for minor in range(45, 16, -1)]
_PLATFORMS += [f"manylinux2014_{machine}" for machine in _MACHINES] + [f"linux_{machine}" for machine in _MACHINES]
_RUN_PIP = "import sys; sys.path.remove(''); import runpy; runpy.run_module('pip', run_name='__main__', alter_sys=True)"
"""What ``-m pip`` does, but for looking into the working folder first: that may be somebody else's tree."""
_QUIET = ("--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20")
_NO_NETWORK = re.compile(r"connection|Retrying|resolve host|timed out|ProxyError|SSLError", re.IGNORECASE)
_NO_RELEASE = re.compile(r"No matching distribution|Could not find a version")


class NoSuchRelease(InputError):
    """The registry was reached, or there is none, and no file there fits."""


def newest_release(requirement: Requirement) -> Version:
    """The newest release that fits, whatever platform its wheels are for. Raises InputError."""
    found, failure = all_releases(requirement)
    fitting = list(requirement.specifier.filter(found))
    if fitting:
        return max(fitting)
    if failure is not None and not found:
        raise failure
    raise NoSuchRelease(f"no release of {requirement.name} fits {requirement}; the newest is {max(found)}")


def all_releases(requirement: Requirement) -> tuple[set[Version], InputError | None]:
    """The releases of a package, whatever platform their wheels are for; and why there may be more, None where not."""
    found: set[Version] = set()
    failure: InputError | None = None
    for tags in _tags():
        try:
            said = _pip("index", "versions", requirement.name, "--ignore-requires-python", "--pre", *tags)
        except InputError as error:
            failure = failure or error
            continue
        match = re.search(r"^Available versions: (.*)$", said, re.MULTILINE)
        found.update(_versions(match[1] if match else ""))
    return found, failure


def download(name: str, version: Version, folder: Path) -> Path:
    """The file of a release, put into ``folder``: a wheel for this machine, else any other wheel.

    Raises InputError. The folder is filled by one rename, so that two runs at once do no harm.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder.parent) as temporary:
        found = _download_any(f"{name}=={version}", Path(temporary) / "files")
        try:
            os.replace(found.parent, folder)  # noqa: PTH105
        except OSError:
            if not any(folder.glob("*")):  # else another run was faster, and its file is as good
                raise
    return next(path for path in sorted(folder.iterdir()) if path.is_file())


def _download_any(pinned: str, into: Path) -> Path:
    into.mkdir()
    common = ("download", "--no-deps", "--ignore-requires-python", "--dest", str(into), pinned)
    for tags in _tags():
        try:
            _pip(*common, *tags)
        except NoSuchRelease as error:
            failure = error
            continue
        return next(into.iterdir())
    raise failure


def _tags() -> Iterator[tuple[str, ...]]:
    """pip's options for the kinds of wheels to ask for, one kind after the other: this machine's first."""
    wheels = "--only-binary=:all:"
    yield (wheels,)
    platforms = [option for platform in _PLATFORMS for option in ("--platform", platform)]
    for python in _PYTHONS:
        yield (wheels, "--implementation", "cp", "--python-version", python, *platforms)


def _versions(listed: str) -> Iterator[Version]:
    for text in filter(None, (part.strip() for part in listed.split(","))):
        try:
            yield Version(text)
        except InvalidVersion:
            continue  # names that came before PEP 440, which no requirement can ask for


def _pip(*arguments: str) -> str:
    """What pip prints. Raises InputError with a line of its complaint, NoSuchRelease where nothing fits."""
    done = subprocess.run(
        [*_pip_command(), *arguments, *_QUIET],
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode == 0:
        return done.stdout
    complaint = done.stderr or done.stdout
    errors = [line for line in complaint.splitlines() if line.startswith("ERROR:")] or ["ERROR: no word why"]
    said = errors[0].removeprefix("ERROR:").strip()
    wanted = next(argument for argument in arguments[1:] if argument[0] != "-" and not Path(argument).is_absolute())
    if _NO_NETWORK.search(complaint):
        raise InputError(
            f"pip cannot reach its package registry to fetch {wanted}; check the network and pip's "
            f"settings, or name a wheel on this disk (pip says: {said})"
        )
    if _NO_RELEASE.search(complaint):
        raise NoSuchRelease(
            f"pip finds no wheel of {wanted}; `pip index versions {wanted.split('=')[0]}` lists what there is, and an "
            f"sdist can be named as a file (pip says: {said})"
        )
    raise InputError(f"pip cannot fetch {wanted}: {said}")


def _pip_command() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-c", _RUN_PIP]
    if found := shutil.which("pip") or shutil.which("pip3"):
        return [found]
    raise InputError(
        "fetching a release needs pip, which this Python lacks; run `python -m ensurepip`, or name a wheel on this disk"
    )
