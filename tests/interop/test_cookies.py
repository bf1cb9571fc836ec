"""Cookies and load: what a flood of valid initiations draws, and what an established peer feels of it."""

import contextlib
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.interop import transfer
from tests.interop.implementations import (
    PORT,
    UNDER_TEST,
    Implementation,
    PeerConfig,
    ProgramEndpoint,
    base64,
    start,
)
from tests.interop.netns import wire
from tests.interop.oracle import Oracle, can, need, oracle
from tests.peers import wg_noise as noise
from tests.peers.wg_crypto import tai64n
from tests.peers.wg_noise import Identity

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

each_impl = pytest.mark.parametrize("impl", UNDER_TEST, ids=lambda impl: impl.name)


def prepared(o: Oracle, flooder: Identity, count: int) -> list[bytes]:
    """Initiations of one configured peer with growing stamps; each is valid when it comes alone."""
    first = int.from_bytes(o.device.next_stamp(o.peer), "big")
    return [
        noise.initiation(flooder, o.theirs, stamp=(first + (i << 32)).to_bytes(12, "big"), index=i)[0]
        for i in range(count)
    ]


@each_impl
def test_flood_draws_cookies_and_leaves_the_established_peer_alone(impl: Implementation) -> None:
    need(impl)
    with oracle(impl) as o:
        flooder = Identity.fresh()
        o.end.wg("set", o.end.name, "peer", base64(flooder.public), "allowed-ips", "10.7.0.77/32")
        messages = prepared(o, flooder, 3000)
        stop = threading.Event()
        o.attacker.setsockopt(1, 8, 1 << 22)  # SO_RCVBUF, for the answers

        def flood() -> None:
            while not stop.is_set():
                for message in messages:
                    with contextlib.suppress(OSError):
                        o.attacker.sendto(message, o.target)

        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        try:
            # The established peer: single packets may drown in the socket's buffer, the session may not.
            passed = sum(o.echo(seconds=0.3, tries=10) for _ in range(10))
            answers: dict[int, list[bytes]] = {}
            o.attacker.settimeout(0.2)
            end = time.monotonic() + 3
            while time.monotonic() < end and len(answers.get(noise.COOKIE_REPLY, [])) < 100:
                with contextlib.suppress(TimeoutError):
                    message = o.attacker.recv(2048)
                    answers.setdefault(message[0], []).append(message)
            cookies = answers.get(noise.COOKIE_REPLY, [])
            assert len(cookies) >= 20, f"answers by type: { {k: len(v) for k, v in answers.items()} }"
            # A cookie answers one of ours by its index, and only its mac1 opens it.
            reply = cookies[-1]
            asked = messages[noise.from_u32(noise.fields_of(reply)["receiver"])]
            cookie = noise.consume_cookie_reply(o.theirs, reply, asked[-32:-16])
            # Under the same flood an initiation with its mac2 is answered; buckets hold 20 a second, so several tries.
            answered = False
            for i in range(40):
                stamp = (int.from_bytes(o.device.next_stamp(o.peer), "big") + ((5000 + i) << 32)).to_bytes(12, "big")
                mine, _ = noise.initiation(flooder, o.theirs, stamp=stamp, index=0x500000 + i, cookie=cookie)
                o.attacker.sendto(mine, o.target)
                with contextlib.suppress(TimeoutError):
                    until = time.monotonic() + 0.2
                    while time.monotonic() < until and not answered:
                        got = o.attacker.recv(2048)
                        answered = got[0] == noise.RESPONSE and got[8:12] == noise.u32(0x500000 + i)
                if answered:
                    break
        finally:
            stop.set()
            thread.join()
        assert answered, "an initiation with a valid mac2 was not answered under load"
        assert passed == 10
        time.sleep(1.2)  # the load is over a second after the last of it
        o.connect()
        assert o.echo()


@each_impl
def test_their_use_of_our_cookie(impl: Implementation) -> None:
    """Wrong cookie replies are ignored, the right one is taken once, and used by the retry after 5 s, not at once."""
    need(impl)
    with oracle(impl, connect=False) as o:
        o.ask_for_handshake()
        first = o.expect_initiation()
        at = time.monotonic()
        good, bad = b"the right cookie", b"the wrong cookie"
        wrong = [
            noise.cookie_reply(o.identity.public, first, bad, answered_mac1=bytes(16)),
            noise.cookie_reply(Identity.fresh().public, first, bad),
            noise.cookie_reply(o.identity.public, first, bad, override={"receiver": bytes(4)}),
            noise.cookie_reply(o.identity.public, first, bad, override={"type": b"\3\0\0\1"}),
            noise.cookie_reply(o.identity.public, first, bad, override={"nonce": bytes(24)}),
            noise.cookie_reply(o.identity.public, first, bad, cut=-1),
        ]
        for message in wrong:
            o.shell.raw(message, o.target)
            o.attacker.sendto(message, o.target)
        o.shell.raw(noise.cookie_reply(o.identity.public, first, good), o.target)
        if "one cookie per message" not in impl.lacks:
            o.shell.raw(noise.cookie_reply(o.identity.public, first, bad), o.target)
        for message in wrong:
            o.shell.raw(message, o.target)
        second = o.expect_initiation(7)
        assert time.monotonic() - at > 4.9, "a cookie reply made it send at once"
        assert noise.mac2_is_right(second, good), "the retry has no valid mac2"
        assert not noise.mac2_is_right(second, bad)
        now = time.monotonic()
        o.shell.perform(o.device.receive(second, o.target, now))
        assert o.shell.pump(3, lambda: o.peer.handshakes_completed == 1)
        assert o.echo()


# Sends the datagrams of a file round and round, 10,000 a second.
FLOOD = """
import socket, sys, time
path, fd, address, port = sys.argv[1:]
data = open(path, "rb").read()
messages = [data[i : i + 148] for i in range(0, len(data), 148)]
sock = socket.socket(fileno=int(fd))
begun, sent = time.monotonic(), 0
while True:
    due = int((time.monotonic() - begun) * 10_000)
    for i in range(sent, due):
        sock.sendto(messages[i % len(messages)], (address, int(port)))
    sent = due
    time.sleep(0.002)
"""


def resident_kib(end: ProgramEndpoint) -> int:
    text = Path(f"/proc/{end.program.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.slow
@each_impl
def test_ten_thousand_initiations_a_second(impl: Implementation) -> None:
    """Ten seconds of it: an established peer keeps 80 % of its throughput, cookies are sent, memory does not grow."""
    need(impl)
    can(impl, "strictness", "steady memory under a flood")
    with wire() as (left, right), contextlib.ExitStack() as stack:
        ends = []
        for host, number in ((left, 1), (right, 2)):
            end = start(impl, host, 1420, number)
            assert isinstance(end, ProgramEndpoint)
            stack.callback(end.close)
            ends.append(end)
        client, server = ends
        keys, flooder = (Identity.fresh(), Identity.fresh()), Identity.fresh()
        client.configure(keys[0], PORT, [PeerConfig(keys[1].public, ["10.7.0.2/32"], (right.address4, PORT))])
        server.configure(
            keys[1],
            PORT,
            [PeerConfig(keys[0].public, ["10.7.0.1/32"]), PeerConfig(flooder.public, ["10.7.0.77/32"])],
        )
        transfer.ping(left, server.address4)
        first = time.time_ns()
        messages = [
            noise.initiation(flooder, keys[1].public, stamp=tai64n(first + (i << 24)), index=i)[0] for i in range(2000)
        ]
        sock = left.udp(left.address4)
        stack.callback(sock.close)
        sock.setsockopt(1, 8, 1 << 22)

        def throughput(seconds: float) -> float:
            """Bytes per second of whole TCP transfers."""
            begun, size, moved = time.monotonic(), 64 << 20, 0
            while time.monotonic() - begun < seconds:
                transfer.tcp(left, right, server.address4, size, seconds=60)
                moved += size
            return moved / (time.monotonic() - begun)

        # The sender of the flood costs CPU too: the comparison is with the same flood at a socket that nobody reads.
        sink = right.udp(right.address4, 9999)
        stack.callback(sink.close)
        packets = left.folder / "flood"
        packets.write_bytes(b"".join(messages))

        def under_flood(port: int, seconds: float) -> tuple[float, int, int]:
            """Throughput, and the memory a second after the flood began and at its end."""
            words = [sys.executable, "-c", FLOOD, str(packets), str(sock.fileno()), right.address4, str(port)]
            program = left.start(*words, pass_fds=[sock.fileno()])
            try:
                time.sleep(1)
                warm = resident_kib(server)
                return throughput(seconds), warm, resident_kib(server)
            finally:
                assert program.alive(), program.tail()
                program.stop()

        throughput(1)
        idle = resident_kib(server)
        quiet, _, _ = under_flood(9999, 5)
        loaded, warm, after = under_flood(PORT, 10)
        sock.setblocking(False)
        kinds: list[int] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                kinds.append(sock.recv(2048)[0])
        assert kinds.count(noise.COOKIE_REPLY) > 100
        assert after <= warm + 256, f"memory grew from {warm} to {after} KiB"
        assert after <= idle + 1024, f"a flood takes {after - idle} KiB"
        assert loaded >= 0.8 * quiet, f"{loaded / quiet:.0%} of its throughput"
        transfer.ping(left, server.address4)
