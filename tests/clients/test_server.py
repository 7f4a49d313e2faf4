"""Kernels under a real jupyter_server, over its REST API and websockets."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from pathlib import Path

import pytest
import websocket
from harness import PATIENCE, Ran, fence, with_workspace


class Server:
    """A jupyter_server of its own, with the default limits of output."""

    def __init__(self, folder: Path, env: dict[str, str]):
        with_workspace(folder)
        self.folder = folder
        self.token = uuid.uuid4().hex
        self.log = open(folder.parent / f"{folder.name}.log", "w+")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", "--ServerApp.port=0", "--ServerApp.ip=127.0.0.1",
                f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={folder}",
            ],
            env={**os.environ, **env, "JUPYTER_CONFIG_DIR": str(folder.parent / "config")}, cwd=folder,
            stdout=self.log, stderr=self.log, start_new_session=True,
        )
        self.port = self.wait_for_port()

    def wait_for_port(self) -> int:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", Path(self.log.name).read_text())
            # It names its address shortly before it listens there.
            with contextlib.suppress(OSError):
                if found:
                    socket.create_connection(("127.0.0.1", int(found[1])), timeout=1).close()
                    return int(found[1])
            time.sleep(0.1)
        raise AssertionError(f"jupyter_server does not start:\n{Path(self.log.name).read_text()}")

    def ask(self, method: str, path: str, body: dict | None = None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{path}", method=method, data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            data = reply.read()
        return json.loads(data) if data else None

    def session(self, kernel: str, path: str = "notebook.ipynb") -> Socket:
        """A notebook session as JupyterLab opens it, so that the kernel knows its notebook."""
        made = self.ask("POST", "sessions", {"path": path, "name": path, "type": "notebook", "kernel": {"name": kernel}})
        return Socket(self, made["kernel"]["id"])

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class Socket:
    """A websocket to one kernel."""

    def __init__(self, server: Server, kernel: str):
        self.server, self.kernel, self.session_id = server, kernel, uuid.uuid4().hex
        self.connect()

    def connect(self) -> None:
        self.socket = websocket.create_connection(
            f"ws://127.0.0.1:{self.server.port}/api/kernels/{self.kernel}/channels?session_id={self.session_id}",
            header=[f"Authorization: token {self.server.token}"], timeout=PATIENCE,
        )

    def send(self, code: str) -> str:
        ident = uuid.uuid4().hex
        header = {
            "msg_id": ident, "msg_type": "execute_request", "username": "test", "session": self.session_id,
            "date": "2024-01-01T00:00:00Z", "version": "5.4",
        }
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True, "stop_on_error": True}
        # What JupyterLab sends along.
        metadata = {"cellId": uuid.uuid4().hex, "deletedCells": [], "trusted": True}
        self.socket.send(json.dumps({"header": header, "parent_header": {}, "metadata": metadata, "content": content, "channel": "shell"}))
        return ident

    def finish(self, ident: str, timeout: float = 180) -> Ran:
        ran, idle, end = Ran({}), False, time.monotonic() + timeout
        while not (idle and ran.reply):
            self.socket.settimeout(max(0.1, end - time.monotonic()))
            message = json.loads(self.socket.recv())
            if message["msg_type"] == "stream" and "rate exceeded" in message["content"]["text"]:
                raise AssertionError("jupyter_server dropped output: " + message["content"]["text"])
            if message["parent_header"].get("msg_id") != ident:
                continue
            if message["msg_type"] == "execute_reply":
                ran.reply = message
            elif message["msg_type"] == "status":
                idle = message["content"]["execution_state"] == "idle"
            elif message["channel"] == "iopub" and message["msg_type"] != "execute_input":
                ran.messages.append(message)
        return ran

    def run(self, code: str, timeout: float = 180) -> Ran:
        return self.finish(self.send(code), timeout)


@pytest.fixture
def server(kernels, watch):
    started = Server(watch.root / "server", watch.env)
    yield started
    started.end()


def python(kernel: str, code: str) -> str:
    return fence(code) if kernel == "cellblock" else code


@pytest.mark.parametrize("name", ["cellblock", "cellblock-python"])
def test_a_flood_passes_the_rate_limits_of_the_server(name, server):
    """Stream text, then what must never be dropped: stderr, a result, an error, many displays."""
    kernel = server.session(name)
    flood = "for n in range(60_000): print(f'{n:06d}', 'x' * 60)\nimport sys; print('the end', file=sys.stderr)\n'result'"
    ran = kernel.run(python(name, flood))
    assert ran.status == "ok", ran.reply
    assert ran.result == "'result'" and "the end" in ran.stderr
    complete(ran, 60_000, server.folder)

    ran = kernel.run(python(name, "for n in range(60_000): print(f'{n:06d}', 'x' * 60)\n1 / 0"))
    assert ran.status == "error" and ran.error.startswith("ZeroDivisionError"), ran.reply
    complete(ran, 60_000, server.folder)


def complete(ran: Ran, lines: int, folder: Path) -> None:
    """Every line was shown, or is in the file that the notice names."""
    seen = [int(line[:6]) for line in ran.stdout.splitlines() if re.match(r"\d{6} x", line)]
    if seen == list(range(lines)):
        return
    assert seen == sorted(set(seen)) and seen[0] == 0, "lines are missing in the middle, or out of order"
    said = ran.stdout[-2000:] + ran.stderr + "".join(ran.shown("text/plain")) + "".join(ran.shown("text/markdown"))
    files = [p for p in (folder / "workspace").rglob("*") if p.is_file() and p.name in said]
    assert files, f"{lines - len(seen)} lines are missing and no notice says where they are: {said[-500:]!r}"
    spilled = files[0].read_text().splitlines()
    assert [line[:6] for line in spilled if re.match(r"\d{6} x", line)] == [f"{n:06d}" for n in range(lines)], "the file is not complete"


@pytest.mark.parametrize("name", ["cellblock", "cellblock-python"])
def test_many_displays_pass_the_rate_limits_of_the_server(name, server):
    kernel = server.session(name)
    ran = kernel.run(python(name, "from IPython.display import display\nfor n in range(5000): display(n)\n'done'"))
    assert ran.result == "'done'"
    # A block of more than a second has a line about itself, wherever it comes.
    assert [text for text in ran.shown("text/plain") if not re.match(r"python · \d", text)] == [str(n) for n in range(5000)]


def test_updates_of_a_display_end_with_the_last(server):
    kernel = server.session("cellblock-python")
    ran = kernel.run("from IPython.display import display\nh = display(0, display_id=True)\nfor n in range(4001): h.update(n)\n'done'")
    assert ran.result == "'done'"
    assert ran.shown("text/plain") == ["4000"]


def test_the_websocket_can_be_opened_again(server):
    """A reloaded page: the same client identity connects once more."""
    kernel = server.session("cellblock-python")
    assert kernel.run("x = 5").status == "ok"
    for _ in range(5):
        kernel.socket.close()
        kernel.connect()
        assert kernel.run("x").result == "5"


@pytest.mark.parametrize("name", ["cellblock", "cellblock-python"])
def test_restart_and_interrupt_over_rest(name, server, watch):
    kernel = server.session(name)
    assert kernel.run(python(name, "x = 5\nx")).result == "5"
    running = kernel.send(python(name, "while True: pass"))
    time.sleep(4)
    server.ask("POST", f"kernels/{kernel.kernel}/interrupt")
    assert kernel.finish(running).error.startswith("KeyboardInterrupt")
    assert kernel.run(python(name, "x")).result == "5"
    server.ask("POST", f"kernels/{kernel.kernel}/restart")
    kernel.socket.close()
    kernel.connect()
    assert kernel.run(python(name, "'x' in globals()")).result == "False"
    server.ask("DELETE", f"kernels/{kernel.kernel}")
    deadline = time.monotonic() + 20
    while watch.containers() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not watch.containers()


def test_a_reply_of_the_model_streams_into_the_notebook(server, model):
    # The server was started before the model: give it to the kernel through a session of its own.
    other = Server(server.folder.parent / "with-model", dict(os.environ))
    try:
        kernel = other.session("cellblock")
        ran = kernel.run("What does bread need?")
        assert ran.status == "ok", ran.reply
        assert ran.shown() == ["Bread needs **flour**, water, salt and *time*: about 18 hours."], str(ran)
        # The line about what the turn cost is a display of its own, which nothing updates.
        shown = [(m["msg_type"], m["content"].get("transient", {}).get("display_id")) for m in ran.messages]
        growing = [(kind, name) for kind, name in shown if kind.endswith("display_data") and name]
        assert len({name for _, name in growing}) == 1, shown
        assert [kind for kind, _ in growing].count("display_data") == 1, shown
    finally:
        other.end()


@pytest.mark.parametrize("busy", ["idle", "running", "starting"])
@pytest.mark.parametrize("turn", range(3))
def test_kill_9_of_the_server_leaves_nothing(busy, turn, kernels, watch):
    server = Server(watch.root / "server", watch.env)
    try:
        sockets = [server.session(name, f"{name}.ipynb") for name in ("cellblock", "cellblock-python")]
        if busy != "starting":
            for client, name in zip(sockets, ("cellblock", "cellblock-python")):
                assert client.run(python(name, "6 * 7")).result == "42"
                if busy == "running":
                    client.send(python(name, "import time\nwhile True: time.sleep(0.1); print('on')"))
            time.sleep(0.3 * turn)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        watch.assert_nothing_left()
    finally:
        server.end()
