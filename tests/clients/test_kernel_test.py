"""jupyter_kernel_test's suite, for both kernelspecs, with every attribute that applies."""

from __future__ import annotations

import os
import tempfile

import jupyter_kernel_test
import pytest
from harness import fence

pytestmark = pytest.mark.usefixtures("kernels")


class OwnHistory:
    """With a history of its own: what kernels ran in this directory before is no part of the suite's expectations."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.before = os.environ.get("CELLBLOCK_CONVERSATION__FILE")
        os.environ["CELLBLOCK_CONVERSATION__FILE"] = os.path.join(cls.folder.name, "conversations.sqlite")
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        if cls.before is None:
            del os.environ["CELLBLOCK_CONVERSATION__FILE"]
        else:
            os.environ["CELLBLOCK_CONVERSATION__FILE"] = cls.before
        cls.folder.cleanup()


class PythonKernelTests(OwnHistory, jupyter_kernel_test.KernelTests):
    """`cellblock-python`: what is asked of any Python kernel."""

    kernel_name = "cellblock-python"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [
        {"text": "zi", "matches": {"zip"}},
        {"text": "import func", "matches": {"functools"}},
        {"text": "'é𝒳'.upp", "matches": {"upper"}},
        {"text": "%who_"},
    ]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n", "%cb help", ""]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2", "for i in range(3):", "```python\nprint(1)"]
    invalid_code_samples = ["import = 7q", "1 +* 2"]
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('on purpose')"
    code_execute_result = [
        {"code": "6 * 7", "result": "42"},
        {"code": "'text'", "result": "'text'"},
        {"code": "from IPython.display import HTML\nHTML('<b>bold</b>')", "mime": "text/html", "result": "<b>bold</b>"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\frac{1}{2}'))", "mime": "text/latex"},
        {"code": "from IPython.display import Markdown, display; display(Markdown('*a*'))", "mime": "text/markdown"},
        {"code": "from IPython.display import JSON, display; display(JSON({'a': 1}))", "mime": "application/json"},
        {"code": "from IPython.display import SVG, display; display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))", "mime": "image/svg+xml"},
        {"code": "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", "mime": "image/png"},
    ]
    code_history_pattern = "6 ? 7*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


class MarkdownKernelTests(OwnHistory, jupyter_kernel_test.KernelTests):
    """`cellblock`: cells are Markdown, so Python goes into fences."""

    kernel_name = "cellblock"
    language_name = "markdown"
    file_extension = ".md"
    code_hello_world = fence("print('hello, world')")
    code_stderr = fence("import sys; print('test', file=sys.stderr)")
    completion_samples = [
        {"text": "```python\nzi", "matches": {"zip"}},
        {"text": "```pyt"},
        {"text": "%hel"},
        {"text": "é𝒳 ```"},
    ]
    complete_code_samples = ["What is a notebook?", fence("print(1)"), fence("ls", "sh"), "%help", "!ls", "~~~python\n1\n~~~", ""]
    incomplete_code_samples = ["```python\nprint(1)", "~~~sh\nls", "prose\n\n```python"]
    invalid_code_samples: list[str] = []
    code_page_something = fence("zip?")
    code_generate_error = fence("raise ValueError('on purpose')")
    code_execute_result = [
        {"code": fence("6 * 7"), "result": "42"},
        {"code": fence("'text'"), "result": "'text'"},
        {"code": fence("import pandas as pd\npd.DataFrame({'a': [1]})"), "mime": "text/html"},
    ]
    code_display_data = [
        {"code": fence("from IPython.display import HTML, display; display(HTML('<b>test</b>'))"), "mime": "text/html"},
        {"code": fence("from IPython.display import Math, display; display(Math('\\frac{1}{2}'))"), "mime": "text/latex"},
        {"code": fence("import matplotlib.pyplot as plt\nplt.plot([1, 2]);"), "mime": "image/png"},
    ]
    code_history_pattern = "*6 ? 7*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "%help"
    code_clear_output = fence("from IPython.display import clear_output; clear_output()")


class PythonWelcomeTests(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "cellblock-python"
    support_iopub_welcome = True


class MarkdownWelcomeTests(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "cellblock"
    support_iopub_welcome = True
