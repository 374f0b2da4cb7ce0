"""A stand-in for a server: a package of SGLang's shape and a torch without torch, that start in no time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sgltrace.runtime import Options, RunOptions, Session, Site, run

TORCH = """
class Size(tuple):
    pass

class dtype:
    def __init__(self, name): self.name = name
    def __repr__(self): return "torch." + self.name

class device:
    def __init__(self, name): self.name = name
    def __repr__(self): return self.name
    def __eq__(self, other): return self.name == other.name
    def __hash__(self): return hash(self.name)

int64, int32, float32 = dtype("int64"), dtype("int32"), dtype("float32")

class Tensor:
    def __init__(self, *shape, dtype=int64, on="cuda:0"):
        self._shape, self._dtype, self._on = Size(shape), dtype, on
    shape = property(lambda self: self._shape)
    dtype = property(lambda self: self._dtype)
    device = property(lambda self: device(self._on))
    def stride(self):
        steps, step = [], 1
        for size in reversed(self._shape):
            steps.insert(0, step)
            step *= size
        return tuple(steps)
    def cpu(self): raise RuntimeError("a synchronisation")
    item = tolist = numpy = __repr__ = cpu
"""

SCHEDULER = """
import enum, os, signal, sys, time
import torch
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

class ForwardMode(enum.Enum):
    DECODE = 1

class ScheduleBatch:
    def __init__(self, bs):
        self.reqs = [object() for _ in range(bs)]
        self.forward_mode = ForwardMode.DECODE
        self.input_ids = torch.Tensor(bs)
        self.seq_lens_sum = bs * 10
        self.extend_lens = [3] * bs
        self.output_ids = [7] * bs
        self.spec_info = None

class ServerArgs:
    tp_size, api_key = 1, "hidden"
    speculative_num_draft_tokens = 3
    def __init__(self):
        self.speculative_num_draft_tokens, self.tp_size, self.api_key = 3, 1, "hidden"

class Scheduler:
    def __init__(self, tp_rank=0):
        self.server_args, self.tp_rank = ServerArgs(), tp_rank
        self.model_worker = EAGLEWorkerV2()
        self.turns = 0

    def get_next_batch_to_run(self):
        self.turns += 1
        return None if self.turns % 3 == 0 else ScheduleBatch(1 + self.turns % 4)

    def run_batch(self, batch):
        return self.model_worker.forward_batch_generation(batch)

    def process_batch_result(self, batch, result):
        pass

    def loop(self, steps, report):
        done = 0
        while done < steps:
            batch = self.get_next_batch_to_run()
            if batch is None:
                continue
            result = self.run_batch(batch)
            self.process_batch_result(batch, result)
            done += 1
            report(done)
"""

WORKER = """
import torch

class GenerationBatchResult:
    def __init__(self, bs):
        self.next_token_ids = torch.Tensor(3 * bs, dtype=torch.int32)
        self.accept_lens = torch.Tensor(bs, dtype=torch.int32)
        self.can_run_cuda_graph = True

class EAGLEWorkerV2:
    def forward_batch_generation(self, batch):
        return self.verify(batch)

    def verify(self, batch):
        return GenerationBatchResult(len(batch.reqs))
"""

MAIN = """
import os, sys
from sglang.srt.managers.scheduler import Scheduler

def report(step):
    os.write(int(os.environ.get("REPORT_FD", "1")), b"%d\\\\n" % step)

Scheduler().loop(int(sys.argv[1]), report)
""".replace("\\\\n", "\\n")

FILES = {
    "torch/__init__.py": TORCH,
    "sglang/version.py": '__version__ = "0.0.1"\n',
    "sglang/srt/managers/scheduler.py": SCHEDULER,
    "sglang/srt/speculative/eagle_worker_v2.py": WORKER,
    "server.py": MAIN,
}


def make_server(folder: Path, files: dict[str, str] | None = None) -> Path:
    """Write the stand-in into ``folder`` and return it."""
    for name, text in {**FILES, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def trace_server(
    tmp_path: Path,
    monkeypatch: object,
    *arguments: str,
    python: str = sys.executable,
    options: Options | None = None,
    own_sites: list[Site] | None = None,
    files: dict[str, str] | None = None,
) -> Session:
    """Run the stand-in under the probe in this process; its trace is ``tmp_path / "trace"``."""
    server = make_server(tmp_path / "server", files)
    monkeypatch.setenv("PYTHONPATH", str(server))  # type: ignore[attr-defined]
    command = [python, str(server / "server.py"), *(arguments or ("20",))]
    return run(
        RunOptions(command=command, out=tmp_path / "trace", probe=options or Options(), own_sites=own_sites or []),
        say=lambda text: None,
    )


def sgltrace_run(
    server: Path, out: Path, command: list[str], every: int = 0, **popen: object
) -> subprocess.Popen[bytes]:
    """Start ``run`` in a process of its own, as from a shell."""
    code = (
        "import sys; from sgltrace.runtime import run, Options, RunOptions; from pathlib import Path;"
        f"options = Options(every={every});"
        "sys.exit(run(RunOptions(command=sys.argv[2:], out=Path(sys.argv[1]), probe=options)).exit_code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(server)}
    return subprocess.Popen([sys.executable, "-c", code, str(out), *command], env=environment, **popen)  # type: ignore[call-overload,no-any-return]


OTHER_PYTHONS = [
    path
    for path in sorted(Path.home().glob(".pyenv/versions/3.1[0-9]*/bin/python"))
    if path.parent.parent.name.split(".")[:2] != [str(n) for n in sys.version_info[:2]]
]
