"""A source tree that is named as a requirement, ``sglang==0.5.9``: fetched once, kept in the user's cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from sgltrace.errors import InputError
from sgltrace.progress import Progress
from sgltrace.sources.archive import open_archive
from sgltrace.sources.layout import PACKAGE
from sgltrace.sources.pip import NoSuchRelease, download, newest_release
from sgltrace.sources.tree import SourceTree


def parse_requirement(text: str) -> Requirement | None:
    """The requirement that ``text`` is, or None: a bare name counts only where it is SGLang's own.

    A misspelt path would otherwise be looked up, and fetched, as a package of that name.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    known = canonicalize_name(requirement.name) == PACKAGE
    return requirement if known or requirement.specifier or requirement.url else None


def open_requirement(
    requirement: Requirement, requested: str, cache_dir: Path, progress: Progress, package: str | None
) -> SourceTree:
    """The tree of the newest release that fits. Raises InputError, also for a name that is neither SGLang nor a fork.

    ``package`` is the fork that the user named.
    """
    if requirement.url:
        raise InputError(f"{requested} names a URL; fetch it yourself and name the file or the checkout")
    name = canonicalize_name(requirement.name)
    if name not in (PACKAGE, canonicalize_name(package or PACKAGE)):
        raise InputError(f"{requested} is not SGLang, and is not fetched; if it is a fork, say --package {name}")
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        raise InputError(
            f"{requested}: its marker does not hold for this Python; leave it out: {name}{requirement.specifier}"
        )
    tree = _fetched(requirement, name, requested, cache_dir, progress, package)
    if requirement.extras:
        tree.took += f"; its extras ({', '.join(sorted(requirement.extras))}) are other packages, and not read"
    return tree


def _fetched(
    requirement: Requirement, name: str, requested: str, cache_dir: Path, progress: Progress, package: str | None
) -> SourceTree:
    releases = cache_dir / "releases"
    version = _pinned(requirement) or _newest(requirement, releases, progress)
    folder = releases / f"{name}-{version}"
    if kept := _kept(folder):
        try:
            return open_archive(requested, kept, cache_dir, kind="requirement", package=package)
        except InputError:  # damaged since it was fetched; what the registry itself has wrong is told below
            shutil.rmtree(folder)
    progress.stage(f"fetching {name} {version}")
    found = download(name, version, folder)
    return open_archive(requested, found, cache_dir, kind="requirement", package=package)


def _pinned(requirement: Requirement) -> Version | None:
    """The one version that ``==X`` allows, None for ranges, wildcards and bare names."""
    clauses = list(requirement.specifier)
    if len(clauses) == 1 and clauses[0].operator == "==" and not clauses[0].version.endswith(".*"):
        return Version(clauses[0].version)
    return None


def _newest(requirement: Requirement, releases: Path, progress: Progress) -> Version:
    progress.stage(f"asking for the newest {requirement}")
    try:
        return newest_release(requirement)
    except NoSuchRelease:
        raise
    except InputError:  # the registry is out of reach: the newest release that was fetched before will do
        prefix = f"{canonicalize_name(requirement.name)}-"
        kept = [Version(path.name.removeprefix(prefix)) for path in releases.glob(f"{prefix}*") if _kept(path)]
        fitting = list(requirement.specifier.filter(kept))
        if not fitting:
            raise
        return max(fitting)


def _kept(folder: Path) -> Path | None:
    """The file of a release in the cache, None where it is not there."""
    return next((path for path in sorted(folder.glob("*")) if path.is_file()), None)
