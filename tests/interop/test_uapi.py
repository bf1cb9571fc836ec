"""The control socket: the standard `wg` unchanged, and the raw protocol's answers (tests/vectors/wireguard.json)."""

import json
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.implementations import UNDER_TEST, ProgramEndpoint, base64, start
from tests.interop.netns import hosts, wait_for
from tests.interop.oracle import can, need
from tests.peers.wg_noise import Identity

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors/wireguard.json").read_text())["uapi"]


@pytest.fixture(params=UNDER_TEST, ids=lambda impl: impl.name)
def end(request: pytest.FixtureRequest) -> Iterator[ProgramEndpoint]:
    need(request.param)
    can(request.param, "strictness")
    with hosts(1) as (host,):
        made = start(request.param, host, 1420, 2)
        assert isinstance(made, ProgramEndpoint)
        try:
            yield made
        finally:
            made.close()


def conf(folder: Path, text: str) -> str:
    path = folder / "wg.conf"
    path.write_text(text)
    return str(path)


def interface(key: Identity, port: int) -> str:
    return f"[Interface]\nPrivateKey = {base64(key.private)}\nListenPort = {port}\n"


def peer(key: Identity, *lines: str) -> str:
    return "\n".join(["[Peer]", f"PublicKey = {base64(key.public)}", *lines]) + "\n"


def allowed(end: ProgramEndpoint, key: Identity) -> set[str]:
    return set(end.peers()[key.public][2].split(","))


class TestWg:
    def test_set_and_show(self, end: ProgramEndpoint, tmp_path: Path) -> None:
        me, other = Identity.fresh(), Identity.fresh()
        psk = Identity.fresh().private
        key_file, psk_file = tmp_path / "key", tmp_path / "psk"
        key_file.write_text(base64(me.private))
        psk_file.write_text(base64(psk))
        end.wg("set", end.name, "private-key", str(key_file), "listen-port", "51999", "fwmark", "0xca6c")
        words = ["preshared-key", str(psk_file), "endpoint", "[2001:db8::9]:1234", "persistent-keepalive", "25"]
        end.wg(
            "set", end.name, "peer", base64(other.public), *words, "allowed-ips", "10.1.2.77/24,fd00::ff/120,0.0.0.0/0"
        )
        device = end.dump()[0]
        assert device == [base64(me.private), base64(me.public), "51999", "0xca6c"]
        assert end.peers()[other.public][:2] == [base64(psk), "[2001:db8::9]:1234"]
        assert end.peers()[other.public][6] == "25"
        assert allowed(end, other) == {"10.1.2.0/24", "fd00::/120", "0.0.0.0/0"}
        text = end.wg("show", end.name).stdout
        for words_shown in ("listening port: 51999", "fwmark: 0xca6c", "persistent keepalive: every 25 seconds"):
            assert words_shown in text
        end.wg(
            "set", end.name, "peer", base64(other.public), "preshared-key", "/dev/null", "persistent-keepalive", "off"
        )
        assert end.peers()[other.public][0] == "(none)"
        assert end.peers()[other.public][6] == "off"
        end.wg("set", end.name, "fwmark", "0", "peer", base64(other.public), "remove")
        assert end.dump() == [[base64(me.private), base64(me.public), "51999", "off"]]

    def test_setconf_addconf_syncconf_showconf(self, end: ProgramEndpoint, tmp_path: Path) -> None:
        me, a, b, c = (Identity.fresh() for _ in range(4))
        end.wg("setconf", end.name, conf(tmp_path, interface(me, 51001) + peer(a, "AllowedIPs = 10.1.0.0/16")))
        assert set(end.peers()) == {a.public}
        end.wg("addconf", end.name, conf(tmp_path, peer(b, "AllowedIPs = 10.2.0.0/16", "Endpoint = 192.0.2.7:7")))
        assert set(end.peers()) == {a.public, b.public}
        changed = interface(me, 51001) + peer(b, "AllowedIPs = 10.9.0.0/16", "Endpoint = 192.0.2.8:8") + peer(c)
        end.wg("syncconf", end.name, conf(tmp_path, changed))
        assert set(end.peers()) == {b.public, c.public}
        assert allowed(end, b) == {"10.9.0.0/16"}
        assert end.peers()[b.public][1] == "192.0.2.8:8"
        shown = end.wg("showconf", end.name).stdout
        end.wg("setconf", end.name, conf(tmp_path, interface(me, 51002)))
        assert end.peers() == {}
        end.wg("setconf", end.name, conf(tmp_path, shown))
        again = end.wg("showconf", end.name).stdout
        assert sorted(again.split("\n\n")) == sorted(shown.split("\n\n"))
        assert end.dump()[0][2] == "51001"

    def test_allowed_ips_move_between_peers(self, end: ProgramEndpoint) -> None:
        a, b = Identity.fresh(), Identity.fresh()
        end.wg("set", end.name, "peer", base64(a.public), "allowed-ips", "10.1.0.0/16,10.2.0.0/16")
        end.wg("set", end.name, "peer", base64(b.public), "allowed-ips", "10.2.0.0/16")
        assert (allowed(end, a), allowed(end, b)) == ({"10.1.0.0/16"}, {"10.2.0.0/16"})

    def test_port_that_is_taken(self, end: ProgramEndpoint) -> None:
        with end.host.udp("0.0.0.0", 51777):
            done = end.wg("set", end.name, "listen-port", "51777", check=False)
        assert done.returncode != 0
        assert "Address already in use" in done.stderr
        end.wg("set", end.name, "listen-port", "51778")
        assert end.dump()[0][2] == "51778"

    def test_random_port(self, end: ProgramEndpoint) -> None:
        """Port 0 takes one, the same for both families, and says which."""
        end.wg("set", end.name, "listen-port", "0")
        port = int(end.dump()[0][2])
        assert port
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            with end.host.open_socket(family, socket.SOCK_DGRAM) as sock:
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                with pytest.raises(OSError, match="in use"):
                    sock.bind((address, port))


class TestRaw:
    @pytest.mark.parametrize("case", VECTORS["errors"], ids=lambda case: case["send"].strip().splitlines()[-1][:24])
    def test_errors(self, end: ProgramEndpoint, case: dict[str, Any]) -> None:
        assert end.uapi(case["send"]) == f"errno={case['errno']}\n\n"
        assert end.uapi("get=1\n\n").endswith("errno=0\n\n")

    def test_what_wg_sends(self, end: ProgramEndpoint) -> None:
        for text in (VECTORS["setconf_sent"], VECTORS["syncconf_sent"]):
            assert end.uapi(text) == "errno=0\n\n"
        assert "allowed_ip=10.1.0.0/16\nallowed_ip=::/0\n" in end.uapi("get=1\n\n")

    def test_earlier_lines_stay_in_force(self, end: ProgramEndpoint) -> None:
        assert end.uapi("set=1\nfwmark=77\nlisten_port=nonsense\n\n") == "errno=-22\n\n"
        assert "fwmark=77\n" in end.uapi("get=1\n\n")

    def test_own_key_as_peer_is_ignored(self, end: ProgramEndpoint) -> None:
        me = Identity.fresh()
        assert end.uapi(f"set=1\nprivate_key={me.private.hex()}\npublic_key={me.public.hex()}\n\n") == "errno=0\n\n"
        assert end.peers() == {}

    def test_prefix_is_removed_by_minus(self, end: ProgramEndpoint) -> None:
        key = Identity.fresh()
        head = f"set=1\npublic_key={key.public.hex()}\n"
        assert end.uapi(head + "allowed_ip=10.1.0.0/16\nallowed_ip=10.2.0.0/16\n\n") == "errno=0\n\n"
        assert end.uapi(head + "allowed_ip=-10.1.0.0/16\n\n") == "errno=0\n\n"
        assert allowed(end, key) == {"10.2.0.0/16"}

    def test_several_requests_and_an_empty_connection(self, end: ProgramEndpoint) -> None:
        for _ in range(3):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.connect(str(end.socket_path))
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(5)
            sock.connect(str(end.socket_path))
            reply = b""
            for request in (b"get=1\n\n", b"set=1\nfwmark=5\n\n", b"get=1\n\n"):
                sock.sendall(request)
                reply = b""
                while not reply.endswith(b"\n\n"):
                    chunk = sock.recv(65536)
                    assert chunk, "closed between two requests"
                    reply += chunk
                assert reply.endswith(b"errno=0\n\n")
            assert b"fwmark=5\n" in reply

    def test_request_byte_by_byte(self, end: ProgramEndpoint) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(5)
            sock.connect(str(end.socket_path))
            for byte in b"set=1\nfwmark=6\n\n":
                sock.sendall(bytes([byte]))
                time.sleep(0.002)
            assert sock.recv(100) == b"errno=0\n\n"

    def test_thousand_peers(self, end: ProgramEndpoint) -> None:
        """A set and a get larger than any buffer."""
        keys = [Identity.fresh().public.hex() for _ in range(1000)]
        lines = "".join(f"public_key={k}\nallowed_ip=10.{i >> 8}.{i & 255}.0/24\n" for i, k in enumerate(keys))
        assert end.uapi(f"set=1\n{lines}\n", seconds=20) == "errno=0\n\n"
        reply = end.uapi("get=1\n\n", seconds=20)
        assert {line[11:] for line in reply.splitlines() if line.startswith("public_key=")} == set(keys)
        assert len(end.wg("show", end.name, "dump").stdout.splitlines()) == 1001

    def test_socket_s_mode(self, end: ProgramEndpoint) -> None:
        assert stat.S_IMODE(end.socket_path.stat().st_mode) == 0o700
        wait_for("alive", end.program.alive)
