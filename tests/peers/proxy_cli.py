"""The command lines of the reference proxies, the same for each protocol: server, client, forward, attack.

server   prints "listening HOST PORT" and serves until it is killed
client   stdin to the target, the target to stdout; with --udp each line of stdin is a datagram in hex and
         "SOURCE HEX" is printed for each that comes back
forward  accepts at --listen and carries each connection to --target through the proxy
attack   sends one malformed message and prints how it was taken
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Mapping

from . import proxy_shell
from .proxy import Address, BadInputError, Target
from .proxy_shell import ClientCore, Resolver, Server, Stream, UdpStream, Wire


class Protocol:
    """What a protocol adds to the command line."""

    name = ""
    has_udp = True

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--user", metavar="NAME:PASSWORD")

    def server(self, args: argparse.Namespace) -> Server:
        raise NotImplementedError

    def client(self, args: argparse.Namespace, target: Target) -> ClientCore:
        raise NotImplementedError

    async def udp_client(self, args: argparse.Namespace) -> tuple[UdpStream, object]:
        """And what must live as long."""
        raise NotImplementedError

    def attacks(self, args: argparse.Namespace) -> Mapping[str, bytes]:
        raise NotImplementedError


def pair(text: str) -> tuple[str, str]:
    """NAME:PASSWORD; the password may have colons."""
    name, colon, password = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text}: NAME:PASSWORD is wanted")
    return name, password


def endpoint(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: HOST:PORT is wanted")
    return host.removeprefix("[").removesuffix("]"), int(port)


def arguments(protocol: Protocol) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m tests.peers.{protocol.name}")
    jobs = parser.add_subparsers(dest="job", required=True)
    server, client, forward, attack = (jobs.add_parser(job) for job in ("server", "client", "forward", "attack"))
    for job in (server, forward):
        job.add_argument("--listen", type=endpoint, default=("127.0.0.1", 0), metavar="HOST:PORT")
    for job in (client, forward, attack):
        job.add_argument("--proxy", type=endpoint, required=True, metavar="HOST:PORT")
    for job in (client, forward):
        job.add_argument("--target", type=endpoint, required=True, metavar="HOST:PORT")
        job.add_argument("--udp", action="store_true")
    server.add_argument("--host", action="append", default=[], metavar="NAME=ADDRESS", help="of a target, repeated")
    attack.add_argument("--name", required=True, help="which; 'list' lists them")
    attack.add_argument("--wait", type=float, default=2.0, help="seconds to watch")
    for job in (server, client, forward, attack):
        job.add_argument("--segment", type=int, default=0, help="bytes a write")
        job.add_argument("--delay", type=float, default=0.0, help="seconds before each write")
        protocol.options(job)
    return parser


async def serve(protocol: Protocol, args: argparse.Namespace) -> None:
    server = protocol.server(args)
    server.resolver = Resolver(dict(entry.split("=", 1) for entry in args.host))
    server.wire = Wire(args.segment, args.delay)
    async with proxy_shell.listening(server, *args.listen) as address:
        print("listening", *address, flush=True)
        await asyncio.Event().wait()


async def stdin_lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


async def copy(reader: asyncio.StreamReader, stream: Stream) -> None:
    while data := await reader.read(65536):
        await stream.write(data)
    await stream.finish()


async def talk(protocol: Protocol, args: argparse.Namespace) -> None:
    stream = await proxy_shell.dial(
        protocol.client(args, Target(*args.target)), args.proxy, Wire(args.segment, args.delay)
    )
    upward = asyncio.ensure_future(copy(await stdin_lines(), stream))
    while data := await stream.read():
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    upward.cancel()
    stream.close()


async def talk_udp(protocol: Protocol, args: argparse.Namespace) -> None:
    udp, _kept = await protocol.udp_client(args)
    reader = await stdin_lines()

    async def downward() -> None:
        while True:
            source, payload = await udp.received.get()
            print(source, payload.hex(), flush=True)

    task = asyncio.ensure_future(downward())
    while line := await reader.readline():
        udp.send(Target(*args.target), bytes.fromhex(line.decode().strip()))
    await asyncio.sleep(1)  # for the last answers
    task.cancel()
    udp.close()


async def forward(protocol: Protocol, args: argparse.Namespace) -> None:
    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, BadInputError):
            stream = await proxy_shell.dial(
                protocol.client(args, Target(*args.target)), args.proxy, Wire(args.segment, args.delay)
            )
            upward = asyncio.ensure_future(copy(reader, stream))
            while data := await stream.read():
                writer.write(data)
                await writer.drain()
            writer.write_eof()
            await upward
            stream.close()
        writer.close()

    server = await asyncio.start_server(accepted, *args.listen)
    print("listening", *server.sockets[0].getsockname()[:2], flush=True)
    await server.serve_forever()


async def attack(protocol: Protocol, args: argparse.Namespace) -> None:
    attacks = protocol.attacks(args)
    if args.name not in attacks:
        print("\n".join(attacks))
        return
    reaction = await proxy_shell.probe(
        args.proxy, attacks[args.name], wire=Wire(args.segment, args.delay), wait=args.wait
    )
    print(f"received={reaction.received.hex()} close={reaction.close} seconds={reaction.seconds:.3f}")


def main(protocol: Protocol) -> None:
    args = arguments(protocol).parse_args()
    if getattr(args, "udp", False) and not protocol.has_udp:
        sys.exit(f"{protocol.name} has no UDP")
    jobs = {"server": serve, "client": talk, "forward": forward, "attack": attack}
    job = talk_udp if getattr(args, "udp", False) else jobs[args.job]
    try:
        asyncio.run(job(protocol, args))
    except (BadInputError, OSError) as error:
        sys.exit(f"{protocol.name}: {error}")
    except KeyboardInterrupt:
        pass
