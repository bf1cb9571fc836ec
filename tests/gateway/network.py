"""A LAN, its gateway, an exit and a server behind it, each a network namespace.

    client              gate                    exit               hop                server
    +--------+   lan    +------+     wire       +------+   far     +------+   end     +--------+
    |     .10|----------|.1  .1|----------------|.2  .1|-----------|.2  .1|-----------|.10     |
    +--------+          +------+                +------+           +------+           +--------+
        192.168.88.0/24         192.0.2.0/24          203.0.113.0/24     198.51.100.0/24
        fd88::/64               2001:db8::/64         fd03::/64          fd99::/64

    the tunnel: gate 10.7.0.2, fd07::2 --- exit 10.7.0.1, fd07::1

What the server and the hop know is the tunnel's network behind the exit; they have no route to the LAN, so whatever
is answered has been translated. The plans are made by fv's own compiler out of configurations of the kind that users
write, with the facts that fv finds in the namespace.
"""

import contextlib
import functools
import itertools
import os
import shutil
import socket
import struct
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fv import uapi
from fv.config.load import decode
from fv.config.syntax import parse
from fv.host import gather
from fv.plan.compile import compile_plan
from fv.plan.text import write
from tests.interop import transfer
from tests.interop.netns import Host, Program, hide_keys, hosts, wait_for
from tests.peers.wg_noise import Identity

ETH_P_ALL = 3
CLIENT4, CLIENT6 = "192.168.88.10", "fd88::10"
SERVER4, SERVER6 = "198.51.100.10", "fd99::10"
GATE4, GATE6 = "10.7.0.2", "fd07::2"
EXIT4, EXIT6 = "10.7.0.1", "fd07::1"
PORT = 51820


def fvd() -> str:
    return os.environ["FVD"]


@functools.cache
def sanitized() -> bool:
    """Whether the build under test has ASan in it: what it uses of memory is then ASan's, and leaks are its to find."""
    return b"__asan_init" in Path(fvd()).read_bytes()


# What a sanitized build says; any of it fails the test that it belongs to.
FINDINGS = ("runtime error:", "AddressSanitizer", "LeakSanitizer", "ThreadSanitizer")


def findings(text: str) -> str:
    for word in FINDINGS:
        if word in text:
            return hide_keys(text[text.index(word) :][:2000])
    return ""


@dataclass
class Engine:
    """`fvd --plan FILE` on a host."""

    host: Host
    file: Path
    control: str
    program: Program = field(init=False)
    ended: bool = False

    def start(self, *, wait: bool = True, env: dict[str, str] | None = None) -> "Engine":
        self.program = self.host.start(fvd(), "--plan", str(self.file), env=env)
        if wait:
            try:
                wait_for("the control socket", lambda: self.answers() or not self.program.alive(), 15)
                assert self.program.alive(), "it ended at once"
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.program.tail()}") from None
        return self

    def answers(self) -> bool:
        with contextlib.suppress(Exception):
            return bool(uapi.stats(self.control))
        return False

    def stats(self) -> dict[str, str]:
        return uapi.stats(self.control)

    def number(self, name: str) -> int:
        """A statistic of the device, 0 where it has not happened yet; `*` stands for the device's name."""
        return sum(int(v) for k, v in self.stats().items() if k.startswith("device.") and k.endswith("." + name))

    def drops(self) -> dict[str, int]:
        return {k.rpartition(".")[2]: int(v) for k, v in self.stats().items() if ".drop." in k}

    def plan(self) -> str:
        return uapi.plan_in_force(self.control)

    def swap(self, text: str) -> None:
        uapi.swap(self.control, text)

    def log(self) -> str:
        return self.program.log.read_text(errors="replace")

    def stop(self, seconds: float = 10) -> int:
        """SIGTERM, and what it said to the end."""
        status = self.program.stop(seconds)
        self.check()
        assert status in (0, -9), f"ended with {status}\n{self.program.tail()}"
        return status

    def kill(self) -> None:
        self.program.process.kill()
        self.program.process.wait()

    def check(self) -> None:
        said = findings(self.log())
        assert not said, said


_serials = itertools.count(1)


@dataclass
class Lan:
    client: Host
    gate: Host
    exit: Host
    hop: Host
    server: Host
    keys: dict[str, Identity]
    engines: list[Engine] = field(default_factory=list)
    number: int = 0
    serial: int = field(default_factory=lambda: next(_serials))

    @property
    def hosts(self) -> list[Host]:
        return [self.client, self.gate, self.exit, self.hop, self.server]

    def name(self, role: str) -> str:
        """Sockets of WireGuard are in one folder for all namespaces, so an interface's name is this run's own."""
        return f"{role}{os.getpid()}x{self.serial}"

    def control(self, role: str) -> str:
        return str(self.gate.folder / f"{self.gate.name}-{role}.sock")

    def state(self, role: str) -> Path:
        return self.gate.folder / f"{self.gate.name}-{role}.state"

    def engine_table(self, role: str, words: str = "") -> str:
        return (
            f'[engine]\nstate = "{self.state(role)}"\ncontrol = "{self.control(role)}"\nlog_level = "debug"\n{words}\n'
        )

    def gate_config(
        self, *, engine: str = "", endpoint: str = "", gateway: str = "", peer: str = "", mtu: str = ""
    ) -> str:
        """edge.toml of the gateway; each word is a line or more of its table."""
        return f"""
{self.engine_table("gate", engine)}
[[endpoints]]
type = "wireguard"
tag = "tunnel"
name = "{self.name("gw")}"
address = ["{GATE4}/32", "{GATE6}/128"]
private_key = "{key_text(self.keys["gate"].private)}"
{f"mtu = {mtu}" if mtu else ""}
{endpoint}
[[endpoints.peers]]
public_key = "{key_text(self.keys["exit"].public)}"
address = "192.0.2.2"
port = {PORT}
allowed_ips = ["0.0.0.0/0", "::/0"]
{peer}
[gateway]
lan = ["lan"]
{gateway}
"""

    def exit_config(self, *, engine: str = "", mtu: str = "", allowed: str = "") -> str:
        return f"""
{self.engine_table("exit", engine)}
[[endpoints]]
type = "wireguard"
tag = "tunnel"
name = "{self.name("ex")}"
address = ["{EXIT4}/24", "{EXIT6}/64"]
private_key = "{key_text(self.keys["exit"].private)}"
listen_port = {PORT}
{f"mtu = {mtu}" if mtu else ""}
[[endpoints.peers]]
public_key = "{key_text(self.keys["gate"].public)}"
allowed_ips = ["{GATE4}/32", "{GATE6}/128"{allowed}]
"""

    def compile(self, host: Host, config: str) -> str:
        """The plan that `fv run` would hand to the engine on this host."""
        loaded = decode(parse(config, "edge.toml"))
        with host.inside():
            facts = gather(loaded.config)
        return write(compile_plan(loaded, facts).plan)

    def engine(self, host: Host, role: str, plan: str) -> Engine:
        self.number += 1
        file = host.folder / f"{host.name}-{role}-{self.number}.plan"
        file.write_text(plan)
        file.chmod(0o600)
        one = Engine(host, file, self.control(role))
        self.engines.append(one)
        return one

    def start_exit(self, **words: str) -> Engine:
        return self.engine(self.exit, "exit", self.compile(self.exit, self.exit_config(**words))).start()

    def start_gate(self, *, change: Callable[[str], str] = lambda text: text, **words: str) -> Engine:
        return self.engine(self.gate, "gate", change(self.compile(self.gate, self.gate_config(**words)))).start()

    def offloads(self, on: bool) -> None:
        """What a LAN interface does: a desktop's veth with TSO and GRO, or a router's port with neither."""
        word = "on" if on else "off"
        for host in (self.client, self.gate):
            host.run("ethtool", "-K", "lan", *[x for name in ("tso", "gso", "gro") for x in (name, word)])

    def ready(self) -> None:
        """Waits until a datagram of the client's has come back from the server."""
        for address in (SERVER4, SERVER6):
            wait_for(f"an answer of {address}", lambda a=address: self.echo(a), 10, 0.1)  # type: ignore[misc]

    def echo(self, address: str) -> bool:
        try:
            transfer.ping(self.client, address, seconds=0.5, every=0.1)
        except AssertionError:
            return False
        return True


def key_text(key: bytes) -> str:
    return b64encode(key).decode()


def _link(left: Host, right: Host, name: str, four: str, six: str, ends: tuple[str, str], mtu: int = 1500) -> None:
    left.ip(f"link add {name} mtu {mtu} type veth peer name {name} mtu {mtu} netns {right.name}")
    for host, end in zip((left, right), ends, strict=True):
        host.ip(
            f"address add {four}.{end}/24 dev {name}",
            f"address add {six}::{end}/64 dev {name} nodad",
            f"link set {name} up",
        )


@contextlib.contextmanager
def lan() -> Iterator[Lan]:
    """The hosts, wired and routed, no engine yet. Nothing forwards but the hop and the exit: the gateway's own plan
    has to open it."""
    with hosts(5) as made:
        client, gate, exit_, hop, server = made
        for host in made:  # addresses are there at once, and a host's state does not change by itself
            for part in ("all", "default"):
                host.sysctl(f"net/ipv6/conf/{part}/accept_dad", "0")
        _link(client, gate, "lan", "192.168.88", "fd88", ("10", "1"))
        _link(gate, exit_, "wire", "192.0.2", "2001:db8", ("1", "2"))
        _link(exit_, hop, "far", "203.0.113", "fd03", ("1", "2"))
        _link(hop, server, "end", "198.51.100", "fd99", ("1", "10"))
        client.ip("route add default via 192.168.88.1", "route add default via fd88::1")
        gate.ip("route add default via 192.0.2.2", "route add default via 2001:db8::2")
        exit_.ip("route add 198.51.100.0/24 via 203.0.113.2", "route add fd99::/64 via fd03::2")
        hop.ip("route add 10.7.0.0/24 via 203.0.113.1", "route add fd07::/64 via fd03::1")
        server.ip("route add default via 198.51.100.1", "route add default via fd99::1")
        # What leaves beside the tunnel would reach the server and be answered: no lack of routes hides a leak.
        exit_.ip("route add 192.168.88.0/24 via 192.0.2.1", "route add fd88::/64 via 2001:db8::1")
        for host in (exit_, hop):
            host.sysctl("net/ipv4/ip_forward", "1")
            host.sysctl("net/ipv6/conf/all/forwarding", "1")
        for host in made:  # errors are what some tests are about
            host.sysctl("net/ipv4/icmp_ratelimit", "0")
            host.sysctl("net/ipv6/icmp/ratelimit", "0")
        for host in made:
            wait_for("carriers", lambda h=host: "NO-CARRIER" not in ip_json(h))  # type: ignore[misc]
        net = Lan(client, gate, exit_, hop, server, {"gate": Identity.fresh(), "exit": Identity.fresh()})
        try:
            yield net
        finally:
            failures = []
            for engine in net.engines:
                if not hasattr(engine, "program"):
                    continue
                crashed = not engine.program.alive() and engine.program.process.returncode not in (0, 1, 2, -9)
                engine.program.stop()
                if crashed or findings(engine.log()):
                    failures.append(f"{engine.program.process.returncode}: {findings(engine.log())}")
            for role in ("gw", "ex"):
                Path(f"/var/run/wireguard/{net.name(role)}.sock").unlink(missing_ok=True)
            for role in ("gate", "exit"):
                shutil.rmtree(net.state(role), ignore_errors=True)
            assert not failures, failures


@contextlib.contextmanager
def running(engine: str = "", gateway: str = "", endpoint: str = "") -> Iterator[Lan]:
    """The same with both engines, and a first packet through."""
    with lan() as net:
        net.start_exit(engine=engine)
        net.start_gate(engine=engine, gateway=gateway, endpoint=endpoint)
        net.ready()
        yield net


# --- packets by hand ---


def total(data: bytes) -> int:
    """RFC 1071, not complemented."""
    if len(data) % 2:
        data += b"\0"
    value: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return value


def packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def udp(source: str, target: str, sport: int, dport: int, payload: bytes, *, no_sum: bool = False) -> bytes:
    """A UDP header with its checksum, and the payload."""
    length = 8 + len(payload)
    pseudo = packed(source) + packed(target) + struct.pack(">II", length, socket.IPPROTO_UDP)
    head = struct.pack(">HHHH", sport, dport, length, 0)
    check = (~total(pseudo + head + payload) & 0xFFFF) or 0xFFFF
    return head[:6] + struct.pack(">H", 0 if no_sum else check) + payload


def ip(
    source: str, target: str, protocol: int, body: bytes, *, ident: int = 0, offset: int = 0, more: bool = False,
    ttl: int = 64,
) -> bytes:  # fmt: skip
    """An IPv4 or IPv6 packet; with ident a fragment at `offset` bytes."""
    if ":" in source:
        extra = b""
        if ident:
            extra = struct.pack(">BBHI", protocol, 0, offset | int(more), ident)
            protocol = 44
        return (
            struct.pack(">IHBB", 6 << 28, len(extra) + len(body), protocol, ttl)
            + packed(source)
            + packed(target)
            + extra
            + body
        )
    head = struct.pack(
        ">BBHHHBBH", 0x45, 0, 20 + len(body), ident, offset // 8 | (0x2000 if more else 0), ttl, protocol, 0
    )
    head += packed(source) + packed(target)
    return head[:10] + struct.pack(">H", ~total(head) & 0xFFFF) + head[12:] + body


def fragments(source: str, target: str, protocol: int, body: bytes, size: int, ident: int) -> list[bytes]:
    """`body` in fragments of `size` bytes (a multiple of 8)."""
    assert size % 8 == 0
    return [
        ip(source, target, protocol, body[at : at + size], ident=ident, offset=at, more=at + size < len(body))
        for at in range(0, len(body), size)
    ]


def send_raw(host: Host, packets: Sequence[bytes]) -> None:
    """Whole IP packets, as they are, by the host's own routes."""
    four = host.open_socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    six = host.open_socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_RAW)
    with four, six:
        for packet in packets:
            if packet[0] >> 4 == 4:
                four.sendto(packet, (socket.inet_ntop(socket.AF_INET, packet[16:20]), 0))
            else:
                six.sendto(packet, (socket.inet_ntop(socket.AF_INET6, packet[24:40]), 0))


class Capture:
    """Every packet of an interface, both ways, link header taken off."""

    def __init__(self, host: Host, device: str) -> None:
        self.socket = host.open_socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        self.socket.bind((device, ETH_P_ALL))
        self.socket.setblocking(False)
        self.raw = device.startswith(("gw", "ex"))  # a TUN has no link header

    def packets(self) -> list[bytes]:
        """What has come since the last question."""
        got = []
        with contextlib.suppress(BlockingIOError):
            while True:
                frame = self.socket.recv(65535)
                if self.raw:
                    got.append(frame)
                elif frame[12:14] in (b"\x08\x00", b"\x86\xdd"):
                    got.append(frame[14:])
        return got

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Capture":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def source_of(packet: bytes) -> str:
    if packet[0] >> 4 == 4:
        return socket.inet_ntop(socket.AF_INET, packet[12:16])
    return socket.inet_ntop(socket.AF_INET6, packet[8:24])


def target_of(packet: bytes) -> str:
    if packet[0] >> 4 == 4:
        return socket.inet_ntop(socket.AF_INET, packet[16:20])
    return socket.inet_ntop(socket.AF_INET6, packet[24:40])


def protocol_of(packet: bytes) -> tuple[int, bytes]:
    """Protocol and what follows the header (no extension headers looked into)."""
    if packet[0] >> 4 == 4:
        return packet[9], packet[(packet[0] & 15) * 4 :]
    return packet[6], packet[40:]


def ip_json(host: Host) -> str:
    """Everything that `ip -j` says of links, addresses, routes and rules: what a refused plan must leave alone."""
    out = []
    for words in (("link",), ("address",), ("route", "show", "table", "all"), ("-6", "route", "show", "table", "all"),
                  ("rule",), ("-6", "rule")):  # fmt: skip
        done = subprocess.run(["ip", "-n", host.name, "-j", *words], capture_output=True, text=True, check=True)
        out.append(done.stdout)
    return "\n".join(out)
