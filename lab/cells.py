"""What is run through a tunnel, and what is read meanwhile."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lab import machine, process
from lab.errors import LabError
from lab.process import Cpu
from lab.topology import Place
from lab.tunnel import Pinning

IPERF_PORT = 5201
PING_EVERY = 0.02  # seconds: 50 packets a second are nothing to the load and give a p99 in a few seconds


class Running(Protocol):
    """What a cell needs to know of the tunnel it runs through (tunnel.Tunnel, multihop.Chain)."""

    place: Place
    server: str
    pinning: Pinning

    def programs(self) -> list[int]:
        """Process numbers of sides a and b; empty for what is in the kernel."""

    def check_alive(self) -> None:
        """Raises LabError when a program has ended."""


@dataclass(frozen=True)
class Cell:
    name: str
    direction: str  # up: client to server; down: server to client
    streams: int = 0  # 0: no load, round trips only
    udp_payload: int = 0  # bytes of a datagram; 0: TCP


CELLS = (
    Cell("rtt-idle", "up"),
    Cell("tcp1-up", "up", 1),
    Cell("tcp1-down", "down", 1),
    Cell("tcp8-up", "up", 8),
    Cell("tcp8-down", "down", 8),
    Cell("udp64-up", "up", 1, 64),
    Cell("udp64-down", "down", 1, 64),
)

BY_NAME = {cell.name: cell for cell in CELLS}


def select(words: Sequence[str]) -> list[Cell]:
    """Cells by name, or by the part before the dash ("tcp1": both directions)."""
    chosen = [cell for cell in CELLS if not words or cell.name in words or cell.name.partition("-")[0] in words]
    for word in words:
        if not any(cell.name == word or cell.name.partition("-")[0] == word for cell in CELLS):
            raise LabError(f"no cell is called {word}", where="--cells", hint=", ".join(BY_NAME))
    return chosen


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def listens(pid: int, port: int) -> bool:
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":  # LISTEN
                return True
    return False


@dataclass(frozen=True)
class Load:
    """What iperf3 counted."""

    bits: float  # received
    mbit_s: float
    retransmits: int | None = None
    packets_s: float | None = None
    loss_pct: float | None = None


def understand(text: str, cell: Cell) -> Load:
    """iperf3's JSON as the receiver counted."""
    try:
        report = json.loads(text)
    except json.JSONDecodeError:
        raise LabError(f"iperf3 said {text.strip()[:200]!r}", where=cell.name) from None
    if "error" in report:
        raise LabError(f"iperf3: {report['error']}", where=cell.name)
    end = report["end"]
    received = end["sum_received"]
    if received["bytes"] <= 0 or received["seconds"] <= 0:
        raise LabError("iperf3: nothing arrived", where=cell.name)
    bits = received["bytes"] * 8.0
    mbit_s = bits / received["seconds"] / 1e6
    if cell.udp_payload == 0:
        return Load(bits, mbit_s, retransmits=end["sum_sent"].get("retransmits"))
    return Load(
        bits,
        mbit_s,
        packets_s=received["bytes"] / cell.udp_payload / received["seconds"],
        loss_pct=received["lost_percent"],
    )


def iperf(tunnel: Running, cell: Cell, seconds: float) -> Load:
    place = tunnel.place
    server_command = ["iperf3", "-s", "-1", "-p", str(IPERF_PORT), "--forceflush"]
    server = process.start_in(place.server, server_command, cpus=tunnel.pinning.load_b)
    try:
        process.wait_until("iperf3 server", lambda: listens(server.pid, IPERF_PORT), 10, alive=server)
        command = ["iperf3", "-J", "-c", tunnel.server, "-p", str(IPERF_PORT), "-t", f"{seconds:g}"]
        command += ["-P", str(cell.streams)] if cell.streams > 1 else []
        command += ["-R"] if cell.direction == "down" else []
        command += ["-u", "-b", "0", "-l", str(cell.udp_payload)] if cell.udp_payload else []
        client = process.start_in(place.client, command, cpus=tunnel.pinning.load_a)
        try:
            output, _ = client.communicate(timeout=seconds * 2 + 20)
        except subprocess.TimeoutExpired:
            raise LabError(f"iperf3 did not end within {seconds * 2 + 20:g} s", where=cell.name) from None
        finally:
            process.stop(client)
        return understand(output, cell)
    finally:
        process.stop(server)


def measure(tunnel: Running, cell: Cell, seconds: float) -> dict[str, object]:
    """One sample: columns of the log. Raises LabError when it cannot be had."""
    pids = tunnel.programs()
    for pid in pids:
        process.reset_peak(pid)
    before = [process.cpu(pid) for pid in pids]
    busy, stolen = machine.busy_seconds()
    ping_seconds = max(1.0, seconds - 1.0)  # inside the load, which takes a moment to start and to end
    ping_command = [sys.executable, str(Path(__file__).with_name("ping.py")), tunnel.server]
    ping_command += ["--every", f"{PING_EVERY:g}", "--seconds", f"{ping_seconds:g}"]
    pinger = process.start_in(tunnel.place.client, ping_command, cpus=tunnel.pinning.load_a)
    try:
        load = iperf(tunnel, cell, seconds) if cell.streams else None
        output, _ = pinger.communicate(timeout=ping_seconds + 10)
    finally:
        process.stop(pinger)
    tunnel.check_alive()
    busy_after, stolen_after = machine.busy_seconds()
    row: dict[str, object] = {"stolen_s": stolen_after - stolen}
    for side, pid, earlier in zip("ab", pids, before, strict=False):
        row |= side_columns(side, pid, process.cpu(pid) - earlier, load)
    round_trips = json.loads(output)["us"] if output.strip() else []
    if round_trips:
        row["rtt_p50_us"] = percentile(round_trips, 0.5)
        row["rtt_p99_us"] = percentile(round_trips, 0.99)
    row["rtt_samples"] = len(round_trips)
    if load is not None:
        row["mbit_s"] = load.mbit_s
        row["packets_s"] = load.packets_s
        row["loss_pct"] = load.loss_pct
        row["retransmits"] = load.retransmits
        row["machine_s_gbit"] = (busy_after - busy) / (load.bits / 1e9)
    elif not round_trips:
        raise LabError("no answer to any echo request", where=cell.name)
    return row


def side_columns(side: str, pid: int, spent: Cpu, load: Load | None) -> dict[str, object]:
    used = process.memory(pid)
    row: dict[str, object] = {
        f"{side}_peak_kib": used.peak_kib,
        f"{side}_anonymous_kib": used.anonymous_kib,
        f"{side}_file_kib": used.file_kib,
        f"{side}_threads": process.threads(pid),
    }
    if load is not None:
        row[f"{side}_user_s_gbit"] = spent.user / (load.bits / 1e9)
        row[f"{side}_system_s_gbit"] = spent.system / (load.bits / 1e9)
    return row
