"""A notebook that a program writes and runs cell by cell, through nbclient: what the benches of the dialogue share."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

# A fence of the reply: its language and its code.
FENCE = re.compile(r"^ {0,3}(```+|~~~+)[ \t]*([\w+-]*)[^\n]*\n(.*?)^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)


class Book:
    """A growing notebook before one kernel of ours; leaving the block ends the kernel."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None, timeout: int = 600):
        self.folder = folder
        workspace = folder / "workspace"
        workspace.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            # The sandbox's user; under root the kernel would give it to that user, and say so.
            os.chown(workspace, 1000, 1000)
        # What the reply to the last cell said beside its content: `cellblock_agent`, `cellblock_runs`, ...
        self.metadata: dict = {}
        self.environment = {**os.environ, **(environment or {})}
        self.client = NotebookClient(
            nbformat.v4.new_notebook(), kernel_name="cellblock", allow_errors=True, timeout=timeout, startup_timeout=300,
            interrupt_on_timeout=True, on_cell_executed=self.executed, resources={"metadata": {"path": str(folder)}},
        )

    def __enter__(self) -> Book:
        self.running = self.client.setup_kernel(env=self.environment)
        self.running.__enter__()
        return self

    def __exit__(self, *reason) -> None:
        self.running.__exit__(*reason)

    def run(self, source: str) -> nbformat.NotebookNode:
        """Appends a cell, runs it, and returns it with its outputs."""
        cell = nbformat.v4.new_code_cell(source)
        self.client.nb.cells.append(cell)
        return self.client.execute_cell(cell, len(self.client.nb.cells) - 1)

    def executed(self, cell, cell_index: int, execute_reply: dict) -> None:
        # nbclient keeps no metadata of replies.
        self.metadata = execute_reply.get("metadata", {})

    def save(self, path: Path) -> None:
        nbformat.write(self.client.nb, path)


def fence(code: str, language: str = "python") -> str:
    """A fence that no line of the code can close."""
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return f"{ticks}{language}\n{code.rstrip()}\n{ticks}"


def printed(cell) -> str:
    return "".join(o.text for o in cell.outputs if o.output_type == "stream")


def failed(cell) -> str | None:
    """What went wrong in a cell, in one line."""
    errors = [o for o in cell.outputs if o.output_type == "error"]
    return f"{errors[0].ename}: {errors[0].evalue}".splitlines()[0][:200] if errors else None


def markdown(cell) -> str:
    """Everything that is Markdown among a cell's outputs: the model's words."""
    return "\n".join(o.data["text/markdown"] for o in cell.outputs if "text/markdown" in o.get("data", {}))


def last_words(cell) -> str:
    """The last of the model's replies in a cell, without the code in it."""
    replies = [o.data["text/markdown"] for o in cell.outputs if "text/markdown" in o.get("data", {})]
    return FENCE.sub("", replies[-1]) if replies else ""


def first_python(text: str) -> str | None:
    """The first fence of Python in a reply, else the first that names no language."""
    fences = [(language.lower(), code) for _, language, code in FENCE.findall(text)]
    for wanted in (("python", "py", "python3"), ("",)):
        for language, code in fences:
            if language in wanted:
                return code
    return None
