"""How large an inner packet may be, worked out from the way that its outer packet takes.

outer = inner padded to 16 but never beyond the MTU, + 32 (WireGuard: header 16, tag 16) + 8 (UDP) + 40 (IPv6) or 20
(IPv4). So MTU = link - 80, whatever family the peer roams to; link - 60 only where the owner says that it is IPv4 for
good.
A tunnel inside a tunnel starts from its carrier's MTU. PPPoE needs no rule of its own: its link says 1492.
"""

import ipaddress

import msgspec

from fv.config import values
from fv.config.check import device_name
from fv.config.model import WireGuardEndpoint
from fv.plan.facts import Facts, Route

WIREGUARD = 32
UDP = 8
IPV6 = 40
IPV4 = 20
ETHERNET = 1500
LARGEST = 65535  # of an outer packet: a loopback link's 65536 cannot be filled
IPV6_LEAST = 1280  # RFC 8200 section 5


class Mtu(msgspec.Struct, frozen=True):
    """One device's arithmetic. `note` is for the reader."""

    device: str
    value: int
    note: str
    warning: str = ""


def mtus(endpoints: tuple[WireGuardEndpoint, ...], facts: Facts) -> dict[str, Mtu]:
    """By tag. Detours are known to form no circle."""
    by_tag = {endpoint.tag: endpoint for endpoint in endpoints}
    done: dict[str, Mtu] = {}

    def work(endpoint: WireGuardEndpoint) -> Mtu:
        if endpoint.tag not in done:
            carrier = work(by_tag[endpoint.detour]) if endpoint.detour else None
            done[endpoint.tag] = _one(endpoint, carrier, facts)
        return done[endpoint.tag]

    for endpoint in endpoints:
        work(endpoint)
    return {endpoint.tag: done[endpoint.tag] for endpoint in endpoints}


def _one(endpoint: WireGuardEndpoint, carrier: Mtu | None, facts: Facts) -> Mtu:
    device = device_name(endpoint)
    ip = IPV4 if endpoint.mtu == "ipv4" else IPV6
    below = ip + UDP + WIREGUARD
    if carrier is not None:
        room, way = carrier.value, f"{carrier.device} {carrier.value}"
    else:
        room, way = min((_room(target, facts) for target in _targets(endpoint, facts)), key=lambda found: found[0])
    worked_out = min(room, LARGEST) - below
    family = "IPv4" if ip == IPV4 else "IPv6"
    arithmetic = f"{way} - {below} ({family} {ip} + UDP {UDP} + WireGuard {WIREGUARD}) = {worked_out}"
    if isinstance(endpoint.mtu, int):
        note = f"set to {endpoint.mtu}; worked out: {arithmetic}"
        warning = ""
        if endpoint.mtu > min(room, LARGEST) - (IPV4 + UDP + WIREGUARD):
            warning = f"mtu {endpoint.mtu} does not fit: large packets will be fragmented or lost; take mtu out"
        return Mtu(device, endpoint.mtu, note, warning or _small(endpoint, endpoint.mtu))
    return Mtu(device, worked_out, arithmetic, _small(endpoint, worked_out))


def _small(endpoint: WireGuardEndpoint, mtu: int) -> str:
    has_v6 = any(values.interface(text).version == 6 for text in endpoint.address)
    return f"IPv6 needs {IPV6_LEAST}: {mtu} turns it off on the interface" if has_v6 and mtu < IPV6_LEAST else ""


def _targets(endpoint: WireGuardEndpoint, facts: Facts) -> list[str]:
    """Addresses of the peers; an empty string stands for a peer that comes by the default route, or from anywhere."""
    out: list[str] = []
    for peer in endpoint.peers:
        if not peer.address:
            continue
        host = values.host(peer.address)
        out += facts.names.get(host) or ([host] if _literal(host) else [""])
    return out or [""]


def _literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _room(target: str, facts: Facts) -> tuple[int, str]:
    route = route_to(target, facts)
    toward = f" toward {target}" if target else ""
    if route is None:
        return ETHERNET, f"no route{toward}, an Ethernet {ETHERNET}"
    link = facts.link(route.dev)
    room = route.mtu or (link.mtu if link else ETHERNET)
    return room, f"{route.dev} {room}{' (of the route)' if route.mtu else ''}{toward}"


def route_to(target: str, facts: Facts) -> Route | None:
    """The main table's answer: the longest prefix, then the lowest metric. Without a target, the default route."""
    if not target:
        defaults = [route for route in facts.routes if route.prefix.endswith("/0")]
        return min(defaults, key=lambda route: (":" in route.prefix, route.metric), default=None)
    address = ipaddress.ip_address(target.partition("%")[0])
    fitting = [(net, route) for route in facts.routes if address in (net := values.prefix(route.prefix))]
    best = min(fitting, key=lambda found: (-found[0].prefixlen, found[1].metric), default=None)
    return best[1] if best else None
