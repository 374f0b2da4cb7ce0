"""Facts of modules: read in parallel, kept in the user's cache under the hash of the file's content.

A file's facts depend on nothing but its bytes and ``FACTS_VERSION``, so two releases, checkouts or runs share them.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from zlib import crc32

import msgspec

from sgltrace.files import write_atomically
from sgltrace.index.facts import syntax as s
from sgltrace.interpreter import forking
from sgltrace.progress import Progress, SilentProgress
from sgltrace.sources import SourceTree, UndecodableSource, UnreadableFile, decode_source


class Facts:
    """The facts of a tree's modules, read when they are asked for. Close it (``with``) to end the readers.

    ``outlined`` says of which modules the functions' bodies are left out.
    """

    def __init__(
        self,
        tree: SourceTree,
        cache_dir: Path | None,
        jobs: int | None = None,
        outlined: Callable[[str], bool] = lambda module: False,
        progress: Progress | None = None,
    ) -> None:
        self._progress = progress if progress is not None else SilentProgress()
        self._tree = tree
        self._outlined = outlined
        self._cache = None if cache_dir is None else cache_dir / "facts" / str(s.FACTS_VERSION)
        self._jobs = jobs if jobs is not None else min(4, os.cpu_count() or 1)
        self._pool: ProcessPoolExecutor | None = None
        self._pending: dict[str, tuple[Future[bytes], Callable[[], bytes]]] = {}
        """What readers were asked for, and how to do without them."""
        self._ready: dict[str, s.ModuleFacts] = {}
        self.parsed = 0
        """How many modules were read from source, not from the cache."""

    def __enter__(self) -> Facts:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._jobs = 1  # what is still asked for is read here

    def prefetch(self, modules: Iterable[str]) -> None:
        """Begin to read modules that will be asked for. Names that are not in the tree are passed over."""
        for module in modules:
            if module in self._tree.modules and module not in self._ready and module not in self._pending:
                self._begin(module)

    def get(self, module: str) -> s.ModuleFacts:
        """The facts of a module of the tree, once: whoever asks keeps them. ``error`` says why there are none."""
        if module not in self._ready and module not in self._pending:
            self._begin(module)
        self._progress.advance()
        if module not in self._pending:
            return self._ready.pop(module)
        future, parse = self._pending.pop(module)
        try:
            # What no reader has begun with is read here: there is nothing else to do meanwhile.
            return s.decode(parse() if future.cancel() else future.result())
        except BrokenProcessPool:
            return self._alone(parse)

    def _alone(self, parse: Callable[[], bytes]) -> s.ModuleFacts:
        """A reader died, and with it all that were asked: one after the other, until the one that kills is found."""
        self._pool = None
        with self._new_pool(1) as pool:
            try:
                with forking():
                    future = pool.submit(parse)
                return s.decode(future.result())
            except BrokenProcessPool:
                return s.ModuleFacts([], "its reader died; the file is odd, or memory is short")

    def _begin(self, module: str) -> None:
        outline = self._outlined(module)
        try:
            data = self._tree.read_module(module)
            kept = self._kept(data, outline)
            facts = None if kept is None else _read(kept)
            if facts is not None:
                self._ready[module] = facts
                return
            source = decode_source(data)
        except (UnreadableFile, UndecodableSource) as error:
            self._ready[module] = s.ModuleFacts([], str(error))
            return
        self.parsed += 1
        parse = partial(parse_and_keep, source, kept, outline)
        if self._jobs <= 1:
            self._ready[module] = s.decode(parse())
            return
        try:
            self._pool = self._pool or self._new_pool(self._jobs)
            with forking():  # the first that is submitted
                self._pending[module] = self._pool.submit(parse), parse
        except BrokenProcessPool:
            self._ready[module] = self._alone(parse)

    @staticmethod
    def _new_pool(jobs: int) -> ProcessPoolExecutor:
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork" if "fork" in methods else None)
        return ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_reader)

    def _kept(self, data: bytes, outline: bool) -> Path | None:
        if self._cache is None:
            return None
        digest = hashlib.blake2b(data, digest_size=20).hexdigest()
        return self._cache / digest[:2] / (f"{digest[2:]}-outline" if outline else digest[2:])


def _read(path: Path) -> s.ModuleFacts | None:
    """What is kept of a module; None where that is nothing yet, or damaged: it is read from source again.

    The checksum is for the bodies of functions, which are decoded when they are asked for, and then without fail.
    """
    try:
        kept = path.read_bytes()
        return s.decode(kept[_SEAL:]) if _seal(kept[_SEAL:]) == kept[:_SEAL] else None
    except (OSError, msgspec.DecodeError):
        return None


_SEAL = 4
"""Bytes of checksum before the facts."""


def _seal(data: bytes) -> bytes:
    return crc32(data).to_bytes(_SEAL, "little")


def _start_reader() -> None:
    import gc
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt reaches all processes; the one that asks tells the user
    gc.disable()  # a reader makes trees and drops them; none of them has cycles worth a search


def parse_and_keep(source: str, kept: Path | None, outline: bool) -> bytes:
    """Encoded facts of a source text, written to ``kept`` as well. Runs in a reader process."""
    from sgltrace.index.facts.outline import without_bodies
    from sgltrace.index.facts.parse import parse_source

    facts = parse_source(without_bodies(source) if outline else source)
    facts.is_outline = outline
    data = s.encode(facts)
    if kept is not None:
        with contextlib.suppress(OSError):  # without a cache the next run is slower, this one no worse
            write_atomically(kept, _seal(data) + data)
    return data
