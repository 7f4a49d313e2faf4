"""The worker's one way out: streams, displays and control in one order, as frames for the supervisor."""

import _thread
import base64
import fcntl
import io
import json
import os
import struct
import threading
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
