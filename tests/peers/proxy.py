"""What the reference peers of the proxy protocols share: targets, the actions of a sans-IO core, and its scripts.

A core is fed bytes and answers with a list of actions; it never sees a socket. How bytes are cut into calls must not
matter, so each core is written as a script, a generator that takes what it needs and pauses where there is too little:

    head = yield from self.take(4)

A server's shell calls receive, receive_eof, dialled, from_target and target_eof; a client's calls start, receive,
receive_eof, send and finish. Both perform what comes back, in order (tests/peers/proxy_shell.py).
"""

import ipaddress
import struct
from collections.abc import Generator
from dataclasses import dataclass

IPV4, NAME, IPV6 = 1, 3, 4
MAX_ADDRESS = 1 + 1 + 255 + 2

Address = tuple[str, int]
Script = Generator[None, None, None]


class BadInputError(Exception):
    """What came does not follow the protocol; the text says how."""


@dataclass(frozen=True)
class Target:
    """`host` is an IP address in its usual text, or a name (bytes outside UTF-8 as surrogate escapes)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


NOWHERE = Target("0.0.0.0", 0)


# --- what a core asks of its shell ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Bytes for the wire, in one write: some receivers judge by the first segment."""

    data: bytes


@dataclass(frozen=True)
class Dial:
    """Server: connect to the target and tell the outcome by dialled()."""

    target: Target
    user: str | None = None


@dataclass(frozen=True)
class Associate:
    """Server: open a UDP relay and tell its address by dialled(). `hint` is what the client says it sends from."""

    hint: Target
    user: str | None = None


@dataclass(frozen=True)
class Payload:
    """Plain bytes for whoever is behind: the target at a server, the application at a client."""

    data: bytes


@dataclass(frozen=True)
class Opened:
    """Client: the proxy has agreed; payload may be sent. `bound` is what it says its end is."""

    bound: Target | None = None


@dataclass(frozen=True)
class Ended:
    """Nothing more comes from the wire: at a server, pass a FIN to the target."""


@dataclass(frozen=True)
class Finish:
    """Send FIN on the wire and go on reading."""


@dataclass(frozen=True)
class HangUp:
    """Server: this target is done with; the client's connection stays."""


@dataclass(frozen=True)
class Close:
    """The end of the connection. how: fin (orderly), reset (zero linger), drain (say nothing, read on for a while)."""

    reason: str
    how: str = "fin"


Action = Send | Dial | Associate | Payload | Opened | Ended | Finish | HangUp | Close


class Core:
    """Runs scripts over what has come. A script that raises BadInputError ends the connection by refuse()."""

    def __init__(self) -> None:
        self.wire = bytearray()
        self.wire_ended = False
        self.target = bytearray()
        self.target_ended = False
        self.outcome: tuple[str, Target] | None = None  # "" for success, and where the outgoing socket is
        self.closed = False
        self.actions: list[Action] = []
        self.scripts: list[Script] = [self.script()]

    def script(self) -> Script:
        raise NotImplementedError

    def refuse(self, error: BadInputError) -> None:
        self.close(str(error))

    def close(self, reason: str, how: str = "fin") -> None:
        self.actions.append(Close(reason, how))
        self.closed = True
        self.scripts.clear()

    def turn(self) -> list[Action]:
        """Lets every script go as far as it can; hands out what they want done."""
        before: tuple[int, ...] = ()
        while (now := self._progress()) != before:
            before = now
            for script in list(self.scripts):
                if self.closed:
                    break
                try:
                    next(script)
                except StopIteration:
                    if script in self.scripts:
                        self.scripts.remove(script)
                except BadInputError as error:
                    self.refuse(error)
        done, self.actions = self.actions, []
        return done

    def _progress(self) -> tuple[int, ...]:
        return len(self.wire), len(self.target), len(self.actions), len(self.scripts), self.outcome is None

    # What a shell calls.

    def start(self) -> list[Action]:
        return self.turn()

    def receive(self, data: bytes) -> list[Action]:
        self.wire += data
        return self.turn()

    def receive_eof(self) -> list[Action]:
        self.wire_ended = True
        return self.turn()

    def dialled(self, error: str, bound: Target = NOWHERE) -> list[Action]:
        """error: "", refused, net-unreachable, host-unreachable, timeout, denied or failed."""
        self.outcome = (error, bound)
        return self.turn()

    def from_target(self, data: bytes) -> list[Action]:
        self.target += data
        return self.turn()

    def target_eof(self) -> list[Action]:
        self.target_ended = True
        return self.turn()

    # What a script calls.

    def take(self, size: int) -> Generator[None, None, bytes]:
        """The next `size` bytes of the wire."""
        while len(self.wire) < size:
            if self.wire_ended:
                raise BadInputError("the connection ended inside a message")
            yield
        data = bytes(self.wire[:size])
        del self.wire[:size]
        return data

    def dial(self, wanted: Dial | Associate) -> Generator[None, None, tuple[str, Target]]:
        self.outcome = None
        self.actions.append(wanted)
        while not (known := self._known()):
            yield
        return known[0]

    def _known(self) -> list[tuple[str, Target]]:
        return [] if self.outcome is None else [self.outcome]

    def copy_to_target(self) -> Script:
        """Everything from the wire is payload, until its FIN."""
        while True:
            if self.wire:
                self.actions.append(Payload(bytes(self.wire)))
                self.wire.clear()
            if self.wire_ended:
                self.actions.append(Ended())
                return
            yield

    def copy_from_target(self) -> Script:
        while True:
            if self.target:
                self.actions.append(Send(bytes(self.target)))
                self.target.clear()
            if self.target_ended:
                self.actions.append(Finish())
                return
            yield


# --- the address block of SOCKS5 (RFC 1928 section 5), which Shadowsocks and others have taken over -----------------


def literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def name_bytes(host: str) -> bytes:
    return host.encode("utf-8", "surrogateescape")


def address_block(target: Target, *, literal_as_name: bool = False) -> bytes:
    """ATYP, address, port. `literal_as_name` sends an IP address in a name's clothes."""
    port = struct.pack(">H", target.port)
    ip = None if literal_as_name else literal(target.host)
    if ip is not None:
        return bytes([IPV4 if ip.version == 4 else IPV6]) + ip.packed + port
    name = name_bytes(target.host)
    if not 1 <= len(name) <= 255:
        raise ValueError(f"a name of {len(name)} bytes does not fit an address block")
    return bytes([NAME, len(name)]) + name + port


class AddressTypeError(BadInputError):
    """An ATYP that is none of 1, 3 and 4."""


def take_address(
    data: bytes | bytearray, *, brackets: bool = False, port_zero: bool = False
) -> tuple[Target, int] | None:
    """The block at the start of `data` and its length, None if there is too little, BadInputError if it is none.

    A name that is an IP address becomes that address; `brackets`: also in brackets.
    """
    if not data:
        return None
    if data[0] not in (IPV4, NAME, IPV6):
        raise AddressTypeError(f"address type {data[0]}")
    if data[0] == NAME:
        if len(data) < 2:
            return None
        start, size = 2, data[1]
        if size == 0:
            raise BadInputError("a name of length 0")
    else:
        start, size = 1, 4 if data[0] == IPV4 else 16
    end = start + size
    if len(data) < end + 2:
        return None
    raw = bytes(data[start:end])
    (port,) = struct.unpack(">H", data[end : end + 2])
    if port == 0 and not port_zero:
        raise BadInputError("port 0")
    host = host_of_name(raw, brackets) if data[0] == NAME else str(ipaddress.ip_address(raw))
    return Target(host, port), end + 2


def host_of_name(raw: bytes, brackets: bool = False) -> str:
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise BadInputError("a name that is not UTF-8") from None
    if not all(c > " " and c != "\x7f" for c in name):
        raise BadInputError("a name with a control character or a space")
    bare = name[1:-1] if brackets and name.startswith("[") and name.endswith("]") else name
    ip = literal(bare)
    return name if ip is None else str(ip)


def unmapped(host: str) -> str:
    """An IPv4-mapped IPv6 address is the IPv4 address."""
    ip = literal(host)
    return str(ip.ipv4_mapped) if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped else host
