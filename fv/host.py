"""What this host looks like, read by pyroute2 and from /proc: the edge of the compiler and of `fv doctor`."""

import contextlib
import errno
import pathlib
import socket
import threading
import time
from collections.abc import Callable

from pyroute2 import IPRoute, NetlinkError  # type: ignore[import-untyped]

from fv.config import values
from fv.config.model import Config
from fv.errors import FvError
from fv.plan.facts import Facts, Link, Route

MAIN = 254
LOOK_UP = 3.0  # seconds
PROTOCOL = 157  # routing protocol number of what the engine sets (native/io/netlink.h)
ANY4 = "0.0.0.0"  # noqa: S104 - a destination, nothing is bound


def gather(config: Config, *, resolve: bool = True) -> Facts:
    """The host as the compiler wants it. `resolve` looks endpoint host names up, for the MTU toward them."""
    try:
        with IPRoute() as netlink:
            links = _links(netlink)
            routes = _routes(netlink, {index: link.name for index, link in links.items()})
    except OSError as error:
        raise FvError(f"netlink refuses to answer: {error.strerror}") from None
    names = sorted({peer.address for endpoint in config.endpoints for peer in endpoint.peers if peer.address})
    return Facts(
        links=tuple(links.values()),
        routes=routes,
        names=_look_up(names) if resolve else {},
        reverse={link.name: _effective(link.name, "rp_filter") for link in links.values()},
        accept_ra={link.name: _number(sysctl(f"net/ipv6/conf/{link.name}/accept_ra")) for link in links.values()},
        ipv6=has_ipv6(),
    )


def has_ipv6() -> bool:
    return pathlib.Path("/proc/net/if_inet6").exists()


def sysctl(path: str) -> str:
    """A value below /proc/sys; empty where there is none."""
    try:
        return (pathlib.Path("/proc/sys") / path).read_text().strip()
    except OSError:
        return ""


def _effective(name: str, knob: str) -> int:
    """rp_filter counts as the larger of `all` and the interface's own (ip-sysctl.rst)."""
    return max(_number(sysctl(f"net/ipv4/conf/{part}/{knob}")) for part in ("all", name))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _look_up(names: list[str]) -> dict[str, tuple[str, ...]]:
    """Addresses of host names, side by side, within LOOK_UP seconds: at boot there may be no name server yet, and the
    engine resolves for itself; here it is only for the MTU."""
    found: dict[str, tuple[str, ...]] = {}

    def one(name: str) -> None:
        with contextlib.suppress(OSError, UnicodeError):
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
            found[name] = tuple(dict.fromkeys(str(entry[4][0]) for entry in answers))

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names if not _is_address(name)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LOOK_UP
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return dict(sorted(found.items()))


def _is_address(name: str) -> bool:
    try:
        values.address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _links(netlink: IPRoute) -> dict[int, Link]:
    addresses: dict[int, list[str]] = {}
    for message in netlink.get_addr():
        text = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
        addresses.setdefault(message["index"], []).append(f"{text}/{message['prefixlen']}")
    out = {}
    for message in netlink.get_links():
        info = message.get_attr("IFLA_LINKINFO")
        out[message["index"]] = Link(
            str(message.get_attr("IFLA_IFNAME")),
            int(message.get_attr("IFLA_MTU")),
            str(info.get_attr("IFLA_INFO_KIND") or "") if info else "",
            tuple(addresses.get(message["index"], ())),
        )
    return out


def _routes(netlink: IPRoute, names: dict[int, str]) -> tuple[Route, ...]:
    out = []
    for family, everything in ((socket.AF_INET, ANY4), (socket.AF_INET6, "::")):
        for message in netlink.get_routes(family=family, table=MAIN):
            device = message.get_attr("RTA_OIF")
            hops = message.get_attr("RTA_MULTIPATH")
            if device is None and hops:
                device = hops[0]["oif"]
            if device not in names or message["type"] != 1:  # RTN_UNICAST: the others lead nowhere
                continue
            metrics = message.get_attr("RTA_METRICS")
            out.append(
                Route(
                    f"{message.get_attr('RTA_DST') or everything}/{message['dst_len']}",
                    names[device],
                    str(message.get_attr("RTA_GATEWAY") or ""),
                    int(metrics.get_attr("RTAX_MTU") or 0) if metrics else 0,
                    int(message.get_attr("RTA_PRIORITY") or 0),
                )
            )
    return tuple(out)


def remove_leftovers(tables: tuple[int, ...], priorities: tuple[int, ...]) -> int:
    """Rules, then routes, of fv's own protocol number at these priorities and in these tables. Returns how many."""
    count = 0
    with IPRoute() as netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            for rule in netlink.get_rules(family=family):
                if rule.get_attr("FRA_PROTOCOL") == PROTOCOL and rule.get_attr("FRA_PRIORITY") in priorities:
                    count += _removed(netlink.rule, rule)
            for route in netlink.get_routes(family=family):
                if route["proto"] == PROTOCOL and route.get_attr("RTA_TABLE") in tables:
                    count += _removed(netlink.route, route)
    return count


def _removed(verb: Callable[..., object], message: dict[str, object]) -> bool:
    """Delete exactly what was read."""
    try:
        verb("del", **{key: message[key] for key in ("family", "table", "action", "type", "proto", "scope", "dst_len",
                                                     "src_len", "tos", "flags") if key in message},
             attrs=message["attrs"])  # fmt: skip
    except NetlinkError as error:
        if error.code in (errno.ENOENT, errno.ESRCH):
            return False
        raise FvError(f"what a crash left cannot be removed: {error}", hint="run as root (sudo)") from None
    return True
