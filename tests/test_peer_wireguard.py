"""The reference peer against the known answers of tests/vectors/wireguard.json, and its roles against each other."""

import ipaddress
import json
import struct
from pathlib import Path
from typing import Any

import nacl.bindings
import pytest

from tests.peers import wg_crypto as c
from tests.peers import wg_noise as noise
from tests.peers import wireguard as wg
from tests.peers.wg_crypto import RefusedError
from tests.peers.wg_noise import Identity

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors/wireguard.json").read_text())
A: wg.Address = ("192.0.2.1", 1000)
B: wg.Address = ("192.0.2.2", 2000)


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


def test_hchacha20_published_vector() -> None:
    """draft-irtf-cfrg-xchacha-03 section 2.2.1."""
    key = bytes(range(32))
    nonce = unhex("000000090000004a0000000031415927")
    assert c.hchacha20(key, nonce).hex() == "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"


@pytest.mark.parametrize("size", [0, 1, 16, 63, 64, 65, 1420])
def test_xchacha20poly1305_is_libsodium_s(size: int) -> None:
    key, nonce, ad = bytes(range(32)), bytes(range(24)), b"mac1 of something"
    plain = bytes(i & 255 for i in range(size))
    sealed = c.xseal(key, nonce, plain, ad)
    assert sealed == nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plain, ad, nonce, key)
    assert c.xopen(key, nonce, sealed, ad) == plain
    with pytest.raises(RefusedError):
        c.xopen(key, nonce, sealed, b"another")


def test_constants() -> None:
    constants = VECTORS["constants"]
    assert constants["initial_chaining_key"] == c.INITIAL_CHAIN.hex()
    assert constants["initial_hash"] == c.INITIAL_HASH.hex()
    assert noise.SIZE == {noise.INITIATION: 148, noise.RESPONSE: 92, noise.COOKIE_REPLY: 64}


@pytest.mark.parametrize("point", c.LOW_ORDER_POINTS, ids=lambda p: p.hex()[:8])
def test_low_order_points_are_refused(point: bytes) -> None:
    with pytest.raises(RefusedError, match="low-order"):
        c.dh(Identity.fresh().private, point)


@pytest.mark.parametrize("case", VECTORS["kdf"], ids=lambda v: f"kdf{v['n']}-{len(v['input']) // 2}")
def test_kdf(case: dict[str, Any]) -> None:
    got = c.kdf(case["n"], unhex(case["key"]), unhex(case["input"]))
    assert [out.hex() for out in got] == case["outputs"]


@pytest.mark.parametrize("case", VECTORS["tai64n"], ids=lambda v: f"{v['sec']}.{v['nsec']}")
def test_tai64n(case: dict[str, Any]) -> None:
    assert c.tai64n(case["sec"] * 10**9 + case["nsec"]).hex() == case["tai64n"]


@pytest.mark.parametrize("case", VECTORS["padding"], ids=lambda v: f"{v['len']}-{v['mtu']}")
def test_padding(case: dict[str, int]) -> None:
    assert noise.padded_size(case["len"], case["mtu"]) == case["padded"]


@pytest.mark.parametrize("case", VECTORS["replay_window"]["cases"], ids=lambda v: v["name"])
def test_replay_window(case: dict[str, Any]) -> None:
    window = noise.ReplayWindow()
    assert [window.accept(int(n)) for n in case["counters"]] == case["accept"]


@pytest.mark.parametrize("case", VECTORS["handshakes"], ids=lambda v: v["name"])
def test_handshake(case: dict[str, Any]) -> None:
    i, r = case["initiator"], case["responder"]
    initiator, responder = Identity.of(unhex(i["static_private"])), Identity.of(unhex(r["static_private"]))
    assert (initiator.public.hex(), responder.public.hex()) == (i["static_public"], r["static_public"])
    psk, stamp = unhex(case["preshared_key"]), case["timestamp"]
    assert c.tai64n(stamp["unix_sec"] * 10**9 + stamp["nsec_raw"]).hex() == stamp["tai64n"]

    message, state = noise.initiation(
        initiator,
        responder.public,
        stamp=unhex(stamp["tai64n"]),
        index=i["sender_index"],
        psk=psk,
        ephemeral=Identity.of(unhex(i["ephemeral_private"])),
    )
    assert message.hex() == case["initiation"]
    assert {name: value.hex() for name, value in state.trace.items()} == i["trace"]
    assert noise.mac1_is_right(message, responder.public)

    seen = noise.consume_initiation(responder, message)
    assert (seen.remote_static, seen.stamp.hex()) == (initiator.public, stamp["tai64n"])
    answer, theirs = noise.response(
        seen, index=r["sender_index"], psk=psk, ephemeral=Identity.of(unhex(r["ephemeral_private"]))
    )
    assert answer.hex() == case["response"]
    assert {name: value.hex() for name, value in seen.trace.items()} == r["trace"]

    ours = noise.consume_response(initiator, state, answer)
    assert ours.send.hex() == theirs.receive.hex() == case["initiator_sending_key"]
    assert ours.receive.hex() == theirs.send.hex() == case["initiator_receiving_key"]

    for packet in case["transport"]:
        keys, other = (ours, theirs) if packet["sender"] == "initiator" else (theirs, ours)
        plain = unhex(packet["plaintext"]).ljust(packet["padded_len"], b"\0")
        sealed = noise.data(keys.send, keys.remote_index, int(packet["counter"]), plain)
        assert sealed.hex() == packet["message"]
        assert wg.Keypair(other, 0).open(sealed) == plain


@pytest.mark.parametrize("case", VECTORS["cookie"]["cases"], ids=lambda v: v["family"])
def test_cookie(case: dict[str, Any]) -> None:
    first = VECTORS["handshakes"][0]
    i, r = first["initiator"], first["responder"]
    responder = unhex(r["static_public"])
    assert c.cookie_key(responder).hex() == VECTORS["cookie"]["cookie_encryption_key"]
    address = noise.address_bytes(ipaddress.ip_address(case["source_address"]).packed, case["source_port"])
    assert address.hex() == case["mac_input"]
    cookie = c.mac(unhex(VECTORS["cookie"]["responder_secret"]), address)
    assert cookie.hex() == case["cookie"]
    reply = noise.cookie_reply(responder, unhex(first["initiation"]), cookie, nonce=unhex(case["reply_nonce"]))
    assert reply.hex() == case["reply_message"]
    assert noise.consume_cookie_reply(responder, reply, unhex(case["answers_mac1"])) == cookie
    retry = case["retry"]
    message, _ = noise.initiation(
        Identity.of(unhex(i["static_private"])),
        responder,
        stamp=unhex(retry["tai64n"]),
        index=retry["sender_index"],
        ephemeral=Identity.of(unhex(retry["ephemeral_private"])),
        cookie=cookie,
    )
    assert message.hex() == retry["initiation"]
    assert message[-16:].hex() == retry["mac2"]
    assert noise.mac2_is_right(message, cookie)


# The device, both roles against each other, with a clock that the test moves


class Pair:
    """Two devices and a wire between them that delivers at once, drops when told, and remembers."""

    def __init__(self, **peer: Any) -> None:
        self.now = 100.0
        left, right = Identity.fresh(), Identity.fresh()
        self.a, self.b = wg.Device(left.private, jitter=lambda: 0.0), wg.Device(right.private, jitter=lambda: 0.0)
        self.to_b = self.a.add_peer(right.public, endpoint=B, allowed=["10.0.0.2/32", "fd00::2/128"], **peer)
        self.to_a = self.b.add_peer(left.public, endpoint=A, allowed=["10.0.0.1/32", "fd00::1/128"], **peer)
        self.sent: list[tuple[str, bytes, float]] = []
        self.inner: list[bytes] = []
        self.events: list[str] = []
        self.cut = False

    def carry(self, device: wg.Device, actions: list[wg.Action]) -> None:
        for action in actions:
            if isinstance(action, wg.Datagram):
                name, other, source = ("a", self.b, A) if device is self.a else ("b", self.a, B)
                self.sent.append((name, action.data, self.now))
                if not self.cut:
                    self.carry(other, other.receive(action.data, source, self.now))
            elif isinstance(action, wg.Inner):
                self.inner.append(action.packet)
            else:
                self.events.append(("a " if device is self.a else "b ") + action.name)

    def until(self, end: float) -> None:
        while True:
            wakes = [w for w in (self.a.next_wake(), self.b.next_wake()) if w is not None and w <= end]
            if not wakes:
                self.now = end
                return
            self.now = max(self.now, min(wakes))
            for device in (self.a, self.b):
                self.carry(device, device.tick(self.now))

    def kinds(self, name: str) -> list[tuple[int, float]]:
        return [(data[0], at) for who, data, at in self.sent if who == name]


def ipv4(source: str, destination: str, payload: bytes = b"hello") -> bytes:
    head = struct.pack(
        ">BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(payload),
        0,
        0,
        64,
        253,
        0,
        ipaddress.IPv4Address(source).packed,
        ipaddress.IPv4Address(destination).packed,
    )
    return head + payload


THERE = ipv4("10.0.0.1", "10.0.0.2")
BACK = ipv4("10.0.0.2", "10.0.0.1")


def connected(**peer: Any) -> Pair:
    pair = Pair(**peer)
    pair.carry(pair.a, pair.a.send(THERE, pair.now))
    assert pair.inner == [THERE]
    return pair


def test_data_both_ways_with_psk() -> None:
    pair = connected(psk=bytes(range(32)))
    pair.carry(pair.b, pair.b.send(BACK, pair.now))
    assert pair.inner == [THERE, BACK]
    assert pair.kinds("a") == [(1, 100.0), (4, 100.0)]
    assert pair.kinds("b") == [(2, 100.0), (4, 100.0)]


def test_responder_waits_for_confirmation() -> None:
    pair = Pair()
    pair.cut = True
    (initiation,) = [x.data for x in pair.a.initiate(pair.to_b, pair.now) if isinstance(x, wg.Datagram)]
    pair.b.receive(initiation, A, pair.now)
    assert pair.to_a.next is not None
    assert pair.to_a.current is None
    assert not [x for x in pair.b.send(BACK, pair.now) if isinstance(x, wg.Datagram)], "no data before confirmation"


def test_initiations_stop_after_twenty() -> None:
    pair = Pair()
    pair.cut = True
    pair.carry(pair.a, pair.a.send(THERE, pair.now))
    pair.until(100.0 + 200.0)
    assert [kind for kind, _ in pair.kinds("a")] == [1] * 20
    gaps = [b[1] - a[1] for a, b in zip(pair.kinds("a"), pair.kinds("a")[1:], strict=False)]
    assert all(5.0 <= gap <= 5.4 for gap in gaps)
    assert pair.events[-1] == "a gave-up"
    assert not pair.to_b.staged


def test_passive_keepalive_and_dead_peer() -> None:
    pair = connected()
    pair.until(105.0)
    assert len(pair.sent) == 3
    pair.until(112.0)
    assert pair.kinds("b")[-1] == (4, 110.0), "ten seconds after data without an answer"
    pair.cut = True
    pair.until(120.0)
    pair.carry(pair.a, pair.a.send(THERE, pair.now))
    pair.until(134.0)
    assert pair.kinds("a")[-1] == (4, 120.0)
    pair.until(136.0)
    assert pair.kinds("a")[-1] == (1, 135.0), "fifteen seconds without an answer"


def test_persistent_keepalive() -> None:
    pair = connected(keepalive=25)
    pair.until(180.0)
    ours = [at for kind, at in pair.kinds("a") if kind == 4]
    assert len(ours) >= 3


def test_rekey_by_time_is_the_initiator_s() -> None:
    pair = connected()
    pair.until(219.0)
    pair.carry(pair.a, pair.a.send(THERE, pair.now))
    assert pair.to_b.handshakes_completed == 1
    pair.until(221.0)
    pair.carry(pair.b, pair.b.send(BACK, pair.now))
    assert pair.to_b.handshakes_completed == 1, "the responder does not rekey by age"
    pair.carry(pair.a, pair.a.send(THERE, pair.now))
    assert pair.to_b.handshakes_completed == 2


def test_rekey_on_receive_and_reject_after_time() -> None:
    pair = connected()
    pair.until(266.0)
    pair.carry(pair.b, pair.b.send(BACK, pair.now))
    assert pair.to_b.handshakes_completed == 2, "165 s as initiator when receiving"
    keys = pair.to_b.current
    assert keys is not None
    late = keys.seal(THERE)
    pair.now += 180.0
    assert pair.b.receive(late, A, pair.now) == [wg.Event("drop: keypair expired")]


def test_key_material_is_zeroed() -> None:
    pair = connected()
    pair.cut = True
    pair.until(100.0 + 541.0)
    assert not pair.to_a.keypairs()
    assert not pair.to_b.keypairs()


def test_cookie_round() -> None:
    pair = Pair()
    pair.b.under_load = True
    pair.carry(pair.a, pair.a.send(THERE, pair.now))
    assert pair.kinds("b") == [(3, 100.0)]
    assert pair.inner == []
    pair.until(106.0)
    assert pair.inner == [THERE], "the retry carries a valid mac2"
    assert pair.kinds("a")[1] == (1, 105.0), "not at once"


def test_cookie_for_wrong_mac1_is_refused() -> None:
    pair = Pair()
    pair.cut = True
    (sent,) = [x.data for x in pair.a.initiate(pair.to_b, pair.now) if isinstance(x, wg.Datagram)]
    forged = noise.cookie_reply(pair.to_b.public, sent, bytes(16), answered_mac1=bytes(16))
    assert pair.a.receive(forged, B, pair.now) == [wg.Event("drop: authentication failed")]
    good = noise.cookie_reply(pair.to_b.public, sent, bytes(16))
    assert pair.a.receive(good, B, pair.now) == [wg.Event("cookie", pair.to_b)]
    assert pair.a.receive(good, B, pair.now) == [wg.Event("drop: second cookie for one message")]


def test_stamp_grows_when_the_clock_goes_back() -> None:
    wall = [10**18]
    device = wg.Device(Identity.fresh().private, wall_ns=lambda: wall[0])
    peer = device.add_peer(Identity.fresh().public, endpoint=B)
    stamps = [device.next_stamp(peer)]
    for _ in range(200):
        wall[0] -= 10**9
        stamps.append(device.next_stamp(peer))
    assert stamps == sorted(set(stamps))
    assert all(int.from_bytes(stamp[8:], "big") < 10**9 for stamp in stamps)


def refused(pair: Pair, message: bytes) -> str:
    """Delivers to b; returns why it was refused, and checks that nothing but a counter changed."""

    def state() -> object:
        peer = pair.to_a
        return (peer.endpoint, peer.keypairs(), peer.greatest_stamp, peer.rx_bytes, peer.tx_bytes)

    before = state()
    actions = pair.b.receive(message, ("198.51.100.9", 9), pair.now)
    assert before == state()
    assert len(actions) == 1
    assert isinstance(actions[0], wg.Event)
    return actions[0].name.removeprefix("drop: ")


def test_everything_wrong_with_an_initiation() -> None:
    pair = connected()
    replay = pair.sent[0][1]
    pair.now += 1
    me, to = pair.a.me, pair.b.me.public

    def make(**how: Any) -> bytes:
        stamp = how.pop("stamp", pair.a.next_stamp(pair.to_b))
        return noise.initiation(me, to, stamp=stamp, index=7, **how)[0]

    assert refused(pair, replay) == "old stamp"
    assert refused(pair, make(stamp=c.tai64n(0))) == "old stamp"
    assert refused(pair, make(override={"mac1": bytes(16)})) == "wrong mac1"
    assert refused(pair, make(override={"type": b"\1\0\0\1"})) == "unknown type or reserved bytes set"
    assert refused(pair, make(override={"static": bytes(48)})) == "authentication failed"
    assert refused(pair, make(override={"timestamp": bytes(28)})) == "authentication failed"
    assert refused(pair, make(cut=1)) == refused(pair, make(cut=-1)) == "wrong size for its type"
    assert refused(pair, make(claimed_static=Identity.fresh().public)) == "authentication failed"
    stranger = noise.initiation(Identity.fresh(), to, stamp=c.tai64n(10**18), index=7)[0]
    assert refused(pair, stranger) == "unknown peer"
    for point in c.LOW_ORDER_POINTS:
        assert refused(pair, make(low_order=point)) == "low-order public key"
    assert refused(pair, b"") == "shorter than a type word"


def test_everything_wrong_with_data() -> None:
    pair = connected()
    keys = pair.to_b.current
    assert keys is not None
    send, index = keys.keys.send, keys.keys.remote_index
    assert refused(pair, pair.sent[2][1]) == "replayed or too old"
    assert refused(pair, noise.data(send, index, 5, THERE, cut=1)) == "authentication failed"
    other_counter = noise.data(send, index, 5, THERE, override={"counter": noise.u64(6)})
    assert refused(pair, other_counter) == "authentication failed"
    assert refused(pair, noise.data(send, index ^ 1, 5, THERE)) == "no such keypair"
    assert refused(pair, noise.data(send, index, 2**64 - 1 - 8129, THERE)) == "replayed or too old"
    assert refused(pair, noise.data(send, index, 5, b"", cut=1)) == "data message too short"
    wrong = [
        (ipv4("10.0.0.9", "10.0.0.2"), "no peer for this address"),
        (THERE[:-1], "inner length beyond the message"),
        (b"\x45" + bytes(19), "IPv4 total length below its header"),
        (b"\x75" + THERE[1:], "not an IP packet"),
        (THERE[:10], "not an IP packet"),
    ]
    for counter, (packet, why) in enumerate(wrong, 10):
        actions = pair.b.receive(noise.data(send, index, counter, packet), A, pair.now)
        assert actions == [wg.Event(f"drop: {why}")]
    far = pair.b.receive(noise.data(send, index, 2**32 + 5, THERE), A, pair.now)
    assert far == [wg.Inner(pair.to_a, THERE)]
