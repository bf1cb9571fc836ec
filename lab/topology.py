"""Networks of namespaces that a cell runs in, made with pyroute2 and taken away whole.

    local       the load's ends are the tunnel's ends

        a                                           b
        iperf3 client                               iperf3 server
        10.7.0.1 [tunnel] 192.0.2.1 ===wire=== 192.0.2.2 [tunnel] 10.7.0.2

    lan         a LAN behind a gateway; veth hands over super-packets as a good network card does

        c                      a                                        b
        iperf3 client          gateway, forwards                        iperf3 server
        192.168.88.2 ---lan--- 192.168.88.1
                               10.7.0.1 [tunnel] 192.0.2.1 ===wire=== 192.0.2.2 [tunnel] 10.7.0.2

    lan-plain   the same; TSO, GSO and GRO off on both ends of the LAN: single packets of 1,500 bytes, as most
                routers get them

No address is translated: b knows the way back to 192.168.88.0/24. With no tunnel the load goes to 192.0.2.2.
"""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from pyroute2 import IPRoute, NetNS, netns  # type: ignore[import-untyped]  # it ships no types

from lab.process import run_in

TOPOLOGIES = ("local", "lan", "lan-plain")

WIRE_A, WIRE_B = "192.0.2.1", "192.0.2.2"
TUNNEL_A, TUNNEL_B = "10.7.0.1", "10.7.0.2"
LAN, LAN_CLIENT, LAN_GATEWAY = "192.168.88.0/24", "192.168.88.2", "192.168.88.1"
WIRE_MTU = 1500

PLAIN = ("tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")


@dataclass
class Network:
    """Namespaces named PREFIX-NAME; leaving the `with` deletes them and, with them, every link in them."""

    prefix: str
    names: list[str] = field(default_factory=list)

    def __enter__(self) -> "Network":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(self.names):
            netns.remove(name)
        self.names.clear()

    def add(self, name: str) -> str:
        full = f"{self.prefix}-{name}"
        netns.create(full)
        self.names.append(full)
        with NetNS(full) as there:
            there.link("set", index=there.link_lookup(ifname="lo")[0], state="up")
        return full

    def wire(self, a: str, b: str, name: str, address_a: str, address_b: str, mtu: int = WIRE_MTU) -> None:
        """A veth pair called `name` on both sides; addresses with a prefix length."""
        ends = ((a, f"x{os.getpid()}a", address_a), (b, f"x{os.getpid()}b", address_b))
        with IPRoute() as here:
            here.link("add", ifname=ends[0][1], kind="veth", peer={"ifname": ends[1][1]})
            for namespace, temporary, _ in ends:
                here.link("set", index=here.link_lookup(ifname=temporary)[0], net_ns_fd=namespace)
        for namespace, temporary, address in ends:
            with NetNS(namespace) as there:
                index = there.link_lookup(ifname=temporary)[0]
                there.link("set", index=index, ifname=name, mtu=mtu)
                ip, _, length = address.partition("/")
                there.addr("add", index=index, address=ip, prefixlen=int(length))
                there.link("set", index=index, state="up")


def address(namespace: str, link: str, ip: str, length: int, mtu: int) -> None:
    with NetNS(namespace) as there:
        index = there.link_lookup(ifname=link)[0]
        there.addr("add", index=index, address=ip, prefixlen=length)
        there.link("set", index=index, mtu=mtu, state="up")


def route(namespace: str, destination: str, *, link: str | None = None, gateway: str | None = None) -> None:
    with NetNS(namespace) as there:
        words: dict[str, object] = {"dst": destination}
        if link:
            words["oif"] = there.link_lookup(ifname=link)[0]
        if gateway:
            words["gateway"] = gateway
        there.route("add", **words)


def has_link(namespace: str, link: str) -> bool:
    with NetNS(namespace) as there:
        return bool(there.link_lookup(ifname=link))


def add_wireguard_link(namespace: str, link: str) -> None:
    with NetNS(namespace) as there:
        there.link("add", ifname=link, kind="wireguard")


@dataclass(frozen=True)
class Place:
    """Where a cell's parts run."""

    client: str  # namespace of the load's client
    server: str
    side_a: str  # namespaces of the tunnel's ends
    side_b: str
    behind_a: tuple[str, ...]  # networks that b reaches through a


def build(network: Network, topology: str) -> Place:
    a, b = network.add("a"), network.add("b")
    network.wire(a, b, "wire0", f"{WIRE_A}/24", f"{WIRE_B}/24")
    if topology == "local":
        return Place(a, b, a, b, ())
    c = network.add("c")
    network.wire(c, a, "lan0", f"{LAN_CLIENT}/24", f"{LAN_GATEWAY}/24")
    route(c, "default", gateway=LAN_GATEWAY)
    run_in(a, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    if topology == "lan-plain":
        for namespace in (c, a):
            run_in(namespace, "ethtool", "-K", "lan0", *PLAIN)
    return Place(c, b, a, b, (LAN,))


def leftovers(prefix: str) -> None:
    """Deletes what a run that was killed has left: namespaces PREFIX-PID-NAME whose process is gone."""
    for name in netns.listnetns():
        parts = name.split("-")
        if len(parts) == 3 and parts[0] == prefix and parts[1].isdigit() and not Path(f"/proc/{parts[1]}").exists():
            subprocess.run(["ip", "netns", "del", name], check=False)
