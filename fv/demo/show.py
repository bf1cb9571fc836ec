"""The demo for the eye: the topology in text, one sample a second as a table or as a line."""

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fv.demo import net
from fv.units import age, rate, size


class Engine(msgspec.Struct, frozen=True):
    name: str
    cpu: float  # of one CPU, 0..1 and above with several workers
    cpu_seconds: float
    resident: int
    peak: int


class Sample(msgspec.Struct, frozen=True):
    elapsed: float
    rate: float  # bits per second of payload, as the client sees it
    total: int  # bytes
    handshake: float | None  # age in seconds
    engines: tuple[Engine, ...]


def topology(gateway_key: str, exit_key: str) -> str:
    boxes = (
        (net.CLIENT, ["the LAN's host", "", net.CLIENT_ADDRESS]),
        (net.GATEWAY, ["fvd", "source NAT, kill switch", f"tunnel {net.GATEWAY_TUNNEL}"]),
        (net.EXIT, ["fvd", "", f"tunnel {net.EXIT_TUNNEL}"]),
        (net.WEB, ["web server", "", net.WEB_ADDRESS]),
    )
    wires = ("──", "═ WireGuard ═", "──")
    rows = [_row(boxes, wires, number) for number in range(6)]
    lines = "\n".join(f"  {row}".rstrip() for row in rows)
    wan = f"{net.GATEWAY_WAN} to {net.EXIT_WAN}"
    return (
        f"\n{lines}\n\n"
        f"  LAN {net.LAN}, uplink {wan}, web server's network knows no way back to the LAN\n"
        f"  keys made now, gone at the end: gateway {gateway_key}\n"
        f"                                  exit    {exit_key}\n"
    )


def _row(boxes: tuple[tuple[str, list[str]], ...], wires: tuple[str, ...], number: int) -> str:
    """Row 0 has the names, 1 and 5 the lids, the wires leave at row 3."""
    out = ""
    for place, (name, lines) in enumerate(boxes):
        width = max(len(name), *map(len, lines)) + 2
        middle = number == 3
        left, right = ("┤" if middle and place else "│"), ("├" if middle and place < len(wires) else "│")
        out += {
            0: f" {name:<{width}} ",
            1: "┌" + "─" * width + "┐",
            5: "└" + "─" * width + "┘",
        }.get(number) or f"{left} {lines[number - 2]:<{width - 2}} {right}"
        if place < len(wires):
            out += wires[place] if middle else " " * len(wires[place])
    return out


def plain(sample: Sample) -> str:
    parts = [f"{sample.elapsed:5.0f} s", f"{rate(sample.rate):>13}", f"{size(sample.total):>11}"]
    parts.append(f"handshake {age(sample.handshake)} ago" if sample.handshake is not None else "no handshake")
    parts += [f"{one.name} {one.cpu:4.0%} CPU {size(one.resident)}" for one in sample.engines]
    return "  ".join(parts)


def live(sample: Sample, ends: str) -> Group:
    line = Text()
    line.append(f"{rate(sample.rate)}", style="bold")
    line.append(f" through the tunnel, {size(sample.total)} in {sample.elapsed:.0f} s")
    line.append(f", handshake {age(sample.handshake)} ago" if sample.handshake is not None else ", no handshake yet")
    table = Table(box=None, pad_edge=False)
    for column in ("engine", "CPU", "CPU time", "memory", "at most"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for one in sample.engines:
        table.add_row(one.name, f"{one.cpu:.0%}", f"{one.cpu_seconds:.1f} s", size(one.resident), size(one.peak))
    return Group(line, table, Text(ends, style="dim"))
