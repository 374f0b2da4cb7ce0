"""How long `sgltrace index` takes, as ratios, and how much memory its processes hold.

    python benchmarks/index_speed.py SRC [--whole PREFIX] [--ty]

SRC is a folder, a wheel or a requirement (``sglang==0.5.12.post1``). Measured in one run, as ratios to the first;
``busy`` is the same of processor time, which other work on the machine
changes less:

- the time that ``libcst.parse_module`` alone needs for every file of the release's ``sglang/srt``: one process, trees
  dropped, without garbage collection, as the readers run it;
- the call graph alone, written to ``index.json``, with an empty cache;
- ``sgltrace index SRC`` into an empty workspace with an empty cache, and again with nothing changed;
- the largest sum of the proportional set sizes of the command's processes, looked at five times a second (a look
  costs the machine some milliseconds for each process);
- with ``--whole PREFIX`` the same with that option; with ``--ty`` (the command ``ty`` must be there), go-to-definition
  at every call of ``sglang/srt`` through its language server.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import libcst

from sgltrace.progress import SilentProgress
from sgltrace.sources import SourceTree, decode_source, open_source

LOOK = 0.2
"""Seconds between two looks at the memory."""


def runtime_files(tree: SourceTree) -> dict[str, str]:
    """The texts of the release's runtime, by path."""
    prefix = f"{tree.package}/srt/"
    return {path: decode_source(tree.read(path)) for path in tree.modules.values() if path.startswith(prefix)}


def parse_alone(texts: dict[str, str]) -> tuple[float, float]:
    """Seconds, and seconds of processor time, for LibCST's parser alone."""
    gc.disable()
    start, busy = time.perf_counter(), time.process_time()
    for text in texts.values():
        libcst.parse_module(text)
    gc.enable()
    return time.perf_counter() - start, time.process_time() - busy


def children(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        below = " ".join((task / "children").read_text() for task in tasks).split()
    except OSError:
        return found
    return found + [p for child in below for p in children(int(child))]


def resident(pid: int) -> int:
    """The proportional set size of a process, in KiB; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def processor_time() -> float:
    """Seconds that the processes below this one were busy, as far as they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def index(source: str, workspace: Path, cache: Path, *options: str) -> tuple[float, float, float]:
    """As ``measured``, of ``sgltrace index``."""
    command = [sys.executable, "-m", "sgltrace", "index", source, "-o", str(workspace), *options]
    return measured(command, cache)


def measured(command: list[str], cache: Path) -> tuple[float, float, float]:
    """Seconds, seconds of processor time, and peak MiB of a command."""
    start, busy = time.perf_counter(), processor_time()
    process = subprocess.Popen(command, env={**os.environ, "SGLTRACE_CACHE_DIR": str(cache)}, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(resident, children(process.pid))))
        time.sleep(LOOK)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return seconds, processor_time() - busy, peak / 1024


CALL_GRAPH = """
import os
import sys
from pathlib import Path
import msgspec
from sgltrace.index import IndexOptions, analyse, to_index
from sgltrace.interpreter import no_collection
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source
source, folder = sys.argv[1], Path(sys.argv[2])
tree = open_source(source, cache_dir=folder, progress=SilentProgress())
with no_collection():
    program = analyse(tree, IndexOptions(cache_dir=folder), SilentProgress())
    (folder / "index.json").write_bytes(msgspec.json.encode(to_index(program)))
os._exit(0)  # the command does not take its program apart either
"""


def call_positions(text: str) -> list[tuple[int, int]]:
    """Where the name of each call's callee stands: line and column from 0, in UTF-16 units as far as ASCII goes."""
    out = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            end = node.func.end_col_offset or 0
            out.append(((node.func.end_lineno or 1) - 1, end - 1))
    return out


class LanguageServer:
    """A language server on its standard streams."""

    def __init__(self, command: list[str], root: Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._id = 0
        folder = {"uri": root.as_uri(), "name": "root"}
        self.request(
            "initialize",
            {"processId": None, "rootUri": root.as_uri(), "capabilities": {}, "workspaceFolders": [folder]},
        )
        self.notify("initialized", {})

    def notify(self, method: str, params: dict) -> None:
        self._send({"method": method, "params": params})

    def request(self, method: str, params: dict) -> object:
        self._id += 1
        self._send({"id": self._id, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._id and "method" not in message:
                return message.get("result")
            if "id" in message and "method" in message:  # a question of the server's own
                self._send({"id": message["id"], "result": None})

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _send(self, message: dict) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> dict:
        stream = self._process.stdout
        assert stream is not None
        length = 0
        while line := stream.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if not length:
            raise SystemExit("the language server ended")
        return json.loads(stream.read(length))


def ty_definitions(tree: SourceTree, texts: dict[str, str]) -> tuple[float, int, int]:
    """Seconds, calls asked for and calls answered by ``ty``'s go-to-definition."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in tree.modules.values():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(tree.read(path))
        asked = answered = 0
        start = time.perf_counter()
        server = LanguageServer(["ty", "server"], root)
        for path, text in texts.items():
            uri = (root / path).as_uri()
            document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
            server.notify("textDocument/didOpen", {"textDocument": document})
            for line, column in call_positions(text):
                place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": column}}
                asked += 1
                answered += bool(server.request("textDocument/definition", place))
            server.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
        server.close()
        return time.perf_counter() - start, asked, answered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--whole", metavar="PREFIX", help="measure `--whole PREFIX` too")
    parser.add_argument("--ty", action="store_true", help="measure ty's go-to-definition too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        tree = open_source(arguments.source, cache_dir=scratch / "download", progress=SilentProgress())
        texts = runtime_files(tree)
        lines = sum(text.count("\n") for text in texts.values())
        base, busy = parse_alone(texts)
        print(f"{tree.took}; {len(texts)} files, {lines} lines below srt", flush=True)
        print(f"{'libcst.parse_module alone':32} {base:7.2f} s  {busy:.1f} s busy", flush=True)
        source = arguments.source
        if not Path(source).exists():
            source = str(next((scratch / "download").rglob("*.whl")))

        def measure(name: str, workspace: str, cache: str, *options: str) -> None:
            tell(name, index(source, scratch / workspace, scratch / cache, *options))

        def tell(name: str, found: tuple[float, float, float]) -> None:
            seconds, worked, peak = found
            ratios = f"ratio {seconds / base:.3f}  busy {worked / busy:.3f}"
            print(f"{name:32} {seconds:7.2f} s  {ratios}  peak {peak:.0f} MiB", flush=True)

        alone = scratch / "alone"
        alone.mkdir()
        tell("call graph alone, cold", measured([sys.executable, "-c", CALL_GRAPH, source, str(alone)], alone))
        measure("index, cold", "one", "cache")
        measure("index, nothing changed", "one", "cache")
        measure("index, only the facts kept", "two", "cache")
        if arguments.whole:
            measure(f"index --whole {arguments.whole}, cold", "three", "other", "--whole", arguments.whole)
        if arguments.ty:
            if shutil.which("ty") is None:
                raise SystemExit("ty is not installed")
            seconds, asked, answered = ty_definitions(tree, texts)
            name = "ty, definition at every call"
            print(f"{name:32} {seconds:7.2f} s  ratio {seconds / base:.3f}  {answered} of {asked} answered")


if __name__ == "__main__":
    main()
