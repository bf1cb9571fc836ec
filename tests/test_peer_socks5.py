"""The reference SOCKS5 peer: the known answers, its roles against each other, other programs with either."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.peers import proxy_shell as shell
from tests.peers import socks5
from tests.peers.proxy import (
    NOWHERE,
    Action,
    BadInputError,
    Close,
    Dial,
    Ended,
    Opened,
    Payload,
    Send,
    Target,
    address_block,
    take_address,
)
from tests.proxies import Echo, free_port, sing_box, talk, xray

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors/socks5.json").read_text())
BY_NAME = {v["name"]: v for v in VECTORS["vectors"]}
USERS = {"user": "p:ass"}


def wire(name: str) -> bytes:
    return bytes.fromhex(BY_NAME[name]["wire_hex"])


def sent(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, Send))


def payload(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, Payload))


@pytest.mark.parametrize("case", VECTORS["addresses"], ids=lambda v: v["host"][:16])
def test_addresses(case: dict[str, Any]) -> None:
    target, data = Target(case["host"], case["port"]), bytes.fromhex(case["hex"])
    assert address_block(target) == data
    assert take_address(data + b"rest") == (target, len(data))
    for size in range(len(data)):
        assert take_address(data[:size]) is None


@pytest.mark.parametrize(("name", "host"), [(b"192.0.2.1", "192.0.2.1"), (b"[2001:DB8::1]", "2001:db8::1")])
def test_a_literal_in_a_name_s_clothes(name: bytes, host: str) -> None:
    block = bytes([3, len(name)]) + name + b"\x00\x50"
    assert take_address(block, brackets=True) == (Target(host, 80), len(block))


def test_every_vector_is_used() -> None:
    used = {"greeting-noauth", "greeting-userpass", "greeting-both", "method-noauth", "method-userpass", "method-none"}
    used |= {"auth", "auth-ok", "auth-fail"}
    rest = [v for v in VECTORS["vectors"] if v["name"] not in used]
    assert all("cmd" in v or "rep" in v or v["name"].startswith(("reply-", "udp-", "bad-")) for v in rest)


def test_greetings_and_logins() -> None:
    assert socks5.greeting(0) == wire("greeting-noauth")
    assert socks5.greeting(2) == wire("greeting-userpass")
    assert socks5.greeting(0, 2) == wire("greeting-both")
    assert socks5.login("user", "p:ass") == wire("auth")
    assert sent(socks5.Server().receive(wire("greeting-both"))) == wire("method-noauth")
    server = socks5.Server(USERS)
    assert sent(server.receive(wire("greeting-both"))) == wire("method-userpass")
    assert sent(server.receive(wire("auth"))) == wire("auth-ok")
    actions = socks5.Server(USERS).receive(wire("greeting-userpass") + wire("auth").replace(b"p:ass", b"wrong"))
    assert sent(actions) == wire("method-userpass") + wire("auth-fail")
    assert isinstance(actions[-1], Close)
    actions = socks5.Server(USERS).receive(wire("greeting-noauth"))
    assert sent(actions) == wire("method-none")
    assert isinstance(actions[-1], Close)


@pytest.mark.parametrize("case", [v for v in VECTORS["vectors"] if "cmd" in v], ids=lambda v: v["name"])
def test_requests(case: dict[str, Any]) -> None:
    target = Target(case["host"], case["port"])
    assert socks5.request(case["cmd"], target).hex() == case["wire_hex"]
    server = socks5.Server()
    actions = server.receive(wire("greeting-noauth") + bytes.fromhex(case["wire_hex"]))
    asked = actions[-1]
    if case["cmd"] == socks5.CONNECT:
        assert asked == Dial(target)
    else:
        assert getattr(asked, "hint", None) == target
    assert sent(server.dialled("", Target("127.0.0.1", 1080))) == wire("reply-ok")


def reply_cases() -> list[dict[str, Any]]:
    return [v for v in VECTORS["vectors"] if v["name"].startswith("reply-")]


@pytest.mark.parametrize("case", reply_cases(), ids=lambda v: v["name"])
def test_replies(case: dict[str, Any]) -> None:
    bound = Target(case["host"], case["port"]) if "host" in case else NOWHERE
    assert socks5.reply(case["rep"], bound).hex() == case["wire_hex"]
    client = socks5.Client(Target("fv.test", 80))
    client.start()
    actions = client.receive(wire("method-noauth") + bytes.fromhex(case["wire_hex"]))
    if case["rep"] == socks5.SUCCESS:
        assert actions[-1] == Opened(bound)
    else:
        assert isinstance(actions[-1], Close)
        assert isinstance(client.error, socks5.ProxyError)
        assert client.error.code == case["rep"]
        assert client.error.blames_target == (case["rep"] in (3, 4, 5, 6))


@pytest.mark.parametrize("failure", [f for f in socks5.REPLY_OF if f])
def test_a_failed_dial_is_answered_with_its_reason(failure: str) -> None:
    server = socks5.Server()
    server.receive(wire("greeting-noauth") + wire("connect-domain"))
    actions = server.dialled(failure)
    assert sent(actions) == socks5.reply(socks5.REPLY_OF[failure])
    assert isinstance(actions[-1], Close)


@pytest.mark.parametrize(
    "case", [v for v in VECTORS["vectors"] if v["name"].startswith("udp-")], ids=lambda v: v["name"]
)
def test_datagrams(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["wire_hex"])
    server = socks5.UdpServer("127.0.0.1")
    taken = server.receive(data, ("127.0.0.1", 5000), 0.0)
    if case.get("expect") == "drop":
        assert taken is None
        assert server.drops.total() == 1
        assert server.client is None
    else:
        target, content = Target(case["host"], case["port"]), bytes.fromhex(case["payload_hex"])
        assert taken == (b"", target, content)
        assert socks5.datagram(target, content) == data
        assert socks5.UdpClient().receive(data, 0.0) == (target, content)


EXPECTED = {
    "close": b"",
    "method-ff-then-close": b"\x05\xff",
    "reply-01-then-close": socks5.reply(1),
    "reply-07-then-close": socks5.reply(7),
    "reply-08-then-close": socks5.reply(8),
}


@pytest.mark.parametrize(
    "case", [v for v in VECTORS["vectors"] if v["name"].startswith("bad-")], ids=lambda v: v["name"]
)
def test_bad_vectors(case: dict[str, Any]) -> None:
    login = case["name"] == "bad-auth-version"
    server = socks5.Server(USERS if login else None, socks4=False)
    if login:
        server.receive(wire("greeting-userpass"))
    elif case["wire_hex"].startswith("05") and case["name"] != "bad-nmethods-zero":
        server.receive(wire("greeting-noauth"))
    actions = server.receive(bytes.fromhex(case["wire_hex"]))
    assert sent(actions) == EXPECTED[case["expect"]]
    assert isinstance(actions[-1], Close)


@pytest.mark.parametrize("name", [*socks5.ATTACKS, *socks5.LOGIN_ATTACKS])
def test_attacks(name: str) -> None:
    data, answer = (socks5.ATTACKS | socks5.LOGIN_ATTACKS)[name]
    server = socks5.Server(USERS if name in socks5.LOGIN_ATTACKS else None)
    actions = server.receive(data)
    assert sent(actions) == answer
    assert isinstance(actions[-1], Close)
    assert not any(isinstance(a, Dial) for a in actions)


@pytest.mark.parametrize("name", socks5.DATAGRAM_ATTACKS)
def test_datagram_attacks(name: str) -> None:
    assert socks5.UdpServer("::1").receive(socks5.DATAGRAM_ATTACKS[name], ("::1", 1), 0.0) is None


def test_the_association_is_its_client_s_alone() -> None:
    server = socks5.UdpServer("192.0.2.1")
    hello = wire("udp-v4")
    assert server.receive(hello, ("192.0.2.2", 1), 0.0) is None
    assert server.reply(b"", NOWHERE, b"", 0.0) is None
    assert server.receive(hello, ("192.0.2.1", 1), 0.0) is not None
    assert server.receive(hello, ("::ffff:192.0.2.1", 2), 0.0) is not None
    answer = server.reply(b"", Target("127.0.0.1", 38181), b"hi", 0.0)
    assert answer == (hello, ("::ffff:192.0.2.1", 2))


@pytest.mark.parametrize(
    ("bound", "server", "relay"),
    [
        ("0.0.0.0", "192.0.2.9", "192.0.2.9"),
        ("::", "2001:db8::1", "2001:db8::1"),
        ("10.0.0.1", "8.8.8.8", "8.8.8.8"),
        ("10.0.0.1", "10.0.0.2", "10.0.0.1"),
        ("8.8.4.4", "8.8.8.8", "8.8.4.4"),
        ("a.name", "8.8.8.8", "8.8.8.8"),
    ],
)
def test_relay_address(bound: str, server: str, relay: str) -> None:
    assert socks5.relay_address(Target(bound, 7), server) == (relay, 7)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


NAMES = st.text("abcdefghijklmnopqrstuvwxyz-.", min_size=1, max_size=255).filter(lambda n: n[0].isalpha())
TARGETS = st.builds(Target, st.one_of(NAMES, st.ip_addresses().map(str)), st.integers(min_value=1, max_value=65535))


@given(TARGETS, st.binary(max_size=64), st.lists(st.integers(0, 2**16), max_size=40), st.booleans())
def test_segmentation_changes_nothing(target: Target, content: bytes, cuts: list[int], logs_in: bool) -> None:
    whole = socks5.greeting(0, 2) + (socks5.login("user", "p:ass") if logs_in else b"")
    whole += socks5.request(socks5.CONNECT, target) + content
    server = socks5.Server(USERS if logs_in else None)
    actions = [a for piece in pieces(whole, cuts) for a in server.receive(piece)]
    assert actions[-1] == Dial(target, "user" if logs_in else None)
    assert sent(actions) == (b"\x05\x02\x01\x00" if logs_in else b"\x05\x00")
    actions = [*server.dialled("", target), *server.receive_eof()]
    assert sent(actions) == socks5.reply(0, target)
    assert payload(actions) == content
    assert actions[-1] == Ended()
    client = socks5.Client(target, user="user" if logs_in else None, password="p:ass")
    actions = client.start()
    answers = (b"\x05\x02\x01\x00" if logs_in else b"\x05\x00") + socks5.reply(0, target) + content
    for piece in pieces(answers, cuts):
        actions += client.receive(piece)
    assert Opened(target) in actions
    assert payload(actions) == content


@given(st.binary(max_size=80))
def test_any_bytes_are_survived(data: bytes) -> None:
    for users in (None, USERS):
        server = socks5.Server(users)
        server.receive(data)
        server.receive_eof()
    client = socks5.Client(Target("a", 1))
    client.start()
    client.receive(data)
    client.receive_eof()
    socks5.UdpServer("::").receive(data, ("::", 1), 0.0)


@pytest.mark.parametrize("target", [Target("192.0.2.1", 80), Target("fv.test", 80)], ids=str)
def test_version_4(target: Target) -> None:
    server = socks5.Server()
    assert server.receive(socks5.version4(target, "me")) == [Dial(target)]
    assert sent(server.dialled(""))[:2] == b"\x00\x5a"
    assert sent(socks5.Server(USERS).receive(socks5.version4(target)))[:2] == b"\x00\x5b"
    assert sent(socks5.Server().receive(socks5.version4(target, command=2)))[:2] == b"\x00\x5b"
    assert isinstance(socks5.Server(socks4=False).receive(socks5.version4(target))[-1], Close)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("segment", [0, 1], ids=["whole", "bytes"])
@pytest.mark.parametrize("user", [None, "user"], ids=["open", "login"])
def test_over_sockets(host: str, segment: int, user: str | None) -> None:
    async def run() -> None:
        server = shell.Server(
            lambda: socks5.Server(USERS if user else None),
            socks5.UdpServer,
            resolver=shell.Resolver({"fv.test": host}),
            wire=shell.Wire(segment),
        )
        async with Echo(host) as echo, shell.listening(server, host) as proxy:

            def client(target: Target, command: int = 1) -> socks5.Client:
                return socks5.Client(target, user=user, password="p:ass", command=command)

            for name in (host, "fv.test"):
                target = Target(name, echo.port)
                stream = await shell.dial(client(target), proxy, shell.Wire(segment))
                await talk(stream, 3000)
                control = await shell.dial(client(NOWHERE, socks5.ASSOCIATE), proxy)
                assert control.bound is not None
                assert control.bound.host == host
                udp = shell.UdpStream.open(socks5.UdpClient(), socks5.relay_address(control.bound, proxy[0]))
                for size in (0, 1, 1400, 60000):
                    udp.send(target, bytes(size))
                    assert await udp.receive() == (Target(host, echo.port), bytes(size))
                for data in socks5.DATAGRAM_ATTACKS.values():
                    udp.side.send(data, udp.server)
                udp.send(target, b"still there")
                assert (await udp.receive())[1] == b"still there"
                control.close()
                udp.close()
            with pytest.raises(socks5.ProxyError) as refused:
                await shell.dial(client(Target(host, free_port())), proxy)
            assert refused.value.code == socks5.REFUSED

    asyncio.run(asyncio.wait_for(run(), 30))


def test_attacks_over_sockets_end_orderly() -> None:
    async def run() -> None:
        async with shell.listening(shell.Server(socks5.Server)) as proxy:
            for name, (data, answer) in socks5.ATTACKS.items():
                for segment in (0, 1):
                    reaction = await shell.probe(proxy, data, wire=shell.Wire(segment))
                    if name == "version" and segment:
                        continue  # closed after the first byte: what comes after it may meet RST
                    assert (reaction.received, reaction.close) == (answer, "fin"), name

    asyncio.run(asyncio.wait_for(run(), 30))


# --- other programs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", [None, "user"], ids=["open", "login"])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param("sing-box", marks=pytest.mark.needs("sing-box")),
        pytest.param("xray", marks=pytest.mark.needs("xray")),
    ],
)
def test_our_client_through(program: str, user: str | None, tmp_path: Path) -> None:
    port = free_port()
    if program == "sing-box":
        inbound: dict[str, Any] = {"type": "socks", "listen": "127.0.0.1", "listen_port": port}
        if user:
            inbound["users"] = [{"username": "user", "password": "p:ass"}]
        running = sing_box(tmp_path, inbounds=[inbound], ports=[port])
    else:
        settings: dict[str, Any] = {"udp": True, "ip": "127.0.0.1", "auth": "password" if user else "noauth"}
        if user:
            settings["accounts"] = [{"user": "user", "pass": "p:ass"}]
        inbound = {"protocol": "socks", "listen": "127.0.0.1", "port": port, "settings": settings}
        running = xray(tmp_path, inbounds=[inbound], ports=[port])

    async def run() -> None:
        async with Echo("127.0.0.1") as echo:
            for host in ("127.0.0.1", "localhost"):
                for segment in (0, 1):
                    client = socks5.Client(Target(host, echo.port), user=user, password="p:ass")
                    stream = await shell.dial(client, ("127.0.0.1", port), shell.Wire(segment))
                    await talk(stream, 100_000 if not segment else 200, half_close=False)
            client = socks5.Client(NOWHERE, user=user, password="p:ass", command=socks5.ASSOCIATE)
            control = await shell.dial(client, ("127.0.0.1", port))
            assert control.bound is not None
            udp = shell.UdpStream.open(socks5.UdpClient(), socks5.relay_address(control.bound, "127.0.0.1"))
            for size in (1, 1400, 8000):
                udp.send(Target("127.0.0.1", echo.port), bytes(size))
                assert await udp.receive() == (Target("127.0.0.1", echo.port), bytes(size))
            if user:
                with pytest.raises(BadInputError):
                    await shell.dial(socks5.Client(NOWHERE, user=user, password="no"), ("127.0.0.1", port))
            else:
                reaction = await shell.probe(("127.0.0.1", port), socks5.ATTACKS["bind"][0])
                assert reaction.received == socks5.ATTACKS["bind"][1]

    with running:
        asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("user", [None, "user"], ids=["open", "login"])
@pytest.mark.parametrize(
    "program",
    [
        pytest.param("sing-box", marks=pytest.mark.needs("sing-box")),
        pytest.param("xray", marks=pytest.mark.needs("xray")),
    ],
)
def test_our_server_behind(program: str, user: str | None, tmp_path: Path) -> None:
    """The program takes SOCKS5 on one port and goes on to our server."""

    async def run() -> None:
        port = free_port()
        server = shell.Server(
            lambda: socks5.Server(USERS if user else None),
            socks5.UdpServer,
            resolver=shell.Resolver({"fv.test": "127.0.0.1"}),
        )
        async with Echo("127.0.0.1") as echo, shell.listening(server) as proxy:
            if program == "sing-box":
                outbound: dict[str, Any] = {"type": "socks", "server": proxy[0], "server_port": proxy[1]}
                if user:
                    outbound |= {"username": "user", "password": "p:ass"}
                inbound: dict[str, Any] = {"type": "socks", "listen": "127.0.0.1", "listen_port": port}
                running = sing_box(tmp_path, inbounds=[inbound], outbounds=[outbound], ports=[port])
            else:
                entry: dict[str, Any] = {"address": proxy[0], "port": proxy[1]}
                if user:
                    entry["users"] = [{"user": "user", "pass": "p:ass"}]
                outbound = {"protocol": "socks", "settings": {"servers": [entry]}}
                inbound = {
                    "protocol": "socks",
                    "listen": "127.0.0.1",
                    "port": port,
                    "settings": {"udp": True, "ip": "127.0.0.1"},
                }
                running = xray(tmp_path, inbounds=[inbound], outbounds=[outbound], ports=[port])
            with running:
                for host in ("127.0.0.1", "fv.test"):
                    stream = await shell.dial(socks5.Client(Target(host, echo.port)), ("127.0.0.1", port))
                    await talk(stream, 100_000, half_close=False)
                    assert server.dials[-1] == Dial(Target(host, echo.port), user)
                control = await shell.dial(socks5.Client(NOWHERE, command=socks5.ASSOCIATE), ("127.0.0.1", port))
                assert control.bound is not None
                udp = shell.UdpStream.open(socks5.UdpClient(), socks5.relay_address(control.bound, "127.0.0.1"))
                for size in (1, 1400, 8000):
                    udp.send(Target("127.0.0.1", echo.port), bytes(size))
                    assert (await udp.receive())[1] == bytes(size)

    asyncio.run(asyncio.wait_for(run(), 30))
