"""The [network] section: what the kernel is told so that the right packets enter the tunnels, and no others.

                              rule (priority)           table
    the engine's own packets  fwmark        (P)         main
    what the policy takes     same as below (P + 5)     main, but not its default route: neighbours stay neighbours
    what the policy takes     iif/from/not  (P + 10)    fv's own: the tunnel's routes, and below them at a higher
                              fwmark                    metric `unreachable`: the kill switch

The kill switch comes first and goes last, so that there is no moment in which the policy's traffic could leave by main.
A tunnel without a policy adds the routes of its peers to main, as wg-quick does; when one of them is a default route,
the whole host's traffic is the policy.
"""

import ipaddress

import msgspec

from fv.config import values
from fv.config.check import device_name
from fv.config.model import Config, Gateway, WireGuardEndpoint
from fv.plan.facts import Facts
from fv.plan.mtu import Mtu, route_to
from fv.plan.text import Line

TUNNEL_METRIC = 10
KILL_SWITCH_METRIC = 4096
MARK = 51820  # fwmark of the outer packets and number of fv's table where there is no [gateway] to say so
TABLE = 51820
PRIORITY = 5200


class Policy(msgspec.Struct, frozen=True):
    """What goes into which device."""

    endpoint: WireGuardEndpoint
    selectors: tuple[str, ...]  # words of `ip rule`
    destinations: tuple[values.Network, ...]  # empty: all that the peers take
    kill_switch: bool
    whole_host: bool
    forwards: bool
    table: int = TABLE
    mark: int = MARK
    priority: int = PRIORITY


def is_carrier(config: Config, endpoint: WireGuardEndpoint) -> bool:
    return any(other.detour == endpoint.tag for other in config.endpoints)


def has_tun(config: Config, endpoint: WireGuardEndpoint) -> bool:
    """A device that only carries another needs no interface, unless the owner asks for one (`system`, `name`)."""
    chosen = config.gateway is not None and config.gateway.endpoint == endpoint.tag
    return chosen or endpoint.system or bool(endpoint.name) or not is_carrier(config, endpoint)


def gateway_endpoint(config: Config) -> WireGuardEndpoint | None:
    if config.gateway is None:
        return None
    if config.gateway.endpoint:
        return next(e for e in config.endpoints if e.tag == config.gateway.endpoint)
    return next(e for e in config.endpoints if not is_carrier(config, e))


def taken(endpoint: WireGuardEndpoint) -> list[values.Network]:
    """What the peers of an endpoint take, in the order written, without repeats."""
    return list(dict.fromkeys(values.prefix(text) for peer in endpoint.peers for text in peer.allowed_ips))


def versions(endpoint: WireGuardEndpoint) -> set[int]:
    return {values.interface(text).version for text in endpoint.address}


def policy(config: Config) -> Policy | None:
    gateway = config.gateway
    endpoint = gateway_endpoint(config)
    if gateway is not None and endpoint is not None:
        mark = _own_mark(config, endpoint) or gateway.mark
        return Policy(
            endpoint,
            _selectors(gateway, mark),
            tuple(values.prefix(text) for text in gateway.destinations),
            gateway.kill_switch.enabled,
            gateway.everything,
            bool(gateway.lan),
            gateway.table,
            mark,
            gateway.priority,
        )
    for endpoint in config.endpoints:
        if needs_policy(config, endpoint):
            mark = _own_mark(config, endpoint) or MARK
            return Policy(endpoint, (f"not fwmark {mark:#x}",), (), False, True, False, mark=mark)
    return None


def _own_mark(config: Config, endpoint: WireGuardEndpoint) -> int:
    """The mark that the owner gave to the endpoint whose packets leave on a socket; 0: none."""
    by_tag = {other.tag: other for other in config.endpoints}
    while endpoint.detour:
        endpoint = by_tag[endpoint.detour]
    return values.mark(endpoint.routing_mark)


def needs_policy(config: Config, endpoint: WireGuardEndpoint) -> bool:
    """Whether its routes must not stand in main: a default route would take the host's whole way out, and a route over
    a peer's own address would take the tunnel's outer packets into the tunnel."""
    if endpoint.routes != "auto" or not has_tun(config, endpoint):
        return False
    outer = [address for peer in endpoint.peers if (address := _literal(peer.address)) is not None]
    return any(net.prefixlen == 0 or any(address in net for address in outer) for net in taken(endpoint))


def _selectors(gateway: Gateway, mark: int) -> tuple[str, ...]:
    if gateway.everything:
        return (f"not fwmark {mark:#x}",)
    sources = [values.prefix(text) for text in gateway.sources]
    out: list[str] = []
    for word in gateway.lan:
        if not values.is_prefix(word):
            out += [f"iif {word}"] if not sources else [f"from {source} iif {word}" for source in sources]
            continue
        for network in narrowed([values.prefix(word)], sources):
            out.append(f"from {network}")
    return tuple(dict.fromkeys(out))


def narrowed(networks: list[values.Network], to: list[values.Network]) -> list[values.Network]:
    """The common part of two sets of prefixes; all of the first when the second says nothing."""
    if not to:
        return networks
    out: list[values.Network] = []
    for one in networks:
        for other in to:
            if one.version == other.version and one.overlaps(other):
                out.append(one if one.prefixlen >= other.prefixlen else other)
    return list(dict.fromkeys(out))


def lines(config: Config, facts: Facts, mtus: dict[str, Mtu]) -> tuple[Line, ...]:
    chosen = policy(config)
    out: list[Line] = []
    if chosen is not None:
        out += _sysctls(chosen, facts)
        out += _kill_switch(chosen)
    devices = [endpoint for endpoint in config.endpoints if has_tun(config, endpoint)]
    for endpoint in devices:
        name = device_name(endpoint)
        out.append(Line("link", f"{name} mtu {mtus[endpoint.tag].value} up"))
        out += [Line("address", f"{values.interface(text)} dev {name}") for text in endpoint.address]
    for endpoint in devices:
        if chosen is not None and endpoint.tag == chosen.endpoint.tag:
            out += _policy_routes(chosen)
        else:
            out += _plain_routes(endpoint)
    if chosen is not None:
        out += _rules(config, chosen)
    return tuple(out)


def _sysctls(chosen: Policy, facts: Facts) -> list[Line]:
    out: list[Line] = []
    if chosen.forwards:
        out.append(Line("sysctl", "net.ipv4.ip_forward=1"))
        if facts.ipv6 and 6 in versions(chosen.endpoint):
            # Forwarding makes a host deaf to router advertisements, its own uplink's too, unless accept_ra is 2.
            out += [Line("sysctl", f"net.ipv6.conf.{_slashed(name)}.accept_ra=2") for name in _heard(facts)]
            out.append(Line("sysctl", "net.ipv6.conf.all.forwarding=1"))
    if chosen.whole_host:
        # The way back to a peer is looked up without the mark, so it is the tunnel: strict filtering drops the answer.
        uplinks = dict.fromkeys(route.dev for route in (route_to(t, facts) for t in _outer(chosen, facts)) if route)
        filtering = [name for name in uplinks if facts.reverse.get(name)]
        out += [Line("sysctl", f"net.ipv4.conf.{_slashed(name)}.rp_filter=2") for name in filtering]
    return out


def _heard(facts: Facts) -> list[str]:
    """The interfaces whose default route may come from an advertisement."""
    uplinks = dict.fromkeys(route.dev for route in facts.routes if route.prefix == "::/0")
    return [name for name in uplinks if facts.accept_ra.get(name)]


def _outer(chosen: Policy, facts: Facts) -> list[str]:
    return [address for peer in chosen.endpoint.peers for address in _addresses(peer.address, facts)] or [""]


def _addresses(host: str, facts: Facts) -> list[str]:
    literal = _literal(host)
    return [str(literal)] if literal is not None else list(facts.names.get(host, ("",)))


def _literal(host: str) -> values.Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _slashed(name: str) -> str:
    """sysctl's own way to write an interface name that holds dots."""
    return name.replace(".", "/")


def _kill_switch(chosen: Policy) -> list[Line]:
    if not chosen.kill_switch:
        return []
    where = f"table {chosen.table} metric {KILL_SWITCH_METRIC}"
    return [Line("route", f"unreachable {target} {where}") for target in map(str, chosen.destinations or ("default",))]


def _policy_routes(chosen: Policy) -> list[Line]:
    name = device_name(chosen.endpoint)
    wanted = list(chosen.destinations) or taken(chosen.endpoint)
    out = [Line("sysctl", f"net.ipv4.conf.{_slashed(name)}.rp_filter=2")] if 4 in versions(chosen.endpoint) else []
    return out + [
        Line("route", f"{network} dev {name} table {chosen.table} metric {TUNNEL_METRIC}")
        for network in wanted
        if network.version in versions(chosen.endpoint)
    ]


def _plain_routes(endpoint: WireGuardEndpoint) -> list[Line]:
    """As wg-quick's Table: what the peers take goes to main, or to a table of the owner's, or nowhere."""
    if endpoint.routes == "off":
        return []
    table = "" if endpoint.routes == "auto" else f" table {endpoint.routes}"
    own = [values.interface(text).network for text in endpoint.address]
    return [
        Line("route", f"{network} dev {device_name(endpoint)}{table}")
        for network in taken(endpoint)
        # The kernel has made the route of the device's own network; a default route is a policy's business.
        if network.version in versions(endpoint)
        and (table or not any(network.version == net.version and network.subnet_of(net) for net in own))  # type: ignore[arg-type]
        and (table or network.prefixlen > 0)
    ]


def _rules(config: Config, chosen: Policy) -> list[Line]:
    out = [Line("rule", f"priority {chosen.priority} fwmark {mark:#x} table main") for mark in _marks(config, chosen)]
    # With everything in the tunnel there is one rule for all neighbours; a LAN's neighbours are the LAN's.
    near = ("",) if chosen.whole_host else tuple(f"{selector} " for selector in chosen.selectors)
    out += [Line("rule", f"priority {chosen.priority + 5} {words}table main suppress_prefixlength 0") for words in near]
    out += [Line("rule", f"priority {chosen.priority + 10} {words} table {chosen.table}") for words in chosen.selectors]
    return out


def _marks(config: Config, chosen: Policy) -> list[int]:
    return list(dict.fromkeys(mark_of(endpoint, chosen) for endpoint in config.endpoints if not endpoint.detour))


def mark_of(endpoint: WireGuardEndpoint, chosen: Policy | None) -> int:
    """The outer packets' mark. A device that is carried has no outer packets on any socket; it gets the mark all the
    same, because the engine's resolver takes the first device's."""
    own = 0 if endpoint.detour else values.mark(endpoint.routing_mark)
    return own or (chosen.mark if chosen else 0)
