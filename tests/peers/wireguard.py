"""Reference peer for WireGuard, both roles: a device with peers, sans-IO, used as the test oracle.

Bytes, the source's address and `now` (seconds, monotonic) go in; a list of actions comes out (Datagram, Inner, Event).
Nothing here reads a clock, a socket or randomness but through what the constructor was given, so a test can live
through three minutes in no time. Messages and their malformed variants are built in wg_noise.py; the UDP and TUN shells
are in wg_shell.py.

    receive(data, source, now)   a datagram came
    send(packet, now)            an IP packet wants out: its destination picks the peer
    tick(now)                    time passed; next_wake() says when to call it at the latest

Keypairs of a peer: `previous`, `current`, `next`. As initiator a new pair is current at once. As responder it waits
in `next`, and may not be used for sending, until the first authenticated message with it arrives (whitepaper 6.3).
Everything refused is counted in `device.drops` by its reason and changes nothing else.
"""

import ipaddress
import os
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from . import wg_crypto as c
from . import wg_noise as noise
from .wg_crypto import RefusedError
from .wg_noise import Handshake, Identity, TransportKeys

REKEY_AFTER_MESSAGES = 2**60
REKEY_AFTER_TIME = 120.0
REJECT_AFTER_TIME = 180.0
REKEY_TIMEOUT = 5.0
REKEY_JITTER = 0.333
MAX_ATTEMPTS = 18  # REKEY_ATTEMPT_TIME / REKEY_TIMEOUT; the timer gives up above it: 20 initiations in all
KEEPALIVE_TIMEOUT = 10.0
COOKIE_SECRET_AGE = 120.0
COOKIE_USABLE = COOKIE_SECRET_AGE - 5.0
FLOOD_GUARD = 0.02
STAGED = 128
RATE_PER_SECOND, RATE_BURST = 20, 5

Address = tuple[str, int]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Datagram:
    data: bytes
    to: Address


@dataclass(frozen=True)
class Inner:
    """A packet that came out of the tunnel, trimmed to the length in its header."""

    peer: "Peer"
    packet: bytes


@dataclass(frozen=True)
class Event:
    """initiation, response, handshake-complete, keepalive, cookie, gave-up, zeroed, drop: REASON."""

    name: str
    peer: "Peer | None" = None


Action = Datagram | Inner | Event


@dataclass
class Keypair:
    keys: TransportKeys
    created: float
    counter: int = 0
    window: noise.ReplayWindow = field(default_factory=noise.ReplayWindow)
    asked_rekey: bool = False

    def usable(self, now: float) -> bool:
        return now - self.created < REJECT_AFTER_TIME and self.counter < self.window.limit

    def seal(self, plain: bytes, counter: int | None = None) -> bytes:
        """A data message; `counter` for one out of order, which leaves the sequence alone."""
        if counter is None:
            counter = self.counter
            self.counter += 1
        return noise.data(self.keys.send, self.keys.remote_index, counter, plain)

    def open(self, message: bytes) -> bytes:
        f = noise.fields_of(message)
        counter = struct.unpack("<Q", f["counter"])[0]
        plain = c.open_(self.keys.receive, counter, f["sealed"])
        if not self.window.accept(counter):
            raise RefusedError("replayed or too old")
        return plain


class Peer:
    def __init__(self, public: bytes, psk: bytes, endpoint: Address | None, keepalive: int, allowed: Iterable[str]):
        self.public = public
        self.psk = psk
        self.endpoint = endpoint
        self.persistent = keepalive
        self.allowed: list[Network] = [ipaddress.ip_network(net, strict=False) for net in allowed]
        self.previous: Keypair | None = None
        self.current: Keypair | None = None
        self.next: Keypair | None = None
        self.handshake: Handshake | None = None
        self.staged: deque[bytes] = deque(maxlen=STAGED)
        self.greatest_stamp = bytes(12)
        self.last_stamp_sent = bytes(12)
        self.last_initiation_taken = -1e9
        self.last_handshake_sent = -1e9
        self.attempts = 0
        self.cookie: tuple[bytes, float] | None = None
        self.mac1_outstanding: bytes | None = None
        self.rx_bytes = self.tx_bytes = 0
        self.handshakes_completed = 0
        self.another_keepalive = False
        # When each timer rings; absent: idle.
        self.timers: dict[str, float] = {}

    def keypairs(self) -> list[Keypair]:
        return [pair for pair in (self.previous, self.current, self.next) if pair]


class Device:
    def __init__(
        self,
        private: bytes,
        *,
        mtu: int = 1420,
        entropy: Callable[[int], bytes] = os.urandom,
        wall_ns: Callable[[], int] = time.time_ns,
        jitter: Callable[[], float] = lambda: 0.1,
    ):
        self.me = Identity.of(private)
        self.mtu = mtu
        self.entropy = entropy
        self.wall_ns = wall_ns
        self.jitter = jitter
        self.peers: dict[bytes, Peer] = {}
        self.under_load = False
        self.pads = True
        self.rekeys_by_age = True  # off: lets a keypair grow old, to see what the other end does
        self.answers = True  # off: takes everything in and says nothing, to see the other end's timers
        self.drops: Counter[str] = Counter()
        self._secret = (b"", -1e9)
        self._buckets: dict[bytes, tuple[float, float]] = {}

    def add_peer(
        self,
        public: bytes,
        *,
        psk: bytes = c.ZERO_KEY,
        endpoint: Address | None = None,
        keepalive: int = 0,
        allowed: Iterable[str] = (),
    ) -> Peer:
        peer = self.peers[public] = Peer(public, psk, endpoint, keepalive, allowed)
        return peer

    # What goes out

    def send(self, packet: bytes, now: float) -> list[Action]:
        try:
            peer = self._peer_by_address(packet, destination=True)
        except RefusedError as refused:
            return self._drop(str(refused))
        return self.send_to(peer, packet, now)

    def send_to(self, peer: Peer, packet: bytes, now: float) -> list[Action]:
        peer.staged.append(packet)
        return self._flush(peer, now)

    def keepalive(self, peer: Peer, now: float) -> list[Action]:
        return self._flush(peer, now) if peer.staged else self.send_to(peer, b"", now)

    def initiate(self, peer: Peer, now: float, *, force: bool = False, retry: bool = False) -> list[Action]:
        """force: without the guard of five seconds, to rekey early."""
        if peer.endpoint is None or (not force and now - peer.last_handshake_sent < REKEY_TIMEOUT):
            return []
        if not retry:
            peer.attempts = 0
        message, peer.handshake = noise.initiation(
            self.me,
            peer.public,
            stamp=self.next_stamp(peer),
            index=self._new_index(),
            psk=peer.psk,
            ephemeral=Identity.of(self.entropy(32)),
            cookie=self._fresh_cookie(peer, now),
        )
        peer.timers["retransmit"] = now + REKEY_TIMEOUT + self.jitter() * REKEY_JITTER
        return [*self._send_handshake(peer, message, now), Event("initiation", peer)]

    def next_stamp(self, peer: Peer) -> bytes:
        """Strictly greater than the last one whatever the clock does."""
        last = int.from_bytes(peer.last_stamp_sent, "big")
        stamp = c.tai64n(self.wall_ns())
        if int.from_bytes(stamp, "big") <= last:
            seconds, nanoseconds = divmod(last, 1 << 32)
            seconds, nanoseconds = (
                (seconds, nanoseconds + c.STAMP_GRAIN)
                if nanoseconds + c.STAMP_GRAIN < 1_000_000_000
                else (seconds + 1, 0)
            )
            stamp = struct.pack(">QI", seconds, nanoseconds)
        peer.last_stamp_sent = stamp
        return stamp

    def _flush(self, peer: Peer, now: float) -> list[Action]:
        """Sends what is staged when there are keys to send with, and starts a handshake when there are none."""
        actions: list[Action] = []
        while peer.staged:
            pair = peer.current
            if pair is None or not pair.usable(now):
                # A keepalive alone is no reason to keep it; the handshake's end makes its own.
                if peer.staged[0] == b"":
                    peer.staged.popleft()
                return actions + self.initiate(peer, now)
            packet = peer.staged.popleft()
            size = noise.padded_size(len(packet), self.mtu) if self.pads else len(packet)
            actions += self._send(peer, pair.seal(packet.ljust(size, b"\0")), now)
            if packet:
                peer.timers.setdefault("new-handshake", now + KEEPALIVE_TIMEOUT + REKEY_TIMEOUT + self.jitter())
            old = self.rekeys_by_age and pair.keys.is_initiator and now - pair.created >= REKEY_AFTER_TIME
            if pair.counter > REKEY_AFTER_MESSAGES or old:
                actions += self.initiate(peer, now)
        return actions

    def _send(self, peer: Peer, message: bytes, now: float) -> list[Action]:
        """Every authenticated message passes here."""
        peer.timers.pop("keepalive", None)
        self._arm_persistent(peer, now)
        if peer.endpoint is None:
            return self._drop("no endpoint")
        peer.tx_bytes += len(message)
        return [Datagram(message, peer.endpoint)] if self.answers else []

    def _send_handshake(self, peer: Peer, message: bytes, now: float) -> list[Action]:
        peer.last_handshake_sent = now
        peer.mac1_outstanding = message[-32:-16]
        return self._send(peer, message, now)

    # What comes in

    def receive(self, message: bytes, source: Address, now: float) -> list[Action]:
        try:
            kind = noise.message_kind(message)
            if kind == noise.DATA:
                return self._data(message, source, now)
            if kind == noise.COOKIE_REPLY:
                return self._cookie_reply(message, now)
            return self._handshake(kind, message, source, now)
        except RefusedError as refused:
            return self._drop(str(refused))

    def cookie_for(self, source: Address, now: float) -> bytes:
        if now - self._secret[1] >= COOKIE_SECRET_AGE:
            self._secret = (self.entropy(32), now)
        return c.mac(self._secret[0], noise.address_bytes(ipaddress.ip_address(source[0]).packed, source[1]))

    def _handshake(self, kind: int, message: bytes, source: Address, now: float) -> list[Action]:
        if not noise.mac1_is_right(message, self.me.public):
            raise RefusedError("wrong mac1")
        if self.under_load:
            cookie = self.cookie_for(source, now)
            if not noise.mac2_is_right(message, cookie):
                reply = noise.cookie_reply(self.me.public, message, cookie, nonce=self.entropy(24))
                return [Datagram(reply, source), Event("cookie reply sent")]
            self._rate_limit(source, now)
        if kind == noise.INITIATION:
            return self._initiation(message, source, now)
        return self._response(message, source, now)

    def _rate_limit(self, source: Address, now: float) -> None:
        """Token bucket per IPv4 address or IPv6 /64."""
        packed = ipaddress.ip_address(source[0]).packed[:8]
        tokens, at = self._buckets.get(packed, (float(RATE_BURST), now))
        tokens = min(float(RATE_BURST), tokens + (now - at) * RATE_PER_SECOND)
        self._buckets[packed] = (max(tokens - 1, 0.0) if tokens >= 1 else tokens, now)
        if tokens < 1:
            raise RefusedError("rate limited")

    def _initiation(self, message: bytes, source: Address, now: float) -> list[Action]:
        state = noise.consume_initiation(self.me, message)
        peer = self.peers.get(state.remote_static)
        if peer is None:
            raise RefusedError("unknown peer")
        if state.stamp <= peer.greatest_stamp:
            raise RefusedError("old stamp")
        if now - peer.last_initiation_taken < FLOOD_GUARD:
            raise RefusedError("initiations too close")
        peer.greatest_stamp = state.stamp
        peer.last_initiation_taken = now
        peer.endpoint = source
        reply, keys = noise.response(
            state,
            index=self._new_index(),
            psk=peer.psk,
            ephemeral=Identity.of(self.entropy(32)),
            cookie=self._fresh_cookie(peer, now),
        )
        peer.next, peer.previous = Keypair(keys, now), None
        peer.timers["zero"] = now + 3 * REJECT_AFTER_TIME
        self._authenticated_received(peer, len(message), now)
        return [Event("initiation received", peer), *self._send_handshake(peer, reply, now), Event("response", peer)]

    def _response(self, message: bytes, source: Address, now: float) -> list[Action]:
        index = noise.from_u32(noise.fields_of(message)["receiver"])
        for peer in self.peers.values():
            if peer.handshake and peer.handshake.local_index == index:
                break
        else:
            raise RefusedError("no such handshake")
        keys = noise.consume_response(self.me, peer.handshake, message)
        peer.handshake = None
        peer.endpoint = source
        pair = Keypair(keys, now)
        if peer.next:
            peer.previous, peer.next = peer.next, None
        else:
            peer.previous = peer.current
        peer.current = pair
        peer.timers["zero"] = now + 3 * REJECT_AFTER_TIME
        self._authenticated_received(peer, len(message), now)
        self._handshake_complete(peer)
        return [Event("handshake-complete", peer), *self.keepalive(peer, now)]

    def _cookie_reply(self, message: bytes, now: float) -> list[Action]:
        index = noise.from_u32(noise.fields_of(message)["receiver"])
        for peer in self.peers.values():
            known = [pair.keys.local_index for pair in peer.keypairs()]
            if peer.handshake:
                known.append(peer.handshake.local_index)
            if index in known:
                break
        else:
            raise RefusedError("cookie for no message of ours")
        if peer.mac1_outstanding is None:
            raise RefusedError("second cookie for one message")
        cookie = noise.consume_cookie_reply(peer.public, message, peer.mac1_outstanding)
        peer.cookie = (cookie, now)
        peer.mac1_outstanding = None
        return [Event("cookie", peer)]

    def _data(self, message: bytes, source: Address, now: float) -> list[Action]:
        index = noise.from_u32(noise.fields_of(message)["receiver"])
        for peer in self.peers.values():
            pair = next((p for p in peer.keypairs() if p.keys.local_index == index), None)
            if pair:
                break
        else:
            raise RefusedError("no such keypair")
        if not pair.usable(now):
            raise RefusedError("keypair expired")
        plain = pair.open(message)
        peer.endpoint = source
        actions: list[Action] = []
        if pair is peer.next:
            peer.previous, peer.current, peer.next = peer.current, pair, None
            self._handshake_complete(peer)
            actions += [Event("handshake-complete", peer), *self._flush(peer, now)]
        self._authenticated_received(peer, len(message), now)
        # As initiator: a new handshake while there is still time for it, asked for once per keypair.
        late = now - pair.created >= REJECT_AFTER_TIME - KEEPALIVE_TIMEOUT - REKEY_TIMEOUT
        fresh_wanted = self.rekeys_by_age and pair.keys.is_initiator and not pair.asked_rekey
        if pair is peer.current and late and fresh_wanted:
            pair.asked_rekey = True
            actions += self.initiate(peer, now)
        if not plain:
            return [*actions, Event("keepalive", peer)]
        if "keepalive" in peer.timers:
            peer.another_keepalive = True
        else:
            peer.timers["keepalive"] = now + KEEPALIVE_TIMEOUT
        try:
            packet = plain[: noise.inner_size(plain)]
            if self._peer_by_address(packet, destination=False) is not peer:
                raise RefusedError("inner source not allowed")
        except RefusedError as refused:
            return actions + self._drop(str(refused))
        return [*actions, Inner(peer, packet)]

    # Time

    def next_wake(self) -> float | None:
        rings = [at for peer in self.peers.values() for at in peer.timers.values()]
        return min(rings) if rings else None

    def tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for peer in self.peers.values():
            for name in [name for name, at in peer.timers.items() if at <= now]:
                if peer.timers.pop(name, None) is not None:
                    actions += self._ring(peer, name, now)
        return actions

    def _ring(self, peer: Peer, name: str, now: float) -> list[Action]:
        if name == "retransmit":
            if peer.attempts > MAX_ATTEMPTS:
                peer.staged.clear()
                peer.timers.pop("keepalive", None)
                peer.timers.setdefault("zero", now + 3 * REJECT_AFTER_TIME)
                return [Event("gave-up", peer)]
            peer.attempts += 1
            return self.initiate(peer, now, retry=True)
        if name == "keepalive":
            actions = self.keepalive(peer, now)
            if peer.another_keepalive:
                peer.another_keepalive = False
                peer.timers["keepalive"] = now + KEEPALIVE_TIMEOUT
            return actions
        if name == "new-handshake":
            return self.initiate(peer, now)
        if name == "persistent":
            return self.keepalive(peer, now)
        peer.previous = peer.current = peer.next = None
        peer.handshake = None
        return [Event("zeroed", peer)]

    def set_persistent(self, peer: Peer, seconds: int, now: float) -> list[Action]:
        """Turning it on sends one at once."""
        was, peer.persistent = peer.persistent, seconds
        if seconds == 0:
            peer.timers.pop("persistent", None)
        return self.keepalive(peer, now) if seconds and not was else []

    def _arm_persistent(self, peer: Peer, now: float) -> None:
        if peer.persistent:
            peer.timers["persistent"] = now + peer.persistent

    def _authenticated_received(self, peer: Peer, size: int, now: float) -> None:
        peer.rx_bytes += size
        peer.timers.pop("new-handshake", None)
        self._arm_persistent(peer, now)

    def _handshake_complete(self, peer: Peer) -> None:
        peer.timers.pop("retransmit", None)
        peer.attempts = 0
        peer.handshakes_completed += 1

    # Lookups

    def _fresh_cookie(self, peer: Peer, now: float) -> bytes | None:
        return peer.cookie[0] if peer.cookie and now - peer.cookie[1] < COOKIE_USABLE else None

    def _new_index(self) -> int:
        taken = {pair.keys.local_index for peer in self.peers.values() for pair in peer.keypairs()}
        taken |= {peer.handshake.local_index for peer in self.peers.values() if peer.handshake}
        while True:
            index = int.from_bytes(self.entropy(4), "little")
            if index not in taken:
                return index

    def _peer_by_address(self, packet: bytes, *, destination: bool) -> Peer:
        noise.inner_size(packet)
        if packet[0] >> 4 == 4:
            raw = packet[16:20] if destination else packet[12:16]
        else:
            raw = packet[24:40] if destination else packet[8:24]
        address = ipaddress.ip_address(raw)
        best: tuple[int, Peer] | None = None
        for peer in self.peers.values():
            for net in peer.allowed:
                if net.version == address.version and address in net and (best is None or net.prefixlen > best[0]):
                    best = (net.prefixlen, peer)
        if best is None:
            raise RefusedError("no peer for this address")
        return best[1]

    def _drop(self, reason: str) -> list[Action]:
        self.drops[reason] += 1
        return [Event(f"drop: {reason}")]
