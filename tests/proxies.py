"""What the tests of the reference proxies share: an echo, and other programs run with a configuration."""

import asyncio
import json
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from lab.peers import binaries
from tests.peers.proxy_shell import Datagrams, Stream


def free_port() -> int:
    """A port of 127.0.0.1 that is free for TCP and UDP just now."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port: int = tcp.getsockname()[1]
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Echo:
    """Says back what it is told, over TCP (FIN for FIN) and UDP on one port."""

    def __init__(self, host: str):
        self.host = host
        self.port = 0

    async def __aenter__(self) -> "Echo":
        while not self.port:
            self.tcp = await asyncio.start_server(self._serve, self.host, 0)
            port = self.tcp.sockets[0].getsockname()[1]
            try:
                self.udp = Datagrams(self.host, port, lambda data, source: self.udp.send(data, source))
                self.port = port
            except OSError:
                self.tcp.close()
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except (OSError, asyncio.CancelledError):
            pass
        writer.close()

    async def __aexit__(self, *_: object) -> None:
        self.tcp.close()
        self.udp.close()


async def talk(stream: Stream, size: int, *, half_close: bool = True) -> None:
    """Sends `size` bytes to an echo and has them back; then FIN, and nothing more may come."""
    data = bytes(i * 7 & 255 for i in range(size))
    await stream.write(data)
    async with asyncio.timeout(20):
        assert await stream.read_exactly(size) == data
        if half_close:
            await stream.write(b"last")
            await stream.finish()
            assert await stream.read_all() == b"last"
    stream.close()


class Running:
    """A program of the peers' cache, until the end of the block; its ports accept when the block begins."""

    def __init__(self, name: str, arguments: list[str], folder: Path, ports: list[int]):
        self.command = [str(binaries() / name), *arguments]
        self.log = folder / f"{name}.log"
        self.ports = ports

    def __enter__(self) -> "Running":
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 30
        for port in self.ports:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if self.process.poll() is not None or time.monotonic() > end:
                        self.__exit__()
                        raise AssertionError(f"{self.command[0]} does not listen:\n{self.log.read_text()}") from None
                    time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _json(folder: Path, name: str, value: Any) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(value))
    return str(path)


LOCAL_DNS: dict[str, Any] = {"type": "local", "tag": "local"}
DIRECT: dict[str, Any] = {"type": "direct"}
FREEDOM: dict[str, Any] = {"protocol": "freedom", "settings": {"finalRules": [{"action": "allow"}]}}


def sing_box(folder: Path, *, inbounds: list[Any], outbounds: list[Any] | None = None, ports: list[int]) -> Running:
    config = {
        "log": {"level": "info"},
        "dns": {"servers": [LOCAL_DNS]},
        "inbounds": inbounds,
        "outbounds": outbounds or [DIRECT],
    }
    return Running("sing-box", ["run", "-c", _json(folder, "sing-box", config)], folder, ports)


def xray(folder: Path, *, inbounds: list[Any], outbounds: list[Any] | None = None, ports: list[int]) -> Running:
    config = {"log": {"loglevel": "info"}, "inbounds": inbounds, "outbounds": outbounds or [FREEDOM]}
    return Running("xray", ["run", "-c", _json(folder, "xray", config)], folder, ports)


def shadowsocks_rust(folder: Path, program: str, config: Any, ports: list[int]) -> Running:
    """program: ssserver or sslocal."""
    return Running(program, ["-c", _json(folder, program, config)], folder, ports)
