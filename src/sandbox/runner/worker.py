"""The Python session: its channel to the supervisor, its streams, its questions, its loop.

Standard library only, Python 3.8 or newer. Guest code runs in this process, so nothing here is a
defence: the supervisor and the host check whatever comes out. What a cell means is in `ipython_shell.py`,
or in `plain_shell.py` when the image has no IPython.
"""

import _thread
import asyncio
import base64
import builtins
import ctypes
import faulthandler
import fcntl
import io
import json
import os
import select
import signal
import struct
import sys
import threading
import types
from time import sleep

HEADER = struct.Struct("<BI")
MAX = 1 << 20
PYTHON, REQUEST = 0x01, 0x06
STDOUT, STDERR, DISPLAY, RESULT, ERROR, CLEAR, INPUT, DONE, REPLY, READY = range(0xA0, 0xAA)
LAST, PART = 0xAE, 0xAF

PENDING = 1 << 16  # characters of text that wait for the flusher at most
PAUSE = 0.006  # seconds between two flushes of a stream that keeps talking

BUSY, FIRST, QUIET, CHILD = range(4)


class Channel:
    """Everything that this process shows, in one order.

    Each stream has a list of texts that wait. Appending to it needs no lock: a text is never lost nor shown
    on the wrong stream, whoever packs the list at the same moment. All else happens under the lock.
    """

    def __init__(self, fd):
        self.fd = fd
        # Its buffer holds any frame whole, so an exception raised by a signal handler leaves it
        # consistent: what was not written then is written next.
        self.out = io.BufferedWriter(io.FileIO(fd, "wb", closefd=False), 4 * MAX)
        self.lock = threading.RLock()
        self.waiting = {STDOUT: [], STDERR: []}
        self.kind = STDOUT  # the stream that spoke last
        self.calm = None  # that stream, when its writes need nothing but appending
        self.size = 0
        self.state = QUIET
        self.alarm = _thread.allocate_lock()
        self.alarm.acquire()
        os.register_at_fork(
            before=self.before_fork, after_in_parent=self.lock.release, after_in_child=self.in_child
        )
        _thread.start_new_thread(self.flusher, ())

    def flusher(self):
        """Sends what waits: a stream that begins to talk wakes it, one that falls silent lets it rest."""
        while True:
            self.alarm.acquire()
            while True:
                sleep(PAUSE)
                with self.lock:
                    # In this order: a write that still saw `calm` has appended before we look.
                    self.state, self.calm = QUIET, None
                    if not any(self.waiting.values()):
                        break
                    self.state, self.calm = BUSY, self.kind
                    self.flush()

    def attend(self, kind, text):
        """The rare part of a write, whose text is on its list already."""
        with self.lock:
            if self.kind != kind:
                self.pack(self.kind)
                self.kind = kind
            if self.state == CHILD:
                if "\n" in text or self.size > PENDING:
                    self.flush()
                return
            if self.size > PENDING:
                self.flush()
            elif self.state != BUSY:
                # The first line after a silence is seen at once, what follows in bunches.
                if self.state == QUIET:
                    self.state = FIRST
                    try:
                        self.alarm.release()
                    except RuntimeError:
                        pass  # it is awake
                if text.endswith("\n"):
                    self.state = BUSY
                    self.flush()
            self.calm = kind if self.state == BUSY else None

    def pack(self, kind):
        texts = self.waiting[kind]
        count = len(texts)
        if count:
            text = "".join(texts[:count])
            del texts[:count]
            self.size = 0
            self.frame(kind, text.encode("utf-8", "backslashreplace"))

    def pack_all(self):
        self.pack(STDOUT + STDERR - self.kind)  # the other one was switched away from: it spoke before
        self.pack(self.kind)

    def frame(self, kind, payload):
        if self.state == CHILD:
            if kind in (STDOUT, STDERR):
                self.write_all(kind - STDOUT + 1, payload)
            return
        if len(payload) <= MAX:
            self.out.write(HEADER.pack(kind, len(payload)) + payload)
            return
        rest = memoryview(payload)
        while len(rest) >= MAX:
            self.out.write(HEADER.pack(PART, MAX) + rest[:MAX])
            rest = rest[MAX:]
        self.out.write(HEADER.pack(LAST, len(rest) + 1) + bytes((kind,)) + rest)

    def flush(self):
        with self.lock:
            self.pack_all()
            if self.state != CHILD:
                self.out.flush()

    def send(self, kind, payload):
        with self.lock:
            self.pack_all()
            self.frame(kind, payload)
            if self.state != CHILD:
                self.out.flush()

    @staticmethod
    def write_all(fd, data):
        while data:
            data = data[os.write(fd, data) :]

    def settle(self):
        """Sends everything and waits until the supervisor has read it: what a child writes comes later."""
        self.flush()
        waiting = bytearray(4)
        for _ in range(200):
            try:
                fcntl.ioctl(self.fd, 0x541B, waiting)  # FIONREAD
            except OSError:
                return
            if not any(waiting):
                return
            sleep(0.0001)

    def before_fork(self):
        self.lock.acquire()
        if self.state != CHILD:
            self.settle()

    def in_child(self):
        """A forked child writes descriptors 1 and 2; the channel stays with its parent."""
        if self.state != CHILD:
            self.state, self.calm = CHILD, None
            try:
                os.close(self.fd)
            except OSError:
                pass
        self.lock.release()


class Bytes(io.RawIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, channel, kind):
        self._channel, self._kind = channel, kind

    def writable(self):
        return True

    def fileno(self):
        return self._kind - STDOUT + 1

    def write(self, data):
        data = bytes(data)
        self._channel.send(self._kind, data)
        return len(data)


class Stream(io.TextIOBase):
    """`sys.stdout` and `sys.stderr`."""

    encoding = "UTF-8"
    errors = "backslashreplace"
    line_buffering = True

    def __init__(self, channel, kind, name):
        self._channel, self._kind, self.name = channel, kind, name
        self.mode = "w"
        self.buffer = Bytes(channel, kind)
        append, attend = channel.waiting[kind].append, channel.attend

        def write(text):
            if type(text) is not str:
                if not isinstance(text, str):
                    raise TypeError("write() argument must be str, not %s" % type(text).__name__)
                text = str.__str__(text)
            append(text)
            length = len(text)
            channel.size += length
            if channel.calm is not kind or channel.size > PENDING:
                attend(kind, text)
            return length

        self.write = write  # no method lookup: this is where a program that prints spends its time

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return self._kind - STDOUT + 1

    def flush(self):
        self._channel.flush()

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def reconfigure(self, **_):
        self.flush()

    def close(self):
        self.flush()


def plain_json(value, depth=0):
    """A value that JSON can say; whatever else it holds becomes its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)  # not finite
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if depth < 60:
        if isinstance(value, dict):
            return {str(key): plain_json(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [plain_json(item, depth + 1) for item in value]
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            return plain_json(value.item(), depth + 1)
    return repr(value)


def encode(value):
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, check_circular=True)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(plain_json(value), ensure_ascii=False)
    return text.encode("utf-8", "replace")


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
        self.task = None  # the cell, while it is a coroutine
        self.interrupted = False
        self.unwinding = False  # an error is being put into words: a second interrupt would spoil it
        self.allow_stdin = False
        self.asking = threading.Lock()
        self.asked = 0
        self.no_stdin = StdinNotImplementedError
        self.answers = b""
        self.shell = None
        self.libc_stdout = None

    # Questions.

    def ask(self, prompt, password):
        run = self.running
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
        if not sys.path or sys.path[0] != "":
            sys.path.insert(0, "")
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding="utf-8")
        builtins.input = self.input
        import getpass

        getpass.getpass = self.getpass
        try:
            self.shell = load("ipython_shell").Shell(self)
        except ImportError:
            self.shell = load("plain_shell").Shell(self)
        signal.signal(signal.SIGINT, self.on_interrupt)
        version = "%d.%d.%d" % sys.version_info[:3]
        self.show(READY, encode({"state": "ready", "python": version, "ipython": self.shell.ipython}))
        self.loop.add_reader(self.commands, self.on_command)
        self.loop.call_later(0.05, self.warm)
        while True:
            try:
                self.loop.run_until_complete(self.serve())
            except KeyboardInterrupt:
                pass  # it came between the guest's code and ours
            except SystemExit:
                pass
            if self.running:
                self.done({"status": "error", "payload": [], "user_expressions": {}})

    def warm(self):
        """The first error takes ten times as long as the next: an interrupt should not have to wait for that."""
        if not self.runs:
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
        self.runs += 1
        self.running = self.runs
        self.done(await self.shell.run(order))

    def done(self, end):
        self.running = 0
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
            else:
                reply = {"error": "unknown request"}
        except (Exception, KeyboardInterrupt, SystemExit) as e:
            reply = {"error": "%s: %s" % (type(e).__name__, e)}
        sys.excepthook = hook
        self.running = 0
        self.show(REPLY, encode(reply))


def load(name):
    """One of the texts that came with this one, as a module."""
    module = types.ModuleType("_cellblock_" + name)
    module.worker = sys.modules["_cellblock_worker"]
    sys.modules[module.__name__] = module
    exec(compile(SOURCES[name], "<cellblock %s>" % name, "exec"), module.__dict__)
    return module


me = types.ModuleType("_cellblock_worker")
me.__dict__.update(globals())
sys.modules["_cellblock_worker"] = me
Session().start()
