"""Values that must be the same object each time they are made: values are compared by identity."""

from __future__ import annotations

from sgltrace.index.resolution.entities import ClassInfo
from sgltrace.index.resolution.uses import Use
from sgltrace.index.resolution.values import (
    Container,
    Method,
    ModulesOf,
    Node,
    Partial,
    SuperRef,
    Text,
    Value,
    constant,
)


class Interned:
    """Makes a value once and gives it out again."""

    def __init__(self) -> None:
        self._texts: dict[str, Node] = {}
        self._supers: dict[tuple[ClassInfo, Value], SuperRef] = {}
        self._modules: dict[tuple[str, bool], ModulesOf] = {}
        self._methods: dict[tuple[Container, str], Method] = {}
        self._containers: dict[tuple[int, str], Container] = {}
        self._partials: dict[int, Partial] = {}
        self.views: dict[tuple[Container, str], Container] = {}

    def text(self, text: str) -> Node:
        """The node of a string constant."""
        node = self._texts.get(text)
        if node is None:
            node = self._texts[text] = constant(Text(text))
        return node

    def super_of(self, owner: ClassInfo, receiver: Value) -> SuperRef:
        """``super()`` in a method of ``owner`` that runs for ``receiver``."""
        found = self._supers.get((owner, receiver))
        if found is None:
            found = self._supers[owner, receiver] = SuperRef(owner, receiver)
        return found

    def modules_of(self, package: str, names: bool) -> ModulesOf:
        """Any module of a package, or any of their names."""
        found = self._modules.get((package, names))
        if found is None:
            found = self._modules[package, names] = ModulesOf(package, names)
        return found

    def method(self, container: Container, name: str) -> Method:
        """A method of a container."""
        found = self._methods.get((container, name))
        if found is None:
            found = self._methods[container, name] = Method(container, name)
        return found

    def container_at(self, use: Use, kind: str) -> Container:
        """The container of a kind that a call makes."""
        key = (id(use.expressions[0]), kind)
        found = self._containers.get(key)
        if found is None:
            found = self._containers[key] = Container(kind)
        return found

    def partial_at(self, use: Use, made: Partial) -> Partial:
        """The partial that a call makes."""
        return self._partials.setdefault(id(use.expressions[0]), made)
