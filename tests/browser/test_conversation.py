"""The notebook as a conversation, in a real JupyterLab: cells that run again, are edited, deleted, moved, and a restart.

The pictures are left in tests/artifacts, for a person to look at.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lab import PATIENCE, Notebook

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"

CELLS = ["Name a fruit.", "Name another one.", "Which of them is sweeter?", "%context"]


@pytest.fixture
def kept(monkeypatch, tmp_path_factory):
    """A database of its own; it must stand before `lab` in a test's arguments, which hands it on."""
    monkeypatch.setenv("CELLBLOCK_CONVERSATION__FILE", str(tmp_path_factory.mktemp("kept") / "conversations.sqlite"))
    monkeypatch.setenv("CELLBLOCK_AGENT__MODE", "ask")


class Talk(Notebook):
    """A notebook whose cells are changed and run one by one."""

    CELL = "const at = window.jupyterapp.shell.currentWidget.content; const book = window.jupyterapp.commands;"

    def run_cell(self, cell: int) -> str:
        """Runs that cell, waits until it has ended, and gives what it shows."""
        self.page.evaluate(f"async i => {{ {self.CELL} at.activeCellIndex = i; await book.execute('notebook:run-cell'); }}", cell)
        self.page.wait_for_function(
            """i => {
                const panel = window.jupyterapp.shell.currentWidget;
                return panel.content.model.cells.get(i).executionCount && panel.sessionContext.session?.kernel?.status == 'idle';
            }""",
            arg=cell, timeout=PATIENCE * 1000,
        )
        return self.shown(cell)

    def shown(self, cell: int) -> str:
        data = [o.get("data", {"text/plain": o.get("text", "")}) for o in self.outputs(cell)]
        return "\n".join("".join(one.get("text/markdown") or one.get("text/plain") or "") for one in data)

    def edit(self, cell: int, source: str) -> None:
        self.page.evaluate(f"([i, text]) => {{ {self.CELL} at.model.cells.get(i).sharedModel.setSource(text); }}", [cell, source])

    def command(self, cell: int, name: str) -> None:
        """Does to that cell what a menu or a key does."""
        self.page.evaluate(f"async ([i, name]) => {{ {self.CELL} at.deselectAll(); at.activeCellIndex = i; await book.execute(name); }}", [cell, name])

    def save(self) -> None:
        self.page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.context.save(); }")

    def restart(self) -> None:
        self.page.evaluate(
            "async () => { await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"
        )
        self.page.wait_for_function(
            """() => {
                const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel;
                return kernel?.connectionStatus == 'connected' && kernel.status == 'idle';
            }""",
            timeout=PATIENCE * 1000,
        )


def turns(context: str) -> list[str]:
    """The rows of the table that `%context` shows."""
    return [line for line in context.split("This is what would be sent")[0].splitlines() if line.startswith("| ") and "`" in line]


def test_a_conversation_is_what_the_notebook_is(kept, model, lab, browser, kernels):
    for reply in ("**Apple**.", "**Lemon**.", "The apple is sweeter.", "**Banana**.", "Now the banana is.", "Still the banana."):
        model.say(reply)
    talk = Talk(lab, browser, lab.write("talk.ipynb", kernels.markdown, CELLS))
    try:
        talk.run()
        assert "Lemon" in talk.shown(1) and "apple is sweeter" in talk.shown(2)
        assert len(turns(talk.shown(3))) == 3, talk.shown(3)
        talk.screenshot(ARTIFACTS / "talk-first.png")

        # Another question in the second cell: its turn is another one, and what was said below is old.
        talk.edit(1, "Name a sweet one.")
        assert "Banana" in talk.run_cell(1)
        sent = str(model.requests[-1]["messages"])
        assert "Apple" in sent and "Lemon" not in sent and "sweeter" not in sent, sent
        context = talk.run_cell(3)
        assert "Lemon" not in context and "Banana" in context, context
        assert [("stale" in row) for row in turns(context)] == [False, False, True], context
        talk.screenshot(ARTIFACTS / "talk-stale.png")
        assert "banana is" in talk.run_cell(2)
        assert "Banana" in str(model.requests[-1]["messages"]) and "stale" not in talk.run_cell(3)

        # The first cell is deleted: the model hears no more of it.
        talk.command(0, "notebook:delete-cell")
        talk.save()
        context = talk.run_cell(2)
        assert len(turns(context)) == 2 and "Apple" not in context, context

        # The question is moved to the top: it has nothing above it then.
        talk.command(1, "notebook:move-cell-up")
        talk.save()
        rows = turns(talk.run_cell(2))
        assert "sweeter" in rows[0] and "sweet one" in rows[1], rows
        assert "Still" in talk.run_cell(0)
        assert "Banana" not in str(model.requests[-1]["messages"])

        # The kernel is started anew: nothing is there until it is asked for.
        talk.restart()
        assert "Nothing has been said" in talk.run_cell(2)
        talk.edit(2, "%resume")
        assert "2 turns" in talk.run_cell(2), talk.shown(2)
        talk.edit(2, "%context")
        context = talk.run_cell(2)
        assert len(turns(context)) == 2 and "Still the banana" in context and "Banana" in context, context
        talk.screenshot(ARTIFACTS / "talk-resumed.png")
        assert not model.planned
    finally:
        talk.close()
