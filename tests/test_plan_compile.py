"""Configuration and facts in, plan out: every case of tests/cases/plan is a configuration and the plan expected of it.

`FV_WRITE_CASES=1 pytest tests/test_plan_compile.py` writes the plans anew; the difference is for a reader to judge.
"""

import os
import pathlib

import msgspec
import pytest

from fv.config.check import check
from fv.config.load import Loaded, decode
from fv.config.syntax import parse
from fv.errors import FvError
from fv.plan.ceilings import ceilings
from fv.plan.compile import Compiled, compile_plan
from fv.plan.facts import Facts, Link, Route
from fv.plan.text import read, write

CASES = pathlib.Path(__file__).parent / "cases" / "plan"
FACTS = msgspec.json.decode((CASES / "host.facts.json").read_bytes(), type=Facts)


def loaded(text: str) -> Loaded:
    found = decode(parse(text, "edge.toml"))
    check(found)
    return found


def case(name: str) -> Compiled:
    return compile_plan(loaded((CASES / f"{name}.toml").read_text()), FACTS)


@pytest.mark.parametrize("path", sorted(CASES.glob("*.toml")), ids=lambda path: path.stem)
def test_case(path: pathlib.Path) -> None:
    compiled = case(path.stem)
    text = write(compiled.plan)
    text += "".join(f"# {mtu.device}: {mtu.note}\n" for mtu in compiled.mtus)
    text += "".join(f"# warning: {warning}\n" for warning in compiled.warnings)
    expected = path.with_suffix(".plan")
    if os.environ.get("FV_WRITE_CASES"):
        expected.write_text(text)
    assert text == expected.read_text()
    assert read(text) == compiled.plan, "what the compiler wrote is not a plan"
    assert compile_plan(loaded(path.read_text()), FACTS) == compiled, "not a pure function"


def test_every_case_has_been_read_by_someone() -> None:
    """A few lines of the expected plans said again in words, so that regenerating them cannot hide a fault."""
    assert {m.device: m.value for m in case("multihop").mtus} == {"entry": 1420, "exit": 1340}
    assert {m.device: m.value for m in case("pppoe").mtus} == {"wg0": 1412, "wg1": 1432}
    assert {m.device: m.value for m in case("route_mtu").mtus} == {"wg0": 1320, "wg1": 1480}
    network = case("lan").plan.of("network")[0]
    order = [f"{line.key}={line.value}" for line in network.lines]
    switch = order.index("route=unreachable default table 51820 metric 4096")
    assert switch < order.index("link=wg0 mtu 1420 up"), "the kill switch is there before the tunnel is"
    assert order[-1].startswith("rule=priority 5210 ")
    assert case("multihop").plan.of("wireguard")[0].get("tun") == "false"
    assert not any("unreachable" in line.value for line in case("whole_host").plan.of("network")[0].lines)


PEER = """
[[endpoints]]
type = "wireguard"
tag = "wg0"
address = ["10.7.0.2/32"]
private_key = "{key}"
[[endpoints.peers]]
public_key = "{other}"
allowed_ips = ["10.0.0.0/8"]
address = "{address}"
port = 1
"""
KEY = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
OTHER = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="


@pytest.mark.parametrize("path", sorted(CASES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_running_engine_does_not_change_the_plan(path: pathlib.Path) -> None:
    """The same host once the engine has set its sysctls and made its links."""
    now = msgspec.structs.replace(
        FACTS, reverse={"eth0": 2, "wg0": 2}, accept_ra={"eth0": 2, "eth1": 1}, links=(*FACTS.links, Link("wg0", 1420))
    )
    config = loaded(path.read_text())
    assert compile_plan(config, now) == compile_plan(config, FACTS)


@pytest.mark.parametrize(("link_mtu", "route_mtu", "address", "mtu"), [
    (1500, 0, "192.0.2.1", 1420), (1492, 0, "192.0.2.1", 1412), (1500, 1280, "192.0.2.1", 1200),
    (9000, 0, "192.0.2.1", 8920), (65536, 0, "127.0.0.1", 65455), (1500, 0, "unresolved.example", 1420),
])  # fmt: skip
def test_mtu(link_mtu: int, route_mtu: int, address: str, mtu: int) -> None:
    facts = Facts(links=(Link("e", link_mtu),), routes=(Route("0.0.0.0/0", "e", mtu=route_mtu),))
    text = PEER.format(key=KEY, other=OTHER, address=address)
    assert compile_plan(loaded(text), facts).mtus[0].value == mtu


def test_an_mtu_that_leaves_nothing_is_an_error() -> None:
    facts = Facts(links=(Link("e", 600),), routes=(Route("0.0.0.0/0", "e"),))
    with pytest.raises(FvError, match=r"an MTU of 520 is left") as caught:
        compile_plan(loaded(PEER.format(key=KEY, other=OTHER, address="192.0.2.1")), facts)
    assert caught.value.where.line == 2


def test_destination_that_no_peer_takes() -> None:
    text = PEER.format(key=KEY, other=OTHER, address="192.0.2.1") + (
        '[gateway]\nlan = ["eth1"]\ndestinations = ["10.1.0.0/16", "11.0.0.0/8"]\n'
    )
    with pytest.raises(FvError, match=r"takes 11.0.0.0/8") as caught:
        compile_plan(loaded(text), FACTS)
    assert (caught.value.where.line, caught.value.where.key) == (14, "gateway.destinations[1]")


def test_ceilings_add_up() -> None:
    items = ceilings(case("lan").plan)
    assert items[-1].what == "total"
    assert items[-1].bytes == sum(item.bytes for item in items[:-1])
    assert any(item.what == "leases" and item.bytes == 16 << 20 for item in items)


def test_two_whole_hosts() -> None:
    one = PEER.format(key=KEY, other=OTHER, address="192.0.2.1").replace("10.0.0.0/8", "0.0.0.0/0")
    two = one.replace('"wg0"', '"wg1"').replace(KEY, "aGRnZmhqa2xpdXl0cmV3cXpYY3ZibmFzZGZnaGprbHA=")
    with pytest.raises(FvError, match="two endpoints take everything") as caught:
        compile_plan(loaded(one + two), FACTS)
    assert caught.value.where.key == "endpoints[1].peers"
