"""The probe's parts: selectors, wrappers, what is described and how, and how much of a run is recorded."""

from __future__ import annotations

import functools
import inspect
import subprocess
import sys
import types

import pytest
from runtime_support import OTHER_PYTHONS, trace_server

from sgltrace.errors import UsageError
from sgltrace.runtime import Options, read_trace
from sgltrace.runtime.plan import own_site, sites_from_file
from sgltrace.runtime.probe.describe import UNREAD, read_attribute
from sgltrace.runtime.probe.hooks import make_wrapper
from sgltrace.runtime.probe.pace import CHECK_EVERY, COUNT, FULL, LIGHT, LIGHT_SHARE, NEW, OFF, SHARE, Pace, Spent
from sgltrace.runtime.probe.probe import Site
from sgltrace.runtime.probe.selectors import SelectorError, compile_selector


def select(text, *args, result=None, **kwargs):
    return compile_selector(text, ["self", "batch", "n"])(args, kwargs, result)


def test_selectors():
    request = types.SimpleNamespace(length=5)
    batch = types.SimpleNamespace(reqs=[request, request], spec=None)
    assert select("arg.batch.reqs[*].length", None, batch) == [5, 5]
    assert select("arg.batch.reqs[1].length", None, batch) == 5
    assert select("arg.n", None, batch, n=7) == 7
    assert select("arg.batch.spec.hidden", None, batch) is None
    assert select("arg.batch.nothing", None, batch) is UNREAD
    assert select("return[0]", result=(3, 4)) == 3
    for bad in ("batch", "arg.other", "arg.batch..x", "return.x[", "step:"):
        with pytest.raises(SelectorError):
            select(bad)


def test_reading_an_attribute_never_runs_a_property():
    class Base:
        kept = 4

        @property
        def costly(self):
            raise AssertionError("ran")

    class Slotted:
        __slots__ = ("x", "y")

    slotted = Slotted()
    slotted.x = 1
    assert read_attribute(Base(), "costly") is UNREAD
    assert read_attribute(Base(), "kept") == 4
    assert (read_attribute(slotted, "x"), read_attribute(slotted, "y")) == (1, UNREAD)


class _Entries:
    """A probe that records nothing but that it was called."""

    def __init__(self):
        self.gate, self.watch = [True], [True]
        self.seen = []

    def entries(self, site):
        return (
            site,
            lambda site, args, kwargs: self.seen.append((args, kwargs)) or 0,
            lambda site, thread, args, kwargs, result: self.seen.append(result),
            lambda site, thread, error: self.seen.append(type(error)),
        )


def plain(self, a, b=2, *rest, key=3, **more):
    return self, a, b, rest, key, more


def positional(a, b=(), /, c=None):
    return a, b, c


def keywords(*, a, b=5):
    return a, b


@functools.lru_cache
def nothing():
    return 9


@pytest.mark.parametrize("function, args, kwargs", [
    (plain, (0, 1), {}), (plain, (0, 1, 5, 6, 7), {"key": 8, "z": 9}), (positional, (1,), {}),
    (positional, (1, 2, 3), {}), (positional, (1,), {"c": 4}), (keywords, (), {"a": 1}),
    (keywords, (), {"b": 1, "a": 2}),
    (nothing.__wrapped__, (), {}),
])  # fmt: skip
def test_a_wrapper_is_called_and_looks_like_the_function(function, args, kwargs):
    probe = _Entries()
    wrapper = make_wrapper(probe, Site(1, "x", frozenset()), function)
    assert wrapper(*args, **kwargs) == function(*args, **kwargs)
    assert inspect.signature(wrapper) == inspect.signature(function)
    assert inspect.getfullargspec(wrapper) == inspect.getfullargspec(function)
    assert (wrapper.__name__, wrapper.__qualname__, wrapper.__module__) == (
        function.__name__,
        function.__qualname__,
        function.__module__,
    )
    assert len(probe.seen) == 2
    probe.gate[0] = False
    assert wrapper(*args, **kwargs) == function(*args, **kwargs) and len(probe.seen) == 2


def test_a_wrapper_refuses_what_the_function_refuses():
    wrapper = make_wrapper(_Entries(), Site(1, "x", frozenset()), positional)
    for args, kwargs in (((), {}), ((1,), {"a": 1}), ((1, 2, 3, 4), {})):
        with pytest.raises(TypeError):
            wrapper(*args, **kwargs)


def test_what_is_raised_is_raised():
    probe = _Entries()

    def fails():
        raise KeyError("x")

    with pytest.raises(KeyError):
        make_wrapper(probe, Site(1, "x", frozenset()), fails)()
    assert probe.seen[-1] is KeyError


# How much is recorded.


def run_pace(pace, steps, full_ns, light_ns, step_ns, kind=lambda step: ("DECODE", 8)):
    levels, spent = [], [0] * 8
    for step in range(1, steps + 1):
        pace.begun(step, kind(step), Spent(*spent))
        level = pace.level(step)
        levels.append(level)
        at = {FULL: 0, LIGHT: 2, COUNT: 4}[level]
        spent[at] += {FULL: full_ns, LIGHT: light_ns, COUNT: light_ns / 4}[level]
        spent[at + 1] += 1
        spent[6] += step_ns
        spent[7] += 1
    return levels


@pytest.mark.parametrize("full_us, step_us, least", [(20, 10_000, 1), (150, 3_000, 6), (1000, 3_000, 40)])
def test_auto_keeps_to_a_share_of_the_time(full_us, step_us, least):
    levels = run_pace(Pace(None, 0), 4000, full_us * 1000, 2000, step_us * 1000)
    late = levels[2000:]
    full = late.count(FULL)
    assert full * full_us + late.count(LIGHT) * 2 <= SHARE * len(late) * step_us * 1.01
    assert full and len(late) / full >= least and LIGHT in [*late, LIGHT]


@pytest.mark.parametrize("light_us, step_us", [(3, 2000), (12, 1000), (100, 1000)])
def test_light_steps_are_bounded_too(light_us, step_us):
    pace = Pace(None, 0)
    late = run_pace(pace, 6000, 200_000, light_us * 1000, step_us * 1000)[3000:]
    spent = late.count(LIGHT) * light_us + late.count(COUNT) * light_us / 4
    assert spent <= LIGHT_SHARE * len(late) * step_us or late.count(COUNT) > 0.9 * len(late)
    assert (COUNT in late) is (light_us > LIGHT_SHARE * step_us)
    assert LIGHT in late


def test_light_steps_that_were_slow_while_the_server_warmed_up_do_not_make_full_ones_look_free():
    """Seen on an H200: light steps of 111 microseconds, of when it began, beside full ones of 92, and all were full."""
    pace = Pace(None, 0)
    pace._step_ns, pace._full_ns, pace._light_ns, pace._counted_ns = 946_000.0, 92_000.0, 111_000.0, 38_900.0
    levels = run_pace(pace, 4000, 92_000, 27_000, 946_000)
    late = levels[2000:]
    assert late.count(FULL) * 92 <= 0.01 * len(late) * 946 and {LIGHT, COUNT} <= set(late)


def test_the_first_steps_of_a_batch_size_are_in_full():
    pace = Pace(None, 0)
    levels = run_pace(pace, 400, 1_000_000, 1000, 3_000_000, lambda step: ("DECODE", 8 if step < 300 else 7))
    assert levels[:NEW] == [FULL] * NEW and levels[299 : 299 + NEW] == [FULL] * NEW
    assert levels[200:299].count(FULL) < 10 and COUNT not in levels


def test_pace_depends_on_step_numbers_only_once_it_is_set():
    one, other = Pace(None, 0), Pace(None, 0)
    a = run_pace(one, 1000, 150_000, 1000, 3_000_000)
    b = run_pace(other, 1000, 90_000, 1000, 3_000_000)
    assert {n for n, level in enumerate(a[500:]) if level == FULL} <= {
        n for n, level in enumerate(b[500:]) if level == FULL
    }


def test_windows_and_every():
    assert [Pace((3, 6), 1).level(n) for n in range(8)] == [OFF] * 3 + [FULL] * 3 + [OFF] * 2
    assert [Pace((4, None), 2).level(n) for n in range(3, 8)] == [OFF, FULL, LIGHT, FULL, LIGHT]
    assert CHECK_EVERY % 2 == 0


# What the user asks for.


def test_own_sites(tmp_path):
    site = own_site("pkg.mod:Class.method", "self.x, arg.batch.y[*].z, return.w")
    assert site.before == ["self.x", "arg.batch.y[*].z"] and site.after == ["return.w", "self.x"]
    for function, fields in (("pkg.mod", "self"), ("a b:c", "self"), ("m:f", "x.y"), ("m:f", "arg.")):
        with pytest.raises(UsageError):
            own_site(function, fields)
    (tmp_path / "own.toml").write_text('[[site]]\nfunction = "m:f"\nfields = ["return"]\nstage = "mine"\n')
    assert sites_from_file(tmp_path / "own.toml")[0].stage == "mine"
    for text in ("[[site]]\nfunktion = 1\n", "x = ["):
        (tmp_path / "own.toml").write_text(text)
        with pytest.raises(UsageError, match=r"own\.toml"):
            sites_from_file(tmp_path / "own.toml")


def test_a_probe_of_the_users_own_is_recorded(tmp_path, monkeypatch):
    own = own_site(
        "sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.verify", "arg.batch.input_ids,return.accept_lens"
    )
    trace_server(tmp_path, monkeypatch, "3", own_sites=[own], options=Options(every=1))
    trace = read_trace(tmp_path / "trace")
    site = next(n for n, s in enumerate(trace.plan.sites, 1) if s.function == own.function)
    seen = [r.values() for r in trace.recording()[0].records() if r.site == site]
    assert seen[0]["arg.batch.input_ids"].shape == (2,)
    assert seen[1]["return.accept_lens"].dtype == "int32"


# What is described, equally by both recorders and every Python.

ODD = """
import collections, enum, sys
import torch

class Mode(enum.IntEnum):
    ON = 3

class EagleDraftInput:
    def __init__(self):
        self.a, self.nothing, self.flag, self.number = torch.Tensor(2, 3), None, True, 1 << 70
        self.mode, self.extend_lens, self.tokens = Mode.ON, [1, 2], [1, 2]
        self.lists, self.tensors, self.pair = [[1], [2, 3]], [torch.Tensor(1)] * 20, (torch.Tensor(4), 5)
        self.loop = self
        self.names = ["x"]
        setattr(self, "<script>", 1)

class EagleVerifyInput:
    __slots__ = ("x", "y", "missing")
    def __init__(self):
        self.x, self.y = torch.Tensor(0), 2

class RelayPayload(collections.namedtuple("RelayPayload", "a b")):
    pass

class Sparse(torch.Tensor):
    pass

def look(value, *, named=None):
    return value

def go():
    tracked = EagleDraftInput(), EagleVerifyInput(), RelayPayload(torch.Tensor(7), 1)
    for value in (*tracked, Sparse(2), {"a": 1}, None, 1.5):
        look(value, named=value)
    try:
        look()
    except TypeError:
        pass
"""
MAIN = "from sglang.odd import go\ngo(); go()\n"


def odd_trace(tmp_path, monkeypatch, python=sys.executable):
    own = own_site("sglang.odd:look", "arg.value,arg.named,return")
    session = trace_server(
        tmp_path, monkeypatch, python=python, own_sites=[own], files={"sglang/odd.py": ODD, "server.py": MAIN}
    )
    assert session.exit_code == 0
    process = read_trace(tmp_path / "trace").recording()[0]
    return [(r.kind, r.values()) for r in process.records()], process


@pytest.mark.parametrize("python", [sys.executable, *map(str, OTHER_PYTHONS)])
def test_odd_values_are_described_equally_in_c_and_python(tmp_path, monkeypatch, python):
    if subprocess.run([python, "-c", "import sys; assert sys.version_info >= (3, 10)"], capture_output=True).returncode:
        pytest.skip(f"{python} does not run")
    fast, process = odd_trace(tmp_path / "c", monkeypatch, python)
    monkeypatch.setenv("SGLTRACE_NO_C", "1")
    slow, other = odd_trace(tmp_path / "python", monkeypatch, python)
    assert process.info.fast and not other.info.fast and not process.info.messages
    assert fast == slow
    fields = fast[0][1]["arg.value"].fields
    assert fields["a"].shape == (2, 3) and fields["a"].stride == (3, 1) and fields["a"].device == "cuda:0"
    assert fields["nothing"] is None and fields["flag"] is True and fields["number"] == (1 << 63) - 1
    assert fields["mode"].name == "ON" and fields["extend_lens"].values == (1, 2)
    assert fields["tokens"].values is None and fields["tokens"].length == 2, "tokens are the user's, not ours"
    assert fields["lists"].values == (1, 2) and fields["tensors"].length == 20
    assert fields["pair"].fields["0"].shape == (4,)


def test_the_first_process_of_a_run_and_its_forks_write_apart(tmp_path, monkeypatch):
    main = (
        "import os\nfrom sglang.srt.managers.scheduler import Scheduler\n"
        "s = Scheduler()\ns.loop(5, lambda n: None)\n"
        "pid = os.fork()\ns.loop(4 if pid else 7, lambda n: None)\n"
        "if pid: os.waitpid(pid, 0)\nelse: os._exit(0)\n"
    )
    trace_server(tmp_path, monkeypatch, files={"server.py": main}, options=Options(every=1))
    trace = read_trace(tmp_path / "trace")
    ends = sorted(list(p.records())[-1].step for p in trace.recording())
    assert ends == [9, 12]
    assert not any(p.loss.any for p in trace.recording())


def test_a_module_copied_before_it_was_whole_is_wrapped_too(tmp_path, monkeypatch):
    files = {
        "sglang/one.py": "def f(x): return x\nfrom sglang import two\n",
        "sglang/two.py": "from sglang.one import f\ndef g(): return f(3)\n",
        "server.py": "import sglang.one, sglang.two\nassert sglang.two.g() == 3\n",
    }
    trace_server(tmp_path, monkeypatch, files=files, own_sites=[own_site("sglang.one:f", "arg.x,return")])
    records = list(read_trace(tmp_path / "trace").recording()[0].records())
    assert [r.values() for r in records] == [{"arg.x": 3}, {"return": 3}]


def test_kinds_of_functions(tmp_path, monkeypatch):
    kinds = (
        "class C:\n"
        "    @staticmethod\n    def s(x): return x\n"
        "    @classmethod\n    def c(cls, x): return x\n"
        "    @property\n    def p(self): return 4\n"
        "    async def a(self): pass\n"
        "    def g(self): yield 1\n"
        "    n = 5\n"
    )
    main = "from sglang.kinds import C\nassert (C.s(1), C.c(2), C().p, list(C().g())) == (1, 2, 4, [1])\n"
    own = [own_site(f"sglang.kinds:C.{name}", "return") for name in "scpagn"]
    session = trace_server(tmp_path, monkeypatch, files={"sglang/kinds.py": kinds, "server.py": main}, own_sites=own)
    assert session.exit_code == 0
    process = read_trace(tmp_path / "trace").recording()[0]
    assert [r.values() for r in process.records() if r.kind == 2] == [{"return": n} for n in (1, 2, 4)]
    why = [missing["why"] for missing in process.info.missing]
    assert len(why) == 3 and any("coroutine" in w for w in why) and any("is a int" in w for w in why)


def test_a_reloaded_module_is_wrapped_once(tmp_path, monkeypatch):
    main = (
        "import importlib, sglang.srt.managers.scheduler as s\n"
        "importlib.reload(s); s.Scheduler().loop(3, lambda n: None)\n"
    )
    trace_server(tmp_path, monkeypatch, files={"server.py": main}, options=Options(every=1))
    steps = [r.step for r in read_trace(tmp_path / "trace").recording()[0].records()]
    assert max(steps) == 3
