"""Namespaces, links, addresses and routes of the demo, by pyroute2; and finding what a crash left."""

import contextlib
import os
import pathlib
import shutil
import signal
import time

import msgspec
from pyroute2 import IPRoute, NetNS, netns  # type: ignore[import-untyped]

from fv.errors import FvError

LOCK = "/run/fv-demo.lock"
FOLDER = "/run/fv-demo"  # sockets and logs of the demo's engines
PREFIX = "fvdemo-"
CLIENT, GATEWAY, EXIT, WEB = (PREFIX + role for role in ("client", "gw", "exit", "web"))
HOSTS = (CLIENT, GATEWAY, EXIT, WEB)

LAN = "192.168.88.0/24"
CLIENT_ADDRESS, GATEWAY_LAN = "192.168.88.2", "192.168.88.1"
GATEWAY_WAN, EXIT_WAN = "198.51.100.1", "198.51.100.2"
EXIT_WEB, WEB_ADDRESS = "203.0.113.1", "203.0.113.80"
TUNNEL = "10.77.0.0/24"
GATEWAY_TUNNEL, EXIT_TUNNEL = "10.77.0.2", "10.77.0.1"


class Wire(msgspec.Struct, frozen=True):
    """A veth pair between two hosts: (host, interface, address) at each end."""

    left: tuple[str, str, str]
    right: tuple[str, str, str]


WIRES = (
    Wire((CLIENT, "eth0", CLIENT_ADDRESS), (GATEWAY, "lan0", GATEWAY_LAN)),
    Wire((GATEWAY, "wan0", GATEWAY_WAN), (EXIT, "wan0", EXIT_WAN)),
    Wire((EXIT, "dmz0", EXIT_WEB), (WEB, "eth0", WEB_ADDRESS)),
)
# The web server is told of the tunnel's network only: an answer to a LAN address would go nowhere.
ROUTES = ((CLIENT, "0.0.0.0/0", GATEWAY_LAN), (GATEWAY, "0.0.0.0/0", EXIT_WAN), (WEB, TUNNEL, EXIT_WEB))


def build() -> None:
    """Make everything. What is there already by these names must have been cleaned before."""
    try:
        for host in HOSTS:
            netns.create(host)
        with IPRoute() as netlink:
            for number, wire in enumerate(WIRES):
                # Made here under names of their own, then moved; a name inside is free of this host's.
                left, right = f"{PREFIX}{number}a", f"{PREFIX}{number}b"
                netlink.link("add", ifname=left, kind="veth", peer={"ifname": right})
                for name, end in ((left, wire.left), (right, wire.right)):
                    index = _index(netlink, name)
                    netlink.link("set", index=index, net_ns_fd=end[0])
        for number, wire in enumerate(WIRES):
            for name, (host, inside, address) in (
                (f"{PREFIX}{number}a", wire.left),
                (f"{PREFIX}{number}b", wire.right),
            ):
                with NetNS(host) as netlink:
                    index = _index(netlink, name)
                    netlink.link("set", index=index, ifname=inside)
                    netlink.addr("add", index=index, address=address, prefixlen=24)
                    netlink.link("set", index=index, state="up")
                    netlink.link("set", index=_index(netlink, "lo"), state="up")
        for host, prefix, via in ROUTES:
            with NetNS(host) as netlink:
                netlink.route("add", dst=prefix, gateway=via)
    except PermissionError:
        raise FvError("namespaces may not be made here", hint="run as root: sudo ./task up") from None


def _index(netlink: IPRoute, name: str) -> int:
    found = netlink.link_lookup(ifname=name)
    if not found:
        raise FvError(f"the link {name} was made and is not there", hint="does another program manage links here?")
    return int(found[0])


def processes() -> list[int]:
    """Processes that live in one of the demo's namespaces."""
    spaces = set()
    for host in HOSTS:
        with contextlib.suppress(OSError):
            spaces.add(pathlib.Path(f"/run/netns/{host}").stat().st_ino)
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if (folder / "ns" / "net").stat().st_ino in spaces:
                    found.append(int(folder.name))
    return found


def leftovers() -> list[str]:
    """What only the demo makes: namespaces, links, its folder."""
    found = [name for name in netns.listnetns() if name in HOSTS]
    with IPRoute() as netlink:
        names = [str(message.get_attr("IFLA_IFNAME")) for message in netlink.get_links()]
    found += [name for name in names if name.startswith(PREFIX)]
    return found + ([FOLDER] if pathlib.Path(FOLDER).exists() else [])


def clean() -> list[str]:
    """Take away what is there of a demo, ours or one that crashed. Returns the names. Asked twice it does nothing."""
    found = leftovers()
    _end(processes())
    for name in found:
        if name in HOSTS:
            with contextlib.suppress(OSError):
                netns.remove(name)
    with IPRoute() as netlink:
        for message in netlink.get_links():
            if str(message.get_attr("IFLA_IFNAME")).startswith(PREFIX):
                with contextlib.suppress(Exception):  # its other end went first
                    netlink.link("del", index=message["index"])
    shutil.rmtree(FOLDER, ignore_errors=True)
    return found


def _end(pids: list[int]) -> None:
    """SIGTERM, a second's patience, SIGKILL. They are in our namespaces, so they are ours."""
    for number, patience in ((signal.SIGTERM, 1.5), (signal.SIGKILL, 1.0)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while pids and time.monotonic() < deadline:
            _reap()
            pids = [pid for pid in pids if pid in processes()]
            if pids:
                time.sleep(0.05)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
