"""Reference peer for SOCKS5 (RFC 1928, RFC 1929) with UDP ASSOCIATE, and for SOCKS4/4a, both roles, sans-IO.

    python -m tests.peers.socks5 server --listen 127.0.0.1:1080 [--user NAME:PASSWORD]
    python -m tests.peers.socks5 client --proxy 127.0.0.1:1080 --target HOST:PORT [--udp]
    python -m tests.peers.socks5 attack --proxy 127.0.0.1:1080 --name CASE

The server answers a request only when the outcome is known, with the reason; BIND and fragments are refused. See
proxy.py for how a core is driven. ATTACKS has every malformed message with what a strict server does about it.
"""

import argparse
import hmac
import struct
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from . import proxy_cli, proxy_shell
from .proxy import (
    NOWHERE,
    Action,
    Address,
    AddressTypeError,
    Associate,
    BadInputError,
    Core,
    Dial,
    Ended,
    Finish,
    Opened,
    Payload,
    Script,
    Send,
    Target,
    address_block,
    host_of_name,
    literal,
    name_bytes,
    take_address,
    unmapped,
)

CONNECT, BIND, ASSOCIATE = 1, 2, 3
NO_AUTH, USER_PASSWORD, NONE_ACCEPTABLE = 0x00, 0x02, 0xFF
SUCCESS, GENERAL, NOT_ALLOWED, NET_UNREACHABLE, HOST_UNREACHABLE, REFUSED, TTL, COMMAND, ADDRESS_TYPE = range(9)
REPLY_OF = {
    "": SUCCESS,
    "refused": REFUSED,
    "net-unreachable": NET_UNREACHABLE,
    "host-unreachable": HOST_UNREACHABLE,
    "timeout": HOST_UNREACHABLE,
    "denied": NOT_ALLOWED,
    "failed": GENERAL,
}
# A failure that says something about the target, not about the proxy.
TARGET_FAILURES = (NET_UNREACHABLE, HOST_UNREACHABLE, REFUSED, TTL)


# --- messages -------------------------------------------------------------------------------------------------------


def greeting(*methods: int) -> bytes:
    return bytes([5, len(methods), *methods])


def login(user: str, password: str, version: int = 1) -> bytes:
    """RFC 1929 section 2; its version is 1, though some send 5."""
    name, secret = user.encode(), password.encode()
    return bytes([version, len(name)]) + name + bytes([len(secret)]) + secret


def request(command: int, target: Target) -> bytes:
    return bytes([5, command, 0]) + address_block(target)


def reply(code: int, bound: Target = NOWHERE) -> bytes:
    return bytes([5, code, 0]) + address_block(bound)


def datagram(target: Target, payload: bytes, fragment: int = 0) -> bytes:
    return bytes([0, 0, fragment]) + address_block(target) + payload


def open_datagram(data: bytes) -> tuple[Target, bytes]:
    if len(data) < 4:
        raise BadInputError("shorter than its header")
    if data[2] != 0:
        raise BadInputError("fragment")
    found = take_address(data[3:], brackets=True)
    if found is None:
        raise BadInputError("shorter than its header")
    return found[0], data[3 + found[1] :]


# --- server ---------------------------------------------------------------------------------------------------------


class Server(Core):
    """`users` by name; empty: everybody. `socks4`: answers version 4 too, but only without users."""

    def __init__(self, users: Mapping[str, str] | None = None, *, socks4: bool = True):
        self.users = dict(users or {})
        self.socks4 = socks4
        super().__init__()

    def script(self) -> Script:
        (version,) = yield from self.take(1)
        if version == 4 and self.socks4:
            yield from self._version4()
            return
        if version != 5:
            raise BadInputError(f"version {version}")
        (count,) = yield from self.take(1)
        methods = yield from self.take(count)
        wanted = USER_PASSWORD if self.users else NO_AUTH
        if wanted not in methods:
            self._refuse(bytes([5, NONE_ACCEPTABLE]), "no acceptable method")
            return
        self.actions.append(Send(bytes([5, wanted])))
        user = None
        if self.users:
            user = yield from self._login()
            if user is None:
                self._refuse(b"\x01\x01", "wrong user or password")
                return
            self.actions.append(Send(b"\x01\x00"))
        yield from self._request(user)

    def _refuse(self, answer: bytes, reason: str) -> None:
        self.actions.append(Send(answer))
        self.close(reason)

    def _login(self) -> Generator[None, None, str | None]:
        version, size = yield from self.take(2)
        if version != 1:
            raise BadInputError(f"login version {version}")
        name = yield from self.take(size)
        (size,) = yield from self.take(1)
        secret = yield from self.take(size)
        matching = [
            user
            for user, password in self.users.items()
            if hmac.compare_digest(user.encode(), name) & hmac.compare_digest(password.encode(), secret)
        ]
        return matching[0] if matching else None

    def _request(self, user: str | None) -> Script:
        version, command, _ = yield from self.take(3)
        if version != 5:
            raise BadInputError(f"version {version} in a request")
        try:
            while (found := take_address(self.wire, brackets=True, port_zero=True)) is None:
                yield from self._more()
        except AddressTypeError as error:
            self._refuse(reply(ADDRESS_TYPE), str(error))
            return
        except BadInputError as error:
            self._refuse(reply(GENERAL), str(error))
            return
        target, size = found
        del self.wire[:size]
        if command == ASSOCIATE:
            yield from self._associate(target, user)
        elif command != CONNECT:
            self._refuse(reply(COMMAND), f"command {command}")
        elif target.port == 0:
            self._refuse(reply(GENERAL), "port 0")
        else:
            failure, bound = yield from self.dial(Dial(target, user))
            if failure:
                self._refuse(reply(REPLY_OF[failure]), failure)
                return
            self.actions.append(Send(reply(SUCCESS, bound)))
            self.scripts += [self.copy_to_target(), self.copy_from_target()]

    def _more(self) -> Script:
        if self.wire_ended:
            raise BadInputError("the connection ended inside a message")
        yield

    def _associate(self, hint: Target, user: str | None) -> Script:
        error, bound = yield from self.dial(Associate(hint, user))
        if error:
            self._refuse(reply(REPLY_OF[error]), error)
            return
        self.actions.append(Send(reply(SUCCESS, bound)))
        while not self.wire_ended:
            self.wire.clear()  # nothing belongs here
            yield
        self.close("association ended")

    def _version4(self) -> Script:
        """SOCKS4 and 4a: CONNECT only; there is no password in it."""
        command, port, ip = struct.unpack(">BH4s", (yield from self.take(7)))
        yield from self._until_zero(255)
        host = ".".join(map(str, ip))
        if ip[:3] == bytes(3) and ip[3] != 0:
            name = yield from self._until_zero(255)
            if not name:
                raise BadInputError("a name of length 0")
            host = host_of_name(name)
        rejected = b"\x00\x5b" + struct.pack(">H4s", port, ip)
        if self.users or command != CONNECT or port == 0:
            self._refuse(rejected, f"command {command}" if command != CONNECT else "users are configured")
            return
        error, _ = yield from self.dial(Dial(Target(host, port)))
        if error:
            self._refuse(rejected, error)
            return
        self.actions.append(Send(b"\x00\x5a" + struct.pack(">H4s", port, ip)))
        self.scripts += [self.copy_to_target(), self.copy_from_target()]

    def _until_zero(self, limit: int) -> Generator[None, None, bytes]:
        text = bytearray()
        while (byte := (yield from self.take(1))) != b"\0":
            text += byte
            if len(text) > limit:
                raise BadInputError("a field that does not end")
        return bytes(text)


@dataclass
class UdpServer:
    """One association. Datagrams count from the address of the TCP connection only; a new port replaces the old one."""

    peer: str
    client: Address | None = None
    drops: Counter[str] = field(default_factory=Counter)

    def receive(self, data: bytes, source: Address, now: float) -> tuple[bytes, Target, bytes] | None:
        """(session, target, payload), or None for what is dropped and counted."""
        if unmapped(source[0]) != unmapped(self.peer):
            self.drops["another address"] += 1
            return None
        try:
            target, payload = open_datagram(data)
        except BadInputError as error:
            self.drops[str(error)] += 1
            return None
        self.client = source
        return b"", Target(unmapped(target.host), target.port), payload

    def reply(self, session: bytes, source: Target, payload: bytes, now: float) -> tuple[bytes, Address] | None:
        return None if self.client is None else (datagram(source, payload), self.client)


# --- client ---------------------------------------------------------------------------------------------------------


class ProxyError(BadInputError):
    """The proxy said no. `code` is REP, None before a request was answered."""

    def __init__(self, text: str, code: int | None = None):
        super().__init__(text)
        self.code = code

    @property
    def blames_target(self) -> bool:
        return self.code in TARGET_FAILURES


class Client(Core):
    """`pipelined`: greeting and request in one write, which needs a server without users."""

    def __init__(
        self,
        target: Target,
        *,
        user: str | None = None,
        password: str = "",
        command: int = CONNECT,
        pipelined: bool = False,
        offers: tuple[int, ...] | None = None,
    ):
        self.wanted = target
        self.user = user
        self.password = password
        self.command = command
        self.pipelined = pipelined
        self.offers = offers or ((NO_AUTH,) if user is None else (USER_PASSWORD,))
        self.error: BadInputError | None = None
        super().__init__()

    def refuse(self, error: BadInputError) -> None:
        self.error = error
        super().refuse(error)

    def send(self, data: bytes) -> list[Action]:
        return [Send(data)]

    def finish(self) -> list[Action]:
        return [Finish()]

    def script(self) -> Script:
        ask = request(self.command, self.wanted)
        self.actions.append(Send(greeting(*self.offers) + (ask if self.pipelined else b"")))
        version, method = yield from self.take(2)
        if version != 5:
            raise ProxyError(f"version {version} in the method selection")
        if method not in self.offers:
            raise ProxyError("no acceptable method")
        if method == USER_PASSWORD:
            if self.user is None:
                raise ProxyError("the proxy wants a user and a password")
            self.actions.append(Send(login(self.user, self.password)))
            version, status = yield from self.take(2)
            if version not in (1, 5):
                raise ProxyError(f"version {version} in the login's answer")
            if status != 0:
                raise ProxyError("wrong user or password")
        if not self.pipelined:
            self.actions.append(Send(ask))
        version, code, _ = yield from self.take(3)
        if version != 5:
            raise ProxyError(f"version {version} in the reply")
        while (found := take_address(self.wire, port_zero=True)) is None:
            if self.wire_ended:
                raise BadInputError("the connection ended inside a message")
            yield
        if code != SUCCESS:
            raise ProxyError(f"reply {code}", code)
        bound, size = found
        del self.wire[:size]
        self.actions.append(Opened(bound))
        while True:
            if self.wire:
                self.actions.append(Payload(bytes(self.wire)))
                self.wire.clear()
            if self.wire_ended:
                self.actions.append(Ended())
                return
            yield


def relay_address(bound: Target, server: str) -> Address:
    """Where datagrams go: a relay announced as a wildcard, or privately by a public server, is the server itself."""
    ip, own = literal(bound.host), literal(server)
    if ip is None or ip.is_unspecified or (ip.is_private and own is not None and not own.is_private):
        return server, bound.port
    return bound.host, bound.port


@dataclass
class UdpClient:
    drops: Counter[str] = field(default_factory=Counter)

    def send(self, target: Target, payload: bytes, now: float) -> bytes:
        return datagram(target, payload)

    def receive(self, data: bytes, now: float) -> tuple[Target, bytes] | None:
        try:
            return open_datagram(data)
        except BadInputError as error:
            self.drops[str(error)] += 1
            return None


# --- malformed messages ---------------------------------------------------------------------------------------------

# name: (what is sent to a server without users, all that it may answer before it closes)
_OPEN = greeting(NO_AUTH)
_CHOSEN = b"\x05\x00"
_SOME = Target("192.0.2.1", 80)
ATTACKS: dict[str, tuple[bytes, bytes]] = {
    "version": (b"\x06\x01\x00", b""),
    "no-methods": (greeting(), b"\x05\xff"),
    "unknown-methods": (greeting(0x01, 0x80), b"\x05\xff"),
    "request-version": (_OPEN + b"\x04" + request(CONNECT, _SOME)[1:], _CHOSEN),
    "bind": (_OPEN + request(BIND, _SOME), _CHOSEN + reply(COMMAND)),
    "command-zero": (_OPEN + request(0, _SOME), _CHOSEN + reply(COMMAND)),
    "command-255": (_OPEN + request(255, _SOME), _CHOSEN + reply(COMMAND)),
    "address-type": (_OPEN + b"\x05\x01\x00\x02\x7f\x00\x00\x01\x00\x50", _CHOSEN + reply(ADDRESS_TYPE)),
    "name-empty": (_OPEN + b"\x05\x01\x00\x03\x00\x01\xbb", _CHOSEN + reply(GENERAL)),
    "name-zero-byte": (_OPEN + b"\x05\x01\x00\x03\x03a\x00b\x01\xbb", _CHOSEN + reply(GENERAL)),
    "name-not-utf8": (_OPEN + b"\x05\x01\x00\x03\x01\xff\x01\xbb", _CHOSEN + reply(GENERAL)),
    "port-zero": (_OPEN + request(CONNECT, Target("192.0.2.1", 0)), _CHOSEN + reply(GENERAL)),
}
# To a server with users.
LOGIN_ATTACKS: dict[str, tuple[bytes, bytes]] = {
    "no-auth-only": (greeting(NO_AUTH), b"\x05\xff"),
    "login-version": (greeting(USER_PASSWORD) + login("user", "p:ass", 5), b"\x05\x02"),
    "login-wrong": (greeting(USER_PASSWORD) + login("user", "wrong"), b"\x05\x02\x01\x01"),
    "login-empty": (greeting(USER_PASSWORD) + login("", ""), b"\x05\x02\x01\x01"),
}
# Datagrams that are dropped in silence.
DATAGRAM_ATTACKS: dict[str, bytes] = {
    "empty": b"",
    "short": b"\x00\x00\x00",
    "no-address": b"\x00\x00\x00\x01",
    "no-port": b"\x00\x00\x00\x01\x7f\x00\x00\x01\x00",
    "address-type": b"\x00\x00\x00\x02\x7f\x00\x00\x01\x00\x50hi",
    "name-empty": b"\x00\x00\x00\x03\x00\x00\x50hi",
    "port-zero": datagram(Target("192.0.2.1", 0), b"hi"),
    "fragment": datagram(_SOME, b"hi", fragment=1),
    "last-fragment": datagram(_SOME, b"hi", fragment=0x81),
}


def version4(target: Target, user: str = "", command: int = CONNECT) -> bytes:
    """SOCKS4 for an IPv4 target, 4a for a name."""
    ip = literal(target.host)
    packed, name = (ip.packed, b"") if ip is not None else (b"\0\0\0\1", name_bytes(target.host) + b"\0")
    return bytes([4, command]) + struct.pack(">H4s", target.port, packed) + user.encode() + b"\0" + name


class Protocol(proxy_cli.Protocol):
    name = "socks5"

    def server(self, args: argparse.Namespace) -> proxy_shell.Server:
        users = dict([proxy_cli.pair(args.user)]) if args.user else {}
        return proxy_shell.Server(core=lambda: Server(users), udp_core=UdpServer)

    def client(self, args: argparse.Namespace, target: Target) -> Client:
        user, password = proxy_cli.pair(args.user) if args.user else (None, "")
        return Client(target, user=user, password=password, command=ASSOCIATE if args.udp else CONNECT)

    async def udp_client(self, args: argparse.Namespace) -> tuple[proxy_shell.UdpStream, object]:
        control = await proxy_shell.dial(self.client(args, NOWHERE), args.proxy)
        assert control.bound is not None
        relay = relay_address(control.bound, args.proxy[0])
        return proxy_shell.UdpStream.open(UdpClient(), relay), control

    def attacks(self, args: argparse.Namespace) -> Mapping[str, bytes]:
        return {name: data for name, (data, _) in (ATTACKS | LOGIN_ATTACKS).items()}


if __name__ == "__main__":
    proxy_cli.main(Protocol())
