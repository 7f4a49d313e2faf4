"""What the supervisor asks of Linux: pipes, processes, who descends from whom, the memory limit's kills."""

import collections
import contextlib
import errno
import fcntl
import os
import signal
import stat
import struct

PIPE_SIZE = 1 << 20
F_SETPIPE_SZ, FIONREAD = 1031, 0x541B
# What the supervisor ignores: all that can be, but for news of its children.
IGNORED = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}

# The Python session's command line: the rest comes through its descriptor 3. The current directory, which
# `-c` puts first on the path, is the workspace: a `json.py` there must not run before a cell does.
WORKER_BOOT = (
    "import sys\n"
    "sys.path[:]=[p for p in sys.path if p]\n"
    "import json,os\n"
    "n=int(os.read(3,8),16);b=b''\n"
    "while len(b)<n:b+=os.read(3,n-len(b)) or os._exit(0)\n"
    "s=json.loads(b)\n"
    "exec(compile(s['worker'],'<cellblock worker>','exec'),{'__name__':'_cellblock_worker','SOURCES':s})"
)


def install_filter(programs):
    """Puts a filter of system calls (`filter.rs`) over this process and all that it starts; whether it is in force."""
    whole, user = programs.split()
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        text = bytes.fromhex(user if shared("/workspace") or shared("/session") else whole)
        kept = ctypes.create_string_buffer(text, len(text))
        order = struct.pack("HP", len(text) // 8, ctypes.addressof(kept))
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which the engine has set already
        # SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW: without it older kernels slow everything down.
        number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine) if len(order) == 16 else None
        if number is None or libc.syscall(number, 1, 4, order) != 0:
            libc.prctl(22, 2, order)  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        os.fchmod(-1, stat.S_ISUID)
    except OSError as e:
        return e.errno == errno.EPERM  # and not EBADF: the mode is looked at
    except (ImportError, AttributeError):
        pass
    return False


def shared(folder):
    """Whether new directories in there get the set-group-id bit by themselves."""
    try:
        return bool(os.stat(folder).st_mode & stat.S_ISGID)
    except OSError:
        return False


def pipe():
    """A pipe whose ends lie above the numbers that children are given, closed on exec."""
    ends = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64) for fd in ends]
    for fd in ends:
        os.close(fd)
    try:
        fcntl.fcntl(high[0], F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        pass  # above the system's limit: the default size works too
    return high


def close(*fds):
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            pass


def kill(pid, number):
    try:
        os.kill(pid, number)
    except OSError:
        pass


def read_some(fd, size):
    """Bytes, `b""` at the end, `None` when there is nothing now."""
    try:
        return os.read(fd, size)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def parents():
    """Every process that can be seen, with its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as stat:
                    found[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                pass
    return found


def children():
    """Our own direct children, the adopted ones included."""
    found = set()
    try:
        for task in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/children" % task, "rb") as listing:
                found.update(map(int, listing.read().split()))
        return found
    except (OSError, ValueError):
        me = os.getpid()  # no CONFIG_PROC_CHILDREN: the long way
        return {pid for pid, parent in parents().items() if parent == me}


def descendants(roots):
    """The given processes and everything below them."""
    below = collections.defaultdict(list)
    for pid, parent in parents().items():
        below[parent].append(pid)
    found, todo = set(), list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo.extend(below[pid])
    return found


def oom_kills():
    """How often the memory limit has killed a process in this container."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as lines:
                for line in lines:
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        except (OSError, ValueError):
            pass
    return 0


def first_number(*paths):
    """The number in the first of these files that can be read."""
    for path in paths:
        try:
            with open(path) as text:
                return int(text.read())
        except (OSError, ValueError):
            pass
    return None


def memory():
    """What this container uses now, and the most that it ever used, in bytes; `None` where nobody says."""
    now = first_number("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes")
    most = first_number("/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes")
    return now, most


def ending(status):
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def unread(fd):
    """Whether a pipe holds bytes that its reader has not taken."""
    waiting = bytearray(4)
    try:
        fcntl.ioctl(fd, FIONREAD, waiting)
    except OSError:
        pass
    return any(waiting)


def temporary():
    return os.environ.get("TMPDIR") or "/tmp"


def state():
    """What shell blocks hand on to the next: this file and one with `-2` behind it take turns."""
    return os.path.join(temporary(), ".cellblock-shell")


def forget_state():
    for path in (state(), state() + "-2", state() + "-lines"):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError:  # the guest has put something else there
            os.rename(path, path + "-" + os.urandom(4).hex())


@contextlib.contextmanager
def at(folder):
    """In that folder for a moment: no other thread starts anything or opens a relative path."""
    if folder is None:
        yield
        return
    here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def spawn(argv, env, actions, defaults):
    """Starts a program in a session of its own with these descriptors and default signals."""
    for fd in actions:
        os.set_blocking(fd, True)
    moves = [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in actions.items()]
    moves.insert(0, (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0))
    # Ignored signals would stay so after exec.
    pid = os.posix_spawnp(argv[0], argv, env, file_actions=moves, setsid=True, setsigdef=defaults)
    try:
        # When memory runs out, this process must be the last to go.
        with open("/proc/%d/oom_score_adj" % pid, "w") as score:
            score.write("1000")
    except OSError:
        pass
    return pid


def write_all(fd, parts):
    """Writes all of them, waiting for room; `False` when nobody will ever read."""
    while parts:
        some, parts = parts[:512], parts[512:]
        left = sum(map(len, some))
        while left:
            try:
                wrote = os.writev(fd, some)
            except OSError as e:
                if e.errno in (errno.EINTR, errno.EAGAIN):
                    continue
                return False
            left -= wrote
            while left and wrote >= len(some[0]):
                wrote -= len(some.pop(0))
            if left and wrote:
                some[0] = memoryview(some[0])[wrote:]
    return True


def kill_all():
    """The last resort. Only as PID 1 does -1 mean this container and nothing else."""
    if os.getpid() == 1:
        kill(-1, signal.SIGKILL)
    else:
        for pid in descendants(children()):
            kill(pid, signal.SIGKILL)


class Worker:
    """The Python session's process and the ends of its pipes that are ours."""

    def __init__(self, pid, commands, replies, control, out, err):
        self.pid, self.commands, self.replies, self.control = pid, commands, replies, control
        self.outputs = {out: 1, err: 2}
        self.tail = b""
        self.order = None  # the last that it was given
        self.pending = bytearray()
        self.ready = False
        self.early = []  # what it sent before it was ready: frames' kinds and payloads
        self.broken = False  # it sent what is no frame of its kinds

    def last_line(self, kind):
        """Takes what a session that did not come up wrote to its standard error: the last line says why."""
        said = b""
        for fd, number in self.outputs.items():
            while True:
                data = read_some(fd, PIPE_SIZE)
                if not data:
                    break
                said = (said + data)[-4096:] if number == 2 else said
        said += b"\n" + b"".join(text for early, text in self.early if early == kind)
        lines = said.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:500] for line in reversed(lines) if line.strip()), None)

    def never_read(self):
        """Whether its last order, given when it was up, was not taken."""
        return self.ready and bool(self.pending or unread(self.commands))


class Process:
    """A one-shot program: perhaps a compiler first, then the program itself."""

    def __init__(self, stages, env, folder):
        self.stages, self.env, self.folder = stages, env, folder
        self.stage, self.pid, self.outputs = None, None, {}
        self.memory = None, None  # the container's use and its record when the run began
        self.piped = False  # whether its output is apart from all other
        self.largest = 0  # the most that one of its processes used

    def peak(self):
        """The most memory that the run used, as far as it is known.

        The record of the container can't be set back from inside. When the run has broken it, what it used
        is the new record less what was in use before; else no more is known than the largest process.
        """
        before, record = self.memory
        most = memory()[1]
        if None not in (before, record, most) and most > record:
            return max(self.largest, most - before)
        return self.largest or None

    def clean(self):
        try:
            for name in os.listdir(self.folder)[:1000]:
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.folder)
        except OSError:
            pass  # the guest put something else there; /tmp goes with the container


class Feed:
    """What a process is to read. The host sends no more than it knows to be wanted, so this stays small."""

    def __init__(self):
        self.waiting = collections.deque()
        self.ended = False
        self.fd = None  # the pipe, once the process is there

    def add(self, data):
        if data:
            self.waiting.append(memoryview(data))
        else:
            self.ended = True

    def step(self):
        """Writes what fits now: how many bytes, and whether nobody will read any more."""
        taken = 0
        while self.waiting:
            data = self.waiting[0]
            try:
                count = os.write(self.fd, data)
            except BlockingIOError:
                break
            except OSError:
                self.waiting.clear()
                return taken, True
            taken += count
            if count < len(data):
                self.waiting[0] = data[count:]
            else:
                self.waiting.popleft()
        return taken, False

    def over(self):
        return self.ended and not self.waiting
