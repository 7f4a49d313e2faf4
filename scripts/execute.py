"""Execute a notebook through nbclient and show what its cells show, while they run."""

import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def show(cell):
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            text = output.text
        elif output.output_type == "error":
            text = "\n".join(output.traceback)
        else:
            text = output.data.get("text/plain", "")
            if "image/png" in output.data:
                text += "  [an image]"
        for line in text.rstrip().splitlines():
            print("    " + line, flush=True)


def main():
    source, target = sys.argv[1:3]
    notebook = nbformat.read(source, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def started(cell, cell_index):
        number = cells.index(cell) + 1
        first = next((line for line in cell.source.splitlines() if line.strip()), "")
        print(f"  cell {number} of {len(cells)}: {first}", flush=True)

    def executed(cell, cell_index, execute_reply):
        show(cell)

    client = NotebookClient(
        notebook,
        timeout=600,
        on_cell_execute=started,
        on_cell_executed=executed,
    )
    try:
        client.execute()
    except CellExecutionError as error:
        sys.exit(f"error: the notebook stopped at a failing cell\n{error}")
    finally:
        nbformat.write(notebook, target)


main()
