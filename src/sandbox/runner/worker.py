"""The Python session: its channel to the supervisor, its streams, its questions, its loop.

Standard library only, Python 3.8 or newer. Guest code runs in this process, so nothing here is a
defence: the supervisor and the host check whatever comes out. What a cell means is in `ipython_shell.py`,
or in `plain_shell.py` when the image has no IPython.
"""

import asyncio
import builtins
import ctypes
import faulthandler
import fcntl
import io
import json
import os
import resource
import select
import signal
import sys
import threading
import types

def load(name, **names):
    """One of the texts that came with this one, as a module."""
    module = types.ModuleType("_cellblock_" + name)
    module.__dict__.update(names)
    sys.modules[module.__name__] = module
    exec(compile(SOURCES[name], "<cellblock %s>" % name, "exec"), module.__dict__)
    return module


channel = load("channel")
from _cellblock_channel import CHILD, DONE, HEADER, INPUT, MAX, PYTHON, READY, REPLY, REQUEST, STDERR, STDOUT
from _cellblock_channel import Channel, Stream, encode


class StdinNotImplementedError(NotImplementedError):
    """input() where the front end takes none; IPython's own class when there is IPython."""


def without_us(trace):
    """A traceback that ends in the guest's code, not in the signal handler or input() here."""
    last, at = None, trace
    while at is not None:
        if not at.tb_frame.f_code.co_filename.startswith("<cellblock"):
            last = at
        at = at.tb_next
    if last is not None:
        last.tb_next = None
    return trace


class Session:
    """What the two shells share: showing, asking, interrupts."""

    def __init__(self):
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for fd in (3, 4, 5)]
        for fd in (3, 4, 5):
            os.close(fd)
        self.commands, control, self.replies = ends
        self.channel = Channel(control)
        self.show = self.channel.send
        self.inbox = bytearray()
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.running = 0  # the number of the run in progress, 0: none
        self.runs = 0
        self.cells = 0
        self.task = None  # the cell, while it is a coroutine
        self.interrupted = False
        self.unwinding = False  # an error is being put into words: a second interrupt would spoil it
        self.allow_stdin = False
        self.asking = threading.Lock()
        self.asked = 0
        self.no_stdin = StdinNotImplementedError
        self.texts_version, self.texts_ours = None, {}
        self.answers = b""
        self.shell = None
        self.libc_stdout = None
        self.given = None  # what stands for the user's answers in this run
        self.nothing = None  # the standard input of all others
        try:
            self.memory = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self.memory = None
        self.before = None

    def take_texts(self, texts, names, hidden):
        """Puts texts of the kernel into the user's names: data, never code. What the user assigned stays theirs."""
        if not texts or texts["version"] == self.texts_version:
            return
        self.texts_version = texts["version"]
        for value in texts["values"]:
            name, text = value["name"], value["text"]
            if value["replace"]:
                self.texts_ours.pop(name, None)
                hidden.pop(name, None)
                names[name] = text
            elif name not in names or names[name] is self.texts_ours.get(name, self):
                names[name] = self.texts_ours[name] = hidden[name] = text

    # Questions.

    def ask(self, prompt, password):
        run = self.running
        if self.given is not None:
            sys.stdout.write(prompt)
            line = self.given.readline()
            if not line:
                raise EOFError("EOF when reading a line")
            return line[:-1] if line.endswith("\n") else line
        if not self.allow_stdin or not run:
            raise self.no_stdin("input was asked for, but this front end does not support input requests")
        with self.asking:
            self.asked += 1
            asked = self.asked
            self.show(INPUT, encode({"prompt": prompt, "password": password, "seq": asked}))
            while True:
                if run != self.running:
                    raise EOFError("the cell that asked is over")
                if not select.select([self.replies], [], [], 0.5)[0]:
                    continue
                self.answers += os.read(self.replies, 1 << 16)
                *lines, self.answers = self.answers.split(b"\n")
                for line in lines:
                    try:
                        answer = json.loads(line)
                    except ValueError:
                        continue  # blank, or cut by an interrupt
                    if answer.get("seq") == asked:
                        return self.answer(answer)

    def answer(self, answer):
        if "value" in answer:
            return answer["value"]
        if answer.get("error") == "eof":
            raise EOFError("EOF when reading a line")
        if answer.get("error") == "interrupted":
            raise KeyboardInterrupt
        raise self.no_stdin("input was asked for, but this front end does not support input requests")

    def input(self, prompt="", /):
        return self.ask(str(prompt), False)

    def getpass(self, prompt="Password: ", stream=None, **_):
        return self.ask(str(prompt), True)

    # Interrupts.

    def on_interrupt(self, *_):
        """SIGINT: nothing between runs; a waiting coroutine is cancelled, all else raises."""
        if not self.running or self.unwinding:
            return
        self.interrupted = True
        if self.task is not None and asyncio.current_task(self.loop) is not self.task:
            self.loop.call_soon_threadsafe(self.task.cancel)
            return
        raise KeyboardInterrupt

    async def cell(self, coroutine):
        """Awaits a cell that is a coroutine, so that an interrupt ends it and not the loop."""
        self.task = self.loop.create_task(coroutine)
        try:
            return await self.task
        finally:
            self.task = None

    # The loop.

    def start(self):
        sys.stdout = Stream(self.channel, STDOUT, "<stdout>")
        sys.stderr = Stream(self.channel, STDERR, "<stderr>")
        self.before_children()
        try:
            faulthandler.enable(2)  # a crash leaves its traceback on descriptor 2
        except (OSError, ValueError, RuntimeError):
            pass
        try:
            libc = ctypes.CDLL(None)
            self.libc_stdout = ctypes.c_void_p.in_dll(libc, "stdout")
            libc.setvbuf(self.libc_stdout, None, 1, 0)  # line by line, though it is a pipe
            self.fflush = libc.fflush
        except (OSError, AttributeError, ValueError):
            self.libc_stdout = None
        sys.argv[:] = [""]
        self.nothing = sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding="utf-8")
        builtins.input = self.input
        import getpass

        getpass.getpass = self.getpass
        try:
            self.shell = load("ipython_shell", channel=channel, without_us=without_us).Shell(self)
        except ImportError:
            self.shell = load("plain_shell", channel=channel, without_us=without_us).Shell(self)
        signal.signal(signal.SIGINT, self.on_interrupt)
        version = "%d.%d.%d" % sys.version_info[:3]
        self.show(READY, encode({"state": "ready", "python": version, "ipython": self.shell.ipython}))
        self.loop.add_reader(self.commands, self.on_command)
        self.loop.call_later(0.05, self.warm, 0)
        while True:
            try:
                self.loop.run_until_complete(self.serve())
            except KeyboardInterrupt:
                pass  # it came between the guest's code and ours
            except SystemExit:
                pass
            if self.running:
                self.done({"status": "error", "payload": [], "user_expressions": {}})

    def warm(self, runs):
        """The first error takes ten times as long as the next: an interrupt should not have to wait for that. It is made
        when nothing has run for a moment, that is since run number `runs`."""
        if self.running or self.runs != runs:
            self.loop.call_later(0.25, self.warm, self.runs)
        else:
            self.shell.warm()

    def before_children(self):
        """What was shown before a child process starts is shown before what the child writes."""
        import _posixsubprocess

        def settled(start):
            def starter(*args, **kwargs):
                if self.channel.state != CHILD:
                    self.channel.settle()
                return start(*args, **kwargs)

            starter.__name__, starter.__doc__ = start.__name__, start.__doc__
            return starter

        for module, name in (
            (_posixsubprocess, "fork_exec"),
            (sys.modules.get("subprocess"), "_fork_exec"),
            (os, "system"),
            (os, "posix_spawn"),
            (os, "posix_spawnp"),
        ):
            if hasattr(module, name):
                setattr(module, name, settled(getattr(module, name)))

    def on_command(self):
        data = os.read(self.commands, MAX)
        if not data:
            os._exit(0)  # the supervisor is gone
        self.inbox += data
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    waiting = None

    async def serve(self):
        while True:
            while len(self.inbox) < 5 or len(self.inbox) < 5 + HEADER.unpack_from(self.inbox)[1]:
                self.waiting = self.loop.create_future()
                await self.waiting
            kind, length = HEADER.unpack_from(self.inbox)
            order = json.loads(bytes(self.inbox[5 : 5 + length]))
            del self.inbox[: 5 + length]
            if kind == PYTHON:
                await self.python(order)
            elif kind == REQUEST:
                self.request(order)

    async def python(self, order):
        self.allow_stdin = order.get("allow_stdin", False)
        self.interrupted = False
        signal.signal(signal.SIGINT, self.on_interrupt)
        if not self.cells:
            # Only now may modules come from the workspace, which `-c` would have put on the path at once: none
            # of its files runs before a cell does, and a `json.py` there does not replace what we import.
            sys.path.insert(0, "")
        self.cells += 1
        self.runs += 1
        self.running = self.runs
        text = order.get("stdin")
        if text is not None:
            self.given = io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "replace")), encoding="utf-8")
            sys.stdin = self.given
        self.begin_memory()
        self.done(await self.shell.run(order))

    def begin_memory(self):
        """The record of this process's memory begins anew; a child's can only be broken."""
        if self.memory is not None:
            try:
                os.write(self.memory, b"5")
            except OSError:
                self.memory = None
        self.before = [resource.getrusage(who).ru_maxrss for who in (0, -1)]

    def peak(self):
        """The most memory that the run used in one process, in bytes; `None` where that is not known."""
        own, child = (resource.getrusage(who).ru_maxrss for who in (0, -1))
        if self.before is None or self.memory is None and own <= self.before[0]:
            return None
        return max(own, child if child > self.before[1] else 0) << 10

    def done(self, end):
        self.running = 0
        end["memory"] = self.peak()
        if self.given is not None:
            if sys.stdin is self.given:
                sys.stdin = self.nothing
            self.given = None
        if self.libc_stdout is not None:
            self.fflush(self.libc_stdout)
        self.show(DONE, encode(end))

    def request(self, order):
        self.runs += 1
        self.interrupted, self.allow_stdin = False, False
        self.running = self.runs
        # A completer that fails says so through this hook; its traceback would turn up in the next cell.
        hook, sys.excepthook = sys.excepthook, lambda *_: None
        try:
            op = order.get("op")
            if op == "complete":
                reply = self.shell.complete(order["code"], order["cursor_pos"])
            elif op == "inspect":
                reply = self.shell.inspect(order["code"], order["cursor_pos"], order.get("detail_level", 0))
            elif op == "is_complete":
                reply = self.shell.is_complete(order["code"])
            elif op in ("save", "load"):
                state = sys.modules.get("_cellblock_state") or load("state")
                reply = state.save(self.shell.variables(), order) if op == "save" else state.load(order)
            else:
                reply = {"error": "unknown request"}
        except (Exception, KeyboardInterrupt, SystemExit) as e:
            reply = {"error": "%s: %s" % (type(e).__name__, e)}
        sys.excepthook = hook
        self.running = 0
        self.show(REPLY, encode(reply))


Session().start()
