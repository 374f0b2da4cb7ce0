"""The wheel: built from the sources, installed into a clean environment without PyTorch, and used."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"tracer": "sgltrace", "reports": "sgltrace.reports", "templates": "sgltrace.templates"}
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def run(*command: object, **options) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: setuptools leaves a build folder beside the sources, and packs what lies in it."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("tracer", "reports", "templates"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", copy / "dist", copy)
    return next((copy / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The bin folder of a virtual environment that has the wheel and what it asks for, nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin"


def test_every_folder_with_code_is_a_package_named_in_pyproject():
    named = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = set()
    for folder, package in FOLDERS.items():
        for place in {path.parent for path in (ROOT / folder).rglob("*.py")}:
            assert (place / "__init__.py").is_file()
            found.add(".".join([package, *place.relative_to(ROOT / folder).parts]))
    assert named == found


def test_wheel_holds_every_file_under_one_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} == {"sgltrace", f"sgltrace-{wheel.name.split('-')[1]}.dist-info"}
    for folder, package in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}" in names


def test_clean_environment_has_no_generic_names(installed):
    site = next(installed.parent.glob("lib/python*/site-packages"))
    top = {path.name for path in site.iterdir()}
    assert "sgltrace" in top
    assert not top & {"tracer", "reports", "templates", "fixtures", "tests", "torch", "viztracer"}


def test_errors_of_the_installed_command(installed, tmp_path):
    done = subprocess.run([installed / "sgltrace", "index", tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


def test_installed_command_indexes_and_reports(installed, tmp_path):
    done = run(installed / "sgltrace", "index", ROOT / "fixtures/toysgl", "-o", tmp_path / "out", cwd=tmp_path)
    assert "call edges" in done.stdout
    assert (tmp_path / "out/index.json").is_file() and (tmp_path / "out/report/index.html").is_file()
