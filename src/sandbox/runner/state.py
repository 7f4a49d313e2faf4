"""The variables of the Python session as a file, one record each, and back.

Standard library only, Python 3.8 or newer. A file holds `[kind u8][length of name u32][length of value u64]`
(little endian), name and value, for each record: first what was imported, then what was defined in cells
(functions and classes, by value, so that they see the session's own variables again), then all else as pickles,
which refer to what was defined by name. Whatever can't be kept is listed, with the reason.
"""

import dataclasses
import enum
import importlib
import json
import marshal
import os
import pickle
import struct
import sys
import types

HEAD = struct.Struct("<BIQ")
IMPORTS, DEFINITION, VALUE = range(3)
LISTED = 2000  # names in a report
WORDS = 200  # characters of a reason


class TooLarge(Exception):
    pass


def main():
    return sys.modules["__main__"].__dict__


# Functions and classes by value.


def ours(value):
    return getattr(value, "__module__", None) == "__main__"


def by_name(value):
    """Whether it is what the session has under its own name."""
    at = sys.modules["__main__"]
    for part in getattr(value, "__qualname__", "<none>").split("."):
        at = getattr(at, part, None)
    return at is value


def make_function(code, name, cells, module):
    # A wrapper that a library made, as `dataclasses` does, sees the library's names.
    names = main() if module == "__main__" else importlib.import_module(module).__dict__
    cells = tuple(types.CellType() for _ in range(cells)) or None
    return types.FunctionType(marshal.loads(code), names, name, None, cells)


def fill_function(function, state):
    for name, value in state["attributes"].items():
        try:
            setattr(function, name, value)
        except (AttributeError, TypeError):
            pass
    function.__dict__.update(state["dict"])
    for cell, content in zip(function.__closure__ or (), state["cells"]):
        if content:
            cell.cell_contents = content[0]


def take_function(function):
    attributes = {}
    for name in ("__defaults__", "__kwdefaults__", "__annotations__", "__qualname__", "__doc__", "__module__"):
        try:
            attributes[name] = getattr(function, name)
        except Exception:
            pass  # annotations that can't be evaluated
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append((cell.cell_contents,))
        except ValueError:
            cells.append(())
    state = {"attributes": attributes, "dict": function.__dict__, "cells": cells}
    made = marshal.dumps(function.__code__), function.__name__, len(cells), function.__globals__.get("__name__")
    return make_function, made, state, None, None, fill_function


def make_class(meta, name, bases, body):
    return types.new_class(name, bases, {"metaclass": meta}, lambda names: names.update(body))


def make_enum(meta, name, bases, body):
    def fill(names):
        for key, value in body.items():
            names[key] = value

    return types.new_class(name, bases, {"metaclass": meta}, fill)


def fill_class(made, state):
    for name, value in state.items():
        try:
            setattr(made, name, value)
        except (AttributeError, TypeError):
            pass


def take_class(value):
    names = {"__module__": "__main__", "__qualname__": value.__qualname__}
    if isinstance(value, enum.EnumMeta):
        names.update({name: member.value for name, member in value.__members__.items()})
        names.update({n: v for n, v in vars(value).items() if isinstance(v, (types.FunctionType, property))})
        names = {n: v for n, v in names.items() if n in ("__module__", "__qualname__") or n[:1] != "_"}
        return make_enum, (type(value), value.__name__, value.__bases__, names)
    slots = vars(value).get("__slots__")
    if slots is not None:
        names["__slots__"] = slots
    left_out = {"__dict__", "__weakref__", "__slots__", "_abc_impl", "__module__", "__qualname__"}
    kinds = (types.MemberDescriptorType, types.GetSetDescriptorType)
    state = {n: v for n, v in vars(value).items() if n not in left_out and not isinstance(v, kinds)}
    return make_class, (type(value), value.__name__, value.__bases__, names), state, None, None, fill_class


def make_proxy(value):
    return types.MappingProxyType(value)


class Pickler(pickle.Pickler):
    top = None

    def whole(self, value):
        """Whether a function or class goes in by value: it is what is being defined, or a part of it, or nowhere."""
        if not ours(value):
            return False
        if self.top is not None:
            name, top = value.__qualname__, self.top.__qualname__
            if value is self.top or name.startswith(top + "."):
                return True
        return not by_name(value)

    def reducer_override(self, value):
        if isinstance(value, types.FunctionType):
            if self.whole(value):
                return take_function(value)
        elif isinstance(value, type):
            if self.whole(value):
                return take_class(value)
        elif isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        elif isinstance(value, property):
            return property, (value.fget, value.fset, value.fdel, value.__doc__)
        elif isinstance(value, (staticmethod, classmethod)):
            return type(value), (value.__func__,)
        elif isinstance(value, types.MappingProxyType):
            return make_proxy, (dict(value),)
        elif value is dataclasses.MISSING:
            return "MISSING"
        elif type(value).__name__ == "_FIELD_BASE" and type(value).__module__ == "dataclasses":
            return value.name
        return NotImplemented


# Saving.


class Bounded:
    """The part of a file that one value may fill."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        size = memoryview(data).nbytes
        if size > self.room:
            raise TooLarge()
        self.room -= size
        return self.file.write(data)


def reason(error):
    if isinstance(error, TooLarge):
        return "it is too large"
    text = str(error).partition("\n")[0]
    return ("%s: %s" % (type(error).__name__, text))[:WORDS]


def dump(value, kind, file, room):
    try:
        pickler = Pickler(Bounded(file, room), 4)
        pickler.top = value if kind == DEFINITION else None
        pickler.dump(value)
    except (TooLarge, OSError, MemoryError):
        raise
    except Exception as error:
        try:
            import cloudpickle
        except Exception:
            raise error from None
        raise Again(cloudpickle) from error


class Again(Exception):
    """Another way is left."""


def record(file, kind, name, value, each):
    name = name.encode("utf-8", "replace")
    start = file.tell()

    def write(how):
        file.seek(start + HEAD.size + len(name))
        file.truncate()
        how()
        end = file.tell()
        file.seek(start)
        file.write(HEAD.pack(kind, len(name), end - start - HEAD.size - len(name)) + name)
        file.seek(end)

    try:
        try:
            write(lambda: dump(value, kind, file, each))
        except Again as again:
            module, first = again.args[0], again.__cause__
            try:
                write(lambda: module.CloudPickler(Bounded(file, each), 4).dump(value))
            except Exception:
                raise first from None
    except BaseException:
        file.seek(start)
        file.truncate()
        raise


def kind_of(name, value):
    if isinstance(value, (types.FunctionType, type)) and ours(value):
        if name == getattr(value, "__qualname__", None) or not by_name(value):
            return DEFINITION
    return VALUE


def save(names, order):
    """Writes what there is to `order["path"]`; what was kept and what was not."""
    kept, lost, left = [], [], order["most"]
    modules = {n: v.__name__ for n, v in names.items() if isinstance(v, types.ModuleType)}
    prefixes = tuple(module + "." for module in set(modules.values()))
    loaded = [module for module in list(sys.modules) if prefixes and module.startswith(prefixes)]
    rest = [(kind_of(n, v), n, v) for n, v in names.items() if n not in modules]
    rest.sort(key=lambda one: one[0])
    os.makedirs(os.path.dirname(order["path"]), 0o700, exist_ok=True)
    name = None
    try:
        with open(order["path"], "wb") as file:
            imports = json.dumps({"modules": modules, "loaded": loaded, "cwd": os.getcwd()}).encode()
            file.write(HEAD.pack(IMPORTS, 0, len(imports)) + imports)
            kept.extend(modules)
            while rest:
                kind, name, value = rest[0]
                before = file.tell()
                try:
                    record(file, kind, name, value, min(left, order["each"]))
                    file.flush()
                    left -= file.tell() - before
                    kept.append(name)
                except Exception as error:
                    lost.append([name[:WORDS], reason(error)])
                rest.pop(0)
    except KeyboardInterrupt:
        lost.extend([name[:WORDS], "there was no time for it"] for _, name, _ in rest)
    return {"kept": kept[:LISTED], "lost": lost[:LISTED], "count": len(kept)}


# Loading.


def records(file):
    while True:
        head = file.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        kind, name, value = HEAD.unpack(head)
        name, data = file.read(name), file.read(value)
        if len(data) < value:
            return  # it was cut short
        yield kind, name.decode("utf-8", "replace"), data


def load_imports(names, found, kept, lost):
    for name, module in found["modules"].items():
        try:
            names[name] = importlib.import_module(module)
            kept.append(name)
        except Exception as error:
            lost.append([name, reason(error)])
    for module in found["loaded"]:
        if module not in sys.modules:
            try:
                importlib.import_module(module)
            except Exception:
                pass  # it may be there for another version only
    try:
        os.chdir(found["cwd"])
    except OSError:
        pass


def load(order):
    """Brings back what the file holds."""
    kept, lost, names = [], [], main()
    again = {}
    with open(order["path"], "rb") as file:
        for kind, name, data in records(file):
            if kind == IMPORTS:
                load_imports(names, json.loads(data), kept, lost)
                continue
            try:
                names[name] = pickle.loads(data)
                kept.append(name)
            except Exception as error:
                # Perhaps it needs a class that comes later: order may have changed by a new definition.
                again[name] = (data, error)
    progress = True
    while again and progress:
        progress = False
        for name, (data, _) in list(again.items()):
            try:
                names[name] = pickle.loads(data)
            except Exception as error:
                again[name] = (data, error)
                continue
            kept.append(name)
            del again[name]
            progress = True
    lost.extend([name[:WORDS], reason(error)] for name, (_, error) in again.items())
    return {"kept": kept[:LISTED], "lost": lost[:LISTED], "count": len(kept)}
