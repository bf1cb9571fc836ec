"""What the doctor makes of what it was told. What it asks the kernel is asked here of loopback."""

import pathlib
import socket
import struct

import pytest

from fv import doctor, uapi
from fv.config.check import check
from fv.config.load import Loaded, decode
from fv.config.syntax import parse
from fv.plan.facts import Facts, Link, Route

KEY = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
OTHER = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="
TEXT = f"""[[endpoints]]
type = "wireguard"
tag = "wg0"
address = "10.7.0.2/24"
private_key = "{KEY}"
[[endpoints.peers]]
public_key = "{OTHER}"
allowed_ips = ["0.0.0.0/0"]
address = "vpn.example"
port = 51820
persistent_keepalive_interval = 25
"""


def loaded(extra: str = "") -> Loaded:
    found = decode(parse(TEXT + extra, "edge.toml"))
    check(found)
    return found


def levels(findings: list[doctor.Finding]) -> list[str]:
    return [finding.level for finding in findings]


@pytest.mark.parametrize(("handshake", "keepalive", "endpoint", "level"), [
    (0.0, 25, "192.0.2.1:5", doctor.BAD), (0.0, 0, "", doctor.NOTE), (1000.0 - 30, 25, "192.0.2.1:5", doctor.GOOD),
    (1000.0 - 181, 25, "192.0.2.1:5", doctor.BAD), (1000.0 - 9999, 0, "192.0.2.1:5", doctor.GOOD),
])  # fmt: skip
def test_handshake_age(handshake: float, keepalive: int, endpoint: str, level: str) -> None:
    device = uapi.Device("wg0", 1, 0, (uapi.Peer("ab" * 32, endpoint, (), handshake, 0, 0, keepalive),))
    (finding,) = doctor.handshakes(loaded().config.endpoints[0], device, 1000.0)
    assert finding.level == level
    assert bool(finding.do) == (level != doctor.GOOD)


def test_drops_are_named_and_explained() -> None:
    found = doctor.drops(
        {"device.wg0.drop.handshake_replayed": "3", "device.wg0.drop.x_y": "1", "device.wg0.mtu": "1420"}
    )
    assert [finding.what.split(":")[0] for finding in found] == ["wg0", "wg0"]
    assert "clock went back" in found[0].what
    assert found[0].do
    assert levels(doctor.drops({"device.wg0.mtu": "1420"})) == [doctor.GOOD]


def test_explained_drops_are_the_engines() -> None:
    """A name that the engine does not have would never be shown."""
    native = pathlib.Path(__file__).parent.parent / "native"
    text = (native / "wg" / "wg.h").read_text() + (native / "flow" / "tunnel.h").read_text()
    assert [name for name in doctor.DROPS if f'"{name}"' not in text] == []


def test_skew() -> None:
    assert doctor.skew(31.0, "x").level == doctor.BAD
    assert "+31 s" in doctor.skew(31.0, "x").what
    assert doctor.skew(-2.0, "x").level == doctor.GOOD


def test_names_that_do_not_resolve() -> None:
    assert levels(doctor.names(loaded(), Facts())) == [doctor.BAD]
    assert levels(doctor.names(loaded(), Facts(names={"vpn.example": ("192.0.2.1",)}))) == [doctor.GOOD]


def test_strict_reverse_path_filter_on_the_uplink() -> None:
    facts = Facts((Link("eth0", 1500),), (Route("0.0.0.0/0", "eth0"),), reverse={"eth0": 1})
    (finding,) = [one for one in doctor.forwarding(loaded(), facts) if one.name == "rp_filter"]
    assert finding.level == doctor.BAD
    assert finding.do == "sysctl -w net.ipv4.conf.eth0.rp_filter=2"


def test_ipv6_that_leaves_beside_the_tunnel() -> None:
    open_ = '[gateway]\nlan = ["eth1"]\nkill_switch = { enabled = false }\n'
    assert levels(doctor.ipv6(loaded(open_))) == [doctor.BAD]
    assert levels(doctor.ipv6(loaded('[gateway]\nlan = ["eth1"]\n'))) == [doctor.NOTE]


def test_a_port_that_is_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        number = taken.getsockname()[1]
        endpoint = decode(
            parse(TEXT.replace("[[endpoints.peers]]", f"listen_port = {number}\n[[endpoints.peers]]"), "e.toml")
        )
        (finding,) = doctor.port(endpoint.config.endpoints[0])
        assert finding.level == doctor.BAD
        assert str(number) in finding.do
    (finding,) = doctor.port(endpoint.config.endpoints[0])
    assert finding.level == doctor.GOOD


def test_path_mtu_of_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        assert doctor.path_mtu("127.0.0.1", sink.getsockname()[1], 1500) >= 1500


@pytest.mark.needs("root")
def test_echo_over_loopback() -> None:
    assert doctor.echo("127.0.0.1", "lo", 84)
    assert doctor.echo("127.0.0.1", "lo", 1420)
    assert not doctor.echo("127.0.0.1", "lo", 65535 + 28)


def test_checksum_of_a_known_packet() -> None:
    # RFC 1071 section 3's example, complemented.
    assert doctor._checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
    packet = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + b"odd"
    whole = packet[:2] + struct.pack("!H", doctor._checksum(packet)) + packet[4:]
    assert doctor._checksum(whole) == 0


def test_feature_table_of_the_engine() -> None:
    head = "Linux 5.6.3 aarch64\n\nfeature  supported  used  what it is\n"
    good = doctor.features(head + "udp_gro  yes  yes  one call\navx2  no  no  another architecture\n")
    assert (good.level, good.what) == (doctor.GOOD, "1 features of this kernel are used")
    poor = doctor.features(head + "udp_gro  yes  no  one call\ntun_uso  no  no  Linux 6.2\n")
    assert poor.level == doctor.NOTE
    assert "it lacks tun_uso" in poor.what
    assert "switched off: udp_gro" in poor.what
