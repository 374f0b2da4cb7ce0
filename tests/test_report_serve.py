"""Serving: on this machine alone, and written again when the workspace changes."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.error
import urllib.request

import pytest

from sgltrace.errors import InputError
from sgltrace.reports.serve import Server


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "index.html").write_text("first")
    return tmp_path


def test_a_change_is_seen_and_shown(folder):
    state = {"version": 1}
    server = Server(folder, lambda: dict(state), lambda: (folder / "index.html").write_text("second") and None)
    server.start()
    try:
        with urllib.request.urlopen(server.address) as answer:
            assert answer.read() == b"first"
            assert answer.headers["Cache-Control"] == "no-store"
        assert not server.look()
        state["version"] = 2
        assert server.look()
        assert urllib.request.urlopen(server.address).read() == b"second"
    finally:
        server.stop()


def test_only_this_machine_is_answered_and_only_the_folder(folder, capfd):
    (folder.parent / "secret").write_text("no")
    server = Server(folder, lambda: 1, lambda: None)
    assert server.address.startswith("http://127.0.0.1:")
    server.start()
    try:
        for path, host, status in (
            ("/", "evil.example:80", 403), ("/", "", 403), ("/", "localhost@evil.example", 403), ("/", "[::", 403),
            ("/../secret", "127.0.0.1:80", 404), ("/%2e%2e/secret", "localhost:80", 404),
            ("/", "127.0.0.1", 200), ("/", "localhost", 200),  # as browsers say it where the port is 80
            ("/x%00", "localhost:80", 404), ("/%ff%00/", "localhost:80", 404), (f"/{'x' * 5000}", "localhost:80", 404),
        ):  # fmt: skip
            connection = http.client.HTTPConnection("127.0.0.1", server.address.rpartition(":")[2].strip("/"))
            connection.request("GET", path, headers={"Host": host})
            assert connection.getresponse().status == status, (path, host)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(urllib.request.Request(server.address, data=b"x"))
    finally:
        server.stop()
    assert "Traceback" not in capfd.readouterr().err


def test_a_browser_that_leaves_is_not_told(folder, capfd):
    (folder / "large").write_bytes(bytes(50 << 20))
    server = Server(folder, lambda: 1, lambda: None)
    server.start()
    try:
        port = int(server.address.rpartition(":")[2].strip("/"))
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(b"GET /large HTTP/1.0\r\nHost: localhost\r\n\r\n")
            leaving.recv(100)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        for thread in [t for t in threading.enumerate() if "process_request_thread" in t.name]:
            thread.join()
        assert urllib.request.urlopen(server.address).read() == b"first"
    finally:
        server.stop()
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_one_line(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="give another one"):
            Server(folder, lambda: 1, lambda: None, taken.getsockname()[1])


def test_an_input_that_cannot_be_used_is_told_and_waited_out(folder, monkeypatch):
    monkeypatch.setattr("sgltrace.reports.serve.PAUSE", 0.01)
    told = []
    count = iter(range(100))

    def again():
        if len(told) < 1:
            raise InputError("damaged")

    server = Server(folder, lambda: next(count), again)

    def tell(text):
        told.append(text)
        if len(told) == 2:
            raise KeyboardInterrupt

    server.run(tell)
    assert told == ["damaged", "the report was written again"]


def test_a_page_of_another_site_gets_no_script_of_the_report(folder, browser):
    (folder / "names.js").write_text("window.leaked = 'names of functions';")
    (folder / "index.html").write_text("<script src='names.js'></script>")
    (folder / "other").mkdir()
    server = Server(folder, lambda: 1, lambda: None)
    other = Server(folder / "other", lambda: 1, lambda: None)
    (folder / "other/index.html").write_text(
        f"<script src='{server.address}names.js'></script><iframe src='{server.address}'></iframe>"
    )
    server.start()
    other.start()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(server.address)
        assert page.evaluate("window.leaked") == "names of functions"
        page.goto(other.address)
        assert page.evaluate("window.leaked") is None
        assert all(frame.evaluate("window.leaked") is None for frame in page.frames)
    finally:
        context.close()
        server.stop()
        other.stop()
