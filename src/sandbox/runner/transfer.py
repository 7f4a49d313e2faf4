"""Packs files of the container into a tar archive on standard output, or unpacks one from standard input.

A process of its own, started with this text and an order (JSON) as its arguments; standard library only,
Python 3.8 or newer. It runs as the code in the sandbox does and guards nothing: the host treats what comes
out as hostile. What there is to say goes to standard error, a JSON object a line.
"""

import fnmatch
import glob
import json
import os
import shutil
import signal
import stat
import sys
import tarfile

PIECE = 1 << 17
HOME = "/workspace"


def say(**what):
    sys.stderr.write(json.dumps(what) + "\n")
    sys.stderr.flush()


def skip(path, why):
    reason = why.strerror if isinstance(why, OSError) and why.strerror else str(why)
    say(skipped=[path.encode("utf-8", "replace").decode(), reason])


class Exactly:
    """A file as long as its header says, whatever becomes of it meanwhile."""

    def __init__(self, file, size):
        self.file, self.left = file, size

    def read(self, count):
        count = min(count, self.left)
        data = self.file.read(count)
        self.left -= count
        return data + b"\0" * (count - len(data))


def walk(path, name, order, found):
    """Every file at and below a path: `(path, name in the archive, what lstat says)`."""
    # Not what is asked for by its own name, nor what is in it.
    patterns = [p for p in order.get("except", ()) if not fnmatch.fnmatchcase(path, p)]
    todo = [(path, name)]
    while todo:
        path, name = todo.pop()
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns):
            continue
        try:
            info = os.lstat(path)
            if stat.S_ISDIR(info.st_mode):
                inside = sorted(os.listdir(path), reverse=True)
                todo.extend((os.path.join(path, one), name + "/" + one) for one in inside)
            elif not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                skip(path, "neither a file, a folder nor a link")
                continue
        except OSError as e:
            skip(path, e)
            continue
        if len(found) >= order["most"]:
            skip(path, "too many files: this one and those after it are left out")
            return
        found.append((path, name, info))


def pack(order):
    found = []
    for path, name in order["pack"]:
        if name:
            if os.path.lexists(path):
                walk(path, name, order, found)
            continue
        path = os.path.join(HOME, path)
        matches = [path] if os.path.lexists(path) else sorted(glob.glob(path, recursive=True))
        if not matches:
            say(missing=path)
            sys.exit(3)
        for match in matches:
            match = os.path.normpath(match)
            walk(match, os.path.basename(match) or "files", order, found)
    files = [info.st_size for _, _, info in found if stat.S_ISREG(info.st_mode)]
    say(total=sum(files), files=len(files))
    with tarfile.open(
        fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT, bufsize=PIECE, encoding="utf-8"
    ) as tar:
        for path, name, info in found:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime = stat.S_IMODE(info.st_mode), info.st_mtime
            try:
                if stat.S_ISDIR(info.st_mode):
                    entry.type = tarfile.DIRTYPE
                    tar.addfile(entry)
                elif stat.S_ISLNK(info.st_mode):
                    entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
                    tar.addfile(entry)
                else:
                    # Never a FIFO that was put in the file's place: that would wait for ever.
                    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                    with open(fd, "rb") as file:
                        entry.size = info.st_size
                        tar.addfile(entry, Exactly(file, entry.size))
            except OSError as e:
                if isinstance(e, BrokenPipeError):
                    raise
                skip(path, e)
            tar.members = []


def place(order):
    """How names in the archive become paths."""
    roots = order.get("roots")
    if roots:

        def where(name):
            top, _, rest = name.partition("/")
            return os.path.join(roots[top], rest) if rest else None if top in roots else ""

        return where
    to = os.path.join(HOME, order["unpack"])
    if os.path.isdir(to) or to.endswith("/") or not order.get("single"):
        os.makedirs(to, exist_ok=True)
        return lambda name: os.path.join(to, name)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    return lambda name: to + name[len(name.partition("/")[0]) :]


def unpack_one(tar, entry, path, folders):
    if entry.isdir():
        if not os.path.isdir(path):
            os.makedirs(path)
        folders.append((path, entry.mode, entry.mtime))
        return 0
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    if entry.issym():
        os.symlink(entry.linkname, path)
        return 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        source = tar.extractfile(entry)
        while True:
            data = source.read(PIECE)
            if not data:
                break
            file.write(data)
        file.flush()
        os.fchmod(fd, entry.mode & 0o777)
        os.utime(fd, (entry.mtime, entry.mtime))
    return entry.size


def unpack(order):
    where, folders, files, size = place(order), [], 0, 0
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=PIECE, encoding="utf-8") as tar:
        while True:
            entry = tar.next()
            if entry is None:
                break
            tar.members = []
            path = where(entry.name)
            if path is None:
                continue
            if not path or not (entry.isdir() or entry.isreg() or entry.issym()):
                skip(entry.name, "nothing that belongs here")
                continue
            try:
                size += unpack_one(tar, entry, path, folders)
                files += entry.isreg()
            except OSError as e:
                skip(path, e)
    for path, mode, mtime in reversed(folders):
        try:
            os.chmod(path, mode & 0o777)
            os.utime(path, (mtime, mtime))
        except OSError:
            pass  # not ours: it was there before
    say(done=True, files=files, bytes=size)


def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    order = json.loads(sys.argv[1])
    try:
        if "remove" in order:
            shutil.rmtree(order["remove"], ignore_errors=True)
        else:
            (pack if "pack" in order else unpack)(order)
    except BrokenPipeError:
        os._exit(1)
    except (OSError, tarfile.TarError) as e:
        say(failed=str(e))
        os._exit(2)


main()
