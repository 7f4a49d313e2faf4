"""Kernels driven from a client's side, and what they leave behind."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_client.manager import KernelManager

# Generous: the machine may be busy with other things. Nothing asserts on time by this.
PATIENCE = 60


@dataclass(frozen=True)
class Kernels:
    """Names of the installed kernelspecs."""

    markdown: str = "cellblock"
    python: str = "cellblock-python"


def with_workspace(folder: Path) -> Path:
    """The folder, with a workspace that already belongs to the sandbox's user.

    Under root the kernel would give it to that user, and say so in the first cell.
    """
    (folder / "workspace").mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(folder / "workspace", 1000, 1000)
    return folder


def fence(code: str, language: str = "python") -> str:
    ticks = "```"
    while ticks in code:
        ticks += "`"
    return f"{ticks}{language}\n{code}\n{ticks}"


@dataclass
class Ran:
    """What one cell gave: the reply, and what was shown, in order."""

    reply: dict
    messages: list[dict] = field(default_factory=list)

    def stream(self, name: str) -> str:
        return "".join(m["content"]["text"] for m in self.messages if m["msg_type"] == "stream" and m["content"]["name"] == name)

    @property
    def stdout(self) -> str:
        return self.stream("stdout")

    @property
    def stderr(self) -> str:
        return self.stream("stderr")

    @property
    def status(self) -> str:
        return self.reply["content"]["status"]

    @property
    def result(self) -> str | None:
        results = [m["content"]["data"]["text/plain"] for m in self.messages if m["msg_type"] == "execute_result"]
        return results[-1] if results else None

    @property
    def error(self) -> str | None:
        errors = [f"{m['content']['ename']}: {m['content']['evalue']}" for m in self.messages if m["msg_type"] == "error"]
        return errors[-1] if errors else None

    @property
    def kinds(self) -> list[str]:
        return [m["msg_type"] for m in self.messages]

    def shown(self, mime: str = "text/markdown") -> list[str]:
        """Displays of that type with their updates applied, in order of first appearance."""
        out: list[tuple[str | None, str]] = []
        for m in self.messages:
            if m["msg_type"] not in ("display_data", "update_display_data") or mime not in m["content"]["data"]:
                continue
            ident = m["content"].get("transient", {}).get("display_id")
            text = m["content"]["data"][mime]
            if m["msg_type"] == "update_display_data":
                out = [(i, text if i == ident else t) for i, t in out]
            else:
                out.append((ident, text))
        return [text for _, text in out]

    def __str__(self) -> str:
        lines = [f"reply: {json.dumps(self.reply['content'])[:2000]}"]
        lines += [f"{m['msg_type']}: {json.dumps(m['content'])[:1000]}" for m in self.messages]
        return "\n".join(lines)


class Kernel:
    """One running kernel and a client of it; leaving the block shuts it down."""

    def __init__(self, name: str, folder: Path, env: dict[str, str] | None = None, ready: bool = True):
        self.name = name
        self.folder = folder
        with_workspace(folder)
        self.manager = KernelManager(kernel_name=name)
        self.log = open(folder.parent / f"{folder.name}-{uuid.uuid4().hex[:6]}.log", "w+b")
        self.manager.start_kernel(cwd=str(folder), env={**os.environ, **(env or {})}, stdout=self.log, stderr=self.log)
        self.client = self.manager.client()
        self.client.start_channels()
        if ready:
            try:
                self.client.wait_for_ready(timeout=PATIENCE)
            except RuntimeError as error:
                self.close()
                raise RuntimeError(f"{error}; the kernel's log:\n{self.said()}") from error

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def said(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text(errors="replace")[-4000:]

    @property
    def pid(self) -> int:
        return self.manager.provisioner.pid

    def close(self) -> None:
        self.client.stop_channels()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=False)
        self.log.close()

    def kill(self) -> None:
        """SIGKILL, with no chance to clean up."""
        os.kill(self.pid, signal.SIGKILL)
        self.manager.provisioner.process.wait()
        self.client.stop_channels()

    def python(self, code: str) -> str:
        """Python in the way of this kernel's cells."""
        return fence(code) if self.name == "cellblock" else code

    def shell(self, code: str) -> str:
        return fence(code, "sh") if self.name == "cellblock" else f"%%sh\n{code}"

    def run(self, code: str, timeout: float = PATIENCE, **options) -> Ran:
        return self.finish(self.client.execute(code, **options), timeout)

    def finish(self, msg_id: str, timeout: float = PATIENCE, ran: Ran | None = None) -> Ran:
        """Collects one request's outputs until idle, and its reply."""
        ran = ran or Ran({})
        end = time.monotonic() + timeout
        while True:
            message = self.iopub(msg_id, end)
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    break
            elif message["msg_type"] != "execute_input":
                ran.messages.append(message)
        ran.reply = self.reply_to(msg_id, max(1.0, end - time.monotonic()))
        return ran

    def iopub(self, msg_id: str, end: float) -> dict:
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"the kernel said nothing more; its log:\n{self.said()}") from None
            parent = message["parent_header"]
            # The manager, which sends the interrupts, counts its messages like the client: ids alone collide.
            if parent.get("msg_id") == msg_id and parent["msg_type"] != "interrupt_request":
                return message

    def until(self, msg_id: str, wanted, timeout: float = PATIENCE) -> Ran:
        """Collects outputs until `wanted(ran)` holds, while the cell runs."""
        ran = Ran({})
        end = time.monotonic() + timeout
        while not wanted(ran):
            message = self.iopub(msg_id, end)
            if message["msg_type"] == "status":
                assert message["content"]["execution_state"] != "idle", f"the cell ended too early:\n{ran}"
            elif message["msg_type"] != "execute_input":
                ran.messages.append(message)
        return ran

    def reply_to(self, msg_id: str, timeout: float = PATIENCE) -> dict:
        end = time.monotonic() + timeout
        while True:
            try:
                message = self.client.get_shell_msg(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"no reply; the kernel's log:\n{self.said()}") from None
            if message["parent_header"].get("msg_id") == msg_id:
                return message


class Watch:
    """Sees what is left of the kernels that were started with `env` below `root`.

    Other kernels may be running on this machine: only what belongs to these is looked at. Containers are told
    by the workspace they mount, processes by a mark in their environment.
    """

    def __init__(self, root: Path):
        self.root = root.resolve()
        self.mark = uuid.uuid4().hex
        self.tmp = self.root / "tmpdir"
        self.tmp.mkdir(parents=True, exist_ok=True)
        self.env = {"CLIENT_TEST_MARK": self.mark, "TMPDIR": str(self.tmp)}
        self.reapers_before = self.reapers()
        self.networks_before = docker("network", "ls", "-q", "--no-trunc")
        self.volumes_before = docker("volume", "ls", "-q")

    def containers(self) -> list[str]:
        ids = docker("ps", "-aq", "--no-trunc", "--filter", "label=cellblock=1")
        if not ids:
            return []
        # One that is gone by now is no leftover: inspect says so on stderr and lists the others.
        listed = subprocess.run(["docker", "inspect", *ids], capture_output=True, text=True).stdout
        return [
            f"{c['Name']} ({c['State']['Status']})"
            for c in json.loads(listed or "[]")
            if any(str(self.root) in (m.get("Source") or "") for m in c.get("Mounts") or [])
            or any(str(self.root) in b for b in c["HostConfig"].get("Binds") or [])
            or any(str(self.root) in (m.get("Source") or "") for m in c["HostConfig"].get("Mounts") or [])
        ]

    def processes(self) -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                environment = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if self.mark.encode() in environment or str(self.root) in command:
                found.append(f"{entry.name}: {command[:200]}")
        return found

    def reapers(self) -> set[int]:
        """Reapers of this very binary: nothing of a kernel's shows on them but that."""
        binary, found = os.environ.get("CELLBLOCK_BIN"), set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command, program = (entry / "cmdline").read_bytes(), os.readlink(entry / "exe")
            except OSError:
                continue
            if command.endswith(b"\0reaper\0") and (not binary or program == str(Path(binary).resolve())):
                found.add(int(entry.name))
        return found

    def folders(self) -> list[str]:
        """Folders of sessions without a name: they go with their kernel."""
        return [str(p) for p in self.root.glob("*/sessions/*")]

    def temporary(self) -> list[str]:
        return [str(p) for p in self.tmp.rglob("*")]

    def networks(self) -> list[str]:
        new = set(docker("network", "ls", "-q", "--no-trunc", "--filter", "label=cellblock=1")) - set(self.networks_before)
        return sorted(new)

    def volumes(self) -> list[str]:
        return sorted(set(docker("volume", "ls", "-q", "--filter", "label=cellblock=1")) - set(self.volumes_before))

    def left(self) -> dict[str, list[str]]:
        everything = {
            "containers": self.containers(), "processes": self.processes(), "temporary files": self.temporary(),
            "networks": self.networks(), "volumes": self.volumes(), "folders of sessions": self.folders(),
            "reapers": [str(pid) for pid in self.reapers() - self.reapers_before],
        }
        return {kind: names for kind, names in everything.items() if names}

    def assert_nothing_left(self, within: float = 40) -> None:
        end = time.monotonic() + within
        while left := self.left():
            assert time.monotonic() < end, f"{within} s later there are still {json.dumps(left, indent=2)}"
            time.sleep(0.2)

    def clean(self) -> None:
        """So that a failed test does not disturb the next one."""
        for name in self.containers():
            subprocess.run(["docker", "rm", "-f", name.split()[0].lstrip("/")], capture_output=True)
        for line in self.processes():
            try:
                os.kill(int(line.split(":")[0]), signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.tmp, ignore_errors=True)


def docker(*arguments: str) -> list[str]:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout.split()
