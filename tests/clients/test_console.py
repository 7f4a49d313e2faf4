"""A real `jupyter console` in a real terminal (tmux)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid

import pytest


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, command: list[str], folder, env: dict[str, str]):
        assert shutil.which("tmux"), "tmux is missing: install Debian's package `tmux`"
        self.name = f"console-{uuid.uuid4().hex[:8]}"
        settings = [f"{key}={value}" for key, value in env.items()]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "main", "-x", "110", "-y", "200", "-c", str(folder), shlex.join(["env", *settings, *command]) + "; echo CONSOLE ENDED; sleep 600")

    def tmux(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-L", self.name, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-J", "-t", "main").rstrip()

    def wait_for(self, pattern: str, timeout: float = 90, after: int = 0) -> str:
        """Waits until the pattern is on the screen at least `after + 1` times."""
        end = time.monotonic() + timeout
        while True:
            screen = self.screen()
            if len(re.findall(pattern, screen)) > after:
                return screen
            assert time.monotonic() < end, f"{pattern!r} never came; the screen:\n{screen}"
            time.sleep(0.1)

    def count(self, pattern: str) -> int:
        return len(re.findall(pattern, self.screen()))

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", "main", "-l", text)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", "-t", "main", *keys)

    def close(self) -> None:
        subprocess.run(["tmux", "-L", self.name, "kill-server"], capture_output=True)


@pytest.fixture
def console(kernels, model, watch):
    folder = watch.root / "console"
    folder.mkdir()
    passed = {key: value for key, value in os.environ.items() if key.startswith(("CELLBLOCK_", "JUPYTER_"))}
    terminal = Terminal([sys.executable, "-m", "jupyter_console", "--kernel", "cellblock"], folder, {**passed, **watch.env, "TERM": "xterm-256color"})
    terminal.wait_for(r"In \[1\]:")
    yield terminal
    terminal.close()


def enter(console: Terminal, *lines: str) -> None:
    """Types lines; the kernel decides (is_complete) when the cell is whole."""
    for line in lines:
        console.type(line)
        time.sleep(0.4)
        console.press("Enter")
        # The console asks the kernel whether the cell is complete before it takes the next line.
        time.sleep(1.2)


def test_a_session_in_the_console(console, watch):
    # Prose: one line, answered as text.
    enter(console, "What does bread need?")
    screen = console.wait_for(r"about 18 hours\.")
    assert "Markdown object" not in screen and "display_id" not in screen
    console.wait_for(r"In \[2\]:")

    # Code in a fence, over several lines.
    enter(console, "```python", "print('fenced', 6 * 7)", "```")
    console.wait_for(r"fenced 42")
    console.wait_for(r"In \[3\]:")

    # A value, and the state of the cell before.
    enter(console, "```python", "x = 20", "x + 1", "```")
    console.wait_for(r"Out\[3\]: ?\s*21")
    console.wait_for(r"In \[4\]:")

    # A question of the code.
    enter(console, "```python", "print('hello', input('your name? '))", "```")
    console.wait_for(r"(?m)^your name\?")
    enter(console, "Ada")
    console.wait_for(r"hello Ada")
    console.wait_for(r"In \[5\]:")

    # Ctrl-C stops a cell, and what was shown stays.
    enter(console, "```python", "print('sp' + 'inning')", "while True: pass", "```")
    console.wait_for(r"(?m)^spinning")
    console.press("C-c")
    console.wait_for(r"KeyboardInterrupt")
    console.wait_for(r"In \[6\]:")
    assert console.count(r"(?m)^spinning") == 1

    # Ctrl-C stops a reply, too.
    enter(console, "Talk slowly, please.")
    console.wait_for(r"word3")
    console.press("C-c")
    console.wait_for(r"In \[7\]:")

    # An error, and the kernel goes on.
    enter(console, "```python", "1 / 0", "```")
    console.wait_for(r"ZeroDivisionError: division by zero")
    enter(console, "```python", "print('still', x)", "```")
    console.wait_for(r"still 20")

    # Leaving ends the kernel, and nothing stays of it.
    console.press("C-d")
    console.wait_for(r"exit|CONSOLE ENDED")
    if not console.count("CONSOLE ENDED"):
        console.type("y")
        console.press("Enter")
    console.wait_for(r"CONSOLE ENDED")
    console.close()
    watch.assert_nothing_left()


def test_a_console_that_is_killed_leaves_nothing(console, watch):
    enter(console, "```python", "import time", "print('up' + 'start')", "time.sleep(600)", "```")
    console.wait_for(r"(?m)^upstart")
    # Closing the terminal: SIGHUP to everything in it.
    console.close()
    watch.assert_nothing_left()
