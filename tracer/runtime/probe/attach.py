"""Carries out the plan in a process that imports SGLang, and keeps ``<name>.json`` true: what this process is, which
sites are wrapped, which are not and why.
"""

# As in the rest of the probe, no pathlib.
# ruff: noqa: PTH105, PTH118, PTH123
from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

from .control import Control
from .describe import UNREAD, Describer, read_attribute
from .fast import FastProbe, load
from .hooks import CannotWrap, measure, wrap_site
from .pace import AUTO, Pace
from .probe import SIDES, Probe, Site
from .recorder import Recorder

MAX_MESSAGES = 100


class Attachment:
    """The plan, the probe, and what became of each site."""

    def __init__(self, folder: str, recorder: Recorder, door: str) -> None:
        self.folder = folder
        self.recorder = recorder
        with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
            plan: dict[str, Any] = json.load(file)
        self.plan = plan
        options = plan["options"]
        steps = options.get("steps")
        describer = Describer(
            recorder, plan["tracked"], plan["host_values"], bool(options.get("pointers")), plan["not_followed"]
        )
        pace = Pace((steps[0], steps[1]) if steps else None, int(options.get("every") or AUTO))
        fast = load()
        self.probe = Probe(recorder, describer, pace) if fast is None else FastProbe(fast, recorder, describer, pace)
        self.probe.on_problem = self.note
        self.probe.on_process = self.process_known
        self.info: dict[str, Any] = {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "door": door,
            "fast": fast is not None,
            "attached": [],
            "missing": [],
            "messages": [],
            "sources": {},
            "identity": {},
            "config": {},
        }
        self._by_module: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for number, site in enumerate(plan["sites"], 1):
            self._by_module.setdefault(site["module"], []).append((number, site))
        self.probe.read_results(plan["step_width"], plan["step_graph"])
        self.probe.wrapper_ns, self.probe.gate_ns = measure(self.probe)
        self.info["wrapper_ns"] = [round(self.probe.wrapper_ns), round(self.probe.gate_ns)]
        control = Control(folder, self.probe, plan, self.note)
        control.acknowledged = self._acknowledge
        self.probe.on_step = control.on_step
        self.probe.attentive = True  # until the first step has told what is to be waited for
        os.register_at_fork(after_in_child=self.probe.forked)
        atexit.register(recorder.end)

    def _acknowledge(self, number: int) -> None:
        """The control file was read: ``sgltrace ctl`` waits for that."""
        self.info["ctl"] = number
        self.write()

    def imported(self, module: types.ModuleType) -> None:
        """A module of the plan has run: wrap its sites."""
        self.probe.modules_loaded()
        self.info["sources"][module.__name__] = getattr(module, "__file__", None)
        self.info["dlpack"] = getattr(self.probe, "dlpack", False)
        for number, planned in self._by_module.get(module.__name__, ()):
            site = Site(number, f"{planned['module']}:{planned['qualname']}", frozenset(planned.get("flags", ())))
            try:
                selectors = {side: planned.get(side.replace(" ", "_"), ()) for side in SIDES}
                wrap_site(self.probe, site, module, planned["qualname"], selectors)
                self.info["attached"].append(number)
            except CannotWrap as error:
                self.info["missing"].append({"site": number, "why": str(error)})
            except Exception as error:
                self.info["missing"].append({"site": number, "why": f"{type(error).__name__}: {error}"})
        self.write()

    def process_known(self, args: Sequence[Any]) -> None:
        """The scheduler is built: keep its rank and the configuration that the plan names."""
        owner = args[0] if args else None
        for name in self.plan["identity"]:
            self._keep("identity", name, _find(owner, name))
        config = read_attribute(owner, self.plan["config_owner"])
        for name in self.plan["config"]:
            self._keep("config", name, read_attribute(config, name))
        self.write()

    def _keep(self, group: str, name: str, value: Any) -> None:
        if value is None or isinstance(value, (bool, int, float)):
            self.info[group][name] = value
        elif isinstance(value, str):
            self.info[group][name] = value[:200]

    def note(self, message: str) -> None:
        """Something that the user must be told."""
        messages = self.info["messages"]
        if len(messages) < MAX_MESSAGES and message not in messages:
            messages.append(message)
            self.write()

    def write(self) -> None:
        """Write ``<name>.json`` anew, atomically. Where that fails the records still stand for themselves."""
        if self.info["pid"] != os.getpid():
            self.info["pid"] = os.getpid()  # forked: the parent keeps its own file
        path = os.path.join(self.folder, f"{self.recorder.name}.json")
        with contextlib.suppress(OSError):
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(self.info, file)
            os.replace(path + ".new", path)


def _find(owner: Any, name: str) -> Any:
    """An attribute of an object, or of one of the objects that it holds: releases moved ranks into one of their own."""
    found = read_attribute(owner, name)
    if found is not UNREAD:
        return found
    for held in list(getattr(owner, "__dict__", {}).values()):
        fields = getattr(type(held), "__dictoffset__", 0) and vars(held)
        if fields and name in fields:
            return fields[name]
    return UNREAD
