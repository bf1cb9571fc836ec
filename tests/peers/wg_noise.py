"""WireGuard's four messages and its handshake, Noise_IKpsk2, as pure functions over bytes.

Every function that builds a message takes `override`: bytes by field name that go onto the wire in place of the right
ones. What follows is computed over what is really sent: with an overridden "sender" the mac1 is still right, so that
the receiver is tested on the sender and not on the mac. An overridden "mac1" or "mac2" is taken as it is. `cut` takes
bytes off the end (negative: appends zeros) after everything else.

Fields and sizes in bytes; integers are little-endian (whitepaper section 5.4):

    1 initiation    type 4, sender 4, ephemeral 32, static 48, timestamp 28, mac1 16, mac2 16          148
    2 response      type 4, sender 4, receiver 4, ephemeral 32, empty 16, mac1 16, mac2 16              92
    3 cookie reply  type 4, receiver 4, nonce 24, cookie 32                                             64
    4 data          type 4, receiver 4, counter 8, sealed n + 16                                    32 + n
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from . import wg_crypto as c
from .wg_crypto import RefusedError

INITIATION, RESPONSE, COOKIE_REPLY, DATA = 1, 2, 3, 4

LAYOUT: dict[int, tuple[tuple[str, int], ...]] = {
    INITIATION: (
        ("type", 4),
        ("sender", 4),
        ("ephemeral", 32),
        ("static", 48),
        ("timestamp", 28),
        ("mac1", 16),
        ("mac2", 16),
    ),
    RESPONSE: (
        ("type", 4),
        ("sender", 4),
        ("receiver", 4),
        ("ephemeral", 32),
        ("empty", 16),
        ("mac1", 16),
        ("mac2", 16),
    ),
    COOKIE_REPLY: (("type", 4), ("receiver", 4), ("nonce", 24), ("cookie", 32)),
}
SIZE = {kind: sum(size for _, size in fields) for kind, fields in LAYOUT.items()}
DATA_OVERHEAD = 32

Override = Mapping[str, bytes]
NOTHING: Override = {}


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def from_u32(data: bytes) -> int:
    return int.from_bytes(data, "little")


def message_kind(message: bytes) -> int:
    """The type when word and size are right; the word is compared whole, so reserved bytes must be zero."""
    if len(message) < 4:
        raise RefusedError("shorter than a type word")
    kind = from_u32(message[:4])
    if kind == DATA:
        if len(message) < DATA_OVERHEAD:
            raise RefusedError("data message too short")
    elif kind not in SIZE:
        raise RefusedError("unknown type or reserved bytes set")
    elif len(message) != SIZE[kind]:
        raise RefusedError("wrong size for its type")
    return kind


def fields_of(message: bytes) -> dict[str, bytes]:
    kind = message_kind(message)
    if kind == DATA:
        return {"type": message[:4], "receiver": message[4:8], "counter": message[8:16], "sealed": message[16:]}
    fields: dict[str, bytes] = {}
    at = 0
    for name, size in LAYOUT[kind]:
        fields[name] = message[at : at + size]
        at += size
    return fields


def resize(message: bytes, cut: int) -> bytes:
    return message[: len(message) - cut] if cut >= 0 else message + bytes(-cut)


def with_macs(body: bytes, receiver_public: bytes, cookie: bytes | None, override: Override, cut: int) -> bytes:
    mac1 = override.get("mac1", c.mac(c.mac1_key(receiver_public), body))
    mac2 = override.get("mac2", c.mac(cookie, body, mac1) if cookie else bytes(16))
    return resize(body + mac1 + mac2, cut)


def mac1_is_right(message: bytes, receiver_public: bytes) -> bool:
    return message[-32:-16] == c.mac(c.mac1_key(receiver_public), message[:-32])


def mac2_is_right(message: bytes, cookie: bytes) -> bool:
    return message[-16:] == c.mac(cookie, message[:-16])


@dataclass(frozen=True, repr=False)
class Identity:
    """A static or ephemeral key pair."""

    private: bytes
    public: bytes

    @classmethod
    def of(cls, private: bytes) -> "Identity":
        private = c.clamp(private)
        return cls(private, c.public_key(private))

    @classmethod
    def fresh(cls) -> "Identity":
        return cls.of(os.urandom(32))


@dataclass(repr=False)
class Handshake:
    """One handshake between its first message and its keys. `trace` keeps each step's values for the vectors."""

    is_initiator: bool
    ephemeral: Identity
    local_index: int
    remote_static: bytes
    psk: bytes
    chain: bytes
    hash: bytes
    remote_index: int = 0
    remote_ephemeral: bytes = b""
    stamp: bytes = b""
    trace: dict[str, bytes] = field(default_factory=dict)


@dataclass(repr=False)
class TransportKeys:
    send: bytes
    receive: bytes
    local_index: int
    remote_index: int
    is_initiator: bool


def initiation(
    me: Identity,
    responder: bytes,
    *,
    stamp: bytes,
    index: int,
    psk: bytes = c.ZERO_KEY,
    ephemeral: Identity | None = None,
    cookie: bytes | None = None,
    low_order: bytes | None = None,
    claimed_static: bytes | None = None,
    override: Override = NOTHING,
    cut: int = 0,
) -> tuple[bytes, Handshake]:
    """A first message and its state.

    low_order: this point is sent as the ephemeral key and DH(e, S) is taken as zero: the message of an attacker who
    counts on the responder not checking. claimed_static: sealed in place of our own public key.
    """
    ephemeral = ephemeral or Identity.fresh()
    e_public = low_order if low_order is not None else ephemeral.public
    trace: dict[str, bytes] = {}
    h = trace["h_after_responder_static"] = c.hash_(c.INITIAL_HASH, responder)
    (ck,) = c.kdf(1, c.INITIAL_CHAIN, e_public)
    trace["ck_after_e"] = ck
    h = trace["h_after_e"] = c.hash_(h, e_public)
    es = c.ZERO_KEY if low_order is not None else c.dh(ephemeral.private, responder)
    ck, k = c.kdf(2, ck, es)
    trace["ck_after_es"], trace["key_static"] = ck, k
    static = c.seal(k, 0, claimed_static if claimed_static is not None else me.public, h)
    h = trace["h_after_static"] = c.hash_(h, static)
    ck, k = c.kdf(2, ck, c.dh(me.private, responder))
    trace["ck_after_ss"], trace["key_timestamp"] = ck, k
    timestamp = c.seal(k, 0, stamp, h)
    h = trace["h_after_timestamp"] = c.hash_(h, timestamp)

    fields = {
        "type": u32(INITIATION),
        "sender": u32(index),
        "ephemeral": e_public,
        "static": static,
        "timestamp": timestamp,
        **override,
    }
    body = b"".join(fields[name] for name, _ in LAYOUT[INITIATION][:5])
    state = Handshake(True, ephemeral, index, responder, psk, ck, h, stamp=stamp, trace=trace)
    return with_macs(body, responder, cookie, override, cut), state


def consume_initiation(me: Identity, message: bytes) -> Handshake:
    """What a responder learns from a first message: the sender's index and ephemeral key become the remote ones."""
    f = fields_of(message)
    h = c.hash_(c.INITIAL_HASH, me.public)
    (ck,) = c.kdf(1, c.INITIAL_CHAIN, f["ephemeral"])
    h = c.hash_(h, f["ephemeral"])
    ck, k = c.kdf(2, ck, c.dh(me.private, f["ephemeral"]))
    remote_static = c.open_(k, 0, f["static"], h)
    h = c.hash_(h, f["static"])
    ck, k = c.kdf(2, ck, c.dh(me.private, remote_static))
    stamp = c.open_(k, 0, f["timestamp"], h)
    h = c.hash_(h, f["timestamp"])
    return Handshake(
        is_initiator=False,
        ephemeral=Identity(b"", b""),
        local_index=0,
        remote_static=remote_static,
        psk=c.ZERO_KEY,
        chain=ck,
        hash=h,
        remote_index=from_u32(f["sender"]),
        remote_ephemeral=f["ephemeral"],
        stamp=stamp,
    )


def response(
    state: Handshake,
    *,
    index: int,
    psk: bytes = c.ZERO_KEY,
    ephemeral: Identity | None = None,
    cookie: bytes | None = None,
    low_order: bytes | None = None,
    override: Override = NOTHING,
    cut: int = 0,
) -> tuple[bytes, TransportKeys]:
    """The second message. low_order as in initiation(): both of its Diffie-Hellman results are taken as zero."""
    ephemeral = ephemeral or Identity.fresh()
    e_public = low_order if low_order is not None else ephemeral.public
    trace = state.trace
    (ck,) = c.kdf(1, state.chain, e_public)
    trace["ck_after_e"] = ck
    h = trace["h_after_e"] = c.hash_(state.hash, e_public)
    ee = c.ZERO_KEY if low_order is not None else c.dh(ephemeral.private, state.remote_ephemeral)
    (ck,) = c.kdf(1, ck, ee)
    trace["ck_after_ee"] = ck
    se = c.ZERO_KEY if low_order is not None else c.dh(ephemeral.private, state.remote_static)
    (ck,) = c.kdf(1, ck, se)
    trace["ck_after_se"] = ck
    ck, tau, k = c.kdf(3, ck, psk)
    trace["ck_after_psk"], trace["tau"], trace["key_empty"] = ck, tau, k
    h = trace["h_after_psk"] = c.hash_(h, tau)
    empty = c.seal(k, 0, b"", h)
    trace["h_final"] = c.hash_(h, empty)

    fields = {
        "type": u32(RESPONSE),
        "sender": u32(index),
        "receiver": u32(state.remote_index),
        "ephemeral": e_public,
        "empty": empty,
        **override,
    }
    body = b"".join(fields[name] for name, _ in LAYOUT[RESPONSE][:5])
    t1, t2 = c.kdf(2, ck, b"")
    keys = TransportKeys(t2, t1, index, state.remote_index, is_initiator=False)
    return with_macs(body, state.remote_static, cookie, override, cut), keys


def consume_response(me: Identity, state: Handshake, message: bytes) -> TransportKeys:
    f = fields_of(message)
    if from_u32(f["receiver"]) != state.local_index:
        raise RefusedError("answers another handshake")
    (ck,) = c.kdf(1, state.chain, f["ephemeral"])
    h = c.hash_(state.hash, f["ephemeral"])
    (ck,) = c.kdf(1, ck, c.dh(state.ephemeral.private, f["ephemeral"]))
    (ck,) = c.kdf(1, ck, c.dh(me.private, f["ephemeral"]))
    ck, tau, k = c.kdf(3, ck, state.psk)
    h = c.hash_(h, tau)
    c.open_(k, 0, f["empty"], h)
    t1, t2 = c.kdf(2, ck, b"")
    return TransportKeys(t1, t2, state.local_index, from_u32(f["sender"]), is_initiator=True)


def address_bytes(address: bytes, port: int) -> bytes:
    """What a cookie is bound to: 4 or 16 bytes of address, port big-endian."""
    return address + struct.pack(">H", port)


def cookie_reply(
    responder_public: bytes,
    answered: bytes,
    cookie: bytes,
    *,
    nonce: bytes | None = None,
    override: Override = NOTHING,
    cut: int = 0,
    answered_mac1: bytes | None = None,
) -> bytes:
    """A cookie for `answered`, an initiation or response; answered_mac1 binds it to another message's mac1 instead."""
    nonce = nonce if nonce is not None else os.urandom(24)
    ad = answered_mac1 if answered_mac1 is not None else answered[-32:-16]
    fields = {
        "type": u32(COOKIE_REPLY),
        "receiver": answered[4:8],
        "nonce": nonce,
        "cookie": c.xseal(c.cookie_key(responder_public), nonce, cookie, ad),
        **override,
    }
    return resize(b"".join(fields[name] for name, _ in LAYOUT[COOKIE_REPLY]), cut)


def consume_cookie_reply(responder_public: bytes, message: bytes, sent_mac1: bytes) -> bytes:
    f = fields_of(message)
    return c.xopen(c.cookie_key(responder_public), f["nonce"], f["cookie"], sent_mac1)


def data(key: bytes, receiver: int, counter: int, plain: bytes, *, override: Override = NOTHING, cut: int = 0) -> bytes:
    """A data message; an overridden "counter" is what is sent, while `counter` is what is sealed with."""
    fields = {
        "type": u32(DATA),
        "receiver": u32(receiver),
        "counter": u64(counter),
        "sealed": c.seal(key, counter, plain),
        **override,
    }
    return resize(fields["type"] + fields["receiver"] + fields["counter"] + fields["sealed"], cut)


def padded_size(size: int, mtu: int) -> int:
    """Bytes after padding: a multiple of 16 that does not carry the packet beyond the MTU (0: unknown)."""
    rounded = (size + 15) // 16 * 16
    if mtu == 0:
        return rounded
    beyond = size - size % mtu if size > mtu else 0
    last = size - beyond
    return beyond + min(mtu, (last + 15) // 16 * 16)


def inner_size(packet: bytes) -> int:
    """The length that the IP header of a decrypted packet claims (RFC 791, RFC 8200), checked against what is there."""
    version = packet[0] >> 4
    if version == 4 and len(packet) >= 20:
        size = int(struct.unpack_from(">H", packet, 2)[0])
        if size < 20:
            raise RefusedError("IPv4 total length below its header")
    elif version == 6 and len(packet) >= 40:
        size = int(struct.unpack_from(">H", packet, 4)[0]) + 40
    else:
        raise RefusedError("not an IP packet")
    if size > len(packet):
        raise RefusedError("inner length beyond the message")
    return size


class ReplayWindow:
    """Which counters were seen: a set, because this is the oracle and not the fast path (RFC 6479 is the engine's way).

    A counter is taken when it is new and within `size` of the greatest; the reject limit is part of it.
    """

    def __init__(self, size: int = 8128) -> None:
        self.size = size
        self.limit = 2**64 - 1 - size - 1
        self.greatest = -1
        self.seen: set[int] = set()

    def accept(self, counter: int) -> bool:
        if counter >= self.limit or counter in self.seen:
            return False
        if counter + self.size < self.greatest:
            return False
        self.greatest = max(self.greatest, counter)
        self.seen.add(counter)
        if len(self.seen) > 2 * self.size:
            self.seen = {n for n in self.seen if n + self.size >= self.greatest}
        return True
