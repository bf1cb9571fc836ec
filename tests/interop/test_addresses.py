"""Addresses that move, and answers that come from the address that was addressed."""

import socket
import time
from collections.abc import Callable

import pytest

from tests.interop import transfer
from tests.interop.implementations import (
    IMPLEMENTATIONS,
    PORT,
    UNDER_TEST,
    Implementation,
    ProgramEndpoint,
    base64,
    tunnel,
)
from tests.interop.netns import wait_for
from tests.interop.oracle import can, echo_request, need, oracle
from tests.peers import wg_noise as noise
from tests.peers.wg_crypto import open_

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

each_impl = pytest.mark.parametrize("impl", UNDER_TEST, ids=lambda impl: impl.name)
PARTNERS = [IMPLEMENTATIONS["wireguard-go"], IMPLEMENTATIONS["reference"]]
SIZE = {"wireguard-go": 32 << 20, "reference": 1 << 20}

Transfer = Callable[..., None]


@each_impl
@pytest.mark.parametrize("partner", PARTNERS, ids=lambda impl: impl.name)
@pytest.mark.parametrize("move", [transfer.tcp, transfer.udp], ids=["tcp", "udp"])
@pytest.mark.parametrize("way", ["to-mover", "from-mover"])
def test_port_changes_in_mid_transfer(impl: Implementation, partner: Implementation, move: Transfer, way: str) -> None:
    """The partner goes on from another port; the implementation under test must follow."""
    need(impl, partner)
    with tunnel(partner, impl) as made:
        mover, other = made.left, made.right
        transfer.ping(mover.host, other.address4)
        source, target = (other, mover) if way == "to-mover" else (mover, other)
        size = SIZE[partner.name] if move is transfer.tcp else 1 << 20

        def half() -> None:
            mover.move_port(PORT + 7)
            transfer.ping(mover.host, other.address4)  # who moves must speak; else it is found after 10 s of silence

        move(source.host, target.host, target.address4, size, half=half)
        transfer.ping(other.host, mover.address4)
        assert isinstance(other, ProgramEndpoint)
        endpoint = next(iter(other.peers().values()))[1]
        assert endpoint == f"{mover.host.address4}:{PORT + 7}"


@each_impl
@pytest.mark.parametrize("outer", [4, 6], ids=["in4", "in6"])
def test_address_changes_in_mid_transfer(impl: Implementation, outer: int) -> None:
    """The partner's host gets another address and loses the old one."""
    partner = IMPLEMENTATIONS["wireguard-go"]
    need(impl, partner)
    with tunnel(partner, impl, outer=outer) as made:
        mover, other = made.left, made.right
        old, new = ("192.0.2.1/24", "192.0.2.9/24") if outer == 4 else ("2001:db8::1/64", "2001:db8::9/64 nodad")

        def half() -> None:
            mover.host.ip(f"address add {new} dev wire", f"address delete {old} dev wire")
            transfer.ping(mover.host, other.address4)

        transfer.ping(mover.host, other.address4)
        transfer.tcp(mover.host, other.host, other.address4, 32 << 20, half=half)
        assert isinstance(other, ProgramEndpoint)
        endpoint = next(iter(other.peers().values()))[1]
        assert new.split("/")[0] in endpoint


@each_impl
def test_own_address_goes(impl: Implementation) -> None:
    """The host of the implementation under test loses the address that it answered from; it must take another."""
    partner = IMPLEMENTATIONS["wireguard-go"]
    need(impl, partner)
    with tunnel(partner, impl) as made:
        other, mover = made.left, made.right
        transfer.ping(other.host, mover.address4)

        def half() -> None:
            mover.host.ip("address add 192.0.2.9/24 dev wire", "address delete 192.0.2.2/24 dev wire")

        transfer.tcp(mover.host, other.host, other.address4, 32 << 20, half=half)


@each_impl
@pytest.mark.parametrize("outer", [4, 6], ids=["in4", "in6"])
def test_answers_leave_from_the_addressed_address(impl: Implementation, outer: int) -> None:
    """A host with several addresses: handshake and data come back from the one that was spoken to last."""
    need(impl)
    can(impl, "answers from the addressed address at once")
    with oracle(impl, outer=outer, theirs_knows=False) as o:
        extra = ["192.0.2.3", "192.0.2.4"] if outer == 4 else ["2001:db8::3", "2001:db8::4"]
        length = 24 if outer == 4 else 64
        o.end.host.ip(*(f"address add {a}/{length} dev wire{' nodad' if outer == 6 else ''}" for a in extra))
        first = o.target[0]
        for address in (extra[0], first, extra[1], extra[0]):
            o.target = (address, PORT)
            o.shell.clear()
            assert o.echo()
            assert {source[0] for _, source in o.shell.received} == {address}
        for address in (extra[1], first):
            time.sleep(0.03)
            o.target = o.peer.endpoint = (address, PORT)
            o.shell.clear()
            o.connect()
            assert o.echo()
            assert {source[0] for _, source in o.shell.received} == {address}


@each_impl
def test_link_local_and_scope(impl: Implementation) -> None:
    """An endpoint learnt from a link-local address can be answered only with its interface."""
    partner = IMPLEMENTATIONS["wireguard-go"]
    need(impl, partner)
    can(impl, "answers to link-local addresses")
    with tunnel(partner, impl, left_knows=False, right_knows=False) as made:
        local, other = made.left, made.right
        text = other.host.run("ip", "-6", "-o", "address", "show", "dev", "wire", "scope", "link").stdout
        address = text.split()[3].split("/")[0]
        assert isinstance(local, ProgramEndpoint)
        assert isinstance(other, ProgramEndpoint)
        key = next(line for line in other.wg("show", other.name, "public-key").stdout.split())
        wait_for("no tentative address", lambda: "tentative" not in local.host.run("ip", "-6", "address").stdout)
        local.wg("set", local.name, "peer", key, "endpoint", f"[{address}%wire]:{PORT}")
        transfer.ping(local.host, other.address4)
        transfer.ping(other.host, local.address6)


@each_impl
def test_dual_stack_listener_shows_ipv4_as_ipv4(impl: Implementation) -> None:
    need(impl)
    with oracle(impl, theirs_knows=False) as o:
        endpoint = o.end.peers()[o.identity.public][1]
        assert endpoint == f"{o.host.address4}:5001"


@each_impl
def test_persistent_keepalive(impl: Implementation) -> None:
    """Every second of silence, and at once when it is switched on."""
    need(impl)
    with oracle(impl, keepalive=1) as o:
        o.shell.clear()
        begun = time.monotonic()
        assert o.shell.pump(4, lambda: o.shell.kinds().count(noise.DATA) >= 3), "no keepalives"
        assert 2.5 <= time.monotonic() - begun <= 3.9
        assert all(len(message) == 32 for message, _ in o.shell.received)
        key = base64(o.identity.public)
        o.end.wg("set", o.end.name, "peer", key, "persistent-keepalive", "0")
        o.shell.pump(0.1)
        o.shell.clear()
        assert not o.shell.pump(1.5, lambda: bool(o.shell.received)), "keepalives go on after they were switched off"
        o.end.wg("set", o.end.name, "peer", key, "persistent-keepalive", "25")
        assert o.shell.pump(0.7, lambda: bool(o.shell.received)), "none at once"


def received_with_tos(sock: socket.socket) -> tuple[bytes, int]:
    data, control, _, _ = sock.recvmsg(2048, 256)
    tos = next(value[0] for level, kind, value in control if level == socket.IPPROTO_IP and kind == socket.IP_TOS)
    return data, tos


@each_impl
def test_dscp_and_ecn(impl: Implementation) -> None:
    """Handshake messages go out as AF41 (0x88); data shows the inner ECN, not its DSCP, and takes the outer one."""
    need(impl)
    can(impl, "DSCP and ECN")
    with oracle(impl, connect=False) as o:
        sock = o.shell.socket
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        sock.settimeout(3)
        message, state = noise.initiation(o.identity, o.theirs, stamp=o.device.next_stamp(o.peer), index=5, psk=o.psk)
        sock.sendto(message, o.target)
        answer, tos = received_with_tos(sock)
        assert tos == 0x88
        keys = noise.consume_response(o.identity, state, answer)

        def exchange(counter: int, outer: int, inner: int) -> tuple[int, int]:
            """The TOS outside and inside of the echo reply; the kernel answers with the request's TOS."""
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, outer)
            packet = echo_request(b"ecn", counter, tos=inner)
            sock.sendto(noise.data(keys.send, keys.remote_index, counter, packet), o.target)
            reply, tos = received_with_tos(sock)
            fields = noise.fields_of(reply)
            return tos, open_(keys.receive, noise.from_u32(fields["counter"]), fields["sealed"])[1]

        assert exchange(0, 0, 0xB8) == (0, 0xB8), "DSCP must not show outside"
        assert exchange(1, 0, 0x02) == (2, 2)
        assert exchange(2, 0, 0x01) == (1, 1)
        assert exchange(3, 3, 0x02) == (2, 3), "outer CE marks an ECN-capable inner packet; CE goes out as ECT(0)"
        assert exchange(4, 1, 0x02) == (1, 1), "outer ECT(1) over inner ECT(0)"
        assert exchange(5, 3, 0x00) == (0, 0), "outer CE over not-ECT changes nothing"


@each_impl
def test_padding(impl: Implementation) -> None:
    """What comes out is padded to 16 bytes but never beyond the MTU."""
    need(impl)
    can(impl, "padding")
    with oracle(impl) as o:
        for size in (0, 1, 20, 40, 68 - 28, 1376, 1380, 1381, 1391, 1392):
            o.shell.clear()
            assert o.echo(size=size)
            sizes = {len(message) - 32 for message, _ in o.shell.received if message[0] == noise.DATA}
            assert sizes == {noise.padded_size(size + 28, 1420)}, f"{size + 28} bytes"
