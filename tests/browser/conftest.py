"""The binary and its kernelspecs come from tests/clients; the browser and JupyterLab from `lab`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from lab import Beacon, Lab, Notebook, launch
from playwright.sync_api import sync_playwright

CLIENTS = Path(__file__).resolve().parents[1] / "clients"


def load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_clients = load("clients_conftest", CLIENTS / "conftest.py")
pytest_configure = _clients.pytest_configure
binary = _clients.binary
kernels = _clients.kernels
model = _clients.model


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def beacon():
    with Beacon() as beacon:
        yield beacon


@pytest.fixture
def lab(tmp_path):
    """JupyterLab; a kernel's environment is what `os.environ` is when it starts."""
    lab = Lab(tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def opened(lab, browser):
    """Writes a notebook, opens it, runs all of it."""
    notebooks = []

    def open_and_run(kernel: str, cells: list[str]) -> Notebook:
        notebook = Notebook(lab, browser, lab.write(f"{kernel}.ipynb", kernel, cells))
        notebooks.append(notebook)
        notebook.run()
        return notebook

    yield open_and_run
    for notebook in notebooks:
        notebook.close()
