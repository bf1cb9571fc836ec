"""The reference Shadowsocks peer: the known answers, its roles against each other, other programs with either."""

import asyncio
import base64
import itertools
import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.peers import proxy_shell as shell
from tests.peers import shadowsocks as ss
from tests.peers import socks5, ss_udp
from tests.peers.proxy import (
    NOWHERE,
    Action,
    BadInputError,
    Close,
    Dial,
    Ended,
    Payload,
    Send,
    Target,
    address_block,
    take_address,
)
from tests.peers.ss_crypto import METHODS, Direction, Keys, decode_psk, hash16, identity_headers, identity_subkey
from tests.proxies import Echo, Running, free_port, shadowsocks_rust, sing_box, talk, xray

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors/shadowsocks.json").read_text())
WHEN = 1700000000
SALT, SERVER_SALT = bytes(range(0x40, 0x60)), bytes(range(0x60, 0x80))
SOME = Target("192.0.2.1", 80)


def unhex(case: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(case[name + "_hex"])


def cases(*prefixes: str) -> list[Any]:
    return [pytest.param(v, id=v["name"]) for v in VECTORS["vectors"] if v["name"].startswith(prefixes)]


def keys_of(case: dict[str, Any]) -> Keys:
    return Keys.of(case["method"], case.get("password") or case["psk_base64"])


def server_side(keys: Keys) -> tuple[Keys, dict[str, bytes]]:
    """The server's own keys and its users, for a client that has `keys`; a relay has taken its headers away."""
    if len(keys.chain) == 1:
        return keys, {}
    return Keys(keys.method, (keys.chain[-2],)), {"u": keys.chain[-1]}


def keeper(keys: Keys, now: float = WHEN, **more: Any) -> ss.Keeper:
    own, users = server_side(keys)
    return ss.Keeper(own, users, clock=lambda: now, **more)


def fixed(*parts: bytes) -> Any:
    """Entropy that is known."""
    rest = bytearray(b"".join(parts))

    def take(size: int) -> bytes:
        data = bytes(rest[:size])
        del rest[:size]
        assert len(data) == size
        return data

    return take


def sent(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, Send))


def payload(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, Payload))


def pieces(data: bytes, cuts: list[int], whole: int = 0) -> Iterator[bytes]:
    edges = [0, *sorted(whole + c % (len(data) - whole + 1) for c in cuts), len(data)]
    return (data[a:b] for a, b in itertools.pairwise(edges))


# --- known answers ----------------------------------------------------------------------------------------------------


def test_every_vector_is_used() -> None:
    used = {c.values[0]["name"] for c in [*cases("key"), *cases("tcp-"), *cases("udp-"), *cases("captured-")]}
    assert used == {v["name"] for v in VECTORS["vectors"]}


@pytest.mark.parametrize("case", VECTORS["addresses"], ids=lambda v: v["host"][:16])
def test_addresses(case: dict[str, Any]) -> None:
    assert address_block(Target(case["host"], case["port"])).hex() == case["hex"]


@pytest.mark.parametrize("case", cases("key17"))
def test_keys_of_2017(case: dict[str, Any]) -> None:
    keys = keys_of(case)
    assert keys.psk == unhex(case, "master_key")
    assert keys.session(unhex(case, "salt")) == unhex(case, "subkey")


@pytest.mark.parametrize("case", cases("key22"))
def test_keys_of_2022(case: dict[str, Any]) -> None:
    keys = keys_of(case)
    assert keys.session(unhex(case, "salt")) == unhex(case, "session_subkey")
    assert hash16(keys.psk) == unhex(case, "psk_hash16")
    if "identity_subkey_hex" in case:
        assert identity_subkey(keys.psk, unhex(case, "salt")) == unhex(case, "identity_subkey")


@pytest.mark.parametrize("case", cases("tcp-request"))
def test_requests(case: dict[str, Any]) -> None:
    keys, wire = keys_of(case), unhex(case, "wire")
    salt, target = unhex(case, "salt"), Target(case["host"], case["port"])
    first = bytes.fromhex(case.get("first_payload_hex", ""))
    second = bytes.fromhex(case.get("second_payload_hex", ""))
    padding = bytes.fromhex(case.get("padding_hex", ""))
    client = ss.Client(keys, target, clock=lambda: WHEN, entropy=fixed(salt), padding=padding)
    client.start()
    head = sent(client.send(first))
    assert len(head) == case.get("wire_first_len", len(wire))
    assert head + sent(client.send(second)) == wire
    if "eih_hex" in case:
        assert identity_headers(keys, salt) == unhex(case, "eih")
    # A server behind a relay sees the stream without the relay's own header.
    relayed = wire[: len(salt)] + wire[len(salt) + 16 * max(0, len(keys.chain) - 2) :]
    server = ss.Server(keeper(keys))
    actions = server.receive(relayed)
    assert actions == [Dial(target, "u" if len(keys.chain) > 1 else None)]
    assert payload([*server.dialled(""), *server.receive_eof()]) == first + second


@pytest.mark.parametrize("case", cases("tcp-response"))
def test_responses(case: dict[str, Any]) -> None:
    keys, wire, salt = keys_of(case), unhex(case, "wire"), unhex(case, "salt")
    request_salt = bytes.fromhex(case.get("request_salt_hex", SALT[: keys.method.size].hex()))
    server = ss.Server(keeper(keys, WHEN + 1, entropy=fixed(salt)))
    asked, _ = ss.request(keys, request_salt, SOME, b"x", timestamp=WHEN)
    server.receive(asked)
    server.dialled("")
    first = sent(server.from_target(unhex(case, "first_payload")))
    assert len(first) == case["wire_first_len"]
    assert first + sent(server.from_target(unhex(case, "second_payload"))) == wire
    client = ss.Client(keys, SOME, clock=lambda: WHEN, entropy=fixed(request_salt), padding=b"")
    client.send(b"x")
    actions = [*client.receive(wire), *client.receive_eof()]
    assert payload(actions) == unhex(case, "first_payload") + unhex(case, "second_payload")
    assert actions[-1] == Ended()


@pytest.mark.parametrize("case", cases("captured-tcp"))
def test_captured_streams(case: dict[str, Any]) -> None:
    """Opened by our server, and sealed again to the same bytes from what it found."""
    keys, wire, salt = keys_of(case), unhex(case, "wire"), unhex(case, "salt")
    target = Target(case["host"], case["port"])
    now = case.get("timestamp", WHEN)
    server = ss.Server(keeper(keys, now))
    (asked, *_) = server.receive(wire)
    assert isinstance(asked, Dial)
    assert asked.target == target
    content = payload(server.dialled(""))
    assert len(content) == case["payload_len"]
    if keys.method.modern:
        opener = Direction(keys.method, keys.session(salt))
        at = keys.method.size + 16 * (len(keys.chain) - 1)
        kind, when, length = struct.unpack(">BQH", opener.open(wire[at : at + 27]))
        assert (kind, when) == (ss.REQUEST, now)
        variable = opener.open(wire[at + 27 : at + 27 + length + 16])
        found = take_address(variable)
        assert found is not None
        padding = variable[found[1] + 2 : found[1] + 2 + case["padding_len"]]
        first = variable[found[1] + 2 + len(padding) :]
        again, sealer = ss.request(keys, salt, target, first, timestamp=now, padding=padding)
        assert again + sealer.chunks(content[len(first) :]) == wire
    else:
        # The program may have cut the plaintext elsewhere: what it made of the address and what is behind it.
        plain, sizes = [], []
        opener, at = Direction(keys.method, keys.session(salt)), len(salt)
        while at < len(wire):
            (length,) = struct.unpack(">H", opener.open(wire[at : at + 18]))
            plain.append(opener.open(wire[at + 18 : at + 34 + length]))
            sizes.append(length)
            at += 34 + length
        sealer = Direction(keys.method, keys.session(salt))
        assert salt + b"".join(sealer.chunk(p) for p in plain) == wire
        assert b"".join(plain) == address_block(target) + content


@pytest.mark.parametrize("case", [*cases("udp-"), *cases("captured-udp")])
def test_datagrams(case: dict[str, Any]) -> None:
    keys, wire = keys_of(case), unhex(case, "wire")
    target, content = Target(case["host"], case["port"]), unhex(case, "payload")
    if not keys.method.modern:
        assert ss_udp.open_2017(keys, wire) == (target, content)
        assert ss_udp.seal_2017(keys, wire[: keys.method.size], target, content) == wire
        return
    answers = unhex(case, "client_session_id") if "server_session_id_hex" in case else None
    session = unhex(case, "server_session_id" if answers else "client_session_id")
    nonce = wire[:24]
    kind = ss_udp.RESPONSE if answers else ss_udp.REQUEST
    own, users = server_side(keys)
    if len(keys.chain) <= 2:
        header = ss_udp.open_header(keys.user(keys.psk) if answers else own, wire, {} if answers else users)
        opened = ss_udp.open_body(header, case["timestamp"], kind)
        assert (opened.session, opened.packet) == (session, case["packet_id"])
        assert (opened.target, opened.payload) == (target, content)
        assert len(opened.padding) == case.get("padding_len", len(case.get("padding_hex", "")) // 2)
        padding = opened.padding
    else:
        padding = unhex(case, "padding")
    sealing = keys.user(keys.psk) if answers else keys
    again = ss_udp.seal_2022(
        *(sealing, session, case["packet_id"], target, content),
        timestamp=case["timestamp"],
        answers=answers,
        padding=padding,
        nonce=nonce,
    )
    assert again == wire


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.modern], ids=lambda m: m.name)
def test_keys_that_are_none(method: Any) -> None:
    good = base64.b64encode(bytes(method.size)).decode()
    assert decode_psk(good.rstrip("="), method.size) == decode_psk(good, method.size) == bytes(method.size)
    for bad in ("", "####", base64.b64encode(bytes(method.size + 1)).decode(), good + ":"):
        with pytest.raises(ValueError, match="key"):
            Keys.of(method.name, bad)
    if not method.aes:
        with pytest.raises(ValueError, match="identity"):
            Keys.of(method.name, f"{good}:{good}")


# --- properties -------------------------------------------------------------------------------------------------------

PSK = {16: base64.b64encode(bytes(range(16))).decode(), 32: base64.b64encode(bytes(range(32))).decode()}
UPSK = {16: base64.b64encode(bytes(range(128, 144))).decode(), 32: base64.b64encode(bytes(range(128, 160))).decode()}


def kinds() -> dict[str, Keys]:
    """Each method, and with a user where there are identity headers."""
    made = {}
    for m in METHODS.values():
        made[m.name] = Keys.of(m.name, PSK[m.size] if m.modern else "fv-test-password")
        if m.modern and m.aes:
            made[m.name + "-eih"] = Keys.of(m.name, f"{PSK[m.size]}:{UPSK[m.size]}")
    return made


KINDS = kinds()
every_kind = pytest.mark.parametrize("kind", KINDS)
every_2022 = pytest.mark.parametrize("kind", [k for k in KINDS if KINDS[k].method.modern])
every_2017 = pytest.mark.parametrize("kind", [k for k in KINDS if not KINDS[k].method.modern])


@every_kind
@settings(max_examples=25)
@given(st.binary(max_size=200), st.binary(max_size=200), st.lists(st.integers(0, 2**16), max_size=60))
def test_segmentation_changes_nothing(kind: str, up: bytes, down: bytes, cuts: list[int]) -> None:
    keys = KINDS[kind]
    client = ss.Client(keys, Target("fv.test", 80), clock=lambda: WHEN)
    shared = keeper(keys)
    server = ss.Server(shared)
    wire = sent(client.send(up)) + sent(client.send(b"more")) + sent(client.send(up))
    actions = [a for piece in pieces(wire, cuts, server.head_size) for a in server.receive(piece)]
    assert actions == [Dial(Target("fv.test", 80), "u" if kind.endswith("eih") else None)]
    actions = [*server.dialled(""), *server.receive_eof()]
    assert payload(actions) == up + b"more" + up
    assert actions[-1] == Ended()
    wire = sent(server.from_target(down)) + sent(server.from_target(b"more"))
    actions = [a for piece in pieces(wire, cuts) for a in client.receive(piece)]
    actions += client.receive_eof()
    assert payload(actions) == down + b"more"
    assert actions[-1] == Ended()


@every_kind
@settings(max_examples=25)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused(kind: str, data: bytes) -> None:
    shared = keeper(KINDS[kind])
    server = ss.Server(shared)
    actions = [*server.receive(data), *server.receive_eof()]
    assert [type(a) for a in actions] == [Close]
    assert not shared.salts.salts
    client = ss.Client(KINDS[kind], SOME)
    client.send(b"x")
    assert payload(client.receive(data)) == b""
    assert ss_udp.client(KINDS[kind]).receive(data, WHEN) is None
    own, users = server_side(KINDS[kind])
    assert ss_udp.server(own, users).receive(data, ("192.0.2.1", 1), WHEN) is None


@every_kind
@pytest.mark.parametrize("failure", ["drain", "reset"])
def test_attacks_are_all_refused_alike(kind: str, failure: str) -> None:
    keys = KINDS[kind]
    for name, data in ss.attacks(keys, WHEN).items():
        shared = keeper(keys, failure=failure)
        server = ss.Server(shared)
        actions = server.receive(data)
        if name == "chunk-too-long":  # by one who has the key: its head is good
            assert actions == [Dial(SOME)], name
            actions = server.dialled("")
        elif name.startswith("short-") and not keys.method.modern:
            assert actions == [], name
            actions = server.receive_eof()
        assert [(type(a), getattr(a, "how", None)) for a in actions] == [(Close, failure)], (name, actions)
        assert server.receive(b"more") == []


@every_2017
def test_an_address_may_be_cut_anywhere(kind: str) -> None:
    keys = KINDS[kind]
    plain = address_block(Target("fv.test", 80)) + b"hello"
    for cut in range(1, len(plain)):
        salt = SALT[: keys.method.size]
        sealer = Direction(keys.method, keys.session(salt))
        wire = salt + sealer.chunk(plain[:cut]) + sealer.chunk(b"") + sealer.chunk(plain[cut:])
        server = ss.Server(keeper(keys))
        assert server.receive(wire) == [Dial(Target("fv.test", 80))]
        assert payload(server.dialled("")) == b"hello"


@every_kind
def test_replay_and_time(kind: str) -> None:
    keys = KINDS[kind]
    wire, _ = ss.request(keys, SALT[: keys.method.size], SOME, b"x", timestamp=WHEN)
    for filters in (False, True):
        shared = keeper(keys, filters_2017=filters)
        assert isinstance(ss.Server(shared).receive(wire)[0], Dial)
        again = ss.Server(shared).receive(wire)[0]
        assert isinstance(again, Close if keys.method.modern or filters else Dial)
    if keys.method.modern:
        for off, taken in ((-31, False), (-30, True), (30, True), (31, False)):
            action = ss.Server(keeper(keys, WHEN + off)).receive(wire)[0]
            assert isinstance(action, Dial) == taken, off


@every_2022
def test_a_client_takes_only_its_own_answer(kind: str) -> None:
    keys = KINDS[kind]
    own, other = SALT[: keys.method.size], bytes(keys.method.size)
    for lies in ({"kind": 0}, {"timestamp": WHEN - 31}, {"timestamp": WHEN + 31}, {"request_salt": other}):
        fields: dict[str, Any] = {"request_salt": own, "timestamp": WHEN} | lies
        wire, _ = ss.response(keys, SERVER_SALT[: keys.method.size], payload=b"x", **fields)
        client = ss.Client(keys, SOME, clock=lambda: WHEN, entropy=fixed(own), padding=b"")
        client.send(b"x")
        assert isinstance(client.receive(wire)[-1], Close), lies
        assert isinstance(client.error, BadInputError)
    # a first payload of nothing is legal
    wire, sealer = ss.response(keys, SERVER_SALT[: keys.method.size], own, b"", timestamp=WHEN)
    client = ss.Client(keys, SOME, clock=lambda: WHEN, entropy=fixed(own), padding=b"")
    client.send(b"x")
    assert payload(client.receive(wire + sealer.chunk(b"") + sealer.chunk(b"later"))) == b"later"


def test_the_window() -> None:
    window = ss_udp.Window()
    for packet, taken in (
        (0, True),
        (0, False),
        (10000, True),
        (1872, True),
        (1871, False),
        (1872, False),
        (9999, True),
    ):
        assert window.fresh(packet) == taken, packet
        if taken:
            window.mark(packet)


@every_kind
def test_datagram_attacks_touch_nothing(kind: str) -> None:
    keys = KINDS[kind]
    own, users = server_side(keys)
    server, client = ss_udp.server(own, users), ss_udp.client(keys)
    here, there = ("192.0.2.1", 1), ("192.0.2.2", 2)
    first = client.send(SOME, b"one", WHEN)
    taken = server.receive(first, here, WHEN)
    assert taken is not None
    session = client.session if isinstance(client, ss_udp.Client2022) else b""
    for name, data in ss_udp.attacks(keys, session, 1, WHEN).items():
        assert server.receive(data, there, WHEN) is None, name
    if keys.method.modern:
        assert server.receive(first, there, WHEN) is None
    answer = server.reply(taken[0], SOME, b"back", WHEN)
    assert answer is not None
    assert answer[1] == here  # none of them has moved the client
    assert client.receive(answer[0], WHEN) == (SOME, b"back")
    assert (client.receive(answer[0], WHEN) is None) == keys.method.modern
    taken = server.receive(client.send(SOME, b"", WHEN), there, WHEN)
    assert taken is not None
    assert taken[2] == b""
    moved = server.reply(taken[0], SOME, b"x", WHEN)
    assert moved is not None
    assert moved[1] == there


def test_a_client_knows_two_sessions_of_the_server() -> None:
    keys = KINDS["2022-blake3-aes-128-gcm"]
    client = ss_udp.Client2022(keys)
    made = [
        ss_udp.seal_2022(keys, bytes([i]) * 8, 0, SOME, b"x", timestamp=WHEN, answers=client.session) for i in (1, 2, 3)
    ]
    assert [client.receive(data, WHEN) is not None for data in made] == [True, True, True]
    assert [client.receive(data, WHEN) is not None for data in made[1:]] == [False, False]
    stray = ss_udp.seal_2022(keys, bytes([1]) * 8, 9, SOME, b"x", timestamp=WHEN, answers=bytes(8))
    assert client.receive(stray, WHEN) is None


# --- sockets ----------------------------------------------------------------------------------------------------------


async def udp_round(
    core: ss_udp.Client2017 | ss_udp.Client2022, proxy: tuple[str, int], port: int, *sizes: int
) -> None:
    udp = shell.UdpStream.open(core, proxy)
    for size in sizes:
        udp.send(Target("127.0.0.1", port), bytes(size))
        assert await udp.receive() == (Target("127.0.0.1", port), bytes(size))
    udp.close()


@every_kind
def test_over_sockets(kind: str) -> None:
    keys = KINDS[kind]
    own, users = server_side(keys)

    async def run() -> None:
        server = ss.server_of(ss.Keeper(own, users))
        server.resolver = shell.Resolver({"fv.test": "127.0.0.1"})
        async with Echo("127.0.0.1") as echo, shell.listening(server) as proxy:
            whole = ss.Server(ss.Keeper(own, users)).head_size if keys.method.modern else 0
            for host, wire, size in (
                ("127.0.0.1", shell.PLAIN, 200_000),
                ("fv.test", shell.Wire(1, whole=whole), 1000),
            ):
                await talk(await shell.dial(ss.Client(keys, Target(host, echo.port)), proxy, wire), size)
            await udp_round(ss_udp.client(keys), proxy, echo.port, 0, 1, 1400, 60000)
            stream = await shell.dial(ss.Client(keys, Target("127.0.0.1", free_port())), proxy)
            await stream.write(b"x")
            with pytest.raises(BadInputError, match="ended inside a message"):
                await stream.read()

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("kind", ["aes-128-gcm", "2022-blake3-aes-128-gcm"])
def test_no_attack_hears_or_sees_anything(kind: str) -> None:
    """In drain the server neither speaks nor closes; the same for all, the head that was cut short too."""
    keys = KINDS[kind]

    async def run() -> None:
        async with shell.listening(ss.server_of(ss.Keeper(keys))) as proxy:
            named = ss.attacks(keys, time.time())
            named.pop("chunk-too-long", None)
            reactions = await asyncio.gather(*(shell.probe(proxy, data, wait=1.0) for data in named.values()))
            assert {(r.received, r.close) for r in reactions} == {(b"", "open")}

    asyncio.run(asyncio.wait_for(run(), 30))


# --- other programs ---------------------------------------------------------------------------------------------------


def programs(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("program", [pytest.param(n, marks=pytest.mark.needs(n)) for n in names])


def their_server(program: str, folder: Path, keys: Keys, port: int) -> Running:
    own, users = server_side(keys)
    secret = "fv-test-password"
    if keys.method.modern:
        secret = base64.b64encode(own.psk).decode()
    listed = [{"name": name, "password": base64.b64encode(psk).decode()} for name, psk in users.items()]
    if program == "sing-box":
        inbound: dict[str, Any] = {"type": "shadowsocks", "listen": "127.0.0.1", "listen_port": port}
        inbound |= {"method": keys.method.name, "password": secret}
        if listed:
            inbound["users"] = listed
        return sing_box(folder, inbounds=[inbound], ports=[port])
    if program == "xray":
        chosen: dict[str, Any] = {"method": keys.method.name, "password": secret, "network": "tcp,udp"}
        if listed:
            chosen["clients"] = [{"password": u["password"], "email": u["name"]} for u in listed]
        inbound = {"protocol": "shadowsocks", "listen": "127.0.0.1", "port": port, "settings": chosen}
        return xray(folder, inbounds=[inbound], ports=[port])
    entry: dict[str, Any] = {"server": "127.0.0.1", "server_port": port, "method": keys.method.name}
    entry |= {"password": secret, "mode": "tcp_and_udp"}
    if listed:
        entry["users"] = listed
    return shadowsocks_rust(folder, "ssserver", {"servers": [entry]}, [port])


@every_kind
@programs("sing-box", "xray", "ssserver")
def test_our_client_with_their_server(program: str, kind: str, tmp_path: Path) -> None:
    keys, port = KINDS[kind], free_port()

    async def run() -> None:
        proxy = ("127.0.0.1", port)
        async with Echo("127.0.0.1") as echo:
            whole = ss.Server(ss.Keeper(*server_side(keys))).head_size if keys.method.modern else 0
            for host, wire, size in (
                ("127.0.0.1", shell.PLAIN, 200_000),
                ("localhost", shell.Wire(1, whole=whole), 500),
            ):
                stream = await shell.dial(ss.Client(keys, Target(host, echo.port)), proxy, wire)
                await talk(stream, size, half_close=program == "ssserver")
            # Xray lets no empty datagram through.
            sizes = (1, 1400, 8000) if program == "xray" else (0, 1, 1400, 8000)
            await udp_round(ss_udp.client(keys), proxy, echo.port, *sizes)
            for name in ("wrong-key", "last-byte-flipped", "address-type"):
                reaction = await shell.probe(proxy, ss.attacks(keys, time.time())[name], wait=0.5)
                assert reaction.received == b"", name
            if keys.method.modern:
                asked, _ = ss.request(
                    keys,
                    os.urandom(keys.method.size),
                    Target("127.0.0.1", echo.port),
                    b"hi",
                    timestamp=int(time.time()),
                )
                assert (await shell.probe(proxy, asked, wait=1.0)).received != b""
                replayed = await shell.probe(proxy, asked, wait=1.0)
                assert (replayed.received, replayed.close) == (b"", "reset")

    with their_server(program, tmp_path, keys, port):
        asyncio.run(asyncio.wait_for(run(), 30))


def their_client(program: str, folder: Path, keys: Keys, proxy: tuple[str, int], port: int) -> Running:
    """Takes SOCKS5 on a port of its own and goes on to ours by Shadowsocks."""
    secret = "fv-test-password"
    if keys.method.modern:
        secret = ":".join(base64.b64encode(psk).decode() for psk in keys.chain)
    if program == "sing-box":
        outbound: dict[str, Any] = {"type": "shadowsocks", "server": proxy[0], "server_port": proxy[1]}
        outbound |= {"method": keys.method.name, "password": secret}
        inbound: dict[str, Any] = {"type": "socks", "listen": "127.0.0.1", "listen_port": port}
        return sing_box(folder, inbounds=[inbound], outbounds=[outbound], ports=[port])
    if program == "xray":
        entry: dict[str, Any] = {"address": proxy[0], "port": proxy[1], "method": keys.method.name, "password": secret}
        outbound = {"protocol": "shadowsocks", "settings": {"servers": [entry]}}
        inbound = {"protocol": "socks", "listen": "127.0.0.1", "port": port}
        inbound["settings"] = {"udp": True, "ip": "127.0.0.1"}
        return xray(folder, inbounds=[inbound], outbounds=[outbound], ports=[port])
    entry = {"server": proxy[0], "server_port": proxy[1], "method": keys.method.name, "password": secret}
    config = {"servers": [entry | {"mode": "tcp_and_udp"}], "local_address": "127.0.0.1", "local_port": port}
    return shadowsocks_rust(folder, "sslocal", config | {"mode": "tcp_and_udp"}, [port])


@every_kind
@programs("sing-box", "xray", "sslocal")
def test_our_server_with_their_client(program: str, kind: str, tmp_path: Path) -> None:
    keys = KINDS[kind]
    own, users = server_side(keys)

    async def run() -> None:
        port = free_port()
        server = ss.server_of(ss.Keeper(own, users))
        server.resolver = shell.Resolver({"fv.test": "127.0.0.1"})
        async with Echo("127.0.0.1") as echo, shell.listening(server) as proxy:
            with their_client(program, tmp_path, keys, proxy, port):
                local = ("127.0.0.1", port)
                for host in ("127.0.0.1", "fv.test"):
                    stream = await shell.dial(socks5.Client(Target(host, echo.port)), local)
                    await talk(stream, 200_000, half_close=program == "sslocal")
                    assert server.dials[-1] == Dial(Target(host, echo.port), "u" if users else None)
                client = socks5.Client(NOWHERE, command=socks5.ASSOCIATE)
                control = await shell.dial(client, local)
                assert control.bound is not None
                udp = shell.UdpStream.open(socks5.UdpClient(), socks5.relay_address(control.bound, "127.0.0.1"))
                for size in (1, 1400, 8000):
                    udp.send(Target("127.0.0.1", echo.port), bytes(size))
                    assert (await udp.receive())[1] == bytes(size)
                control.close()
                udp.close()

    asyncio.run(asyncio.wait_for(run(), 30))
