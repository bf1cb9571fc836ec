"""What is malformed, replayed or out of time changes nothing: the reference peer against the implementation under test.

Each message that must be refused is sent from the session's own address and from an attacker's; before and after, all
that the control socket shows is compared, and the session must still work. Every case is a line of a table.
"""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from tests.interop.implementations import UNDER_TEST, Implementation, base64
from tests.interop.oracle import INNER4, TARGET4, Oracle, can, echo_request, need, oracle
from tests.peers import wg_crypto as c
from tests.peers import wg_noise as noise
from tests.peers.wg_noise import Identity

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

each_impl = pytest.mark.parametrize("impl", UNDER_TEST, ids=lambda impl: impl.name)
Make = Callable[[Oracle], bytes]


@pytest.fixture(scope="module", params=UNDER_TEST, ids=lambda impl: impl.name)
def session(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    need(request.param)
    with oracle(request.param) as made:
        another = base64(Identity.fresh().public)
        made.end.wg("set", made.end.name, "peer", another, "allowed-ips", "10.7.0.8/32,fd07::8/128")
        yield made


def fresh(o: Oracle, **how: object) -> bytes:
    """An initiation that would be taken but for what `how` says."""
    if "stamp" not in how:
        how["stamp"] = o.device.next_stamp(o.peer)
    return noise.initiation(o.identity, o.theirs, index=77, psk=o.psk, **how)[0]  # type: ignore[arg-type]


def for_another_device(o: Oracle) -> bytes:
    """Made for another static key, with a mac1 that is right for this one."""
    message, _ = noise.initiation(o.identity, Identity.fresh().public, stamp=o.device.next_stamp(o.peer), index=77)
    return noise.with_macs(message[:-32], o.theirs, None, {}, 0)


def older_stamp(o: Oracle) -> bytes:
    last = int.from_bytes(o.stamp, "big")
    return fresh(o, stamp=(last - (1 << 32)).to_bytes(12, "big"))


INITIATIONS: dict[str, Make] = {
    "replayed": lambda o: o.initiation,
    "same stamp": lambda o: fresh(o, stamp=o.stamp),
    "older stamp": older_stamp,
    "stamp of 1970": lambda o: fresh(o, stamp=c.tai64n(0)),
    "all-zero stamp": lambda o: fresh(o, stamp=bytes(12)),
    "mac1 zero": lambda o: fresh(o, override={"mac1": bytes(16)}),
    "mac1 random": lambda o: fresh(o, override={"mac1": os.urandom(16)}),
    "mac1 for the sender's key": lambda o: noise.with_macs(fresh(o)[:-32], o.identity.public, None, {}, 0),
    "reserved byte 1": lambda o: fresh(o, override={"type": b"\1\1\0\0"}),
    "reserved byte 2": lambda o: fresh(o, override={"type": b"\1\0\1\0"}),
    "reserved byte 3": lambda o: fresh(o, override={"type": b"\1\0\0\x80"}),
    "type 0": lambda o: fresh(o, override={"type": bytes(4)}),
    "type 5": lambda o: fresh(o, override={"type": b"\5\0\0\0"}),
    "type 255": lambda o: fresh(o, override={"type": b"\xff\0\0\0"}),
    "as a response": lambda o: fresh(o, override={"type": b"\2\0\0\0"}),
    "as a cookie reply": lambda o: fresh(o, override={"type": b"\3\0\0\0"}),
    "as data": lambda o: fresh(o, override={"type": b"\4\0\0\0"}),
    "one byte short": lambda o: fresh(o, cut=1),
    "one byte long": lambda o: fresh(o, cut=-1),
    "a kilobyte long": lambda o: fresh(o, cut=-1024),
    "without macs": lambda o: fresh(o, cut=32),
    "half": lambda o: fresh(o, cut=74),
    "static zero": lambda o: fresh(o, override={"static": bytes(48)}),
    "static changed": lambda o: fresh(o, override={"static": os.urandom(48)}),
    "timestamp zero": lambda o: fresh(o, override={"timestamp": bytes(28)}),
    "timestamp changed": lambda o: fresh(o, override={"timestamp": os.urandom(28)}),
    "ephemeral changed": lambda o: fresh(o, override={"ephemeral": Identity.fresh().public}),
    "another's static claimed": lambda o: fresh(o, claimed_static=Identity.fresh().public),
    "their own static claimed": lambda o: fresh(o, claimed_static=o.theirs),
    "low-order static claimed": lambda o: fresh(o, claimed_static=c.LOW_ORDER_POINTS[1]),
    "unknown peer": lambda o: noise.initiation(Identity.fresh(), o.theirs, stamp=c.tai64n(2**60), index=1)[0],
    "for another device": for_another_device,
} | {
    f"low-order ephemeral {i}": lambda o, point=point: fresh(o, low_order=point)  # type: ignore[misc]
    for i, point in enumerate(c.LOW_ORDER_POINTS)
}


def sealed(o: Oracle, counter: int | None = None, plain: bytes | None = None, **how: object) -> bytes:
    """A data message that would be taken but for what `how` says."""
    keys = o.pair.keys
    counter = o.pair.counter + 1000 if counter is None else counter
    plain = echo_request(b"refuse me", 1) if plain is None else plain
    how.setdefault("receiver", keys.remote_index)
    receiver = how.pop("receiver")
    return noise.data(keys.send, receiver, counter, plain, **how)  # type: ignore[arg-type]


def changed(message: bytes, at: int) -> bytes:
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]


DATA: dict[str, Make] = {
    "replayed": lambda o: sealed(o, 0),
    "replayed, last": lambda o: sealed(o, o.pair.counter - 1),
    "tag changed": lambda o: changed(sealed(o), -1),
    "body changed": lambda o: changed(sealed(o), 20),
    "counter changed": lambda o: changed(sealed(o), 8),
    "counter's high bits changed": lambda o: changed(sealed(o), 15),
    "reserved byte": lambda o: sealed(o, override={"type": b"\4\0\0\1"}),
    "unknown index": lambda o: sealed(o, receiver=o.pair.keys.remote_index ^ 0x01000000),
    "our index": lambda o: sealed(o, receiver=o.pair.keys.local_index),
    "sealed by the receiving key": lambda o: noise.data(o.pair.keys.receive, o.pair.keys.remote_index, 5000, b""),
    "one byte short": lambda o: sealed(o, cut=1),
    "one byte long": lambda o: sealed(o, cut=-1),
    "header only": lambda o: sealed(o)[:16],
    "31 bytes": lambda o: sealed(o)[:31],
    "32 bytes": lambda o: sealed(o)[:32],
    "keepalive, tag changed": lambda o: changed(sealed(o, plain=b""), -1),
    "at the reject limit": lambda o: sealed(o, 2**64 - 8130),
    "greatest counter": lambda o: sealed(o, 2**64 - 1),
}

OTHER: dict[str, Make] = {
    "empty": lambda o: b"",
    "one byte": lambda o: b"\1",
    "three bytes": lambda o: b"\4\0\0",
    "type word of an initiation": lambda o: b"\1\0\0\0",
    "type word of data": lambda o: b"\4\0\0\0",
    "64 KiB of zeros": lambda o: bytes(65000),
    "64 KiB of noise": lambda o: os.urandom(65000),
    "STUN": lambda o: bytes.fromhex("000100002112a442") + os.urandom(12),
    "response to nothing": lambda o: noise.with_macs(
        b"\2\0\0\0" + os.urandom(4) + noise.u32(o.pair.keys.remote_index) + os.urandom(48), o.theirs, None, {}, 0
    ),
    "cookie reply to nothing": lambda o: noise.cookie_reply(o.identity.public, bytes(148), bytes(16)),
    "cookie reply for a keypair": lambda o: noise.cookie_reply(
        o.identity.public, bytes(148), bytes(16), override={"receiver": noise.u32(o.pair.keys.remote_index)}
    ),
    "cookie reply, one byte short": lambda o: noise.cookie_reply(o.identity.public, bytes(148), bytes(16), cut=1),
}


def refuses(session: Oracle, make: Make) -> None:
    with session.nothing_changes():
        session.shell.raw(make(session), session.target)
        session.attacker.sendto(make(session), session.target)


@pytest.mark.parametrize("case", INITIATIONS)
def test_initiation(session: Oracle, case: str) -> None:
    refuses(session, INITIATIONS[case])


@pytest.mark.parametrize("case", DATA)
def test_data(session: Oracle, case: str) -> None:
    refuses(session, DATA[case])


@pytest.mark.parametrize("case", OTHER)
def test_other(session: Oracle, case: str) -> None:
    refuses(session, OTHER[case])


def test_every_size_of_every_type(session: Oracle) -> None:
    with session.nothing_changes(0.1):
        for kind in range(6):
            for size in (*range(4, 40), 63, 64, 65, 91, 92, 93, 147, 148, 149):
                session.attacker.sendto((bytes([kind, 0, 0, 0]) + os.urandom(size))[:size], session.target)


IPV6 = echo_request(b"x", 1, source="fd07::1", target="fd07::2")
IPV4 = echo_request(b"x", 1)
# Authentic, so that counters and windows move; nothing may come out of the TUN, and no answer may come.
INNER: dict[str, bytes] = {
    "wrong inner source": echo_request(b"x", 1, source="10.7.0.9"),
    "another peer's inner source": echo_request(b"x", 1, source="10.7.0.8"),
    "another peer's inner source, IPv6": echo_request(b"x", 1, source="fd07::8", target="fd07::2"),
    "their own inner source": echo_request(b"x", 1, source=TARGET4),
    "wrong inner source, IPv6": echo_request(b"x", 1, source="fd07::9", target="fd07::2"),
    "IPv4 length beyond": IPV4[:2] + b"\x01\x00" + IPV4[4:],
    "IPv4 length 65535": IPV4[:2] + b"\xff\xff" + IPV4[4:],
    "IPv4 length 0": IPV4[:2] + bytes(2) + IPV4[4:],
    "IPv4 length 19": IPV4[:2] + b"\x00\x13" + IPV4[4:],
    "IPv4 cut": IPV4[:19],
    "IPv4, one byte": IPV4[:1],
    "IPv6 length beyond": IPV6[:4] + b"\x01\x00" + IPV6[6:],
    "IPv6 length 65535": IPV6[:4] + b"\xff\xff" + IPV6[6:],
    "IPv6 cut": IPV6[:39],
    "version 0": b"\x05" + IPV4[1:],
    "version 5": b"\x55" + IPV4[1:],
    "version 15": b"\xf5" + IPV4[1:],
    "zeros": bytes(16),
    "noise": b"\xa0" + bytes(range(99)),
}


@pytest.mark.parametrize("case", INNER)
def test_inner(session: Oracle, case: str) -> None:
    if case == "IPv6 length 65535":
        can(session.end.impl, "inner length beyond 16 bits")
    before = session.packets_out()
    session.shell.clear()
    session.shell.raw(session.pair.seal(INNER[case]), session.target)
    session.shell.pump(0.03)
    assert not session.shell.received, f"answered by {session.shell.kinds()}"
    assert session.packets_out() == before
    assert session.echo()


class TestTaken:
    """What looks odd and is right."""

    @pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 19, 20, 21, 1391, 1392])
    def test_unpadded(self, session: Oracle, size: int) -> None:
        assert session.echo(size=size)
        assert session.echo(size=min(size, 1372), six=True)

    def test_garbage_as_padding(self, session: Oracle) -> None:
        assert session.echo(pad=b"\xff" * 200)

    def test_keepalive(self, session: Oracle) -> None:
        before = session.state()
        session.shell.raw(session.pair.seal(b""), session.target)
        assert session.echo()
        after = session.state()
        assert after["packets out of the TUN"] == int(str(before["packets out of the TUN"])) + 1

    def test_wrong_mac2_without_load(self, session: Oracle) -> None:
        """Nobody asked for a cookie, so mac2 is not looked at."""
        message, state = noise.initiation(
            session.identity,
            session.theirs,
            stamp=session.device.next_stamp(session.peer),
            index=99,
            psk=session.psk,
            override={"mac2": os.urandom(16)},
        )
        session.shell.clear()
        time.sleep(0.03)  # initiations closer than 20 ms are dropped
        session.shell.raw(message, session.target)
        assert session.shell.pump(3, lambda: noise.RESPONSE in session.shell.kinds())
        answer = next(m for m, _ in session.shell.received if m[0] == noise.RESPONSE)
        noise.consume_response(session.identity, state, answer)
        assert session.echo(), "an unfinished handshake ended the session"


@each_impl
class TestWindow:
    def test_edges(self, impl: Implementation) -> None:
        need(impl)
        with oracle(impl) as o:
            assert o.echo(counter=10_000)
            assert o.echo(counter=9_000)
            assert not o.echo(counter=9_000, seconds=0.1)
            assert not o.echo(counter=10_000, seconds=0.1)
            can(impl, "window of 8128")
            assert o.echo(counter=10_000 - 8128)
            assert not o.echo(counter=10_000 - 8129, seconds=0.1)
            assert not o.echo(counter=0, seconds=0.1)

    def test_reverse_order(self, impl: Implementation) -> None:
        need(impl)
        with oracle(impl) as o:
            for counter in range(600, 500, -1):
                assert o.echo(counter=counter)

    def test_beyond_32_bits(self, impl: Implementation) -> None:
        need(impl)
        with oracle(impl) as o:
            for counter in (2**32 - 1, 2**32, 2**32 + 5, 2**33, 2**40, 2**59):
                assert o.echo(counter=counter), f"counter {counter:#x}"
            assert not o.echo(counter=2**32 + 5, seconds=0.1)

    def test_near_the_reject_limit(self, impl: Implementation) -> None:
        need(impl)
        with oracle(impl) as o:
            assert o.echo(counter=2**64 - 8194)
            if "exact reject limit" not in impl.lacks:
                assert o.echo(counter=2**64 - 8131)
            assert not o.echo(counter=2**64 - 8130, seconds=0.1)
            assert not o.echo(counter=2**64 - 1, seconds=0.1)


@each_impl
class TestHandshakes:
    def test_rekey_many_times(self, impl: Implementation) -> None:
        """We are the initiator; after each handshake the new keypair works, the previous one too, an older one not."""
        need(impl)
        with oracle(impl) as o:
            for turn in range(40):
                time.sleep(0.025)
                o.connect()
                assert o.echo(six=bool(turn % 2))
            assert o.echo(pair=o.past[-1]), "the previous keypair was dropped"
            assert not o.echo(pair=o.past[-2], seconds=0.1), "an older keypair is still in use"
            assert o.echo()

    def test_unfinished_handshakes_leave_the_session(self, impl: Implementation) -> None:
        need(impl)
        with oracle(impl) as o:
            for _ in range(10):
                time.sleep(0.025)
                o.shell.clear()
                o.shell.raw(fresh(o), o.target)
                assert o.shell.pump(3, lambda: noise.RESPONSE in o.shell.kinds())
            assert o.echo()

    def test_initiations_closer_than_20_ms(self, impl: Implementation) -> None:
        need(impl)
        with oracle(impl) as o:
            time.sleep(0.03)
            o.shell.clear()
            burst = [fresh(o) for _ in range(20)]
            for message in burst:
                o.shell.raw(message, o.target)
            o.shell.pump(0.3)
            answers = o.shell.kinds().count(noise.RESPONSE)
            can(impl, "per-peer flood guard")
            assert 1 <= answers <= 3, f"{answers} responses to 20 initiations sent at once"
            assert o.echo()

    def test_no_data_before_confirmation(self, impl: Implementation) -> None:
        """As responder it must wait for our first message with the new keys (whitepaper section 5.4.6)."""
        need(impl)
        with oracle(impl, connect=False) as o:
            message, state = noise.initiation(
                o.identity, o.theirs, stamp=o.device.next_stamp(o.peer), index=5, psk=o.psk
            )
            o.shell.raw(message, o.target)
            assert o.shell.pump(3, lambda: noise.RESPONSE in o.shell.kinds())
            o.ask_for_handshake()
            o.shell.pump(0.3)
            assert noise.DATA not in o.shell.kinds()
            answer = next(m for m, _ in o.shell.received if m[0] == noise.RESPONSE)
            keys = noise.consume_response(o.identity, state, answer)
            o.shell.raw(noise.data(keys.send, keys.remote_index, 0, b""), o.target)
            assert o.shell.pump(3, lambda: noise.DATA in o.shell.kinds()), "what was staged was not sent"
            first = next(m for m, _ in o.shell.received if m[0] == noise.DATA)
            assert noise.fields_of(first)["receiver"] == noise.u32(5)

    def test_bad_responses_then_the_good_one(self, impl: Implementation) -> None:
        need(impl)
        with oracle(impl, connect=False) as o:
            o.ask_for_handshake()
            first = o.expect_initiation()

            def answer(**how: object) -> bytes:
                psk = how.pop("psk", o.psk)
                state = noise.consume_initiation(o.identity, first)
                return noise.response(state, index=0xABCDEF, psk=psk, **how)[0]  # type: ignore[arg-type]

            wrong = [
                answer(psk=os.urandom(32)),
                answer(override={"mac1": bytes(16)}),
                answer(override={"receiver": os.urandom(4)}),
                answer(override={"ephemeral": Identity.fresh().public}),
                answer(override={"empty": bytes(16)}),
                answer(override={"type": b"\2\0\1\0"}),
                answer(cut=1),
                answer(cut=-1),
                *(answer(low_order=point) for point in c.LOW_ORDER_POINTS),
            ]
            before = o.state()
            for message in wrong:
                o.shell.raw(message, o.target)
                o.attacker.sendto(message, o.target)
            o.shell.pump(0.1)
            assert not o.shell.received
            assert o.state() == before
            now = time.monotonic()
            o.shell.perform(o.device.receive(first, o.target, now))
            assert o.shell.pump(3, lambda: o.peer.handshakes_completed == 1), "the good response was refused"
            assert o.echo()
            with o.nothing_changes():
                for message in wrong:
                    o.attacker.sendto(message, o.target)

    def test_their_initiations(self, impl: Implementation) -> None:
        """Retried after 5 s with a new ephemeral key, a new index and a greater stamp, whose low bits are zero."""
        need(impl)
        with oracle(impl, connect=False) as o:
            o.ask_for_handshake()
            first, at = o.expect_initiation(), time.monotonic()
            second = o.expect_initiation(7)
            assert 4.9 <= time.monotonic() - at <= 5.6
            a, b = (noise.consume_initiation(o.identity, m) for m in (first, second))
            assert a.remote_static == b.remote_static == o.theirs
            assert a.stamp < b.stamp
            assert (a.remote_ephemeral, a.remote_index) != (b.remote_ephemeral, b.remote_index)
            assert first[-16:] == second[-16:] == bytes(16), "mac2 without a cookie"
            can(impl, "rounded stamp")
            assert int.from_bytes(a.stamp[8:], "big") % (1 << 24) == 0
            can(impl, "kernel's TAI offset")
            skew = int.from_bytes(a.stamp[:8], "big") - 0x400000000000000A - time.time()
            assert abs(skew + 5) < 5, f"stamp is {skew:.0f} s off"

    def test_low_order_peer(self, impl: Implementation) -> None:
        """A configured peer whose key is a low-order point: no handshake, whatever is asked."""
        need(impl)
        with oracle(impl) as o:
            point = base64(c.LOW_ORDER_POINTS[2])
            where = f"{o.host.address4}:5002"
            o.end.wg("set", o.end.name, "peer", point, "endpoint", where, "allowed-ips", "10.7.0.66/32")
            with o.end.host.open_socket(2, 2) as sock:
                sock.sendto(b"x", ("10.7.0.66", 9))
            o.attacker.settimeout(0.3)
            with pytest.raises(TimeoutError):
                o.attacker.recv(2048)
            assert o.echo()


@each_impl
def test_data_from_a_new_address_moves_the_session(impl: Implementation) -> None:
    """Only what is authentic does; test_data sends each of its cases from the attacker, too."""
    need(impl)
    with oracle(impl) as o:
        message = o.pair.seal(echo_request(b"moved", 7, source=INNER4))
        o.attacker.sendto(message, o.target)
        o.attacker.settimeout(3)
        assert o.attacker.recv(2048)[0] == noise.DATA, "the answer did not follow"
        endpoint = o.end.peers()[o.identity.public][1]
        assert endpoint.endswith(":5002")
        assert o.echo(), "and back again"
