"""papermill runs notebooks through the kernels: parameters, outputs, exit codes."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest
from harness import fence, with_workspace


def papermill(source, target, kernel: str, *arguments: str, cwd) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "papermill", str(source), str(target), "-k", kernel, "--no-progress-bar", *arguments],
        capture_output=True, text=True, cwd=with_workspace(cwd), timeout=300,
    )


@pytest.fixture
def report(tmp_path):
    """An ordinary notebook with a cell of parameters."""
    book = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        cells=[
            nbformat.v4.new_markdown_cell("# Report"),
            nbformat.v4.new_code_cell("who = 'nobody'\nyears = [1]\nrate = 0.5\nstrict = False", metadata={"tags": ["parameters"]}),
            nbformat.v4.new_code_cell("import pandas as pd\npd.DataFrame({'year': years, 'rate': rate})"),
            nbformat.v4.new_code_cell("print(who, years, rate, strict)"),
            nbformat.v4.new_code_cell("open('report.txt', 'w').write(who)\nassert who != 'error', 'told to fail'"),
            nbformat.v4.new_code_cell("print('after')"),
        ],
    )
    nbformat.write(book, tmp_path / "report.ipynb")
    return tmp_path / "report.ipynb"


def test_parameters_are_injected_and_the_output_is_complete(report, kernels, tmp_path):
    done = papermill(
        report, tmp_path / "out.ipynb", kernels.python, "-p", "who", 'Ada "quoted" ✓', "-y", "{years: [2023, 2024], strict: true}",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    book = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    nbformat.validate(book)
    assert book.metadata.papermill.exception is None
    cells = [c for c in book.cells if c.cell_type == "code"]
    assert "injected-parameters" in cells[1].metadata.tags
    assert cells[3].outputs[0].text == 'Ada "quoted" ✓ [2023, 2024] 0.5 True\n'
    assert "<table" in cells[2].outputs[0].data["text/html"]
    assert cells[5].outputs[0].text == "after\n"
    assert [c.execution_count for c in cells] == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "workspace" / "report.txt").read_text() == 'Ada "quoted" ✓'


def test_an_error_stops_with_exit_code_1_and_keeps_what_was_done(report, kernels, tmp_path):
    done = papermill(report, tmp_path / "out.ipynb", kernels.python, "-p", "who", "error", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "told to fail" in done.stderr
    book = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert book.metadata.papermill.exception is True
    cells = [c for c in book.cells if c.cell_type == "code"]
    failed = next(c for c in cells if any(o.output_type == "error" for o in c.outputs))
    [error] = [output for output in failed.outputs if output.output_type == "error"]
    assert error.ename == "AssertionError" and error.evalue == "told to fail"
    assert not cells[-1].outputs and cells[-1].execution_count is None


def test_a_notebook_of_markdown_cells_runs_through_papermill(kernels, model, tmp_path):
    book = nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell(fence("total = sum(range(10))\ntotal")),
        nbformat.v4.new_code_cell("What does bread need?"),
        nbformat.v4.new_code_cell(fence("echo from the shell", "sh")),
    ], metadata={"kernelspec": {"name": "cellblock", "display_name": "Cellblock", "language": "markdown"}})
    nbformat.write(book, tmp_path / "in.ipynb")
    done = papermill(tmp_path / "in.ipynb", tmp_path / "out.ipynb", kernels.markdown, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    out = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert out.cells[0].outputs[0].data["text/plain"] == "45"
    assert any("flour" in str(o) for o in out.cells[1].outputs)
    assert out.cells[2].outputs[0].text == "from the shell\n"


def test_nbconvert_executes_and_renders(report, kernels, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "nbconvert", "--execute", "--to", "html", f"--ExecutePreprocessor.kernel_name={kernels.python}", str(report)],
        capture_output=True, text=True, cwd=tmp_path, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "nobody [1] 0.5 False" in page and "<th>rate</th>" in page
