"""Files that runs leave behind, as clients without a page see them, and what stays of a session's folder."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from harness import Kernel, with_workspace
from test_nbclient import FLAVOURS, client_of, notebook, python, shell

MAPPING = "application/vnd.cellblock.artifacts+json"
WRITE = "open('/session/scratch', 'w').write('x'); open('/session/artifacts/a.txt', 'w').write('kept');"


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def settled(folder: Path, expected: list[str], within: float = 30) -> None:
    end = time.monotonic() + within
    while files_of(folder) != expected and time.monotonic() < end:
        time.sleep(0.1)
    assert files_of(folder) == expected


@pytest.mark.parametrize("name", FLAVOURS)
def test_files_of_a_run_are_listed_in_its_output_and_nowhere_else(name, kernels, tmp_path):
    book = notebook(python(name, WRITE), python(name, "print('nothing written')"), shell(name, "echo y > /session/artifacts/b.txt"))
    client_of(book, name, tmp_path).execute()
    for cell, file, content in ((book.cells[0], "a.txt", "kept"), (book.cells[2], "b.txt", "y\n")):
        [listed] = [output for output in cell.outputs if MAPPING in output.get("metadata", {})]
        [entry] = listed.metadata[MAPPING]["artifacts"]
        assert entry["container"] == f"/session/artifacts/{file}"
        assert f"{entry['container']} -> {entry['host']}" in listed.data["text/plain"]
        assert (tmp_path / entry["host"]).read_text() == content, "it is there after the kernel's end"
    assert MAPPING not in str(book.cells[1].outputs)
    [session] = (tmp_path / "sessions").iterdir()
    settled(session, ["artifacts/a.txt", "artifacts/b.txt"])


def test_a_killed_kernel_leaves_only_artifacts(kernels, tmp_path):
    with_workspace(tmp_path)
    with Kernel("cellblock-python", tmp_path) as kernel:
        kernel.run(WRITE)
        [session] = (tmp_path / "sessions").iterdir()
        assert files_of(session) == ["artifacts/a.txt", "scratch"]
        kernel.kill()
    settled(session, ["artifacts/a.txt"])
