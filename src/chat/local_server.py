"""Serves one model file to this user's kernels, and ends with the last of them.

Started by the kernel with: SOCKET MODEL NAME CONTEXT THREADS. Every kernel keeps one connection to
SOCKET open for as long as it lives; the operating system closes it however the kernel ends. A kernel
that connects is told where the model's server is and the token it asks for:
one line of JSON, {"url", "token", "name", "context"} or {"error"}.

The socket's folder is private to the user. The model's server listens on loopback and answers nobody
without the token, so neither another user of this machine nor a web page can use it.
"""
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time

# A kernel that starts this process is at the socket at once; without one there is nothing to do.
LONELY = 30.0


def main(path, model, name, context, threads):
    os.umask(0o077)
    # Only the kernels decide how long this lives: not the terminal that one of them was started from.
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    # A fresh name moved into place: the socket is never seen before it listens.
    fresh = "%s.%d" % (path, os.getpid())
    listener.bind(fresh)
    listener.listen(128)
    os.rename(fresh, path)
    listener.setblocking(False)

    answer = []
    wake_read, wake_write = os.pipe()

    def load():
        try:
            answer.append(serve(model, name, context, threads))
        except BaseException as error:  # whatever it is, the kernels must hear of it
            answer.append({"error": "%s: %s" % (type(error).__name__, error)})
        os.write(wake_write, b"x")

    threading.Thread(target=load, daemon=True).start()

    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    kernels = set()
    began = time.monotonic()
    seen = False
    while kernels or not seen:
        ready = selector.select(1.0)
        if not seen and time.monotonic() - began > LONELY:
            break
        for key, _ in ready:
            if key.fileobj is listener:
                kernel, _ = listener.accept()
                seen = True
                kernel.setblocking(True)
                kernels.add(kernel)
                selector.register(kernel, selectors.EVENT_READ)
                if answer:
                    tell(kernel, answer[0])
            elif key.fileobj == wake_read:
                selector.unregister(wake_read)
                for kernel in list(kernels):
                    tell(kernel, answer[0])
            else:
                # A kernel never writes: readable means that it is gone.
                selector.unregister(key.fileobj)
                kernels.discard(key.fileobj)
                key.fileobj.close()
        if answer and "error" in answer[0]:
            break
    # The name goes before the listener: whoever finds no name starts a new server, and whoever got in
    # before sees the connection end and does the same.
    os.unlink(path)
    listener.close()
    os._exit(0)


def tell(kernel, answer):
    try:
        kernel.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass  # gone; the selector sees it next


def serve(model, name, context, threads):
    import xllamacpp

    token = secrets.token_urlsafe(32)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [token]
    params.n_ctx = context
    params.n_parallel = 1
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.use_jinja = True
    params.n_threads_http = 2
    params.cache_ram_mib = 128
    params.cors_origins = ""
    params.ui = False
    params.endpoint_slots = False
    server = xllamacpp.Server(params)
    # It lives as long as this process.
    globals()["SERVER"] = server
    return {"url": server.listening_address + "/v1", "token": token, "name": name, "context": context}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
