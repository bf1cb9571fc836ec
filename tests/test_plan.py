"""The plan as text: codec, reader, writer, and the document that describes them."""

import pathlib
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fv.errors import FvError
from fv.plan import schema
from fv.plan.text import HIDDEN, Line, Plan, Section, decode, difference, encode, read, write

DOCUMENT = pathlib.Path(__file__).parent.parent / "docs" / "plan.md"
KEY = "ab" * 32


def document_example() -> str:
    blocks = re.findall(r"^```\n(plan=1\n.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


def test_document_table_is_the_schema() -> None:
    text = DOCUMENT.read_text()
    written = text.split("<!-- table: begin -->\n")[1].split("<!-- table: end -->")[0]
    assert written == schema.table(), "paste the output of `python -m fv.plan.schema` there"


def test_document_example_is_a_plan_and_survives() -> None:
    text = document_example()
    plan = read(text)
    assert write(plan) == text
    assert plan.of("wireguard")[0].get("source4") == "10.7.0.2"
    assert plan.of("network")[0].all("rule") == (
        "priority 5200 fwmark 0xca6c table main",
        "priority 5210 iif eth1 table 51820",
    )


# One value of each form per key, drawn from what its check takes.
_word = st.sampled_from(["udp_gro", "tun_uso", "splice"])
_values = {
    "cpu": st.sampled_from(["", "0", "0,3"]),
    "state": st.text(max_size=20).map(lambda s: "/" + s.replace("\n", "")),
    "control": st.sampled_from(["", "/run/a b/fv.sock"]),
    "feature_off": st.lists(_word, min_size=1, max_size=3).map(",".join),
    "detour": st.sampled_from(["", "wg9"]),
    "source4": st.ip_addresses(v=4).map(str),
    "source6": st.ip_addresses(v=6).map(str),
    "endpoint": st.sampled_from(["192.0.2.1:1", "[2001:db8::1]:65535", "a.example:51820"]),
    "allowed_ip": st.sampled_from(["0.0.0.0/0", "::/0", "10.0.0.0/9"]),
    "lan4": st.just("10.0.0.0/8"),
    "lan6": st.just("fd00::/8"),
    "mss": st.sampled_from(["auto", "off", "1300"]),
    "sysctl": st.just("net.ipv4.ip_forward=1"),
    "route": st.just("default dev wg0"),
    "address": st.just("10.0.0.1/32 dev wg0"),
    "link": st.just("wg0 up"),
    "rule": st.just("priority 1 table main"),
    "server": st.sampled_from(["192.0.2.1", "[2001:db8::1]:53", "2001:db8::1"]),
    "host": st.just("a.example 192.0.2.1"),
}


def _value(key: schema.Key) -> st.SearchStrategy[str]:
    if key.name in _values:
        return _values[key.name]
    if key.kind.name == "64 hex digits":
        return st.binary(min_size=32, max_size=32).map(bytes.hex)
    number = re.fullmatch(r"number (-?\d+)\.\.(-?\d+)", key.kind.name)
    if number:
        return st.integers(int(number[1]), int(number[2])).map(str)
    return st.sampled_from(key.kind.name.split("|"))


@st.composite
def _sections(draw: st.DrawFn, kind: schema.SectionType) -> Section:
    lines = []
    for key in (k for k in kind.keys if not k.peer and k.name != "public_key"):
        count = draw(st.integers(0, 2)) if key.repeat else 1 if key.required else draw(st.integers(0, 1))
        lines += [Line(key.name, draw(_value(key))) for _ in range(count)]
    if kind.name == "wireguard":
        for _ in range(draw(st.integers(0, 3))):
            for key in (k for k in kind.keys if k.peer):
                count = 1 if key.name == "public_key" else draw(st.integers(0, 1))
                lines += [Line(key.name, draw(_value(key))) for _ in range(count)]
    name = draw(st.text(min_size=1, max_size=12)) if kind.named else ""
    return Section(kind.name, name, tuple(lines))


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    kinds = draw(st.lists(st.sampled_from(schema.SECTIONS), max_size=4))
    sections = {(s.type, s.name): s for s in (draw(_sections(kind)) for kind in kinds)}
    return Plan(tuple(draw(st.lists(st.sampled_from(sorted(schema.FEATURES)), unique=True))), tuple(sections.values()))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # two slow cores are no failure
@given(_plans())
def test_read_of_write_is_the_plan(plan: Plan) -> None:
    assert read(write(plan)) == plan


@given(st.text())
def test_percent_coding_round_trip(text: str) -> None:
    # Lone surrogates are not text that UTF-8 can hold.
    text = text.encode("utf-8", "ignore").decode()
    coded = encode(text)
    assert decode(coded) == text
    assert all(" " <= c <= "~" for c in coded)
    assert coded == coded.strip(" ")


@given(st.binary())
def test_percent_coding_of_bytes(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    assert decode(encode(text)).encode("utf-8", "surrogateescape") == raw


@given(st.text())
def test_reader_says_where_for_any_text(text: str) -> None:
    try:
        read(text)
    except FvError as error:
        line = error.where.line
    else:
        line = 1
    assert line > 0


GOOD = f"plan=1\nneeds=wireguard\n\n[wireguard wg0]\nprivate_key={KEY}\n"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "first line"),
        ("plan=2\n", 1, "version '2'"),
        ("needs=nat\n", 1, "first line"),
        ("[engine]\n", 1, "first line"),
        ("plan=1\nneeds=teleport\n", 2, "'teleport'"),
        ("plan=1\nplan=1\n", 2, "before any section"),
        ("plan=1\n[engin]\n", 2, "did you mean 'engine'"),
        ("plan=1\n[engine]\nworkerz=1\n", 3, "did you mean 'workers'"),
        ("plan=1\n[engine]\nworkers=0\n", 3, "number from 1 to 16"),
        ("plan=1\n[engine]\nworkers=1\nworkers=1\n", 4, "a second time"),
        ("plan=1\n[engine]\n[engine]\n", 3, "a second time"),
        ("plan=1\n[engine x]\n", 2, "has no name"),
        ("plan=1\n[wireguard]\n", 2, "needs a name"),
        ("plan=1\n[wireguard wg0\n", 2, "without its ]"),
        ("plan=1\n[wireguard wg0]\nmtu=1420\n", 4, "has no private_key"),
        ("plan=1\n[engine]\nstate=/caf\u00e9\n", 3, "U+00E9"),
        ("plan=1\n[engine]\nstate=/a%2\n", 3, "two hex digits"),
        ("plan=1\n[engine]\nstate=/a \n", 3, "a space"),
        (GOOD + "endpoint=192.0.2.1:1\n", 6, "before any public_key"),
        (GOOD + f"public_key={KEY}\nlisten_port=1\n", 7, "after the first peer"),
        (GOOD + f"public_key={KEY}\nendpoint=192.0.2.1\n", 7, "HOST:PORT"),
        (GOOD + f"public_key={KEY}\nallowed_ip=10.0.0.1\n", 7, "prefix"),
        (GOOD.replace(KEY, KEY[:-1]), 5, "a value of 63 characters"),
        (GOOD + "x" * 4097 + "\n", 6, "longer than 4096"),
    ],
)
def test_reader_names_line_and_fault(text: str, line: int, what: str) -> None:
    with pytest.raises(FvError, match=re.escape(what)) as caught:
        read(text)
    assert caught.value.where.line == line
    assert KEY[:-1] not in str(caught.value)


def test_writer_hides_secrets() -> None:
    plan = read(GOOD + f"public_key={'cd' * 32}\npreshared_key={'ef' * 32}\n")
    text = write(plan, secrets=False)
    assert KEY not in text
    assert "ef" * 32 not in text
    assert f"private_key={HIDDEN}" in text
    assert "cd" * 32 in text


def test_writer_refuses_a_line_that_is_too_long() -> None:
    plan = Plan((), (Section("engine", "", (Line("state", "/" + "a" * 5000),)),))
    with pytest.raises(FvError, match="limit is 4096"):
        write(plan)


def test_difference_shows_a_changed_secret_without_showing_it() -> None:
    old, new = read(GOOD), read(GOOD.replace(KEY, "cd" * 32))
    text = difference(old, new)
    assert text.count("private_key=(hidden, mark ") == 2
    assert KEY not in text
    assert "cd" * 32 not in text
    assert difference(old, old) == ""
