#!/usr/bin/env python3
"""Times sandboxes side by side in one run: ours through Jupyter, as a user sees it; llm-sandbox and AutoGen through their
own interfaces. Prints a Markdown table with ratios.

    python benches/sandbox_bench.py --image IMAGE [--peers VENV] [--quick] [--json] [--kernel NAME] [--sessions 20]

All take turns in every round, so that whatever else the machine does meets all of them. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernel_bench import Client, number, resident, say

PACKAGES = ["llm-sandbox[docker]==0.3.46", "autogen-ext[docker]==0.7.5"]
PEERS = ["llm-sandbox", "autogen"]
HELLO = "print('hi')"
STREAM = "import sys\nline = 'x' * 99 + '\\n'\nfor _ in range({megabytes} * 10_000): sys.stdout.write(line)\nsys.stdout.flush()"
# A peer that takes longer for all that it is asked to do in one part of the bench is ended there, and the table says so.
LIMITS = {"one": 150.0, "many": 150.0}
# A user's pause between two ephemeral runs, in which the next spare starts.
PAUSE = 2.0

FIGURES = [
    ("open", "open a session (ms)", False),
    ("first", "open and first result (ms)", False),
    ("warm", "run in a session (ms)", False),
    ("warm_p95", "run in a session, p95 (ms)", False),
    ("ephemeral", "run in a clean container (ms)", False),
    ("back_to_back", "the same, without a pause (ms)", False),
    ("stream", "printed lines (MB/s)", True),
    ("close", "close (ms)", False),
    ("many_open", "{sessions} sessions at once: open all (ms)", False),
    ("many", "their runs, all at the same time (ms)", False),
    ("many_p95", "their runs, p95 (ms)", False),
    ("many_close", "close all (ms)", False),
    ("many_memory", "memory of the processes on the host (MB)", False),
    ("many_containers", "memory of the containers (MB)", False),
]


def containers() -> set[str]:
    return set(subprocess.run(["docker", "ps", "-q"], capture_output=True, text=True, check=True).stdout.split())


def memory_of(ids: set[str]) -> float:
    """MB that these containers use, as the engine counts it."""
    if not ids:
        return 0.0
    command = ["docker", "stats", "--no-stream", "--format", "{{.MemUsage}}", *ids]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    units = {"B": 1 / (1 << 20), "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0}
    total = 0.0
    for line in lines:
        used = line.split("/")[0].strip()
        unit = used.lstrip("0123456789.")
        total += float(used[: len(used) - len(unit)]) * units.get(unit, 0)
    return total


class TooSlow(Exception):
    """A peer did not come to its end in time."""


class Ours:
    """A kernel of ours, driven by jupyter_client."""

    def __init__(self, kernel: str, folder: Path):
        self.name, self.kernel, self.folder = "cellblock", kernel, folder
        self.many: list[Client] = []

    def make(self, index: int = 0) -> Client:
        folder = self.folder / str(index)
        folder.mkdir(exist_ok=True)
        return Client(self.kernel, folder)

    def cell(self, code: str, attributes: str = "") -> str:
        return f"```python{attributes}\n{code}\n```"

    def run(self, client: Client, code: str, attributes: str = ""):
        ran = client.run(self.cell(code, attributes))
        if ran.error:
            raise SystemExit(f"cellblock: {ran.error}")
        return ran

    def do(self, op: str, code: str = "", count: int = 0, rounds: int = 0) -> dict:
        if op == "open":
            self.one = self.make()
            return {"ms": self.one.ready * 1e3, "whole": lambda: (time.perf_counter() - self.one.began) * 1e3}
        if op == "run":
            ran = self.run(self.one, code)
            return {"ms": ran.seconds * 1e3, "characters": ran.characters, "head": ran.head}
        if op == "ephemeral":
            ran = self.run(self.one, code, " ephemeral")
            return {"ms": ran.seconds * 1e3, "head": ran.head}
        if op == "close":
            return {"ms": self.one.shutdown() * 1e3}
        began = time.perf_counter()
        with ThreadPoolExecutor(64) as pool:
            if op == "open_many":
                self.many = list(pool.map(self.make, range(count)))
                list(pool.map(lambda client: self.run(client, HELLO), self.many))
            elif op == "run_many":
                each = lambda client: [self.run(client, code).seconds * 1e3 for _ in range(rounds)]  # noqa: E731
                return {"samples": [ms for samples in pool.map(each, self.many) for ms in samples]}
            elif op == "close_many":
                list(pool.map(lambda client: client.shutdown(), self.many))
        return {"ms": (time.perf_counter() - began) * 1e3}

    def memory(self) -> float:
        return sum(resident(client.manager.provisioner.pid)[1] for client in self.many)

    def end(self) -> None:
        pass


class Peer:
    """A peer's library in a process and an environment of its own."""

    def __init__(self, name: str, python: Path, image: str):
        self.name, self.python, self.image = name, python, image
        self.until = float("inf")
        self.begin()

    def begin(self) -> None:
        self.before = self.containers()
        script = Path(__file__).with_name("sandbox_peers.py")
        self.process = subprocess.Popen([self.python, script, self.name, self.image], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)

    def do(self, op: str, **more) -> dict:
        self.process.stdin.write(json.dumps({"op": op, **more}) + "\n")
        self.process.stdin.flush()
        # One line for each order: nothing waits in the buffer.
        if not select.select([self.process.stdout], [], [], max(0.0, self.until - time.monotonic()))[0]:
            raise TooSlow(f"{self.name} took too long to {op}")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended while it should {op}")
        answer = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"{self.name} can't {op}: {answer['error']}")
        return answer

    def containers(self) -> set[str]:
        """Those of the peers' image that are not ours."""
        command = ["docker", "ps", "-aq", "--filter", f"ancestor={self.image}"]
        every, ours = (subprocess.run(command + more, capture_output=True, text=True).stdout.split()
                       for more in ([], ["--filter", "label=cellblock=1"]))
        return set(every) - set(ours)

    def again(self) -> None:
        """Ends it with all that it started, and begins anew."""
        self.process.kill()
        self.process.wait()
        for container in self.containers() - self.before:
            subprocess.run(["docker", "rm", "-f", container], capture_output=True)
        self.begin()

    def memory(self) -> float:
        return resident(self.process.pid)[1]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def said_hi(subject, answer: dict) -> dict:
    if answer.get("head", "").strip() != "hi":
        raise SystemExit(f"{subject.name} does not run code: {answer}")
    return answer


def one_session(subject, note, runs: int, megabytes: int, clean: int) -> None:
    opened = subject.do("open")
    note("open", opened["ms"])
    first = said_hi(subject, subject.do("run", code=HELLO))
    # Ours opens lazily: the time until the first result is the honest sum.
    note("first", opened["whole"]() if "whole" in opened else opened["ms"] + first["ms"])
    for _ in range(runs):
        note("warm", said_hi(subject, subject.do("run", code=HELLO))["ms"])
    if "whole" in opened:
        said_hi(subject, subject.do("ephemeral", code=HELLO))  # the first asks for spares to be kept
    for pause in (PAUSE, 0):
        for _ in range(clean):
            time.sleep(pause)
            done = said_hi(subject, subject.do("ephemeral", code=HELLO))
            note("ephemeral" if pause else "back_to_back", done["ms"])
    streamed = subject.do("run", code=STREAM.format(megabytes=megabytes))
    if streamed["characters"] < megabytes * 990_000:
        say(f"{subject.name} lost output: {streamed['characters']} of {megabytes} MB arrived")
    note("stream", streamed["characters"] / 1e6 / (streamed["ms"] / 1e3))
    note("close", subject.do("close")["ms"])


def many_sessions(subject, note, count: int, rounds: int) -> None:
    before = containers()
    note("many_open", subject.do("open_many", count=count)["ms"])
    for ms in subject.do("run_many", code=HELLO, rounds=rounds)["samples"]:
        note("many", ms)
    note("many_memory", subject.memory())
    note("many_containers", memory_of(containers() - before))
    note("many_close", subject.do("close_many")["ms"])


def bounded(subject, limit: float, work, *arguments) -> None:
    """A part of the bench; a peer that is too slow for it goes on without what is missing."""
    try:
        if isinstance(subject, Peer):
            subject.until = time.monotonic() + limit
        work(subject, *arguments)
    except TooSlow as slow:
        say(f"{slow}: more than {limit:.0f} s for this part; what is missing is left out")
        subject.again()


def value(samples: dict[str, list[float]], key: str) -> float | None:
    found = samples.get(key.removesuffix("_p95"))
    if not found:
        return None
    return sorted(found)[int(len(found) * 0.95)] if key.endswith("_p95") else statistics.median(found)


def table(results: dict[str, dict], sessions: int) -> str:
    names = list(results)
    rows = [["", *names], ["---"] + ["---:"] * len(names)]
    for key, title, more_is_better in FIGURES:
        row = [title.format(sessions=sessions)]
        ours = value(results["cellblock"], key)
        for name in names:
            theirs = value(results[name], key)
            text = number(theirs)
            if name != "cellblock" and theirs and ours:
                ratio = ours / theirs if more_is_better else theirs / ours
                text += f" ({ratio:.1f}x ours)" if not more_is_better else f" (1/{ratio:.1f} of ours)"
            row.append(text)
        rows.append(row)
    met = value(results["cellblock"], "ephemeral")
    verdict = "" if met is None else f"\n\nA clean container from a spare costs {met:.0f} ms: {'under' if met < 60 else 'NOT under'} 60 ms."
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + verdict


def environment(venv: Path) -> Path:
    python = venv / "bin" / "python"
    if not (venv / ".ready").exists():
        say(f"installing {', '.join(PACKAGES)} into {venv}")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (venv / ".ready").touch()
    return python


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--image", required=True, help="the image for the peers: ours, so that all run the same Python")
    options.add_argument("--peers", type=Path, default=Path("target/peers"), metavar="VENV",
                         help="their environment, made when it is missing")
    options.add_argument("--kernel", default="cellblock", metavar="NAME", help="our kernelspec; it is sent fences")
    options.add_argument("--sessions", type=int, default=20, help="sessions at once")
    options.add_argument("--quick", action="store_true", help="one round, few runs, 5 MB: does it work at all")
    options.add_argument("--json", action="store_true", help="the samples as JSON instead of the table")
    given = options.parse_args()
    rounds, runs, megabytes, clean, each = (1, 5, 5, 2, 2) if given.quick else (2, 30, 50, 5, 10)
    with tempfile.TemporaryDirectory() as folder:
        python = environment(given.peers)
        subjects = [Ours(given.kernel, Path(folder)), *(Peer(name, python, given.image) for name in PEERS)]
        results: dict[str, dict[str, list[float]]] = {subject.name: {} for subject in subjects}
        notes = {s.name: lambda key, ms, into=results[s.name]: into.setdefault(key, []).append(ms) for s in subjects}
        for turn in range(rounds):
            for subject in subjects:
                say(f"{subject.name}: one session, round {turn + 1} of {rounds}")
                # A peer takes ten seconds to close: fewer of its clean containers.
                few = clean if isinstance(subject, Ours) else 1
                bounded(subject, LIMITS["one"], one_session, notes[subject.name], runs, megabytes, few)
        for subject in subjects:
            say(f"{subject.name}: {given.sessions} sessions at once")
            few = each if isinstance(subject, Ours) else min(each, 3)
            bounded(subject, LIMITS["many"], many_sessions, notes[subject.name], given.sessions, few)
        for subject in subjects:
            subject.end()
    print(json.dumps(results, indent=2) if given.json else table(results, given.sessions))


if __name__ == "__main__":
    main()
