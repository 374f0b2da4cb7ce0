"""Makes a trace folder ready: the plan, and the probe's files for the server's Python to find."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from . import plan as plans
from .plan import Plan

PROBE = Path(__file__).with_name("probe")
_ENTRY_POINT = "[sglang.srt.plugins]\nsgltrace = sgltrace_probe.plugin:load\n"
_METADATA = "Metadata-Version: 2.1\nName: sgltrace-probe\nVersion: 1.0\n"
TRACE_SCHEMA = "sgltrace.trace/1"
MIN_SEGMENT, MAX_SEGMENT = 256 << 10, 1 << 20


class RunInfo(msgspec.Struct, kw_only=True):
    """What was run; ``run.json`` of a trace. Secrets on the command line are blanked."""

    schema: str = TRACE_SCHEMA
    tool: str
    command: list[str]
    interpreter: str | None
    package_root: str | None
    version: str | None
    plan: str
    started_ns: int
    """Wall clock, when the command was started."""
    monotonic_ns: int
    """The monotonic clock of the records at that moment."""
    run_id: str = ""
    """What the nodes of one run share."""
    host: str = ""
    gpus: list[str] = []
    """The GPUs of this machine, by index, as the driver names them."""
    driver: str = ""
    signals: list[str] = []
    """Signals that were passed on to the command, in order: the user ended it."""
    ended_ns: int | None = None
    exit_code: int | None = None
    processes: list[dict[str, object]] = []
    """Python processes seen: pid, start, command, attached, and why not."""
    problems: list[str] = []


def stage(folder: Path, plan: Plan) -> None:
    """Write what the probe needs into ``folder``. Raises ``OSError``."""
    probe = folder / "probe"
    package = probe / "sgltrace_probe"
    package.mkdir(parents=True, exist_ok=True)
    for file in sorted(PROBE.glob("*.py")):
        shutil.copyfile(file, (probe if file.name == "sitecustomize.py" else package) / file.name)
    metadata = probe / "sgltrace_probe-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(_METADATA, encoding="utf-8")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINT, encoding="utf-8")
    (folder / "plan.json").write_bytes(plans.encode(plan))
    largest = plan.options.max_bytes
    segment = max(MIN_SEGMENT, min(MAX_SEGMENT, largest // 16))
    (folder / "modules.txt").write_text("\n".join([f"{largest} {segment}", *plan.modules]), encoding="utf-8")


def stage_viztracer(folder: Path, target_python: str | None) -> str | None:
    """Lend the server our VizTracer where its Python is the same; or one line on why that is not possible."""
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if target_python is None or ".".join(target_python.split(".")[:2]) != ours:
        return f"--timeline needs viztracer in the server's Python {target_python}; install it there (ours is {ours})"
    try:
        import viztracer
    except ImportError:
        return "--timeline needs viztracer: pip install 'sgltrace[run]', or viztracer in the server's Python"
    source = Path(viztracer.__file__).parent
    for package in (source, source.with_name("objprint")):
        if package.is_dir():
            shutil.copytree(
                package,
                folder / "probe" / package.name,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__", "html", "web_dist"),
            )
    return None


def write_run(folder: Path, info: RunInfo) -> None:
    """Write ``run.json``. Raises ``OSError``."""
    (folder / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(info), indent=1))
