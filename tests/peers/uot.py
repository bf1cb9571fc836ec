"""UDP over TCP, versions 1 and 2: the framing of datagrams in one proxied stream, for the reference peers, sans-IO.

The carrier's request names MAGIC instead of a target. The request of version 2 has the address in the form of SOCKS5;
packets have one of their own: types 0, 1, 2 for IPv4, IPv6 and names.
"""

import ipaddress
import struct
from collections.abc import Generator

from .proxy import BadInputError, Core, Script, Target, address_block, host_of_name, literal, name_bytes, take_address

MAGIC = {1: "sp.udp-over-tcp.arpa", 2: "sp.v2.udp-over-tcp.arpa"}
IPV4, IPV6, NAME = 0, 1, 2


def request(target: Target, *, connected: bool) -> bytes:
    return bytes([connected]) + address_block(target)


def packet(target: Target | None, payload: bytes) -> bytes:
    """`target` is the source on the way back, None in connected mode."""
    head = b""
    if target is not None:
        ip = literal(target.host)
        if ip is None:
            name = name_bytes(target.host)
            head = bytes([NAME, len(name)]) + name
        else:
            head = bytes([IPV4 if ip.version == 4 else IPV6]) + ip.packed
        head += struct.pack(">H", target.port)
    return head + struct.pack(">H", len(payload)) + payload


class Reader(Core):
    """Packets out of a stream; a server of version 2 reads the request first. What is found is in `packets`."""

    def __init__(self, *, connected: bool = False, reads_request: bool = False):
        self.connected = connected
        self.reads_request = reads_request
        self.destination: Target | None = None
        self.packets: list[tuple[Target | None, bytes]] = []
        super().__init__()

    def script(self) -> Script:
        if self.reads_request:
            (flag,) = yield from self.take(1)
            self.connected = flag != 0
            while (found := take_address(self.wire, port_zero=True)) is None:
                if self.wire_ended:
                    raise BadInputError("the stream ended inside the request")
                yield
            self.destination = found[0]
            del self.wire[: found[1]]
        while True:
            while not self.wire:
                if self.wire_ended:
                    self.close("the association ended")
                    return
                yield
            target = None if self.connected else (yield from self._address())
            (size,) = struct.unpack(">H", (yield from self.take(2)))
            self.packets.append((target, (yield from self.take(size))))

    def _address(self) -> Generator[None, None, Target]:
        (kind,) = yield from self.take(1)
        if kind == NAME:
            (size,) = yield from self.take(1)
            host = host_of_name((yield from self.take(size))) if size else ""
            if not host:
                raise BadInputError("a name of length 0")
        elif kind in (IPV4, IPV6):
            host = str(ipaddress.ip_address((yield from self.take(4 if kind == IPV4 else 16))))
        else:
            raise BadInputError(f"address type {kind}")
        (port,) = struct.unpack(">H", (yield from self.take(2)))
        return Target(host, port)
