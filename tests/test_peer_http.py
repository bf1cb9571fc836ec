"""The reference HTTP proxy: the known answers, its roles against each other, other programs with either."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.peers import http
from tests.peers import proxy_shell as shell
from tests.peers.http_head import Head, parse_head, split_absolute, split_authority
from tests.peers.proxy import Action, Address, Close, Dial, Ended, HangUp, Opened, Payload, Send, Target
from tests.proxies import Echo, Running, free_port, sing_box, talk, xray

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors/http.json").read_text())["vectors"]
BY_NAME = {v["name"]: v for v in VECTORS}
USERS = {"user": "p:ass"}
TARGET = Target("fv.test", 38180)


def wire(name: str) -> bytes:
    return bytes.fromhex(BY_NAME[name]["wire_hex"])


def sent(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, Send))


def payload(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, Payload))


def named(prefix: str) -> list[Any]:
    return [pytest.param(v, id=v["name"]) for v in VECTORS if v["name"].startswith(prefix)]


# --- known answers ----------------------------------------------------------------------------------------------------


def test_every_vector_is_used() -> None:
    groups = ("basic-", "authority-", "connect-", "forward-", "auth-required", "established", "bad-origin-form")
    assert [v["name"] for v in VECTORS if not v["name"].startswith(groups)] == []
    assert all(v["text"].encode("latin-1") == bytes.fromhex(v["wire_hex"]) for v in VECTORS if "wire_hex" in v)


@pytest.mark.parametrize("case", named("basic-"))
def test_basic(case: dict[str, Any]) -> None:
    assert http.basic(case["user"], case["password"]) == case["header"]
    found = (case["user"].encode(), case["password"].encode())
    assert http.credentials(case["header"]) == found
    assert http.credentials(case["header"].replace("Basic", "bAsIc")) == found


@pytest.mark.parametrize("header", ["", "Basic", "Basic ###", "Basic dXNlcg==", "Bearer dXNlcjpwOmFzcw=="])
def test_no_credentials(header: str) -> None:
    assert http.credentials(header) is None


@pytest.mark.parametrize("case", named("authority-"))
def test_authorities(case: dict[str, Any]) -> None:
    server = http.Server()
    actions = server.receive(f"CONNECT {case['text']} HTTP/1.1\r\n\r\n".encode())
    if "expect" in case:
        assert sent(actions) == http.answer(400)
        assert isinstance(actions[-1], Close)
    else:
        assert actions == [Dial(Target(case["host"], case["port"]))]
        assert split_authority(case["text"]) == Target(case["host"], case["port"])


@pytest.mark.parametrize("case", named("connect-"))
def test_connect(case: dict[str, Any]) -> None:
    target = Target(case.get("host", "fv.test"), case.get("port", 38180))
    has_user = case["name"] in ("connect-auth", "connect-singbox")
    extra = [("User-Agent", "Go-http-client/1.1")] if case["name"] == "connect-singbox" else []
    user = "user" if has_user else None
    if extra:  # sing-box has it before the credentials
        head = parse_head(wire(case["name"]).splitlines(keepends=True)[:-1], is_request=True)
        assert head.encode() == wire(case["name"])
    else:
        assert sent(http.Client(target, user=user, password="p:ass").start()) == wire(case["name"])
    server = http.Server(USERS if has_user else None)
    assert server.receive(wire(case["name"]) + b"early") == [Dial(target, user)]
    actions = server.dialled("")
    assert actions[0] == Send(wire("established"))
    assert payload(actions) == b"early"


def test_the_answer_to_wrong_credentials() -> None:
    server = http.Server(USERS)
    actions: list[Action] = []
    for expected in ("auth-required", "auth-required", "auth-required-close"):
        actions = server.receive(wire("connect-noauth"))
        assert sent(actions) == wire(expected)
    assert isinstance(actions[-1], Close)
    server = http.Server(USERS)
    server.receive(wire("connect-noauth"))
    assert server.receive(wire("connect-auth")) == [Dial(TARGET, "user")]
    old = wire("connect-noauth").replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Keep-Alive", b"x")
    assert sent(http.Server(USERS).receive(old)) == wire("auth-required-close")
    body = b"POST http://fv.test/ HTTP/1.1\r\nHost: fv.test\r\nContent-Length: 1\r\n\r\nx"
    assert sent(http.Server(USERS).receive(body)) == wire("auth-required-close")


def test_forward() -> None:
    server = http.Server(USERS)
    assert server.receive(wire("forward-in")) == [Dial(TARGET, "user")]
    assert payload(server.dialled("")) == wire("forward-out")
    assert sent(http.Server().receive(wire("bad-origin-form"))) == http.answer(400)


@pytest.mark.parametrize(
    ("failure", "status"),
    [("refused", 502), ("net-unreachable", 502), ("timeout", 504), ("denied", 403), ("failed", 502)],
)
@pytest.mark.parametrize("name", ["connect-noauth", "forward-in"])
def test_a_failed_dial_is_answered_with_its_status(name: str, failure: str, status: int) -> None:
    server = http.Server()
    server.receive(wire(name))
    actions = server.dialled(failure)
    assert sent(actions) == http.answer(status)
    assert isinstance(actions[-1], Close)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"HTTP/1.1 407 No\r\n\r\n", "credentials"),
        (b"HTTP/1.0 403 No\r\n\r\n", "policy"),
        (b"HTTP/1.1 502 No\r\nContent-Length: 3\r\n\r\nabc", "target"),
        (b"HTTP/1.1 504\r\n\r\n", "target"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "other"),
    ],
)
def test_a_client_says_who_is_to_blame(reply: bytes, kind: str) -> None:
    client = http.Client(TARGET)
    client.start()
    client.receive(reply)
    assert isinstance(client.error, http.ProxyError)
    assert client.error.kind == kind


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.0 200 fine\nX: y\n\n",
        b"HTTP/1.1 204 N\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_a_client_takes_any_2xx(reply: bytes) -> None:
    client = http.Client(TARGET)
    client.start()
    actions = client.receive(reply + b"first")
    assert actions == [Opened(), Payload(b"first")]


@pytest.mark.parametrize("name", http.ATTACKS)
def test_attacks(name: str) -> None:
    data, status = http.ATTACKS[name]
    server = http.Server()
    actions = server.receive(data)
    assert sent(actions) == (http.answer(status) if status else b"")
    assert isinstance(actions[-1], Close)
    bytewise = http.Server()
    slow = [a for byte in data for a in bytewise.receive(bytes([byte]))]
    assert sent(slow) == sent(actions)
    assert not any(isinstance(a, Dial) for a in slow)


@pytest.mark.parametrize(
    ("text", "target", "path"),
    [
        ("http://fv.test", Target("fv.test", 80), "/"),
        ("HTTP://fv.test?q", Target("fv.test", 80), "/?q"),
        ("http://[2001:db8::1]:8080/a//b?c=/d", Target("2001:db8::1", 8080), "/a//b?c=/d"),
    ],
)
def test_absolute_form(text: str, target: Target, path: str) -> None:
    assert split_absolute(text) == (target, path)


# --- forwarding -------------------------------------------------------------------------------------------------------

GET = b"GET http://fv.test/ HTTP/1.1\r\nHost: other.test:99\r\n\r\n"
RESPONSES = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"hello", True),
    "chunked": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n", True),
    "until-close": (b"HTTP/1.1 200 OK\r\n\r\n", b"hello", False),
    "no-content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "not-modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b"", True),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
}


@pytest.mark.parametrize("name", RESPONSES)
@settings(max_examples=20)
@given(st.lists(st.integers(0, 2**16), max_size=50))
def test_responses_come_back_whole_however_cut(name: str, cuts: list[int]) -> None:
    head, body, keeps = RESPONSES[name]
    data = (
        head.replace(b"\r\n\r\n", b"\r\nKeep-Alive: timeout=1\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\n\r\n")
        + body
    )
    server = http.Server()
    server.receive(GET)
    asked = payload(server.dialled(""))
    assert asked == b"GET / HTTP/1.1\r\nHost: fv.test\r\n\r\n"
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    actions = [a for x, y in itertools.pairwise(edges) for a in server.from_target(data[x:y])]
    if not keeps:
        actions += server.target_eof()
    said = b"Connection: keep-alive\r\n\r\n" if keeps else b"Connection: close\r\n\r\n"
    assert sent(actions) == head.removesuffix(b"\r\n") + said + body
    assert isinstance(actions[-1], HangUp if keeps else Close)
    if keeps:
        assert server.receive(GET.replace(b"fv.test", b"second.test")) == [Dial(Target("second.test", 80))]


def test_bodies_go_up_as_they_are() -> None:
    for framing, body in (
        (b"Content-Length: 5", b"hello"),
        (b"Transfer-Encoding: chunked", b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
    ):
        server = http.Server()
        server.receive(
            b"POST http://fv.test/x HTTP/1.1\r\nHost: fv.test\r\nExpect: 100-continue\r\n" + framing + b"\r\n\r\n"
        )
        assert payload(server.dialled("")).endswith(b"Expect: 100-continue\r\n" + framing + b"\r\n\r\n")
        assert sent(server.from_target(b"HTTP/1.1 100 Continue\r\n\r\n")) == b"HTTP/1.1 100 Continue\r\n\r\n"
        actions = [a for byte in body + GET for a in server.receive(bytes([byte]))]
        assert payload(actions) == body
        assert not any(isinstance(a, Dial) for a in actions)  # the next request waits for this one
        actions = server.from_target(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert isinstance(actions[-2], HangUp)
        assert actions[-1] == Dial(Target("fv.test", 80))


def test_a_client_of_1_0_gets_no_chunks() -> None:
    server = http.Server()
    server.receive(b"GET http://fv.test/ HTTP/1.0\r\n\r\n")
    server.dialled("")
    actions = server.from_target(RESPONSES["chunked"][0] + RESPONSES["chunked"][1])
    assert sent(actions) == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
    assert isinstance(actions[-1], Close)


def test_an_upgrade_becomes_a_tunnel() -> None:
    server = http.Server()
    server.receive(
        b"GET http://fv.test/ws HTTP/1.1\r\nHost: fv.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    )
    assert payload(server.dialled("")).endswith(b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    switching = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert sent(server.from_target(switching + b"\x81\x00")) == switching + b"\x81\x00"
    actions = [*server.receive(b"\x81\x01"), *server.receive_eof()]
    assert (payload(actions), actions[-1]) == (b"\x81\x01", Ended())


@pytest.mark.parametrize(
    "reply", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"]
)
def test_an_origin_that_makes_no_sense(reply: bytes) -> None:
    server = http.Server()
    server.receive(GET)
    server.dialled("")
    actions = [*server.from_target(reply), *server.target_eof()]
    assert sent(actions) == http.answer(502)


def test_a_body_that_breaks_off_is_not_passed_for_whole() -> None:
    server = http.Server()
    server.receive(GET)
    server.dialled("")
    server.from_target(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
    (last,) = server.target_eof()
    assert isinstance(last, Close)
    assert last.how == "reset"


@settings(max_examples=200)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_survived(data: bytes, as_method: bool) -> None:
    server = http.Server()
    server.receive((b"GET http://a/ HTTP/1.1\r\n" if as_method else b"") + data)
    server.receive_eof()
    client = http.Client(TARGET)
    client.start()
    client.receive(data)
    client.receive_eof()


# --- sockets ----------------------------------------------------------------------------------------------------------


class Origin:
    """Answers each request with its path in a body framed as the path says; keeps what it was asked."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []

    async def __aenter__(self) -> "Origin":
        self.tcp = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.tcp.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.tcp.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                path = head.split(b" ")[1]
                if path == b"/chunked":
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + path + b"\r\n0\r\n\r\n"
                    )
                elif path == b"/close":
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + path)
                    break
                else:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(path) + path)
                await writer.drain()
                if b"\r\nConnection: close\r\n" in head:  # Xray asks for it and passes nothing on before
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        writer.close()


async def fetch(proxy: Address, origin: Origin, *paths: str, wire: shell.Wire = shell.PLAIN) -> list[bytes]:
    """Bodies, by requests one after the other on one connection as long as it is kept."""
    reader, writer = await asyncio.open_connection(*proxy)
    bodies = []
    for path in paths:
        authority = f"127.0.0.1:{origin.port}"
        fields = [("Host", authority), ("Proxy-Connection", "keep-alive"), ("X-Test", "1")]
        await wire.write(writer, Head(f"GET http://{authority}{path} HTTP/1.1", fields).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        if b"chunked" in head:
            size = int(await reader.readline(), 16)
            bodies.append((await reader.readexactly(size + 2))[:-2])
            assert await reader.readexactly(5) == b"0\r\n\r\n"
        elif b"Content-Length" in head:
            bodies.append(await reader.readexactly(len(path)))
        else:
            bodies.append(await reader.read())
    writer.close()
    return bodies


@pytest.mark.parametrize("segment", [0, 1], ids=["whole", "bytes"])
@pytest.mark.parametrize("user", [None, "user"], ids=["open", "login"])
def test_over_sockets(segment: int, user: str | None) -> None:
    async def run() -> None:
        cut = shell.Wire(segment)
        server = shell.Server(
            lambda: http.Server(USERS if user else None), resolver=shell.Resolver({"fv.test": "127.0.0.1"}), wire=cut
        )
        async with Echo("127.0.0.1") as echo, Origin() as origin, shell.listening(server) as proxy:
            for host in ("127.0.0.1", "fv.test"):
                client = http.Client(Target(host, echo.port), user=user, password="p:ass")
                await talk(await shell.dial(client, proxy, cut), 3000)
            refused = http.Client(Target("127.0.0.1", free_port()), user=user, password="p:ass")
            with pytest.raises(http.ProxyError, match="502"):
                await shell.dial(refused, proxy)
            if user:
                with pytest.raises(http.ProxyError, match="407"):
                    await shell.dial(http.Client(Target("127.0.0.1", echo.port)), proxy)
            else:
                paths = ("/length", "/chunked", "/again", "/close")
                assert await fetch(proxy, origin, *paths, wire=cut) == [p.encode() for p in paths]
                assert all(b"X-Test: 1" in h and b"Proxy" not in h for h in origin.heads)

    asyncio.run(asyncio.wait_for(run(), 30))


def test_attacks_over_sockets_end_orderly() -> None:
    async def run() -> None:
        async with shell.listening(shell.Server(http.Server)) as proxy:
            for name, (data, status) in http.ATTACKS.items():
                reaction = await shell.probe(proxy, data)
                assert (reaction.received, reaction.close) == (http.answer(status) if status else b"", "fin"), name

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.needs("curl")
def test_curl(tmp_path: Path) -> None:
    async def curl(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *("curl", "--silent", "--show-error", "--noproxy", "", "--max-time", "10", *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode()

    async def run() -> None:
        server = shell.Server(lambda: http.Server(USERS))
        async with Origin() as origin, shell.listening(server) as proxy:
            through = ("--proxy", f"http://{proxy[0]}:{proxy[1]}", "--proxy-user", "user:p:ass")
            urls = [f"http://127.0.0.1:{origin.port}/{path}" for path in ("length", "chunked", "again", "close")]
            assert await curl(*through, *urls) == "/length/chunked/again/close"
            assert await curl(*through, "--proxytunnel", *urls) == "/length/chunked/again/close"
            assert await curl(*through, "--proxy-anyauth", *urls) == "/length/chunked/again/close"
            assert await curl(*through, "--http1.0", urls[1]) == "/chunked"
            assert await curl(*through, "--data", "x" * 100_000, urls[0]) == "/length"

    asyncio.run(asyncio.wait_for(run(), 30))


# --- other programs ---------------------------------------------------------------------------------------------------


def inbound(program: str, folder: Path, user: str | None, port: int) -> Running:
    if program == "sing-box":
        entry: dict[str, Any] = {"type": "http", "listen": "127.0.0.1", "listen_port": port}
        if user:
            entry["users"] = [{"username": "user", "password": "p:ass"}]
        return sing_box(folder, inbounds=[entry], ports=[port])
    chosen = {"accounts": [{"user": "user", "pass": "p:ass"}]} if user else {}
    entry = {"protocol": "http", "listen": "127.0.0.1", "port": port, "settings": chosen}
    return xray(folder, inbounds=[entry], ports=[port])


both = pytest.mark.parametrize("program", [pytest.param(n, marks=pytest.mark.needs(n)) for n in ("sing-box", "xray")])
with_user = pytest.mark.parametrize("user", [None, "user"], ids=["open", "login"])


@with_user
@both
def test_our_client_through(program: str, user: str | None, tmp_path: Path) -> None:
    port = free_port()

    async def run() -> None:
        proxy = ("127.0.0.1", port)
        async with Echo("127.0.0.1") as echo, Origin() as origin:
            for host in ("127.0.0.1", "localhost"):
                for segment, size in ((0, 100_000), (1, 200)):
                    client = http.Client(Target(host, echo.port), user=user, password="p:ass")
                    await talk(await shell.dial(client, proxy, shell.Wire(segment)), size, half_close=False)
            if user:
                for wrong in (http.Client(TARGET), http.Client(TARGET, user=user, password="no")):
                    with pytest.raises(http.ProxyError) as refused:
                        await shell.dial(wrong, proxy)
                    assert refused.value.kind == "credentials"
            else:
                assert await fetch(proxy, origin, "/length", "/chunked") == [b"/length", b"/chunked"]
                assert all(b"Proxy" not in head for head in origin.heads)

    with inbound(program, tmp_path, user, port):
        asyncio.run(asyncio.wait_for(run(), 30))


@with_user
@both
def test_our_server_behind(program: str, user: str | None, tmp_path: Path) -> None:
    """The program takes CONNECT on a port of its own and goes on to our server."""

    async def run() -> None:
        port = free_port()
        server = shell.Server(
            lambda: http.Server(USERS if user else None), resolver=shell.Resolver({"fv.test": "127.0.0.1"})
        )
        async with Echo("127.0.0.1") as echo, shell.listening(server) as proxy:
            if program == "sing-box":
                outbound: dict[str, Any] = {"type": "http", "server": proxy[0], "server_port": proxy[1]}
                if user:
                    outbound |= {"username": "user", "password": "p:ass"}
                entry: dict[str, Any] = {"type": "http", "listen": "127.0.0.1", "listen_port": port}
                running = sing_box(tmp_path, inbounds=[entry], outbounds=[outbound], ports=[port])
            else:
                to: dict[str, Any] = {"address": proxy[0], "port": proxy[1]}
                if user:
                    to["users"] = [{"user": "user", "pass": "p:ass"}]
                outbound = {"protocol": "http", "settings": {"servers": [to]}}
                entry = {"protocol": "http", "listen": "127.0.0.1", "port": port, "settings": {}}
                running = xray(tmp_path, inbounds=[entry], outbounds=[outbound], ports=[port])
            with running:
                for host in ("127.0.0.1", "fv.test"):
                    stream = await shell.dial(http.Client(Target(host, echo.port)), ("127.0.0.1", port))
                    await talk(stream, 100_000, half_close=False)
                    assert server.dials[-1] == Dial(Target(host, echo.port), user)

    asyncio.run(asyncio.wait_for(run(), 30))
