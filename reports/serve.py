"""Serving a report on this machine alone, and writing it again when what it was made from changes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sgltrace.errors import InputError

ADDRESS = "127.0.0.1"
PAUSE = 1.0
"""Seconds between looks at what is watched."""


class Server:
    """Serves ``folder`` on ``address``; a port of 0 takes a free one. Raises ``InputError`` where the port is taken.

    ``state`` gives anything that differs when the report has to be written again, ``again`` writes it. Use ``start``
    and ``stop``, or ``run`` until the user interrupts.
    """

    def __init__(self, folder: Path, state: Callable[[], object], again: Callable[[], None], port: int = 0) -> None:
        self._state, self._again = state, again
        self._seen = state()
        self._stopped = threading.Event()
        try:
            self._http = _Http((ADDRESS, port), partial(_Handler, directory=str(folder)))
        except OSError as error:
            raise InputError(f"port {port} on {ADDRESS} cannot be used: {error.strerror}; give another one") from error
        self._http.daemon_threads = True
        self.address = f"http://{ADDRESS}:{self._http.server_address[1]}/"

    def start(self) -> None:
        """Serves in a thread of its own."""
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()

    def stop(self) -> None:
        """Ends serving."""
        self._stopped.set()
        self._http.shutdown()
        self._http.server_close()

    def look(self) -> bool:
        """Writes the report again if what it is made from has changed; whether it did."""
        found = self._state()
        if found == self._seen:
            return False
        self._seen = found
        self._again()
        return True

    def run(self, tell: Callable[[str], None]) -> None:
        """Serves and looks until the user interrupts. An input that cannot be used is told, and waited out."""
        self.start()
        try:
            while not self._stopped.wait(PAUSE):
                try:
                    if self.look():
                        tell("the report was written again")
                except InputError as error:
                    tell(str(error))
        except KeyboardInterrupt:
            pass
        finally:
            self.stop()


class _Http(ThreadingHTTPServer):
    """A browser that leaves in the middle of an answer is no error."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tells of what is a fault of ours only."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    """Files of one folder, to this machine's browser alone."""

    server_version = "sgltrace"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers a request that was meant for this server."""
        if self._meant():
            super().do_GET()

    def do_HEAD(self) -> None:
        """Answers a request that was meant for this server."""
        if self._meant():
            super().do_HEAD()

    def _meant(self) -> bool:
        """Whether the browser means this machine: a name that only points here may be another site's page asking."""
        try:
            host = urlsplit(f"//{self.headers.get('Host') or ''}").hostname  # the port is left out where it is 80
        except ValueError:
            host = None
        if host not in (ADDRESS, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        return True

    def send_head(self) -> Any:
        """Opens the file that is asked for. What no file can be called is not found."""
        try:
            return super().send_head()
        except ValueError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

    def end_headers(self) -> None:
        """Nothing is kept by the browser, so that a reload shows what was written last; and no other page gets at it.

        A page of another site may name a script of this one as its own, and then read what the script defines.
        """
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not told."""
