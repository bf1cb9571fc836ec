"""`fv peer add`: the next free address, and the user's text kept."""

import json
import pathlib

import pytest
from click.testing import CliRunner

from fv import wgquick
from fv.commands.peer import next_addresses
from fv.config.edit import NewPeer, add_peer
from fv.config.load import decode, load
from fv.config.syntax import parse
from fv.errors import FvError
from fv.keys import generate_private, parse_key, public_of, show_key

KEY = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
OTHER = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="
NEW = NewPeer("phone", show_key(public_of(generate_private())), "", ("10.7.0.9/32",))

BLOCKS = f"""# my edge
[[endpoints]]
type = "wireguard"
tag = "a"
address = ["10.7.0.1/24"]   # the house
private_key = "{KEY}"
listen_port = 51820
[[endpoints.peers]]
public_key = "{OTHER}"
allowed_ips = ["10.7.0.2/32"] # laptop

# the other one
[[endpoints]]
type = "wireguard"
tag = "b"
address = ["10.8.0.1/24"]
private_key = "{OTHER}"
listen_port = 51821
[[endpoints.peers]]
public_key = "{KEY}"
allowed_ips = ["10.8.0.2/32"]

[engine]
workers = 1"""

INLINE = f"""[[endpoints]]
type = "wireguard"
tag = "a"
address = "10.7.0.1/24"
private_key = "{KEY}"
listen_port = 51820
peers = [
  {{ public_key = "{OTHER}", allowed_ips = ["10.7.0.2/32"] }}, # laptop
]
"""

JSON = f"""{{ "endpoints": [ {{
  "type": "wireguard", "tag": "a", "address": ["10.7.0.1/24"], "private_key": "{KEY}", "listen_port": 51820,
  "peers": [
    {{"public_key": "{OTHER}", "allowed_ips": ["10.7.0.2/32"]}} // laptop
  ]
}} ] }}
"""

ONE_LINE = json.dumps({"endpoints": {"type": "wireguard", "tag": "a", "address": "10.7.0.1/24", "private_key": KEY,
                                     "peers": {"public_key": OTHER, "allowed_ips": "10.7.0.2/32"}}})  # fmt: skip


@pytest.mark.parametrize(("text", "file", "index"), [
    (BLOCKS, "x.toml", 0), (BLOCKS, "x.toml", 1), (BLOCKS.replace("\n", "\r\n"), "x.toml", 0), (INLINE, "x.toml", 0),
    (INLINE.replace("}, # laptop", "} # laptop"), "x.toml", 0),
    (INLINE.replace("\n  {", "{").replace(", # laptop\n", ""), "x.toml", 0),
    (JSON, "x.json", 0), (JSON.replace("]} // laptop", "]}, // laptop"), "x.json", 0), (ONE_LINE, "x.json", 0),
    (JSON.replace("\n    ", "").replace(" // laptop\n  ", ""), "x.json", 0),
], ids=["first block", "second block", "CRLF", "inline, comma", "inline", "inline, one line", "JSON", "JSON, comma",
        "single objects",
        "JSON, one line"])  # fmt: skip
def test_text_is_kept(text: str, file: str, index: int) -> None:
    old = decode(parse(text, file)).config
    changed = add_peer(parse(text, file), index, NEW)
    config = decode(parse(changed, file)).config
    for place, (before, after) in enumerate(zip(old.endpoints, config.endpoints, strict=True)):
        assert after.peers[: len(before.peers)] == before.peers
        assert len(after.peers) == len(before.peers) + (place == index)
    assert config.endpoints[index].peers[-1].public_key == NEW.public_key
    # Every line that was there is there, in order; only commas and brackets may have been added to a line.
    lines = iter(changed.splitlines())
    for line in text.splitlines():
        if line.strip() and text.count("\n") > 2:
            start = line.split("//")[0].rstrip(" ,]}")[:30]
            assert any(start in there for there in lines), line
    if "# laptop" in text:
        assert "# laptop" in changed
    assert ("\r\n" in text) == ("\r\n" in changed)


@pytest.mark.parametrize(("addresses", "taken", "expected"), [
    (["10.7.0.1/24"], [], ["10.7.0.2/32"]),
    (["10.7.0.2/24"], [], ["10.7.0.1/32"]),
    (["10.7.0.1/24", "fd07::1/64"], ["10.7.0.2/32", "fd07::2/128"], ["10.7.0.3/32", "fd07::3/128"]),
    (["10.7.0.1/24"], ["10.7.0.0/25"], ["10.7.0.128/32"]),
    (["10.7.0.1/24"], ["0.0.0.0/0"], ["10.7.0.2/32"]),
    (["10.7.0.1/30"], ["10.7.0.2/32"], []),
    (["10.7.0.1/32"], [], []),
    (["10.7.0.0/31"], [], ["10.7.0.1/32"]),
    (["10.0.0.1/8"], ["10.0.0.0/9"], ["10.128.0.0/32"]),
])  # fmt: skip
def test_next_free_address(addresses: list[str], taken: list[str], expected: list[str]) -> None:
    data = {"endpoints": [{"type": "wireguard", "tag": "a", "address": addresses, "private_key": KEY,
                           "peers": [{"public_key": OTHER, "allowed_ips": taken}]}]}  # fmt: skip
    endpoint = decode(parse(json.dumps(data), "x.json")).config.endpoints[0]
    assert [str(one) for one in next_addresses(endpoint)] == expected


def run(*words: str) -> str:
    from fv.cli import cli

    result = CliRunner().invoke(cli, ["peer", "add", *words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_one_step(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text(BLOCKS)
    file.chmod(0o640)
    printed = run("phone", "-c", str(file), "--tag", "a", "--endpoint", "vpn.example:4500", "--dns", "192.0.2.53")
    client, _, code = printed.partition("\n\n\u2588")
    assert code.count("\u2588") > 100, "the QR code"
    found = wgquick.read(client, "phone.conf")
    config = load(str(file)).config
    peer = config.endpoints[0].peers[-1]
    assert show_key(public_of(parse_key(found.private_key))) == peer.public_key
    assert found.peers[0].preshared_key == str(peer.pre_shared_key)
    assert (found.addresses, peer.allowed_ips) == (("10.7.0.3/32",), ("10.7.0.3/32",))
    assert (found.peers[0].host, found.peers[0].port, found.dns) == ("vpn.example", 4500, ("192.0.2.53",))
    assert file.stat().st_mode & 0o777 == 0o640
    assert found.private_key not in file.read_text()
    with pytest.raises(FvError, match="already"):
        run("phone", "-c", str(file), "--tag", "a", "--endpoint", "vpn.example")
    with pytest.raises(FvError, match="several endpoints"):
        run("tablet", "-c", str(file), "--endpoint", "vpn.example")
