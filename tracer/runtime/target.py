"""What a launch command will run: its Python interpreter, the SGLang that this one will import, and whether the probe
can get in. SGLang itself is never imported.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgltrace.errors import UsageError

PACKAGE = "sglang"
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(t|d)?$")
_TIMEOUT_S = 60

# Run by the command's interpreter, with its flags. find_spec on a top-level name imports nothing.
_LOOK = """
import importlib.util, json, os, sys
def where(name):
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or [])
    return os.path.abspath(places[0]) if places else spec.origin
version = None
try:
    from importlib.metadata import version as v
    version = v(PACKAGE)
except Exception:
    pass
print(json.dumps({
    "executable": sys.executable, "version": list(sys.version_info[:3]), "prefix": sys.prefix,
    "package": where(PACKAGE), "package_version": version, "viztracer": where("viztracer"),
    "include": __import__("sysconfig").get_path("include"), "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    "implementation": sys.implementation.name,
    "probe": "sgltrace_probe.arm" in sys.modules,
    "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "flags": {name: getattr(sys.flags, name) for name in ("isolated", "ignore_environment", "no_site")},
}))
"""


class Target(msgspec.Struct, kw_only=True):
    """The interpreter of a launch command and what it sees."""

    command: list[str]
    interpreter: str | None
    """The Python that the command runs; None if it could not be told."""
    how: str
    """How the interpreter was found, for the user."""
    flags: list[str] = []
    """The interpreter's own options (``-I``, ``-X ...``)."""
    executable: str | None = None
    python: str | None = None
    package_root: str | None = None
    version: str | None = None
    viztracer: str | None = None
    include: str | None = None
    """Where its C headers would be."""
    limited_api: bool = True
    """Whether it loads extensions built for CPython's limited API."""
    sitecustomize: str | None = None
    isolated: bool = False
    ignore_environment: bool = False
    no_site: bool = False
    problem: str | None = None
    """Why the interpreter could not be asked."""


def resolve(command: Sequence[str], environment: Mapping[str, str]) -> Target:
    """Find the interpreter of ``command`` and ask it. Raises ``UsageError`` if there is no such command."""
    if not command:
        raise UsageError("no launch command: sgltrace run -- python -m sglang.launch_server ...")
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise UsageError(f"{command[0]}: no such command; name the program that starts the server")
    interpreter, flags, how = _interpreter(list(command), environment)
    target = Target(command=list(command), interpreter=interpreter, how=how, flags=flags)
    if interpreter is not None:
        _ask(target, environment)
    return target


def _interpreter(command: list[str], environment: Mapping[str, str]) -> tuple[str | None, list[str], str]:
    """The first Python on the command line, or behind a script's ``#!`` line."""
    path = environment.get("PATH")
    for at, word in enumerate(command):
        program = shutil.which(word, path=path) if at == 0 or not word.startswith("-") else None
        if program is None:
            continue
        if _PYTHON.match(Path(program).name):
            return program, _flags(command[at + 1 :]), f"'{word}' on the command line"
        behind = _shebang(Path(program), path)
        if behind is not None and _PYTHON.match(Path(behind[0]).name):
            return behind[0], _flags(behind[1:]), f"the first line of {program}"
    fallback = shutil.which("python3", path=path) or shutil.which("python", path=path)
    return fallback, [], "python3 on PATH, since the command names no Python" if fallback else "not found"


def _flags(words: Sequence[str]) -> list[str]:
    """The interpreter's options before ``-m``, ``-c`` or the script."""
    flags: list[str] = []
    words = list(words)
    while words and words[0].startswith("-") and words[0] not in ("-", "--") and words[0][:2] not in ("-m", "-c"):
        flags.append(words.pop(0))
        if flags[-1] in ("-X", "-W") and words:
            flags.append(words.pop(0))
    return flags


def _shebang(program: Path, path: str | None) -> list[str] | None:
    try:
        with program.open("rb") as file:
            lines = [file.readline(1024).decode("utf-8", "replace") for _ in range(3)]
    except OSError:
        return None
    if not lines[0].startswith("#!"):
        return None
    words = shlex.split(lines[0][2:].strip())
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word not in ("-S",) and "=" not in word]
    elif words and Path(words[0]).name == "sh" and lines[1].startswith("'''exec'"):
        # How pip writes a first line that would be too long.
        words = shlex.split(lines[1].removeprefix("'''exec'").partition('"$0"')[0])
    if not words:
        return None
    found = shutil.which(words[0], path=path)
    return None if found is None else [found, *words[1:]]


def _ask(target: Target, environment: Mapping[str, str]) -> None:
    answer = look(target, environment)
    if isinstance(answer, str):
        target.problem = answer
        return
    target.executable = str(answer["executable"])
    target.python = ".".join(str(n) for n in answer["version"])
    target.package_root = answer["package"]
    target.version = answer["package_version"]
    target.viztracer = answer["viztracer"]
    target.sitecustomize = answer["sitecustomize"]
    target.include = answer["include"]
    target.limited_api = bool(answer["gil"]) and answer["implementation"] == "cpython"
    target.isolated = bool(answer["flags"]["isolated"])
    target.ignore_environment = bool(answer["flags"]["ignore_environment"])
    target.no_site = bool(answer["flags"]["no_site"])
    if target.version is None and target.package_root is not None:
        target.version = _version_from_source(Path(target.package_root))


def look(target: Target, environment: Mapping[str, str]) -> dict[str, Any] | str:
    """Ask the interpreter what it would import in ``environment``; or one line on why it did not answer."""
    assert target.interpreter is not None
    code = _LOOK.replace("PACKAGE", repr(PACKAGE))
    try:
        done = subprocess.run(
            [target.interpreter, *target.flags, "-c", code],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{target.interpreter} did not answer: {error}"
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return f"{target.interpreter} failed: {last[0]}"
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return f"{target.interpreter} answered something unexpected"
    return dict(answer)


def _version_from_source(root: Path) -> str | None:
    try:
        found = re.search(r"""__version__\s*=\s*["']([^"']+)["']""", (root / "version.py").read_text("utf-8"))
    except OSError:
        return None
    return found.group(1) if found else None


def injected(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of the traced command: the user's own, with the probe first on PYTHONPATH."""
    changed = dict(environment)
    own = changed.get("PYTHONPATH")
    door = str(folder / "probe")
    changed["PYTHONPATH"] = f"{door}{os.pathsep}{own}" if own else door
    changed["SGLTRACE_DIR"] = str(folder)
    return changed
