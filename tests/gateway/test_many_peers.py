"""Ten thousand peers of one device: by the plan, by `wg setconf`, by a swap; what an idle one costs."""

import os
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.network import Engine, fvd, sanitized
from tests.interop.netns import Host, hosts, wait_for

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

PEERS = 10_000
KIB = 1024


def name() -> str:
    return f"fvt{os.getpid()}"


@pytest.fixture(scope="module")
def keys() -> list[bytes]:
    return [os.urandom(31) + b"\x10" for _ in range(PEERS)]  # any 32 bytes are a public key


@pytest.fixture
def host() -> Iterator[Host]:
    with hosts(1) as (one,):
        yield one


def address(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}/32"


def plan(host: Host, keys: list[bytes]) -> str:
    peers = "".join(f"public_key={key.hex()}\nallowed_ip={address(i)}\n" for i, key in enumerate(keys))
    return (
        f"plan=1\nneeds=wireguard,network\n\n[engine]\ncontrol={host.folder}/{host.name}.sock\n\n"
        f"[wireguard {name()}]\nprivate_key={bytes(31).hex()}41\nlisten_port=0\n{peers}\n"
        f"[network]\nlink={name()} mtu 1420 up\n"
    )


def resident(engine: Engine) -> int:
    return int(engine.stats()["resident_anonymous"])


def started(host: Host, text: str) -> Engine:
    file = host.folder / f"{host.name}.plan"
    file.write_text(text)
    return Engine(host, file, f"{host.folder}/{host.name}.sock").start()


def shown(host: Host) -> int:
    return len(host.run("wg", "show", name(), "allowed-ips").stdout.splitlines())


def test_by_the_plan_and_a_swap(host: Host, keys: list[bytes]) -> None:
    empty = started(host, plan(host, []))
    base = resident(empty)
    began = time.monotonic()
    empty.swap(plan(host, keys))
    assert time.monotonic() - began < 5
    assert shown(host) == PEERS
    empty.swap(plan(host, keys[: PEERS // 2]))
    assert shown(host) == PEERS // 2
    empty.swap(plan(host, keys))
    assert empty.number("peers") == PEERS
    assert empty.stop() == 0
    began = time.monotonic()
    full = started(host, plan(host, keys))
    assert time.monotonic() - began < 10
    assert shown(host) == PEERS
    text = len(plan(host, keys))  # the plan in force is kept, for `get`
    assert sanitized() or resident(full) - base - 2 * text < PEERS * KIB
    assert full.stop() == 0


def test_by_setconf(host: Host, keys: list[bytes]) -> None:
    program = host.start(fvd(), "-f", name())
    path = Path(f"/var/run/wireguard/{name()}.sock")
    wait_for("the socket", path.exists, 10)
    status = Path(f"/proc/{program.process.pid}/status")

    def rss() -> int:
        return int(status.read_text().partition("RssAnon:")[2].split()[0]) * 1024

    host.run("wg", "show", name())
    before = rss()
    conf = host.folder / "many.conf"
    conf.write_text(
        f"[Interface]\nPrivateKey = {b64encode(bytes(31) + b'A').decode()}\n"
        + "".join(
            f"[Peer]\nPublicKey = {b64encode(key).decode()}\nAllowedIPs = {address(i)}\n" for i, key in enumerate(keys)
        )
    )
    host.run("wg", "setconf", name(), str(conf), seconds=30)
    assert shown(host) == PEERS
    assert sanitized() or rss() - before < PEERS * KIB
    host.run("wg", "syncconf", name(), str(conf), seconds=30)
    assert shown(host) == PEERS
    assert program.stop() == 0
