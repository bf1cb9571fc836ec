"""Configurations: what is taken, and that every fault is named with file, line, key and what would be right."""

import json
import pathlib
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv.config import values
from fv.config.check import check
from fv.config.load import Loaded, decode, load
from fv.config.model import Config, Engine, Gateway, KillSwitch, Log, WireGuardEndpoint, WireGuardPeer
from fv.config.syntax import Document, Path, parse
from fv.errors import FvError

KEY = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
OTHER = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="
THIRD = "jWEmFfLJmBMd1TF5xF9SyxOGOnGrRFmNnnSdbFTY0ys="

TOML = f"""# edge
version = 1

[[endpoints]]
type = "wireguard"
tag = "wg0"
address = "10.7.0.2/32"
private_key = "{KEY}"
listen_port = 51820

[[endpoints.peers]]
public_key = "{OTHER}"
allowed_ips = ["0.0.0.0/0", "::/0"]
address = "192.0.2.1"
port = 51820
persistent_keepalive_interval = "25s"

[engine]
memory = "8MiB"

[gateway]
lan = ["eth1"]

[router.attic]
host = "192.168.88.1"
"""

# A file as sing-box takes it, with its comments and a comma too many.
JSON = f"""{{
  // an endpoint
  "log": {{"level": "warn", "timestamp": true}},
  "endpoints": [
    {{
      "type": "wireguard", "tag": "wg0", "system": true, "name": "tun7", "mtu": 1408,
      "address": ["10.7.0.2/32"], /* one
      address */
      "private_key": "{KEY}",
      "peers": {{
        "address": "192.0.2.1", "port": 51820, "public_key": "{OTHER}",
        "allowed_ips": "10.0.0.0/8", "reserved": [0, 0, 0],
      }},
    }},
  ],
}}
"""


def loaded(text: str, file: str = "edge.toml") -> Loaded:
    found = decode(parse(text, file))
    check(found)
    return found


def fault(text: str, file: str = "edge.toml") -> FvError:
    with pytest.raises(FvError) as caught:
        loaded(text, file)
    assert KEY not in str(caught.value)
    return caught.value


def test_toml() -> None:
    config = loaded(TOML).config
    (endpoint,) = config.endpoints
    assert endpoint.address == ("10.7.0.2/32",)
    assert values.seconds(endpoint.peers[0].persistent_keepalive_interval) == 25
    assert values.size(config.engine.memory) == 8 << 20
    assert config.gateway is not None
    assert config.gateway.lan == ("eth1",)
    assert config.router == {"attic": {"host": "192.168.88.1"}}


def test_sing_box_json() -> None:
    config = loaded(JSON, "edge.json").config
    (endpoint,) = config.endpoints
    assert (endpoint.name, endpoint.mtu, endpoint.peers[0].allowed_ips) == ("tun7", 1408, ("10.0.0.0/8",))
    assert config.log.level == "warn"


def test_json_is_known_by_its_first_character() -> None:
    assert loaded(JSON, "-").config == loaded(JSON, "edge.json").config


def test_crlf_bom_and_no_break_spaces() -> None:
    text = "\ufeff" + TOML.replace("\n", "\r\n").replace(" = ", "\u00a0= ")
    assert loaded(text).config == loaded(TOML).config


def test_a_key_is_not_in_any_representation() -> None:
    assert KEY not in repr(loaded(TOML).config)


def test_files(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "edge.toml"
    file.write_text(TOML)
    assert load(str(file)).config == loaded(TOML).config
    file.write_bytes(b"# caf\xe9\n")
    with pytest.raises(FvError, match=r"edge.toml:1: not UTF-8"):
        load(str(file))
    with pytest.raises(FvError, match="no such file"):
        load(str(tmp_path / "none.toml"))


def changed(old: str, new: str) -> str:
    assert TOML.count(old) == 1
    return TOML.replace(old, new)


@pytest.mark.parametrize(("text", "line", "key", "message"), [
    (changed("listen_port = 51820", "listen_prot = 51820"),
     9, "endpoints[0].listen_prot", "did you mean 'listen_port'"),
    (changed("port = 51820\npers", "Port = 51820\npers"), 15, "endpoints[0].peers[0].Port", "did you mean 'port'"),
    (changed("[engine]", "[engin]"), 18, "engin", "did you mean 'engine'"),
    (changed("listen_port = 51820", 'listen_port = "51820"'),
     9, "endpoints[0].listen_port", "this is a text; it should be a number"),
    (changed("listen_port = 51820", "listen_port = 65536"), 9, "endpoints[0].listen_port", "65535"),
    (changed(f'public_key = "{OTHER}"\n', ""), 11, "endpoints[0].peers[0]", "public_key is missing"),
    (changed('type = "wireguard"', 'type = "tailscale"'), 5, "endpoints[0].type", "does not have this type"),
    (changed("listen_port = 51820", 'bind_interface = "eth0"'),
     9, "endpoints[0].bind_interface", "fv does not have this yet"),
    (changed("version = 1", "version = 2"), 2, "version", "newer than this fv"),
    (changed("[engine]", "[[inbounds]]\n[engine]"), 18, "inbounds", "fv does not have this yet"),
    (changed("memory", 'log_level = "loud"\nmemory'), 19, "engine.log_level", "one of debug, error, info, warning"),
    (changed('"8MiB"', '"8 miles"'), 19, "engine.memory", "16MiB"),
    (changed('"10.7.0.2/32"', '"10.7.0.256/32"'), 7, "endpoints[0].address", "10.7.0.2/24"),
    (changed('"::/0"', '"::/200"'), 13, "endpoints[0].peers[0].allowed_ips[1]", "prefix"),
    (changed('"::/0"]', f'"0.0.0.0/0"]\n[[endpoints.peers]]\npublic_key = "{THIRD}"\n'
             'allowed_ips = ["0.0.0.0/0"]'), 16, "endpoints[0].peers[1].allowed_ips[0]", "belongs to peers[0] already"),
    (changed(OTHER, OTHER[:-3]), 12, "endpoints[0].peers[0].public_key", "41 characters"),
    (changed('"192.0.2.1"', '"192.0.2.1:51820"'), 14, "endpoints[0].peers[0].address", "the port is its own field"),
    (changed("\nport = 51820\n", "\n"), 14, "endpoints[0].peers[0].address", "no port beside it"),
    (changed("listen_port = 51820", 'detour = "wg9"'), 9, "endpoints[0].detour", "there is no endpoint 'wg9'"),
    (changed("listen_port = 51820", 'detour = "wg0"'), 9, "endpoints[0].detour", "a circle: wg0 -> wg0"),
    (changed("listen_port = 51820", "mtu = 100"), 9, "endpoints[0].mtu", "576 to 65535"),
    (changed("listen_port = 51820", 'udp_timeout = "30s"'), 9, "endpoints[0].udp_timeout", "5m"),
    (changed('"25s"', '"soon"'), 16, "endpoints[0].peers[0].persistent_keepalive_interval", "25s"),
    (changed("allowed_ips", "reserved = [1, 2, 3]\nallowed_ips"),
     13, "endpoints[0].peers[0].reserved", "reserved bytes"),
    (changed('lan = ["eth1"]', ""), 21, "gateway", "nothing goes into the tunnel"),
    (changed('lan = ["eth1"]', 'lan = ["eth1", "no/such"]'), 22, "gateway.lan[1]", "neither an interface nor a prefix"),
    (changed('lan = ["eth1"]', 'lan = ["eth1"]\nkill_switch = { on_stop = "shut" }'), 23, "gateway.kill_switch.on_stop",
     "one of closed, open"),
    (changed('tag = "wg0"', 'tag = "a name that is too long"'), 6, "endpoints[0].tag", "interface name"),
    (TOML + "[engine]\n", 26, "", "not TOML"),
    ("a = [1,\n", 1, "", "not TOML"),
])  # fmt: skip
def test_fault_in_toml(text: str, line: int, key: str, message: str) -> None:
    error = fault(text)
    assert (error.where.file, error.where.line, error.where.key) == ("edge.toml", line, key), str(error)
    assert message in error.line()
    assert re.match(rf"edge\.toml:{line}: ", error.line())


@pytest.mark.parametrize(("old", "new", "line", "key", "message"), [
    ('"mtu": 1408', '"mut": 1408', 6, "endpoints[0].mut", "did you mean 'mtu'"),
    ('"port": 51820', '"port": true', 11, "endpoints[0].peers.port", "it should be a number"),
    ('"port": 51820', '"port": 51820, "port": 1', 11, "port", "stands twice"),
    ('"10.0.0.0/8"', '"10.0.0.0/33"', 12, "endpoints[0].peers.allowed_ips", "prefix"),
    ('"log":', '"dns": {}, "log":', 3, "dns", "fv does not have this yet"),
    ('"level": "warn"', '"level": "warning"', 3, "log.level", "one of debug, error, fatal, info, panic, trace, warn"),
    ('"level": "warn"', '"level" "warn"', 3, "", "not JSON"),
])  # fmt: skip
def test_fault_in_json(old: str, new: str, line: int, key: str, message: str) -> None:
    assert JSON.count(old) == 1
    error = fault(JSON.replace(old, new), "edge.json")
    assert (error.where.line, error.where.key) == (line, key), str(error)
    assert message in error.line()


def test_the_right_one_of_several_is_named() -> None:
    peer = {"public_key": OTHER, "allowed_ips": ["10.0.0.0/8"]}
    endpoint = {"type": "wireguard", "tag": "a", "address": "10.0.0.1/32", "private_key": KEY, "peers": [peer, peer]}
    bad = {**endpoint, "tag": "b", "peers": [peer, {**peer, "port": "x"}]}
    error = fault(json.dumps({"endpoints": [endpoint, bad]}, indent=1), "edge.json")
    assert error.where.key == "endpoints[1].peers[1].port"


def test_all_faults_are_reported_in_the_order_of_lines() -> None:
    error = fault(changed('"::/0"', '"x"').replace('"8MiB"', '"?"').replace('"10.7.0.2/32"', '"y"'))
    assert [one.where.line for one in error.all()] == [7, 13, 19]
    error = fault(changed("listen_port", "listen_prot").replace("lan =", "lann ="))
    assert [one.where.line for one in error.all()] == [9, 22]


_plain = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
_data = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | _plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_plain, inner, max_size=3),
    max_leaves=12,
)


def _paths(data: object, path: Path = ()) -> list[tuple[Path, object]]:
    out = [(path, data)]
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in items:
        out += _paths(value, (*path, step))
    return out


@given(st.dictionaries(_plain, _data, max_size=4), st.sampled_from([None, 1, 3]))
def test_every_json_value_is_found_in_the_text(data: dict[str, object], indent: int | None) -> None:
    document = parse(json.dumps(data, indent=indent, ensure_ascii=False), "x.json")
    for path, value in _paths(data):
        span = document.spans[path]
        assert json.loads(document.text[span.start : span.end]) == value
        assert span.line <= document.text.count("\n", 0, span.start) + 1


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[\n" + ", # a ] comment\n".join(map(_toml, value)) + "\n]"
    if isinstance(value, str):
        return _quoted(value)
    return json.dumps(value) if value is not None else "''"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\u007f", "\\u007f")


@given(st.dictionaries(_plain, _data, max_size=4))
def test_every_toml_value_is_found_in_the_text(data: dict[str, object]) -> None:
    text = "".join(f"{_quoted(key)} = {_toml(value)} # x = 1\n" for key, value in data.items())
    document: Document = parse(text, "x.toml")
    for path, _ in _paths(document.data):
        span = document.spans[path]
        if path:
            assert document.text[span.start : span.end].strip() == document.text[span.start : span.end]
            parent = document.spans[path[:-1]]
            assert parent.start <= span.start <= span.end <= parent.end


@given(st.text())
def test_no_text_makes_it_fall(text: str) -> None:
    for file in ("x.toml", "x.json"):
        try:
            loaded(text, file)
        except FvError as error:
            line = error.where.line
        else:
            line = 1
        assert line >= 1


def test_document_has_every_field() -> None:
    text = (pathlib.Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
    for table in (Config, Log, WireGuardEndpoint, WireGuardPeer, Engine, Gateway, KillSwitch):
        for field in msgspec.structs.fields(table):
            assert f"`{field.encode_name}`" in text, f"{table.__name__}: {field.encode_name} is not in the document"


def test_document_example_is_a_configuration() -> None:
    text = (pathlib.Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    loaded(example.replace('private_key = "..."', f'private_key = "{KEY}"').replace('"..."', f'"{OTHER}"'))
