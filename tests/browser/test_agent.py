"""A model at work in a real JupyterLab: what a person sees of its calls, its questions, and code that stays unrun.

The pictures are left in tests/artifacts, for a person to look at.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab import PATIENCE, Notebook

ARTIFACTS = Path(__file__).resolve().parents[1] / "artifacts"

SALES = "month,sold\nJan,12\nFeb,19\nMar,7\nApr,23\nMay,31\nJun,28\n"
LOOK = "import pandas as pd\nsales = pd.read_csv('sales.csv')\nprint(sales)"
PLOT = (
    "import matplotlib.pyplot as plt\n\nbest = sales.loc[sales.sold.idxmax()]\nsales.plot.bar(x='month', y='sold', legend=False, "
    "figsize=(6, 2.5))\nplt.title('Units sold')\nplt.savefig('/session/artifacts/sales.png', dpi=60)\nplt.show()\nprint(best.month)"
)


@pytest.fixture
def auto(monkeypatch):
    """The mode of the kernels; it must stand before `lab` in a test's arguments, which hands it on."""
    monkeypatch.setenv("CELLBLOCK_AGENT__MODE", "auto")


@pytest.fixture
def confirm(monkeypatch):
    """As `auto`."""
    monkeypatch.setenv("CELLBLOCK_AGENT__MODE", "confirm")


def workspace(lab) -> Path:
    folder = lab.folder / "workspace"
    folder.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder, 1000, 1000)
    return folder


def test_a_turn_of_the_model_reads_from_top_to_bottom(auto, model, lab, opened, kernels):
    (workspace(lab) / "sales.csv").write_text(SALES)
    model.call("run_code", {"code": LOOK, "language": "python"}, "I look at the file first.")
    model.call("run_code", {"code": PLOT, "language": "python"}, "Now the **best month**, and the plot.")
    model.say("**May** sold most: 31 units, three more than June.")
    notebook = opened(kernels.markdown, ["Which month sold most in sales.csv? Plot it.", "```python\nlen(sales)\n```"])
    text = notebook.text()
    places = [text.find(part) for part in ("I look at the file", "read_csv", "Jan", "best month", "idxmax", "May sold most")]
    assert -1 not in places and places == sorted(places), f"everything is there, in order: {places}\n{text}"
    pictures = notebook.page.evaluate("[...document.querySelectorAll('.jp-OutputArea-output img')].map(i => i.naturalWidth)")
    assert len(pictures) == 1 and pictures[0] > 100, f"what was shown and saved is there once: {pictures}"
    assert "sales.png" in text
    assert notebook.page.locator(".jp-RenderedMarkdown strong", has_text="May").count() == 1
    assert notebook.page.locator(".jp-RenderedMarkdown pre code", has_text="read_csv").count() >= 1, "code is shown as code"
    assert not [o for o in notebook.outputs(0) if o["output_type"] == "error"]
    assert any(o.get("data", {}).get("text/plain") == "6" for o in notebook.outputs(1)), "its variables are the user's"
    notebook.screenshot(ARTIFACTS / "agent-auto.png")


def test_a_call_is_shown_and_waits_for_the_users_yes(confirm, model, lab, browser, kernels):
    workspace(lab)
    model.call("run_code", {"code": "total = sum(range(10))\nprint('the total is', total)", "language": "python"}, "I add them up.")
    model.say("The total is **45**.")
    notebook = Notebook(lab, browser, lab.write("confirm.ipynb", kernels.markdown, ["What is the sum of the numbers below ten?"]))
    try:
        notebook.start()
        prompt = notebook.page.wait_for_selector(".jp-Stdin-input", timeout=PATIENCE * 1000)
        asking = notebook.page.locator(".jp-OutputArea").first.inner_text()
        assert "total = sum(range(10))" in asking and "yes" in asking, asking
        assert "the total is 45" not in asking, "nothing runs before the answer"
        notebook.screenshot(ARTIFACTS / "agent-question.png")
        prompt.fill("yes")
        prompt.press("Enter")
        notebook.finished()
        assert "the total is 45" in notebook.text() and "The total is 45." in notebook.text(), notebook.text()
        notebook.screenshot(ARTIFACTS / "agent-confirmed.png")
    finally:
        notebook.close()


def test_code_that_is_only_asked_about_is_seen_to_stay(model, opened, kernels):
    model.say("It adds the numbers below ten and shows the sum, **45**.")
    code = "```python\nprint(sum(range(10)))\n```"
    notebook = opened(kernels.markdown, [f"Explain this code.\n\n{code}", "%why"])
    text = notebook.text()
    assert "The code was not run" in text and "It adds the numbers" in text, text
    assert not [o for o in notebook.outputs(0) if o["output_type"] == "stream" and "45" in o["text"]]
    notebook.screenshot(ARTIFACTS / "intent.png")
