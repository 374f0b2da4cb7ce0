"""The parts of Python's library that argument handling may use. What is not named here is unknown.

Nothing here starts a process, opens a socket or writes; files are read where the user's own command names them.
"""

from __future__ import annotations

import abc
import argparse
import base64
import collections
import collections.abc
import contextlib
import copy
import dataclasses
import enum
import functools
import hashlib
import io
import ipaddress
import itertools
import json
import math
import numbers
import operator
import posixpath
import re
import string
import textwrap
import types
import typing
import urllib.parse
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from sgltrace.evaluate.functions import Annotation, Function, LazyImport, Module, Opaque
from sgltrace.evaluate.unknown import Unknown, describe, has_unknown

if TYPE_CHECKING:
    from sgltrace.evaluate.machine import Machine

_WHOLE = {
    "abc": abc, "base64": base64, "collections": collections, "collections.abc": collections.abc, "copy": copy,
    "enum": enum, "hashlib": hashlib, "ipaddress": ipaddress, "itertools": itertools, "math": math,
    "numbers": numbers, "re": re, "string": string, "textwrap": textwrap, "urllib.parse": urllib.parse,
}  # fmt: skip
_WITHOUT = {
    "argparse": (argparse, {"FileType"}),
    "dataclasses": (dataclasses, {"make_dataclass"}),
    "operator": (operator, {"attrgetter", "methodcaller"}),
    "typing": (typing, {"get_type_hints", "ForwardRef", "sys"}),
    "typing_extensions": (typing, {"get_type_hints", "ForwardRef", "sys"}),
    "json": (json, {"load", "dump"}),
}


class CommandLineRefused(SystemExit):
    """The parser of the command line refuses it; ``text`` is what it says."""

    def __init__(self, text: str) -> None:
        super().__init__(2)
        self.text = text

    def __str__(self) -> str:
        return self.text


class Parser(argparse.ArgumentParser):
    """A parser that prints nothing and leaves by an exception with its words."""

    def error(self, message: str) -> typing.NoReturn:
        """Refuse the command line."""
        raise CommandLineRefused(message)

    def print_help(self, file: Any = None) -> None:
        """Say nothing."""

    def exit(self, status: int = 0, message: str | None = None) -> typing.NoReturn:
        """Leave, as ``--help`` does."""
        raise CommandLineRefused(message or "the command prints its help and ends")


class SourcePath(PurePosixPath):
    """A path, of which only what the user names can be looked at."""

    machine: Machine

    def exists(self) -> Any:
        """Whether there is such a file."""
        return _exists(self.machine, str(self))

    is_file = is_dir = exists

    def expanduser(self) -> SourcePath:
        """The path as it is."""
        return self

    resolve = absolute = expanduser

    def read_text(self, *_: Any, **__: Any) -> Any:
        """The file's text."""
        return open_for_reading(self.machine, str(self), "r").read()

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        """The file, for reading."""
        return open_for_reading(self.machine, str(self), mode)


def library_module(name: str, machine: Machine) -> dict[str, Any] | None:
    """The names of a module of Python's library, or None where nothing is known of it."""
    made = _SHIMS.get(name)
    if made is not None:
        return made(machine)
    if name in _WHOLE:
        return _public(_WHOLE[name])
    if name in _WITHOUT:
        module, hidden = _WITHOUT[name]
        names = {key: value for key, value in _public(module).items() if key not in hidden}
        override = _OVERRIDES.get(name.removesuffix("_extensions"))
        names.update(override(machine) if override is not None else {})
        return names
    return None


def _public(module: types.ModuleType) -> dict[str, Any]:
    named = getattr(module, "__all__", None)
    names = named if named is not None else [name for name in vars(module) if not name.startswith("_")]
    found = {name: getattr(module, name) for name in names if hasattr(module, name)}
    return {name: value for name, value in found.items() if not isinstance(value, types.ModuleType)}


# --- files ---------------------------------------------------------------------------------------------------


def open_for_reading(machine: Machine, path: Any, mode: str) -> Any:
    """A file that the command names; an Unknown for any other."""
    name = str(path)
    if isinstance(path, Unknown) or name not in machine.readable or set(mode) & set("wax+"):
        return Unknown(f"open({describe(path)})")
    data = Path(name).read_bytes()
    return io.BytesIO(data) if "b" in mode else io.StringIO(data.decode("utf-8", "replace"))


def _exists(machine: Machine, path: Any) -> Any:
    if isinstance(path, Unknown):
        return Unknown(f"the file {path.name} exists")
    if path in machine.readable or any(path == named or path.startswith(f"{named}/") for named in machine.named):
        machine.used[f"os.path.exists({path!r}), here"] = Path(path).exists()
        return Path(path).exists()
    return machine.assumed_value(Unknown(f"os.path.exists({path!r})"))


# --- modules with answers of their own -----------------------------------------------------------------------


def _os(machine: Machine) -> dict[str, Any]:
    def getenv(name: Any, default: Any = None) -> Any:
        return machine.call(machine.environment.get, (name, default), {})

    def putenv(name: str, value: str) -> None:
        if machine.frame is not None:
            machine.set_item(machine.environment, name, value, machine.frame)

    pure = [
        "join",
        "basename",
        "dirname",
        "splitext",
        "split",
        "normpath",
        "isabs",
        "commonpath",
        "commonprefix",
        "sep",
    ]
    path = {name: getattr(posixpath, name) for name in pure}
    path |= {name: lambda value: _exists(machine, value) for name in ("exists", "isfile", "isdir", "lexists", "islink")}
    path |= {name: lambda value: value for name in ("expanduser", "abspath", "realpath", "expandvars")}
    return {
        "environ": machine.environment,
        "getenv": getenv,
        "putenv": putenv,
        "path": _namespace("os.path", path),
        "sep": "/",
        "linesep": "\n",
        "name": "posix",
        "fspath": str,
        "PathLike": Opaque,
    }


def _os_path(machine: Machine) -> dict[str, Any]:
    return dict(vars(_os(machine)["path"]))


def _namespace(name: str, names: dict[str, Any]) -> Any:
    return types.SimpleNamespace(**names)


def _sys(machine: Machine) -> dict[str, Any]:
    return {
        "argv": [],
        "modules": _LoadedModules(machine),
        "platform": "linux",
        "version_info": (3, 11, 0, "final", 0),
        "maxsize": 2**63 - 1,
        "byteorder": "little",
        "executable": "python",
        "exit": _leave,
        "stdout": Opaque(),
        "stderr": Opaque(),
        "path": [],
        "flags": Opaque(),
    }


class _LoadedModules(dict[str, Any]):
    """``sys.modules``: what of the source has run."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def __getitem__(self, name: str) -> Any:
        return self._machine.modules.load(name) if name in self._machine.modules.loaded else Unknown(name)

    def __contains__(self, name: Any) -> bool:
        return name in self._machine.modules.loaded

    def get(self, name: str, default: Any = None) -> Any:
        """A module of the source that has run."""
        return self[name] if name in self else default  # noqa: SIM401 (it would call itself)


def _leave(code: Any = 0) -> typing.NoReturn:
    raise SystemExit(code)


def _logging(machine: Machine) -> dict[str, Any]:
    import logging

    logger = Logger(machine)
    levels = {
        n: getattr(logging, n) for n in ["DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET"]
    }
    own = {n: getattr(logger, n) for n in ["debug", "info", "warning", "warn", "error", "exception", "critical", "log"]}
    return {
        **levels,
        **own,
        "getLogger": lambda *_: logger,
        "basicConfig": lambda *_, **__: None,
        "Logger": Logger,
        "Filter": Opaque,
        "Formatter": Opaque,
        "Handler": Opaque,
        "StreamHandler": Opaque,
        "LoggerAdapter": Opaque,
    }


class Logger:
    """The source's log: kept for the user, printed nowhere."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.level = 0
        self.handlers: list[Any] = []
        self.propagate = True
        for level in ("debug", "info", "warning", "error", "critical"):
            setattr(self, level, functools.partial(self._say, level))
        self.warn, self.exception = self.warning, self.error
        self.warning_once = self.warning
        self.info_once = self.info

    def _say(self, level: str, text: Any = "", *args: Any, **_: Any) -> None:
        try:
            shown = str(text) % args if args else str(text)
        except Exception:
            shown = str(text)
        self._machine.watcher.logged(level, shown, self._machine.frame)

    def log(self, _: Any, text: Any, *args: Any, **__: Any) -> None:
        """Log with any level."""
        self._say("info", text, *args)

    def isEnabledFor(self, _: Any) -> bool:
        """Whether a level is logged."""
        return False

    def getEffectiveLevel(self) -> int:
        """The level from which is logged."""
        return 20

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def _warnings(machine: Machine) -> dict[str, Any]:
    def warn(message: Any, *_: Any, **__: Any) -> None:
        machine.watcher.logged("warning", str(message), machine.frame)

    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    return {"warn": warn, "filterwarnings": nothing, "simplefilter": nothing, "catch_warnings": contextlib.nullcontext}


def _importlib(machine: Machine) -> dict[str, Any]:
    def import_module(name: Any, package: Any = None) -> Any:
        if isinstance(name, Unknown):
            return Unknown(f"module {name.name}")
        return machine.modules.resolve(LazyImport(name, None))

    return {
        "import_module": import_module,
        "util": types.SimpleNamespace(**_importlib_util(machine)),
        "reload": lambda m: m,
    }


def _importlib_util(machine: Machine) -> dict[str, Any]:
    def find_spec(name: Any, package: Any = None) -> Any:
        if isinstance(name, Unknown):
            return Unknown(f"find_spec({name.name})")
        if machine.modules.is_own(name):
            return Opaque() if machine.modules.exists(name) else None
        if machine.modules.is_installed(name):
            return Opaque()
        fact = machine.assumed_value(Unknown(f"{name} is installed"))
        return (
            Unknown(f"{name} is installed", (Opaque(), None), fact.roots)
            if isinstance(fact, Unknown)
            else (Opaque() if fact else None)
        )

    return {"find_spec": find_spec}


class Remembered:
    """``functools.cache``: what was found on one side of an unknown condition is not kept for the other."""

    def __init__(self, machine: Machine, function: Any) -> None:
        self._machine = machine
        self._function = function
        self._known: dict[Any, Any] = {}
        self.__name__ = getattr(function, "__name__", "cached")
        self.__wrapped__ = function

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The value that is kept, or a new one."""
        machine = self._machine
        key = (args, tuple(keywords.items()))
        try:
            if key in self._known:
                return self._known[key]
        except TypeError:
            return machine.call(self._function, args, keywords)
        before = machine.decisions_used
        value = machine.call(self._function, args, keywords)
        if machine.decisions_used == before and not has_unknown((key, value)):
            self._known[key] = value
        return value

    def cache_clear(self) -> None:
        """Forget."""
        self._known.clear()


def _functools(machine: Machine) -> dict[str, Any]:
    def remember(function: Any = None, *_: Any, **__: Any) -> Any:
        if not callable(function) or isinstance(function, (int, bool)):
            return remember
        return Remembered(machine, function)

    def wraps(wrapped: Any, *_: Any, **__: Any) -> Any:
        return lambda function: function

    def cached_property(function: Any) -> Any:
        return property(function)

    names = {"lru_cache": remember, "cache": remember, "wraps": wraps, "cached_property": cached_property}
    own = {name: getattr(functools, name) for name in ("partial", "reduce", "total_ordering", "cmp_to_key")}
    return {**own, **names, "singledispatch": remember}


def _contextlib(machine: Machine) -> dict[str, Any]:
    def contextmanager(function: Any) -> Any:
        def enter(*args: Any, **keywords: Any) -> Any:
            given = machine.call(function, args, keywords)
            return contextlib.nullcontext(given[0] if isinstance(given, list) and given else None)

        return enter

    return {
        "contextmanager": contextmanager,
        "asynccontextmanager": contextmanager,
        "suppress": contextlib.suppress,
        "nullcontext": contextlib.nullcontext,
    }


def _typing(machine: Machine) -> dict[str, Any]:
    def get_type_hints(target: Any, *_: Any, **__: Any) -> Any:
        if isinstance(target, Unknown):
            return Unknown(f"get_type_hints({target.name})")
        found: dict[str, Any] = {}
        for base in reversed(getattr(target, "__mro__", (target,))):
            for name, hint in getattr(base, "__dict__", {}).get("__annotations__", {}).items():
                found[name] = evaluated(machine, hint)
        return found

    return {"get_type_hints": get_type_hints, "TYPE_CHECKING": False}


def evaluated(machine: Machine, hint: Any) -> Any:
    """What an annotation means."""
    if not isinstance(hint, Annotation):
        return hint
    node = hint.node
    try:
        return machine.expressions.eval(node, hint.frame)
    except Exception:
        return Unknown(repr(hint))


def _dataclasses(machine: Machine) -> dict[str, Any]:
    return {}


def _argparse(machine: Machine) -> dict[str, Any]:
    return {"ArgumentParser": Parser}


def _json(machine: Machine) -> dict[str, Any]:
    def load(stream: Any, *_: Any, **__: Any) -> Any:
        return Unknown(f"json.load({describe(stream)})") if isinstance(stream, Unknown) else json.loads(stream.read())

    return {"load": load, "dump": lambda *_, **__: None, "JSONDecodeError": json.JSONDecodeError}


def _msgspec(machine: Machine) -> dict[str, Any]:
    import msgspec

    names = [
        "Struct",
        "field",
        "defstruct",
        "NODEFAULT",
        "UNSET",
        "UnsetType",
        "Meta",
        "convert",
        "to_builtins",
        "Raw",
        "MsgspecError",
        "ValidationError",
    ]
    found = {name: getattr(msgspec, name) for name in names}
    return {**found, "structs": types.SimpleNamespace(**_msgspec_structs(machine))}


def _msgspec_structs(machine: Machine) -> dict[str, Any]:
    import msgspec

    def fields(target: Any) -> Any:
        if isinstance(target, Unknown):
            return Unknown(f"fields({target.name})")
        kind = target if isinstance(target, type) else type(target)
        names = kind.__struct_fields__  # type: ignore[attr-defined]
        defaults = kind.__struct_defaults__  # type: ignore[attr-defined]
        hints = _typing(machine)["get_type_hints"](kind)
        found = []
        for position, name in enumerate(names):
            back = position - (len(names) - len(defaults))
            default: Any = defaults[back] if back >= 0 else msgspec.NODEFAULT
            factory: Any = msgspec.NODEFAULT
            if type(default).__name__ == "Factory":
                default, factory = msgspec.NODEFAULT, default.factory
            found.append(
                types.SimpleNamespace(
                    name=name,
                    encode_name=name,
                    type=hints.get(name, typing.Any),
                    default=default,
                    default_factory=factory,
                )
            )
        return tuple(found)

    def replace(struct: Any, **changes: Any) -> Any:
        return msgspec.structs.replace(struct, **changes)

    def asdict(struct: Any) -> Any:
        return {name: getattr(struct, name) for name in struct.__struct_fields__}

    return {"fields": fields, "replace": replace, "asdict": asdict, "force_setattr": msgspec.structs.force_setattr}


def _pathlib(machine: Machine) -> dict[str, Any]:
    path = type("Path", (SourcePath,), {"machine": machine})
    return {"Path": path, "PosixPath": path, "PurePath": PurePosixPath, "PurePosixPath": PurePosixPath}


def _types(machine: Machine) -> dict[str, Any]:
    names = ["SimpleNamespace", "MappingProxyType", "UnionType", "NoneType", "MethodType", "GenericAlias"]
    found = {name: getattr(types, name) for name in names}
    return {**found, "ModuleType": Module, "FunctionType": Function}


def _inspect(machine: Machine) -> dict[str, Any]:
    def isclass(value: Any) -> Any:
        return Unknown(f"isclass({value.name})") if isinstance(value, Unknown) else isinstance(value, type)

    def isfunction(value: Any) -> bool:
        return isinstance(value, Function)

    return {"isclass": isclass, "isfunction": isfunction, "Parameter": Opaque, "cleandoc": lambda text: text}


def _platform(machine: Machine) -> dict[str, Any]:
    return {"machine": lambda: "x86_64", "system": lambda: "Linux", "python_version": lambda: "3.11.0"}


def _packaging(machine: Machine) -> dict[str, Any]:
    from packaging import version

    return _public(version)


def _yaml(machine: Machine) -> dict[str, Any]:
    def safe_load(stream: Any) -> Any:
        if isinstance(stream, Unknown):
            return Unknown("yaml.safe_load()")
        return _plain_yaml(stream if isinstance(stream, str) else stream.read())

    return {
        "safe_load": safe_load,
        "YAMLError": type("YAMLError", (Exception,), {}),
        "load": lambda s, *_, **__: safe_load(s),
    }


def _plain_yaml(text: str) -> Any:
    """The part of YAML that configuration files use: ``key: value`` lines, with lists of one level."""
    found: dict[str, Any] = {}
    key = None
    for line in text.splitlines():
        bare = line.split(" #")[0].rstrip()
        if not bare or bare.lstrip().startswith("#"):
            continue
        if bare.lstrip().startswith("- ") and key is not None:
            found[key] = [*(found[key] or []), _scalar(bare.lstrip()[2:])]
        elif bare[0] not in " \t" and ":" in bare:
            key, _, value = bare.partition(":")
            found[key] = _scalar(value.strip())
        else:
            return Unknown("a YAML file with nested values")
    return found


def _scalar(text: str) -> Any:
    words = {"true": True, "false": False, "null": None, "~": None, "": None, "yes": True, "no": False}
    if text.lower() in words:
        return words[text.lower()]
    if text[:1] == "[" and text[-1:] == "]":
        return [_scalar(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    if text[:1] in "'\"" and text[-1:] == text[:1]:
        return text[1:-1]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


_SHIMS: dict[str, Callable[[Machine], dict[str, Any]]] = {
    "os": _os, "os.path": _os_path, "sys": _sys, "logging": _logging, "warnings": _warnings, "importlib": _importlib,
    "importlib.util": _importlib_util, "functools": _functools, "contextlib": _contextlib, "msgspec": _msgspec,
    "msgspec.structs": _msgspec_structs, "pathlib": _pathlib, "types": _types, "inspect": _inspect,
    "platform": _platform, "packaging.version": _packaging, "yaml": _yaml,
}  # fmt: skip
_OVERRIDES: dict[str, Callable[[Machine], dict[str, Any]]] = {
    "typing": _typing, "dataclasses": _dataclasses, "argparse": _argparse, "json": _json,
}  # fmt: skip
