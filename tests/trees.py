"""Small source trees of SGLang's shape, for the tests of sources and of the command line."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sgltrace.errors import InputError
from sgltrace.progress import SilentProgress
from sgltrace.sources import SourceTree, open_source

MODULES = {
    "sglang/__init__.py": b"",
    "sglang/version.py": b"try:\n    from sglang._version import *\nexcept ImportError:\n    __version__ = '0'\n",
    "sglang/_version.py": b"__version__ = version = '1.2.3'\n",
    "sglang/srt/server_args.py": b"from sglang.srt.managers import scheduler\n",
    "sglang/srt/managers/scheduler.py": b"class Scheduler:\n    pass\n",
}
METADATA = b"Metadata-Version: 2.1\nName: sglang\nVersion: 1.2.3\n"


def write_tree(folder: Path, files: dict[str, bytes] = MODULES) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def write_wheel(
    folder: Path, name: str = "sglang-1.2.3-py3-none-any.whl", extra: dict[str, bytes] | None = None
) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        distribution, version = name.split("-")[:2]
        metadata = {
            f"{distribution}-{version}.dist-info/METADATA": METADATA.replace(b"1.2.3", version.encode()).replace(
                b"Name: sglang", f"Name: {distribution}".encode()
            )
        }
        wheel = {f"{distribution}-{version}.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"}
        for file, data in {**MODULES, **metadata, **wheel, **(extra or {})}.items():
            archive.writestr(file, data)
    return path


def write_sdist(path: Path, files: dict[str, bytes] = MODULES, members: list[tarfile.TarInfo] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"PKG-INFO": METADATA, **files}.items():
            member = tarfile.TarInfo(f"sglang-1.2.3/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in members or []:
            archive.addfile(member, io.BytesIO(b"\0" * member.size))
    return path


def opener(cache_dir: Path) -> Callable[[Path | str], SourceTree]:
    """``open_source`` with a cache folder and without progress."""
    return lambda requested: open_source(str(requested), cache_dir=cache_dir, progress=SilentProgress())


def refusal(opened: Callable[[Path | str], SourceTree], requested: Path | str) -> str:
    """The one line with which ``requested`` is refused."""
    with pytest.raises(InputError) as caught:
        opened(requested)
    assert "\n" not in str(caught.value)
    return str(caught.value)


SCHEDULER = "sglang.srt.managers.scheduler"


def assert_is_the_tree(tree: SourceTree) -> None:
    """It has what MODULES has, under the names by which Python imports it."""
    assert list(tree.modules) == ["sglang", "sglang._version", SCHEDULER, "sglang.srt.server_args", "sglang.version"]
    assert tree.modules[SCHEDULER] == "sglang/srt/managers/scheduler.py"
    assert tree.read_module(SCHEDULER) == MODULES["sglang/srt/managers/scheduler.py"]
    assert (tree.source.name, tree.source.version) == ("sglang", "1.2.3")
