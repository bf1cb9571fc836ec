"""What this host looks like, read by pyroute2 and from /proc: the edge of the compiler and of `fv doctor`."""

import contextlib
import pathlib
import socket

from pyroute2 import IPRoute  # type: ignore[import-untyped]

from fv.config import values
from fv.config.model import Config
from fv.errors import FvError
from fv.plan.facts import Facts, Link, Route

MAIN = 254
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
        names={name: found for name in names if (found := _look_up(name))} if resolve else {},
        strict_reverse=tuple(link.name for link in links.values() if _effective(link.name, "rp_filter") == 1),
        accept_ra=tuple(
            link.name
            for link in links.values()
            if link.name != "lo" and sysctl(f"net/ipv6/conf/{link.name}/accept_ra") == "1"
        ),
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
    found = [sysctl(f"net/ipv4/conf/{part}/{knob}") for part in ("all", name)]
    return max(int(text) for text in found if text.isdigit()) if any(text.isdigit() for text in found) else 0


def _look_up(name: str) -> tuple[str, ...]:
    try:
        values.address(name)
    except ValueError:
        pass
    else:
        return ()
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    return ()


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
