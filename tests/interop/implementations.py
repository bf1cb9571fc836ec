"""Every WireGuard implementation that the tests can start, each a few lines of data, and the tunnel between two.

    left host                                   right host
    +--------------------------+                +--------------------------+
    | TUN 10.7.0.1, fd07::1    |                | TUN 10.7.0.2, fd07::2    |
    |   |                      |                |                      |   |
    | implementation --- wire -+----------------+- wire --- implementation |
    +--------------------------+                +--------------------------+

An implementation is started, waited for (its UAPI socket), configured by `wg setconf` like any other, and given its
addresses. The reference peer runs in this process and is configured directly.

    FVD             the engine under test               (default: that of pytest's --build, so build/fvd)
    FV_INTEROP      implementations under test, by name (default: fv,fv-2)
    FV_INTEROP_WITH whom they are tried with, by name   (default: all but the kernel's module: see KERNEL)
    FV_INTEROP_SLOW 1: the processor is emulated, so transfers with the kernel's module are cut down

`FV_INTEROP=wireguard-go pytest tests/interop` runs the same tests against a program that is known to be right, which
is how the tests themselves are tested; `lacks` below says where it is not.
"""

import contextlib
import functools
import os
import socket
import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.interop.netns import SOCKETS, Host, Program, hide_keys, wait_for, wire
from tests.peers.wg_noise import Identity
from tests.peers.wg_shell import TunShell, open_tun
from tests.peers.wireguard import Device, Peer

ROOT = Path(__file__).resolve().parents[2]
PORT = 51820
KERNEL = "the kernel's wireguard module"  # instead of a program; test_kernel_module.py runs these tests where it is


def peers_folder() -> Path:
    """Where `task peers` installs the other programs."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fv/peers/bin"


@functools.cache
def _runs(fvd: Path) -> bool:
    """Whether this build of the engine has a main program."""
    return fvd.exists() and subprocess.run([str(fvd), "--help"], capture_output=True, check=False).returncode == 0


@dataclass(frozen=True)
class Implementation:
    name: str
    program: str  # empty: the reference peer
    arguments: tuple[str, ...] = ()  # NAME is the interface, PLAN a plan file
    environment: tuple[tuple[str, str], ...] = ()
    workers: int = 1
    # What it is known not to do as the protocol says, each seen by running it. A test of one of these is skipped
    # by that name for this implementation: tests of fv are never skipped so.
    lacks: frozenset[str] = frozenset()
    slow: bool = False  # moves little: transfers are cut down

    def path(self) -> Path:
        if self.program == "fvd":
            return Path(os.environ.get("FVD", ROOT / "build/fvd"))
        return peers_folder() / self.program

    def present(self) -> bool:
        if self.program == "fvd":
            return _runs(self.path())
        if self.program == KERNEL:
            return Path("/sys/module/wireguard").exists()
        return not self.program or self.path().exists()


# Seen of boringtun 0.7.1 and GotaTun 0.10.2: they take stamps, sizes and reserved bytes more loosely, have a replay
# window of about 1,000, show the handshake's age for its time, and one unfinished handshake ends the session.
LOOSE = frozenset({"strictness"})

IMPLEMENTATIONS = {
    impl.name: impl
    for impl in (
        Implementation("fv", "fvd", ("-f", "NAME")),
        Implementation("fv-2", "fvd", ("--plan", "PLAN"), workers=2),
        Implementation(
            "wireguard-go",
            "wireguard-go",
            ("-f", "NAME"),
            (("WG_PROCESS_FOREGROUND", "1"), ("LOG_LEVEL", "verbose")),
            lacks=frozenset(
                {
                    "exact reject limit",
                    "inner length beyond 16 bits",
                    "one cookie per message",
                    "DSCP and ECN",
                    "wire smaller than the tunnel",
                    "answers from the addressed address at once",  # now and then the first goes out from the last one
                    "answers to link-local addresses",
                    "session of its own in the background",
                    "steady memory under a flood",
                }
            ),
        ),
        Implementation(
            "boringtun",
            "boringtun-cli",
            ("-f", "--disable-drop-privileges", "-v", "debug", "NAME"),
            (("WG_SUDO", "1"),),
            lacks=LOOSE,
        ),
        Implementation(
            "gotatun", "gotatun-cli", ("-f", "--disable-drop-privileges", "-v", "debug", "NAME"), lacks=LOOSE
        ),
        Implementation("reference", "", slow=True),
        Implementation("kernel", KERNEL, slow=os.environ.get("FV_INTEROP_SLOW") == "1"),
    )
}

UNDER_TEST = [IMPLEMENTATIONS[name] for name in os.environ.get("FV_INTEROP", "fv,fv-2").split(",")]
WITH = os.environ.get("FV_INTEROP_WITH", "wireguard-go,boringtun,gotatun,fv,reference")
OTHERS = [IMPLEMENTATIONS[name] for name in WITH.split(",")]


class Endpoint(Protocol):
    """One end of a tunnel."""

    impl: Implementation
    host: Host
    name: str
    address4: str
    address6: str

    def configure(self, key: Identity, port: int, peers: "list[PeerConfig]") -> None: ...
    def handshakes(self) -> bool: ...
    def report(self) -> str: ...
    def close(self) -> None: ...
    def move_port(self, port: int) -> None: ...


@dataclass(repr=False)
class PeerConfig:
    public: bytes
    allowed: list[str]
    endpoint: tuple[str, int] | None = None
    psk: bytes | None = None
    keepalive: int = 0


def base64(key: bytes) -> str:
    return b64encode(key).decode()


def endpoint_text(endpoint: tuple[str, int]) -> str:
    address, port = endpoint
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def wg_config(key: Identity, port: int, peers: list[PeerConfig]) -> str:
    """What `wg setconf` reads."""
    lines = ["[Interface]", f"PrivateKey = {base64(key.private)}", f"ListenPort = {port}"]
    for peer in peers:
        lines += ["[Peer]", f"PublicKey = {base64(peer.public)}", f"AllowedIPs = {', '.join(peer.allowed)}"]
        if peer.psk is not None:
            lines.append(f"PresharedKey = {base64(peer.psk)}")
        if peer.endpoint:
            lines.append(f"Endpoint = {endpoint_text(peer.endpoint)}")
        if peer.keepalive:
            lines.append(f"PersistentKeepalive = {peer.keepalive}")
    return "\n".join(lines) + "\n"


_names = iter(range(1, 1 << 20))


@dataclass
class ProgramEndpoint:
    """A program with a TUN and a UAPI socket."""

    impl: Implementation
    host: Host
    mtu: int
    address4: str
    address6: str
    environment: dict[str, str] = field(default_factory=dict)
    name: str = ""
    program: Program = field(init=False)

    def __post_init__(self) -> None:
        # The socket's folder is shared by all namespaces, so the name must be this process's own.
        self.name = self.name or f"fv{os.getpid()}x{next(_names)}"
        plan = self.host.folder / f"{self.name}.plan"
        if "PLAN" in self.impl.arguments:
            plan.write_text(self.plan())
            plan.chmod(0o600)
        arguments = [{"NAME": self.name, "PLAN": str(plan)}.get(word, word) for word in self.impl.arguments]
        environment = {**dict(self.impl.environment), **self.environment}
        self.program = self.host.start(str(self.impl.path()), *arguments, env=environment)
        try:
            wait_for("UAPI socket", lambda: self.socket_path.exists() or not self.program.alive(), 10)
            assert self.program.alive(), "it ended at once"
            wait_for("interface", lambda: self.host.has_link(self.name), 5)
            self.add_addresses()
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from None

    def add_addresses(self) -> None:
        self.host.ip(
            f"link set {self.name} mtu {self.mtu} up",
            f"address add {self.address4}/24 dev {self.name}",
            f"address add {self.address6}/64 dev {self.name} nodad",
        )

    @property
    def socket_path(self) -> Path:
        return SOCKETS / f"{self.name}.sock"

    def plan(self) -> str:
        off = self.environment.get("FV_FEATURE_OFF", "")
        key = Identity.fresh().private.hex()  # replaced by setconf
        return (
            "plan=1\nneeds=wireguard\n\n"
            f"[engine]\nworkers={self.impl.workers}\nfeature_off={off}\nlog_level=debug\n\n"
            f"[wireguard {self.name}]\nmtu={self.mtu}\nprivate_key={key}\n"
        )

    def wg(self, *argv: str, text: str = "", check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.host.run("wg", *argv, text=text, check=check)

    def configure(self, key: Identity, port: int, peers: list[PeerConfig]) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self.host.folder) as conf:
            conf.write(wg_config(key, port, peers))
            conf.flush()
            try:
                self.wg("setconf", self.name, conf.name)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.report()}") from None

    def dump(self) -> list[list[str]]:
        """`wg show NAME dump`: the device's line, then each peer's."""
        lines = self.wg("show", self.name, "dump").stdout.splitlines()
        return [line.split("\t") for line in lines]

    def peers(self) -> dict[bytes, list[str]]:
        """Fields by public key: psk, endpoint, allowed IPs, handshake, received, sent, keepalive."""
        return {b64decode(fields[0]): fields[1:] for fields in self.dump()[1:]}

    def handshakes(self) -> bool:
        return all(fields[3] != "0" for fields in self.peers().values())

    def move_port(self, port: int) -> None:
        self.wg("set", self.name, "listen-port", str(port))

    def uapi(self, request: str, *, seconds: float = 5) -> str:
        """One request over the raw socket; the reply up to its empty line."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(seconds)
            sock.connect(str(self.socket_path))
            sock.sendall(request.encode())
            reply = b""
            while not reply.endswith(b"\n\n"):
                chunk = sock.recv(65536)
                if not chunk:
                    break
                reply += chunk
            return reply.decode()

    def report(self) -> str:
        return f"--- {self.impl.name} on {self.host.name}, last lines:\n{self.program.tail()}"

    def close(self) -> None:
        crashed = not self.program.alive() and self.program.process.returncode not in (0, -9)  # -9: a test killed it
        self.program.stop()
        self.socket_path.unlink(missing_ok=True)
        # What a sanitized build has to say, at its end as well, fails the test that it belongs to.
        said = self.program.log.read_text(errors="replace")
        for word in ("runtime error:", "AddressSanitizer", "LeakSanitizer"):
            assert word not in said, hide_keys(said[said.index(word) :][:2000])
        assert not crashed, f"ended with {self.program.process.returncode}\n{self.report()}"


class KernelEndpoint(ProgramEndpoint):
    """The kernel's module: a link, configured by the same `wg`."""

    def __post_init__(self) -> None:
        self.name = self.name or f"fv{os.getpid()}x{next(_names)}"
        self.host.ip(f"link add {self.name} type wireguard")
        self.add_addresses()

    def report(self) -> str:
        return f"--- {self.impl.name} on {self.host.name}: {self.wg('show', self.name, check=False).stdout}"

    def close(self) -> None:
        self.host.ip(f"link del {self.name}")


@dataclass
class ReferenceEndpoint:
    """The reference peer with a TUN, in this process."""

    impl: Implementation
    host: Host
    mtu: int
    address4: str
    address6: str
    name: str = ""
    shell: TunShell | None = None
    device: Device = field(init=False)
    peer: Peer = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.name or f"fv{os.getpid()}x{next(_names)}"

    def configure(self, key: Identity, port: int, peers: list[PeerConfig]) -> None:
        self.device = Device(key.private, mtu=self.mtu)
        for peer in peers:
            self.peer = self.device.add_peer(
                peer.public,
                psk=peer.psk or bytes(32),
                endpoint=peer.endpoint,
                keepalive=peer.keepalive,
                allowed=peer.allowed,
            )
        with self.host.inside():
            tun = open_tun(self.name)
        self.host.ip(
            f"link set {self.name} mtu {self.mtu} up",
            f"address add {self.address4}/24 dev {self.name}",
            f"address add {self.address6}/64 dev {self.name} nodad",
        )
        # One socket for the family in use is enough here; mapped addresses would have to be unmapped for the cookie.
        six = any(peer.endpoint and ":" in peer.endpoint[0] for peer in peers)
        self.family_address = "::" if six else "0.0.0.0"
        self.shell = TunShell(self.device, tun, self.host.udp(self.family_address, port))

    def handshakes(self) -> bool:
        return all(peer.handshakes_completed for peer in self.device.peers.values())

    def move_port(self, port: int) -> None:
        assert self.shell
        self.shell.move(self.host.udp(self.family_address, port))

    def report(self) -> str:
        error = self.shell.error if self.shell else None
        return f"--- reference on {self.host.name}: refused {dict(self.device.drops)}, error {error!r}"

    def close(self) -> None:
        if self.shell:
            self.shell.close()
            self.shell = None


def start(
    impl: Implementation, host: Host, mtu: int, number: int, environment: dict[str, str] | None = None
) -> Endpoint:
    """An endpoint with the tunnel addresses of host `number`, not yet configured."""
    address4, address6 = f"10.7.0.{number}", f"fd07::{number}"
    if not impl.program:
        return ReferenceEndpoint(impl, host, mtu, address4, address6)
    if impl.program == KERNEL:
        return KernelEndpoint(impl, host, mtu, address4, address6)
    return ProgramEndpoint(impl, host, mtu, address4, address6, environment or {})


@dataclass
class Tunnel:
    left: Endpoint
    right: Endpoint
    outer: int

    def report(self) -> str:
        return hide_keys(f"{self.left.report()}\n{self.right.report()}")

    @contextlib.contextmanager
    def explain(self) -> Iterator[None]:
        """A failure inside says what both ends logged."""
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from error


@contextlib.contextmanager
def tunnel(
    left_impl: Implementation,
    right_impl: Implementation,
    *,
    mtu: int = 1420,
    outer: int = 4,
    psk: bool = True,
    keepalive: int = 0,
    left_knows: bool = True,
    right_knows: bool = True,
    environment: dict[str, str] | None = None,
) -> Iterator[Tunnel]:
    """left_impl on the left host with right_impl on the right one. An end that does not know the other learns it."""
    with wire(max(1500, mtu + 80)) as (left_host, right_host), contextlib.ExitStack() as stack:
        ends = []
        for impl, host, number in ((left_impl, left_host, 1), (right_impl, right_host, 2)):
            end = start(impl, host, mtu, number, environment if impl.program == "fvd" else None)
            stack.callback(end.close)
            ends.append(end)
        left, right = ends
        secret = os.urandom(32) if psk else None
        keys = Identity.fresh(), Identity.fresh()
        for end, key, other, other_key, knows in (
            (left, keys[0], right, keys[1], left_knows),
            (right, keys[1], left, keys[0], right_knows),
        ):
            address = other.host.address4 if outer == 4 else other.host.address6
            end.configure(
                key,
                PORT,
                [
                    PeerConfig(
                        other_key.public,
                        [f"{other.address4}/32", f"{other.address6}/128"],
                        (address, PORT) if knows else None,
                        secret,
                        keepalive,
                    )
                ],
            )
        made = Tunnel(left, right, outer)
        with made.explain():
            yield made
