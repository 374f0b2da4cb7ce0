"""Work in a second process while this one goes on."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from sgltrace.interpreter import forking


@contextlib.contextmanager
def beside(work: Callable[[], bytes], jobs: int | None) -> Iterator[Callable[[], bytes]]:
    """Has ``work`` done by a fork of this process, which begins with all that this one knows.

    What is handed out waits for the result. With one job, or where the system does not fork, it does the work itself.
    """
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield work
        return
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(work, sender))
    with forking():
        process.start()
    sender.close()

    def result() -> bytes:
        try:
            return receiver.recv_bytes()
        except EOFError:  # it failed or was killed: done again here, an error shows
            return work()

    try:
        yield result
    finally:
        process.terminate()
        process.join()
        receiver.close()


def _send(work: Callable[[], bytes], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt reaches both; the first tells the user, and ends this
    with contextlib.suppress(Exception):
        sender.send_bytes(work())
