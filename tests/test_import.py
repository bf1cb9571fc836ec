"""wg-quick files in, configurations out. Hooks and AmneziaWG are refused; faults have lines; no message holds a key."""

import base64
import itertools
import json
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv import wgquick
from fv.config.check import check
from fv.config.load import Loaded, decode
from fv.config.syntax import parse
from fv.errors import FvError
from fv.keys import clamp, parse_key, public_of, show_key

PRIVATE = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
PUBLIC = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="
PSK = "hY+k3Rw_Ft-9sH7xvGIYDmCPu0DqBkLQ2LrDUYOgwUA".replace("_", "/").replace("-", "+") + "="

FULL = f"""[Interface]
# the laptop
PrivateKey = {PRIVATE}
Address = 10.7.0.2/32, fd07::2/128
Address = 10.8.0.2
ListenPort = 51821
FwMark = 0x77
DNS = 192.0.2.53, home.example
MTU = 1412
Table = auto
SaveConfig = false

# exit in Oslo
[Peer]
PublicKey = {PUBLIC} # inline
PresharedKey = {PSK}
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = vpn.example:51820
PersistentKeepalive = 25

[Peer]
PublicKey = {PRIVATE}
AllowedIPs = 10.20.0.0/16
Endpoint = [2001:db8::1]:443
PersistentKeepalive = off
"""


def configuration(text: str) -> Loaded:
    found = decode(parse(wgquick.to_toml(wgquick.read(text, "a.conf"), "wg0"), "wg0.toml"))
    check(found)
    return found


def test_every_key() -> None:
    config = configuration(FULL).config
    (endpoint,) = config.endpoints
    assert endpoint.address == ("10.7.0.2/32", "fd07::2/128", "10.8.0.2/32")
    assert (endpoint.listen_port, endpoint.routing_mark, endpoint.mtu, endpoint.routes) == (51821, 0x77, 1412, "auto")
    assert str(endpoint.private_key) == PRIVATE
    first, second = endpoint.peers
    assert (first.address, first.port, first.persistent_keepalive_interval) == ("vpn.example", 51820, 25)
    assert str(first.pre_shared_key) == PSK
    assert (second.address, second.port, second.persistent_keepalive_interval) == ("2001:db8::1", 443, 0)
    assert config.gateway is not None
    assert (config.gateway.everything, config.gateway.dns) == (True, ("192.0.2.53",))
    assert "# exit in Oslo\n[[endpoints.peers]]" in wgquick.to_toml(wgquick.read(FULL, "a.conf"), "wg0")


@pytest.mark.parametrize("spoil", [
    lambda text: "\ufeff" + text,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: text.replace(" = ", "\u00a0=\u00a0"),
    lambda text: text.replace(PUBLIC, PUBLIC.rstrip("=")),
    lambda text: text.replace(PRIVATE, PRIVATE.translate(str.maketrans("+/", "-_"))),
    lambda text: text.replace("PrivateKey", "privatekey").replace("[Peer]", "[peer]"),
    lambda text: text.replace(" = ", "="),
    lambda text: text.replace("10.7.0.2/32, fd07::2/128", "10.7.0.2/32,fd07::2/128"),
], ids=["BOM", "CRLF", "NBSP", "no padding", "url-safe", "case", "no spaces", "no space in lists"])  # fmt: skip
def test_forgiven(spoil: object) -> None:
    assert callable(spoil)
    assert configuration(spoil(FULL)).config == configuration(FULL).config


def faults(text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(FvError) as caught:
        wgquick.read(text, "a.conf")
    for key in (PRIVATE, PUBLIC, PSK):
        assert key[:-2] not in str(caught.value)
    return [(error.where.line, error.where.key, error.line()) for error in caught.value.all()]


@pytest.mark.parametrize("hook", ["PreUp", "PostUp", "PreDown", "PostDown", "postup"])
def test_hooks_are_refused_by_name(hook: str) -> None:
    ((line, key, text),) = faults(FULL.replace("MTU = 1412", f"{hook} = iptables -A FORWARD -i %i -j ACCEPT"))
    assert (line, key) == (9, hook)
    assert "a hook" in text
    assert "iptables" not in text


@pytest.mark.parametrize("name", ["Jc", "Jmin", "Jmax", "S1", "S2", "S3", "S4", "H1", "H4", "I1", "I5", "J3", "Itime"])
def test_amneziawg_is_refused_by_name(name: str) -> None:
    ((line, key, text),) = faults(FULL.replace("MTU = 1412", f"{name} = 4"))
    assert (line, key) == (9, name)
    assert "AmneziaWG" in text


def test_all_faults_at_once_with_their_lines() -> None:
    text = (
        FULL.replace(PRIVATE, PRIVATE[:40], 1)
        .replace("ListenPort = 51821", "ListenPort = 99999")
        .replace("MTU = 1412", "Mtuu = 1412")
        .replace("vpn.example:51820", "vpn.example")
        .replace("10.20.0.0/16", "10.20.0.0/40")
    )
    found = faults(text)
    assert [(line, key) for line, key, _ in found] == [
        (3, "PrivateKey"), (6, "ListenPort"), (9, "Mtuu"), (18, "Endpoint"), (23, "AllowedIPs")]  # fmt: skip
    assert "40 characters" in found[0][2]
    assert "did you mean 'MTU'" in found[2][2]


@pytest.mark.parametrize(("text", "line", "what"), [
    ("", 1, "no [Interface] section"),
    ("PrivateKey = x\n", 1, "before any section"),
    ("[Interface]\nAddress = 10.0.0.1\n", 1, "PrivateKey: is missing"),
    (f"[Interface]\nPrivateKey = {PRIVATE}\nAddress = 10.0.0.1\n[Peer]\n", 4, "PublicKey: is missing"),
    (f"[Interface]\nPrivateKey = {PRIVATE}\n", 1, "Address: is missing"),
    (f"[Interface]\nPrivateKey = {PRIVATE}\nAddress = 10.0.0.1\nTable = vpn\n", 4, "a table's name"),
    (f"[Interface]\nPrivateKey {PRIVATE}\nAddress = 10.0.0.1\n", 2, "neither Key = value"),
    ("[Interfaces]\n", 1, "unknown section"),
])  # fmt: skip
def test_fault(text: str, line: int, what: str) -> None:
    assert any(found[0] == line and what in found[2] for found in faults(text))


_names = st.sampled_from([*wgquick._INTERFACE, *wgquick._PEER, "PostUp", "Jc", "Nonsense", ""])
_values = st.sampled_from(
    [PRIVATE, PUBLIC[:-1], PSK + "x", PRIVATE[:20], "10.0.0.1/8", "off", "[::1]:5", "0x", "-1", "a:b"]
)
_lines = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["[Interface]", "[Peer]", "[", "#"]),
    st.tuples(_names, _values | st.text(max_size=9)).map(" = ".join),
)


@given(st.lists(_lines, max_size=12).map("\n".join))
def test_never_falls_and_never_prints_a_key(text: str) -> None:
    message = ""
    try:
        found = wgquick.read(text, "a.conf")
    except FvError as error:
        message = str(error)
    else:
        message = repr(found)
    for key in (PRIVATE, PUBLIC, PSK):
        assert key[:12] not in message


@given(st.binary(min_size=32, max_size=32), st.integers(0, 4))
def test_keys_in_every_dress(raw: bytes, dress: int) -> None:
    plain = base64.b64encode(raw).decode()
    url_safe = base64.urlsafe_b64encode(raw).decode()
    text = [plain, url_safe, plain.rstrip("="), raw.hex(), f"\u00a0{plain}\r\n"][dress]
    assert parse_key(text) == raw


@given(st.text(max_size=80))
def test_key_reader_takes_keys_only(text: str) -> None:
    message = ""
    raw = bytes(32)
    try:
        raw = parse_key(text)
    except ValueError as error:
        message = str(error)
    assert len(raw) == 32
    assert len(text) < 8 or text not in message


def test_public_keys_of_the_vectors() -> None:
    vectors = json.loads((pathlib.Path(__file__).parent / "vectors" / "wireguard.json").read_text())
    for side in (handshake[role] for handshake in vectors["handshakes"] for role in ("initiator", "responder")):
        private = bytes.fromhex(side["static_private"])
        assert public_of(private).hex() == side["static_public"]
        assert public_of(clamp(private)).hex() == side["static_public"]


def test_client_text_is_read_back() -> None:
    server = wgquick.Peer(PUBLIC, PSK, ("0.0.0.0/0", "::/0"), "2001:db8::1", 51820, 25)
    text = wgquick.client_text(PRIVATE, ("10.7.0.3/32",), server, dns=("192.0.2.53",), mtu=1412)
    found = wgquick.read(text, "phone.conf")
    assert found.peers == (server,)
    assert (found.private_key, found.addresses, found.mtu) == (PRIVATE, ("10.7.0.3/32",), 1412)
    assert show_key(parse_key(PRIVATE)) == PRIVATE
    assert list(itertools.chain(found.dns, found.search)) == ["192.0.2.53"]
