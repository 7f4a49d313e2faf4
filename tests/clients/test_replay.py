"""A notebook with a model in it, recorded once and then executed without one, as a CI job does it."""

from __future__ import annotations

import json
import os

import pytest
from harness import with_workspace
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from scripted_model import ANSWER, ScriptedModel
from test_nbclient import notebook


@pytest.fixture
def settings(monkeypatch):
    """Sets variables for kernels that are started from here on."""
    return lambda **values: [monkeypatch.setenv(f"CELLBLOCK_{name}", value) for name, value in values.items()]


def execute(folder, *sources):
    book = notebook(*sources)
    resources = {"metadata": {"path": str(with_workspace(folder))}}
    NotebookClient(book, kernel_name="cellblock", resources=resources, startup_timeout=120, timeout=300).execute()
    return book


def shown(book) -> list[list]:
    """Every code cell's outputs, without what names or times them; in how many pieces a text came does not count."""
    cells = []
    for cell in book.cells:
        outputs = []
        for output in cell.get("outputs", []):
            kind = output.get("name", output.output_type)
            if "text" in output and outputs and outputs[-1][0] == kind:
                outputs[-1] = (kind, outputs[-1][1] + output.text)
            else:
                outputs.append((kind, output.text if "text" in output else json.dumps(output.data, sort_keys=True)))
        cells.append(outputs)
    return cells


CELLS = ["How is bread made?", "And how long does it take?\n\n```python\nprint(6 * 7)\n```", "please run print(42 * 42)"]


def test_a_recorded_notebook_runs_without_network_or_key(kernels, tmp_path, settings, monkeypatch):
    settings(AGENT__MODE="auto", MODEL__NAME="openai/test", DISPLAY__FOOTER="false", DISPLAY__STATUS="quiet")
    with ScriptedModel() as model:
        for name, value in model.environment.items():
            monkeypatch.setenv(name, value)
        settings(MODEL__REPLAY="record")
        first = execute(tmp_path, *CELLS)
        asked = len(model.requests)
        said = [(request["messages"][-1], "tools" in request) for request in model.requests]
        assert asked == 4, f"the third cell takes a call and an answer: {said} {first.cells[2].outputs}"
    recording = tmp_path / "replies.jsonl"
    assert "not-a-key" not in recording.read_text()
    monkeypatch.delenv("CELLBLOCK_MODEL__API_KEY")
    settings(MODEL__REPLAY="replay")
    again = execute(tmp_path, *CELLS)
    assert ANSWER in str(again.cells[0].outputs)
    assert "1764" in str(again.cells[2].outputs) and "has seen it" in str(again.cells[2].outputs)
    assert shown(first) == shown(again)

    with pytest.raises(CellExecutionError) as failed:
        execute(tmp_path, "How is cheese made?")
    assert failed.value.ename == "NotRecorded"
    assert "- How is bread made?" in failed.value.evalue and "+ How is cheese made?" in failed.value.evalue
    assert len(model.requests) == asked
    assert "CELLBLOCK_MODEL__API_KEY" not in os.environ
