"""Cells without IPython: values, rich displays, figures, tracebacks with the cell's own lines.

Two globals come from `worker.py`: `channel`, the module, and `without_us`. Magics and `!` need IPython.
"""

import ast
import asyncio
import builtins
import codeop
import importlib.util
import inspect
import io
import linecache
import os
import re
import rlcompleter
import sys
import traceback
import types
import uuid

REPRESENTATIONS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
)
FIGURES = "_cellblock_figures"


def bundle_of(value):
    """What a value looks like, by MIME type, and the metadata that goes with it."""
    data, metadata = {}, {}
    everything = getattr(type(value), "_repr_mimebundle_", None)
    if everything is not None:
        found = everything(value)
        found, extra = found if isinstance(found, tuple) else (found, {})
        data.update(found or {})
        metadata.update(extra or {})
    for method, mime in REPRESENTATIONS:
        how = getattr(type(value), method, None)
        if how is not None and mime not in data:
            try:
                found = how(value)
            except Exception:
                continue
            if isinstance(found, tuple):
                found, metadata[mime] = found
            if found is not None:
                data[mime] = found
    if "text/plain" not in data:
        data["text/plain"] = repr(value)
    return data, metadata


class Handle:
    """What display(..., display_id=True) returns."""

    def __init__(self, shell, name):
        self._shell, self.display_id = shell, name

    def display(self, value):
        self._shell.display(value, display_id=self.display_id)

    def update(self, value):
        self._shell.display(value, display_id=self.display_id, update=True)


class Figures:
    """Makes matplotlib's backend module when matplotlib first asks for it."""

    def __init__(self, shell):
        self.shell = shell

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == FIGURES else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from matplotlib import backend_bases
        from matplotlib.backends import backend_agg

        module.FigureCanvas = backend_agg.FigureCanvasAgg
        module.FigureManager = backend_bases.FigureManagerBase
        module.show = self.shell.show_figures


class Shell:
    ipython = None

    def __init__(self, session):
        self.session = session
        self.main = types.ModuleType("__main__")
        self.main.__builtins__ = builtins
        self.names = self.main.__dict__
        self.names.update(display=self.display, clear_output=self.clear_output, In=[""], Out={})
        sys.modules["__main__"] = self.main
        sys.meta_path.insert(0, Figures(self))
        os.environ["MPLBACKEND"] = "module://" + FIGURES
        self.hidden = dict(self.names)
        self.store = True
        self.count = 0

    # Showing.

    def display(self, *values, display_id=None, update=False, clear=False, raw=False, metadata=None, **_):
        if clear:
            self.clear_output(wait=True)
        if display_id is True:
            display_id = uuid.uuid4().hex
        for value in values:
            data, extra = (value, {}) if raw else bundle_of(value)
            shown = {"data": data, "metadata": dict(extra, **(metadata or {}))}
            shown.update(display_id=display_id, update=update)
            self.session.show(channel.DISPLAY, channel.encode(shown))
        return Handle(self, display_id) if display_id else None

    def clear_output(self, wait=False):
        self.session.show(channel.CLEAR, channel.encode({"wait": bool(wait)}))

    def result(self, value):
        if value is None:
            return
        data, metadata = bundle_of(value)
        builtins._ = value
        if self.store:
            self.names["Out"][self.count] = value
        self.session.show(channel.RESULT, channel.encode({"data": data, "metadata": metadata}))

    def show_figures(self, *_, **__):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        for number in pyplot.get_fignums():
            figure, image = pyplot.figure(number), io.BytesIO()
            if figure.get_axes() or figure.lines:
                figure.savefig(image, format="png", bbox_inches="tight")
                plain = "<Figure size %dx%d with %d Axes>" % (*figure.get_size_inches() * figure.dpi, len(figure.axes))
                data = {"image/png": image.getvalue(), "text/plain": plain}
                self.display(data, raw=True)
        pyplot.close("all")

    def failure(self, error):
        """The traceback from the cell's first line on, in colours."""
        trace = without_us(error.__traceback__)
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("Cell In["):
            trace = trace.tb_next
        lines = traceback.format_exception(type(error), error, trace)
        if trace is None and isinstance(error, SyntaxError):
            lines = traceback.format_exception_only(type(error), error)
        text = "".join(lines).rstrip("\n").split("\n")
        colour = "\x1b[31m%s\x1b[39m" % text[-1]
        try:
            said = str(error)
        except Exception as e:
            said = "<str() of the exception failed: %s>" % type(e).__name__
        failure = {"ename": type(error).__name__, "evalue": said, "traceback": text[:-1] + [colour]}
        self.session.show(channel.ERROR, channel.encode(failure))
        return failure

    # Running.

    def warm(self):
        pass  # plain tracebacks are quick

    async def run(self, order):
        code, self.count = order["code"], order["count"]
        self.store = order["store_history"] and not order["silent"]
        end = {"status": "ok", "payload": [], "user_expressions": {}}
        if self.store:
            self.names["In"].extend([""] * (self.count + 1 - len(self.names["In"])))
            self.names["In"][self.count] = code
        self.session.take_texts(order.get("texts"), self.names, self.hidden)
        try:
            await self.execute(code, "Cell In[%d]" % self.count, not order["silent"])
            self.show_figures()
        except (Exception, KeyboardInterrupt, SystemExit, asyncio.CancelledError) as e:
            if isinstance(e, asyncio.CancelledError) and self.session.interrupted:
                e = KeyboardInterrupt().with_traceback(e.__traceback__)
            end.update(status="error", error=self.failure(e))
            return end
        for name, expression in order["user_expressions"].items():
            end["user_expressions"][name] = self.evaluate(expression)
        return end

    async def execute(self, code, name, show):
        if re.match(r"\s*(%%?|!)\S", code):
            raise SyntaxError("magics and ! need IPython, which this image does not have")
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        tree = ast.parse(code, name)
        last = None
        if show and tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
            last = ast.Expression(tree.body.pop().value)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        for piece, mode in ((tree, "exec"), (last, "eval")):
            if piece is None:
                continue
            compiled = compile(piece, name, mode, flags=flags, dont_inherit=True)
            if compiled.co_flags & inspect.CO_COROUTINE:
                value = await self.session.cell(eval(compiled, self.names))
            else:
                value = eval(compiled, self.names)
            if mode == "eval":
                self.result(value)

    def evaluate(self, expression):
        try:
            data, metadata = bundle_of(eval(expression, self.names))
            return {"status": "ok", "data": data, "metadata": metadata}
        except (Exception, KeyboardInterrupt, SystemExit) as e:
            trace = traceback.format_exception_only(type(e), e)
            return {"status": "error", "ename": type(e).__name__, "evalue": str(e), "traceback": trace}

    # Asking.

    def variables(self):
        """What the user has defined."""
        return {
            name: value
            for name, value in list(self.names.items())
            if not name.startswith("_") and value is not self.hidden.get(name, self)
        }

    def complete(self, code, cursor):
        word = re.search(r"[\w.]*$", code[:cursor]).group()
        completer, found = rlcompleter.Completer(self.names), []
        while word and len(found) < 500:
            match = completer.complete(word, len(found))
            if match is None:
                break
            found.append(match.rstrip("()"))
        return {
            "matches": sorted(set(found)),
            "cursor_start": cursor - len(word),
            "cursor_end": cursor,
            "metadata": {},
        }

    def inspect(self, code, cursor, detail):
        before = re.search(r"[\w.]*$", code[:cursor]).group()
        word = before + re.match(r"\w*", code[cursor:]).group()
        try:
            value = eval(word, self.names) if word else None
        except Exception:
            return {"found": False}
        if not word:
            return {"found": False}
        text = "%s: %s" % (type(value).__name__, word)
        try:
            text = word + str(inspect.signature(value))
        except (TypeError, ValueError):
            pass
        doc = inspect.getdoc(value) or ""
        if detail:
            try:
                doc = inspect.getsource(value)
            except (OSError, TypeError):
                pass
        return {"found": True, "data": {"text/plain": (text + "\n\n" + doc).strip()}, "metadata": {}}

    def is_complete(self, code):
        try:
            whole = codeop.compile_command(code, "<cell>", "exec")
        except (SyntaxError, OverflowError, ValueError):
            return {"status": "invalid"}
        lines = code.rstrip("\n").split("\n")
        if whole is not None and not (lines[-1].startswith((" ", "\t")) and not code.endswith("\n")):
            return {"status": "complete"}
        indent = re.match(r"\s*", lines[-1]).group() + ("    " if lines[-1].rstrip().endswith(":") else "")
        return {"status": "incomplete", "indent": indent}
