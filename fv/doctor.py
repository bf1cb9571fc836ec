"""Why does nothing pass? Each check looks at one cause and, when it is the cause, says what to type.

What needs a socket or a file is asked in one function and judged in another, so that the judgements are plain functions
and can be tested.
"""

import contextlib
import errno
import os
import pathlib
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime

import msgspec

import fv
from fv import uapi
from fv.config import values
from fv.config.check import device_name
from fv.config.load import Loaded
from fv.config.model import WireGuardEndpoint
from fv.engine import find_fvd
from fv.errors import FvError
from fv.host import gather, has_ipv6, sysctl
from fv.keys import show_key
from fv.plan import network
from fv.plan.compile import Compiled, compile_plan
from fv.plan.facts import Facts
from fv.plan.mtu import IPV4, IPV6, UDP, WIREGUARD, route_to
from fv.units import age

GOOD, NOTE, BAD = "good", "note", "BAD"
REJECT_AFTER = 180.0  # seconds; a session older than that carries nothing (WireGuard's REJECT_AFTER_TIME)
PROBE_WAIT = 1.5  # seconds that an answer may take


class Finding(msgspec.Struct, frozen=True):
    name: str
    level: str  # GOOD, NOTE or BAD
    what: str
    do: str = ""  # what to type


# Drops that have a cause the owner can do something about: what it means, what to do.
DROPS = {
    "handshake_bad_mac1": ("handshakes meant for another key", "compare public_key on the other side with `fv pubkey`"),
    "handshake_not_authentic": ("handshakes that do not fit the keys", "compare keys and pre_shared_key on both sides"),
    "handshake_unknown_peer": ("handshakes of a peer that is not configured", "fv peer add NAME, or ignore a stranger"),
    "handshake_replayed": (
        "handshakes with an old time stamp: the other side's clock went back",
        "set the clock there: date, timedatectl set-ntp true",
    ),
    "handshake_rate_limited": (
        "handshakes beyond the limit under load",
        "somebody floods the port; nothing to do here",
    ),
    "data_source_not_allowed": (
        "packets from an inner source that is not the peer's",
        "add that source to the peer's allowed_ips",
    ),
    "data_not_authentic": ("packets that were changed on the way, or a stranger's", "look at the link, or ignore it"),
    "send_no_peer": ("packets to addresses that no peer takes", "add them to a peer's allowed_ips"),
    "send_no_endpoint": (
        "packets to a peer that has not said where it is",
        "set address and port, or wait for the peer",
    ),
    "send_handshake_gave_up": (
        "packets given up because no handshake came back",
        "is the peer's UDP port reachable? its firewall, its listen_port, its public_key",
    ),
    "out_socket_failed": (
        "outer packets that the kernel refused",
        "is there a route to the peer? ip route get ADDRESS",
    ),
    "tun_write_failed": ("packets that the kernel did not take back", "is the interface up? ip link show"),
}


def examine(loaded: Loaded, *, web: str = "") -> list[Finding]:
    facts = gather(loaded.config)
    compiled = compile_plan(loaded, facts)
    findings = [*engine_program(), *tun(), *clock(web), *forwarding(loaded, facts), *names(loaded, facts)]
    findings += ipv6(loaded)
    control = loaded.config.engine.control
    statistics: dict[str, str] | None = None
    with contextlib.suppress(FvError):
        statistics = uapi.stats(control) if control else None
    if statistics is None:
        findings.append(Finding("engine", BAD, "no engine runs this configuration", f"fv up {loaded.document.file}"))
    else:
        findings.append(Finding("engine", GOOD, f"fvd {statistics.get('version', '?')} answers at {control}"))
        findings += drops(statistics)
    for endpoint in loaded.config.endpoints:
        device = None
        with contextlib.suppress(FvError):
            device = uapi.device(device_name(endpoint))
        if device is not None:
            findings += handshakes(endpoint, device, time.time())
        elif statistics is None and not endpoint.detour:
            findings += port(endpoint)
        findings += mtu_out(endpoint, facts)
        if device is not None and network.has_tun(loaded.config, endpoint):
            findings += mtu_through(endpoint, compiled)
    return findings


def engine_program() -> list[Finding]:
    try:
        fvd = find_fvd()
        done = subprocess.run([fvd, "--version"], capture_output=True, text=True, check=False, timeout=10)
    except (FvError, OSError, subprocess.TimeoutExpired) as error:
        return [Finding("engine", BAD, str(error), "./task build")]
    version = done.stdout.strip()
    if version != f"fvd {fv.__version__}":
        return [Finding("engine", BAD, f"{fvd} is {version or 'silent'}, this is fv {fv.__version__}", "./task build")]
    probe = subprocess.run([fvd, "--probe"], capture_output=True, text=True, check=False, timeout=30)
    if probe.returncode:
        last = (probe.stderr.strip().splitlines() or ["no answer"])[0]
        return [Finding("kernel", NOTE, f"{fvd} --probe does not say what this kernel can do: {last}")]
    return [features(probe.stdout)]


# Of one kind of processor each: another processor lacks them rightly.
_OF_PROCESSORS = ("avx2", "avx512", "neon")


def features(table: str) -> Finding:
    """The table of `fvd --probe` (name, supported, used, what it is) in one line."""
    rows = [line.split(None, 3) for line in table.splitlines()]
    found = {row[0]: (row[1] == "yes", row[2] == "yes") for row in rows if len(row) > 2 and row[1] in ("yes", "no")}
    lacking = [name for name, (supported, _) in found.items() if not supported and name not in _OF_PROCESSORS]
    unused = [name for name, (supported, used) in found.items() if supported and not used]
    said = f"{sum(used for _, used in found.values())} features of this kernel are used"
    if lacking:
        said += f"; it lacks {', '.join(lacking)}: slower, not broken"
    if unused:
        said += f"; switched off: {', '.join(unused)}"
    return Finding("kernel", NOTE if lacking or unused else GOOD, said, "fvd --probe tells more" if lacking else "")


def tun() -> list[Finding]:
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except FileNotFoundError:
        return [Finding("TUN", BAD, "/dev/net/tun is not there", "modprobe tun")]
    except OSError as error:
        return [Finding("TUN", BAD, f"/dev/net/tun cannot be opened: {error.strerror}", "run as root (sudo)")]
    return [Finding("TUN", GOOD, "/dev/net/tun opens")]


def clock(web: str) -> list[Finding]:
    """Against the files of fv itself (a clock before them is wrong), and a web server's Date where one is named."""
    newest = max(path.stat().st_mtime for path in pathlib.Path(fv.__file__).parent.glob("*.py"))
    now = time.time()
    if now < newest - 86400:
        when = time.strftime("%Y-%m-%d", time.gmtime(now))
        return [
            Finding(
                "clock", BAD, f"it says {when}, before fv was installed", "timedatectl set-ntp true, or date -s ..."
            )
        ]
    if not web:
        return [Finding("clock", GOOD, f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now))} UTC is plausible")]
    try:
        request = urllib.request.Request(web, method="HEAD")  # noqa: S310 - the user named it
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            theirs = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (OSError, urllib.error.URLError, TypeError, ValueError) as error:
        return [Finding("clock", NOTE, f"{web} does not tell the time: {error}")]
    return [skew(time.time() - theirs, web)]


def skew(difference: float, web: str) -> Finding:
    if abs(difference) > 30:
        return Finding("clock", BAD, f"clock differs by {difference:+.0f} s from {web}", "timedatectl set-ntp true")
    return Finding("clock", GOOD, f"within {max(1.0, abs(difference)):.0f} s of {web}")


def forwarding(loaded: Loaded, facts: Facts) -> list[Finding]:
    chosen = network.policy(loaded.config)
    if chosen is None:
        return []
    out = []
    if chosen.forwards and sysctl("net/ipv4/ip_forward") != "1":
        out.append(Finding("forwarding", NOTE, "net.ipv4.ip_forward is 0; the engine sets it while it runs"))
    name = device_name(chosen.endpoint)
    if facts.link(name) and facts.reverse.get(name) == 1:
        out.append(Finding("rp_filter", BAD, f"strict on {name}: answers from the internet are dropped",
                           f"sysctl -w net.ipv4.conf.{name.replace('.', '/')}.rp_filter=2"))  # fmt: skip
    uplink = route_to("", facts)
    if chosen.whole_host and uplink and facts.reverse.get(uplink.dev) == 1:
        out.append(Finding("rp_filter", BAD, f"strict on {uplink.dev}: the peer's own answers are dropped",
                           f"sysctl -w net.ipv4.conf.{uplink.dev.replace('.', '/')}.rp_filter=2"))  # fmt: skip
    return out or [Finding("forwarding", GOOD, "forwarding and reverse-path filters let the traffic through")]


def names(loaded: Loaded, facts: Facts) -> list[Finding]:
    out = []
    for host in sorted(
        {peer.address for endpoint in loaded.config.endpoints for peer in endpoint.peers if peer.address}
    ):
        try:
            values.address(host.strip("[]"))
            continue
        except ValueError:
            pass
        found = facts.names.get(host)
        if found:
            out.append(Finding("DNS", GOOD, f"{host} is {', '.join(found)}"))
        else:
            out.append(Finding("DNS", BAD, f"{host} has no address", f"getent ahosts {host}; cat /etc/resolv.conf"))
    return out


def ipv6(loaded: Loaded) -> list[Finding]:
    gateway = loaded.config.gateway
    endpoint = network.gateway_endpoint(loaded.config)
    wants = any(6 in network.versions(one) for one in loaded.config.endpoints)
    if wants and not has_ipv6():
        return [Finding("IPv6", BAD, "the tunnel has IPv6 addresses and this kernel has IPv6 off",
                        "sysctl -w net.ipv6.conf.all.disable_ipv6=0")]  # fmt: skip
    if gateway and endpoint and 6 not in network.versions(endpoint):
        if gateway.kill_switch.enabled:
            return [Finding("IPv6", NOTE, "the tunnel has none: IPv6 of what is routed through it is refused at once")]
        return [Finding("IPv6", BAD, "the tunnel has none and the kill switch is off: IPv6 leaves beside the tunnel",
                        "add an IPv6 address to the endpoint, or take kill_switch out")]  # fmt: skip
    return []


def drops(statistics: dict[str, str]) -> list[Finding]:
    out = []
    for key, count in statistics.items():
        device, dot, name = key.rpartition(".drop.")
        if not dot or count == "0":
            continue
        meaning, do = DROPS.get(name, (name.replace("_", " "), ""))
        out.append(Finding("drops", NOTE, f"{device.removeprefix('device.')}: {count} x {name}: {meaning}", do))
    return out or [Finding("drops", GOOD, "nothing was dropped")]


def handshakes(endpoint: WireGuardEndpoint, device: uapi.Device, now: float) -> list[Finding]:
    out = []
    for peer in device.peers:
        short = f"{device.name}: peer {show_key(bytes.fromhex(peer.public_key))[:8]}..."
        where = f" at {peer.endpoint}" if peer.endpoint else ""
        if not peer.handshake:
            do = f"nc -uvz {peer.endpoint.replace(':', ' ')}" if peer.endpoint else "let the peer connect first"
            level = BAD if peer.endpoint else NOTE
            out.append(Finding("handshake", level, f"{short}{where} has never shaken hands", do))
        elif now - peer.handshake > REJECT_AFTER and peer.keepalive:
            out.append(Finding("handshake", BAD, f"{short}{where}: the last one was {age(now - peer.handshake)} ago",
                               "is the way to the peer open? look at the drops"))  # fmt: skip
        else:
            out.append(Finding("handshake", GOOD, f"{short}{where}: {age(max(0.0, now - peer.handshake))} ago"))
    return out


def port(endpoint: WireGuardEndpoint) -> list[Finding]:
    """Whether the port is free, while no engine holds it."""
    if not endpoint.listen_port:
        return []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", endpoint.listen_port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return [Finding("port", BAD, f"UDP {endpoint.listen_port} is taken by another program",
                                f"ss -lunp 'sport = :{endpoint.listen_port}'")]  # fmt: skip
    return [Finding("port", GOOD, f"UDP {endpoint.listen_port} is free")]


# Linux's numbers that Python has no names for (ip(7), ipv6(7)).
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE, _IP_MTU = 10, 3, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24


def mtu_out(endpoint: WireGuardEndpoint, facts: Facts) -> list[Finding]:
    """Toward each peer: the outer packet at its largest, not to be fragmented, and what the kernel learns of it."""
    if endpoint.detour or not isinstance(endpoint.mtu, int | str):
        return []
    out = []
    for peer in endpoint.peers:
        for address in _addresses(peer.address, facts):
            route = route_to(address, facts)
            link = facts.link(route.dev) if route else None
            if route is None or link is None:
                out.append(Finding("MTU", BAD, f"there is no route to {address}", f"ip route get {address}"))
                continue
            found = path_mtu(address, peer.port, route.mtu or link.mtu)
            out.append(_judged_out(endpoint, address, route.mtu or link.mtu, found))
    return out


def _judged_out(endpoint: WireGuardEndpoint, address: str, link: int, found: int) -> Finding:
    name = device_name(endpoint)
    if found and found < link:
        room = found - IPV6 - UDP - WIREGUARD
        return Finding("MTU", BAD, f"{name}: the way to {address} takes {found} bytes, the link {link}",
                       f"set mtu = {room} in endpoint {endpoint.tag!r}")  # fmt: skip
    return Finding("MTU", GOOD, f"{name}: nothing on the way to {address} is known to take less than {link} bytes")


def _addresses(host: str, facts: Facts) -> tuple[str, ...]:
    if not host:
        return ()
    try:
        return (str(values.address(host.strip("[]"))),)
    except ValueError:
        return facts.names.get(host, ())


def path_mtu(address: str, port_: int, link: int) -> int:
    """The kernel's path MTU after a datagram of the link's size; 0 when nothing could be learnt.

    The datagram is zeros: WireGuard drops what is no message of its own without an answer.
    """
    six = ":" in address
    family = socket.AF_INET6 if six else socket.AF_INET
    level = socket.IPPROTO_IPV6 if six else socket.IPPROTO_IP
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(level, _IPV6_MTU_DISCOVER if six else _IP_MTU_DISCOVER, 2)  # DO: never fragment
            probe.connect((address, port_))
            for _ in range(2):
                with contextlib.suppress(OSError):  # EMSGSIZE and ICMP errors are what is looked for
                    probe.send(bytes(min(link, 65000) - UDP - (IPV6 if six else IPV4)))
                time.sleep(0.3)
            return int(probe.getsockopt(level, _IPV6_MTU if six else _IP_MTU))
        except OSError:
            return 0


def mtu_through(endpoint: WireGuardEndpoint, compiled: Compiled) -> list[Finding]:
    """Both ways at once: an echo of the tunnel's MTU to the peer's own address; the answer has the same size."""
    name = device_name(endpoint)
    mtu = next(one.value for one in compiled.mtus if one.device == name)
    target = _inner_target(endpoint)
    if target is None:
        return [Finding("MTU", NOTE, f"{name}: no peer's inner address is known, so large packets were not tried",
                        f"ping -M do -s {mtu - 28} ADDRESS-BEHIND-THE-PEER")]  # fmt: skip
    try:
        small, large = echo(target, name, 84), echo(target, name, mtu)
    except PermissionError:
        return [Finding("MTU", NOTE, f"{name}: an echo needs root", f"sudo ping -M do -s {mtu - 28} {target}")]
    if not small:
        return [Finding("MTU", NOTE, f"{name}: {target} does not answer an echo, so large packets were not tried")]
    if not large:
        return [Finding("MTU", BAD, f"{name}: small packets pass to {target}, packets of {mtu} bytes do not",
                        f"set mtu = {mtu - 80} in endpoint {endpoint.tag!r}, on both sides")]  # fmt: skip
    return [Finding("MTU", GOOD, f"{name}: packets of {mtu} bytes pass both ways to {target}")]


def _inner_target(endpoint: WireGuardEndpoint) -> str | None:
    """A peer's own IPv4 address: a prefix of one, or the first of our network that is not ours."""
    for peer in endpoint.peers:
        for text in peer.allowed_ips:
            prefix = values.prefix(text)
            if prefix.version == 4 and prefix.prefixlen == 32:
                return str(prefix.network_address)
    for text in endpoint.address:
        own = values.interface(text)
        if own.version == 4 and own.network.prefixlen < 31:
            first = own.network[1]
            return str(first if first != own.ip else own.network[2])
    return None


def echo(target: str, device: str, size: int) -> bool:
    """One ICMP echo of `size` bytes of IP packet through `device`, DF set; whether it came back whole."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode() + b"\0")
        probe.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        identity = os.getpid() & 0xFFFF
        body = bytes(index & 0xFF for index in range(size - 28))
        packet = struct.pack("!BBHHH", 8, 0, 0, identity, size & 0xFFFF) + body
        packet = packet[:2] + struct.pack("!H", _checksum(packet)) + packet[4:]
        deadline = time.monotonic() + PROBE_WAIT
        try:
            probe.sendto(packet, (target, 0))
            while (left := deadline - time.monotonic()) > 0:
                probe.settimeout(left)
                raw = probe.recv(65535)
                answer = raw[(raw[0] & 15) * 4 :]
                if answer[:1] == b"\0" and answer[4:8] == packet[4:8] and answer[8:] == body:
                    return True
        except OSError:
            return False
    return False


def _checksum(raw: bytes) -> int:
    """RFC 1071."""
    total: int = sum(struct.unpack(f"!{len(raw) // 2}H", raw[: len(raw) & ~1])) + (raw[-1] << 8 if len(raw) & 1 else 0)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
