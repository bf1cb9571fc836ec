"""The commands as they are typed, against an engine that is a fake: what it is asked, what is made of its answers."""

import json
import os
import pathlib
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from fv import uapi
from fv.cli import cli
from fv.commands.install import unit_text
from fv.engine import plan_memfd
from fv.errors import FvError
from fv.keys import generate_private, parse_key, public_of, show_key
from fv.plan.text import read

KEY = "YDmCPu0DqBkLQ2LrDUYOgwUKgr/qc/NuE+2SsH7xvGI="
OTHER = "vT0z9Ex7ZpDfGWgEmLhpCHV2AzUcuexqsVeHLrIWW2k="

CONFIG = f"""[[endpoints]]
type = "wireguard"
tag = "fvtest0"
address = "10.7.0.1/24"
private_key = "{KEY}"
listen_port = 51999
mtu = 1280
[[endpoints.peers]]
public_key = "{OTHER}"
allowed_ips = ["10.7.0.2/32"]

[engine]
state = ""
control = "@/fv.sock"
"""


def invoke(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, words, input=stdin)


def good(*words: str, stdin: str = "") -> str:
    result = invoke(*words, stdin=stdin)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def fault(*words: str) -> str:
    result = invoke(*words)
    assert isinstance(result.exception, FvError), result.output
    return str(result.exception)


@pytest.fixture
def config(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "edge.toml"
    file.write_text(CONFIG.replace("@", str(tmp_path)))
    return file


def test_every_command_has_help() -> None:
    names = {line.split()[0] for line in good("--help").split("Commands:")[1].splitlines() if line.strip()}
    wanted = {"check", "plan", "run", "up", "down", "install", "reload", "status", "keygen", "pubkey", "psk", "peer",
              "import", "doctor", "demo"}  # fmt: skip
    assert wanted <= names
    for name in wanted:
        assert "Usage" in good(name, "--help")


def test_keys() -> None:
    private = good("keygen").strip()
    assert len(parse_key(private)) == 32
    assert good("pubkey", stdin=private + "\n").strip() == show_key(public_of(parse_key(private)))
    assert good("psk") != good("psk")
    result = invoke("pubkey", stdin="abc\n")
    assert "3 characters" in str(result.exception)


@pytest.mark.needs("wg")
def test_keys_agree_with_wg() -> None:
    private = show_key(generate_private())
    theirs = subprocess.run(["wg", "pubkey"], input=private, text=True, capture_output=True, check=True).stdout
    assert good("pubkey", stdin=private) == theirs


def test_check_and_plan(config: pathlib.Path) -> None:
    assert "good: 1 endpoint" in good("check", str(config))
    text = good("plan", str(config))
    assert read(text).of("wireguard")[0].name == "fvtest0" if "(hidden)" not in text else "private_key=(hidden)" in text
    assert parse_key(KEY).hex() not in text
    assert "# MTU" in text
    assert "total" in text
    with_secrets = good("plan", "--secrets", "--only", str(config))
    plan = read(with_secrets)
    assert plan.of("wireguard")[0].get("listen_port") == "51999"
    config.write_text(CONFIG.replace("listen_port", "listen_prot"))
    assert "edge.toml:6: endpoints[0].listen_prot: unknown field; did you mean 'listen_port'?" in fault(
        "check", str(config)
    )


def test_import(tmp_path: pathlib.Path) -> None:
    conf = tmp_path / "home.conf"
    text = f"[Interface]\nPrivateKey = {KEY}\nAddress = 10.7.0.2/32\n[Peer]\nPublicKey = {OTHER.rstrip('=')}\n"
    text += "AllowedIPs = 0.0.0.0/0\nEndpoint = 192.0.2.1:51820\n"
    conf.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    out = tmp_path / "home.toml"
    assert "1 peer" in good("import", str(conf), "-o", str(out))
    assert out.stat().st_mode & 0o777 == 0o600
    assert "good: 1 endpoint" in good("check", str(out))
    assert "is there already" in fault("import", str(conf), "-o", str(out))
    conf.write_text(conf.read_text() + "PostUp = reboot\nJc = 3\n")
    message = fault("import", str(conf))
    assert "home.conf:8: PostUp: a hook" in message
    assert "home.conf:9: Jc: AmneziaWG" in message


def test_plan_goes_by_a_sealed_descriptor(config: pathlib.Path) -> None:
    text = good("plan", "--secrets", "--only", str(config))
    descriptor = plan_memfd(read(text))
    try:
        assert os.read(descriptor, 1 << 16).decode() == text
        with pytest.raises(PermissionError):
            os.write(descriptor, b"x")
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def test_unit() -> None:
    text = unit_text(pathlib.Path("/etc/fv/my 100% edge.toml"), "/usr/bin/fv", "/usr/bin/fvd")
    assert 'ExecStart=/usr/bin/fv run "/etc/fv/my 100%% edge.toml"' in text
    assert "CapabilityBoundingSet=CAP_NET_ADMIN" in text
    assert "ReadWritePaths" not in unit_text(pathlib.Path("/a"), "fv", "fvd", ("/run/fv", "/var/lib/fv"))
    assert "\nReadWritePaths=/srv/fv\n" in unit_text(pathlib.Path("/a"), "fv", "fvd", ("/run/fv", "/srv/fv"))


class FakeEngine:
    """A control socket that answers what it is told to and keeps what it was asked."""

    def __init__(self, path: pathlib.Path, answers: dict[str, bytes]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                raw = connection.recv(1 << 16)
                if raw.startswith(b"swap=1\nlength="):
                    head, _, body = raw.partition(b"\n\n")
                    while len(body) < int(head.rpartition(b"=")[2]):
                        body += connection.recv(1 << 16)
                    raw = head + b"\n\n" + body
                self.asked.append(raw.decode())
                answer = self.answers[raw.decode().split("\n")[0]]
                for byte in range(0, len(answer), 7):  # in pieces, as a stream may bring it
                    connection.sendall(answer[byte : byte + 7])


@pytest.fixture
def engine(config: pathlib.Path) -> Iterator[FakeEngine]:
    plan = good("plan", "--secrets", "--only", str(config)).encode()
    fake = FakeEngine(
        config.parent / "fv.sock",
        {
            "get=1": b"length=%d\nerrno=0\n\n" % len(plan) + plan,
            "show=stats": b"version=9\nuptime_ms=61000\nresident=2097152\ndevice.fvtest0.drop.replay=7\nerrno=0\n\n",
            "swap=1": b"errno=0\n\n",
        },
    )
    yield fake
    fake.listener.close()


def test_reload_shows_the_difference_and_swaps(config: pathlib.Path, engine: FakeEngine) -> None:
    assert "nothing changes" in good("reload", str(config))
    new = show_key(generate_private())
    config.write_text(config.read_text().replace("51999", "52000").replace(KEY, new))
    assert "in force" not in good("reload", "--dry-run", str(config)).splitlines()
    assert not any(asked.startswith("swap") for asked in engine.asked)
    text = good("reload", str(config))
    assert {"-listen_port=51999", "+listen_port=52000"} <= set(text.splitlines())
    assert text.splitlines()[-1] == "in force"
    assert parse_key(new).hex() not in text
    swapped = read(engine.asked[-1].partition("\n\n")[2])
    assert swapped.of("wireguard")[0].get("private_key") == parse_key(new).hex()


def test_a_refused_swap_is_said_in_the_engines_words(config: pathlib.Path, engine: FakeEngine) -> None:
    engine.answers["swap=1"] = b"errno=-22\nerror=line 3: 100%25 wrong\n\n"
    config.write_text(config.read_text().replace("51999", "52000"))
    assert "line 3: 100% wrong" in fault("reload", str(config))


def test_status(config: pathlib.Path, engine: FakeEngine) -> None:
    text = good("status", "--control", str(config.parent / "fv.sock"))
    assert "fvd 9, up 1 min 1 s, 2.00 MiB resident" in text
    assert "drop.replay" in text
    plain = json.loads(good("status", "--json", "--control", str(config.parent / "fv.sock")))
    assert plain["engine"]["device.fvtest0.drop.replay"] == 7
    assert engine.asked.count("show=stats\n\n") == 2
    assert "no engine listens there" in fault("status", "--control", str(config.parent / "none.sock"))


def test_uapi_get_as_the_vectors_have_it() -> None:
    pairs = [
        ("private_key", "00" * 32), ("listen_port", "51820"), ("public_key", "aa" * 32), ("preshared_key", "0" * 64),
        ("protocol_version", "1"), ("endpoint", "[2001:db8::1]:1"), ("last_handshake_time_sec", "1700000000"),
        ("last_handshake_time_nsec", "500000000"), ("tx_bytes", "1"), ("rx_bytes", "2"), ("allowed_ip", "10.0.0.0/8"),
        ("allowed_ip", "::/0"), ("public_key", "bb" * 32), ("preshared_key", "01" * 32),
    ]  # fmt: skip
    device = uapi.parse_device("wg0", pairs)
    assert device.listen_port == 51820
    first, second = device.peers
    assert (first.endpoint, first.handshake, first.sent, first.received) == ("[2001:db8::1]:1", 1700000000.5, 1, 2)
    assert (first.allowed_ips, first.has_psk, second.has_psk) == (("10.0.0.0/8", "::/0"), False, True)
