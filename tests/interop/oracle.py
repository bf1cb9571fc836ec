"""The reference peer as a test oracle: message by message against one implementation under test.

    left host                                 right host
    +------------------------+                +---------------------------+
    | reference (UDP shell)  |                | TUN 10.7.0.2, fd07::2     |
    |   192.0.2.1:5001       |                |   |                       |
    | attacker 192.0.2.1:5002|----- wire -----| implementation 192.0.2.2  |
    +------------------------+                +---------------------------+

The kernel of the right host answers echo requests that come out of its TUN; that is how a test sees that data passed.
"""

import contextlib
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.interop.implementations import PORT, Implementation, PeerConfig, ProgramEndpoint, start
from tests.interop.netns import Host, wait_for, wire
from tests.interop.transfer import checksum
from tests.peers import wg_noise as noise
from tests.peers.wg_noise import Identity
from tests.peers.wg_shell import UdpShell
from tests.peers.wireguard import Address, Datagram, Device, Keypair, Peer

INNER4, INNER6 = "10.7.0.1", "fd07::1"
TARGET4, TARGET6 = "10.7.0.2", "fd07::2"


def need(*impls: Implementation) -> None:
    for impl in impls:
        if not impl.present():
            pytest.skip(f"needs {impl.program}")
        can(impl, "strictness")


def can(impl: Implementation, *features: str) -> None:
    """Skips what an implementation is known not to do (implementations.py)."""
    for feature in features:
        if feature in impl.lacks:
            pytest.skip(f"{impl.name} lacks {feature}")


def echo_request(payload: bytes, sequence: int, *, source: str = INNER4, target: str = TARGET4, tos: int = 0) -> bytes:
    """An ICMP or ICMPv6 echo request as an IP packet."""
    six = ":" in source
    src, dst = ipaddress.ip_address(source).packed, ipaddress.ip_address(target).packed
    body = struct.pack(">BBHHH", 128 if six else 8, 0, 0, 0x6676, sequence & 0xFFFF) + payload
    pseudo = src + dst + struct.pack(">II", len(body), 58) if six else b""
    body = body[:2] + struct.pack(">H", checksum(pseudo + body)) + body[4:]
    if six:
        return struct.pack(">IHBB", 6 << 28 | tos << 20, len(body), 58, 64) + src + dst + body
    head = struct.pack(">BBHHHBBH", 0x45, tos, 20 + len(body), 0, 0, 64, 1, 0) + src + dst
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + body


def echo_reply_payload(packet: bytes, sequence: int) -> bytes | None:
    """The payload when the packet answers that echo request."""
    at = 40 if packet[0] >> 4 == 6 else 20
    kind, _, _, identifier, number = struct.unpack_from(">BBHHH", packet, at)
    wanted = 129 if at == 40 else 0
    return packet[at + 8 :] if (kind, identifier, number) == (wanted, 0x6676, sequence & 0xFFFF) else None


@dataclass(repr=False)  # it holds keys, and pytest prints what it compares
class Oracle:
    """`shell` and `peer` are the reference side; `end` is the implementation under test."""

    end: ProgramEndpoint
    host: Host
    identity: Identity
    device: Device
    peer: Peer
    shell: UdpShell
    attacker: socket.socket
    psk: bytes
    target: Address
    theirs: bytes
    sequence: int = 0
    initiation: bytes = b""
    stamp: bytes = b""  # of the last initiation that was taken
    past: list[Keypair] = field(default_factory=list)

    # Handshakes

    def connect(self) -> None:
        """A handshake with us as initiator, confirmed by an echo."""
        now = time.monotonic()
        if self.peer.current:
            self.past.append(self.peer.current)
        actions = self.device.initiate(self.peer, now, force=True)
        self.initiation = next(action.data for action in actions if isinstance(action, Datagram))
        self.stamp = self.peer.last_stamp_sent
        before = self.peer.handshakes_completed
        self.shell.perform(actions)
        assert self.shell.pump(5, lambda: self.peer.handshakes_completed > before), "no response to our initiation"

    def ask_for_handshake(self) -> None:
        """Has the other host send into its tunnel; without a keypair its end must start a handshake."""
        with self.end.host.open_socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"anything", (INNER4, 9))

    def expect_initiation(self, seconds: float = 3) -> bytes:
        """Waits for their initiation without answering it."""
        self.device.answers = False
        end = time.monotonic() + seconds
        try:
            while True:
                left = end - time.monotonic()
                assert left > 0, f"no initiation within {seconds:g} s"
                self.shell.socket.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    message = self.shell.socket.recv(65535)
                    if message[0] == noise.INITIATION:
                        assert noise.mac1_is_right(message, self.identity.public)
                        return message
        finally:
            self.device.answers = True
            self.shell.socket.settimeout(None)

    # Data

    @property
    def pair(self) -> Keypair:
        assert self.peer.current
        return self.peer.current

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def echo(
        self,
        *,
        size: int = 20,
        counter: int | None = None,
        pair: Keypair | None = None,
        six: bool = False,
        pad: bytes = b"",
        seconds: float = 3,
        tries: int = 1,
    ) -> bool:
        """Whether an echo request, sealed with this counter and keypair, is answered with its content."""
        sequence, payload = self.next_sequence(), os.urandom(size)
        source, target = (INNER6, TARGET6) if six else (INNER4, TARGET4)
        packet = echo_request(payload, sequence, source=source, target=target) + pad

        def answered() -> bool:
            return any(echo_reply_payload(inner, sequence) == payload for inner in self.shell.inner())

        for _ in range(tries):
            self.shell.raw((pair or self.pair).seal(packet, counter), self.target)
            if self.shell.pump(seconds, answered):
                return True
        return False

    # Observation

    def state(self) -> dict[str, object]:
        """All that their control socket tells, and how many packets came out of the TUN."""
        fields = [line.partition("=") for line in self.end.uapi("get=1\n\n").splitlines()]
        seen: dict[str, object] = {}
        peer = "device"
        for key, _, value in fields:
            if key == "public_key":
                peer = value[:8]
            if key not in ("private_key", "preshared_key", "errno", ""):
                seen[f"{peer} {key} {value if key == 'allowed_ip' else ''}"] = value
        seen["packets out of the TUN"] = self.packets_out()
        return seen

    def packets_out(self) -> int:
        with self.end.host.inside():
            text = Path("/proc/thread-self/net/dev").read_text()
        line = next(line for line in text.splitlines() if line.strip().startswith(self.end.name + ":"))
        return int(line.split(":")[1].split()[1])

    @contextlib.contextmanager
    def nothing_changes(self, quiet: float = 0.04) -> Iterator[None]:
        """What is sent inside draws no answer and changes nothing; the session works after it."""
        before = self.state()
        self.shell.clear()
        yield
        self.shell.pump(quiet, lambda: bool(self.shell.received))
        self.attacker.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            raise AssertionError(f"answered the attacker by a message of type {self.attacker.recv(2048)[0]}")
        assert not self.shell.received, f"answered by a message of type {self.shell.kinds()}"
        assert self.state() == before
        assert self.echo(), "the session is dead"


@contextlib.contextmanager
def oracle(
    impl: Implementation,
    *,
    outer: int = 4,
    psk: bool = True,
    theirs_knows: bool = True,
    keepalive: int = 0,
    connect: bool = True,
    environment: dict[str, str] | None = None,
) -> Iterator[Oracle]:
    with wire() as (left, right), contextlib.ExitStack() as stack:
        end = start(impl, right, 1420, 2, environment)
        assert isinstance(end, ProgramEndpoint)
        stack.callback(end.close)
        ours, theirs = Identity.fresh(), Identity.fresh()
        secret = os.urandom(32) if psk else bytes(32)
        address, target = (left.address4, right.address4) if outer == 4 else (left.address6, right.address6)
        sock, attacker = left.udp(address, 5001), left.udp(address, 5002)
        stack.callback(sock.close)
        stack.callback(attacker.close)
        end.configure(
            theirs,
            PORT,
            [
                PeerConfig(
                    ours.public,
                    [f"{INNER4}/32", f"{INNER6}/128"],
                    (address, 5001) if theirs_knows else None,
                    secret if psk else None,
                    keepalive,
                )
            ],
        )
        device = Device(ours.private)
        peer = device.add_peer(
            theirs.public, psk=secret, endpoint=(target, PORT), allowed=[f"{TARGET4}/32", f"{TARGET6}/128"]
        )
        made = Oracle(
            end, left, ours, device, peer, UdpShell(device, sock), attacker, secret, (target, PORT), theirs.public
        )
        try:
            if connect:
                made.connect()
                wait_for("an echo", lambda: made.echo(seconds=1), 5)
            yield made
        except AssertionError as error:
            raise AssertionError(f"{error}\n{end.report()}\nreference refused {dict(device.drops)}") from error
