"""Reads, writes or lists files below /workspace and /session for a model's tools; says what came of it in JSON.

A process of its own, started with this text and an order (JSON) as its arguments; standard library only,
Python 3.8 or newer. It runs as the code in the sandbox does: it keeps a model to its folders, and what comes out
is hostile to the host all the same.
"""

import json
import os
import stat
import sys
import tempfile

HOME = "/workspace"
ROOTS = (HOME, "/session")
# A line is skipped in steps of so many bytes, whatever its length.
STEP = 1 << 16


class Refused(Exception):
    pass


def readable(name):
    """A name as text: bytes that are no UTF-8 are shown as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def found(path):
    """Where a path leads, links and all; only below the roots."""
    if "\0" in path:
        raise Refused("a path has no NUL in it")
    path = os.path.realpath(os.path.join(HOME, path))
    if not any(path == root or path.startswith(root + "/") for root in ROOTS):
        raise Refused("it is outside /workspace and /session; paths are relative to /workspace")
    return path


def read(order):
    path = found(order["path"])
    if os.path.isdir(path):
        raise Refused("it is a folder; list_files lists it")
    # A FIFO must not keep us waiting.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise Refused("it is not a file")
        line, most = order["line"], order["most"]
        while line > 1:
            piece = file.readline(STEP)
            if not piece:
                raise Refused("it has fewer lines than that")
            line -= piece.endswith(b"\n")
        data = file.read(most)
        rest = max(0, info.st_size - file.tell())
    if b"\0" in data:
        return {"path": readable(path), "bytes": info.st_size, "binary": True}
    if rest and b"\n" in data:
        # Whole lines, so that the next read begins with one.
        whole = data.rindex(b"\n") + 1
        data, rest = data[:whole], rest + len(data) - whole
    text = data.decode("utf-8", "replace")
    return {"path": readable(path), "bytes": info.st_size, "text": text, "rest": rest}


def write(order):
    path = found(order["path"])
    if os.path.isdir(path) or order["path"].endswith("/"):
        raise Refused("it is a folder; name a file")
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISREG(mode):
            raise Refused("something is there that is not a file")
    except FileNotFoundError:
        mode = None
    data = sys.stdin.buffer.read()
    # Whole or not at all: a full disk leaves the old file.
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.chmod(name, stat.S_IMODE(mode) if mode is not None else 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return {"path": readable(path), "bytes": len(data), "replaced": mode is not None}


def listed(order):
    top, most = found(order["path"]), order["most"]
    entries, more, todo = [], 0, [top]
    if not os.path.isdir(top):
        info = os.lstat(top)
        return {"path": readable(top), "entries": [{"name": readable(top), "bytes": info.st_size}], "more": 0}
    while todo:
        folder = todo.pop(0)
        try:
            inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            if folder == top:
                raise
            continue
        for entry in inside:
            hidden = entry.name.startswith(".")
            if len(entries) >= most:
                more += 1
                continue
            one = {"name": readable(os.path.relpath(entry.path, top))}
            if entry.is_symlink():
                one["link"] = readable(os.readlink(entry.path))
            elif entry.is_dir(follow_symlinks=False):
                one["folder"] = True
                if not hidden:
                    todo.append(entry.path)
            else:
                one["bytes"] = entry.stat(follow_symlinks=False).st_size
            entries.append(one)
        if len(entries) >= most:
            break
    return {"path": readable(top), "entries": entries, "more": more, "deeper": bool(todo)}


def main():
    order = json.loads(sys.argv[1])
    try:
        told = {"read": read, "write": write, "list": listed}[order["do"]](order)
    except Refused as why:
        told = {"failed": str(why)}
    except OSError as why:
        told = {"failed": why.strerror or str(why)}
    except ValueError as why:
        told = {"failed": str(why)}
    # Names with lone surrogates were escaped before; everything here is ASCII.
    sys.stdout.write(json.dumps(told))


main()
