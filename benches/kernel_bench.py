#!/usr/bin/env python3
"""Times Jupyter kernels from a client's side, side by side in one run, and prints a Markdown table.

    python benches/kernel_bench.py [--quick] [--json] [--kernels NAME ...] [--llm-sandbox VENV --image IMAGE]

The kernels take turns in every round, so that whatever else the machine does meets all of them. Figures are
medians; ratios are against ipykernel in the same run. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_client.manager import KernelManager

REFERENCE = "python3"
LIMIT = 300.0
LLM_SANDBOX = "llm-sandbox[docker]==0.3.46"


@dataclass(frozen=True)
class Figure:
    """One row: what is measured, its unit, and what we want of it."""

    key: str
    title: str
    unit: str
    target: str = ""
    # Given our value and the reference's: is the target met?
    met: object = None
    higher_is_better: bool = False


FIGURES = [
    Figure("start", "start until `kernel_info_reply`", "ms", "at most 1/10", lambda us, them: us <= them / 10),
    Figure("first_cell", "start until the first cell's output", "ms"),
    Figure("rss", "idle memory of the kernel process", "MB", "at most 20 MB", lambda us, _: us <= 20),
    Figure("tree", "and of its children on the host (our reaper)", "MB"),
    Figure("empty", "empty cell", "ms"),
    Figure("expression", "expression cell", "ms", "at most 0.7x", lambda us, them: us <= 0.7 * them),
    Figure("expression_p99", "expression cell, p99", "ms"),
    Figure("print", "printing cell", "ms"),
    Figure("print_p99", "printing cell, p99", "ms"),
    Figure("stream", "50 MB of printed lines", "MB/s", "at least 2x", lambda us, them: us >= 2 * them, True),
    Figure("lost", "bytes of them lost", "", "0", lambda us, _: us == 0),
    Figure("late", "messages after idle", "", "0", lambda us, _: us == 0),
    Figure("messages", "messages used for them", ""),
    Figure("first_byte", "first byte of a slow cell", "ms", "at most 20 ms", lambda us, _: us <= 20),
    Figure("complete", "completion", "ms"),
    Figure("interrupt", "interrupt of a loop", "ms", "at most 50 ms", lambda us, _: us <= 50),
    Figure("sh", "`sh` block (`echo hi`)", "ms"),
    Figure("shutdown", "shutdown", "ms", "under 300 ms", lambda us, _: us < 300),
]


@dataclass
class Subject:
    """One kernel under test and its samples."""

    name: str
    fences: bool
    samples: dict[str, list[float]] = field(default_factory=dict)
    running: Client | None = None

    def python(self, code: str) -> str:
        return f"```python\n{code}\n```" if self.fences else code

    def shell(self, code: str) -> str:
        return f"```sh\n{code}\n```" if self.fences else f"%%sh\n{code}"

    def note(self, key: str, value: float) -> None:
        self.samples.setdefault(key, []).append(value)

    def value(self, key: str) -> float | None:
        base, _, tail = key.partition("_p99")
        found = self.samples.get(base if key.endswith("_p99") else key)
        if not found:
            return None
        return sorted(found)[int(len(found) * 0.99)] if key.endswith("_p99") else statistics.median(found)


class Client:
    """A started kernel, its channels, and when it was started."""

    def __init__(self, name: str, folder: Path):
        self.manager = KernelManager(kernel_name=name)
        self.began = time.perf_counter()
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, "CELLBLOCK_SANDBOX__OUTPUT": "1g", "CELLBLOCK_MODEL__LOCAL": "false"},
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.channels = self.manager.client()
        self.channels.start_channels()
        self.channels.kernel_info()
        self.shell(60)
        self.ready = time.perf_counter() - self.began
        # A subscription reaches the kernel in its own time: ask until its status is seen here.
        while True:
            self.channels.kernel_info()
            self.shell(60)
            with contextlib.suppress(queue.Empty):
                self.channels.get_iopub_msg(timeout=0.05)
                break
        for get in (self.channels.get_shell_msg, self.channels.get_iopub_msg):
            with contextlib.suppress(queue.Empty):
                while True:
                    get(timeout=0.05)

    def shell(self, timeout: float = LIMIT) -> dict:
        return self.channels.get_shell_msg(timeout=timeout)

    def run(self, code: str) -> Outcome:
        """Executes a cell; the time is until both the reply and idle are here."""
        began = time.perf_counter()
        return self.collect(self.channels.execute(code, store_history=False), began)

    def collect(self, request: str, began: float) -> Outcome:
        out = Outcome()
        while True:
            message = self.channels.get_iopub_msg(timeout=LIMIT)
            if message["parent_header"].get("msg_id") != request:
                continue
            out.messages += 1
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                out.first = out.first or time.perf_counter() - began
                out.characters += len(content["text"])
                out.head = out.head or content["text"][:100]
            elif kind == "error":
                out.error = f"{content['ename']}: {content['evalue']}"
            elif kind == "status" and content["execution_state"] == "idle":
                break
        while self.shell()["parent_header"].get("msg_id") != request:
            pass
        out.seconds = time.perf_counter() - began
        return out

    def late(self, request_window: float = 0.5) -> int:
        """Messages that still come after idle."""
        count = 0
        with contextlib.suppress(queue.Empty):
            while True:
                self.channels.get_iopub_msg(timeout=request_window)
                count += 1
        return count

    def shutdown(self) -> float:
        began = time.perf_counter()
        self.channels.stop_channels()
        self.manager.shutdown_kernel(now=False)
        return time.perf_counter() - began


@dataclass
class Outcome:
    seconds: float = 0.0
    first: float | None = None
    characters: int = 0
    messages: int = 0
    head: str = ""
    error: str | None = None


def resident(pid: int) -> tuple[float, float]:
    """MB of memory of a process, and of it and its descendants; pages that they share count for each."""
    sizes, todo = [], [pid]
    while todo:
        process = Path("/proc") / str(todo.pop())
        with contextlib.suppress(OSError):
            sizes += [int(line.split()[1]) for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS")]
            for task in (process / "task").iterdir():
                todo += map(int, (task / "children").read_text().split())
    return sizes[0] / 1024, sum(sizes) / 1024


def starts(subject: Subject, folder: Path) -> None:
    client = Client(subject.name, folder)
    subject.note("start", client.ready * 1e3)
    ran = client.run(subject.python("print('hi')"))
    subject.note("first_cell", (time.perf_counter() - client.began) * 1e3)
    if ran.head.strip() != "hi":
        raise SystemExit(f"{subject.name} does not run a cell: {ran}")
    subject.note("shutdown", client.shutdown() * 1e3)


def cells(subject: Subject, count: int) -> None:
    for key, code in (("empty", ""), ("expression", subject.python("x = 1 + 1\nx")), ("print", subject.python("print('x')"))):
        for _ in range(3):
            subject.running.run(code)
        for _ in range(count):
            subject.note(key, subject.running.run(code).seconds * 1e3)
    for _ in range(max(2, count // 5)):
        subject.note("sh", subject.running.run(subject.shell("echo hi")).seconds * 1e3)


def stream(subject: Subject, megabytes: int) -> None:
    code = f"import sys\nline = 'x' * 99 + '\\n'\nfor _ in range({megabytes} * 10_000): sys.stdout.write(line)\nsys.stdout.flush()"
    ran = subject.running.run(subject.python(code))
    if ran.error:
        raise SystemExit(f"{subject.name}: {ran.error}")
    subject.note("stream", ran.characters / 1e6 / ran.seconds)
    subject.note("lost", megabytes * 1_000_000 - ran.characters)
    subject.note("messages", ran.messages)
    subject.note("late", subject.running.late())


def reactions(subject: Subject) -> None:
    client = subject.running
    ran = client.run(subject.python("import time\nprint('a', flush=True)\ntime.sleep(0.5)\nprint('b', flush=True)"))
    subject.note("first_byte", ran.first * 1e3)
    text = "```python\nimpor" if subject.fences else "impor"
    began = time.perf_counter()
    client.channels.complete(text, len(text))
    client.shell()
    subject.note("complete", (time.perf_counter() - began) * 1e3)
    request = client.channels.execute(subject.python("while True: pass"), store_history=False)
    time.sleep(0.4)
    began = time.perf_counter()
    client.manager.interrupt_kernel()
    ran = client.collect(request, began)
    subject.note("interrupt", ran.seconds * 1e3)


def measure(subjects: list[Subject], quick: bool, folder: Path) -> None:
    rounds, count, megabytes = (2, 20, 5) if quick else (5, 40, 50)
    for number in range(rounds):
        say(f"starts, round {number + 1} of {rounds}")
        for subject in subjects:
            starts(subject, folder)
    for subject in subjects:
        subject.running = Client(subject.name, folder)
        subject.running.run(subject.python("print('hi')"))
    time.sleep(1)
    for subject in subjects:
        alone, with_children = resident(subject.running.manager.provisioner.pid)
        subject.note("rss", alone)
        subject.note("tree", with_children)
    for number in range(rounds):
        say(f"cells, round {number + 1} of {rounds}")
        for subject in subjects:
            cells(subject, count)
            reactions(subject)
    for number in range(1 if quick else 3):
        say(f"{megabytes} MB streams, round {number + 1}")
        for subject in subjects:
            stream(subject, megabytes)
    for subject in subjects:
        subject.running.shutdown()


PEER = """
import json, logging, statistics, sys, time
from llm_sandbox import SandboxSession
logging.disable(logging.CRITICAL)
session = SandboxSession(image=sys.argv[1], lang="python", keep_template=True, skip_environment_setup=True)
session.open()
times = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    assert session.run("print('hi')").stdout.strip() == "hi"
    times.append((time.perf_counter() - began) * 1e3)
print(json.dumps(statistics.median(times)))
session.close()
"""


def llm_sandbox(venv: Path, image: str, quick: bool) -> float:
    """Milliseconds of one `run` of llm-sandbox, installed in an environment of its own."""
    python = venv / "bin" / "python"
    if not python.exists():
        say(f"installing {LLM_SANDBOX} into {venv}")
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", LLM_SANDBOX], check=True)
    say("llm-sandbox: open, run, close")
    done = subprocess.run([python, "-c", PEER, image, "5" if quick else "20"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"llm-sandbox failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def table(subjects: list[Subject], peer: float | None) -> str:
    reference = next((s for s in subjects if s.name == REFERENCE), None)
    ours = [s for s in subjects if s is not reference]
    heads = ["", *(["ipykernel"] if reference else []), *(s.name for s in ours), "target"]
    rows = [heads, ["---"] + ["---:"] * (len(heads) - 2) + ["---"]]
    for figure in FIGURES:
        row = [figure.title + (f" ({figure.unit})" if figure.unit else "")]
        base = reference.value(figure.key) if reference else None
        if reference:
            row.append(number(base))
        for subject in ours:
            value = subject.value(figure.key)
            text = number(value)
            if value is not None and base and figure.unit:
                text += f" ({value / base:.2f}x)" if value / base < 10 else f" ({value / base:.0f}x)"
            if figure.met and value is not None and (base is not None or "x" not in figure.target and "/" not in figure.target):
                text += " ✓" if figure.met(value, base) else " ✗"
            row.append(text)
        rows.append([*row, figure.target])
    if peer is not None:
        row = ["`sh` block against llm-sandbox's `run`, " + f"{peer:.0f} ms"]
        if reference:
            row.append("")
        for subject in ours:
            value = subject.value("sh")
            row.append(f"1/{peer / value:.0f} {'✓' if value < peer / 20 else '✗'}")
        rows.append([*row, "under 1/20"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kernels", nargs="+", default=[REFERENCE, "cellblock-python", "cellblock"], metavar="NAME",
                         help="kernelspecs, in the order of the columns; `cellblock` is sent fences")
    options.add_argument("--quick", action="store_true", help="fewer rounds and a 5 MB stream: does it work at all")
    options.add_argument("--json", action="store_true", help="the figures as JSON instead of the table")
    options.add_argument("--llm-sandbox", type=Path, metavar="VENV", help="also time llm-sandbox, installed into this environment when it is missing")
    options.add_argument("--image", help="the image for llm-sandbox: any with Python and a default command")
    given = options.parse_args()
    if given.llm_sandbox and not given.image:
        options.error("--llm-sandbox needs --image")
    subjects = [Subject(name, fences=name == "cellblock") for name in given.kernels]
    with tempfile.TemporaryDirectory() as folder:
        measure(subjects, given.quick, Path(folder))
    peer = llm_sandbox(given.llm_sandbox, given.image, given.quick) if given.llm_sandbox else None
    if given.json:
        figures = {s.name: {f.key: s.value(f.key) for f in FIGURES} for s in subjects}
        print(json.dumps({**figures, **({"llm-sandbox": {"run": peer}} if peer is not None else {})}, indent=2))
    else:
        print(table(subjects, peer))


if __name__ == "__main__":
    main()
