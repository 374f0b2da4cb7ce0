"""One small program for each kind of call edge: what must be found, and what must not."""

from __future__ import annotations

import pytest
from index_support import Resolve, edges, resolve

from sgltrace.index.resolution import uses

__all__ = ["resolve"]

# name: (source, edges that must be there, edges that must not)
CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "a function by its name": (
        "def main(): f()\ndef f(): pass\n",
        ["main -> f direct"],
        [],
    ),
    "a method of self, and an inherited one": (
        """
        class A:
            def f(self): self.g()
            def g(self): pass
        class B(A): pass
        def main():
            b = B()
            b.f()
        """,
        ["main -> A.f attr_method", "A.f -> A.g self_method", "main -> B constructor"],
        [],
    ),
    "an override is called, not the method that it hides": (
        """
        class A:
            def f(self): pass
        class B(A):
            def f(self): pass
        def main(): B().f()
        """,
        ["main -> B.f attr_method"],
        ["main -> A.f attr_method"],
    ),
    "what functools.wraps copies a name from is not called": (
        """
        import functools
        def register(f):
            @functools.wraps(f)
            def call(*args, **kwargs): return f(*args, **kwargs)
            return call
        @register
        def one(x): pass
        @register
        def two(x): pass
        def main(): one(1)
        """,
        ["register.call -> one decorated", "main -> one direct"],
        ["register -> one ~function_variable", "register -> one function_variable"],
    ),
    "a default that is called if it can be": (
        """
        import torch
        def make(): return 1
        class Field:
            def __init__(self, default): self.default = default
            def get(self): return self.default() if callable(self.default) else self.default
        def main(): torch.zeros(Field(make).get())
        """,
        ["Field.get -> make function_variable"],
        ["main -> make callback"],
    ),
    "an object that has what a protocol asks for": (
        """
        from typing import Protocol
        class Policy(Protocol):
            def steps(self, n: int) -> int: ...
        class Fixed:
            def steps(self, n): return 3
        class Other:
            def stop(self): pass
        class Controller:
            def __init__(self, policy: Policy): self.policy: Policy = policy
            def ask(self): self.policy.steps(1)
        def main(): Controller(Fixed() if x else Other()).ask()
        """,
        ["Controller.ask -> Fixed.steps ~attr_method"],
        [],
    ),
    "a method that each object replaces when it is made": (
        """
        class A:
            def __init__(self, wide):
                if wide: self.f = self.f_wide
                else: self.f = self.f_narrow
            def f(self): raise NotImplementedError()
            def f_wide(self): pass
            def f_narrow(self): pass
        def main(): A(True).f()
        """,
        ["main -> A.f_wide ~attr_method", "main -> A.f_narrow ~attr_method"],
        ["main -> A.f attr_method", "main -> A.f ~attr_method"],
    ),
    "an object of another family than the annotation's, which has what it is asked for": (
        """
        class Worker:
            def verified(self): pass
            def stop(self): pass
        class Speculating:
            def verified(self): pass
        class Report:
            def print(self): pass
        class Processor:
            worker: Worker
            def __init__(self, worker: Worker): self.worker = worker
            def step(self): self.worker.verified()
        def main(n):
            Processor(Worker() if n else Speculating() if n > 1 else Report()).step()
        """,
        ["Processor.step -> Worker.verified ~attr_method", "Processor.step -> Speculating.verified ~attr_method"],
        [],
    ),
    "of one family, the member that the annotation names": (
        """
        class Input:
            def merge(self): pass
        class Draft(Input):
            def merge(self): pass
        class Verify(Input):
            def merge(self): pass
        def take(x: Draft): x.merge()
        def main(n):
            for x in [Draft(), Verify()]: take(x)
        """,
        ["take -> Draft.merge attr_method"],
        ["take -> Verify.merge ~attr_method", "take -> Verify.merge attr_method"],
    ),
    "a base's property gives each object its own field": (
        """
        class Base:
            def __init__(self): self._worker = None
            @property
            def worker(self) -> "Worker | None": return self._worker
        class Worker:
            def draft(self): pass
        class Layered(Worker):
            def draft(self): pass
        class One(Base):
            def __init__(self): self._worker = Worker()
            def step(self): self.worker.draft()
        class Other(Base):
            def __init__(self): self._worker = Layered()
            def step(self): self.worker.draft()
        def main():
            One().step()
            Other().step()
        """,
        ["One.step -> Worker.draft attr_method", "Other.step -> Layered.draft attr_method"],
        ["One.step -> Layered.draft ~attr_method", "Other.step -> Worker.draft ~attr_method"],
    ),
    "a property whose field nobody writes is what it is annotated as": (
        """
        class Worker:
            def draft(self): pass
        class Base:
            @property
            def worker(self) -> Worker: return self._worker
        def main():
            Base().worker.draft()
            Worker()
        """,
        ["main -> Worker.draft attr_method"],
        [],
    ),
    "an exception is made where it is raised": (
        """
        class Full(Exception):
            def __init__(self, n=0): pass
        def main(n):
            if n: raise Full
            raise Full(n)
        """,
        ["main -> Full.__init__ constructor"],
        [],
    ),
    "a list's element at a known place": (
        """
        def f(): pass
        def g(): pass
        def h(): pass
        def main(n):
            fs = [f, g, h]
            fs[1]()
            rest(fs[1:])
            mixed(fs)
        def rest(fs): fs[1]()
        def mixed(fs):
            late = [f, g]
            late.insert(0, h)
            late[1]()
            both = [f] + [g]
            both[0]()
        """,
        [
            "main -> g dict_dispatch",
            "rest -> h dict_dispatch",
            "mixed -> h ~dict_dispatch",
            "mixed -> g ~dict_dispatch",
        ],
        ["main -> f dict_dispatch", "main -> f ~dict_dispatch", "rest -> g ~dict_dispatch", "rest -> f ~dict_dispatch"],
    ),
    "a dict's entry under a known key, and one that is overwritten before it is read": (
        """
        def f(): pass
        def g(): pass
        def h(): pass
        KEY = "b"
        def main(n):
            d = {1: f, "1": g, "b": h}
            d[1]()
            other()
            last()
            read()
        def other():
            d = {1: f, "1": g, "b": h}
            d[KEY]()
        def last():
            d = {"a": f}
            d["a"] = g
            d["a"]()
        def read():
            d = {"a": f}
            d["a"]()
            d["a"] = g
        """,
        ["main -> f dict_dispatch", "other -> h dict_dispatch", "last -> g dict_dispatch", "read -> f ~dict_dispatch"],
        [
            "main -> g ~dict_dispatch",
            "main -> h ~dict_dispatch",
            "other -> f ~dict_dispatch",
            "last -> f ~dict_dispatch",
        ],
    ),
    "what a module's name holds where it is called": (
        """
        def f(g): return g
        def h(g): return g
        use = f
        use = h
        @use
        def wrapped(): pass
        def main(): use(1)
        """,
        ["<module> -> h direct", "main -> f ~function_variable", "main -> h ~function_variable"],
        ["<module> -> f direct", "<module> -> f ~direct"],
    ),
    "an iterator that is its own": (
        """
        class Rows:
            def __iter__(self): return self
            def __next__(self): return f
        def f(): pass
        def main():
            for row in Rows(): row()
        """,
        ["main -> Rows.__iter__ special_method", "main -> Rows.__next__ special_method", "main -> f function_variable"],
        [],
    ),
    "a parameter's annotation": (
        """
        from typing import Optional
        class A:
            def f(self): pass
        def main(a: "Optional[A]" = None): a.f()
        """,
        ["main -> A.f attr_method"],
        [],
    ),
    "an attribute set by the constructor": (
        """
        class A:
            def f(self): pass
        class B:
            def __init__(self): self.a = A()
            def g(self): self.a.f()
        def main(): B().g()
        """,
        ["B.g -> A.f attr_method", "main -> B.__init__ constructor", "B.__init__ -> A constructor"],
        [],
    ),
    "an attribute set from outside": (
        """
        class A:
            def f(self): pass
        class B:
            def g(self): self.a.f()
        def main():
            b = B()
            b.a = A()
            b.g()
        """,
        ["B.g -> A.f attr_method"],
        [],
    ),
    "a property, read and set": (
        """
        class A:
            def f(self): pass
        class B:
            @property
            def a(self): return A()
            @a.setter
            def a(self, value): check(value)
        def check(value): pass
        def main():
            b = B()
            b.a.f()
            b.a = 1
        """,
        ["main -> B.a property", "main -> A.f attr_method", "B.a -> check direct"],
        [],
    ),
    "a mixin calls what the class that uses it has": (
        """
        class Mixin:
            def step(self): self.work()
        class Scheduler(Mixin):
            def work(self): pass
        class Other(Mixin):
            def work(self): pass
        def main(): Scheduler().step()
        """,
        ["main -> Mixin.step attr_method", "Mixin.step -> Scheduler.work self_method"],
        ["Mixin.step -> Other.work self_method"],
    ),
    "a mixin's annotated self": (
        """
        from __future__ import annotations
        class Mixin:
            def step(self: Scheduler): self.work()
        class Scheduler(Mixin):
            def work(self): pass
        def main(): Mixin.step(None)
        """,
        ["main -> Mixin.step unbound_method", "Mixin.step -> Scheduler.work self_method"],
        [],
    ),
    "super": (
        """
        class A:
            def f(self): pass
        class B(A):
            def f(self): super().f()
        class C(B):
            def f(self): super(C, self).f()
        def main(): C().f()
        """,
        ["C.f -> B.f super", "B.f -> A.f super"],
        ["C.f -> A.f super"],
    ),
    "class and static methods": (
        """
        class A:
            @classmethod
            def make(cls): return cls()
            @staticmethod
            def helper(): pass
            def f(self): pass
        def main():
            A.make().f()
            A.helper()
        """,
        ["main -> A.make class_method", "main -> A.helper static_method", "main -> A.f attr_method"],
        [],
    ),
    "a dataclass: the constructor that is made, and __post_init__": (
        """
        from dataclasses import dataclass
        class Base:
            def __init__(self): pass
        class A:
            def f(self): pass
        @dataclass
        class B(Base):
            a: A
            def __post_init__(self): self.a.f()
        def main(): B(a=A())
        """,
        ["main -> B constructor", "main -> B.__post_init__ constructor", "B.__post_init__ -> A.f attr_method"],
        ["main -> Base.__init__ constructor"],
    ),
    "an enum's method": (
        """
        from enum import Enum, auto
        class Mode(Enum):
            A = auto()
            def is_a(self): return self == Mode.A
        def main():
            Mode.A.is_a()
            for mode in Mode: mode.is_a()
        """,
        ["main -> Mode.is_a attr_method"],
        [],
    ),
    "an enum that returns a class": (
        """
        from enum import Enum, auto
        class V1:
            def step(self): pass
        class V2:
            def step(self): pass
        class Algorithm(Enum):
            EAGLE = auto()
            def create(self, overlap):
                if overlap: return V2
                return V1
        def main(overlap):
            Worker = Algorithm.EAGLE.create(overlap)
            worker = Worker()
            worker.step()
        """,
        ["main -> V1 ~constructor", "main -> V2 ~constructor", "main -> V1.step ~attr_method"],
        [],
    ),
    "context managers": (
        """
        from contextlib import contextmanager
        class A:
            def f(self): pass
        class Manager:
            def __enter__(self): return A()
            def __exit__(self, *args): pass
        @contextmanager
        def made():
            yield A()
        def main():
            with Manager() as a, made() as b:
                a.f()
                b.f()
        """,
        [
            "main -> Manager.__enter__ context_manager",
            "main -> Manager.__exit__ context_manager",
            "main -> made direct",
            "main -> A.f attr_method",
        ],
        [],
    ),
    "a dictionary of classes and of bound methods": (
        """
        from collections import defaultdict
        class Cpu:
            def run(self): pass
        class Cuda:
            def run(self): pass
        class Factory:
            def make_a(self): pass
            def make_b(self): pass
            def make(self, name):
                table = {"a": self.make_a, "b": self.make_b}
                return table[name]()
        def main(device, name):
            runners = defaultdict(lambda: Cuda, {"cpu": Cpu})
            runners[device]().run()
            Factory().make(name)
        """,
        [
            "main -> Cpu ~constructor",
            "main -> Cuda ~constructor",
            "main -> Cuda.run ~attr_method",
            "Factory.make -> Factory.make_a ~dict_dispatch",
            "Factory.make -> Factory.make_b ~dict_dispatch",
        ],
        [],
    ),
    "a known key takes its own value only": (
        """
        def f(): pass
        def g(): pass
        def main():
            table = {"f": f, "g": g}
            table["f"]()
        """,
        ["main -> f dict_dispatch"],
        ["main -> g dict_dispatch"],
    ),
    "a registry filled by a decorator": (
        """
        BACKENDS = {}
        def register(name):
            def decorate(f):
                BACKENDS[name] = f
                return f
            return decorate
        @register("a")
        def make_a(x): return x.go()
        @register("b")
        def make_b(x): pass
        class X:
            def go(self): pass
        def main(name):
            BACKENDS[name](X())
            make_b(None)
        """,
        ["main -> make_a ~dict_dispatch", "main -> make_b direct", "make_a -> X.go attr_method"],
        ["main -> make_a direct"],
    ),
    "callbacks, passed and stored": (
        """
        class A:
            def __init__(self, hook): self.hook = hook
            def run(self): self.hook()
            def later(self): pass
        def f(): pass
        def main():
            a = A(f)
            a.run()
            call(a.later)
        def call(g): g()
        """,
        ["A.run -> f function_variable", "call -> A.later callback"],
        [],
    ),
    "partial": (
        """
        from functools import partial
        class A:
            def f(self): pass
        def g(a, b): a.f(); b.f()
        def main(): partial(g, A())(b=A())
        """,
        ["main -> g direct", "g -> A.f attr_method"],
        [],
    ),
    "lambdas and closures": (
        """
        class Runner:
            def capture(self):
                def run_once(): return self.forward()
                self.each(run_once)
                (lambda: self.forward())()
            def each(self, f): f()
            def forward(self): pass
        def main(): Runner().capture()
        """,
        [
            "Runner.each -> Runner.capture.run_once function_variable",
            "Runner.capture.run_once -> Runner.forward self_method",
            "Runner.capture -> Runner.capture.<lambda> nested_function",
            "Runner.capture.<lambda> -> Runner.forward self_method",
        ],
        [],
    ),
    "a name bound under a condition": (
        """
        import sys
        if sys.platform == "linux":
            def f(): pass
        else:
            def f(): pass
        def a(): pass
        def b(): pass
        def main(flag):
            f()
            if flag: impl = a
            else: impl = b
            impl()
        """,
        ["main -> f direct", "main -> a ~function_variable", "main -> b ~function_variable"],
        [],
    ),
    "a variable holds what was assigned last": (
        """
        class A:
            def f(self): pass
        class B:
            def f(self): pass
        def main():
            x = A()
            x.f()
            x = B()
        """,
        ["main -> A.f attr_method"],
        ["main -> B.f attr_method"],
    ),
    "a loop's variable is what earlier turns left": (
        """
        class A:
            def f(self): pass
        def main(n):
            x = None
            for _ in range(n):
                if x: x.f()
                x = A()
        """,
        ["main -> A.f attr_method"],
        [],
    ),
    "isinstance narrows": (
        """
        class A:
            def f(self): pass
        class B:
            def f(self): pass
        def g(x):
            if isinstance(x, A):
                x.f()
        def main(): g(A()); g(B())
        """,
        ["g -> A.f attr_method"],
        ["g -> B.f ~attr_method", "g -> B.f attr_method"],
    ),
    "nn.Module called, kernels launched, decorated functions": (
        """
        import torch, triton
        from torch import nn
        @triton.jit
        def kernel(x): pass
        @torch.compile(dynamic=True)
        def fused(x): pass
        class Layer(nn.Module):
            def __init__(self): super().__init__()
            @torch.no_grad()
            def forward(self, x): kernel[(1,)](x)
        def main(x):
            Layer()(x)
            fused(x)
        """,
        ["main -> Layer.forward nn_module_call", "Layer.forward -> kernel triton_launch", "main -> fused direct"],
        [],
    ),
    "torch's own wrappers pass a function on": (
        """
        import torch
        def f(x): pass
        class A:
            def __init__(self): self.f = torch.compiler.disable(f)
            def g(self): self.f(1)
        def main(): A().g()
        """,
        ["A.g -> f direct"],
        [],
    ),
    "a wrapper of the tree's own": (
        """
        import functools
        def logged(f):
            @functools.wraps(f)
            def wrapper(*args, **kwargs): return f(*args, **kwargs)
            return wrapper
        class A:
            def go(self): pass
        @logged
        def first(a): a.go()
        @logged
        def second(n): n.go()
        def main(): first(A())
        """,
        [
            "main -> first direct",
            "main -> logged.wrapper function_variable",
            "logged.wrapper -> first decorated",
            "first -> A.go attr_method",
        ],
        ["main -> second direct", "second -> A.go attr_method"],
    ),
    "an abstract method and its overrides": (
        """
        from abc import ABC, abstractmethod
        class Backend(ABC):
            @abstractmethod
            def run(self): ...
        class A(Backend):
            def run(self): pass
        class B(Backend):
            def run(self): pass
        class NeverMade(Backend):
            def run(self): pass
        def main(backend: Backend):
            backend.run()
            A(), B()
        """,
        ["main -> Backend.run ~attr_method", "main -> A.run ~attr_method", "main -> B.run ~attr_method"],
        ["main -> NeverMade.run ~attr_method"],
    ),
    "overrides of a receiver whose class nobody makes": (
        """
        class Base:
            def run(self): raise NotImplementedError
        class A(Base):
            def run(self): pass
        def main(x: Base): x.run()
        """,
        ["main -> Base.run attr_method"],
        [],
    ),
    "elements of typed and of filled lists": (
        """
        from typing import Dict, List
        class Req:
            def f(self): pass
        class A:
            def f(self): pass
        def main(reqs: List[Req], by_name: Dict[str, Req]):
            for req in reqs: req.f()
            for i, req in enumerate(reqs): req.f()
            [a.f() for a in [A()]]
            for name, req in by_name.items(): req.f()
            reqs[0].f()
        """,
        ["main -> Req.f attr_method", "main -> A.f attr_method"],
        [],
    ),
    "a tuple's parts stay apart": (
        """
        class A:
            def f(self): pass
        class B:
            def g(self): pass
        def pair(): return A(), B()
        def main():
            a, b = pair()
            a.f()
            b.g()
        """,
        ["main -> A.f attr_method", "main -> B.g attr_method"],
        [],
    ),
    "a named tuple taken apart": (
        """
        from typing import NamedTuple
        class A:
            def f(self): pass
        class Ack(NamedTuple):
            event: int
            a: A
        def main():
            event, a = Ack(1, A())
            a.f()
        """,
        ["main -> A.f attr_method"],
        [],
    ),
    "special methods": (
        """
        class Batch:
            def __len__(self): return 0
            def __getitem__(self, i): return Item()
            def __iter__(self): yield Item()
            def __contains__(self, x): return True
            def __add__(self, other): return self
            def __eq__(self, other): return True
        class Item:
            def f(self): pass
        def main(x):
            b = Batch()
            if b: len(b)
            b[0].f()
            for item in b: item.f()
            x in b
            b + b
            b == x
        """,
        [
            f"main -> Batch.{name} special_method"
            for name in ("__len__", "__getitem__", "__iter__", "__contains__", "__add__", "__eq__")
        ]
        + ["main -> Item.f attr_method"],
        [],
    ),
    "generator expressions run as frames": (
        """
        class Req:
            def done(self): pass
        def main(reqs: list[Req]):
            return any(req.done() for req in reqs)
        """,
        ["main -> main.<genexpr> generator_expression", "main.<genexpr> -> Req.done attr_method"],
        [],
    ),
    "getattr with a name": (
        """
        class A:
            def f(self): pass
            def g(self): pass
        def main(a: A):
            getattr(a, "f")()
            call(a, "g")
        def call(a, name): getattr(a, name)()
        """,
        ["main -> A.f callback", "call -> A.g callback"],
        [],
    ),
    "a global set by a function": (
        """
        class Args:
            def f(self): pass
        _args = None
        def set_args(args):
            global _args
            _args = args
        def get_args(): return _args
        def main():
            set_args(Args())
            get_args().f()
        """,
        ["main -> Args.f attr_method"],
        [],
    ),
    "functions called from outside": (
        """
        import threading
        class A:
            def loop(self): pass
        def main(): threading.Thread(target=A().loop)
        """,
        ["main -> A.loop callback"],
        [],
    ),
    "no edge by a bare name alone": (
        """
        class A:
            def process(self): pass
        class B:
            def process(self): pass
        def main(x): x.process()
        """,
        [],
        ["main -> A.process attr_method", "main -> B.process attr_method"],
    ),
    "an annotation that is wrong gives way to what is passed": (
        """
        class V1:
            def draft(self): pass
        class V2:
            def draft(self): pass
        class Runner:
            def __init__(self, worker: V1): self.worker = worker
            def run(self): self.worker.draft()
        def main(): Runner(V2()).run()
        """,
        ["Runner.run -> V2.draft ~attr_method"],
        [],
    ),
    "a function comes back to those only who passed it": (
        """
        def maybe(f):
            if f: return f
            return None
        def a(): pass
        def b(): pass
        def main():
            maybe(a)()
            other()
        def other(): maybe(b)()
        """,
        ["main -> a direct", "other -> b direct"],
        ["main -> b direct", "other -> a direct"],
    ),
    "a module is run when it is imported": (
        """
        def setup(): pass
        setup()
        def main(): pass
        """,
        ["<module> -> setup direct"],
        [],
    ),
    "a match statement": (
        """
        class A:
            def f(self): pass
        def main(x):
            match x:
                case 1: A().f()
                case _: pass
        """,
        ["main -> A.f attr_method"],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_edges(name: str, resolve: Resolve):
    source, wanted, unwanted = CASES[name]
    found = edges(resolve(source))
    assert [edge for edge in wanted if edge not in found] == [], sorted(found)
    assert [edge for edge in unwanted if edge in found] == []


def test_imports_inside_functions_re_exports_and_packages(resolve: Resolve):
    program = resolve(
        """
        from sglang.srt.pkg import helper
        import sglang.srt.pkg.deep
        def main():
            from sglang.srt.other import inner as renamed
            helper(); renamed(); sglang.srt.pkg.deep.low()
        """,
        **{
            "pkg.__init__": "from .impl import *\nfrom .impl import _hidden\n",
            "pkg.impl": "def helper(): _hidden()\ndef _hidden(): pass\n",
            "pkg.deep": "def low(): pass\n",
            "other": "def inner(): pass\n",
        },
    )
    found = edges(program)
    assert {
        "main -> pkg.impl:helper direct",
        "main -> other:inner function_variable",
        "main -> pkg.deep:low direct",
    } <= found
    assert "pkg.impl:helper -> pkg.impl:_hidden direct" in found


def test_only_modules_that_are_asked_for_are_read(resolve: Resolve):
    program = resolve("from sglang.srt.unused import x\ndef main(): pass\n", unused="x = 1\n")
    assert "sglang.srt.unused" not in program.engine.modules.loaded


def test_classes_of_a_package_that_is_searched(resolve: Resolve):
    program = resolve(
        """
        import importlib, pkgutil
        def find(package_name):
            package = importlib.import_module(package_name)
            for _, name, ispkg in pkgutil.iter_modules(package.__path__, package_name + "."):
                module = importlib.import_module(name)
                if hasattr(module, "EntryClass"):
                    yield module.EntryClass
        def main():
            for cls in find("sglang.srt.models"):
                cls().forward()
        """,
        **{
            "models.a": "class A:\n    def forward(self): pass\nEntryClass = A\n",
            "models.b": "class B:\n    def forward(self): pass\nEntryClass = [B]\n",
        },
    )
    assert "main -> models.a:A.forward attr_method" in {e.replace("~", "") for e in edges(program)}


def test_a_module_answers_for_names_that_it_does_not_bind(resolve: Resolve):
    program = resolve(
        "from sglang.srt.lazy import platform\ndef main(): platform.f()\n",
        lazy="class P:\n    def f(self): pass\ndef __getattr__(name): return P()\n",
    )
    assert "main -> lazy:P.f attr_method" in edges(program)


def test_types_and_calls_can_be_asked_for(resolve: Resolve):
    program = resolve("class A:\n    def f(self): pass\ndef main():\n    a = A()\n    a.f()\n")
    [main] = program.find_functions("main")
    call = program.statements(main)[1].value
    assert [cls.name for cls in program.classes_of(call.func.value, main)] == ["A"]
    assert [function.qualname for function in program.resolve_call(call, main)] == ["A.f"]
    [place] = program.callers(program.find_functions("A.f")[0])
    assert place[0] is main


@pytest.mark.parametrize(
    "source",
    [
        "class A(A): pass\nclass B(C): pass\nclass C(B): pass\ndef main(): A().f(); B().f()\n",
        "from functools import partial\ndef g(*a): pass\ndef main(n):\n f = g\n while n: f = partial(f, n)\n f()\n",
        "def main():\n d = {}\n while d: d = d.items()\n",
        "def main():\n x = []\n x.append(x)\n for y in x: y.append(x)\n",
        "def main(): return main\nmain = main()\n",
        "def main(f): return f(f)\nmain(main)\n",
        "class A:\n def __getattr__(self, n): return getattr(self, n)\ndef main(): A().x.y.z()\n",
        "class A:\n def f(self): return super().f()\ndef main(): A().f()\n",
        "def main():\n try: import nothing_there as n\n except ImportError: n = None\n n.f()\n",
        "x: 'not ( an annotation' = 1\ndef main(a: 'List[', b: 1 + 2 = 3): a.f(); b.f()\n",
    ],
)
def test_odd_programs_end(source: str, resolve: Resolve):
    assert resolve(source).functions


def test_modules_that_take_all_names_of_one_another(resolve: Resolve):
    program = resolve(
        "from sglang.srt.a import *\ndef main(): f(); nowhere()\n",
        a="from sglang.srt.b import *\n",
        b="from sglang.srt.a import *\ndef f(): pass\n",
    )
    assert "main -> b:f direct" in edges(program)


def test_an_expression_nested_too_deeply_is_noted(resolve: Resolve):
    deep = "x" + " + x" * 400
    program = resolve(f"def f(): pass\ndef main(x):\n f()\n return {deep}\n")
    assert "main -> f direct" in edges(program) or program.engine.unread


def test_what_is_looked_up_is_of_a_class_in_a_module_that_only_the_annotation_names(resolve):
    program = resolve(
        """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from sglang.srt.things import Thing

        def main(name):
            find(name).act()

        def find(name) -> "Thing":
            return REGISTRY[name]

        REGISTRY = {}
        """,
        things="""
        from sglang.srt.more import Base

        class Thing(Base):
            def act(self):
                pass
        """,
        more="class Base:\n    pass\n",
    )
    assert "main -> things:Thing.act attr_method" in edges(program)


def test_an_iterator_is_often_the_object_itself(resolve):
    program = resolve(
        """
        def main():
            for batch in Loader():
                batch.go()
            [one.go() for one in Loader()]

        class Loader:
            def __iter__(self):
                return self
            def __next__(self):
                return Batch()

        class Batch:
            def go(self):
                pass
        """
    )
    assert {
        "main -> Loader.__iter__ special_method",
        "main -> Loader.__next__ special_method",
        "main -> Batch.go attr_method",
    } <= edges(program)


def test_a_table_of_many_functions_is_counted_once(resolve, monkeypatch):
    """Each edge asks whether its call is of several things; of a table of thousands, that was the square of them."""
    count = 400
    table = "".join(f"    'k{i}': lambda batch: batch.f{i}(),\n" for i in range(count))
    program = resolve(f"def main(batch):\n    return TABLE[batch.mode](batch)\nTABLE = {{\n{table}}}\n")
    asked = []
    monkeypatch.setattr(uses, "_wraps", lambda function: asked.append(function) or False)
    answers = {
        use.is_virtual(callee)
        for (_, callee, kind), found in program.engine.edges.items()
        for use in found
        if callee.name == "<lambda>"
    }
    assert answers and len(asked) <= count
