"""A key, searched for wherever a notebook that used it could have left it."""

from __future__ import annotations

import json
import sqlite3
import subprocess

import nbformat
import pytest
from harness import docker, fence, with_workspace
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from scripted_model import ScriptedModel
from test_nbclient import text

KEY = "sk-NEVER-TO-BE-SEEN-0451"

# Said to the model; `echo` makes the server say the key again, in a reply, in a call and in an error.
CELLS = [
    "%mode auto",
    "Please echo the key.",
    "Please run it.",
    "Please echo the key in an error.",
    "%context",
    "%model",
    "%cost",
    fence("import os\nprint(sorted(os.environ.items()))"),
    fence(
        "cat /proc/self/environ /proc/1/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'\n"
        "echo searched:\ngrep -rlsF 'sk-NEVER''-TO-BE-SEEN' /workspace /session /home /tmp /etc /run /var /dev/shm\ntrue",
        "sh",
    ),
]


@pytest.mark.parametrize("way", ["environment", "command"])
def test_a_key_is_nowhere_that_a_notebook_leaves_anything(kernels, tmp_path, monkeypatch, way):
    folder, config, logs = tmp_path / "book", tmp_path / "config", tmp_path / "logs"
    for path in (config / "cellblock", logs):
        path.mkdir(parents=True)
    with_workspace(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config))
    if way == "command":
        (tmp_path / "vault").write_text(KEY)
        (config / "cellblock" / "config.toml").write_text(f'[model]\napi_key_command = "cat {tmp_path}/vault"\n')
    settings = {
        "CONVERSATION__FILE": logs / "conversations.sqlite", "LOG__EXECUTIONS": "true", "LOG__EXECUTIONS_FILE": logs / "executions.jsonl",
        "LOG__FILTER": "trace", "MODEL__REPLAY": "record",
    }
    with ScriptedModel() as model:
        for name, value in {**model.environment, "CELLBLOCK_MODEL__API_KEY": KEY}.items():
            monkeypatch.setenv(name, value)
        if way == "command":
            monkeypatch.delenv("CELLBLOCK_MODEL__API_KEY")
        for name, value in settings.items():
            monkeypatch.setenv(f"CELLBLOCK_{name}", str(value))
        model.headers = {"x-echo": KEY, "set-cookie": f"key={KEY}", "x-request-id": KEY}
        model.say(f"Your key is {KEY}, and in pieces {KEY[:9]} {KEY[9:]}.")
        model.call("run_code", {"code": f"key = '{KEY}'\nprint(len(key), key)", "language": "python"}, f"With {KEY}:")
        model.say(f"Done with {KEY}.")
        model.fail(400, f"the key {KEY} is odd, see /models?key={KEY}")
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
        manager = KernelManager(kernel_name="cellblock")
        with open(logs / "stderr", "wb") as log:
            client = NotebookClient(book, km=manager, resources={"metadata": {"path": str(folder)}}, timeout=300, allow_errors=True)
            with client.setup_kernel(stdout=log, stderr=log):
                for index, cell in enumerate(book.cells):
                    client.execute_cell(cell, index)
                [container] = [c for c in docker("ps", "-q", "--filter", "label=cellblock=1") if str(folder) in inspected(c)]
                seen = inspected(container)
        nbformat.write(book, folder / "book.ipynb")
        assert not model.planned and all(head["authorization"] == f"Bearer {KEY}" for head in model.heads), "the key was used"

    said = [json.dumps(cell) for cell in book.cells]
    assert "Your key is ***, and in pieces" in said[1] and "is odd" in said[3], said[1:4]
    assert "len(key)" in said[2] and "Done with ***" in said[2], said[2]
    assert "PATH=" in text(book.cells[-1]) and text(book.cells[-1]).endswith("searched:\n"), said[-1]
    with sqlite3.connect(logs / "conversations.sqlite") as store:
        tables = [name for (name,) in store.execute("select name from sqlite_master where type = 'table'")]
        rows = str([store.execute(f'select * from "{name}"').fetchall() for name in tables])
    assert "Done with ***" in rows and "Please run it" in rows
    kept = {str(path.relative_to(tmp_path)): path for path in [*folder.rglob("*"), *logs.rglob("*")] if path.is_file()}
    for name in ("book/replies.jsonl", "book/book.ipynb", "logs/executions.jsonl", "logs/stderr", "logs/conversations.sqlite"):
        assert kept[name].stat().st_size > 100, f"{name} says nothing"
    found = [name for name, path in kept.items() if KEY.encode() in path.read_bytes()]
    assert found == [], f"the key is in {found}"
    assert KEY not in rows and KEY not in seen


def inspected(container: str) -> str:
    return subprocess.run(["docker", "inspect", container], capture_output=True, text=True).stdout
