"""Reference peer for Shadowsocks over UDP, both roles, sans-IO: AEAD 2017, and the sessions of the 2022 edition.

    2017               salt | seal(address | payload)                     a subkey of its own for each datagram
    2022 with AES      AES block(session ID | packet ID) | identity headers | seal(body)
    2022 with ChaCha   nonce | XChaCha20-Poly1305(session ID | packet ID | body)

A server keeps nothing of a session before a datagram of it has been opened, and its type and time have been found good;
its answers go to the last address that such a datagram came from.
"""

import os
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .proxy import Address, BadInputError, Target, address_block, take_address, unmapped
from .ss_crypto import TAG, Keys, block_decrypt, block_encrypt, hash16, open_, user_of, xor
from .wg_crypto import RefusedError, xopen, xseal

CLOCK_SKEW = 30.0
WINDOW = 8128
IDLE_SECONDS = 300.0
REQUEST, RESPONSE = 0, 1

Entropy = Callable[[int], bytes]


def split(plain: bytes) -> tuple[Target, bytes]:
    found = take_address(plain)
    if found is None:
        raise BadInputError("the address does not fit")
    return Target(unmapped(found[0].host), found[0].port), plain[found[1] :]


# --- 2017 -------------------------------------------------------------------------------------------------------------


def seal_2017(keys: Keys, salt: bytes, target: Target, payload: bytes, address: bytes | None = None) -> bytes:
    """The same both ways; from a server the address is the source of the answer. `address` for one that is none."""
    plain = (address_block(target) if address is None else address) + payload
    return salt + keys.method.aead(keys.session(salt)).encrypt(bytes(12), plain, None)


def open_2017(keys: Keys, data: bytes) -> tuple[Target, bytes]:
    salt, sealed = data[: keys.method.size], data[keys.method.size :]
    if len(salt) < keys.method.size:
        raise BadInputError("shorter than its salt")
    return split(open_(keys.method, keys.session(salt), bytes(12), sealed))


# --- 2022 -------------------------------------------------------------------------------------------------------------


def seal_2022(
    keys: Keys,
    session: bytes,
    packet: int,
    target: Target,
    payload: bytes,
    *,
    timestamp: int,
    answers: bytes | None = None,
    padding: bytes = b"",
    nonce: bytes = b"",
    kind: int | None = None,
    padding_length: int | None = None,
    address: bytes | None = None,
) -> bytes:
    """A datagram; `answers` is the client's session ID in one from a server. `nonce` is ChaCha's, 24 bytes.

    A server passes the user's keys alone: there are identity headers for whatever precedes the last key. The last
    three arguments are for datagrams that lie.
    """
    if kind is None:
        kind = REQUEST if answers is None else RESPONSE
    declared = len(padding) if padding_length is None else padding_length
    body = struct.pack(">BQ", kind, timestamp) + (answers or b"") + struct.pack(">H", declared) + padding
    body += (address_block(target) if address is None else address) + payload
    header = session + struct.pack(">Q", packet)
    if not keys.method.aes:
        return nonce + xseal(keys.psk, nonce, header + body, b"")
    identities = b"".join(
        block_encrypt(ipsk, xor(hash16(following), header))
        for ipsk, following in zip(keys.chain, keys.chain[1:], strict=False)
    )
    sealed = keys.method.aead(keys.session(session)).encrypt(header[4:], body, None)
    return block_encrypt(keys.chain[0], header) + identities + sealed


@dataclass(frozen=True)
class Opened:
    session: bytes
    packet: int
    kind: int
    timestamp: int
    answers: bytes
    padding: bytes
    target: Target
    payload: bytes
    user: str | None
    keys: Keys


@dataclass(frozen=True)
class Header:
    """What is known before anything is authenticated (AES), or just after (ChaCha: then `body` is plain)."""

    session: bytes
    packet: int
    keys: Keys
    user: str | None
    sealed: bytes = b""
    body: bytes = b""


def open_header(keys: Keys, data: bytes, users: Mapping[str, bytes] | None = None) -> Header:
    if not keys.method.aes:
        if len(data) < 24 + 16 + TAG:
            raise BadInputError("too short")
        try:
            plain = xopen(keys.psk, data[:24], data[24:], b"")
        except RefusedError:
            raise BadInputError("authentication failed") from None
        return Header(plain[:8], int.from_bytes(plain[8:16], "big"), keys, None, body=plain[16:])
    size = 16 + (16 if users else 0)
    if len(data) < size + TAG + 11:
        raise BadInputError("too short")
    header = block_decrypt(keys.chain[0], data[:16])
    user = None
    if users:
        user, psk = user_of(xor(block_decrypt(keys.chain[0], data[16:32]), header), users.items())
        keys = keys.user(psk)
    return Header(header[:8], int.from_bytes(header[8:], "big"), keys, user, sealed=data[size:])


def open_body(header: Header, now: float, kind: int) -> Opened:
    body = header.body
    if header.keys.method.aes:
        nonce = (header.session + header.packet.to_bytes(8, "big"))[4:]
        body = open_(header.keys.method, header.keys.session(header.session), nonce, header.sealed)
    at = 9 if kind == REQUEST else 17
    if len(body) < at + 2:
        raise BadInputError("too short")
    got, timestamp = struct.unpack(">BQ", body[:9])
    if got != kind:
        raise BadInputError(f"type {got}")
    if abs(int(now) - timestamp) > CLOCK_SKEW:
        raise BadInputError("the time is off")
    (padding,) = struct.unpack(">H", body[at : at + 2])
    if len(body) < at + 2 + padding:
        raise BadInputError("the padding does not fit")
    target, payload = split(body[at + 2 + padding :])
    return Opened(
        header.session,
        header.packet,
        kind,
        timestamp,
        body[9:at],
        body[at + 2 : at + 2 + padding],
        target,
        payload,
        header.user,
        header.keys,
    )


class Window:
    """Packet IDs seen. One that is 8128 behind the greatest is still taken, one further behind is not."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.greatest = -1

    def fresh(self, packet: int) -> bool:
        return packet not in self.seen and self.greatest - packet <= WINDOW

    def mark(self, packet: int) -> None:
        self.seen.add(packet)
        if packet > self.greatest:
            self.greatest = packet
            self.seen = {p for p in self.seen if self.greatest - p <= WINDOW}


# --- roles ------------------------------------------------------------------------------------------------------------


@dataclass
class Server2017:
    """A session is a source address."""

    keys: Keys
    entropy: Entropy = os.urandom
    sources: dict[bytes, Address] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)

    def receive(self, data: bytes, source: Address, now: float) -> tuple[bytes, Target, bytes] | None:
        try:
            target, payload = open_2017(self.keys, data)
        except BadInputError as error:
            self.drops[str(error)] += 1
            return None
        session = repr(source).encode()
        self.sources[session] = source
        return session, target, payload

    def reply(self, session: bytes, source: Target, payload: bytes, now: float) -> tuple[bytes, Address] | None:
        return seal_2017(self.keys, self.entropy(self.keys.method.size), source, payload), self.sources[session]


@dataclass
class Session:
    own: bytes  # the server's session ID
    keys: Keys
    user: str | None
    source: Address
    last: float
    sent: int = 0
    window: Window = field(default_factory=Window)


@dataclass
class Server2022:
    """A session is what the client says it is, wherever it comes from."""

    keys: Keys
    users: Mapping[str, bytes] = field(default_factory=dict)
    entropy: Entropy = os.urandom
    sessions: dict[bytes, Session] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)

    def receive(self, data: bytes, source: Address, now: float) -> tuple[bytes, Target, bytes] | None:
        for old in [i for i, s in self.sessions.items() if now - s.last > IDLE_SECONDS]:
            del self.sessions[old]
        try:
            header = open_header(self.keys, data, self.users)
            session = self.sessions.get(header.session)
            if session is not None and not session.window.fresh(header.packet):
                raise BadInputError("replayed or too old")
            if session is not None and session.keys != header.keys:
                raise BadInputError("the session is another user's")
            opened = open_body(header, now, REQUEST)
        except BadInputError as error:
            self.drops[str(error)] += 1
            return None
        if session is None:
            session = Session(self.entropy(8), opened.keys, opened.user, source, now)
            self.sessions[opened.session] = session
        session.window.mark(opened.packet)
        session.source, session.last = source, now
        return opened.session, opened.target, opened.payload

    def reply(self, session: bytes, source: Target, payload: bytes, now: float) -> tuple[bytes, Address] | None:
        s = self.sessions.get(session)
        if s is None:
            return None
        data = seal_2022(
            s.keys, s.own, s.sent, source, payload, timestamp=int(now), answers=session, nonce=self.entropy(24)
        )
        s.sent += 1
        return data, s.source


@dataclass
class Client2017:
    keys: Keys
    entropy: Entropy = os.urandom
    drops: Counter[str] = field(default_factory=Counter)

    def send(self, target: Target, payload: bytes, now: float) -> bytes:
        return seal_2017(self.keys, self.entropy(self.keys.method.size), target, payload)

    def receive(self, data: bytes, now: float) -> tuple[Target, bytes] | None:
        try:
            return open_2017(self.keys, data)
        except BadInputError as error:
            self.drops[str(error)] += 1
            return None


@dataclass
class Client2022:
    """One session; of the server's sessions it knows the last two, for one that was started anew."""

    keys: Keys
    entropy: Entropy = os.urandom
    session: bytes = b""
    packet: int = 0
    servers: dict[bytes, Window] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        while not any(self.session):
            self.session = self.entropy(8)

    def send(self, target: Target, payload: bytes, now: float) -> bytes:
        data = seal_2022(
            self.keys, self.session, self.packet, target, payload, timestamp=int(now), nonce=self.entropy(24)
        )
        self.packet += 1
        return data

    def receive(self, data: bytes, now: float) -> tuple[Target, bytes] | None:
        try:
            header = open_header(self.keys.user(self.keys.psk), data)
            window = self.servers.get(header.session) or Window()
            if not window.fresh(header.packet):
                raise BadInputError("replayed or too old")
            opened = open_body(header, now, RESPONSE)
            if opened.answers != self.session:
                raise BadInputError("an answer to another session")
        except BadInputError as error:
            self.drops[str(error)] += 1
            return None
        window.mark(header.packet)
        if header.session not in self.servers and len(self.servers) == 2:
            del self.servers[next(iter(self.servers))]
        self.servers[header.session] = window
        return opened.target, opened.payload


def server(keys: Keys, users: Mapping[str, bytes], entropy: Entropy = os.urandom) -> Server2017 | Server2022:
    return Server2022(keys, users, entropy) if keys.method.modern else Server2017(keys, entropy)


def client(keys: Keys, entropy: Entropy = os.urandom) -> Client2017 | Client2022:
    return Client2022(keys, entropy) if keys.method.modern else Client2017(keys, entropy)


def attacks(keys: Keys, session: bytes, packet: int, now: float, entropy: Entropy = os.urandom) -> dict[str, bytes]:
    """Datagrams that a server drops in silence, in the given session (2022), which they must not touch."""
    target = Target("192.0.2.1", 80)
    stranger = Keys(keys.method, (*keys.chain[:-1], bytes(x ^ 0xFF for x in keys.psk)))

    def made(with_keys: Keys = keys, **lies: object) -> bytes:
        if not keys.method.modern:
            return seal_2017(with_keys, entropy(keys.method.size), target, b"hi", **lies)  # type: ignore[arg-type]
        fields: dict[str, object] = {"timestamp": int(now), "nonce": entropy(24)} | lies
        return seal_2022(with_keys, session, packet, target, b"hi", **fields)  # type: ignore[arg-type]

    good = made()
    flipped = bytearray(good)
    flipped[-1] ^= 1
    cases = {
        "empty": b"",
        "one-byte": b"\0",
        "short": good[: keys.method.size + 15],
        "junk": entropy(200),
        "wrong-key": made(stranger),
        "last-byte-flipped": bytes(flipped),
        "address-type": made(address=b"\x02\x7f\x00\x00\x01\x00\x50"),
        "name-empty": made(address=b"\x03\x00\x00\x50"),
        "no-address": made(address=b"") if keys.method.modern else made(address=b"\x01"),
        "port-zero": made(address=b"\x01\x7f\x00\x00\x01\x00\x00"),
    }
    if keys.method.modern:
        cases |= {
            "type-response": made(kind=RESPONSE),
            "time-past": made(timestamp=int(now) - 40),
            "time-future": made(timestamp=int(now) + 40),
            "padding-beyond": made(padding_length=0xFFFF),
        }
    if len(keys.chain) > 1:
        cases["wrong-identity"] = made(Keys(keys.method, (bytes(x ^ 0xFF for x in keys.chain[0]), *keys.chain[1:])))
    return cases
