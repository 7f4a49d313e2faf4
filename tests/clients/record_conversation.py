"""The replies of the example `notebooks/conversation.ipynb`, and how they are recorded.

Nobody's model said them: they were written by hand and are played by the scripted server. The recording depends on what
models are told (system prompt, tools, output of code); when that has changed, record it again and look at the difference:

    CELLBLOCK_BIN=target/debug/cellblock .venv/bin/python tests/clients/record_conversation.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import nbformat
from scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "conversation.ipynb"
SIDECAR = NOTEBOOK.with_suffix(".replies.jsonl")

COUNT = """import pandas as pd

week = pd.read_csv("loaves.csv")
week["left"] = week.baked - week.sold
left = week.groupby("bread").left.sum()
print(left.to_dict())"""

PLOT = """import matplotlib.pyplot as plt

rye = week[week.bread == "rye"]
worst = rye.loc[rye.left.idxmax()]
print(worst.day, worst.left)
plt.figure(figsize=(5, 2.5))
plt.bar(rye.day, rye.left, color=["firebrick" if day == worst.day else "tan" for day in rye.day])
plt.ylabel("rye loaves left")
plt.show()"""


def plan(model: ScriptedModel) -> None:
    """The replies, in the order in which the notebook asks for them."""
    model.reads = lambda request: len(json.dumps(request["messages"])) // 4
    model.say(
        "Rye flour holds more water than wheat flour, so the crumb dries out slowly. Its sourdough is also *acidic*, "
        "which keeps mould away."
    )
    model.call("run_code", {"code": COUNT, "language": "python"}, "I'll count what is left of each bread over the week.")
    model.say(
        "**Rye**: 45 loaves were left over, against 10 white and 7 spelt. Both others nearly sell out, so bake less rye on "
        "the days when it stays, and a few more spelt loaves instead."
    )
    model.call("run_code", {"code": PLOT, "language": "python"}, "`week` is still there, so I'll draw the rye of each day.")
    model.say("On **Tuesday**, when 15 rye loaves were left: more than on any other day. Start there.")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ScriptedModel() as model:
        plan(model)
        folder = Path(name)
        (folder / "workspace").mkdir()
        if os.geteuid() == 0:
            os.chown(folder / "workspace", 1000, 1000)
        binary = Path(os.environ.get("CELLBLOCK_BIN", ROOT / "target" / "release" / "cellblock")).resolve()
        subprocess.run([binary, "install", "--prefix", folder / "prefix"], check=True, capture_output=True)
        # Nobody's own settings take part.
        own = {key: value for key, value in os.environ.items() if not key.startswith("CELLBLOCK_") and not key.endswith("_API_KEY")}
        image = {key: value for key, value in os.environ.items() if key == "CELLBLOCK_SANDBOX__IMAGE"}
        os.environ.clear()
        os.environ.update(own | image | model.environment)
        os.environ["JUPYTER_PATH"] = str(folder / "prefix" / "share" / "jupyter")
        os.environ["CELLBLOCK_MODEL__REPLAY"] = "record"
        from nbclient import NotebookClient

        book = nbformat.read(NOTEBOOK, as_version=4)
        NotebookClient(book, kernel_name="cellblock", resources={"metadata": {"path": str(folder)}}, timeout=300).execute()
        if model.planned:
            raise SystemExit(f"{len(model.planned)} of the replies were not asked for: the notebook and this file differ")
        shutil.copy(folder / "replies.jsonl", SIDECAR)
        for cell in book.cells:
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                print(output.get("text") or data.get("text/markdown") or data.get("text/plain"))
        print(f"recorded: {SIDECAR}")


if __name__ == "__main__":
    main()
