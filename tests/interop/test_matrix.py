"""Each implementation under test with each other one: who starts, what passes, what is inside what.

All content is compared by SHA-256 (transfer.py). The outer family is a parameter and both inner families are tried in
each, so that IPv6 in IPv4 and the reverse are among the cases.
"""

import os
from collections.abc import Iterator

import pytest

from tests.interop import transfer
from tests.interop.implementations import OTHERS, UNDER_TEST, Implementation, Tunnel, tunnel
from tests.interop.netns import wait_for

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

PAIRS = [pytest.param((ours, other), id=f"{ours.name}:{other.name}") for ours in UNDER_TEST for other in OTHERS]


def need(*impls: Implementation) -> None:
    for impl in impls:
        if not impl.present():
            pytest.skip(f"needs {impl.program}")


def amount(built: Tunnel, full: int) -> int:
    """Bytes of a transfer: less where one end is slow, or (FV_INTEROP_SLOW) the machine is, as an emulated one is."""
    slow = built.left.impl.slow or built.right.impl.slow or "FV_INTEROP_SLOW" in os.environ
    return full // 16 if slow else full


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest) -> tuple[Implementation, Implementation]:
    impls: tuple[Implementation, Implementation] = request.param
    need(*impls)
    return impls


@pytest.fixture(scope="module", params=[4, 6], ids=["in4", "in6"])
def built(pair: tuple[Implementation, Implementation], request: pytest.FixtureRequest) -> Iterator[Tunnel]:
    with tunnel(*pair, outer=request.param) as made:
        yield made


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
@pytest.mark.parametrize("starts", ["left", "right"])
@pytest.mark.parametrize("psk", [True, False], ids=["psk", "no-psk"])
def test_handshake(pair: tuple[Implementation, Implementation], starts: str, psk: bool) -> None:
    """Only the end that starts knows the other's address, so it must be the initiator; the other one learns."""
    with tunnel(*pair, psk=psk, left_knows=starts == "left", right_knows=starts == "right") as made:
        first, second = (made.left, made.right) if starts == "left" else (made.right, made.left)
        transfer.ping(first.host, second.address4)
        wait_for("handshake shown by both", lambda: first.handshakes() and second.handshakes())
        transfer.ping(second.host, first.address6)


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
class TestTraffic:
    @pytest.mark.parametrize("size", [0, 56, 1392, 4000, 20000])
    def test_ping_with_fragments(self, built: Tunnel, size: int) -> None:
        with built.explain():
            for source, target in ((built.left, built.right), (built.right, built.left)):
                transfer.ping(source.host, target.address4, size)
                transfer.ping(source.host, target.address6, size)

    @pytest.mark.parametrize("inner", [4, 6], ids=["ipv4", "ipv6"])
    @pytest.mark.parametrize("way", ["out", "back"])
    def test_tcp(self, built: Tunnel, inner: int, way: str) -> None:
        source, target = (built.left, built.right) if way == "out" else (built.right, built.left)
        address = target.address4 if inner == 4 else target.address6
        with built.explain():
            transfer.tcp(source.host, target.host, address, amount(built, 8 << 20))

    @pytest.mark.parametrize("inner", [4, 6], ids=["ipv4", "ipv6"])
    @pytest.mark.parametrize("way", ["out", "back"])
    @pytest.mark.parametrize("segments", [1, 16], ids=["single", "segments"])
    def test_udp(self, built: Tunnel, inner: int, way: str, segments: int) -> None:
        source, target = (built.left, built.right) if way == "out" else (built.right, built.left)
        address = target.address4 if inner == 4 else target.address6
        with built.explain():
            transfer.udp(source.host, target.host, address, amount(built, 1 << 20), segments=segments)
            transfer.udp(source.host, target.host, address, amount(built, 1 << 18), datagram=9000)
