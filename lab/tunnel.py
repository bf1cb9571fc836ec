"""A tunnel between sides a and b of a topology: started, configured, waited for, read from outside, stopped."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from lab import implementations, process, topology
from lab.errors import LabError
from lab.implementations import Implementation
from lab.topology import TUNNEL_A, TUNNEL_B, WIRE_A, WIRE_B, Place

PORT = 51820
MTU = 1420
UAPI = Path("/var/run/wireguard")
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Keys:
    """Made once per run, so that every implementation has the same."""

    private_a: str = field(repr=False)
    private_b: str = field(repr=False)
    public_a: str
    public_b: str


def make_keys() -> Keys:
    def wg(*words: str, stdin: str | None = None) -> str:
        return subprocess.run(["wg", *words], capture_output=True, text=True, check=True, input=stdin).stdout.strip()

    private_a, private_b = wg("genkey"), wg("genkey")
    return Keys(private_a, private_b, wg("pubkey", stdin=private_a + "\n"), wg("pubkey", stdin=private_b + "\n"))


@dataclass(frozen=True)
class Pinning:
    """CPUs of each side's implementation and load; empty: all of them."""

    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()
    load_a: tuple[int, ...] = ()
    load_b: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.a:
            return "none"
        return " ".join(
            f"{name}={'+'.join(map(str, cpus))}"
            for name, cpus in (("a", self.a), ("b", self.b), ("load-a", self.load_a), ("load-b", self.load_b))
        )


def one_cpu_each(cpus: list[int]) -> Pinning:
    """Four CPUs: one for each implementation and each end of the load. Fewer: a side shares one with its load."""
    if len(cpus) >= 4:
        return Pinning((cpus[0],), (cpus[1],), (cpus[2],), (cpus[3],))
    a, b = cpus[0], cpus[-1]
    return Pinning((a,), (b,), (a,), (b,))


def configuration(private: str, peer: str, allowed: list[str], endpoint: str | None) -> str:
    return "\n".join(
        [
            "[Interface]",
            f"PrivateKey = {private}",
            f"ListenPort = {PORT}",
            "[Peer]",
            f"PublicKey = {peer}",
            f"AllowedIPs = {', '.join(allowed)}",
            f"Endpoint = {endpoint}:{PORT}" if endpoint else "",
            "",
        ]
    )


def wait_for_answer(namespace: str, address: str) -> None:
    ping = [sys.executable, str(HERE / "ping.py"), address, "--until-answer", "10"]
    try:
        answer = json.loads(process.run_in(namespace, *ping, timeout=20))
    except (LabError, subprocess.TimeoutExpired):
        answer = {"us": []}
    if not answer["us"]:
        raise LabError("no answer through the tunnel in 10 s")


@dataclass
class Side:
    namespace: str
    link: str
    program: subprocess.Popen[str] | None = None
    output: Path | None = None

    def told(self) -> str:
        """The end of what the program said, for an error."""
        if self.output is None or not self.output.is_file():
            return ""
        return " | ".join(self.output.read_text(errors="replace").strip().splitlines()[-3:])


class Tunnel:
    """`with Tunnel(...)`: both sides are up and have shaken hands inside; nothing is left outside."""

    def __init__(
        self,
        implementation: Implementation,
        place: Place,
        keys: Keys,
        *,
        pinning: Pinning,
        threads: str = "1",
        restriction: str = "",
        mtu: int = MTU,
    ) -> None:
        self.implementation = implementation
        self.place = place
        self.keys = keys
        self.pinning = pinning
        self.threads = threads
        self.restriction = restriction
        self.mtu = mtu
        # UAPI sockets are named by link, whatever the namespace: the names must be nobody else's.
        self.a = Side(place.side_a, f"laba{os.getpid()}")
        self.b = Side(place.side_b, f"labb{os.getpid()}")
        self.server = TUNNEL_B if implementation.kind != "none" else WIRE_B
        self.folder = tempfile.TemporaryDirectory(prefix="fv-lab-")

    def __enter__(self) -> "Tunnel":
        try:
            if self.implementation.kind == "none":
                self._route_without()
            else:
                self._start(self.a, self.pinning.a)
                self._start(self.b, self.pinning.b)
                self._configure()
            self._wait()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _route_without(self) -> None:
        for network in self.place.behind_a:
            topology.route(self.b.namespace, network, gateway=WIRE_A)

    def _start(self, side: Side, cpus: tuple[int, ...]) -> None:
        implementation = self.implementation
        if implementation.kind == "kernel":
            topology.add_wireguard_link(side.namespace, side.link)
            return
        program = implementations.find(implementation)
        if program is None:
            raise LabError(implementations.missing(implementation), where=implementation.name)
        arguments, environment = implementations.thread_words(implementation, self.threads)
        environment |= dict(implementation.environment)
        local, remote = (WIRE_A, WIRE_B) if side is self.a else (WIRE_B, WIRE_A)
        words = {"name": side.link, "local": local, "remote": remote}
        command = [str(program), *arguments, *(word.format(**words) for word in implementation.arguments)]
        if self.restriction and implementation.restrict == "filter":
            command = [sys.executable, str(HERE / "restrict.py"), self.restriction, "--", *command]
        elif self.restriction:
            environment[implementation.restrict] = self.restriction
        side.output = Path(self.folder.name) / f"{side.link}.log"
        side.program = process.start_in(side.namespace, command, cpus=cpus, environment=environment, output=side.output)
        try:
            process.wait_until(
                f"link {side.link} with its UAPI socket",
                lambda: self._has_socket(side) and topology.has_link(side.namespace, side.link),
                10,
                alive=side.program,
            )
        except LabError as error:
            raise LabError(f"{error.what}: {side.told()}", where=implementation.name) from None

    def _has_socket(self, side: Side) -> bool:
        return self.implementation.kind == "raw" or (UAPI / f"{side.link}.sock").exists()

    def _configure(self) -> None:
        keys = self.keys
        sides = (
            (self.a, configuration(keys.private_a, keys.public_b, ["0.0.0.0/0"], WIRE_B), TUNNEL_A),
            (
                self.b,
                configuration(keys.private_b, keys.public_a, [f"{TUNNEL_A}/32", *self.place.behind_a], WIRE_A),
                TUNNEL_B,
            ),
        )
        for side, text, tunnel_address in sides:
            if self.implementation.kind != "raw":
                path = Path(self.folder.name) / f"{side.link}.conf"
                path.touch(mode=0o600)
                path.write_text(text)
                process.run_in(side.namespace, "wg", "setconf", side.link, str(path))
                path.unlink()
            topology.address(side.namespace, side.link, tunnel_address, 24, self.mtu)
        for network in self.place.behind_a:
            topology.route(self.b.namespace, network, link=self.b.link)

    def _wait(self) -> None:
        try:
            wait_for_answer(self.place.client, self.server)
        except LabError as error:
            raise LabError(f"{error}: {self.a.told()} {self.b.told()}".strip()) from None

    def programs(self) -> list[int]:
        """Process numbers of sides a and b; empty for what is in the kernel."""
        return [side.program.pid for side in (self.a, self.b) if side.program is not None]

    def check_alive(self) -> None:
        for side in (self.a, self.b):
            if side.program is not None and side.program.poll() is not None:
                raise LabError(f"ended with status {side.program.returncode}: {side.told()}", where=side.link)

    def close(self) -> None:
        for side in (self.a, self.b):
            if side.program is not None:
                process.stop(side.program)
                for left in (UAPI / f"{side.link}.sock",):  # what a program that crashed leaves behind
                    with contextlib.suppress(FileNotFoundError):
                        left.unlink()
        self.folder.cleanup()
