#!/usr/bin/env python3
"""Drives one peer's sandbox by orders on standard input; started by sandbox_bench.py in the peers' environment.

    python sandbox_peers.py llm-sandbox|autogen IMAGE

An order is a JSON object on a line, the answer too. Times are taken here, around the peer's own calls, so that neither its
imports nor the pipe count.
"""

import asyncio
import json
import logging
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

logging.disable(logging.CRITICAL)
PEER, IMAGE = sys.argv[1:3]


class LlmSandbox:
    """llm-sandbox: a container per session, `docker exec` per run."""

    def __init__(self):
        from llm_sandbox import SandboxSession

        self.make = lambda: SandboxSession(
            image=IMAGE, lang="python", keep_template=True, skip_environment_setup=True, verbose=False)

    def open(self):
        self.session = self.make()
        self.session.open()
        return self

    def run(self, code):
        return self.session.run(code).stdout

    def close(self):
        self.session.close()


class AutoGen:
    """AutoGen's DockerCommandLineCodeExecutor: the same, asynchronous."""

    def __init__(self):
        from autogen_core import CancellationToken
        from autogen_core.code_executor import CodeBlock
        from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

        self.token, self.block = CancellationToken, CodeBlock
        self.make = lambda folder: DockerCommandLineCodeExecutor(image=IMAGE, work_dir=folder, timeout=300)

    def open(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.loop = asyncio.new_event_loop()
        self.executor = self.make(self.folder.name)
        self.loop.run_until_complete(self.executor.start())
        return self

    def run(self, code):
        block = self.block(language="python", code=code)
        return self.loop.run_until_complete(self.executor.execute_code_blocks([block], self.token())).output

    def close(self):
        self.loop.run_until_complete(self.executor.stop())
        self.folder.cleanup()


KIND = {"llm-sandbox": LlmSandbox, "autogen": AutoGen}[PEER]
KIND()  # its imports


def timed(work, *arguments):
    began = time.perf_counter()
    result = work(*arguments)
    return (time.perf_counter() - began) * 1e3, result


def ephemeral(code):
    """A clean container for one run: open, run, close."""
    one = KIND().open()
    out = one.run(code)
    one.close()
    return out


one, many = None, []
pool = ThreadPoolExecutor(64)
for line in sys.stdin:
    order = json.loads(line)
    op, code = order["op"], order.get("code", "")
    answer = {}
    try:
        if op == "open":
            answer["ms"], one = timed(KIND().open)
        elif op == "run":
            answer["ms"], out = timed(one.run, code)
            answer.update(characters=len(out), head=out[:100])
        elif op == "close":
            answer["ms"], _ = timed(one.close)
        elif op == "ephemeral":
            answer["ms"], out = timed(ephemeral, code)
            answer.update(head=out[:100])
        elif op == "open_many":
            answer["ms"], many = timed(lambda: list(pool.map(lambda _: KIND().open(), range(order["count"]))))
        elif op == "run_many":  # each session runs one after the other, all sessions at the same time
            def rounds(session):
                return [timed(session.run, code)[0] for _ in range(order["rounds"])]

            answer["samples"] = [ms for samples in pool.map(rounds, many) for ms in samples]
        elif op == "close_many":
            answer["ms"], _ = timed(lambda: list(pool.map(lambda session: session.close(), many)))
            many = []
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
