"""Timers in real time, seen by the reference peer. The short one is in the quick tier; minutes are slow.

That a minute passes as it should is the engine's own unit tests' business (native/tests/wg, with a clock they move);
here it is that the engine is woken when it asked for it.
"""

import time

import pytest

from tests.interop.implementations import UNDER_TEST, Implementation, tunnel
from tests.interop.oracle import Oracle, echo_request, need, oracle
from tests.interop.transfer import ping
from tests.peers import wg_noise as noise

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

each_impl = pytest.mark.parametrize("impl", UNDER_TEST, ids=lambda impl: impl.name)


def first_of(o: Oracle, kind: int, seconds: float) -> float:
    """Seconds until a message of that type comes."""
    begun = time.monotonic()
    assert o.shell.pump(seconds, lambda: kind in o.shell.kinds()), f"no message of type {kind} within {seconds} s"
    return time.monotonic() - begun


@pytest.mark.slow
@each_impl
def test_passive_keepalive(impl: Implementation) -> None:
    """Ten seconds after data that nothing was sent for; only one, unless more data came meanwhile."""
    need(impl)
    with oracle(impl) as o:
        o.shell.clear()
        # An ICMP echo reply that nobody waits for: no program answers it, and no kernel.
        packet = bytearray(echo_request(b"quiet", 1))
        packet[20] = 0
        packet[22:24] = b"\0\0"
        o.shell.raw(o.pair.seal(bytes(packet)), o.target)
        waited = first_of(o, noise.DATA, 11.5)
        assert 9.5 <= waited <= 10.8
        assert len(o.shell.received[0][0]) == 32
        o.shell.clear()
        assert not o.shell.pump(12, lambda: bool(o.shell.received)), "a second keepalive"


@pytest.mark.slow
@each_impl
def test_silent_peer_is_asked_again(impl: Implementation) -> None:
    """Fifteen seconds after data that was not answered comes an initiation, then one every five."""
    need(impl)
    with oracle(impl) as o:
        o.shell.clear()
        o.ask_for_handshake()  # with a keypair in place it is just data
        first_of(o, noise.DATA, 2)
        o.device.answers = False
        waited = first_of(o, noise.INITIATION, 17)
        assert 14.5 <= waited <= 16
        o.shell.clear()
        assert 4.9 <= first_of(o, noise.INITIATION, 6) <= 5.6


@pytest.mark.slow
@each_impl
def test_initiations_end_after_ninety_seconds(impl: Implementation) -> None:
    """Twenty initiations, five seconds and a jitter apart, then silence."""
    need(impl)
    with oracle(impl, connect=False) as o:
        o.device.answers = False
        o.ask_for_handshake()
        o.shell.pump(112)
        count = o.shell.kinds().count(noise.INITIATION)
        assert count == 20, f"{count} initiations"
        stamps = [noise.consume_initiation(o.identity, message).stamp for message, _ in o.shell.received]
        assert stamps == sorted(set(stamps))


@pytest.mark.slow
@each_impl
def test_rekey_by_time_and_reject_by_age(impl: Implementation) -> None:
    """With traffic, the initiator starts again at 120 s; what is sealed with a keypair older than 180 s is refused."""
    need(impl)
    with oracle(impl, connect=False) as o:
        o.ask_for_handshake()
        assert o.shell.pump(3, lambda: o.peer.handshakes_completed == 1)
        begun, old = time.monotonic(), o.pair
        while o.peer.handshakes_completed == 1:
            assert time.monotonic() - begun < 125, "no rekey"
            assert o.echo(seconds=2)
            o.shell.pump(1)
        assert 119 <= time.monotonic() - begun <= 124
        assert o.echo(pair=old), "the previous keypair is good until 180 s"
        o.shell.pump(begun + 178 - time.monotonic())
        assert o.echo(pair=old)
        o.shell.pump(begun + 182 - time.monotonic())
        assert not o.echo(pair=old, seconds=0.5)
        assert o.echo()


@pytest.mark.slow
@each_impl
def test_responder_does_not_rekey_by_age(impl: Implementation) -> None:
    """Its keypair ends at 180 s, and only then it starts a handshake of its own to send with."""
    need(impl)
    with oracle(impl) as o:
        o.device.rekeys_by_age = False
        begun = time.monotonic()
        while time.monotonic() - begun < 178:
            assert o.echo(seconds=2)
            o.shell.pump(1)
            assert noise.INITIATION not in o.shell.kinds()
        o.peer.timers.clear()  # ours would start a handshake of our own
        time.sleep(begun + 182 - time.monotonic())
        o.shell.clear()
        o.ask_for_handshake()
        assert first_of(o, noise.INITIATION, 2) < 2
        assert o.shell.pump(3, lambda: o.peer.handshakes_completed == 2)
        assert o.echo()


@pytest.mark.slow
@each_impl
def test_traffic_through_rekeys(impl: Implementation) -> None:
    """Five minutes of pings between two of a kind; none is lost for longer than a second."""
    need(impl)
    with tunnel(impl, impl) as made:
        end = time.monotonic() + 300
        while time.monotonic() < end:
            ping(made.left.host, made.right.address4, seconds=3, every=0.5)
            ping(made.right.host, made.left.address6, seconds=3, every=0.5)
            time.sleep(0.2)
