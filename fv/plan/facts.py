"""What the compiler is told about the host. Gathered by `fv/host.py`, or written down by a test."""

import msgspec


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    mtu: int
    kind: str = ""  # as `ip -d link` says: veth, bridge, ppp ...; empty for hardware
    addresses: tuple[str, ...] = ()  # with prefix length


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A route of the main table."""

    prefix: str  # 0.0.0.0/0 and ::/0 for the defaults
    dev: str
    via: str = ""
    mtu: int = 0  # the route's own MTU; 0: the link's
    metric: int = 0


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    links: tuple[Link, ...] = ()
    routes: tuple[Route, ...] = ()
    names: dict[str, tuple[str, ...]] = {}  # addresses of endpoint host names, as far as they were resolved
    # Effective rp_filter and accept_ra by interface. The compiler writes the same lines whether a value is what it was
    # or what the engine has made of it, so that a reload changes nothing by itself.
    reverse: dict[str, int] = {}
    accept_ra: dict[str, int] = {}
    ipv6: bool = True

    def link(self, name: str) -> Link | None:
        return next((link for link in self.links if link.name == name), None)
