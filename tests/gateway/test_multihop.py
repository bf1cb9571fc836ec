"""Tunnels in tunnels: entry, middle and exit peer nested in the gateway's process, by fv's own configuration.

client -- gate ==1== exit ==2== hop ==3== server
             the gateway's outer packets to the hop go through the tunnel to the exit, those to the server through
             the tunnel to the hop; only the innermost has an interface on the gateway
"""

from collections.abc import Iterator

import pytest

from fv.config.load import decode
from fv.config.syntax import parse
from fv.host import gather
from fv.plan.compile import compile_plan
from fv.plan.text import write
from tests.gateway.network import PORT, Capture, Lan, key_text, lan, source_of
from tests.interop import transfer
from tests.interop.netns import Host, wait_for
from tests.peers.wg_noise import Identity

pytestmark = pytest.mark.needs("root", "netns", "tun")

OUTER = ["192.0.2.2", "203.0.113.2", "198.51.100.10"]  # of exit, hop and server


def endpoint(net: Lan, number: int, hops: int, keys: list[Identity], far: list[Identity]) -> str:
    detour = f'detour = "t{number - 1}"' if number else ""
    takes = '"0.0.0.0/0", "::/0"' if number == hops - 1 else f'"{OUTER[number + 1]}/32"'
    return f"""
[[endpoints]]
type = "wireguard"
tag = "t{number}"
{f'name = "{net.name("gw")}"' if number == hops - 1 else ""}
address = ["10.{20 + number}.0.2/32", "fd{20 + number}::2/128"]
private_key = "{key_text(keys[number].private)}"
{detour}
[[endpoints.peers]]
public_key = "{key_text(far[number].public)}"
address = "{OUTER[number]}"
port = {PORT}
allowed_ips = [{takes}]
"""


def start(net: Lan, hops: int, workers: int) -> None:
    # Three hops on a link of 1,500 leave less than IPv6 may have.
    link = 1500 if hops == 2 else 1600
    for host, device in ((net.gate, "wire"), (net.exit, "wire"), (net.exit, "far"), (net.hop, "far"), (net.hop, "end"),
                         (net.server, "end")):  # fmt: skip
        host.ip(f"link set {device} mtu {link}")
    keys, far = [Identity.fresh() for _ in range(hops)], [Identity.fresh() for _ in range(hops)]
    for number, host in enumerate([net.exit, net.hop, net.server][:hops]):
        config = f"""
[engine]
workers = {workers}
state = "{net.state(f"far{number}")}"
control = "{net.control(f"far{number}")}"
[[endpoints]]
type = "wireguard"
tag = "far"
name = "f{number}{net.name("")}"
address = ["10.{20 + number}.0.1/24", "fd{20 + number}::1/64"]
private_key = "{key_text(far[number].private)}"
listen_port = {PORT}
mtu = {link - 80 * (number + 1)}
[[endpoints.peers]]
public_key = "{key_text(keys[number].public)}"
allowed_ips = ["10.{20 + number}.0.2/32", "fd{20 + number}::2/128"]
"""
        net.engine(host, f"far{number}", net.compile(host, config)).start()
    # Each hop's answers to the tunnel address of the one before find their way back.
    net.hop.ip("route add 10.20.0.0/24 via 203.0.113.1")
    if hops == 3:
        net.server.ip("route add 10.21.0.0/24 via 198.51.100.1")
    config = f"""
[engine]
workers = {workers}
state = "{net.state("gate")}"
control = "{net.control("gate")}"
log_level = "debug"
{"".join(endpoint(net, number, hops, keys, far) for number in range(hops))}
[gateway]
lan = ["lan"]
"""
    loaded = decode(parse(config, "edge.toml"))
    with net.gate.inside():
        compiled = compile_plan(loaded, gather(loaded.config))
    # 80 bytes a hop, so that it may be IPv6.
    assert [mtu.value for mtu in compiled.mtus] == [link - 80 * (number + 1) for number in range(hops)]
    net.engine(net.gate, "gate", write(compiled.plan)).start()


@pytest.fixture(scope="module", params=[(2, 1), (3, 1), (2, 2), (3, 2)], ids=lambda p: f"{p[0]} hops, {p[1]} workers")
def built(request: pytest.FixtureRequest) -> Iterator[tuple[Lan, Host, list[str]]]:
    hops, workers = request.param
    with lan() as net:
        start(net, hops, workers)
        target = [net.exit, net.hop, net.server][hops - 1]
        addresses = [f"10.{19 + hops}.0.1", f"fd{19 + hops}::1"]
        for address in addresses:
            wait_for("the tunnels", lambda a=address: echo(net, a), 15)  # type: ignore[misc]
        yield net, target, addresses


def echo(net: Lan, address: str) -> bool:
    return net.echo(address)


@pytest.mark.parametrize("version", [0, 1], ids=["IPv4", "IPv6"])
class TestThrough:
    def test_tcp(self, built: tuple[Lan, Host, list[str]], version: int) -> None:
        net, target, addresses = built
        with Capture(net.gate, "wire") as uplink:
            transfer.tcp(net.client, target, addresses[version], 3_000_000)
            sizes = [len(p) for p in uplink.packets() if source_of(p) == "192.0.2.1"]
        assert sizes

    def test_udp(self, built: tuple[Lan, Host, list[str]], version: int) -> None:
        net, target, addresses = built
        transfer.udp(net.client, target, addresses[version], 100_000, segments=4)

    def test_ping_in_fragments(self, built: tuple[Lan, Host, list[str]], version: int) -> None:
        net, _, addresses = built
        transfer.ping(net.client, addresses[version], 3000, seconds=8)


def test_carriers_have_no_interface(built: tuple[Lan, Host, list[str]]) -> None:
    net, _, _ = built
    links = net.gate.run("ip", "-br", "link").stdout
    assert sorted(line.split()[0].partition("@")[0] for line in links.splitlines()) == sorted(
        ["lo", "lan", "wire", net.name("gw")]
    )


def test_uplink_sees_only_the_entry(built: tuple[Lan, Host, list[str]]) -> None:
    """Nothing fragmented: the MTU was worked out so that the outermost datagram fits the link."""
    net, target, addresses = built
    with Capture(net.gate, "wire") as uplink:
        transfer.tcp(net.client, target, addresses[0], 1_000_000)
        seen = [p for p in uplink.packets() if p[0] >> 4 == 4 and p[9] in (17, 6)]
    assert {(p[12:16], p[16:20]) for p in seen} <= {
        (bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])),
        (bytes([192, 0, 2, 2]), bytes([192, 0, 2, 1])),
    }
    assert not [p for p in seen if p[6] & 0x3F or p[7]], "outer packets were fragmented"
