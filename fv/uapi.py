"""A client of WireGuard's configuration protocol and of the engine's own control socket (docs/plan.md).

Both are `key=value` lines over a stream socket, an empty line at the end of each message.
"""

import os
import pathlib
import socket
import struct
from collections.abc import Iterator

import msgspec

from fv.errors import FvError, Where
from fv.plan.text import decode

WIREGUARD_FOLDER = "/var/run/wireguard"
TIMEOUT = 10.0  # seconds; the engine answers within a turn of its loop


class Peer(msgspec.Struct, frozen=True):
    public_key: str  # hex, as on the wire
    endpoint: str = ""
    allowed_ips: tuple[str, ...] = ()
    handshake: float = 0.0  # unix time; 0: never
    received: int = 0
    sent: int = 0
    keepalive: int = 0
    has_psk: bool = False


class Device(msgspec.Struct, frozen=True):
    name: str
    listen_port: int = 0
    fwmark: int = 0
    peers: tuple[Peer, ...] = ()


class Connection:
    """One request, one answer. A context manager."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(TIMEOUT)
        self.buffer = b""

    def __enter__(self) -> "Connection":
        where = Where(self.path)
        try:
            self.socket.connect(self.path)
        except (FileNotFoundError, ConnectionRefusedError):
            self.socket.close()
            raise FvError("no engine listens there", where=where, hint="start one with `fv up FILE`") from None
        except PermissionError:
            self.socket.close()
            raise FvError("this user may not talk to the engine", where=where, hint="run as root (sudo)") from None
        except OSError as error:
            self.socket.close()
            raise FvError(error.strerror or str(error), where=where) from None
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, raw: bytes) -> None:
        try:
            self.socket.sendall(raw)
        except OSError as error:
            raise FvError(f"the engine went away: {error.strerror or error}", where=Where(self.path)) from None

    def more(self) -> bool:
        try:
            raw = self.socket.recv(1 << 16)
        except TimeoutError:
            raise FvError(f"no answer within {TIMEOUT:.0f} s", where=Where(self.path)) from None
        except OSError as error:
            raise FvError(f"the engine went away: {error.strerror or error}", where=Where(self.path)) from None
        self.buffer += raw
        return bool(raw)

    def answer(self) -> list[tuple[str, str]]:
        """The lines of one message, without its errno when that is 0; FvError when it is another."""
        while b"\n\n" not in self.buffer:
            if not self.more():
                raise FvError("the engine closed the connection without an answer", where=Where(self.path))
        raw, _, self.buffer = self.buffer.partition(b"\n\n")
        pairs = [_pair(line) for line in raw.decode("utf-8", "replace").split("\n") if line]
        fault = next((value for key, value in pairs if key == "errno"), "0")
        if fault != "0":
            text = next((_decoded(value) for key, value in pairs if key == "error"), "")
            number = abs(int(fault)) if fault.lstrip("-").isdigit() else 0
            raise FvError(text or f"the engine refuses: {os.strerror(number)}", where=Where(self.path))
        return [(key, value) for key, value in pairs if key != "errno"]

    def body(self, length: int) -> bytes:
        while len(self.buffer) < length:
            if not self.more():
                raise FvError("the engine's answer was cut short", where=Where(self.path))
        raw, self.buffer = self.buffer[:length], self.buffer[length:]
        return raw


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition("=")
    return key, value


def _decoded(text: str) -> str:
    try:
        return decode(text)
    except ValueError:
        return text


def stats(path: str) -> dict[str, str]:
    """`show=stats` of the control socket."""
    with Connection(path) as connection:
        connection.send(b"show=stats\n\n")
        return dict(connection.answer())


def plan_in_force(path: str) -> str:
    """`get=1`: the plan's text with its secrets."""
    return _text(path, b"get=1\n\n")


def log_ring(path: str) -> str:
    return _text(path, b"log=1\n\n")


def _text(path: str, request: bytes) -> str:
    with Connection(path) as connection:
        connection.send(request)
        head = dict(connection.answer())
        return connection.body(int(head.get("length", "0"))).decode("utf-8", "surrogateescape")


def swap(path: str, text: str) -> None:
    """All or nothing: FvError carries the engine's own words, and then the old plan is in force."""
    raw = text.encode("utf-8", "surrogateescape")
    with Connection(path) as connection:
        connection.send(f"swap=1\nlength={len(raw)}\n\n".encode() + raw)
        connection.answer()


def stop(path: str) -> int:
    """The engine ends as for SIGTERM: it begins to. Returns its process number, to wait for."""
    with Connection(path) as connection:
        # struct ucred: pid, uid, gid of whoever called listen (unix(7))
        raw = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        connection.send(b"stop=1\n\n")
        connection.answer()
    return int(struct.unpack("3i", raw)[0])


def device(name: str, folder: str = WIREGUARD_FOLDER) -> Device:
    """A device's state by `get=1`. Its private key is dropped on arrival."""
    with Connection(str(pathlib.Path(folder) / f"{name}.sock")) as connection:
        connection.send(b"get=1\n\n")
        return parse_device(name, connection.answer())


def parse_device(name: str, pairs: list[tuple[str, str]]) -> Device:
    blocks = list(_blocks(pairs))
    own = dict(blocks[0])
    return Device(
        name, _number(own.get("listen_port")), _number(own.get("fwmark")), tuple(_peer(block) for block in blocks[1:])
    )


def _blocks(pairs: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    block: list[tuple[str, str]] = []
    for key, value in pairs:
        if key == "public_key":
            yield block
            block = []
        block.append((key, value))
    yield block


def _peer(pairs: list[tuple[str, str]]) -> Peer:
    once = dict(pairs)
    return Peer(
        once["public_key"],
        once.get("endpoint", ""),
        tuple(value for key, value in pairs if key == "allowed_ip"),
        _number(once.get("last_handshake_time_sec")) + _number(once.get("last_handshake_time_nsec")) / 1e9,
        _number(once.get("rx_bytes")),
        _number(once.get("tx_bytes")),
        _number(once.get("persistent_keepalive_interval")),
        set(once.get("preshared_key", "0")) != {"0"},
    )


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
