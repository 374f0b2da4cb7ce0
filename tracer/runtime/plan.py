"""The plan of a run: which functions of this SGLang are wrapped, and what is recorded of each.

Roles and what to record of them are in ``sites.toml``; the functions that play them are looked up in the source tree
that the launch command will import. Sites of the user's own come on top.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from sgltrace.errors import UsageError

from .probe.selectors import SelectorError, compile_selector

SITES_FILE = Path(__file__).with_name("sites.toml")
VOCABULARY_FILE = Path(__file__).parent.with_name("vocabulary.toml")


Flag = Literal[
    "open",
    "step",
    "process",
    "capture",
    "replay",
    "graph",
    "device",
    "result",
    "wait",
    "compile",
    "watch",
    "silent",
    "quiet",
    "graph begin",
    "graph end",
]


class Site(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One function to wrap. Its number in records is its place in ``Plan.sites``, from 1."""

    role: str
    stage: str
    module: str
    qualname: str
    before: list[str] = []
    after: list[str] = []
    result: list[str] = []
    flags: list[str] = []
    paths: list[str] = []

    @property
    def function(self) -> str:
        """The function id, ``module:qualname``."""
        return f"{self.module}:{self.qualname}"


class Options(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the user asked of a run that concerns the probe."""

    steps: tuple[int, int | None] | None = None
    every: int = 0
    """Record every so many steps in full; 0 to keep to a share of the time."""
    pointers: bool = False
    timeline: int = 0
    calls: int = 0
    gpu_time: int = 0
    """Measure so many steps on the device, with CUDA events."""
    when: str = ""
    """Windows open, and steps are recorded in full, at these batch sizes only: ``batch>=8``."""
    max_bytes: int = 256 << 20


class Plan(msgspec.Struct, kw_only=True):
    """What the probe carries out; ``plan.json`` of a trace."""

    package: str
    """The package that is traced, ``sglang``."""
    root: str | None
    """Its folder, or None where it was not found."""
    version: str | None
    options: Options
    sites: list[Site]
    roles_missing: list[str]
    """Roles that no function of this release plays."""
    unreadable: list[str]
    """Files that could not be parsed."""
    tracked: list[str]
    """Patterns of the names of classes whose fields are recorded."""
    not_followed: list[str] = []
    """Fields of tracked objects whose own fields are not recorded."""
    host_values: list[str]
    """Patterns of the names of lists whose integers are recorded."""
    accepted_drafts: list[str]
    """Names of the lists that say how many drafts of each request were accepted."""
    identity: list[str]
    """Attributes of the scheduler that say which rank it is."""
    config_owner: str
    config: list[str]
    step_width: str = ""
    """The attribute of a step's result that says how many tokens it verified for each request."""
    step_graph: str = ""
    """The one that says whether the target's forward pass was a CUDA graph's replay."""

    @property
    def modules(self) -> list[str]:
        """Names of the modules that hold sites."""
        return sorted({site.module for site in self.sites})

    def digest(self) -> str:
        """Names the plan, for comparing runs."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


class Role(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One ``[[site]]`` of ``sites.toml``."""

    role: str
    stage: str
    match: list[str] = []
    exact: list[str] = []
    """Functions outside of SGLang, which are not looked for."""
    before: list[str] = []
    after: list[str] = []
    result: list[str] = []
    flags: list[Flag] = []
    paths: list[str] = []


class Roles(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole of ``sites.toml``."""

    site: list[Role]
    tracked: list[str]
    not_followed: list[str]
    host_values: list[str]
    accepted_drafts: list[str]
    identity: list[str]
    config_owner: str
    config: list[str]
    step_width: str
    step_graph: str


class _Tracked(msgspec.Struct):
    carries: str
    classes: list[str]


class _Vocabulary(msgspec.Struct):
    tracked: dict[str, _Tracked]


class _OwnSite(msgspec.Struct, forbid_unknown_fields=True):
    function: str
    fields: tuple[str, ...] = ("args", "return")
    stage: str = "own"


class _OwnFile(msgspec.Struct, forbid_unknown_fields=True):
    site: list[_OwnSite]


@functools.cache
def roles() -> Roles:
    """The roles that come with sgltrace."""
    return msgspec.toml.decode(SITES_FILE.read_bytes(), type=Roles)


@functools.cache
def tracked_classes() -> list[str]:
    """Names of the classes that carry a step's state and of the graphs' buffers, from the vocabulary; no requests."""
    vocabulary = msgspec.toml.decode(VOCABULARY_FILE.read_bytes(), type=_Vocabulary)
    chosen = [
        tracked
        for role, tracked in vocabulary.tracked.items()
        if (tracked.carries in ("step", "request") and role != "request") or role == "graph_buffers"
    ]
    return sorted({name for tracked in chosen for name in tracked.classes})


def make_plan(
    package: str, root: Path | None, version: str | None, options: Options, own_sites: Sequence[Site] = ()
) -> Plan:
    """The plan for the package in ``root``, with the user's own sites last."""
    known = roles()
    functions, unreadable = _functions(package, root, known.site) if root is not None else ([], [])
    sites: dict[str, Site] = {}
    played: set[str] = set()
    for role in known.site:
        found = role.exact or [f for f in functions if any(fnmatchcase(f, pattern) for pattern in role.match)]
        if found:
            played.add(role.role)
        for function in found:
            module, _, qualname = function.partition(":")
            sites.setdefault(
                function,
                Site(
                    role=role.role,
                    stage=role.stage,
                    module=module,
                    qualname=qualname,
                    before=role.before,
                    after=role.after,
                    result=role.result,
                    flags=list(role.flags),
                    paths=role.paths,
                ),
            )
    for site in own_sites:
        planned = sites.get(site.function)
        if planned is None:
            sites[site.function] = site
        else:  # one wrapper for each function: the user's fields go on top
            planned.before = list(dict.fromkeys([*planned.before, *site.before]))
            planned.after = list(dict.fromkeys([*planned.after, *site.after]))
    return Plan(
        package=package,
        root=None if root is None else str(root),
        version=version,
        options=options,
        sites=list(sites.values()),
        roles_missing=[name for name in dict.fromkeys(role.role for role in known.site) if name not in played],
        unreadable=unreadable,
        tracked=[*tracked_classes(), *known.tracked],
        not_followed=known.not_followed,
        host_values=known.host_values,
        accepted_drafts=known.accepted_drafts,
        identity=known.identity,
        config_owner=known.config_owner,
        config=known.config,
        step_width=known.step_width,
        step_graph=known.step_graph,
    )


def _functions(package: str, root: Path, wanted: Iterable[Role]) -> tuple[list[str], list[str]]:
    """Ids of the functions and methods in the modules that some pattern names, sorted; and files that do not parse."""
    modules = {pattern.partition(":")[0] for role in wanted for pattern in role.match}
    found: list[str] = []
    unreadable: list[str] = []
    for folder, subfolders, files in os.walk(root):
        subfolders.sort()
        for file in sorted(files):
            if not file.endswith(".py"):
                continue
            path = Path(folder, file)
            parts = (package, *path.relative_to(root).with_suffix("").parts)
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not any(fnmatchcase(module, pattern) for pattern in modules):
                continue
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
                line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
                unreadable.append(f"{path.relative_to(root).as_posix()}{line}")
                continue
            found += [f"{module}:{name}" for name in _names(tree.body, "")]
    return sorted(set(found)), unreadable


def _names(body: list[ast.stmt], outer: str) -> list[str]:
    """Names of functions in a module or class body, also under ``if`` and ``try``."""
    names = []
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            names.append(outer + statement.name)
        elif isinstance(statement, ast.ClassDef):
            names += _names(statement.body, f"{outer}{statement.name}.")
        elif isinstance(statement, (ast.If, ast.Try)):
            names += _names([*statement.body, *statement.orelse], outer)
    return names


def own_site(function: str, fields: str = "args,return") -> Site:
    """A site of the user's own, from ``module:Class.method`` and ``self.x,arg.y,return.z``. Raises ``UsageError``."""
    module, colon, qualname = function.partition(":")
    names = [*module.split("."), *qualname.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise UsageError(f"--probe {function!r} is not of the form module:Class.method, e.g. my.module:Worker.step")
    before: list[str] = []
    after: list[str] = []
    for field in (part.strip() for part in fields.split(",")):
        if not field:
            continue
        _check_selector(field)
        (after if field.startswith("return") else before).append(field)
    # An attribute of the object may be set by the call, so it is recorded on both sides.
    after += [field for field in before if field.startswith("self.")]
    return Site(
        role="own", stage="own", module=module, qualname=qualname, before=before, after=after, flags=["traceable"]
    )


def _check_selector(field: str) -> None:
    if field == "args":
        return
    name = field.removeprefix("arg.").partition(".")[0].partition("[")[0]
    try:
        compile_selector(field, [name])
    except SelectorError as error:
        raise UsageError(f"--fields: {error}; fields are such as self.x, arg.batch.y or return.z") from None


def sites_from_file(path: Path) -> list[Site]:
    """Sites from a TOML file of ``[[site]]`` tables with ``function``, ``fields`` and perhaps ``stage``."""
    try:
        read = msgspec.toml.decode(path.read_bytes(), type=_OwnFile)
    except OSError as error:
        raise UsageError(f"--plan {path}: {error.strerror}") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(f"--plan {path}: {error}; it holds [[site]] tables with function and fields") from None
    sites = []
    for own in read.site:
        site = own_site(own.function, ",".join(own.fields))
        site.stage = own.stage
        sites.append(site)
    return sites


def encode(plan: Plan) -> bytes:
    """The bytes of ``plan.json``."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1)


def decode(data: bytes) -> Plan:
    """A plan from ``plan.json``. Raises ``msgspec.MsgspecError``."""
    return msgspec.json.decode(data, type=Plan)
