"""What runs inside a namespace: `python -m fv.demo.roles NAMESPACE ROLE ...`.

    engine DESCRIPTOR   compile the configuration read from the descriptor with this namespace's facts, become fvd
    server ADDRESS      the web server: / is a page, /stream never ends
    page URL            fetch the page, print it
    stream URL          read /stream, print a line `BYTES` four times a second

A role dies with the process that started it, even when that one is killed.
"""

import ctypes
import http.client
import http.server
import os
import pathlib
import secrets
import signal
import socket
import sys
import time

from pyroute2 import netns  # type: ignore[import-untyped]

_PR_SET_PDEATHSIG = 1  # prctl(2); kept across exec
_CHUNK = bytes(1 << 18)
_TITLE = "fv: it works"


def main() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # the parent ended before the kernel knew
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; only the parent acts on it
    namespace, role, *words = sys.argv[1:]
    netns.setns(namespace)
    {"engine": engine, "server": server, "page": page, "stream": stream}[role](*words)


def engine(descriptor: str) -> None:
    from fv.config.load import load
    from fv.engine import become_engine
    from fv.host import gather
    from fv.plan.compile import compile_plan

    loaded = load(f"/proc/self/fd/{descriptor}")
    os.close(int(descriptor))
    become_engine(compile_plan(loaded, gather(loaded.config)).plan)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    token = secrets.token_hex(8)

    def do_GET(self) -> None:
        seen = self.client_address[0]
        if self.path == "/stream":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(_CHUNK)
            except OSError:
                return
        body = f"<!doctype html><title>{_TITLE}</title><h1>{_TITLE}</h1><p>seen from {seen}, page {self.token}</p>\n"
        raw = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Nothing: the demo shows what matters."""


def server(address: str) -> None:
    listener = http.server.ThreadingHTTPServer((address, 80), _Handler)
    print("ready", flush=True)
    listener.serve_forever()


def page(host: str) -> None:
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("GET", "/")
    answer = connection.getresponse()
    sys.stdout.write(answer.read().decode())


def stream(host: str) -> None:
    with socket.create_connection((host, 80), timeout=10) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nHost: demo\r\n\r\n")
        buffer = bytearray(1 << 18)
        total, said = 0, time.monotonic()
        while count := connection.recv_into(buffer):
            total += count
            if time.monotonic() - said >= 0.25:
                said = time.monotonic()
                print(total, flush=True)
    print(total, flush=True)


if __name__ == "__main__":
    if not pathlib.Path("/proc/self").exists():
        sys.exit("/proc is not mounted")
    main()
