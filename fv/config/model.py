"""What a configuration says: frozen structs in sing-box's words, and fv's own tables.

A field that is missing here is refused by name and line (`load.py`). `HELD` lists the words of sing-box's that fv does
not have; they are refused as such and not as misspelt.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
Choice = Literal["open", "closed"]


class Secret(str):
    """A key: printed only by whoever takes `str.__str__` on purpose. Errors and reprs show its length."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self)} characters>"


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table: unknown fields are errors."""


class WireGuardPeer(Table, frozen=True):
    public_key: str
    allowed_ips: tuple[str, ...]
    address: str = ""
    port: Port = 0
    pre_shared_key: Secret = Secret("")
    persistent_keepalive_interval: int | str = 0
    reserved: tuple[int, ...] | str = ()


class WireGuardEndpoint(Table, frozen=True, tag_field="type", tag="wireguard"):
    tag: str
    address: tuple[str, ...]
    private_key: Secret
    peers: tuple[WireGuardPeer, ...]
    system: bool = False
    name: str = ""
    mtu: int | str = "auto"
    listen_port: Port = 0
    udp_timeout: str = ""
    workers: Annotated[int, Meta(ge=0, le=16)] = 0
    detour: str = ""
    routing_mark: int | str = 0
    # fv's own: what of allowed_ips becomes routes. auto as wg-quick's Table, off, or a table's number.
    routes: int | str = "auto"


class Log(Table, frozen=True):
    level: Literal["trace", "debug", "info", "warn", "error", "fatal", "panic"] = "info"
    timestamp: bool = False


class Engine(Table, frozen=True):
    workers: Annotated[int, Meta(ge=0, le=16)] = 0
    cpu: tuple[Annotated[int, Meta(ge=0, le=4095)], ...] = ()
    nice: Annotated[int, Meta(ge=-20, le=19)] = -15
    memory: int | str = "16MiB"
    log_level: Literal["", "error", "warning", "info", "debug"] = ""
    log_format: Literal["text", "json"] = "text"
    state: str = "/var/lib/fv"
    control: str = "/run/fv/fv.sock"
    feature_off: tuple[str, ...] = ()
    resolver: tuple[str, ...] = ()


class KillSwitch(Table, frozen=True):
    enabled: bool = True
    on_stop: Choice = "open"
    on_crash: Choice = "closed"


class Gateway(Table, frozen=True):
    """What goes into the tunnel. `lan`: interfaces and prefixes whose traffic does; `sources` and `destinations` narrow
    it to some; `everything` adds what this host itself sends."""

    endpoint: str = ""
    lan: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    everything: bool = False
    nat: bool = True
    entries: Annotated[int, Meta(ge=64, le=1 << 22)] = 65536
    mss: int | str = "auto"
    dns: tuple[str, ...] = ()
    kill_switch: KillSwitch = KillSwitch()
    table: Annotated[int, Meta(ge=1, le=0xFFFFFFFF)] = 51820
    mark: Annotated[int, Meta(ge=1, le=0xFFFFFFFF)] = 51820
    priority: Annotated[int, Meta(ge=1, le=32000)] = 5200


class Config(Table, frozen=True):
    version: Annotated[int, Meta(ge=1)] = 1
    schema_: str = msgspec.field(default="", name="$schema")
    log: Log = Log()
    endpoints: tuple[WireGuardEndpoint, ...] = ()
    engine: Engine = Engine()
    gateway: Gateway | None = None
    router: dict[str, dict[str, Any]] = {}  # taken as it is; whoever deploys reads it


# Words of sing-box's that fv does not have. By the table they stand in; "" is the whole.
HELD: dict[str, frozenset[str]] = {
    "": frozenset({"dns", "ntp", "certificate", "certificate_providers", "inbounds", "outbounds", "route", "services",
                   "experimental"}),
    "log": frozenset({"disabled", "output"}),
    "endpoints": frozenset({
        "bind_interface", "inet4_bind_address", "inet6_bind_address", "bind_address_no_port", "reuse_addr", "netns",
        "connect_timeout", "tcp_fast_open", "tcp_multi_path", "disable_tcp_keep_alive", "tcp_keep_alive",
        "tcp_keep_alive_interval", "tcp_keep_alive_count", "udp_fragment", "domain_resolver", "network_strategy",
        "network_type", "fallback_network_type", "fallback_delay", "domain_strategy", "gso",
    }),
}  # fmt: skip
