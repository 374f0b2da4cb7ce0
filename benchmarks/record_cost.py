"""What a record costs: nanoseconds in C and in Python, bytes a step, and how fast traces are read.

    python benchmarks/record_cost.py            needs torch; the numbers are for this machine

The objects are of the size that SGLang 0.5.12.post1 has in a decode step of EAGLE v2: a forward batch of 60 fields and
12 tensors, with the sampling info (6 tensors) and the draft input (8 tensors) in it.
"""

from __future__ import annotations

import enum
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sgltrace.runtime.decode import Loss, read_segment
from sgltrace.runtime.fast import LIBRARY, build
from sgltrace.runtime.target import Target

REPEAT = 20_000


class Mode(enum.Enum):
    DECODE = 1


class SpecInput:
    def __init__(self, bs: int) -> None:
        self.topk_p, self.topk_index = torch.zeros(bs, 1), torch.zeros(bs, 1, dtype=torch.int64)
        self.hidden_states = torch.zeros(bs, 64, dtype=torch.bfloat16)
        self.bonus_tokens, self.seq_lens = torch.zeros(bs), torch.zeros(bs)
        self.positions, self.kv_indices, self.retrieve_index = torch.zeros(3 * bs), torch.zeros(bs), torch.zeros(bs, 3)
        self.mode, self.topk, self.steps = Mode.DECODE, 1, 2
        for n in range(10):
            setattr(self, f"none{n}", None)


class SamplingBatchInfo:
    def __init__(self, bs: int) -> None:
        for n in range(6):
            setattr(self, f"tensor{n}", torch.zeros(bs, 1))
        for n in range(14):
            setattr(self, f"flag{n}", False)


class ForwardBatch:
    def __init__(self, bs: int) -> None:
        for n in range(12):
            setattr(self, f"tensor{n}", torch.zeros(3 * bs, dtype=torch.int64))
        self.spec_info, self.sampling_info = SpecInput(bs), SamplingBatchInfo(bs)
        self.forward_mode, self.batch_size, self.seq_lens_sum = Mode.DECODE, bs, 10 * bs
        self.extend_lens = [3] * bs
        for n in range(30):
            setattr(self, f"none{n}", None)
        for n in range(12):
            setattr(self, f"object{n}", object())


def nothing(self: Any, batch: Any) -> None:
    return None


def measure(fast: Any, folder: Path) -> dict[str, Any]:
    """Cost of calls through a wrapper, over calls without one."""
    from sgltrace.runtime.probe.describe import Describer
    from sgltrace.runtime.probe.fast import FastProbe
    from sgltrace.runtime.probe.hooks import compile_sides, make_wrapper
    from sgltrace.runtime.probe.probe import Probe, Site
    from sgltrace.runtime.probe.recorder import Recorder

    recorder = Recorder(str(folder), "1-1", 64 << 20, 4 << 20)
    describer = Describer(recorder, ["ForwardBatch", "SpecInput", "SamplingBatchInfo"], ["*len*"], False)
    probe = Probe(recorder, describer) if fast is None else FastProbe(fast, recorder, describer)
    rows: dict[str, Any] = {}
    batch = ForwardBatch(8)
    tensors = [torch.zeros(8, 3) for _ in range(8)]
    cases = {
        "nothing": ([], nothing, None),
        "8 tensors": (["return"], lambda self, batch: tuple(tensors), None),
        "draft input": (["arg.batch.spec_info"], nothing, batch),
        "forward batch": (["arg.batch"], nothing, batch),
    }
    for number, (name, (after, function, argument)) in enumerate(cases.items(), 1):
        site = Site(number, name, frozenset())
        compile_sides(probe, site, function, {"after": after})
        wrapper = make_wrapper(probe, site, function)
        times = []
        for _ in range(5):
            times.append(_time(wrapper, argument) - _time(function, argument))
        rows[name] = round(statistics.median(times) / 2)  # a call makes two records
        if name != "nothing":
            rows[name] = 2 * rows[name] - rows["nothing"]
    probe.gate[0] = False
    rows["a call in a light step"] = round(
        statistics.median(_time(wrapper, batch) - _time(nothing, batch) for _ in range(5))
    )
    probe.gate[0] = True
    recorder.write_head()
    return rows


def _time(function: Any, argument: Any) -> float:
    start = time.process_time_ns()
    for _ in range(REPEAT):
        function(None, argument)
    return (time.process_time_ns() - start) / REPEAT


def read_speed(folder: Path) -> float:
    """Records a second, values included."""
    start = time.process_time()
    count = 0
    for path in sorted(folder.glob("*.seg")):
        for record in read_segment(path, Loss()):
            record.values()
            count += 1
    return count / (time.process_time() - start)


def main() -> None:
    library = build(Target(command=[], interpreter=None, how=""))
    package = Path(tempfile.mkdtemp())
    shutil.copyfile(library, package / LIBRARY)
    sys.path.insert(0, str(package))
    import _fast  # type: ignore[import-not-found]

    result: dict[str, Any] = {"python": sys.version.split()[0], "torch": torch.__version__}
    for name, fast in (("C", _fast), ("Python", None)):
        folder = Path(tempfile.mkdtemp())
        result[f"ns a record, {name}"] = measure(fast, folder)
        result[f"records read a second ({name})"] = round(read_speed(folder))
        shutil.rmtree(folder)
    shutil.rmtree(package)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
