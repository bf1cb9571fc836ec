"""UDP over TCP of the reference peers: the known answers, and sing-box carrying it over Shadowsocks."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peers import proxy_shell as shell
from tests.peers import shadowsocks as ss
from tests.peers import uot
from tests.peers.proxy import Close, Target, address_block
from tests.peers.ss_crypto import Keys
from tests.proxies import Echo, free_port, sing_box

VECTORS = {v["id"]: v for v in json.loads((Path(__file__).parent / "vectors/uot.json").read_text())["vectors"]}


def target_of(case: dict[str, Any]) -> Target:
    host, _, port = case["dest"].rpartition(":")
    return Target(host.strip("[]"), int(port))


def test_magic_names() -> None:
    for version in (1, 2):
        assert address_block(Target(uot.MAGIC[version], 0)).hex() == VECTORS[f"magic_v{version}_socksaddr"]["hex"]


@pytest.mark.parametrize("name", [n for n in VECTORS if n.startswith("request_")])
def test_requests(name: str) -> None:
    case = VECTORS[name]
    data = uot.request(target_of(case), connected=bool(case["is_connect"]))
    assert data.hex() == case["hex"]
    reader = uot.Reader(reads_request=True)
    reader.receive(data)
    assert (reader.destination, reader.connected) == (target_of(case), bool(case["is_connect"]))


@pytest.mark.parametrize(
    "name", ["packet_ipv4", "packet_domain", "packet_ipv6", "empty_datagram", "connect_stream_data"]
)
def test_packets(name: str) -> None:
    case = VECTORS[name]
    target = target_of(case) if "dest" in case else None
    payload = bytes.fromhex(case.get("payload_hex", ""))
    assert uot.packet(target, payload).hex() == case["hex"]
    reader = uot.Reader(connected=target is None)
    reader.receive(bytes.fromhex(case["hex"]) * 2)
    assert reader.packets == [(target, payload)] * 2


def test_first_flight() -> None:
    target = Target("127.0.0.1", 29081)
    data = uot.request(target, connected=False) + uot.packet(target, b"ping")
    assert data.hex() == VECTORS["client_first_flight"]["hex"]


@given(st.lists(st.binary(max_size=50), max_size=5), st.lists(st.integers(0, 2**16), max_size=30), st.booleans())
def test_segmentation_changes_nothing(payloads: list[bytes], cuts: list[int], connected: bool) -> None:
    target = Target("2001:db8::1", 53)
    data = uot.request(target, connected=connected)
    data += b"".join(uot.packet(None if connected else target, p) for p in payloads)
    reader = uot.Reader(reads_request=True)
    for a, b in itertools.pairwise([0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]):
        reader.receive(data[a:b])
    assert reader.packets == [(None if connected else target, p) for p in payloads]
    assert isinstance(reader.receive_eof()[-1], Close)


@pytest.mark.parametrize("data", ["03", "0200", "ff7f000001", "007f0000", "007f00000171990003aa"])
def test_bad_input_ends_the_stream(data: str) -> None:
    reader = uot.Reader()
    actions = [*reader.receive(bytes.fromhex(data)), *reader.receive_eof()]
    assert isinstance(actions[-1], Close)
    assert reader.packets == []


@pytest.mark.needs("sing-box")
@pytest.mark.parametrize(("version", "connected"), [(1, False), (2, False), (2, True)])
def test_through_sing_box(version: int, connected: bool, tmp_path: Path) -> None:
    port = free_port()
    keys = Keys.of("aes-128-gcm", "fv-test-password")

    async def run() -> None:
        async with Echo("127.0.0.1") as echo:
            target = Target("127.0.0.1", echo.port)
            stream = await shell.dial(ss.Client(keys, Target(uot.MAGIC[version], 1)), ("127.0.0.1", port))
            framed = None if connected else target
            first = uot.request(target, connected=connected) if version == 2 else b""
            reader = uot.Reader(connected=connected)
            await stream.write(first + uot.packet(framed, b"ping") + uot.packet(framed, bytes(5000)))
            while len(reader.packets) < 2:
                reader.receive(await stream.read())
            assert reader.packets == [(framed, b"ping"), (framed, bytes(5000))]
            stream.close()

    inbound: dict[str, Any] = {"type": "shadowsocks", "listen": "127.0.0.1", "listen_port": port}
    inbound |= {"method": "aes-128-gcm", "password": "fv-test-password"}
    with sing_box(tmp_path, inbounds=[inbound], ports=[port]):
        asyncio.run(asyncio.wait_for(run(), 15))
