"""What nbclient (and with it nbconvert, papermill, Voilà) needs of a kernel, and what cells show in it."""

from __future__ import annotations

import threading
import time

import nbformat
import pytest
from comparing import ANSI
from harness import Kernel, fence, with_workspace
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

FLAVOURS = ["cellblock", "cellblock-python"]


def notebook(*sources: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])


def python(kernel: str, code: str) -> str:
    return fence(code) if kernel == "cellblock" else code


def shell(kernel: str, code: str) -> str:
    return fence(code, "sh") if kernel == "cellblock" else f"%%sh\n{code}"


def client_of(book, kernel, folder, **options) -> NotebookClient:
    return NotebookClient(
        book, kernel_name=kernel, resources={"metadata": {"path": str(with_workspace(folder))}}, startup_timeout=120,
        **{"timeout": 120, **options},
    )


def text(cell) -> str:
    return "".join(o.text for o in cell.outputs if o.output_type == "stream")


@pytest.mark.parametrize("name", FLAVOURS)
def test_cells_share_state_and_give_results(name, kernels, tmp_path):
    book = notebook(
        python(name, "import numpy as np\nvalues = np.arange(5)"),
        python(name, "print('sum', values.sum())\nvalues * 2"),
        python(name, "open('made.txt', 'w').write('by the cell');"),
    )
    client_of(book, name, tmp_path).execute()
    assert [o.output_type for o in book.cells[1].outputs] == ["stream", "execute_result"]
    assert book.cells[1].outputs[0].text == "sum 10\n"
    assert book.cells[1].outputs[1].data["text/plain"] == "array([0, 2, 4, 6, 8])"
    assert (tmp_path / "workspace" / "made.txt").read_text() == "by the cell"


def test_fences_of_one_cell_run_in_order_until_one_fails(kernels, tmp_path):
    book = notebook(
        fence("print('one')") + "\n\n" + fence("echo two", "sh") + "\n\n" + fence("exit 3", "sh") + "\n\n" + fence("print('never')")
    )
    with pytest.raises(CellExecutionError) as failed:
        client_of(book, "cellblock", tmp_path).execute()
    assert text(book.cells[0]).split() == ["one", "two"]
    assert "3" in str(failed.value.evalue)


def test_both_streams_keep_their_order(kernel):
    """ipykernel does not do that; a log and the error beside it are worth more in order."""
    ran = kernel.run(kernel.python("import sys\nfor n in range(4):\n    print('out', n)\n    print('err', n, file=sys.stderr)"))
    order = [(m["content"]["name"][3:], line) for m in ran.messages for line in m["content"]["text"].splitlines()]
    assert order == [(kind, f"{kind} {n}") for n in range(4) for kind in ("out", "err")], str(ran)


def test_output_arrives_while_the_cell_runs(kernel):
    """The cell goes on only after its first line was seen here."""
    for code in (
        kernel.python("import os, time\nprint('first')\nwhile not os.path.exists('seen-py'): time.sleep(0.02)\nprint('second')"),
        kernel.shell("echo first\nuntil [ -e seen-sh ]; do sleep 0.05; done\necho second"),
    ):
        request = kernel.client.execute(code)
        ran = kernel.until(request, lambda ran: "first" in ran.stdout)
        (kernel.folder / "workspace" / ("seen-py" if "seen-py" in code else "seen-sh")).touch()
        ran = kernel.finish(request, ran=ran)
        assert ran.stdout == "first\nsecond\n", str(ran)


@pytest.mark.parametrize("name", FLAVOURS)
def test_an_error_fails_its_cell_and_keeps_its_output(name, kernels, tmp_path):
    book = notebook(python(name, "print('before')\n1 / 0"), python(name, "print('never')"))
    with pytest.raises(CellExecutionError) as failed:
        client_of(book, name, tmp_path).execute()
    assert failed.value.ename == "ZeroDivisionError"
    assert text(book.cells[0]) == "before\n"
    # A line about the block may follow, where its start took long.
    [error] = [output for output in book.cells[0].outputs if output.output_type == "error"]
    assert "1 / 0" in ANSI.sub("", "\n".join(error.traceback))
    assert book.cells[1].execution_count is None


def test_a_traceback_points_at_the_lines_that_raised(kernel):
    code = "def load():\n    try:\n        return int('x')\n    except ValueError as e:\n        raise LookupError('no') from e\n\nload()"
    ran = kernel.run(kernel.python(code))
    [error] = [message["content"] for message in ran.messages if message["msg_type"] == "error"]
    trace = ANSI.sub("", "\n".join(error["traceback"]))
    arrows = [line.split(None, 2)[1:] for line in trace.splitlines() if line.startswith("--") and ">" in line]
    assert arrows == [["3", "return int('x')"], ["7", "load()"], ["5", "raise LookupError('no') from e"]], trace


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_failing_shell_block_fails_its_cell_and_names_the_code(name, kernels, tmp_path):
    book = notebook(shell(name, "echo on stdout\necho on stderr >&2\nexit 7"))
    with pytest.raises(CellExecutionError) as failed:
        client_of(book, name, tmp_path).execute()
    assert "7" in failed.value.evalue
    assert "on stdout" in text(book.cells[0]) and "on stderr" in text(book.cells[0])


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_timeout_interrupts_the_cell_and_the_next_one_runs(name, kernels, tmp_path):
    book = notebook(
        python(name, "kept = 5\nprint('started', flush=True)\nwhile True: pass"), python(name, "print('alive', kept)")
    )
    client_of(book, name, tmp_path, timeout=5, interrupt_on_timeout=True, allow_errors=True).execute()
    assert text(book.cells[0]) == "started\n"
    assert [output.ename for output in book.cells[0].outputs if output.output_type == "error"] == ["KeyboardInterrupt"]
    assert text(book.cells[1]) == "alive 5\n"


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_dead_kernel_is_noticed(name, kernels, tmp_path):
    """SIGKILL in the middle of a cell."""
    book = notebook(python(name, "import time\nopen('started', 'w').close()\ntime.sleep(600)"))
    client = client_of(book, name, tmp_path)

    def kill() -> None:
        while not (tmp_path / "workspace" / "started").exists():
            time.sleep(0.05)
        client.km.provisioner.process.kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(DeadKernelError):
        client.execute()


@pytest.mark.parametrize("death", ["import os; os._exit(9)", "import ctypes; ctypes.string_at(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"],
                         ids=["exit", "segfault", "killed"])
def test_a_dead_python_session_is_an_error_and_the_next_cell_works(death, kernel):
    assert kernel.run(kernel.python("kept = 1\nopen('file.txt', 'w').write('still here');")).status == "ok"
    ran = kernel.run(kernel.python("print('last words', flush=True)\n" + death))
    assert ran.status == "error" and ran.error, str(ran)
    assert "last words" in ran.stdout, str(ran)
    assert "lost" in f"{ran.error} {ran.stderr}".lower(), f"it does not say what was lost:\n{ran}"
    after = kernel.run(kernel.python("print(open('file.txt').read(), 'kept' in globals())"))
    assert after.stdout == "still here False\n", str(after)


def test_cells_queued_behind_an_error_are_cancelled(kernel):
    requests = [kernel.client.execute(kernel.python(code)) for code in ("import time; time.sleep(1); 1 / 0", "print('never')", "2")]
    ran = [kernel.finish(request) for request in requests]
    assert [r.status for r in ran] == ["error"] * 3, "\n".join(map(str, ran))
    assert ran[0].error.startswith("ZeroDivisionError")
    assert not ran[1].stdout and ran[2].result is None
    assert kernel.run(kernel.python("'alive'")).result == "'alive'"


def test_without_stop_on_error_queued_cells_run(kernel):
    first = kernel.client.execute(kernel.python("import time; time.sleep(0.5); 1 / 0"), stop_on_error=False)
    second = kernel.client.execute(kernel.python("print('still')"))
    assert kernel.finish(first).status == "error"
    assert kernel.finish(second).stdout == "still\n"


def test_input_is_asked_of_the_front_end(kernel):
    request = kernel.client.execute(kernel.python("name = input('name? ')\nprint('hello', name)"), allow_stdin=True)
    question = kernel.client.get_stdin_msg(timeout=60)
    assert question["content"] == {"prompt": "name? ", "password": False}
    kernel.client.input("Ada ✓")
    assert kernel.finish(request).stdout == "hello Ada ✓\n"

    request = kernel.client.execute(kernel.python("import getpass\nprint(len(getpass.getpass('secret: ')))"), allow_stdin=True)
    question = kernel.client.get_stdin_msg(timeout=60)
    assert question["content"] == {"prompt": "secret: ", "password": True}
    kernel.client.input("four")
    assert kernel.finish(request).stdout == "4\n"


def test_input_without_stdin_is_a_clear_error(kernel):
    ran = kernel.run(kernel.python("print('before')\ninput('name? ')"), allow_stdin=False)
    assert ran.status == "error" and "input" in ran.error, str(ran)
    assert ran.stdout == "before\n"


def test_displays_are_updated_and_cleared(kernels, tmp_path):
    book = notebook(
        "from IPython.display import display, clear_output\nh = display('one', display_id='x')",
        "h.update('two')\nprint('gone')\nclear_output()\nprint('stays')",
    )
    client_of(book, kernels.python, tmp_path).execute()
    assert book.cells[0].outputs[0].data["text/plain"] == "'two'"
    assert text(book.cells[1]) == "stays\n"


def test_prose_is_answered_by_the_model(kernels, model, tmp_path):
    book = notebook("What does bread need?", fence("print('code beside it')") + "\n\nWhat does this print?")
    client_of(book, kernels.markdown, tmp_path).execute()
    assert model_text(book.cells[0]) == "Bread needs **flour**, water, salt and *time*: about 18 hours."
    assert "text/plain" in book.cells[0].outputs[-1].data
    assert text(book.cells[1]) == "code beside it\n" and model_text(book.cells[1])
    asked = str(model.requests[-1]["messages"])
    assert "code beside it" in asked, "the model was not told what the code printed"


def model_text(cell) -> str:
    return "".join(o.data.get("text/markdown", "") for o in cell.outputs if o.output_type == "display_data").strip()


def test_a_model_that_refuses_fails_the_cell_with_its_own_words(kernels, model, tmp_path):
    book = notebook("Please fail now.")
    with pytest.raises(CellExecutionError) as failed:
        client_of(book, kernels.markdown, tmp_path).execute()
    assert "the key is wrong" in f"{failed.value.evalue} {failed.value.traceback}"


def test_a_long_reply_is_shown_whole(kernels, model, tmp_path):
    with Kernel(kernels.markdown, tmp_path / "kernel") as kernel:
        ran = kernel.run("Please count 3000 for me.")
    whole = "".join(ran.shown()) or ran.stdout
    assert [int(n) for n in whole.split()] == list(range(1, 3001)), str(ran)[-2000:]


def test_without_a_model_code_still_runs_and_prose_says_what_to_do(kernels, tmp_path):
    with Kernel(kernels.markdown, tmp_path / "kernel", env={"CELLBLOCK_MODEL__BASE_URL": "http://127.0.0.1:9/v1", "CELLBLOCK_MODEL__NAME": "openai/none"}) as kernel:
        assert kernel.run(fence("1 + 1")).result == "2"
        ran = kernel.run("Hello?")
        assert ran.status == "error" and "127.0.0.1:9" in f"{ran.error} {ran.reply}", str(ran)


def test_our_magics_answer_in_both_kernels(kernel):
    ours = "%" if kernel.name == "cellblock" else "%cb "
    for order, answer in [("reset", "begin afresh"), ("reset chat", "conversation begins"), ("help chat", "`%%chat`")]:
        ran = kernel.run(ours + order)
        assert ran.status == "ok" and answer in "".join(ran.shown()), str(ran)
