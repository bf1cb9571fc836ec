"""`task test:multihop`: tunnels nested in one another, and what each hop more costs.

    a                       h1                     h2                     h3
    iperf3 client           entry                  middle                 exit, iperf3 server

    192.0.2.1 ===wire1=== 192.0.2.2
                          198.51.100.1 ==wire2== 198.51.100.2
                                                 203.0.113.1 ==wire3== 203.0.113.2
    [mh1] 10.71.0.1 ~~~~~ 10.71.0.2
    [mh2] 10.72.0.1 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~ 10.72.0.2                    (two hops end here)
    [mh3] 10.73.0.1 ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ 10.73.0.2

On a, one engine runs one plan: mh3's outer packets go into mh2's tunnel, mh2's into mh1's (`detour`), and only the last
has a TUN. Each hop is a `fvd -f` that knows one peer and forwards: it cannot tell a nested tunnel from other traffic.
"""

import argparse
import base64
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lab import cells, implementations, impls, log, machine, process, topology
from lab.cells import Cell
from lab.errors import LabError
from lab.tunnel import PORT, UAPI, Pinning, configuration, make_keys, one_cpu_each, wait_for_answer

HOPS = 3
WIRE = (("192.0.2.1", "192.0.2.2"), ("198.51.100.1", "198.51.100.2"), ("203.0.113.1", "203.0.113.2"))
MTU = 1420
OVERHEAD = 60  # IPv4 20, UDP 8, WireGuard 32

PROFILES = impls.PROFILES


def hexadecimal(key: str) -> str:
    return base64.b64decode(key).hex()


def tunnel_address(hop: int, end: int) -> str:
    return f"10.{70 + hop}.0.{end}"


@dataclass
class Chain:
    """A chain that is up; what cells.measure wants of a tunnel."""

    place: topology.Place
    server: str
    pinning: Pinning
    mtu: int
    started: list[subprocess.Popen[str]] = field(default_factory=list)  # the engine on a, then the hops

    def programs(self) -> list[int]:
        return [self.started[0].pid, self.started[-1].pid]

    def check_alive(self) -> None:
        for program in self.started:
            if program.poll() is not None:
                raise LabError(f"ended with status {program.returncode}", where="multihop")


def plan(hops: int, names: Sequence[str], keys: Sequence[tuple[str, str]]) -> str:
    """Nested devices for a: hop i's private key and its peer's public key, in WireGuard's base64."""
    lines = ["plan=1", "needs=wireguard,multihop" if hops > 1 else "needs=wireguard", "", "[engine]", "workers=1", ""]
    for hop in range(1, hops + 1):
        private, public = keys[hop - 1]
        lines += [f"[wireguard {names[hop - 1]}]", f"mtu={MTU - OVERHEAD * (hop - 1)}"]
        lines += [f"detour={names[hop - 2]}"] if hop > 1 else []
        lines += [f"tun={'true' if hop == hops else 'false'}", f"source4={tunnel_address(hop, 1)}"]
        lines += [
            f"private_key={hexadecimal(private)}",
            f"listen_port={PORT + hop}",
            f"public_key={hexadecimal(public)}",
        ]
        lines += [f"endpoint={WIRE[hop - 1][1]}:{PORT}", "allowed_ip=0.0.0.0/0", ""]
    return "\n".join(lines)


def start_chain(stack: ExitStack, hops: int) -> Chain:
    """Everything is taken away when the stack is left."""
    network = stack.enter_context(topology.Network(f"{impls.PREFIX}-{os.getpid()}"))
    folder = Path(tempfile.mkdtemp(prefix="fv-multihop-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    spaces = [network.add(name) for name in ("a", "h1", "h2", "h3")[: hops + 1]]
    for index in range(hops):
        left, right = WIRE[index]
        network.wire(spaces[index], spaces[index + 1], f"wire{index + 1}", f"{left}/24", f"{right}/24")
    program = implementations.find(implementations.BY_NAME["fv"])
    if program is None:
        raise LabError("there is no fvd", where="multihop", hint="`task build`")
    pins = one_cpu_each(machine.cpus())
    names = [f"mh{hop}x{os.getpid()}" for hop in range(1, hops + 1)]
    pairs = [make_keys() for _ in range(hops)]
    chain = Chain(topology.Place(spaces[0], spaces[-1], spaces[0], spaces[-1], ()), tunnel_address(hops, 2), pins, 0)
    chain.mtu = MTU - OVERHEAD * (hops - 1)
    for hop in range(1, hops + 1):  # the exits first: the plan's handshakes then find them
        space, link, keys = spaces[hop], f"mhh{hop}x{os.getpid()}", pairs[hop - 1]
        cpus = pins.b if hop == hops else ()
        one = process.start_in(space, [str(program), "-f", link], cpus=cpus, output=folder / f"{link}.log")
        stack.callback(process.stop, one)
        chain.started.append(one)
        sock = UAPI / f"{link}.sock"
        process.wait_until(f"UAPI socket of hop {hop}", sock.exists, 10, alive=one)
        text = folder / f"{link}.conf"
        text.touch(mode=0o600)
        # The hop learns where the client is: from its point of view the tunnel's outer source is another address.
        allowed = [f"{tunnel_address(hop, 1)}/32"]
        text.write_text(configuration(keys.private_b, keys.public_a, allowed, None))
        process.run_in(space, "wg", "setconf", link, str(text))
        text.unlink()
        topology.address(space, link, tunnel_address(hop, 2), 24, MTU - OVERHEAD * (hop - 1))
        if hop < hops:
            process.run_in(space, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        if hop > 1:
            topology.route(space, f"{tunnel_address(hop - 1, 0)}/24", gateway=WIRE[hop - 1][0])
    file = folder / "plan"
    file.touch(mode=0o600)
    file.write_text(plan(hops, names, [(keys.private_a, keys.public_b) for keys in pairs]))
    told = folder / "plan.log"
    engine = process.start_in(spaces[0], [str(program), "--plan", str(file)], cpus=pins.a, output=told)
    stack.callback(process.stop, engine)
    chain.started.insert(0, engine)
    try:
        process.wait_until("interface", lambda: topology.has_link(spaces[0], names[-1]), 10, alive=engine)
    except LabError as error:
        raise LabError(f"{error}: {told.read_text()[-300:]}", where=f"{hops} hops") from None
    topology.address(spaces[0], names[-1], tunnel_address(hops, 1), 24, chain.mtu)
    try:
        wait_for_answer(spaces[0], chain.server)
    except LabError as error:
        raise LabError(f"{error}: {told.read_text()[-300:]}", where=f"{hops} hops") from None
    return chain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="quick")
    parser.add_argument("--hops", default="1,2,3", help="comma-separated, 1 to 3")
    parser.add_argument("--cells", default="rtt-idle,tcp1", help=f"comma-separated, of {', '.join(cells.BY_NAME)}")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--log", type=Path, default=log.DEFAULT)


def run_hops(hops: int, todo: Sequence[Cell], seconds: float) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    left = list(todo)
    try:
        with ExitStack() as stack:
            chain = start_chain(stack, hops)
            while left:
                fixed: dict[str, object] = {"date": impls.now(), "load": os.getloadavg()[0], "mtu": chain.mtu}
                fixed |= {"cell": left[0].name, "direction": left[0].direction, "streams": left[0].streams}
                fixed |= {"pinning": str(chain.pinning)}
                rows.append(fixed | {"status": "ok"} | cells.measure(chain, left[0], seconds))
                left.pop(0)
    except LabError as error:
        rows += [
            {
                "date": impls.now(),
                "cell": cell.name,
                "direction": cell.direction,
                "status": "failed",
                "error": str(error),
            }
            for cell in left
        ]
    return rows


def run(args: argparse.Namespace) -> int:
    profile = PROFILES[args.profile]
    samples, seconds = args.samples or profile.samples, args.seconds or profile.seconds
    chosen = [int(word) for word in impls.split(args.hops)]
    if not chosen or min(chosen) < 1 or max(chosen) > HOPS:
        raise LabError("hops are 1 to 3", where="--hops")
    topology.leftovers(impls.PREFIX)
    todo = cells.select(impls.split(args.cells))
    common = impls.common_columns("multihop", args, str(time.time_ns() // 1_000_000))
    common |= impls.identity(impls.Variant(implementations.BY_NAME["fv"], "1"))
    failures = 0
    for sample, hops in itertools.product(range(1, samples + 1), chosen):
        title = f"{hops} hop" + ("s" if hops > 1 else "")
        for row in run_hops(hops, todo, seconds):
            log.append(
                args.log, [common | {"sample": sample, "seconds": seconds, "topology": title, "hops": hops} | row]
            )
            print(f"{sample} {title:7} {row['cell']!s:10} {impls.describe(row)}", flush=True)
            failures += row["status"] != "ok"
    print(f"multihop: {failures} cells failed; log: {args.log}")
    return 1 if failures else 0
