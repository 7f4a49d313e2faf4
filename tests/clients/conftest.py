"""What every test of the clients shares: the binary, its kernelspecs, a scripted model, a watch for leftovers.

The binary comes from `CELLBLOCK_BIN`, else from `target/release` or `target/debug`, whichever is newer. Without
one the tests fail; they never skip. The sandbox image is the one that the user's configuration or
`CELLBLOCK_SANDBOX__IMAGE` names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Kernel, Kernels, Watch
from scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure(config):
    # Jupyter's own chatter about transports says nothing about us.
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    os.environ["PYTHONUNBUFFERED"] = "1"
    # Nobody's own model, key or history takes part.
    for name in list(os.environ):
        if name.startswith("CELLBLOCK_MODEL__") or name.endswith("_API_KEY"):
            del os.environ[name]
    os.environ["CELLBLOCK_MODEL__LOCAL"] = "false"


@pytest.fixture(scope="session")
def binary() -> Path:
    named = os.environ.get("CELLBLOCK_BIN")
    candidates = [Path(named)] if named else [ROOT / "target" / kind / "cellblock" for kind in ("release", "debug")]
    found = [path for path in candidates if os.access(path, os.X_OK)]
    if not found:
        pytest.fail(
            f"there is no cellblock binary at {' or '.join(map(str, candidates))}: build it with `cargo build --release`, "
            "or name it in CELLBLOCK_BIN",
            pytrace=False,
        )
    return max(found, key=lambda path: path.stat().st_mtime).resolve()


@pytest.fixture(scope="session")
def kernels(binary, tmp_path_factory) -> Kernels:
    """The kernelspecs, installed under a prefix of their own where Jupyter finds them first."""
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run([binary, "install", "--prefix", prefix], capture_output=True, text=True)
    assert done.returncode == 0, f"`cellblock install --prefix` failed:\n{done.stdout}{done.stderr}"
    os.environ["JUPYTER_PATH"] = str(prefix / "share" / "jupyter")
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "kernelspec", "list", "--json"], capture_output=True, text=True, check=True
    )
    specs = json.loads(listed.stdout)["kernelspecs"]
    for name in ("cellblock", "cellblock-python"):
        assert name in specs, f"`cellblock install` made no kernelspec {name}; Jupyter knows {sorted(specs)}"
        assert specs[name]["resource_dir"].startswith(str(prefix)), specs[name]
    first_cell(tmp_path_factory.mktemp("warm-up"))
    return Kernels()


def first_cell(folder: Path) -> None:
    """Builds or pulls the sandbox image when it is missing, with all the time that takes."""
    with Kernel("cellblock-python", folder) as kernel:
        ran = kernel.run("6 * 7", timeout=1800)
        assert ran.result == "42", f"no cell runs in the sandbox:\n{ran}"


@pytest.fixture
def model():
    """An OpenAI-compatible server that answers by script; kernels started after it use it."""
    with ScriptedModel() as server:
        before = {name: os.environ.get(name) for name in server.environment}
        os.environ.update(server.environment)
        yield server
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture
def watch(tmp_path):
    """Sees what kernels started with its environment leave behind."""
    watch = Watch(tmp_path)
    yield watch
    watch.clean()


@pytest.fixture(params=["cellblock", "cellblock-python"])
def kernel(request, kernels, tmp_path):
    """A kernel of either flavour; `kernel.python(code)` writes Python in its way."""
    with Kernel(request.param, tmp_path) as started:
        yield started
