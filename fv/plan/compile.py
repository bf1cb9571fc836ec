"""Configuration and facts about the host to a plan: a pure function. The same input gives the same bytes."""

import msgspec

from fv.config import values
from fv.config.check import device_name
from fv.config.load import Loaded
from fv.config.model import Config, WireGuardEndpoint, WireGuardPeer
from fv.errors import FvError
from fv.keys import clamp, parse_key
from fv.plan import network
from fv.plan.facts import Facts
from fv.plan.mtu import Mtu, mtus
from fv.plan.schema import FEATURES
from fv.plan.text import Line, Plan, Section

_LEVELS = {"trace": "debug", "debug": "debug", "info": "info", "warn": "warning", "error": "error", "fatal": "error",
           "panic": "error"}  # fmt: skip

_NAT_PREFIXES = 32  # of one [nat] section (native/flow/nat.h)


class Compiled(msgspec.Struct, frozen=True):
    plan: Plan
    mtus: tuple[Mtu, ...]
    warnings: tuple[str, ...]


def compile_plan(loaded: Loaded, facts: Facts) -> Compiled:
    config = loaded.config
    _fits_together(loaded)
    sizes = mtus(config.endpoints, facts)
    for index, endpoint in enumerate(config.endpoints):
        if sizes[endpoint.tag].value < 576:
            raise FvError(f"an MTU of {sizes[endpoint.tag].value} is left ({sizes[endpoint.tag].note})",
                          where=loaded.document.where(("endpoints", index)),
                          hint="fewer hops, or a larger link")  # fmt: skip
    chosen = network.policy(config)
    sections = [_engine(config)]
    sections += [_wireguard(config, endpoint, sizes[endpoint.tag], chosen) for endpoint in config.endpoints]
    sections += _nat(loaded, facts)
    kernel = network.lines(config, facts, sizes)
    if kernel:
        sections.append(Section("network", "", kernel))
    if config.engine.resolver:
        lines = tuple(Line("server", str(values.address(text))) for text in config.engine.resolver)
        sections.append(Section("resolver", "", lines))
    warnings = [f"{mtu.device}: {mtu.warning}" for mtu in sizes.values() if mtu.warning]
    return Compiled(Plan(_needs(sections), tuple(sections)), tuple(sizes.values()), (*warnings, *_warnings(config)))


def _needs(sections: list[Section]) -> tuple[str, ...]:
    types = {section.type for section in sections}
    if any(section.type == "wireguard" and section.get("detour") for section in sections):
        types.add("multihop")
    return tuple(word for word in FEATURES if word in types)


def _engine(config: Config) -> Section:
    engine = config.engine
    workers = engine.workers or max([endpoint.workers for endpoint in config.endpoints], default=0) or 1
    switch = config.gateway.kill_switch if config.gateway else None
    pairs = {
        "workers": str(workers),
        "cpu": ",".join(map(str, engine.cpu)),
        "nice": str(engine.nice),
        "memory": str(values.size(engine.memory)),
        "log_level": engine.log_level or _LEVELS[config.log.level],
        "log_format": engine.log_format,
        "state": engine.state,
        "control": engine.control,
        "feature_off": ",".join(engine.feature_off),
        "on_stop": switch.on_stop if switch else "open",
        # Without a kill switch there is nothing to leave behind.
        "on_crash": switch.on_crash if switch and switch.enabled else "open",
    }
    return Section("engine", "", tuple(Line(key, value) for key, value in pairs.items()))


def _wireguard(config: Config, endpoint: WireGuardEndpoint, mtu: Mtu, chosen: network.Policy | None) -> Section:
    by_tag = {other.tag: other for other in config.endpoints}
    own = [values.interface(text) for text in endpoint.address]
    source = {version: next((str(one.ip) for one in own if one.version == version), "") for version in (4, 6)}
    lines = [
        Line("mtu", str(mtu.value)),
        Line("detour", device_name(by_tag[endpoint.detour]) if endpoint.detour else ""),
        Line("tun", "true" if network.has_tun(config, endpoint) else "false"),
        Line("source4", source[4]),
        Line("source6", source[6]),
        Line("private_key", clamp(parse_key(endpoint.private_key)).hex()),
        Line("listen_port", str(endpoint.listen_port)),
        Line("fwmark", str(network.mark_of(endpoint, chosen))),
    ]
    for peer in endpoint.peers:
        lines += _peer(peer)
    return Section("wireguard", device_name(endpoint), tuple(lines))


def _peer(peer: WireGuardPeer) -> list[Line]:
    lines = [Line("public_key", parse_key(peer.public_key).hex())]
    if peer.pre_shared_key:
        lines.append(Line("preshared_key", parse_key(peer.pre_shared_key).hex()))
    if peer.address:
        host = values.host(peer.address)
        lines.append(Line("endpoint", f"[{host}]:{peer.port}" if ":" in host else f"{host}:{peer.port}"))
    keepalive = values.seconds(peer.persistent_keepalive_interval)
    if keepalive:
        lines.append(Line("persistent_keepalive_interval", str(keepalive)))
    return lines + [Line("allowed_ip", str(values.prefix(text))) for text in peer.allowed_ips]


def _nat(loaded: Loaded, facts: Facts) -> list[Section]:
    config = loaded.config
    gateway = config.gateway
    endpoint = network.gateway_endpoint(config)
    if gateway is None or endpoint is None or not gateway.nat or not gateway.lan:
        return []
    inside: list[values.Network] = []
    for word in gateway.lan:
        if values.is_prefix(word):
            inside.append(values.prefix(word))
        elif link := facts.link(word):
            # A link-local address never leaves its link.
            own = [values.interface(text) for text in link.addresses]
            inside += [one.network for one in own if not one.is_link_local]
    inside = network.narrowed(list(dict.fromkeys(inside)), [values.prefix(text) for text in gateway.sources])
    lines: list[Line] = []
    for version, key in ((4, "lan4"), (6, "lan6")):
        if version not in network.versions(endpoint):
            continue
        mine = [net for net in inside if net.version == version]
        if not mine and not inside:
            # The LAN's addresses are not known yet: whatever comes from there is translated.
            mine = [values.prefix("0.0.0.0/0" if version == 4 else "::/0")]
        lines += [Line(key, str(net)) for net in mine]
    if not lines:
        return []
    if len(lines) > _NAT_PREFIXES:
        raise FvError(f"{len(lines)} prefixes to translate; the engine takes {_NAT_PREFIXES}",
                      where=loaded.document.where(("gateway", "lan")), hint="name one that covers several")  # fmt: skip
    lines += [Line("entries", str(gateway.entries)), Line("mss", str(gateway.mss))]
    return [Section("nat", device_name(endpoint), tuple(lines))]


def _fits_together(loaded: Loaded) -> None:
    """What only the whole shows: destinations that no peer takes, default routes in two devices."""
    config = loaded.config
    endpoint = network.gateway_endpoint(config)
    if config.gateway and endpoint:
        taken = network.taken(endpoint)
        for index, text in enumerate(config.gateway.destinations):
            wanted = values.prefix(text)
            if not any(wanted.version == net.version and wanted.subnet_of(net) for net in taken):  # type: ignore[arg-type]
                raise FvError(f"no peer of {endpoint.tag!r} takes {wanted}",
                              where=loaded.document.where(("gateway", "destinations", index)),
                              hint="add it to that peer's allowed_ips")  # fmt: skip
        return
    whole = [index for index, one in enumerate(config.endpoints) if network.needs_policy(config, one)]
    if len(whole) > 1:
        raise FvError("two endpoints take everything (0.0.0.0/0 or ::/0), or a peer's own address",
                      where=loaded.document.where(("endpoints", whole[1], "peers")),
                      hint='set routes = "off" in one of them')  # fmt: skip


def _warnings(config: Config) -> list[str]:
    out = []
    endpoint = network.gateway_endpoint(config)
    gateway = config.gateway
    if gateway and endpoint and 6 not in network.versions(endpoint) and not gateway.kill_switch.enabled:
        out.append(f"{endpoint.tag}: no IPv6 address and no kill switch: the LAN's IPv6 leaves beside the tunnel")
    return out
