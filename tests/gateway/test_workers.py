"""Two workers on one device: the order within a flow is kept, whichever worker had which packet."""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.gateway.network import CLIENT4, CLIENT6, SERVER4, SERVER6, Capture, Lan, running
from tests.interop import transfer
from tests.interop.netns import wait_for

pytestmark = pytest.mark.needs("root", "netns", "tun")

FLOWS, DATAGRAMS = 6, 1500
SO_RCVBUFFORCE = 33  # beyond rmem_max: a slow test must not lose what the engine has delivered


@pytest.fixture(scope="module")
def net() -> Iterator[Lan]:
    with running(engine="workers = 2") as made:
        yield made


def ordered(net: Lan, version: int, way: str, size: int) -> None:
    """Several flows at a time with numbered datagrams; what is lost is lost, what arrives is in order, once."""
    client, server = (CLIENT4, SERVER4) if version == 4 else (CLIENT6, SERVER6)
    insides = [net.client.udp(client) for _ in range(FLOWS)]
    outsides = [net.server.udp(server) for _ in range(FLOWS)]
    got: list[list[int]] = [[] for _ in range(FLOWS)]
    done = threading.Event()

    def receive(flow: int, sock: socket.socket) -> None:
        sock.settimeout(0.2)
        while not done.is_set():
            try:
                got[flow].append(struct.unpack(">I", sock.recv(2000)[:4])[0])
            except TimeoutError:
                continue

    peers = []
    for inside, outside in zip(insides, outsides, strict=True):
        inside.sendto(b"open", outside.getsockname()[:2])
        outside.settimeout(3)
        peers.append(outside.recvfrom(100)[1])
        for sock in (inside, outside):
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 22)
    out = way == "out"
    targets = [sock.getsockname()[:2] for sock in outsides] if out else peers
    senders, receivers = (insides, outsides) if out else (outsides, insides)
    threads = [threading.Thread(target=receive, args=pair) for pair in enumerate(receivers)]
    for thread in threads:
        thread.start()
    try:
        padding = bytes(size - 4)
        for number in range(DATAGRAMS):
            for sock, target in zip(senders, targets, strict=True):
                sock.sendto(struct.pack(">I", number) + padding, target)
            if number % 16 == 0:
                time.sleep(0.002)
        wait_for("most of it", lambda: all(len(flow) >= DATAGRAMS // 2 for flow in got), 10)
        time.sleep(0.3)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        for sock in (*insides, *outsides):
            sock.close()
    for flow in got:
        assert flow == sorted(set(flow)), "datagrams of one flow came out of order, or twice"


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("way", ["out", "in"])
@pytest.mark.parametrize("size", [60, 1200])
def test_order_within_a_flow(net: Lan, version: int, way: str, size: int) -> None:
    ordered(net, version, way, size)


def test_order_without_offloads(net: Lan) -> None:
    net.offloads(False)
    try:
        ordered(net, 4, "out", 1000)
        ordered(net, 4, "in", 1000)
    finally:
        net.offloads(True)


@pytest.mark.parametrize("way", ["out", "in"])
def test_tcp_is_not_reordered(net: Lan, way: str) -> None:
    """Segments of one connection in the order sent, seen where they leave the tunnel. A retransmission goes back, so
    only steps back over bytes that were never resent count."""
    source, target = (net.client, net.server) if way == "out" else (net.server, net.client)
    where, device = (net.server, "end") if way == "out" else (net.client, "lan")
    with Capture(where, device) as seen:
        if way == "out":
            transfer.tcp(source, target, SERVER4, 3_000_000)
        else:
            listener = net.server.open_socket(socket.AF_INET, socket.SOCK_STREAM)
            with listener:
                listener.bind((SERVER4, 0))
                listener.listen(1)
                inside = net.client.open_socket(socket.AF_INET, socket.SOCK_STREAM)
                with inside:
                    inside.settimeout(10)
                    inside.connect(listener.getsockname())
                    outside, _ = listener.accept()
                    thread = threading.Thread(target=lambda: outside.sendall(os.urandom(3_000_000)))
                    thread.start()
                    left = 3_000_000
                    while left:
                        left -= len(inside.recv(1 << 18))
                    thread.join()
                    outside.close()
        highest, steps_back, segments = 0, 0, 0
        for packet in seen.packets():
            if packet[0] >> 4 != 4 or packet[9] != 6 or len(packet) < 1000:
                continue
            sequence = struct.unpack(">I", packet[24:28])[0]
            if not highest:
                highest = sequence
            segments += 1
            distance = (sequence - highest) & 0xFFFFFFFF
            if distance >= 1 << 31:
                steps_back += 1
            else:
                highest = sequence
    assert segments > 40
    assert steps_back <= segments // 20
