"""A real JupyterLab in a real browser, a beacon outside of the sandbox, and what both saw."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Page, Playwright

# Generous: the machine may be busy with other things. Nothing asserts on time by this.
PATIENCE = 120
CHROMIUM = os.environ.get("CELLBLOCK_CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]


class Beacon:
    """A server that keeps the names it was asked for: whatever asks it could as well carry data away."""

    def __enter__(self) -> Beacon:
        self.names: set[str] = set()
        beacon = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_) -> None:
                pass

            def do_GET(self) -> None:
                beacon.names.add(self.path.strip("/").split("?")[0].split("#")[0])
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Access-Control-Allow-Origin", "*")
                self.end_headers()
                self.wfile.write(b"beacon")

            do_POST = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"


class Lab:
    """JupyterLab of its own: folder, settings, port and token."""

    def __init__(self, folder: Path):
        self.folder = folder / "notebooks"
        self.folder.mkdir(parents=True)
        settings = {
            # Otherwise a notification asks whether to fetch news.
            "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
            # Cells stay in the page when they are scrolled away, so that every attack has its chance.
            "notebook-extension/tracker": {"windowingMode": "none"},
        }
        for name, values in settings.items():
            path = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        self.token = uuid.uuid4().hex
        self.log = folder / "lab.log"
        env = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
            "IPYTHONDIR": str(folder / "ipython"),
        }
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
                    "--ServerApp.port=0", f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.folder}",
                    "--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly",
                ],
                cwd=self.folder, env=env, stdout=log, stderr=log, start_new_session=True,
            )
        self.address = self.wait_for_address()

    def wait_for_address(self) -> str:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:\d+", self.log.read_text()):
                return found[0]
            time.sleep(0.2)
        raise AssertionError(f"JupyterLab does not start:\n{self.log.read_text()}")

    def write(self, name: str, kernel: str, cells: list[str]) -> str:
        """A notebook in the folder, for that kernel."""
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel}
        nbformat.write(notebook, self.folder / name)
        return name

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True)
class Proof:
    """What attacks achieved: names of those that ran in the page, that wrote a file, that were loaded, seen."""

    ran: frozenset[str]
    wrote: frozenset[str]
    loaded: frozenset[str]
    probed: frozenset[str]
    # New frames of the page's own, dialogs, navigation away: anything unexpected, in words.
    odd: tuple[str, ...]

    @property
    def worked(self) -> set[str]:
        return set(self.ran | self.wrote | self.loaded | self.probed)


class Notebook:
    """One notebook, open in a page."""

    def __init__(self, lab: Lab, browser: Browser, name: str):
        self.lab = lab
        self.page: Page = browser.new_page(viewport={"width": 1280, "height": 2000})
        self.odd: list[str] = []
        self.page.on("dialog", lambda dialog: (self.odd.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.goto(f"{lab.address}/lab/tree/{name}?token={lab.token}&reset")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=PATIENCE * 1000)

    def run(self, timeout: float = PATIENCE) -> None:
        """Runs every cell and waits until the last has ended."""
        self.start(timeout)
        self.finished(2 * timeout)

    def start(self, timeout: float = PATIENCE) -> None:
        """Begins to run every cell."""
        page = self.page
        page.wait_for_function(
            "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status == 'idle'", timeout=timeout * 1000
        )
        # Not awaited: the command ends with the last cell, and a cell may wait for an answer.
        page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")

    def finished(self, timeout: float = PATIENCE) -> None:
        """Waits until every cell has ended."""
        self.page.wait_for_function(
            """() => {
                const cells = window.jupyterapp.shell.currentWidget.content.model.cells;
                const code = [...Array(cells.length).keys()].map(i => cells.get(i)).filter(c => c.type == 'code');
                const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
                return code.every(c => c.executionCount) && kernel.status == 'idle';
            }""",
            timeout=timeout * 1000,
        )
        self.settle()

    def settle(self) -> None:
        """Waits until the page has nothing left to load; what does not come now does not come."""
        self.page.wait_for_timeout(1500)

    def outputs(self, cell: int) -> list[dict]:
        """The outputs of a cell as the notebook's model holds them."""
        return json.loads(
            self.page.evaluate(
                "i => JSON.stringify(window.jupyterapp.shell.currentWidget.content.model.cells.get(i).outputs.toJSON())", cell
            )
        )

    def click(self, name: str) -> None:
        """Clicks everything in the outputs that bears a name and stays in this page."""
        self.page.evaluate(
            """name => {
                for (const link of document.querySelectorAll('.jp-OutputArea-output a, .jp-OutputArea-output [title]')) {
                    const isRemote = /^https?:/.test(link.href || '') && !link.href.startsWith(location.origin);
                    if (!isRemote && (link.textContent.includes(name) || link.title == name)) {
                        link.removeAttribute('target');
                        link.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}));
                    }
                }
            }""",
            name,
        )

    def proof(self, beacon: Beacon, probes: dict[str, str]) -> Proof:
        self.settle()
        if not self.page.url.startswith(f"{self.lab.address}/lab/tree"):
            self.odd.append(f"the page went to {self.page.url}")
        ran = frozenset(self.page.evaluate("() => window.pwned || []"))
        wrote = frozenset(
            re.sub(r"^.*pwned-|\.txt$", "", path.name) for path in self.lab.folder.rglob("*pwned-*")
        )
        probed = frozenset(name for name, probe in probes.items() if self.page.evaluate(probe))
        return Proof(ran, wrote, frozenset(beacon.names), probed, tuple(self.odd))

    def text(self) -> str:
        """What a person reads in the outputs."""
        return "\n".join(self.page.locator(".jp-OutputArea-output").all_inner_texts())

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.locator(".jp-Notebook").first.screenshot(path=path)

    def close(self) -> None:
        self.page.close()


def launch(playwright: Playwright) -> Browser:
    if not os.access(CHROMIUM, os.X_OK):
        raise AssertionError(
            f"there is no Chromium at {CHROMIUM}: install Debian's `chromium`, or name one in CELLBLOCK_CHROMIUM"
        )
    return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
