"""`fv status`: devices and peers from WireGuard's protocol, the engine from its control socket."""

import contextlib
import time

import click
import msgspec
from rich.console import Console
from rich.table import Table

from fv import uapi
from fv.errors import FvError
from fv.keys import show_key
from fv.plan.text import Plan, read
from fv.units import age, size

CONTROL = "/run/fv/fv.sock"


@click.command()
@click.option("--control", default=CONTROL, show_default=True, help="The engine's control socket.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def command(control: str, as_json: bool) -> None:
    """Show the engine, its devices and their peers."""
    statistics = uapi.stats(control)
    plan = read(uapi.plan_in_force(control), control)
    devices = [_device(section.name) for section in plan.of("wireguard")]
    known = [device for device in devices if device is not None]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(_plain(statistics, known, time.time())), indent=2).decode())
        return
    console = Console(highlight=False)
    _engine(console, statistics, plan)
    for section, device in zip(plan.of("wireguard"), devices, strict=True):
        if device is None:
            console.print(f"{section.name}: no configuration socket", markup=False)
        else:
            _peers(console, device, time.time())
    drops = {key: value for key, value in statistics.items() if "drop" in key and value != "0"}
    if drops:
        table = Table(title="dropped", title_justify="left", box=None)
        table.add_column("why")
        table.add_column("packets", justify="right")
        for key, value in drops.items():
            table.add_row(key, value)
        console.print(table)


def _device(name: str) -> uapi.Device | None:
    with contextlib.suppress(FvError):
        return uapi.device(name)
    return None


def _engine(console: Console, statistics: dict[str, str], plan: Plan) -> None:
    number = {key: int(value) for key, value in statistics.items() if value.isdigit()}
    parts = [f"fvd {statistics.get('version', '')}"]
    if "uptime_ms" in number:
        parts.append(f"up {age(number['uptime_ms'] / 1000)}")
    if "cpu_user_ms" in number:
        parts.append(f"{(number['cpu_user_ms'] + number.get('cpu_system_ms', 0)) / 1000:.1f} s CPU")
    if "resident" in number:
        parts.append(f"{size(number['resident'])} resident ({size(number.get('resident_peak', 0))} at most)")
    if "lease_taken" in number:
        parts.append(f"leases {size(number['lease_taken'])} of {size(number.get('lease_limit', 0))}")
    parts.append(f"{len(plan.of('wireguard'))} devices")
    console.print(", ".join(parts), markup=False)


def _peers(console: Console, device: uapi.Device, now: float) -> None:
    title = f"{device.name}, port {device.listen_port}" if device.listen_port else device.name
    table = Table(title=title, title_justify="left", box=None)
    for column in ("peer", "endpoint", "handshake", "received", "sent", "allowed"):
        right = column in ("received", "sent")
        # A key that is cut is of no use.
        table.add_column(
            column, justify="right" if right else "left", no_wrap=column == "peer" or right, overflow="fold"
        )
    for peer in device.peers:
        table.add_row(
            show_key(bytes.fromhex(peer.public_key)),
            peer.endpoint or "-",
            f"{age(max(0.0, now - peer.handshake))} ago" if peer.handshake else "never",
            size(peer.received),
            size(peer.sent),
            ", ".join(peer.allowed_ips) or "-",
        )
    console.print(table)


def _plain(statistics: dict[str, str], devices: list[uapi.Device], now: float) -> dict[str, object]:
    """Numbers as numbers; keys in base64, as everywhere that users see them."""
    return {
        "engine": {key: int(value) if value.isdigit() else value for key, value in statistics.items()},
        "devices": [
            {
                "name": device.name,
                "listen_port": device.listen_port,
                "fwmark": device.fwmark,
                "peers": [
                    {
                        "public_key": show_key(bytes.fromhex(peer.public_key)),
                        "endpoint": peer.endpoint or None,
                        "allowed_ips": list(peer.allowed_ips),
                        "handshake_age": round(now - peer.handshake, 1) if peer.handshake else None,
                        "received": peer.received,
                        "sent": peer.sent,
                        "persistent_keepalive_interval": peer.keepalive,
                        "preshared_key": peer.has_psk,
                    }
                    for peer in device.peers
                ],
            }
            for device in devices
        ],
    }
