"""A server that speaks `/v1/chat/completions` and answers by script, slowly when asked to.

The last message of the request decides: "talk slowly" streams a word every 0.1 s for a minute, "count N for me"
the numbers to N, "fail now" gives a 401, "please run CODE" a call of `run_code` with that Python when tools are offered,
the result of a call "Done: ", anything else the sentence in `ANSWER`. Replies that were planned with `say` and `call` come
before all that, one a request. Requests are kept in `requests`; streams that the client left are counted in `left`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = "Bread needs **flour**, water, salt and *time*: about 18 hours."


class ScriptedModel:
    def __enter__(self) -> ScriptedModel:
        self.requests: list[dict] = []
        # Headers of those requests, and headers that every answer has.
        self.heads: list[dict[str, str]] = []
        self.headers: dict[str, str] = {}
        self.left = 0
        self.planned: list[tuple[list[dict] | str, str | int]] = []
        # How many tokens it says a request had.
        self.reads = lambda request: 11
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.script = self  # type: ignore[attr-defined]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.server.shutdown()
        self.server.server_close()

    def say(self, text: str) -> None:
        """Plans a reply of words."""
        self.planned.append((said(text), "stop"))

    def call(self, tool: str, arguments: dict, before: str = "") -> None:
        """Plans a reply that calls a tool, its arguments in pieces of a few characters as models send them."""
        self.planned.append((called(tool, arguments, f"planned-{len(self.planned)}", before), "tool_calls"))

    def fail(self, status: int, message: str) -> None:
        """Plans an error."""
        self.planned.append((message, status))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "CELLBLOCK_MODEL__NAME": "openai/test",
            "CELLBLOCK_MODEL__BASE_URL": f"http://127.0.0.1:{self.server.server_port}/v1",
            "CELLBLOCK_MODEL__API_KEY": "not-a-key",
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def end_headers(self) -> None:
        for name, value in self.server.script.headers.items():  # type: ignore[attr-defined]
            self.send_header(name, value)
        super().end_headers()

    def do_GET(self) -> None:
        self.json(200, {"object": "list", "data": [{"id": "test", "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        script = self.server.script  # type: ignore[attr-defined]
        script.requests.append(request)
        script.heads.append({name.lower(): value for name, value in self.headers.items()})
        if not self.path.endswith("/chat/completions"):
            self.json(404, {"error": {"message": f"nothing at {self.path}"}})
            return
        if script.planned and request.get("stream"):
            deltas, ending = script.planned.pop(0)
            if isinstance(ending, int):
                self.json(ending, {"error": {"message": deltas, "type": "invalid_request_error"}})
            else:
                self.stream(request, deltas, 0.0, ending)
            return
        asked = text_of(request["messages"][-1])
        if "fail now" in asked:
            self.json(401, {"error": {"message": "the key is wrong", "type": "invalid_request_error"}})
            return
        delay = 0.0
        wanted = re.search(r"please run (.+)", asked, re.DOTALL)
        if request["messages"][-1]["role"] == "tool":
            pieces = ["Done: ", "the model ", "has seen it."]
        elif wanted and request.get("tools") and request.get("stream"):
            deltas = called("run_code", {"code": wanted[1], "language": "python"}, "call-1", "Let me see. ")
            self.stream(request, deltas, delay, "tool_calls")
            return
        elif "talk slowly" in asked.lower():
            pieces, delay = [f"word{n} " for n in range(600)], 0.1
        elif counted := re.search(r"count (\d+) for me", asked):
            pieces = [f"{n} " for n in range(1, int(counted[1]) + 1)]
        else:
            pieces = [piece + " " for piece in ANSWER.split(" ")]
            pieces[-1] = pieces[-1].rstrip()
        if request.get("stream"):
            self.stream(request, [{"content": piece} for piece in pieces], delay)
        else:
            message = {"role": "assistant", "content": "".join(pieces)}
            self.json(200, self.frame(request, message=message, finish_reason="stop") | {"usage": self.usage(request, pieces)})

    def stream(self, request: dict, deltas: list[dict], delay: float, ending: str = "stop") -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.event(self.frame(request, delta={"role": "assistant", "content": ""}))
            for delta in deltas:
                self.event(self.frame(request, delta=delta))
                time.sleep(delay)
            self.event(self.frame(request, delta={}, finish_reason=ending))
            self.event(self.frame(request) | {"choices": [], "usage": self.usage(request, deltas)})
            self.chunk(b"data: [DONE]\n\n")
            self.chunk(b"")
        except OSError:
            self.server.script.left += 1  # type: ignore[attr-defined]
            self.close_connection = True

    def frame(self, request: dict, finish_reason: str | None = None, **content) -> dict:
        return {
            "id": "chatcmpl-1", "object": "chat.completion.chunk" if request.get("stream") else "chat.completion",
            "created": 1700000000, "model": request.get("model"),
            "choices": [{"index": 0, "finish_reason": finish_reason, **content}],
        }

    def usage(self, request: dict, pieces: list) -> dict:
        read = self.server.script.reads(request)  # type: ignore[attr-defined]
        return {"prompt_tokens": read, "completion_tokens": len(pieces), "total_tokens": read + len(pieces)}

    def event(self, data: dict) -> None:
        self.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def json(self, status: int, body: dict) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def said(text: str) -> list[dict]:
    return [{"content": word} for word in re.findall(r"\S*\s*", text) if word]


def called(tool: str, arguments: dict, ident: str, before: str) -> list[dict]:
    written = json.dumps(arguments)
    call = {"index": 0, "id": ident, "type": "function", "function": {"name": tool, "arguments": ""}}
    pieces = [{"index": 0, "function": {"arguments": written[at : at + 7]}} for at in range(0, len(written), 7)]
    return said(before) + [{"tool_calls": [piece]} for piece in (call, *pieces)]


def text_of(message: dict) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
