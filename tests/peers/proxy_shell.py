"""The reference proxies' thin edge: asyncio's TCP and UDP around the sans-IO cores, and what the command lines share.

    async with listening(server) as address     accepts and relays; `server` makes a core for each connection
    stream = await dial(core, address)           a stream through a proxy: write, read, finish
    udp = UdpStream.open(core, address)    the same for datagrams
    await probe(address, data, ...)              sends anything and tells how the far end took it

Wire says how bytes reach the wire: `segment` bytes a write, `delay` seconds before each.
"""

import asyncio
import contextlib
import errno
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .proxy import (
    Action,
    Address,
    Associate,
    BadInputError,
    Close,
    Core,
    Dial,
    Ended,
    Finish,
    HangUp,
    Opened,
    Payload,
    Send,
    Target,
    literal,
    unmapped,
)

CONNECT_TIMEOUT = 10.0
LINGER = 1.0  # after an orderly close: how long what still comes is read, so that no RST overtakes the answer
LINGER_BYTES = 65536
DRAIN_SECONDS = (30.0, 90.0)


class ClientCore(Protocol):
    error: BadInputError | None

    def start(self) -> list[Action]: ...
    def receive(self, data: bytes) -> list[Action]: ...
    def receive_eof(self) -> list[Action]: ...
    def send(self, data: bytes) -> list[Action]: ...
    def finish(self) -> list[Action]: ...


class UdpServerCore(Protocol):
    def receive(self, data: bytes, source: Address, now: float) -> tuple[bytes, Target, bytes] | None: ...
    def reply(self, session: bytes, source: Target, payload: bytes, now: float) -> tuple[bytes, Address] | None: ...


class UdpClientCore(Protocol):
    def send(self, target: Target, payload: bytes, now: float) -> bytes: ...
    def receive(self, data: bytes, now: float) -> tuple[Target, bytes] | None: ...


@dataclass(frozen=True)
class Wire:
    """How bytes are put on the wire; the first `whole` of them always in one write."""

    segment: int = 0
    delay: float = 0.0
    whole: int = 0

    async def write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        head, rest = data[: self.whole], data[self.whole :]
        size = self.segment or len(rest) or 1
        for piece in [head, *(rest[i : i + size] for i in range(0, len(rest), size))]:
            if piece:
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(piece)
                await writer.drain()


PLAIN = Wire()


def no_delay(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN: zero linger."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def name_of_error(error: BaseException) -> str:
    """What Core.dialled() calls it."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, socket.gaierror):
        return "host-unreachable"
    names = {
        errno.ECONNREFUSED: "refused",
        errno.ENETUNREACH: "net-unreachable",
        errno.EADDRNOTAVAIL: "net-unreachable",
        errno.EAFNOSUPPORT: "net-unreachable",
        errno.EHOSTUNREACH: "host-unreachable",
        errno.EPERM: "denied",
        errno.EACCES: "denied",
    }
    return names.get(getattr(error, "errno", None) or 0, "failed")


def address_of(sockaddr: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    return unmapped(sockaddr[0]), sockaddr[1]


# --- datagrams ------------------------------------------------------------------------------------------------------


class Datagrams:
    """A UDP socket: what comes is handed to `taken`. asyncio's own would not send an empty datagram (before 3.12).

    An error of one datagram never ends it.
    """

    def __init__(self, host: str, port: int, taken: Callable[[bytes, Address], None]):
        self.taken = taken
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        try:
            self.socket.bind((host, port))
        except OSError:
            self.socket.close()
            raise
        self.address = address_of(self.socket.getsockname())
        self.loop = asyncio.get_running_loop()
        self.loop.add_reader(self.socket, self._ready)

    def _ready(self) -> None:
        with contextlib.suppress(OSError):
            data, source = self.socket.recvfrom(65535)
            self.taken(data, address_of(source))

    def send(self, data: bytes, to: Address) -> None:
        """A full queue or no route: the network loses datagrams."""
        with contextlib.suppress(OSError):
            self.socket.sendto(data, to)

    def close(self) -> None:
        self.loop.remove_reader(self.socket)
        self.socket.close()


class Resolver:
    """Names to addresses: `hosts` first, then the operating system."""

    def __init__(self, hosts: Mapping[str, str] | None = None):
        self.hosts = dict(hosts or {})

    async def resolve(self, host: str) -> str:
        host = self.hosts.get(host, host)
        if literal(host) is not None:
            return host
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        return str(found[0][4][0])


class UdpRelay:
    """The server's side of datagrams: for each session one unconnected socket a family, so that anybody may answer."""

    def __init__(self, core: UdpServerCore, resolver: Resolver):
        self.core = core
        self.resolver = resolver
        self.front: Datagrams | None = None
        self.outgoing: dict[tuple[bytes, bool], Datagrams] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, host: str, port: int) -> Address:
        self.front = Datagrams(host, port, self._from_client)
        return self.front.address

    def _from_client(self, data: bytes, source: Address) -> None:
        taken = self.core.receive(data, source, time.time())
        if taken is not None:
            task = asyncio.ensure_future(self._forward(*taken))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _forward(self, session: bytes, target: Target, payload: bytes) -> None:
        try:
            host = await self.resolver.resolve(target.host)
            key = (session, ":" in host)
            if key not in self.outgoing:
                self.outgoing[key] = Datagrams(
                    "::" if key[1] else "0.0.0.0", 0, lambda data, source: self._from_target(session, data, source)
                )
        except OSError:
            return  # no such name, no such family
        self.outgoing[key].send(payload, (host, target.port))

    def _from_target(self, session: bytes, data: bytes, source: Address) -> None:
        answer = self.core.reply(session, Target(*source), data, time.time())
        if answer is not None and self.front is not None:
            self.front.send(*answer)

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for side in [self.front, *self.outgoing.values()]:
            if side is not None:
                side.close()


@dataclass
class UdpStream:
    """A client of a UDP relay."""

    core: UdpClientCore
    server: Address
    side: Datagrams
    received: "asyncio.Queue[tuple[Target, bytes]]"
    raw: list[bytes] = field(default_factory=list)  # what came, as it came

    @classmethod
    def open(cls, core: UdpClientCore, server: Address, host: str = "") -> "UdpStream":
        queue: asyncio.Queue[tuple[Target, bytes]] = asyncio.Queue()
        raw: list[bytes] = []

        def taken(data: bytes, source: Address) -> None:
            raw.append(data)
            opened = core.receive(data, time.time())
            if opened is not None:
                queue.put_nowait(opened)

        side = Datagrams(host or ("::" if ":" in server[0] else "0.0.0.0"), 0, taken)
        return cls(core, server, side, queue, raw)

    def send(self, target: Target, payload: bytes) -> None:
        self.side.send(self.core.send(target, payload, time.time()), self.server)

    async def receive(self, timeout: float = 5.0) -> tuple[Target, bytes]:
        return await asyncio.wait_for(self.received.get(), timeout)

    def close(self) -> None:
        self.side.close()


# --- server ---------------------------------------------------------------------------------------------------------


@dataclass
class Server:
    """`core` makes the core of a connection; `udp_core` that of an association of the client at this IP address."""

    core: Callable[[], Core]
    udp_core: Callable[[str], UdpServerCore] | None = None  # SOCKS5: one an association
    udp: UdpServerCore | None = None  # Shadowsocks: one for the port
    resolver: Resolver = field(default_factory=Resolver)
    wire: Wire = PLAIN
    handshake: float | None = 10.0  # seconds until the request must be complete; then a silent close
    closes: list[Close] = field(default_factory=list)  # why connections ended, for tests
    dials: list[Dial | Associate] = field(default_factory=list)


class Connection:
    """One accepted connection, its core, and what it dialled."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.server = server
        self.reader = reader
        self.writer = writer
        self.core = server.core()
        self.target: asyncio.StreamWriter | None = None
        self.relay: UdpRelay | None = None
        self.pump: asyncio.Task[None] | None = None
        self.served = False  # the handshake is over
        self.lock = asyncio.Lock()

    async def run(self) -> None:
        no_delay(self.writer)
        try:
            end = asyncio.get_running_loop().time() + (self.server.handshake or 0)
            while not self.core.closed:
                async with asyncio.timeout_at(end if self.server.handshake and not self.served else None):
                    data = await self.reader.read(65536)
                async with self.lock:
                    await self.perform(self.core.receive(data) if data else self.core.receive_eof())
                if not data:
                    break
            if self.pump is not None and not self.core.closed:
                await self.pump
        except OSError:
            pass
        finally:
            if self.pump is not None:
                self.pump.cancel()
            if self.relay is not None:
                self.relay.close()
            for writer in (self.target, self.writer):
                if writer is not None:
                    writer.close()

    async def perform(self, actions: list[Action]) -> None:
        """In order; what the core answers to an outcome comes before the rest."""
        for action in actions:
            self.served = self.served or isinstance(action, Dial | Associate)
            match action:
                case Send(data):
                    await self.server.wire.write(self.writer, data)
                case Dial():
                    self.server.dials.append(action)
                    await self.perform(await self.dial(action.target))
                case Associate():
                    self.server.dials.append(action)
                    await self.perform(await self.associate())
                case Payload(data) if self.target is not None:
                    self.target.write(data)
                    await self.target.drain()
                case Ended() if self.target is not None:
                    with contextlib.suppress(OSError):
                        self.target.write_eof()
                case Finish():
                    with contextlib.suppress(OSError):
                        self.writer.write_eof()
                case HangUp():
                    self.hang_up()
                case Close():
                    self.server.closes.append(action)
                    await self.close(action.how)
                case _:
                    pass

    def hang_up(self) -> None:
        if self.pump is not None and self.pump is not asyncio.current_task():
            self.pump.cancel()
        self.pump = None
        if self.target is not None:
            self.target.close()
            self.target = None

    async def dial(self, target: Target) -> list[Action]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                host = await self.server.resolver.resolve(target.host)
                reader, writer = await asyncio.open_connection(host, target.port)
        except OSError as error:
            return self.core.dialled(name_of_error(error))
        no_delay(writer)
        self.target = writer
        self.pump = asyncio.ensure_future(self.copy_back(reader))
        return self.core.dialled("", Target(*address_of(writer.get_extra_info("sockname"))))

    async def associate(self) -> list[Action]:
        if self.server.udp_core is None:
            return self.core.dialled("denied")
        own = address_of(self.writer.get_extra_info("sockname"))
        self.relay = UdpRelay(
            self.server.udp_core(address_of(self.writer.get_extra_info("peername"))[0]), self.server.resolver
        )
        try:
            bound = self.relay.start(own[0], 0)
        except OSError as error:
            return self.core.dialled(name_of_error(error))
        return self.core.dialled("", Target(*bound))

    async def copy_back(self, reader: asyncio.StreamReader) -> None:
        try:
            data = b"first"
            while data and not self.core.closed:
                data = await reader.read(65536)
                async with self.lock:
                    if self.pump is not asyncio.current_task():
                        return  # this target was hung up on
                    await self.perform(self.core.from_target(data) if data else self.core.target_eof())
        except OSError:
            reset(self.writer)  # the target's abort is passed on

    async def close(self, how: str) -> None:
        if how == "reset":
            reset(self.writer)
            return
        seconds, size = (random.uniform(*DRAIN_SECONDS), LINGER_BYTES) if how == "drain" else (LINGER, LINGER_BYTES)
        with contextlib.suppress(OSError):
            if how == "fin" and not self.writer.transport.is_closing():
                self.writer.write_eof()
            async with asyncio.timeout(seconds):
                while size > 0 and (data := await self.reader.read(4096)):
                    size -= len(data)
        self.writer.close()


@contextlib.asynccontextmanager
async def listening(server: Server, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Address]:
    """Accepts until the end of the block; gives the address."""
    tasks: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await Connection(server, reader, writer).run()
        except asyncio.CancelledError:
            pass  # the end of the block
        finally:
            tasks.discard(task)

    tcp = await asyncio.start_server(accepted, host, port)
    address = address_of(tcp.sockets[0].getsockname())
    relay = UdpRelay(server.udp, server.resolver) if server.udp is not None else None
    if relay is not None:
        relay.start(*address)
    try:
        yield address
    finally:
        tcp.close()
        for task in list(tasks):
            task.cancel()
        if relay is not None:
            relay.close()
        await asyncio.sleep(0)


# --- client ---------------------------------------------------------------------------------------------------------


class Stream:
    """A stream through a proxy."""

    def __init__(self, core: ClientCore, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: Wire):
        self.core = core
        self.reader = reader
        self.writer = writer
        self.wire = wire
        self.buffer = bytearray()
        self.ended = False
        self.bound: Target | None = None
        self.opened = False

    async def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(data):
                    await self.wire.write(self.writer, data)
                case Payload(data):
                    self.buffer += data
                case Opened(bound):
                    self.opened, self.bound = True, bound
                case Ended():
                    self.ended = True
                case Finish():
                    self.writer.write_eof()
                case Close(reason):
                    self.writer.close()
                    raise self.core.error or BadInputError(reason)
                case _:
                    pass

    async def turn(self) -> None:
        data = await self.reader.read(65536)
        await self.perform(self.core.receive(data) if data else self.core.receive_eof())

    async def write(self, data: bytes) -> None:
        await self.perform(self.core.send(data))

    async def read(self) -> bytes:
        """What is there; nothing only at the end."""
        while not self.buffer and not self.ended:
            await self.turn()
        data = bytes(self.buffer)
        self.buffer.clear()
        return data

    async def read_all(self) -> bytes:
        data = b""
        while more := await self.read():
            data += more
        return data

    async def read_exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            if self.ended:
                raise EOFError(f"{len(self.buffer)} of {size} bytes")
            await self.turn()
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    async def finish(self) -> None:
        await self.perform(self.core.finish())

    def close(self) -> None:
        self.writer.close()


async def dial(core: ClientCore, proxy: Address, wire: Wire = PLAIN) -> Stream:
    """A stream that is open; BadInputError (of the core) if the proxy does not want."""
    reader, writer = await asyncio.open_connection(*proxy)
    no_delay(writer)
    stream = Stream(core, reader, writer, wire)
    try:
        await stream.perform(core.start())
        while not stream.opened:
            await stream.turn()
    except BaseException:
        writer.close()
        raise
    return stream


# --- probing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reaction:
    """What the far end did: the bytes it sent, how it closed (fin, reset, open), after how many seconds."""

    received: bytes
    close: str
    seconds: float


async def probe(
    address: Address, data: bytes, *, wire: Wire = PLAIN, wait: float = 2.0, finish: bool = False
) -> Reaction:
    """Sends bytes as they are and watches for `wait` seconds; `finish`: with a FIN behind them."""
    reader, writer = await asyncio.open_connection(*address)
    no_delay(writer)
    start = time.monotonic()
    received = b""
    close = "open"
    try:
        async with asyncio.timeout(wait):
            await wire.write(writer, data)
            if finish:
                writer.write_eof()
            while more := await reader.read(65536):
                received += more
            close = "fin"
    except TimeoutError:
        pass
    except OSError:
        close = "reset"
    finally:
        writer.close()
    return Reaction(received, close, time.monotonic() - start)
