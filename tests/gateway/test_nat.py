"""A client in the LAN and a server behind the exit: what goes through the gateway's source translation and comes back.

Every answer has been translated twice: the server's side has no route to the LAN.
"""

import contextlib
import itertools
import select
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.gateway.network import (
    CLIENT4,
    CLIENT6,
    GATE4,
    GATE6,
    SERVER4,
    SERVER6,
    Capture,
    Lan,
    fragments,
    ip,
    lan,
    packed,
    protocol_of,
    running,
    send_raw,
    source_of,
    target_of,
    total,
    udp,
)
from tests.interop import transfer
from tests.interop.netns import Host, wait_for

pytestmark = pytest.mark.needs("root", "netns", "tun", "ethtool")

SIDES = {4: (CLIENT4, GATE4, SERVER4), 6: (CLIENT6, GATE6, SERVER6)}


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def net(request: pytest.FixtureRequest) -> Iterator[Lan]:
    with running(engine=f"workers = {request.param}") as made:
        yield made


both = pytest.mark.parametrize("version", [4, 6])


def family(version: int) -> socket.AddressFamily:
    return socket.AF_INET if version == 4 else socket.AF_INET6


@contextlib.contextmanager
def sockets(net: Lan, version: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A UDP socket of the client's and one of the server's."""
    client, _, server = SIDES[version]
    with net.client.udp(client) as inside, net.server.udp(server) as outside:
        inside.settimeout(3)
        outside.settimeout(3)
        yield inside, outside


@both
@pytest.mark.parametrize("offloads", [True, False], ids=["TSO and GRO", "single packets"])
class TestTransfers:
    """Contents compared by hash, both directions, with the offloads of the LAN's interface on and off."""

    @pytest.fixture(autouse=True)
    def lan_offloads(self, net: Lan, offloads: bool) -> Iterator[None]:
        net.offloads(offloads)
        yield
        net.offloads(True)

    def test_tcp(self, net: Lan, version: int) -> None:
        with Capture(net.server, "end") as seen:
            transfer.tcp(net.client, net.server, SIDES[version][2], 4_000_000)
            sources = {source_of(packet) for packet in seen.packets() if protocol_of(packet)[0] == 6}
        assert sources == {SIDES[version][1], SIDES[version][2]}

    def test_tcp_to_the_client(self, net: Lan, version: int) -> None:
        """The server sends: a connection made by the client, drained by it."""
        _, _, server = SIDES[version]
        sent = transfer.content(4_000_000)
        listener = net.server.open_socket(family(version), socket.SOCK_STREAM)
        inside = net.client.open_socket(family(version), socket.SOCK_STREAM)
        with listener, inside:
            listener.bind((server, 0))
            listener.listen(1)
            inside.settimeout(10)
            inside.connect(listener.getsockname()[:2])
            outside, peer = listener.accept()
            assert peer[0] == SIDES[version][1]
            with outside:
                outside.settimeout(10)

                def send() -> None:
                    outside.sendall(sent)
                    outside.shutdown(socket.SHUT_WR)

                thread = threading.Thread(target=send)
                thread.start()
                got = bytearray()
                while chunk := inside.recv(1 << 18):
                    got += chunk
                thread.join()
        assert bytes(got) == sent

    @pytest.mark.parametrize("segments", [1, 16])
    def test_udp(self, net: Lan, version: int, segments: int) -> None:
        transfer.udp(net.client, net.server, SIDES[version][2], 200_000, segments=segments)

    def test_icmp_echo(self, net: Lan, version: int) -> None:
        with Capture(net.server, "end") as seen:
            transfer.ping(net.client, SIDES[version][2], 1000, count=5)
            assert SIDES[version][0] not in {source_of(packet) for packet in seen.packets()}


def mss_of(packet: bytes) -> int:
    """Of a SYN or SYN-ACK; 0 for any other packet."""
    protocol, tcp = protocol_of(packet)
    if protocol != 6 or not tcp[13] & 2:
        return 0
    options = tcp[20 : (tcp[12] >> 4) * 4]
    while options:
        if options[0] == 2:
            return int.from_bytes(options[2:4], "big")
        options = options[1:] if options[0] == 1 else options[options[1] :]
    return 0


def checksum_holds(packet: bytes) -> bool:
    protocol, body = protocol_of(packet)
    size = 4 if packet[0] >> 4 == 4 else 16
    start = 12 if size == 4 else 8
    addresses = packet[start : start + 2 * size]
    return total(addresses + struct.pack(">II", len(body), protocol) + body) == 0xFFFF


@both
def test_mss_is_clamped_both_ways(net: Lan, version: int) -> None:
    """The client's SYN where the server sees it, and the server's SYN-ACK where the client sees it."""
    wanted = 1420 - (40 if version == 4 else 60)
    with Capture(net.server, "end") as far, Capture(net.client, "lan") as near:
        transfer.tcp(net.client, net.server, SIDES[version][2], 1000)
        syn = [packet for packet in far.packets() if mss_of(packet) and target_of(packet) == SIDES[version][2]]
        syn_ack = [packet for packet in near.packets() if mss_of(packet) and source_of(packet) == SIDES[version][2]]
    assert [mss_of(packet) for packet in syn] == [wanted]
    assert [mss_of(packet) for packet in syn_ack] == [wanted]
    assert checksum_holds(syn[0])


def test_udp_checksum_0_stays_0(net: Lan) -> None:
    """RFC 768: none was made, and a translator has nothing to correct."""
    with net.server.udp(SERVER4) as outside, Capture(net.server, "end") as seen:
        outside.settimeout(3)
        port = outside.getsockname()[1]
        body = udp(CLIENT4, SERVER4, 4000, port, b"without a sum", no_sum=True)
        send_raw(net.client, [ip(CLIENT4, SERVER4, 17, body)])
        data, peer = outside.recvfrom(100)
        assert data == b"without a sum"
        assert peer[0] == GATE4
        arrived = [packet for packet in seen.packets() if data in packet]
        assert protocol_of(arrived[0])[1][6:8] == b"\0\0"


@both
def test_wrong_checksum_stays_wrong(net: Lan, version: int) -> None:
    """A translator that made sums anew would hide what a broken LAN has done to the data."""
    client, _, server = SIDES[version]
    with net.server.udp(server) as outside:
        outside.settimeout(0.5)
        port = outside.getsockname()[1]
        good = udp(client, server, 4001, port, b"right as it is")
        bad = good[:-1] + b"X"
        send_raw(net.client, [ip(client, server, 17, bad)])
        with pytest.raises(TimeoutError):
            outside.recvfrom(100)
        send_raw(net.client, [ip(client, server, 17, good)])
        assert outside.recvfrom(100)[0] == b"right as it is"


ORDERS = list(itertools.permutations(range(3)))
_ident = itertools.count(1000)


@both
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(map(str, order)))
def test_fragments_in_any_order(net: Lan, version: int, order: tuple[int, ...]) -> None:
    client, gate, server = SIDES[version]
    payload = transfer.content(1500)
    with sockets(net, version) as (inside, outside):
        here, there = inside.getsockname()[1], outside.getsockname()[1]
        parts = fragments(client, server, 17, udp(client, server, here, there, payload), 512, next(_ident))
        send_raw(net.client, [parts[i] for i in order])
        data, peer = outside.recvfrom(2000)
        assert data == payload
        assert peer[0] == gate
        back = transfer.content(1500)
        body = udp(server, gate, there, peer[1], back)
        parts = fragments(server, gate, 17, body, 512, next(_ident))
        send_raw(net.server, [parts[i] for i in order])
        assert inside.recv(2000) == back


@both
def test_fragments_of_two_datagrams_mixed(net: Lan, version: int) -> None:
    client, _, server = SIDES[version]
    with sockets(net, version) as (inside, outside):
        here, there = inside.getsockname()[1], outside.getsockname()[1]
        payloads = [transfer.content(1500) for _ in range(2)]
        one, two = (
            fragments(client, server, 17, udp(client, server, here, there, payload), 512, next(_ident))
            for payload in payloads
        )
        send_raw(net.client, [one[2], two[1], two[0], one[0], two[2], one[1]])
        assert {outside.recvfrom(2000)[0] for _ in range(2)} == set(payloads)


def error_queue(sock: socket.socket) -> tuple[int, int, str]:
    """Type, code and sender of the ICMP error that a socket with RECVERR was told of."""
    _, control, _, _ = sock.recvmsg(2000, 1000, socket.MSG_ERRQUEUE)
    data = control[0][2]
    _, _, kind, code = struct.unpack("=IBBB", data[:7])
    six = len(data) > 32
    sender = socket.inet_ntop(socket.AF_INET6, data[24:40]) if six else socket.inet_ntop(socket.AF_INET, data[20:24])
    return kind, code, sender


def ask_errors(sock: socket.socket, version: int) -> None:
    if version == 4:
        sock.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, 25, 1)  # IPV6_RECVERR


def wait_error(sock: socket.socket) -> tuple[int, int, str]:
    poll = select.poll()
    poll.register(sock, 0)  # POLLERR is always told
    assert poll.poll(3000), "no error came"
    return error_queue(sock)


@both
def test_port_unreachable_from_outside(net: Lan, version: int) -> None:
    """The error that the client's kernel gets names the client's own socket, so it is told to it."""
    client, _, server = SIDES[version]
    with net.client.udp(client) as inside, Capture(net.client, "lan") as seen:
        ask_errors(inside, version)
        inside.sendto(b"anybody there?", (server, 9))
        assert wait_error(inside) == ((3, 3, server) if version == 4 else (1, 4, server))
        error = [p for p in seen.packets() if protocol_of(p)[0] in (1, 58) and target_of(p) == client]
        inner = protocol_of(error[-1])[1][8:]
        assert source_of(inner) == client
        assert protocol_of(inner)[1][:2] == struct.pack(">H", inside.getsockname()[1])


@both
def test_traceroute(net: Lan, version: int) -> None:
    """Time exceeded from every hop beyond the tunnel, to the client, in order; then the server itself."""
    client, _, server = SIDES[version]
    hops = (
        ["192.168.88.1", "10.7.0.1", "203.0.113.2", server]
        if version == 4
        else ["fd88::1", "fd07::1", "fd03::2", server]
    )
    found = []
    with net.client.udp(client) as inside:
        ask_errors(inside, version)
        level, option = (socket.IPPROTO_IP, socket.IP_TTL) if version == 4 else (socket.IPPROTO_IPV6, 16)
        for hop in range(1, 5):
            inside.setsockopt(level, option, hop)
            inside.sendto(b"hop", (server, 33434 + hop))
            kind, _, sender = wait_error(inside)
            found.append(sender)
            last = kind in ((3,) if version == 4 else (1,))
            assert last == (hop == 4)
    assert found == hops


@both
def test_fragmentation_needed_from_behind_the_exit(net: Lan, version: int) -> None:
    """A link of 1300 beyond the exit: TCP finds out by the ICMP error that has to come through the translation."""
    client, _, server = SIDES[version]
    for host in (net.hop, net.server):
        host.ip("link set end mtu 1300")
    try:
        # As big as the tunnel takes: the hop answers, and the client's kernel notes the path's MTU.
        with net.client.udp(client) as inside, net.server.udp(server) as outside:
            outside.settimeout(3)
            ask_errors(inside, version)
            level, option = (socket.IPPROTO_IP, 10) if version == 4 else (socket.IPPROTO_IPV6, 23)
            inside.setsockopt(level, option, 2)  # IP_MTU_DISCOVER: do
            inside.sendto(bytes(1420 - (28 if version == 4 else 48)), outside.getsockname()[:2])
            hop = "203.0.113.2" if version == 4 else "fd03::2"
            assert wait_error(inside) == ((3, 4, hop) if version == 4 else (2, 0, hop))
            with pytest.raises(OSError, match="too long"):
                inside.sendto(bytes(1420 - (28 if version == 4 else 48)), outside.getsockname()[:2])
        transfer.tcp(net.client, net.server, server, 1_000_000)
    finally:
        for host in (net.hop, net.server):
            host.ip("link set end mtu 1500")
        net.client.ip("route flush cache")
        net.client.run("ip", "-6", "route", "flush", "cache")


@both
def test_too_big_for_the_tunnel(net: Lan, version: int) -> None:
    """1,500 bytes that must not be fragmented: the gateway says what fits, with the address it has in the LAN."""
    client, _, server = SIDES[version]
    with net.client.udp(client) as inside, Capture(net.client, "lan") as seen:
        ask_errors(inside, version)
        level, option = (socket.IPPROTO_IP, 10) if version == 4 else (socket.IPPROTO_IPV6, 23)
        inside.setsockopt(level, option, 3)  # probe: sent whatever the kernel knows
        inside.sendto(bytes(1500 - (28 if version == 4 else 48)), (server, 9))
        kind, code, sender = wait_error(inside)
        assert (kind, code) == ((3, 4) if version == 4 else (2, 0))
        assert sender == ("192.168.88.1" if version == 4 else "fd88::1")
        errors = [protocol_of(p)[1] for p in seen.packets() if protocol_of(p)[0] in (1, 58) and target_of(p) == client]
        said = struct.unpack(">H", errors[-1][6:8])[0] if version == 4 else struct.unpack(">I", errors[-1][4:8])[0]
        assert said == 1420
    net.client.run("ip", *(["-6"] if version == 6 else []), "route", "flush", "cache")


def listening(host: Host, address: str, port: int = 0) -> socket.socket:
    sock = host.udp(address, port)
    sock.settimeout(1)
    return sock


@both
def test_mapping_is_independent_of_the_endpoint(net: Lan, version: int) -> None:
    """RFC 4787 REQ-1: one outside port for one inside port, whoever is talked to."""
    client, gate, server = SIDES[version]
    hop = "203.0.113.2" if version == 4 else "fd03::2"
    with (
        listening(net.client, client) as inside,
        listening(net.server, server) as a,
        listening(net.server, server) as b,
        listening(net.hop, hop) as c,
    ):
        seen = set()
        for outside in (a, b, c):
            inside.sendto(b"who am I?", outside.getsockname()[:2])
            seen.add(outside.recvfrom(100)[1][:2])
    assert len(seen) == 1
    assert seen.pop()[0] == gate


@both
def test_filtering_depends_on_the_address(net: Lan, version: int) -> None:
    """RFC 4787 REQ-8: another port of a host that was talked to comes in, another host does not."""
    client, _, server = SIDES[version]
    hop = "203.0.113.2" if version == 4 else "fd03::2"
    gate = net.engines[1]
    with (
        listening(net.client, client) as inside,
        listening(net.server, server) as a,
        listening(net.server, server) as b,
        listening(net.hop, hop) as stranger,
    ):
        inside.sendto(b"hello", a.getsockname()[:2])
        outside = a.recvfrom(100)[1][:2]
        b.sendto(b"another port", outside)
        assert inside.recvfrom(100)[0] == b"another port"
        before = gate.drops().get("nat_filtered", 0)
        stranger.sendto(b"another host", outside)
        with pytest.raises(TimeoutError):
            inside.recvfrom(100)
        assert gate.drops().get("nat_filtered", 0) == before + 1


@both
def test_two_clients_with_one_port(net: Lan, version: int) -> None:
    """Both ask from the same port; each gets its own answers."""
    client, _, server = SIDES[version]
    second = "192.168.88.11" if version == 4 else "fd88::11"
    net.client.ip(f"address add {second}/{24 if version == 4 else 64} dev lan" + (" nodad" if version == 6 else ""))
    with listening(net.client, client, 5555) as one, listening(net.client, second, 5555) as two, \
            listening(net.server, server) as outside:  # fmt: skip
        for sock, word in ((one, b"one"), (two, b"two")):
            sock.sendto(word, outside.getsockname()[:2])
        peers = dict(outside.recvfrom(100) for _ in range(2))
        assert len({peer[:2] for peer in peers.values()}) == 2
        for word, peer in peers.items():
            outside.sendto(word, peer)
        assert one.recv(100) == b"one"
        assert two.recv(100) == b"two"
    net.client.ip(f"address del {second}/{24 if version == 4 else 64} dev lan")


def two_hosts_only(plan: str) -> str:
    """The gateway's routes send everything to the device, but its peer takes two hosts."""
    return plan.replace(
        "allowed_ip=0.0.0.0/0\nallowed_ip=::/0\n", "allowed_ip=198.51.100.99/32\nallowed_ip=fd99::99/128\n"
    )


@both
@pytest.mark.parametrize("workers", [1, 2])
def test_nobody_there_is_told_to_the_client(version: int, workers: int) -> None:
    """A destination that the tunnel's peer does not take: the engine itself answers, to the client and about the
    packet that the client sent, though the translation came before."""
    client, _, server = SIDES[version]
    with lan() as net, net.client.udp(client) as inside:
        net.start_gate(change=two_hosts_only, engine=f"workers = {workers}")
        ask_errors(inside, version)
        inside.sendto(b"hello", (server, 9))
        assert wait_error(inside) == ((3, 1, server) if version == 4 else (1, 3, server))


def test_table_is_bounded_and_gives_up_the_oldest() -> None:
    """64 entries, 300 flows: the newest work, the table stays within its bound, what went is counted."""
    with running(gateway="entries = 64") as net, listening(net.server, SERVER4) as outside:
        target = outside.getsockname()[:2]
        flows = [listening(net.client, CLIENT4) for _ in range(300)]
        try:
            peers = {}
            for number, flow in enumerate(flows):
                flow.sendto(str(number).encode(), target)
                data, peers[number] = outside.recvfrom(100)
                assert int(data) == number
            gate = net.engines[1]
            assert gate.number("nat.sessions") <= 64
            assert gate.number("nat.evicted") >= 200
            outside.sendto(b"newest", peers[299])
            assert flows[299].recv(100) == b"newest"
            outside.sendto(b"oldest", peers[0])
            with pytest.raises(TimeoutError):
                flows[0].recv(100)
        finally:
            for flow in flows:
                flow.close()


def test_gateway_s_own_packets_are_not_disturbed(net: Lan) -> None:
    """What the gateway itself sends into the tunnel, with the tunnel's address, beside the LAN's flows."""
    gate = net.gate
    gate.ip(f"route add {SERVER4}/32 dev {net.name('gw')} src {GATE4}")
    try:
        transfer.tcp(gate, net.server, SERVER4, 300_000)
        transfer.udp(gate, net.server, SERVER4, 50_000)
        transfer.ping(gate, SERVER4)
        transfer.tcp(net.client, net.server, SERVER4, 300_000)
    finally:
        gate.ip(f"route del {SERVER4}/32 dev {net.name('gw')}")


def test_hop_by_hop_ttl(net: Lan) -> None:
    """One hop for the gateway and one for the exit: the engine itself does not count as one."""
    with Capture(net.server, "end") as seen, net.client.udp(CLIENT4) as inside, net.server.udp(SERVER4) as outside:
        inside.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 50)
        inside.sendto(b"how far?", outside.getsockname()[:2])
        arrived = wait_for("the packet", lambda: [p for p in seen.packets() if b"how far?" in p])
        assert arrived[0][8] == 50 - 3


def test_addresses_by_hand_are_what_the_kernel_says() -> None:
    """The helpers' own proof: sums that a checker accepts, and refuses when a byte differs."""
    packet = ip(CLIENT4, SERVER4, 17, udp(CLIENT4, SERVER4, 1, 2, b"abc"))
    assert checksum_holds(packet)
    assert not checksum_holds(packet[:-1] + b"d")
    assert packed(CLIENT4) in packet
