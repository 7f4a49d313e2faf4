"""The container's main process: owns the framed channel, starts and ends everything else.

Standard library only, Python 3.8 or newer. `docs/runner-protocol.md` is the contract; `mod.rs` sends
this text and the worker's sources through standard input, so `SOURCES` is a global when it runs.

Three rules hold it together. The guest runs under the same user id, so this process makes itself
undumpable before anything else starts: no /proc/1/fd, no ptrace. The main thread alone writes to
standard output and alone reaps. The command thread alone reads standard input, and never waits for the
main thread: a signal gets through while the output is stuck.
"""

import sys


def harden():
    """Nobody of the same user may open our descriptors, read our memory or trace us."""
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
        if libc.getpid() != 1:
            libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to us, as to PID 1
        return libc.prctl(3, 0, 0, 0, 0) == 0  # PR_GET_DUMPABLE
    except (ImportError, OSError, AttributeError):
        return False


UNDUMPABLE = harden()

import types


def load(name):
    """One of the texts that came with this one, as a module."""
    module = types.ModuleType("cellblock_" + name)
    exec(compile(SOURCES.pop(name), "<cellblock %s>" % name, "exec"), module.__dict__)
    return module


system = load("system")
FILTERED = system.install_filter(SOURCES.pop("filter"))

import _thread
import collections
import errno
import json
import os
import select
import signal
import struct
import time

OUTER = struct.Struct("<BII")  # kind, run, length: between host and supervisor
INNER = struct.Struct("<BI")  # kind, length: between supervisor and worker
MAX = 1 << 20
CHUNK = 1 << 17
EARLY = 256  # frames that a session may send before it is ready

PART, PYTHON, PROCESS, SIGNAL, KILL, INPUT_REPLY, REQUEST, RESTART, STDIN = range(9)
HELLO, FD_STDOUT, EXIT, WORKER, FAULT, TAKEN = 0x80, 0x81, 0x83, 0x84, 0x85, 0x86  # 0x82: descriptor 2, 0x87 and 0x88: of a piped process
STDERR, DONE, REPLY, READY, LAST = 0xA1, 0xA7, 0xA8, 0xA9, 0xAE


class Supervisor:
    def __init__(self):
        self.lock = _thread.RLock()
        self.run = 0  # what is running, 0: nothing
        self.doing = None  # PYTHON, PROCESS or REQUEST
        self.worker = None
        self.process = None
        self.feed = None  # what the process reads
        self.restarting = False
        self.exited = collections.deque()
        self.posts = collections.deque()
        self.handlers = {}
        self.epoll = select.epoll()
        self.oom = system.oom_kills()
        try:
            os.chdir("/workspace")
        except OSError:
            pass
        self.env = dict(os.environ, PWD=os.getcwd(), PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")
        self.env.update(TERM="xterm-color", PAGER="cat", GIT_PAGER="cat")
        wake_r, self.wake_w = system.pipe()
        os.set_blocking(wake_r, False)
        os.set_blocking(self.wake_w, False)
        self.watch(wake_r, lambda: self.on_wake(wake_r))
        # Linux spares a PID 1 what it has no handler for; gVisor takes it at the word of its settings.
        for number in system.IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_w, warn_on_full_buffer=False)

    # The main thread: standard output, reaping.

    def serve(self):
        hello = {
            "protocol": 1,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "pid": os.getpid(),
            "undumpable": UNDUMPABLE,
            "filtered": FILTERED,
            "uid": os.getuid(),
        }
        self.emit_json(HELLO, 0, hello)
        self.start_worker()
        _thread.start_new_thread(self.obey, ())
        while True:
            try:
                ready = self.epoll.poll()
            except InterruptedError:
                continue
            for fd, _ in ready:
                handler = self.handlers.get(fd)
                if handler is not None:
                    handler()
            self.bury()

    def watch(self, fd, handler):
        self.handlers[fd] = handler
        self.epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd):
        if self.handlers.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def on_wake(self, fd):
        while system.read_some(fd, 4096):
            pass
        while self.posts:
            self.posts.popleft()()
        self.reap()

    def wake(self):
        try:
            os.write(self.wake_w, b"\0")
        except BlockingIOError:
            pass  # full: it is awake

    def emit(self, parts):
        """Writes to the host, waiting for room."""
        if not system.write_all(1, parts):
            self.end()

    def emit_json(self, kind, run, value):
        data = json.dumps(value).encode()
        self.emit([OUTER.pack(kind, run, len(data)), data])

    def drain(self, outputs, whole=False):
        """Passes on what is in the pipes now: as much as a pipe holds, or all of it once nobody writes."""
        for fd, number in list(outputs.items()):
            room = MAX
            while room > 0 or whole:
                data = system.read_some(fd, CHUNK)
                if not data:
                    if data is not None:
                        self.unwatch(fd)
                        outputs.pop(fd)
                        system.close(fd)
                    break
                room -= len(data)
                self.emit([OUTER.pack(FD_STDOUT + number - 1, self.run, len(data)), data])

    def reap(self):
        """Collects the dead; `bury` deals with those that we know."""
        while True:
            with self.lock:  # nobody may signal a pid between its reaping and our noting it
                try:
                    pid, status, used = os.wait4(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if not pid:
                    return
                if self.process:
                    self.process.largest = max(self.process.largest, used.ru_maxrss << 10)
                if self.worker and pid == self.worker.pid:
                    self.worker.pid = None
                    self.exited.append((self.worker, status))
                elif self.process and pid == self.process.pid:
                    self.process.pid = None
                    self.exited.append((self.process, status))

    def bury(self):
        while self.exited:
            who, status = self.exited.popleft()
            if isinstance(who, system.Worker):
                self.worker_lost(who, status)
            elif who is self.process:
                self.stage_over(who, status)

    def kill_strays(self):
        """Ends everything of ours that is neither the worker (nor below it) nor the running process.

        Orphans come to us, so a stray or its eldest ancestor is always our own child. All are stopped
        before any is killed: otherwise a fork bomb refills the places that dying processes free.
        """
        count, give_up = 0, time.monotonic() + 1.0
        while True:
            self.reap()
            keep = {who.pid for who in (self.worker, self.process) if who}
            strays = system.children() - keep
            if not strays:
                return count
            every = system.descendants(strays) | strays
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in every:
                    system.kill(pid, number)
            count += len(every)
            if time.monotonic() > give_up:
                system.kill_all()
                give_up += 1.0
            time.sleep(0.001)

    def take_oom(self):
        before, self.oom = self.oom, system.oom_kills()
        return self.oom > before

    # The Python session.

    def start_worker(self, run=0):
        commands_r, commands_w = system.pipe()
        replies_r, replies_w = system.pipe()
        control_r, control_w = system.pipe()
        out_r, out_w = system.pipe()
        err_r, err_w = system.pipe()
        theirs = {commands_r: 3, control_w: 4, replies_r: 5, out_w: 1, err_w: 2}
        # SIGINT stays ignored until the worker is ready for it.
        defaults = system.IGNORED - {signal.SIGINT}
        try:
            pid = system.spawn([sys.executable, "-c", system.WORKER_BOOT], self.env, theirs, defaults)
        except OSError as e:
            system.close(*theirs, commands_w, replies_w, control_r, out_r, err_r)
            self.fault("the Python session can't be started: %s" % e, run)
            return
        system.close(*theirs)
        for fd in (commands_w, replies_w, control_r, out_r, err_r):
            os.set_blocking(fd, False)
        worker = system.Worker(pid, commands_w, replies_w, control_r, out_r, err_r)
        # Its outputs are drained once it is ready: what a failed start says there is ours, and no run's.
        self.watch(control_r, lambda: self.on_control(worker))
        sources = json.dumps(SOURCES).encode()
        with self.lock:
            self.worker = worker
            self.to_worker(worker, b"%08x" % len(sources) + sources)

    def to_worker(self, worker, data):
        """Hands bytes to the worker; what its pipe does not take now follows when there is room."""
        with self.lock:
            worker.pending += data
            try:
                while worker.pending:
                    del worker.pending[: os.write(worker.commands, worker.pending)]
            except BlockingIOError:
                if worker.commands not in self.handlers:
                    self.handlers[worker.commands] = lambda: self.more_to_worker(worker)
                    self.epoll.register(worker.commands, select.EPOLLOUT)
            except OSError:
                pass  # it is gone: its death is reported elsewhere

    def more_to_worker(self, worker):
        with self.lock:
            self.unwatch(worker.commands)
            self.to_worker(worker, b"")

    def on_control(self, worker):
        data = system.read_some(worker.control, CHUNK)
        if data is None:
            return
        if data:
            # What descriptors 1 and 2 hold was written before what the worker said last.
            self.drain(worker.outputs)
            return self.pass_on(worker, data)
        if worker.ready:
            self.drain(worker.outputs)
        self.unwatch(worker.control)
        self.kill_worker(worker)

    def pass_on(self, worker, data):
        data = worker.tail + data if worker.tail else data
        view, at, size, out = memoryview(data), 0, len(data), []
        while size - at >= 5:
            kind, length = INNER.unpack_from(data, at)
            if not 0xA0 <= kind <= 0xAF or length > MAX:
                # Guest code wrote to the channel: nothing after this can be believed.
                self.emit(out)
                worker.tail, worker.broken = b"", True
                self.unwatch(worker.control)
                return self.kill_worker(worker)
            end = at + 5 + length
            if end > size:
                break
            payload = view[at + 5 : end]
            means = payload[0] if kind == LAST and length else kind
            if means in (DONE, REPLY):
                self.emit(out)
                out = []
                self.run_over(worker, means, kind, payload)
            elif kind != READY:
                if worker.ready:
                    out += (OUTER.pack(kind, self.run, length), payload)
                elif len(worker.early) < EARLY:
                    worker.early.append((kind, bytes(payload)))
            elif not worker.ready:
                worker.ready = True
                for early, text in worker.early:
                    out += (OUTER.pack(early, self.run, len(text)), text)
                for fd in worker.outputs:
                    self.watch(fd, lambda: self.drain(worker.outputs))
                out += (OUTER.pack(WORKER, 0, length), payload)
            at = end
        self.emit(out)
        worker.tail = bytes(view[at:])

    def run_over(self, worker, means, kind, payload):
        run = self.run
        if self.doing != (PYTHON if means == DONE else REQUEST):
            return  # the end of what is not running: an invention
        if self.doing == PYTHON and self.kill_strays():
            self.drain(worker.outputs)
        with self.lock:
            self.run, self.doing = 0, None
        self.emit([OUTER.pack(kind, run, len(payload)), payload])

    def kill_worker(self, worker):
        with self.lock:
            if worker.pid:
                system.kill(-worker.pid, signal.SIGKILL)
                system.kill(worker.pid, signal.SIGKILL)

    def worker_lost(self, worker, status):
        self.kill_strays()
        while not worker.broken:  # its last words
            data = system.read_some(worker.control, MAX)
            if not data:
                break
            self.pass_on(worker, data)
        why = None if worker.ready else worker.last_line(STDERR)
        self.drain(worker.outputs, whole=True)
        # An order that it never read was not begun: the next session takes it.
        again = worker.order if not self.restarting and worker.never_read() else None
        with self.lock:
            for fd in (worker.control, worker.commands, *worker.outputs):
                self.unwatch(fd)
            system.close(worker.control, worker.commands, worker.replies, *worker.outputs)
            self.worker = None
            run = self.run if self.doing in (PYTHON, REQUEST) and not again else 0
            restart, self.restarting = self.restarting, False
            if run:
                self.run, self.doing = 0, None
        code, number = system.ending(status)
        lost = {"state": "lost", "code": code, "signal": number, "oom": self.take_oom(), "restart": restart}
        lost.update(ready=worker.ready, broken=worker.broken, why=why)
        self.emit_json(WORKER, run, lost)
        if worker.ready or restart:  # one that dies while starting would do so for ever
            self.start_worker()
        if again and self.worker:
            self.worker.order = again
            self.to_worker(self.worker, again)

    # One-shot processes.

    def start_process(self, run, order):
        try:
            folder = os.path.join(system.temporary(), "cell-" + os.urandom(4).hex())
            os.mkdir(folder, 0o700)
            for name, text in order.get("files", {}).items():
                with open(os.path.join(folder, os.path.basename(name)), "w", encoding="utf-8") as file:
                    file.write(text)
        except OSError as e:
            return self.fault("the code can't be written to %s: %s" % (folder, e), run)
        stages = [("run", order["argv"])]
        if order.get("compile"):
            stages.insert(0, ("compile", order["compile"]))
        self.process = system.Process(stages, dict(self.env, **order.get("env", {})), folder)
        self.process.memory, self.process.piped = system.memory(), bool(order.get("pipe"))
        self.next_stage(self.process)

    def next_stage(self, process):
        process.stage, argv = process.stages.pop(0)
        if not process.piped:
            argv = [word.replace("{dir}", process.folder).replace("{state}", system.state()) for word in argv]
        out_r, out_w = system.pipe()
        err_r, err_w = system.pipe()
        theirs = {out_w: 1, err_w: 2}
        if self.feed and not process.stages:  # a compiler before it gets no input
            in_r, self.feed.fd = system.pipe()
            theirs[in_r] = 0
            os.set_blocking(self.feed.fd, False)
        try:
            # A compiler works beside its source: it names the file by its name alone.
            with self.lock, system.at(process.folder if process.stage == "compile" else None):
                process.pid = system.spawn(argv, process.env, theirs, system.IGNORED)
        except OSError as e:
            system.close(out_r, err_r, *theirs)
            run = self.run
            self.process_over(process)
            missing = "this image has no %s" % argv[0] if e.errno == errno.ENOENT else str(e)
            return self.fault("%s can't be started: %s" % (argv[0], missing), run)
        system.close(*theirs)
        # Apart from what the Python session's threads may write meanwhile.
        process.outputs = {out_r: 7, err_r: 8} if process.piped else {out_r: 1, err_r: 2}
        for fd in (out_r, err_r):
            os.set_blocking(fd, False)
            self.watch(fd, lambda: self.drain(process.outputs))
        self.on_feed()

    def on_feed(self):
        """Hands the process what waits for it, and tells the host how much it took (0: it reads no more)."""
        feed = self.feed
        if not feed or feed.fd is None:
            return
        taken, deaf = feed.step()
        if taken:
            self.emit([OUTER.pack(TAKEN, self.run, 4), struct.pack("<I", taken)])
        if deaf:
            self.emit([OUTER.pack(TAKEN, self.run, 4), struct.pack("<I", 0)])
        if deaf or feed.over():
            self.end_feed(feed)
        elif feed.waiting and feed.fd not in self.handlers:
            self.handlers[feed.fd] = self.on_feed
            self.epoll.register(feed.fd, select.EPOLLOUT)
        elif not feed.waiting:
            self.unwatch(feed.fd)

    def end_feed(self, feed):
        if feed.fd is not None:
            self.unwatch(feed.fd)
            system.close(feed.fd)
            feed.fd = None

    def stage_over(self, process, status):
        strays = self.kill_strays()
        self.drain(process.outputs)
        for fd in process.outputs:
            self.unwatch(fd)
            system.close(fd)
        code, number = system.ending(status)
        if process.stages and code == 0:
            return self.next_stage(process)
        run, stage = self.run, process.stage
        self.process_over(process)
        end = {"code": code, "signal": number, "stage": stage, "strays": strays, "oom": self.take_oom()}
        end["memory"] = process.peak()
        self.emit_json(EXIT, run, end)

    def process_over(self, process):
        with self.lock:
            self.process = None
            feed, self.feed = self.feed, None
            if feed:
                self.end_feed(feed)
            if self.doing == PROCESS:
                self.run, self.doing = 0, None
        process.clean()

    def fault(self, message, run=0):
        with self.lock:
            if run and run == self.run:
                self.run, self.doing, self.feed = 0, None, None
        self.emit_json(FAULT, run, {"message": message})

    # The command thread: standard input, signals.

    def obey(self):
        try:
            self.take_orders()
        finally:
            self.end()  # deaf, it could neither be stopped nor notice that the host is gone

    def take_orders(self):
        joined = bytearray()
        while True:
            kind, run, length = OUTER.unpack(self.exactly(OUTER.size))
            payload = self.exactly(length)
            if kind == PART:
                joined += payload
                continue
            if joined:
                payload, joined = bytes(joined + payload), bytearray()
            try:
                self.command(kind, run, payload)
            except Exception as e:  # an order that we don't understand must not end the session
                text = "%s: %s" % (type(e).__name__, e)
                self.post(lambda run=run, text=text: self.fault(text, run))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            more = os.read(0, count - len(data))
            if not more:
                self.end()
            data = data + more if data else more
        return data

    def end(self):
        system.kill_all()
        os._exit(0)

    def post(self, action):
        self.posts.append(action)
        self.wake()

    def command(self, kind, run, payload):
        with self.lock:
            worker, process = self.worker, self.process
            if kind in (PYTHON, PROCESS, REQUEST):
                if self.run:
                    return self.post(lambda: self.fault("run %d is not over yet" % self.run, run))
                if kind == PROCESS:
                    order = json.loads(payload)
                    self.run, self.doing = run, kind
                    self.feed = system.Feed() if order.get("stdin") else None
                    return self.post(lambda: self.start_process(run, order))
                data = INNER.pack(kind, len(payload)) + payload
                if worker and worker.pid:
                    self.run, self.doing, worker.order = run, kind, data
                    return self.to_worker(worker, data)
                # Between its death and its burial: the run must not be taken for the one that died.
                return self.post(lambda: self.run_in_new_worker(run, data))
            if kind == INPUT_REPLY:
                if worker and run == self.run:
                    try:
                        os.write(worker.replies, b"\n" + payload + b"\n")
                    except OSError:
                        pass  # it does not read what it asked for
            elif kind == STDIN:
                if self.feed and run == self.run:
                    self.feed.add(payload)
                    self.post(self.on_feed)
            elif kind == SIGNAL:
                number = json.loads(payload)["signal"]
                if run == self.run and self.doing == PROCESS and process and process.pid:
                    system.kill(-process.pid, number)
                elif run == self.run and self.doing in (PYTHON, REQUEST) and worker and worker.pid:
                    system.kill(-worker.pid, number)
            elif kind == KILL:
                if run == self.run and self.doing == PROCESS and process and process.pid:
                    system.kill(-process.pid, signal.SIGKILL)
                elif run == self.run and self.doing in (PYTHON, REQUEST) and worker:
                    self.kill_worker(worker)
            elif kind == RESTART:
                system.forget_state()
                if worker and worker.pid:
                    self.restarting = True
                    system.kill_all()
                else:
                    self.post(self.ensure_worker)
            else:
                self.post(lambda: self.fault("unknown kind 0x%02x" % kind, run))

    def ensure_worker(self, run=0):
        if self.worker is None:
            self.start_worker(run)

    def run_in_new_worker(self, run, data):
        self.bury()  # the old one may have died just now
        self.ensure_worker(run)
        if self.worker is None:
            return  # the fault has told
        with self.lock:
            self.run, self.doing, self.worker.order = run, data[0], data
            self.to_worker(self.worker, data)


Supervisor().serve()
