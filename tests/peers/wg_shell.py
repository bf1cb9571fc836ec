"""The reference peer's thin edge: a UDP socket, and a TUN device where it stands in as a whole endpoint.

UdpShell is for tests that speak message by message: it pumps the device until a condition holds and keeps what came.
TunShell runs in a thread of its own and behaves as a WireGuard program would, slowly.
"""

import fcntl
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .wireguard import Action, Address, Datagram, Device, Inner

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000


def open_tun(name: str) -> int:
    """A TUN device without packet information and without virtio header, in the namespace of the calling thread."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError:
        os.close(tun)
        raise
    return tun


def address_of(sockaddr: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    return (sockaddr[0], sockaddr[1])


@dataclass
class UdpShell:
    """A device on a socket. `received` has every datagram with its source, `actions` what the device made of them."""

    device: Device
    socket: socket.socket
    received: list[tuple[bytes, Address]] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Datagram):
                self.socket.sendto(action.data, action.to)
        self.actions += actions

    def raw(self, message: bytes, to: Address) -> None:
        """Bytes that the device knows nothing of."""
        self.socket.sendto(message, to)

    def clear(self) -> None:
        self.received.clear()
        self.actions.clear()

    def pump(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Runs the device until the condition holds (True) or the time is over (False)."""
        end = time.monotonic() + seconds
        while not until():
            now = time.monotonic()
            if now >= end:
                return False
            self.perform(self.device.tick(now))
            wake = min(end, self.device.next_wake() or end)
            if select.select([self.socket], [], [], max(0.0, min(wake - now, 0.5)))[0]:
                message, source = self.socket.recvfrom(65535)
                self.received.append((message, address_of(source)))
                self.perform(self.device.receive(message, address_of(source), time.monotonic()))
        return True

    def inner(self) -> list[bytes]:
        return [action.packet for action in self.actions if isinstance(action, Inner)]

    def kinds(self) -> list[int]:
        """Types of the messages that came."""
        return [message[0] for message, _ in self.received]


class TunShell:
    """A device between a TUN and a socket, served by a thread until close(). Takes both descriptors over."""

    def __init__(self, device: Device, tun: int, sock: socket.socket):
        self.device = device
        self._tun = tun
        self._socket = sock
        self._lock = threading.Lock()
        self._stop = os.eventfd(0)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reference peer", daemon=True)
        sock.setblocking(False)
        self._thread.start()

    def close(self) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        os.close(self._tun)
        self._socket.close()

    def do(self, act: Callable[[Device, float], list[Action]]) -> None:
        """Has the device do something now, between two packets."""
        with self._lock:
            self._perform(act(self.device, time.monotonic()))
        os.eventfd_write(self._stop, 1 << 32)

    def move(self, sock: socket.socket) -> None:
        """Goes on from another address or port, as a roaming host does."""
        sock.setblocking(False)
        with self._lock:
            old, self._socket = self._socket, sock
            old.close()
        os.eventfd_write(self._stop, 1 << 32)

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            try:
                if isinstance(action, Datagram):
                    self._socket.sendto(action.data, action.to)
                elif isinstance(action, Inner):
                    os.write(self._tun, action.packet)
            except OSError:
                # A full queue, a route that is gone for a moment, a TUN that is down: the network loses packets.
                continue

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001 - kept for the test that owns this thread
            self.error = error

    def _turn(self) -> bool:
        with self._lock:
            sock = self._socket
            wake = self.device.next_wake()
        wait = 1.0 if wake is None else min(1.0, max(0.0, wake - time.monotonic()))
        try:
            ready = select.select([sock.fileno(), self._tun, self._stop], [], [], wait)[0]
        except (OSError, ValueError):
            return True  # the socket was moved under us
        if self._stop in ready and os.eventfd_read(self._stop) & 0xFFFFFFFF:
            return False
        with self._lock:
            now = time.monotonic()
            self._perform(self.device.tick(now))
            for _ in range(64):
                try:
                    message, source = self._socket.recvfrom(65535)
                except OSError:
                    break
                self._perform(self.device.receive(message, address_of(source), now))
            for _ in range(64):
                try:
                    packet = os.read(self._tun, 65535)
                except OSError:
                    break
                self._perform(self.device.send(packet, now))
        return True
