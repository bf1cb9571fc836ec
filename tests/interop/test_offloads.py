"""Every feature of the engine off, one by one and all together, and the MTUs: the same bytes come out.

The names are those of native/io/feature.h, which the engine's switch takes (FV_FEATURE_OFF, or feature_off in a plan).
Implementations that have no such switch are tried with the MTUs only.
"""

import re
from pathlib import Path

import pytest

from tests.interop import transfer
from tests.interop.implementations import IMPLEMENTATIONS, UNDER_TEST, Implementation, Tunnel, tunnel
from tests.interop.oracle import can, need

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

each_impl = pytest.mark.parametrize("impl", UNDER_TEST, ids=lambda impl: impl.name)


def everything(made: Tunnel) -> None:
    """TCP, UDP, UDP in segments and fragments, both inner families, both ways."""
    with made.explain():
        for source, target in ((made.left, made.right), (made.right, made.left)):
            for address in (target.address4, target.address6):
                transfer.tcp(source.host, target.host, address, 4 << 20)
                transfer.udp(source.host, target.host, address, 1 << 18)
                transfer.udp(source.host, target.host, address, 1 << 19, datagram=1100, segments=24)
                transfer.udp(source.host, target.host, address, 1 << 17, datagram=20000)
                transfer.ping(source.host, address, 5000)


def feature_names() -> list[str]:
    """From the table itself, so that a feature that is added is tested."""
    header = Path(__file__).resolve().parents[2] / "native/io/feature.h"
    return re.findall(r'^ +X\([A-Z0-9_]+, "([a-z0-9_]+)"', header.read_text(), re.MULTILINE)


# No way of a WireGuard packet asks for these; their own tests force them off.
NOT_HERE = {"splice", "bind_device", "txtime"}
SWITCHED = [name for name in feature_names() if name not in NOT_HERE]


def test_feature_names_are_found() -> None:
    assert {"udp_segment", "udp_gro", "tun_tso", "tun_uso"} <= set(SWITCHED)


@pytest.mark.parametrize("off", [*SWITCHED, ",".join(feature_names()), "udp_gro,udp_segment,tun_uso"])
@pytest.mark.parametrize("impl", [i for i in UNDER_TEST if i.program == "fvd"], ids=lambda impl: impl.name)
def test_feature_off(impl: Implementation, off: str) -> None:
    need(impl)
    with tunnel(impl, impl, environment={"FV_FEATURE_OFF": off}) as made:
        everything(made)


@each_impl
@pytest.mark.parametrize("mtu", [1280, 1420, 8920])
@pytest.mark.parametrize("partner", ["same", "wireguard-go"])
def test_mtu(impl: Implementation, mtu: int, partner: str) -> None:
    other = impl if partner == "same" else IMPLEMENTATIONS[partner]
    need(impl, other)
    with tunnel(impl, other, mtu=mtu, outer=6 if mtu == 1280 else 4) as made:
        everything(made)


@each_impl
def test_wire_smaller_than_the_tunnel(impl: Implementation) -> None:
    """Outer packets that do not fit the wire are fragmented, whatever the offloads say (spec: DF clear)."""
    need(impl)
    can(impl, "wire smaller than the tunnel")
    with tunnel(impl, impl) as made:
        transfer.ping(made.left.host, made.right.address4)
        for end in (made.left, made.right):
            end.host.ip("link set wire mtu 1300")
        with made.explain():
            transfer.ping(made.left.host, made.right.address4, 1392)
            transfer.tcp(made.left.host, made.right.host, made.right.address4, 2 << 20)
