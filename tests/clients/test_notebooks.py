"""Twenty notebooks run through ipykernel and through `cellblock-python`, and show the same.

`notebooks/*.ipynb` are ordinary Python notebooks. Tags say how a cell is compared: `timing` and `progress`
(figures of time are replaced), `fd-output` (what child processes write has no order with displays),
`stderr-trace` (a traceback printed on stderr). To add one: put the notebook there; when its outputs depend on
the run, either make them not depend on it or tag the cell.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from comparing import Difference, differences
from harness import with_workspace
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent / "notebooks").glob("*.ipynb"))


@dataclass(frozen=True)
class Deliberate:
    """A cell in which the kernels are meant to differ."""

    notebook: str
    cell: str
    reason: str


METADATA = "metadata of an output passes only where a front end draws with it (sizes, `expanded`, `isolated`)"
LINES = "where an exception passed through a handler, ipykernel 7.4 names the frame's present line; ours is the line that raised"
ERROR = "a cell that fails always shows an error; ipykernel prints this one on stderr only"
INPUT = "the same exception in our words, without frames of the kernel"

DELIBERATE = [
    Deliberate("04_rich_display", "png_sized", METADATA),
    Deliberate("04_rich_display", "metadata", METADATA),
    Deliberate("04_rich_display", "vendor", "types that a front end's extension may act on are refused, and the text says so"),
    Deliberate("05_tracebacks", "chained", LINES),
    Deliberate("05_tracebacks", "during", LINES),
    Deliberate("05_tracebacks", "recursion", "ours folds the thousand equal frames"),
    Deliberate("05_tracebacks", "group", ERROR),
    Deliberate("06_streams", "nul", "of the control characters only tab, line ends, backspace and colours pass"),
    Deliberate("09_magics", "psource", ERROR),
    Deliberate("09_magics", "cell_unknown", ERROR),
    Deliberate("10_asyncio", "nested", LINES),
    Deliberate("15_generators", "thrown", LINES),
    Deliberate("19_own_reprs", "bundle_metadata", METADATA),
    Deliberate("20_session", "input", INPUT),
    Deliberate("20_session", "password", INPUT),
]


def execute(path: Path, kernel: str, folder: Path) -> nbformat.NotebookNode:
    """A run of the notebook in a folder of its own, called `workspace` for either kernel."""
    with_workspace(folder)
    book = nbformat.read(path, as_version=4)
    # ipykernel leaves descriptors 1 and 2 alone when it sees that it is tested by pytest.
    env = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(book, kernel_name=kernel, timeout=180, startup_timeout=120, resources=resources).execute(env=env)
    return book


@pytest.fixture(scope="session")
def references(tmp_path_factory):
    """Runs through ipykernel, each made once."""
    made: dict[str, nbformat.NotebookNode] = {}

    def run(path: Path) -> nbformat.NotebookNode:
        if path.stem not in made:
            made[path.stem] = execute(path, "python3", tmp_path_factory.mktemp(path.stem) / "reference" / "workspace")
        return made[path.stem]

    return run


def test_there_are_twenty_notebooks():
    assert len(NOTEBOOKS) >= 20


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_two_runs_of_ipykernel_compare_equal(path, references, tmp_path):
    """Otherwise a comparison with another kernel would say nothing."""
    found = differences(path.stem, references(path), execute(path, "python3", tmp_path / "second" / "workspace"))
    assert not found, report(found)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_sandboxed_kernel_shows_what_ipykernel_shows(path, references, kernels, tmp_path):
    found = differences(path.stem, references(path), execute(path, kernels.python, tmp_path / "ours"))
    meant = {d.cell for d in DELIBERATE if d.notebook == path.stem}
    unexpected = [d for d in found if d.cell not in meant]
    assert not unexpected, report(unexpected)
    unneeded = meant - {d.cell for d in found}
    assert not unneeded, f"these cells are listed as deliberate differences, but are equal: {sorted(unneeded)}"


def report(found: list[Difference]) -> str:
    return f"{len(found)} differences:\n" + "\n".join(map(str, found))


# A comparison that finds nothing is worth something only if it would have found something.
SEEDED = [
    ("a changed result", "01_tables", "series", lambda c: c.outputs[0].data.update({"text/plain": c.outputs[0].data["text/plain"] + "0"})),
    ("a changed word of HTML", "04_rich_display", "html", lambda c: c.outputs[0].data.update({"text/html": c.outputs[0].data["text/html"].replace("bold", "bald")})),
    ("a lost tag of HTML", "04_rich_display", "html", lambda c: c.outputs[0].data.update({"text/html": c.outputs[0].data["text/html"].replace("<b>", "")})),
    ("a lost mime type", "01_tables", "frame", lambda c: c.outputs[0].data.pop("text/html")),
    ("a lost output", "04_rich_display", "several", lambda c: c.outputs.pop()),
    ("swapped outputs", "04_rich_display", "mixed", lambda c: c.outputs.reverse()),
    ("a lost line", "06_streams", "many_lines", lambda c: c.outputs[0].update(text=c.outputs[0].text.replace("700 490000\n", ""))),
    ("stderr as stdout", "06_streams", "writelines", lambda c: c.outputs[0].update(name="stdout")),
    ("another picture", "02_figures", "heatmap", lambda c: c.outputs[0].data.update({"image/png": FLAT_PICTURE})),
    ("another exception", "05_tracebacks", "simple", lambda c: c.outputs[0].update(ename="ValueError")),
    ("a traceback without a frame", "05_tracebacks", "nested", lambda c: c.outputs[1].update(traceback=[t for t in c.outputs[1].traceback if "middle" not in t])),
    ("a wrong line number", "05_tracebacks", "method", lambda c: c.outputs[0].update(traceback=[t.replace("line 6", "line 7") for t in c.outputs[0].traceback])),
    ("a traceback without colours", "05_tracebacks", "simple", lambda c: c.outputs[0].update(traceback=["ZeroDivisionError: division by zero"])),
    ("a wrong execution count", "03_arrays", "pi", lambda c: c.update(execution_count=99)),
    ("lost metadata", "04_rich_display", "metadata", lambda c: c.outputs[0].update(metadata={})),
    ("a magic without effect", "09_magics", "own_line", lambda c: c.outputs.clear()),
]

FLAT_PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CAB+GTG8HSALfKY52fTcuYAAAAAElFTkSuQmCC"
)


@pytest.mark.parametrize("name,notebook,cell,change", SEEDED, ids=[s[0] for s in SEEDED])
def test_the_comparison_finds(name, notebook, cell, change, references):
    reference = references(next(p for p in NOTEBOOKS if p.stem == notebook))
    changed = copy.deepcopy(reference)
    change(next(c for c in changed.cells if c.id == cell))
    found = differences(notebook, reference, changed)
    assert [d.cell for d in found] and {d.cell for d in found} == {cell}, report(found)
