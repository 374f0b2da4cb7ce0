"""``explain``: from a source, a command and what is known besides to an explanation."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgltrace.errors import UsageError
from sgltrace.explain.answer import Explanation, make_answer
from sgltrace.explain.cast import find_parts
from sgltrace.explain.command import Command
from sgltrace.explain.model_file import library_facts, read_model_file
from sgltrace.explain.session import Inputs, handle, on_large_stack
from sgltrace.explain.vocabulary import Hints, hints
from sgltrace.sources import SourceTree


def explain(tree: SourceTree, command: Command, inputs: Inputs) -> Explanation:
    """Take a command through a release's argument handling, and say what comes of it and why.

    Raises InputError where the source has no such handling.
    """
    known = hints()
    parts = find_parts(tree, known)

    def run() -> Explanation:
        return make_answer(handle(tree, parts, command, inputs, known), parts, known)

    explanation = on_large_stack(run)
    explanation.command = command.text()
    version = tree.source.version
    explanation.source = f"{tree.source.name} {version}" if version else tree.source.requested
    return explanation


def make_inputs(assume: Sequence[str], model_config: Path | None, gpu: str | None) -> Inputs:
    """What the options of the command line say besides the launch command. Raises UsageError, InputError."""
    known = hints()
    facts = dict(known.machine)
    model: dict[str, Any] = {}
    if gpu is not None:
        facts.update(_gpu_facts(gpu, known))
    if model_config is not None:
        model = read_model_file(model_config)
        facts.update(library_facts(model))
    return Inputs(_assumptions(assume), facts, model_config is not None, model)


def _assumptions(assume: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in assume:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--assume {text}: write NAME=VALUE, such as is_hybrid=False")
        try:
            found[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            found[name.strip()] = value.strip()
    return found


def _gpu_facts(gpu: str, known: Hints) -> Mapping[str, Any]:
    entry = known.gpus.get(gpu.lower().replace(" ", ""))
    if entry is None:
        raise UsageError(f"--gpu {gpu}: not a GPU that is known by name; one of {', '.join(sorted(known.gpus))}")
    major, minor, memory = entry
    bytes_ = memory * 1024 * 1024
    return {
        "torch.cuda.get_device_capability()": (major, minor),
        "torch.cuda.get_device_capability(0)": (major, minor),
        "torch.cuda.get_device_properties": lambda *_: _Properties(major, minor, bytes_),
        "torch.cuda.mem_get_info": lambda *_: (bytes_, bytes_),
        "torch.cuda.device_count()": 8,
        "torch.cuda.get_device_name()": f"NVIDIA {gpu.upper()}",
        "torch.cuda.get_device_name(0)": f"NVIDIA {gpu.upper()}",
        "subprocess.run": lambda *_, **__: _Finished(f"{memory}\n" * 8),
        "pynvml.nvmlDeviceGetCudaComputeCapability": lambda *_: (major, minor),
    }


class _Properties:
    def __init__(self, major: int, minor: int, total_memory: int) -> None:
        self.major, self.minor, self.total_memory = major, minor, total_memory
        self.multi_processor_count = 132


class _Finished:
    def __init__(self, stdout: str) -> None:
        self.returncode, self.stdout, self.stderr = 0, stdout, ""
