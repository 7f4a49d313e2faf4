"""The model at work, as clients see it: outputs in order, the question at the prompt, no input at all."""

from __future__ import annotations

import json

import pytest
from harness import Kernel
from test_nbclient import client_of, notebook, text

CODE = "total = 6 * 7\nprint('total', total)"


@pytest.fixture
def agent(model, kernels, tmp_path):
    """A kernel with a model, as JupyterLab starts it."""
    with Kernel("cellblock", tmp_path) as kernel:
        yield kernel


def markdown(output) -> str:
    return "".join(output.data.get("text/markdown", "")) if output.output_type == "display_data" else ""


def test_auto_through_nbclient_has_prose_code_output_and_prose_in_order(model, kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("CELLBLOCK_AGENT__MODE", "auto")
    book = notebook(f"Now please run {CODE}", "```python\nprint(total + 1)\n```")
    client_of(book, "cellblock", tmp_path).execute()
    outputs = book.cells[0].outputs
    shown = [text_or_markdown for output in outputs if (text_or_markdown := output.get("text") or markdown(output))]
    said = "\n".join(shown)
    order = [said.index(part) for part in ("Let me see.", "print('total', total)", "total 42\n", "Done: the model has seen it.")]
    assert order == sorted(order), said
    assert not any(output.output_type == "error" for output in outputs), outputs
    assert text(book.cells[1]) == "43\n", "its variables are there afterwards"
    result = next(message for message in model.requests[1]["messages"] if message["role"] == "tool")
    assert "total 42" in str(result["content"])


def test_a_failure_that_the_model_sees_is_no_error_output(model, kernels, tmp_path, monkeypatch):
    """papermill takes every output of the type `error` for the end of the notebook."""
    monkeypatch.setenv("CELLBLOCK_AGENT__MODE", "auto")
    book = notebook("please run 1 / 0")
    client_of(book, "cellblock", tmp_path).execute()
    assert not any(output.output_type == "error" for output in book.cells[0].outputs)
    assert "ZeroDivisionError" in text(book.cells[0])


@pytest.mark.parametrize("name", ["gpt-4o", "some-coder"])
def test_a_model_that_sees_is_shown_what_its_code_drew(model, kernels, tmp_path, monkeypatch, name):
    monkeypatch.setenv("CELLBLOCK_AGENT__MODE", "auto")
    monkeypatch.setenv("CELLBLOCK_MODEL__NAME", f"openai/{name}")
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 2])\nplt.savefig('/session/artifacts/plot.png')\nplt.show()"
    model.call("run_code", {"code": plot, "language": "python"})
    book = notebook("Draw something.")
    client_of(book, "cellblock", tmp_path).execute()
    [drawn] = [o.data["image/png"] for o in book.cells[0].outputs if "image/png" in o.get("data", {})]
    sent = json.dumps(model.requests[1]["messages"])
    assert "[shown to the user: 1 image/png]" in sent and "plot.png" in sent
    assert sent.count("data:image/png;base64,") == sent.count(drawn.replace("\n", "")) == (1 if name == "gpt-4o" else 0)


def test_without_input_the_model_only_answers(model, kernels, tmp_path):
    book = notebook(f"please run {CODE}")
    client_of(book, "cellblock", tmp_path).execute()
    assert "tools" not in model.requests[0]
    assert "total 42" not in text(book.cells[0])


def test_confirm_without_input_refuses_and_says_so(model, kernels, tmp_path, monkeypatch):
    monkeypatch.setenv("CELLBLOCK_AGENT__MODE", "confirm")
    book = notebook(f"please run {CODE}")
    client_of(book, "cellblock", tmp_path).execute()
    said = str(book.cells[0].outputs)
    assert "total 42" not in text(book.cells[0]) and "this front end can't ask" in said, said


def test_each_call_is_confirmed_at_the_prompt(agent):
    request = agent.client.execute(f"please run {CODE}", allow_stdin=True)
    question = agent.client.get_stdin_msg(timeout=120)["content"]
    assert question["prompt"] == "Run the model's python code in the container python? [yes / no / edit / always]: "
    agent.client.input("yes")
    ran = agent.finish(request)
    assert ran.status == "ok" and "\ntotal 42\n" in ran.stdout, str(ran)


def test_a_no_reaches_the_model_and_nothing_runs(agent, model):
    request = agent.client.execute(f"please run {CODE}", allow_stdin=True)
    agent.client.get_stdin_msg(timeout=120)
    agent.client.input("no, use the other file")
    ran = agent.finish(request)
    assert ran.status == "ok" and "total 42" not in ran.stdout, str(ran)
    assert "use the other file" in str(model.requests[1]["messages"][-1]["content"])


def test_an_interrupt_at_the_question_ends_the_cell(agent):
    request = agent.client.execute(f"please run {CODE}", allow_stdin=True)
    agent.client.get_stdin_msg(timeout=120)
    agent.manager.interrupt_kernel()
    ran = agent.finish(request)
    assert ran.error and ran.error.startswith("KeyboardInterrupt") and "total 42" not in ran.stdout, str(ran)
    assert agent.run("```python\nprint('alive')\n```").stdout == "alive\n"
