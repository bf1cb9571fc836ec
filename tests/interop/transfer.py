"""Transfers between two hosts whose content is compared by SHA-256. Only the last deadline depends on timing.

Both ends run in the test process: a socket stays on the host where it was opened.
"""

import hashlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

from tests.interop.netns import Host

SOL_UDP, UDP_SEGMENT = 17, 103
ICMP_ECHO, ICMP6_ECHO = 8, 128


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def content(size: int) -> bytes:
    """Random, so that a packet in a wrong place never looks right."""
    return os.urandom(size)


def tcp(
    source: Host, target: Host, address: str, size: int, *, seconds: float = 15, half: Callable[[], None] | None = None
) -> None:
    """Sends `size` bytes from source to target, and their hash back. half() is called in mid-transfer."""
    server = target.open_socket(_family(address), socket.SOCK_STREAM)
    client = source.open_socket(_family(address), socket.SOCK_STREAM)
    sent = content(size)
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(seconds)
                digest = hashlib.sha256()
                while chunk := connection.recv(1 << 18):
                    digest.update(chunk)
                connection.sendall(digest.digest())
        except OSError as error:
            failures.append(error)

    with server, client:
        server.settimeout(seconds)
        client.settimeout(seconds)
        server.bind((address, 0))
        server.listen(1)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        got = b""
        try:
            client.connect(server.getsockname()[:2])
            middle = size // 2 if half else 0
            client.sendall(sent[:middle])
            if half:
                half()
            client.sendall(sent[middle:])
            client.shutdown(socket.SHUT_WR)
            while chunk := client.recv(64):
                got += chunk
        except OSError as error:
            failures.append(error)
        thread.join(seconds)
    assert not failures, f"TCP {size} bytes to {address}: {failures!r}"
    assert got == hashlib.sha256(sent).digest(), f"TCP {size} bytes to {address}: content differs"


def udp(
    source: Host,
    target: Host,
    address: str,
    size: int,
    *,
    datagram: int = 1200,
    segments: int = 1,
    seconds: float = 15,
    half: Callable[[], None] | None = None,
) -> None:
    """Sends `size` bytes in numbered datagrams, resends what is not acknowledged, and compares hashes.

    segments > 1: one send call carries that many datagrams (UDP_SEGMENT), as QUIC stacks do; a TUN with USO gets them
    as one packet.
    """
    assert datagram > 4
    body = datagram - 4
    sent = content(size)
    parts = [struct.pack(">I", i) + sent[i * body : (i + 1) * body] for i in range((size + body - 1) // body)]
    receiver = target.open_socket(_family(address), socket.SOCK_DGRAM)
    sender = source.open_socket(_family(address), socket.SOCK_DGRAM)
    got: dict[int, bytes] = {}
    done = threading.Event()

    def receive() -> None:
        while not done.is_set():
            try:
                data, peer = receiver.recvfrom(65535)
                receiver.sendto(data[:4], peer)
            except TimeoutError:
                continue
            except OSError:
                return
            got[struct.unpack(">I", data[:4])[0]] = data[4:]

    with receiver, sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        receiver.settimeout(0.1)
        receiver.bind((address, 0))
        sender.connect(receiver.getsockname()[:2])
        sender.setblocking(False)
        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        missing = set(range(len(parts)))
        end = time.monotonic() + seconds
        window = 64
        called = half is None
        while missing and time.monotonic() < end:
            if half and not called and len(missing) <= len(parts) // 2:
                called = True
                half()
            batch = sorted(missing)[:window]
            for group in [batch[i : i + segments] for i in range(0, len(batch), segments)]:
                message = b"".join(parts[i] for i in group)
                control = [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", datagram))] if len(group) > 1 else []
                try:
                    sender.sendmsg([message], control)
                except (BlockingIOError, ConnectionRefusedError, PermissionError):
                    break
            quiet = time.monotonic() + 0.2
            outstanding = set(batch)
            while outstanding and select.select([sender], [], [], max(0.0, quiet - time.monotonic()))[0]:
                try:
                    number = struct.unpack(">I", sender.recv(4))[0]
                except ConnectionRefusedError:
                    continue
                outstanding.discard(number)
                missing.discard(number)
        done.set()
        thread.join(2)
    assert not missing, f"UDP to {address}: {len(missing)} of {len(parts)} datagrams never acknowledged"
    whole = b"".join(got[i] for i in range(len(parts)))
    assert hashlib.sha256(whole).digest() == hashlib.sha256(sent).digest(), f"UDP to {address}: content differs"


def checksum(data: bytes) -> int:
    """RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ping(source: Host, address: str, size: int = 56, *, count: int = 1, seconds: float = 5, every: float = 1.0) -> None:
    """`count` echo requests answered with the same content; the kernel fragments what does not fit."""
    six = ":" in address
    sock = source.open_socket(_family(address), socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP)
    identifier = int.from_bytes(os.urandom(2), "big")
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        for sequence in range(count):
            payload = content(size)
            head = struct.pack(">BBHHH", ICMP6_ECHO if six else ICMP_ECHO, 0, 0, identifier, sequence)
            if not six:  # the kernel computes ICMPv6's checksum, which has a pseudo-header
                head = head[:2] + struct.pack(">H", checksum(head + payload)) + head[4:]
            end = time.monotonic() + seconds
            again = 0.0
            while True:
                now = time.monotonic()
                assert now < end, f"ping {address} with {size} bytes: no answer within {seconds:g} s"
                if now >= again:
                    again = now + every
                    sock.sendto(head + payload, (address, 0))
                if not select.select([sock], [], [], min(again, end) - now if min(again, end) > now else 0)[0]:
                    continue
                packet = sock.recv(65535)
                answer = packet if six else packet[(packet[0] & 15) * 4 :]
                if answer[:1] != bytes([129 if six else 0]) or answer[4:8] != head[4:8]:
                    continue
                assert answer[8:] == payload, f"ping {address}: content differs"
                break
