"""The example notebook of the sandbox, executed as it lies in the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
from test_nbclient import client_of, text

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_of_the_sandbox_does_what_its_text_says(kernels, tmp_path):
    shutil.copy(ROOT / "notebooks" / "sandbox.ipynb", tmp_path)
    book = nbformat.read(tmp_path / "sandbox.ipynb", as_version=4)
    client_of(book, "cellblock", tmp_path).execute()
    by_source = {cell.source: cell for cell in book.cells if cell.cell_type == "code"}

    def cell(beginning: str):
        [found] = [c for source, c in by_source.items() if beginning in source]
        return found

    def shown(cell) -> str:
        return "\n".join(str(o.get("data", {}).get("text/plain", "")) for o in cell.outputs)

    assert "polyglot" in str(cell("%containers").outputs)
    assert text(cell("greet\n")) == "hello from /tmp\n"
    assert "False" in shown(cell("in globals()"))
    assert "OutOfMemory" in str(cell("huge =").outputs)
    pictures = [o for o in cell("to_csv").outputs if "image/png" in o.get("data", {})]
    assert len(pictures) == 1 and "visits.csv" in str(cell("to_csv").outputs)
    [session] = (tmp_path / "sessions").iterdir()
    assert sorted(p.name for p in (session / "artifacts").iterdir()) == ["visits.csv", "visits.png"]
    assert "{'mon': 31, 'tue': 17, 'wed': 44}" in shown(cell("\nvisits\n"))
    assert "Timeout" in str(cell("while True").outputs)
    assert "network was refused" in str(cell("urlopen").outputs)
    assert "python" in str(cell("%status").outputs)
