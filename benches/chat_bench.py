"""What the kernel itself adds to a model's reply: time to the first token, and CPU for a long reply.

    .venv/bin/python benches/chat_bench.py               # the kernelspec `cellblock` that Jupyter finds
    .venv/bin/python benches/chat_bench.py --json
    .venv/bin/python benches/chat_bench.py --rounds 50 --rate 100

A server in this process answers at once. Added to the first token is the time from sending `execute_request` to the arrival
of the model request, and from writing the first token to receiving it on iopub. CPU is that of the kernel process while 2,000
tokens stream at a fixed rate, as a share of one core, and while they come as fast as they can, in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from jupyter_client.manager import KernelManager

TOKENS = 2000
FIRST_TOKEN_MS = 5.0
CPU_PERCENT = 5.0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_) -> None:
        pass

    def do_POST(self) -> None:
        arrived = time.perf_counter()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = self.server
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        written = time.perf_counter()
        server.seen.append((arrived, written))
        began = time.perf_counter()
        for number in range(server.tokens):
            self.event({"choices": [{"index": 0, "delta": {"content": f"token{number} "}, "finish_reason": None}]})
            if server.rate:
                time.sleep(max(0.0, began + (number + 1) / server.rate - time.perf_counter()))
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": server.tokens, "total_tokens": 10}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, event: dict) -> None:
        frame = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "test"} | event
        self.chunk(b"data: " + json.dumps(frame).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_text(client, request: str) -> float:
    """When the first text of the reply to `request` is here; then waits for its end."""
    seen = None
    while True:
        message = client.get_iopub_msg(timeout=120)
        now = time.perf_counter()
        if message["parent_header"].get("msg_id") != request:
            continue
        if seen is None and "token0" in json.dumps(message["content"]):
            seen = now
        if message["content"].get("execution_state") == "idle":
            break
    client.get_shell_msg(timeout=120)
    if seen is None:
        raise SystemExit("no token was shown; is the model's address reached?")
    return seen


def run(rounds: int, rate: float) -> dict:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.seen, server.tokens, server.rate = [], 1, 0.0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "CELLBLOCK_MODEL__NAME": "openai/test", "CELLBLOCK_MODEL__LOCAL": "false", "CELLBLOCK_AGENT__MODE": "ask",
            "CELLBLOCK_MODEL__BASE_URL": f"http://127.0.0.1:{server.server_port}/v1", "CELLBLOCK_SANDBOX__WARM": "false",
            "CELLBLOCK_CONVERSATION__FILE": f"{folder}/talk.sqlite", "JPY_SESSION_NAME": f"{folder}/bench.ipynb",
        }
        manager = KernelManager(kernel_name="cellblock")
        manager.start_kernel(cwd=folder, env=environment)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=60)
        pid = manager.provisioner.pid
        try:
            added = []
            for number in range(rounds + 3):
                sent = time.perf_counter()
                shown = first_text(client, client.execute(f"Say token {number}, please."))
                arrived, written = server.seen[-1]
                added.append(((arrived - sent) + (shown - written)) * 1e3)
            added = sorted(added[3:])
            server.tokens = TOKENS
            before, began = cpu_seconds(pid), time.perf_counter()
            first_text(client, client.execute("Say many tokens, fast."))
            fast, fast_time = cpu_seconds(pid) - before, time.perf_counter() - began
            server.rate = rate
            before, began = cpu_seconds(pid), time.perf_counter()
            first_text(client, client.execute("Say many tokens, slowly."))
            slow, slow_time = cpu_seconds(pid) - before, time.perf_counter() - began
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=False)
            server.shutdown()
    return {
        "first_token_added_ms": {"median": statistics.median(added), "p95": added[int(len(added) * 0.95) - 1]},
        "cpu_at_rate_percent": 100 * slow / slow_time, "rate": rate,
        "cpu_fast_s": fast, "fast_s": fast_time,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--rate", type=float, default=100.0, help="tokens a second")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = run(options.rounds, options.rate)
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    first, cpu = figures["first_token_added_ms"], figures["cpu_at_rate_percent"]
    print("| figure | value | target | met |\n| --- | --- | --- | --- |")
    print(f"| added to the first token, median | {first['median']:.1f} ms | {FIRST_TOKEN_MS} ms | {met(first['median'] <= FIRST_TOKEN_MS)} |")
    print(f"| the same, 95th percentile | {first['p95']:.1f} ms | | |")
    print(f"| CPU, {TOKENS} tokens at {options.rate:.0f} a second | {cpu:.1f}% of a core | {CPU_PERCENT}% | {met(cpu < CPU_PERCENT)} |")
    print(f"| CPU, {TOKENS} tokens as fast as they come | {figures['cpu_fast_s']:.2f} s in {figures['fast_s']:.2f} s | | |")
    return 0


def met(holds: bool) -> str:
    return "yes" if holds else "NO"


if __name__ == "__main__":
    raise SystemExit(main())
