"""Reference peer for Shadowsocks over TCP: AEAD 2017, the 2022 edition and identity headers, both roles, sans-IO.

    python -m tests.peers.shadowsocks server --listen 127.0.0.1:8388 --method M --password P [--user NAME:KEY]...
    python -m tests.peers.shadowsocks client --proxy 127.0.0.1:8388 --method M --password P --target HOST:PORT [--udp]
    python -m tests.peers.shadowsocks attack --proxy 127.0.0.1:8388 --method M --password P --name CASE

    2017      salt | chunk...               the address is the start of the client's plaintext, wherever chunks are cut
    2022      salt | identity headers | fixed header | variable header | chunk...     from the client
              salt | fixed header | first payload | chunk...                          from the server

Every failure of a server ends the same way (`failure`: drain or reset). Datagrams are in ss_udp.py, keys in
ss_crypto.py; see proxy.py for how a core is driven.
"""

import argparse
import hmac
import os
import struct
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from . import proxy_cli, proxy_shell, ss_udp
from .proxy import (
    Action,
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
    take_address,
)
from .ss_crypto import (
    METHODS,
    TAG,
    Direction,
    Keys,
    block_decrypt,
    decode_psk,
    identity_headers,
    identity_subkey,
    user_of,
)

MAX_PADDING = 900  # that a sender may add
CLOCK_SKEW = 30.0
SALT_SECONDS = 60.0
CHUNK_2017 = 0x3FFF
REQUEST, RESPONSE = 0, 1


@dataclass
class SaltStore:
    """Salts of the last minute, exactly; adding one that is there is the replay."""

    seconds: float = SALT_SECONDS
    salts: dict[bytes, float] = field(default_factory=dict)

    def add(self, salt: bytes, now: float) -> bool:
        for old in [s for s, when in self.salts.items() if now - when > self.seconds]:
            del self.salts[old]
        if salt in self.salts:
            return False
        self.salts[salt] = now
        return True


# --- messages ---------------------------------------------------------------------------------------------------------


def request(
    keys: Keys,
    salt: bytes,
    target: Target,
    payload: bytes = b"",
    *,
    timestamp: int = 0,
    padding: bytes = b"",
    kind: int = REQUEST,
    length: int | None = None,
    padding_length: int | None = None,
    address: bytes | None = None,
) -> tuple[bytes, Direction]:
    """The first write of a client, and what seals the rest. The last four arguments are for messages that lie.

    2017 has neither time nor padding: they are not looked at.
    """
    block = address_block(target) if address is None else address
    sealer = Direction(keys.method, keys.session(salt))
    if not keys.method.modern:
        plain = block + payload
        return salt + sealer.chunk(plain[:CHUNK_2017], length) + sealer.chunks(plain[CHUNK_2017:]), sealer
    room = 0xFFFF - len(block) - 2 - len(padding)
    declared = len(padding) if padding_length is None else padding_length
    variable = block + struct.pack(">H", declared) + padding + payload[:room]
    fixed = struct.pack(">BQH", kind, timestamp, len(variable) if length is None else length)
    head = salt + identity_headers(keys, salt) + sealer.seal(fixed) + sealer.seal(variable)
    return head + sealer.chunks(payload[room:]), sealer


def response(
    keys: Keys,
    salt: bytes,
    request_salt: bytes,
    payload: bytes,
    *,
    timestamp: int = 0,
    kind: int = RESPONSE,
    length: int | None = None,
) -> tuple[bytes, Direction]:
    """The first write of a server, and what seals the rest."""
    sealer = Direction(keys.method, keys.session(salt))
    if not keys.method.modern:
        return salt + sealer.chunks(payload), sealer
    first = payload[:0xFFFF]
    fixed = struct.pack(">BQ", kind, timestamp) + request_salt
    fixed += struct.pack(">H", len(first) if length is None else length)
    return salt + sealer.seal(fixed) + sealer.seal(first) + sealer.chunks(payload[0xFFFF:]), sealer


class Chunks(Core):
    """What both roles do once a direction is open."""

    def next_chunk(self, opener: Direction) -> Generator[None, None, bytes | None]:
        """The next payload, or None at the end, which may only come between two chunks."""
        while not self.wire:
            if self.wire_ended:
                return None
            yield
        (length,) = struct.unpack(">H", opener.open((yield from self.take(2 + TAG))))
        if not opener.method.modern and length > CHUNK_2017:
            raise BadInputError(f"a chunk of {length} bytes")
        return opener.open((yield from self.take(length + TAG)))

    def copy_chunks(self, opener: Direction) -> Script:
        while (payload := (yield from self.next_chunk(opener))) is not None:
            if payload:
                self.actions.append(Payload(payload))
        self.actions.append(Ended())


# --- server -----------------------------------------------------------------------------------------------------------


@dataclass
class Keeper:
    """What the connections of a server share. `users` (2022): user name -> uPSK; then `keys` is the server's iPSK.

    `filters_2017`: refuse salts of 2017 seen before, the server's own among them; the protocol does not ask for it.
    """

    keys: Keys
    users: Mapping[str, bytes] = field(default_factory=dict)
    failure: str = "drain"
    strict: bool = True  # 2022: the first read has the whole header, as the specification demands of raw TCP
    filters_2017: bool = False
    clock: Callable[[], float] = time.time
    entropy: Callable[[int], bytes] = os.urandom
    salts: SaltStore = field(default_factory=SaltStore)


class Server(Chunks):
    def __init__(self, keeper: Keeper):
        self.keeper = keeper
        self.keys = keeper.keys
        self.user: str | None = None
        self.sealer: Direction | None = None
        self.request_salt = b""
        self.read_once = False
        super().__init__()

    @property
    def head_size(self) -> int:
        """Salt, identity header, fixed header."""
        return self.keys.method.size + (16 if self.keeper.users else 0) + 11 + TAG

    def receive(self, data: bytes) -> list[Action]:
        first, self.read_once = not self.read_once, True
        if first and self.keys.method.modern and self.keeper.strict and len(data) < self.head_size:
            self.refuse(BadInputError("the first segment is shorter than the header"))
            return self.turn()
        return super().receive(data)

    def refuse(self, error: BadInputError) -> None:
        self.close(str(error), self.keeper.failure)

    def script(self) -> Script:
        size = self.keys.method.size
        if self.keys.method.modern:
            target, payload, opener = yield from self._head_2022()
        else:
            # Nothing is decided before the first length is complete: N+18 bytes.
            salt = yield from self.take(size)
            opener = Direction(self.keys.method, self.keys.session(salt))
            target, payload = yield from self._address_2017(opener, salt)
        error, _ = yield from self.dial(Dial(target, self.user))
        if error:
            self.close(error, "reset" if self.keeper.failure == "reset" else "fin")
            return
        if payload:
            self.actions.append(Payload(payload))
        self.scripts += [self.copy_chunks(opener), self._answer()]

    def _address_2017(self, opener: Direction, salt: bytes) -> Generator[None, None, tuple[Target, bytes]]:
        plain = b""
        checked = False
        while (found := take_address(plain)) is None:
            more = yield from self.next_chunk(opener)
            if more is None:
                raise BadInputError("the stream ended inside the address")
            if not checked and self.keeper.filters_2017 and not self.keeper.salts.add(salt, self.keeper.clock()):
                raise BadInputError("replayed")
            checked = True
            plain += more
        return found[0], plain[found[1] :]

    def _head_2022(self) -> Generator[None, None, tuple[Target, bytes, Direction]]:
        method = self.keys.method
        self.request_salt = yield from self.take(method.size)
        if self.keeper.users:
            block = yield from self.take(16)
            hashed = block_decrypt(identity_subkey(self.keys.psk, self.request_salt), block)
            self.user, psk = user_of(hashed, self.keeper.users.items())
            self.keys = self.keys.user(psk)
        opener = Direction(method, self.keys.session(self.request_salt))
        kind, timestamp, length = struct.unpack(">BQH", opener.open((yield from self.take(11 + TAG))))
        now = self.keeper.clock()
        if kind != REQUEST:
            raise BadInputError(f"type {kind}")
        if abs(int(now) - timestamp) > CLOCK_SKEW:
            raise BadInputError(f"{timestamp - int(now):+d} seconds off")
        if not self.keeper.salts.add(self.request_salt, now):
            raise BadInputError("replayed")
        target, payload = open_variable(opener.open((yield from self.take(length + TAG))))
        return target, payload, opener

    def _answer(self) -> Script:
        """The head goes out with the first payload: there is none for a target that says nothing."""
        while True:
            if self.target:
                payload = bytes(self.target)
                self.target.clear()
                self.actions.append(Send(self._seal(payload)))
            if self.target_ended:
                self.actions.append(Finish())
                return
            yield

    def _seal(self, payload: bytes) -> bytes:
        if self.sealer is not None:
            return self.sealer.chunks(payload)
        now = self.keeper.clock()
        salt = self.keeper.entropy(self.keys.method.size)
        if self.keeper.filters_2017:
            self.keeper.salts.add(salt, now)
        data, self.sealer = response(self.keys, salt, self.request_salt, payload, timestamp=int(now))
        return data


def open_variable(plain: bytes) -> tuple[Target, bytes]:
    """Address, padding, payload of a 2022 request."""
    found = take_address(plain)
    if found is None or len(plain) < found[1] + 2:
        raise BadInputError("the address does not fit its header")
    target, at = found
    (padding,) = struct.unpack(">H", plain[at : at + 2])
    if len(plain) < at + 2 + padding:
        raise BadInputError("the padding does not fit its header")
    payload = plain[at + 2 + padding :]
    if padding == 0 and not payload:
        raise BadInputError("neither payload nor padding")
    return target, payload


# --- client -----------------------------------------------------------------------------------------------------------


class Client(Chunks):
    """The request goes out with the first payload; write(b"") sends it without one, for who speaks second."""

    def __init__(
        self,
        keys: Keys,
        target: Target,
        *,
        clock: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = os.urandom,
        padding: bytes | None = None,
    ):
        self.keys = keys
        self.wanted = target
        self.clock = clock
        self.entropy = entropy
        self.padding = padding
        self.salt = entropy(keys.method.size)
        self.sealer: Direction | None = None
        self.error: BadInputError | None = None
        super().__init__()

    def refuse(self, error: BadInputError) -> None:
        self.error = error
        super().refuse(error)

    def send(self, data: bytes) -> list[Action]:
        if self.sealer is not None:
            return [Send(self.sealer.chunks(data))] if data else []
        padding = self.padding
        if padding is None:
            padding = bytes(1 + int.from_bytes(self.entropy(2), "big") % MAX_PADDING) if not data else b""
        wire, self.sealer = request(
            self.keys, self.salt, self.wanted, data, timestamp=int(self.clock()), padding=padding
        )
        return [Send(wire)]

    def finish(self) -> list[Action]:
        return [*([] if self.sealer is not None else self.send(b"")), Finish()]

    def script(self) -> Script:
        self.actions.append(Opened())
        method = self.keys.method
        salt = yield from self.take(method.size)
        opener = Direction(method, self.keys.session(salt))
        if method.modern:
            fixed = opener.open((yield from self.take(11 + method.size + TAG)))
            kind, timestamp = struct.unpack(">BQ", fixed[:9])
            if kind != RESPONSE:
                raise BadInputError(f"type {kind}")
            if abs(int(self.clock()) - timestamp) > CLOCK_SKEW:
                raise BadInputError("the time is off")
            if not hmac.compare_digest(fixed[9:-2], self.salt):
                raise BadInputError("an answer to another request")
            (length,) = struct.unpack(">H", fixed[-2:])
            if payload := opener.open((yield from self.take(length + TAG))):
                self.actions.append(Payload(payload))
        yield from self.copy_chunks(opener)


# --- malformed messages -----------------------------------------------------------------------------------------------


def attacks(keys: Keys, now: float, entropy: Callable[[int], bytes] = os.urandom) -> dict[str, bytes]:
    """First writes that a server must refuse, without it being told from another refusal. Fresh salts each time.

    "short-*" are not complete: a server of 2017 waits for the rest.
    """
    target = Target("192.0.2.1", 80)
    when = int(now)
    method = keys.method

    def salt() -> bytes:
        return entropy(method.size)

    def made(**lies: object) -> bytes:
        fields: dict[str, object] = {"timestamp": when, "payload": b"hello"} | lies
        return request(keys, salt(), target, **fields)[0]  # type: ignore[arg-type]

    good = made()
    at = method.size + 16 * (len(keys.chain) - 1)  # where the first sealed part begins
    flipped = bytearray(good)
    flipped[at] ^= 1
    late = bytearray(good)
    late[-1] ^= 1
    stranger = Keys(method, (*keys.chain[:-1], bytes(x ^ 0xFF for x in keys.psk)))
    cases = {
        "short-junk": entropy(10),
        "short-salt": good[: method.size],
        "short-head": good[: at + 17],
        "junk": entropy(400),
        "wrong-key": request(stranger, salt(), target, b"hello", timestamp=when)[0],
        "head-flipped": bytes(flipped),
        "last-byte-flipped": bytes(late),
        "address-type": made(address=b"\x02\x7f\x00\x00\x01\x00\x50"),
        "address-type-zero": made(address=b"\x00\x7f\x00\x00\x01\x00\x50"),
        "name-empty": made(address=b"\x03\x00\x00\x50"),
        "port-zero": made(address=b"\x01\x7f\x00\x00\x01\x00\x00"),
    }
    if method.modern:
        cases |= {
            "type-response": made(kind=RESPONSE),
            "type-unknown": made(kind=7),
            "time-past": made(timestamp=when - 40),
            "time-future": made(timestamp=when + 40),
            "time-huge": made(timestamp=2**64 - 1),
            "nothing-inside": made(payload=b""),
            "padding-beyond": made(padding_length=6),
            "padding-beyond-all": made(padding_length=0xFFFF),
            "length-short": made(length=11),
            "length-zero": made(length=0),
        }
    else:
        head, sealer = request(keys, salt(), target, b"", timestamp=when)
        cases |= {
            "chunk-too-long": head + sealer.chunk(bytes(0x4000)),
            "first-length-top-bits": made(length=0xC00C),
        }
    if len(keys.chain) > 1:
        unknown = Keys(method, (bytes(x ^ 0xFF for x in keys.chain[0]), *keys.chain[1:]))
        cases["wrong-identity"] = request(unknown, salt(), target, b"hello", timestamp=when)[0]
    return cases


# --- command line -----------------------------------------------------------------------------------------------------


def server_of(keeper: Keeper) -> proxy_shell.Server:
    """TCP and UDP on one port."""
    return proxy_shell.Server(lambda: Server(keeper), udp=ss_udp.server(keeper.keys, keeper.users, keeper.entropy))


class Protocol(proxy_cli.Protocol):
    name = "shadowsocks"

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--method", choices=METHODS, required=True)
        parser.add_argument("--password", required=True)
        parser.add_argument("--user", action="append", default=[], metavar="NAME:KEY", help="2022, repeated")
        parser.add_argument("--failure", choices=["drain", "reset"], default="drain")

    def server(self, args: argparse.Namespace) -> proxy_shell.Server:
        keys = Keys.of(args.method, args.password)
        users = {name: decode_psk(key, keys.method.size) for name, key in map(proxy_cli.pair, args.user)}
        return server_of(Keeper(keys, users, failure=args.failure))

    def client(self, args: argparse.Namespace, target: Target) -> Client:
        return Client(Keys.of(args.method, args.password), target)

    async def udp_client(self, args: argparse.Namespace) -> tuple[proxy_shell.UdpStream, object]:
        core = ss_udp.client(Keys.of(args.method, args.password))
        return proxy_shell.UdpStream.open(core, args.proxy), None

    def attacks(self, args: argparse.Namespace) -> Mapping[str, bytes]:
        return attacks(Keys.of(args.method, args.password), time.time())


if __name__ == "__main__":
    proxy_cli.main(Protocol())
