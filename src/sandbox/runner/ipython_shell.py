"""Cells through IPython (versions 7 to 9): what ipykernel shows, without ipykernel.

Two globals come from `worker.py`: `channel`, the module, and `without_us`.
"""

import asyncio
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys

from IPython.core import release
from IPython.core.autocall import ExitAutocall
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError, UsageError
from IPython.core.page import as_hook
from IPython.core.interactiveshell import InteractiveShell, InteractiveShellABC
from IPython.utils.tokenutil import token_at_cursor
from traitlets import Instance, Type, default
from traitlets.config import Config

OUR_FRAME = re.compile(r"(?:\x1b\[[0-9;]*m)*File (?:\x1b\[[0-9;]*m)*<cellblock ")
WIDGET = "application/vnd.jupyter.widget-view+json"


class Hook(DisplayHook):
    """The value of the last expression."""

    bundle = None

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self.bundle = {"data": format_dict, "metadata": md_dict or {}}

    def finish_displayhook(self):
        bundle, self.bundle = self.bundle, None
        if bundle and bundle["data"]:
            self.shell.session.show(channel.RESULT, channel.encode(self.shell.without_widgets(bundle)))
        if hasattr(self, "_is_active"):
            self._is_active = False


class Publisher(DisplayPublisher):
    """display() and clear_output()."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        bundle = {
            "data": data,
            "metadata": metadata or {},
            "display_id": (transient or {}).get("display_id"),
            "update": bool(update),
        }
        self.shell.session.show(channel.DISPLAY, channel.encode(self.shell.without_widgets(bundle)))

    def clear_output(self, wait=False):
        self.shell.session.show(channel.CLEAR, channel.encode({"wait": bool(wait)}))


class Exit(ExitAutocall):
    """`exit` and `quit`, which may be given a status as in any Python."""

    def __call__(self, keep_kernel=False):
        self._ip.ask_exit()


class ZMQInteractiveShell(InteractiveShell):
    """Named like ipykernel's shell: libraries look at the name to know that they are in a notebook."""

    # pandas looks whether there is such an attribute, and sizes its tables for a terminal otherwise.
    kernel = None
    exiter = Instance(Exit)

    @default("exiter")
    def _exiter(self):
        return Exit(self)

    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    session = None
    failed = None  # the last exception shown, as the protocol says it
    failed_in_hook = False
    told_of_widgets = False

    def init_virtualenv(self):
        pass

    def _tee(self, channel):
        """IPython 9 keeps all that a cell prints for %notebook: too much for a session that may print gigabytes."""
        return contextlib.nullcontext()

    def init_hooks(self):
        super().init_hooks()
        self.set_hook("show_in_pager", as_hook(self.page), 99)

    def page(self, text, start=0, screen_lines=0, pager_cmd=None):
        data = text if isinstance(text, dict) else {"text/plain": text}
        self.payload_manager.write_payload({"source": "page", "data": data, "start": max(0, start)})

    def set_next_input(self, s, replace=False):
        self.payload_manager.write_payload({"source": "set_next_input", "text": s, "replace": replace})

    def ask_exit(self):
        self.payload_manager.write_payload({"source": "ask_exit", "keepkernel": False})

    def enable_gui(self, gui=None):
        if gui not in (None, "inline", "agg", "none"):
            raise UsageError("there is no display in the sandbox for the %r event loop" % gui)

    def without_widgets(self, bundle):
        """Comms are refused, so a widget would stay blank: its text stays, and a remark says why."""
        if WIDGET in bundle["data"]:
            bundle = dict(bundle, data={k: v for k, v in bundle["data"].items() if k != WIDGET})
            if not self.told_of_widgets:
                self.told_of_widgets = True
                sys.stderr.write("Interactive widgets are switched off in this sandbox; their text is shown.\n")
        return bundle

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        kind, error, trace = sys.exc_info() if exc_tuple is None else exc_tuple
        if kind is not None and exc_tuple is None:
            if self.session.interrupted and issubclass(kind, asyncio.CancelledError):
                kind, error = KeyboardInterrupt, KeyboardInterrupt()  # how a waiting coroutine is interrupted
            exc_tuple = (kind, error, without_us(trace))
        self.session.unwinding = True
        try:
            return super().showtraceback(exc_tuple, *args, **kwargs)
        finally:
            self.session.unwinding = False

    def _showtraceback(self, etype, evalue, stb):
        try:
            text = str(evalue)
        except Exception as e:
            text = "<str() of the exception failed: %s>" % type(e).__name__
        # The frames of this very file say nothing to who wrote the cell.
        stb = [part for part in stb if not OUR_FRAME.match(part)]
        self.failed = {"ename": etype.__name__, "evalue": text, "traceback": stb}
        if self.displayhook.bundle is not None or getattr(self.displayhook, "_is_active", False):
            self.failed_in_hook = True
        self._last_traceback = stb
        self.session.show(channel.ERROR, channel.encode(self.failed))

    def system_piped(self, cmd):
        """`!cmd`: on a terminal, as in a notebook, its output shown while it runs."""
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        code = run_on_terminal(self.var_expand(cmd, depth=1))
        self.user_ns["_exit_code"] = code
        if code and getattr(self, "system_raise_on_error", False):
            raise subprocess.CalledProcessError(code, cmd)

    system = system_piped


InteractiveShellABC.register(ZMQInteractiveShell)


def terminal():
    """The two ends of a terminal 80 columns wide that leaves line ends alone; pipes where there is none."""
    import fcntl
    import struct
    import termios

    try:
        ours, theirs = os.openpty()
        mode = termios.tcgetattr(theirs)
        mode[1] &= ~termios.ONLCR
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        return ours, theirs
    except (OSError, termios.error):
        return os.pipe()


def run_on_terminal(cmd):
    import codecs

    ours, theirs = terminal()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    try:
        try:
            shell = os.environ.get("SHELL") or "/bin/sh"
            child = subprocess.Popen(
                cmd, shell=True, executable=shell, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
            )
        finally:
            os.close(theirs)
        try:
            ended = False
            while True:
                if not select.select([ours], [], [], 0.02 if ended else 0.2)[0]:
                    if ended:
                        break  # something it left behind still holds the terminal
                    ended = child.poll() is not None
                    continue
                try:
                    data = os.read(ours, 1 << 16)
                except OSError:  # EIO: nobody holds the other end
                    data = b""
                if not data:
                    break
                sys.stdout.write(decode(data))
            sys.stdout.write(decode(b"", True))
            code = child.wait()
        except BaseException:
            # The interrupt reached the child as well: it is in our process group.
            for number, grace in ((0, 0.3), (signal.SIGTERM, 0.2), (signal.SIGKILL, 1.0)):
                if number:
                    child.send_signal(number)
                try:
                    child.wait(grace)
                    break
                except subprocess.TimeoutExpired:
                    continue
            raise
    finally:
        os.close(ours)
    return code if code >= 0 else 128 - code


def furnish(home, skeleton="/opt/cellblock/skel"):
    """Puts into an empty home what the image keeps for it, such as matplotlib's list of fonts."""
    try:
        if os.path.isdir(skeleton):
            shutil.copytree(skeleton, home, dirs_exist_ok=True)
    except OSError:
        pass  # A home that takes nothing is slower, no more.


class Shell:
    ipython = release.version

    def __init__(self, session):
        self.session = session
        session.no_stdin = StdinNotImplementedError
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        os.environ.update(CLICOLOR="1", FORCE_COLOR="1", CLICOLOR_FORCE="1")
        furnish(os.path.expanduser("~"))
        if not os.access(os.path.expanduser("~"), os.W_OK):
            os.environ.setdefault("IPYTHONDIR", os.path.join(os.environ.get("TMPDIR", "/tmp"), ".ipython"))
        config = Config()
        config.HistoryManager.hist_file = ":memory:"
        ZMQInteractiveShell.session = session
        self.shell = ZMQInteractiveShell.instance(config=config)

    def warm(self):
        try:
            exec(compile("1 / 0", self.shell.compile.cache("1 / 0"), "exec"))
        except ZeroDivisionError:
            self.shell.InteractiveTB.structured_traceback(*sys.exc_info())

    async def run(self, order):
        shell, code, silent = self.shell, order["code"], order["silent"]
        store = order["store_history"] and not silent
        if not silent:
            shell.execution_count = max(1, order["count"])
            for past in (shell.history_manager.input_hist_parsed, shell.history_manager.input_hist_raw):
                # Cells that were not Python leave gaps: In[n] is still what cell n ran.
                past.extend([""] * (order["count"] - len(past)))
        self.session.take_texts(order.get("texts"), shell.user_ns, shell.user_ns_hidden)
        shell.failed, shell.failed_in_hook = None, False
        result, error = None, None
        try:
            trouble = None
            try:
                cell = shell.transform_cell(code)
            except Exception:
                cell, trouble = code, sys.exc_info()
            how = {"transformed_cell": cell, "preprocessing_exc_tuple": trouble}
            if shell.should_run_async(code, **how):
                try:
                    result = await self.session.cell(
                        shell.run_cell_async(code, store_history=store, silent=silent, **how)
                    )
                finally:
                    shell.events.trigger("post_execute")
                    if not silent:
                        shell.events.trigger("post_run_cell", result)
            else:
                result = shell.run_cell(code, store_history=store, silent=silent)
        except (Exception, KeyboardInterrupt, SystemExit, asyncio.CancelledError) as e:
            error = e
            if shell.failed is None:
                shell.showtraceback()
        if result is not None:
            error = result.error_before_exec if result.error_before_exec is not None else result.error_in_exec
        end = {"status": "ok", "user_expressions": {}}
        if error is not None or result is None or shell.failed_in_hook:
            end["status"] = "error"
            end["error"] = shell.failed or {
                "ename": type(error).__name__,
                "evalue": str(error),
                "traceback": [],
            }
        elif order["user_expressions"]:
            end["user_expressions"] = shell.user_expressions(order["user_expressions"])
        end["payload"] = shell.payload_manager.read_payload()
        shell.payload_manager.clear_payload()
        return end

    def variables(self):
        """What the user has defined."""
        hidden, nothing = self.shell.user_ns_hidden, object()
        return {
            name: value
            for name, value in list(self.shell.user_ns.items())
            if not name.startswith("_") and value is not hidden.get(name, nothing)
        }

    def complete(self, code, cursor):
        with provisionalcompleter():
            found = list(rectify_completions(code, self.shell.Completer.completions(code, cursor)))
        types = [
            {"start": c.start, "end": c.end, "text": c.text, "type": c.type, "signature": c.signature}
            for c in found
        ]
        return {
            "matches": [c.text for c in found],
            "cursor_start": found[0].start if found else cursor,
            "cursor_end": found[0].end if found else cursor,
            "metadata": {"_jupyter_types_experimental": types},
        }

    def inspect(self, code, cursor, detail):
        try:
            data = self.shell.object_inspect_mime(token_at_cursor(code, cursor), detail_level=detail)
        except KeyError:
            return {"found": False}
        if not self.shell.enable_html_pager:
            data.pop("text/html", None)
        return {"found": True, "data": data, "metadata": {}}

    def is_complete(self, code):
        status, spaces = self.shell.input_transformer_manager.check_complete(code)
        return {"status": status, "indent": " " * (spaces or 0)}
