"""What a configuration means, as far as it can be judged without the host: keys, prefixes, names, references.

All faults are found in one pass. Secrets' texts are in no message.
"""

import base64
import binascii
from collections.abc import Callable
from typing import TypeVar

from fv.config import values
from fv.config.load import Loaded
from fv.config.model import Gateway, WireGuardEndpoint, WireGuardPeer
from fv.config.syntax import Path
from fv.errors import FvError, raise_all, unknown_hint
from fv.keys import parse_key, public_of

T = TypeVar("T")
RESOLVERS = 4  # name servers that the engine's resolver knows (native/flow/resolver.h)


def check(loaded: Loaded) -> None:
    """Raise every fault in one error, in the order of the file's lines."""
    checker = _Check(loaded)
    checker.engine()
    for index, endpoint in enumerate(loaded.config.endpoints):
        checker.endpoint(endpoint, ("endpoints", index))
    checker.names()
    checker.detours()
    if loaded.config.gateway is not None:
        checker.gateway(loaded.config.gateway)
    raise_all(checker.errors)


def device_name(endpoint: WireGuardEndpoint) -> str:
    """The interface's name: `name`, else the tag."""
    return endpoint.name or endpoint.tag


class _Check:
    def __init__(self, loaded: Loaded) -> None:
        self.config = loaded.config
        self.document = loaded.document
        self.errors: list[FvError] = []

    def wrong(self, path: Path, what: str, hint: str = "") -> None:
        self.errors.append(FvError(what, where=self.document.where(path), hint=hint))

    def take(self, path: Path, read: Callable[[], T], what: str = "not understood") -> T | None:
        """The value, or a fault with what would be right."""
        try:
            return read()
        except ValueError as error:
            self.wrong(path, what, f"right would be {error}")
            return None

    def key(self, path: Path, text: str) -> bytes | None:
        try:
            return parse_key(text)
        except ValueError as error:
            self.wrong(path, str(error))
            return None

    def engine(self) -> None:
        engine = self.config.engine
        memory = self.take(("engine", "memory"), lambda: values.size(engine.memory))
        for key, path in (("state", engine.state), ("control", engine.control)):
            if path and not path.startswith("/"):
                self.wrong(("engine", key), "not an absolute path", "begin it with /, or leave it empty for none")
        if len(engine.control.encode()) > 107:
            self.wrong(("engine", "control"), "longer than the 107 bytes that a socket's path can have")
        workers = engine.workers or max([e.workers for e in self.config.endpoints], default=0) or 1
        if memory is not None and memory < workers << 18:
            self.wrong(
                ("engine", "memory"),
                f"{memory} bytes is too little",
                f"at least 256KiB for each of {workers} workers; 16MiB is the default",
            )
        if engine.cpu and len(engine.cpu) < workers:
            self.wrong(
                ("engine", "cpu"), f"{len(engine.cpu)} CPUs for {workers} workers", "name one CPU for each worker"
            )
        if len(engine.resolver) > RESOLVERS:
            self.wrong(("engine", "resolver"), f"{len(engine.resolver)} servers", f"at most {RESOLVERS}")
        for index, server in enumerate(engine.resolver):
            self.take(("engine", "resolver", index), lambda server=server: values.address(server))  # type: ignore[misc]

    def endpoint(self, endpoint: WireGuardEndpoint, path: Path) -> None:
        if not endpoint.tag:
            self.wrong((*path, "tag"), "empty")
        name_key = "name" if endpoint.name else "tag"
        if (
            self.take((*path, name_key), lambda: values.interface_name(device_name(endpoint)), "no interface name")
            is None
        ):
            return
        for index, text in enumerate(endpoint.address):
            self.take((*path, "address", index), lambda text=text: values.interface(text))  # type: ignore[misc]
        if not endpoint.address:
            self.wrong((*path, "address"), "empty", "give the tunnel an address, such as 10.7.0.2/24")
        if isinstance(endpoint.mtu, int) and not 576 <= endpoint.mtu <= 65535:
            self.wrong((*path, "mtu"), f"{endpoint.mtu} is out of range", '576 to 65535, or "auto"')
        elif isinstance(endpoint.mtu, str) and endpoint.mtu not in ("auto", "ipv4"):
            self.wrong(
                (*path, "mtu"),
                "not understood",
                'a number, "auto" (link - 80), or "ipv4" (link - 60, for endpoints that are reached by IPv4 only)',
            )
        if (
            endpoint.udp_timeout
            and self.take((*path, "udp_timeout"), lambda: values.seconds(endpoint.udp_timeout)) != 300
        ):
            self.wrong(
                (*path, "udp_timeout"),
                "fv keeps UDP mappings for 5m (RFC 4787) and does not have another time yet",
                "take it out",
            )
        self.take((*path, "routing_mark"), lambda: values.mark(endpoint.routing_mark))
        if isinstance(endpoint.routes, str) and endpoint.routes not in ("auto", "off"):
            self.wrong((*path, "routes"), "not understood", '"auto", "off", or a table\'s number')
        own = self.key((*path, "private_key"), endpoint.private_key)
        own_public = public_of(own) if own else None
        seen: dict[bytes, int] = {}
        owners: dict[object, int] = {}
        for index, peer in enumerate(endpoint.peers):
            self.peer(peer, (*path, "peers", index), own_public, seen, owners, index)

    def peer(
        self,
        peer: WireGuardPeer,
        path: Path,
        own: bytes | None,
        seen: dict[bytes, int],
        owners: dict[object, int],
        index: int,
    ) -> None:
        public = self.key((*path, "public_key"), peer.public_key)
        if public is not None:
            if public == own:
                self.wrong(
                    (*path, "public_key"), "this is the endpoint's own public key", "a peer has the other side's"
                )
            if public in seen:
                self.wrong((*path, "public_key"), f"the same key as peers[{seen[public]}]", "one peer, one key")
            seen.setdefault(public, index)
        if peer.pre_shared_key:
            self.key((*path, "pre_shared_key"), peer.pre_shared_key)
        for place, text in enumerate(peer.allowed_ips):
            network = self.take((*path, "allowed_ips", place), lambda text=text: values.prefix(text))  # type: ignore[misc]
            if network is None:
                continue
            if owners.setdefault(network, index) != index:
                self.wrong(
                    (*path, "allowed_ips", place),
                    f"{network} belongs to peers[{owners[network]}] already",
                    "a prefix belongs to one peer",
                )
        if peer.address:
            self.take((*path, "address"), lambda: values.host(peer.address))
            if not peer.port:
                self.wrong((*path, "address"), "no port beside it", "add `port`, WireGuard's usual one is 51820")
        elif peer.port:
            self.wrong((*path, "port"), "no address beside it", "add `address`, or take the port out")
        keepalive = self.take(
            (*path, "persistent_keepalive_interval"), lambda: values.seconds(peer.persistent_keepalive_interval)
        )
        if keepalive is not None and not 0 <= keepalive <= 65535:
            self.wrong((*path, "persistent_keepalive_interval"), "out of range", "0 (none) to 65535 seconds")
        self.reserved(peer, path)

    def reserved(self, peer: WireGuardPeer, path: Path) -> None:
        """Three zero bytes are WireGuard as it is; others are a provider's mark, which fv's engine does not send."""
        raw = peer.reserved
        if isinstance(raw, str):
            try:
                raw = tuple(base64.b64decode(raw, validate=True))
            except (binascii.Error, ValueError):
                self.wrong((*path, "reserved"), "not understood", "three numbers, or their base64")
                return
        if len(raw) not in (0, 3):
            self.wrong((*path, "reserved"), f"{len(raw)} bytes", "three bytes")
        elif any(raw):
            self.wrong((*path, "reserved"), "fv does not have reserved bytes other than 0 yet", "take it out")

    def names(self) -> None:
        tags: dict[str, int] = {}
        devices: dict[str, int] = {}
        ports: dict[int, int] = {}
        for index, endpoint in enumerate(self.config.endpoints):
            path: Path = ("endpoints", index)
            if tags.setdefault(endpoint.tag, index) != index:
                self.wrong((*path, "tag"), f"{endpoint.tag!r} is the tag of endpoints[{tags[endpoint.tag]}]")
            elif devices.setdefault(device_name(endpoint), index) != index:
                self.wrong((*path, "name"), f"the interface of endpoints[{devices[device_name(endpoint)]}] as well")
            port = endpoint.listen_port
            if port and not endpoint.detour and ports.setdefault(port, index) != index:
                self.wrong((*path, "listen_port"), f"{port} is the port of endpoints[{ports[port]}]")

    def detours(self) -> None:
        by_tag = {endpoint.tag: endpoint for endpoint in self.config.endpoints}
        for index, endpoint in enumerate(self.config.endpoints):
            if not endpoint.detour:
                continue
            path: Path = ("endpoints", index, "detour")
            if endpoint.detour not in by_tag:
                self.wrong(path, f"there is no endpoint {endpoint.detour!r}", unknown_hint(endpoint.detour, by_tag))
                continue
            way = [endpoint.tag]
            carrier = by_tag[endpoint.detour]
            while carrier.tag not in way:
                way.append(carrier.tag)
                if carrier.detour not in by_tag:
                    break
                carrier = by_tag[carrier.detour]
            else:
                self.wrong(path, "a circle: " + " -> ".join([*way, carrier.tag]), "one endpoint must go out by itself")

    def gateway(self, gateway: Gateway) -> None:
        tags = [endpoint.tag for endpoint in self.config.endpoints]
        carriers = {endpoint.detour for endpoint in self.config.endpoints}
        if not tags:
            self.wrong(("gateway",), "there is no endpoint for it to use", "add one to `endpoints`")
        elif gateway.endpoint and gateway.endpoint not in tags:
            self.wrong(
                ("gateway", "endpoint"),
                f"there is no endpoint {gateway.endpoint!r}",
                unknown_hint(gateway.endpoint, tags),
            )
        elif not gateway.endpoint and len([tag for tag in tags if tag not in carriers]) != 1:
            self.wrong(("gateway",), "several endpoints could be meant", "say which by `endpoint`")
        for index, word in enumerate(gateway.lan):
            if not values.is_prefix(word):
                self.take(
                    ("gateway", "lan", index),
                    lambda word=word: values.interface_name(word),  # type: ignore[misc]
                    "neither an interface nor a prefix",
                )
        for key, words in (("sources", gateway.sources), ("destinations", gateway.destinations)):
            for index, word in enumerate(words):
                self.take(("gateway", key, index), lambda word=word: values.prefix(word))  # type: ignore[misc]
        for index, word in enumerate(gateway.dns):
            self.take(("gateway", "dns", index), lambda word=word: values.address(word))  # type: ignore[misc]
        if gateway.dns and not gateway.everything:
            self.wrong(("gateway", "dns"), "only this host's own resolver can be set yet", "needs `everything = true`")
        if not (gateway.lan or gateway.everything):
            self.wrong(
                ("gateway",),
                "nothing goes into the tunnel",
                "name the `lan` (interfaces or prefixes), or set `everything = true` for this host's own traffic",
            )
        if gateway.sources and not gateway.lan:
            self.wrong(("gateway", "sources"), "there is no `lan` that they could be in", "add `lan`")
        if isinstance(gateway.mss, str) and gateway.mss not in ("auto", "off"):
            self.wrong(("gateway", "mss"), "not understood", '"auto", "off", or a number')
        elif isinstance(gateway.mss, int) and not 88 <= gateway.mss <= 65495:
            self.wrong(("gateway", "mss"), f"{gateway.mss} is out of range", "88 to 65495")
