"""A second opinion: the command's own SGLang handles the arguments, in a process of its own, and nothing starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sgltrace.errors import InputError
from sgltrace.explain.command import Command

TIMEOUT_S = 300

# Run by the command's own interpreter. What the arguments become is written to the file that the first argument names.
_ASK = """
import dataclasses, json, sys
out, argv = sys.argv[1], sys.argv[2:]
answer = {}
try:
    import sglang
    answer["version"] = getattr(sglang, "__version__", None)
    from sglang.srt.server_args import prepare_server_args
    args = prepare_server_args(argv)
    for name in ("resolve_once", "check_server_args"):
        if hasattr(args, name):
            getattr(args, name)()
    if hasattr(args, "resolved_dict"):
        values = args.resolved_dict()
    else:
        values = {f.name: getattr(args, f.name) for f in dataclasses.fields(args)}
    answer["values"] = values
except BaseException as error:
    answer["error"] = {"exception": type(error).__name__, "message": str(error)}
with open(out, "w") as stream:
    json.dump(answer, stream, default=repr)
"""


def execute_command(command: Command) -> dict[str, Any]:
    """What the command's own SGLang makes of its arguments. Raises InputError where it cannot be asked."""
    program = command.program[0] if command.program else sys.executable
    python = shutil.which(program) if "python" in Path(program).name else shutil.which("python3")
    if python is None:
        raise InputError(f"--execute: no {program} to ask; name the Python that SGLang is installed for")
    with tempfile.TemporaryDirectory(prefix="sgltrace-") as folder:
        out = Path(folder) / "answer.json"
        words = [python, "-c", _ASK, str(out), *command.arguments]
        environment = {**os.environ, **command.environment}
        try:
            run = subprocess.run(words, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise InputError(f"--execute: {python} did not answer within {TIMEOUT_S} s") from error
        try:
            answer: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            last = run.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InputError(f"--execute: {python} ended with {run.returncode}: {last[-1] if last else ''}") from error
    answer["python"] = python
    return answer
