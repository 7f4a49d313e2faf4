"""The example notebooks, executed as they lie in the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
import record_conversation
from nbclient.exceptions import CellExecutionError
from record_conversation import NOTEBOOK, SIDECAR
from test_nbclient import client_of, text
from test_papermill import papermill
from test_replay import shown

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


def test_the_conversation_replays_offline_and_always_the_same(kernels, model, tmp_path, monkeypatch):
    """Through nbclient, then through papermill. The server that is there is not asked."""
    for name, value in {"MODEL__REPLAY": "replay", "DISPLAY__FOOTER": "false", "DISPLAY__STATUS": "quiet"}.items():
        monkeypatch.setenv(f"CELLBLOCK_{name}", value)
    monkeypatch.delenv("CELLBLOCK_MODEL__API_KEY")
    for folder in ("nbclient", "papermill"):
        (tmp_path / folder).mkdir()
        for path in (NOTEBOOK, SIDECAR):
            shutil.copy(path, tmp_path / folder)
    book = nbformat.read(tmp_path / "nbclient" / NOTEBOOK.name, as_version=4)
    try:
        client_of(book, "cellblock", tmp_path / "nbclient").execute()
    except CellExecutionError as error:
        pytest.fail(f"{error}\n\nWhen models are told something else on purpose: {record_conversation.__doc__}", pytrace=False)
    run = tmp_path / "papermill"
    done = papermill(run / NOTEBOOK.name, run / "out.ipynb", "cellblock", cwd=run)
    assert done.returncode == 0, done.stderr
    assert shown(book) == shown(nbformat.read(run / "out.ipynb", as_version=4))
    assert not model.requests
    assert not any(output.output_type == "error" for cell in book.cells for output in cell.get("outputs", []))

    by_source = {cell.source: cell for cell in book.cells if cell.cell_type == "code"}

    def said(beginning: str) -> str:
        [found] = [cell for source, cell in by_source.items() if source.startswith(beginning)]
        # One text may come in several pieces.
        return "".join(o.get("text") or "\n".join(map(str, ["", *o.data.values(), ""])) for o in found.outputs)

    assert "crumb dries out slowly" in said("Why does rye")
    order = ["I'll count", "week = pd.read_csv", "'rye': 45", "**Rye**: 45 loaves"]
    places = [said("Here is our week").index(part) for part in order]
    assert places == sorted(places), said("Here is our week")
    assert "tue 15" in said("On which day") and "image/png" in str(by_source["On which day is it worst? Draw it."].outputs) and "**Tuesday**" in said("On which day")
    assert said("```python\nprint").startswith("['rye', 'white', 'spelt']\nOn **Tuesday**")
    assert "5 of 5 turns" in said("%context") and "On which day is it worst?" in said("%context")
    assert "5 replies came out of a recording, at no cost. When recorded: 4," in said("%cost")
