"""The engine's resolver against a real name server (dnsmasq) in a namespace, by native/tests/flow/resolver_lookup."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("root", "netns", "ip", "dnsmasq")

BIG = [f"198.51.100.{i}" for i in range(1, 41)]


class Names:
    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.namespace = f"netcfg-{os.getpid()}-dns"
        self.servers: list[subprocess.Popen[bytes]] = []

    def ip(self, words: str) -> None:
        subprocess.run(["ip", *words.split()], check=True)

    def serve(self, address: str, *options: str) -> None:
        """A dnsmasq that answers from its own data only."""
        command = ["ip", "netns", "exec", self.namespace, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null"]
        command += ["--no-resolv", "--no-hosts", "--bind-interfaces", f"--listen-address={address}", "--pid-file="]
        command += ["--user=root", "--local=/example/", "--local-ttl=60", *options]
        self.servers.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if self.lookup(["up.example"], [address], seconds=2)[0].get("up.example") == ["0", "192.0.2.99"]:
                return
            time.sleep(0.05)
        pytest.fail(f"dnsmasq on {address} does not answer")

    def lookup(
        self, names: list[str], servers: list[str], hosts: str = "", seconds: int = 20
    ) -> tuple[dict[str, list[str]], dict[str, int]]:
        """Answers by name (error number, addresses) and how they came."""
        (self.folder / "hosts").write_text(hosts)
        (self.folder / "resolv.conf").write_text("".join(f"nameserver {x}\n" for x in servers))
        program = [self.program, self.folder / "hosts", self.folder / "resolv.conf"]
        command = ["ip", "netns", "exec", self.namespace, *map(str, program)]
        run = subprocess.run([*command, str(seconds), *names], capture_output=True, text=True, check=False)
        assert run.returncode in (0, 1), run.stderr
        lines = [line.split() for line in run.stdout.splitlines()]
        words = lines.pop()
        return {line[0]: line[1:] for line in lines}, dict(zip(words[1::2], map(int, words[2::2]), strict=True))


@pytest.fixture
def names(build: Path, tmp_path: Path) -> Iterator[Names]:
    made = Names(build / "native" / "tests" / "flow" / "resolver_lookup", tmp_path)
    (tmp_path / "data").write_text(
        "192.0.2.99 up.example\n192.0.2.1 vpn.example\n2001:db8::1 vpn.example\n192.0.2.2 four.example\n"
        + "".join(f"{x} big.example\n" for x in BIG)
    )
    made.ip(f"netns add {made.namespace}")
    try:
        made.ip(f"-n {made.namespace} link set lo up")
        for address in ("192.0.2.53/32", "192.0.2.54/32", "192.0.2.55/32"):
            made.ip(f"-n {made.namespace} address add {address} dev lo")
        made.ip(f"-n {made.namespace} -6 address add 2001:db8::53/128 dev lo nodad")
        yield made
    finally:
        for server in made.servers:
            server.kill()
            server.wait()
        subprocess.run(["ip", "netns", "del", made.namespace], check=False)


def test_addresses_aliases_and_what_is_not_there(names: Names) -> None:
    data = f"--addn-hosts={names.folder / 'data'}"
    names.serve("192.0.2.53", data, "--cname=alias.example,vpn.example")
    asked = ["vpn.example", "four.example", "ALIAS.example.", "none.example", "192.0.2.8", "localhost", "own.example"]
    found, how = names.lookup(asked, ["192.0.2.53"], hosts="192.0.2.7 own.example\n")
    assert found == {
        "vpn.example": ["0", "2001:db8::1", "192.0.2.1"],
        "four.example": ["0", "192.0.2.2"],
        "ALIAS.example.": ["0", "2001:db8::1", "192.0.2.1"],
        "none.example": ["2"],  # ENOENT
        "192.0.2.8": ["0", "192.0.2.8"],
        "localhost": ["0", "::1", "127.0.0.1"],
        "own.example": ["0", "192.0.2.7"],
    }
    assert how == {"udp": 8, "tcp": 0, "timeouts": 0}


def test_a_long_answer_comes_by_tcp(names: Names) -> None:
    names.serve("192.0.2.53", f"--addn-hosts={names.folder / 'data'}")
    found, how = names.lookup(["big.example"], ["192.0.2.53"])
    assert found["big.example"][0] == "0"
    assert len(found["big.example"]) == 1 + 16  # as many as are kept
    assert set(found["big.example"][1:]) <= set(BIG)
    assert how["tcp"] == 1


def test_servers_that_are_down_or_refuse_are_passed_over(names: Names) -> None:
    names.serve("2001:db8::53", f"--addn-hosts={names.folder / 'data'}")
    # .54 has nobody there (ICMP tells), .53 does not know the name and has nobody to ask (REFUSED).
    names.serve("192.0.2.53", "--host-record=up.example,192.0.2.99", "--address=/up.example/192.0.2.99")
    started = time.monotonic()
    found, how = names.lookup(["vpn.example"], ["192.0.2.54", "2001:db8::53"])
    assert found["vpn.example"] == ["0", "2001:db8::1", "192.0.2.1"]
    assert how["timeouts"] == 0
    assert time.monotonic() - started < 0.9


def test_a_silent_server_costs_a_second(names: Names) -> None:
    names.serve("192.0.2.53", f"--addn-hosts={names.folder / 'data'}")
    bind = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('192.0.2.55', 53))"
    listener = f"import socket, time; {bind}; time.sleep(60)"
    silent = subprocess.Popen(["ip", "netns", "exec", names.namespace, "python3", "-c", listener])
    names.servers.append(silent)
    time.sleep(0.5)
    started = time.monotonic()
    found, how = names.lookup(["vpn.example"], ["192.0.2.55", "192.0.2.53"])
    assert found["vpn.example"] == ["0", "2001:db8::1", "192.0.2.1"]
    assert how == {"udp": 4, "tcp": 0, "timeouts": 2}
    assert 0.9 < time.monotonic() - started < 3


def test_nobody_at_all(names: Names) -> None:
    found, _ = names.lookup(["vpn.example"], ["192.0.2.54"])
    assert found["vpn.example"] == ["113"]  # EHOSTUNREACH
    found, _ = names.lookup(["vpn.example"], [])
    assert found["vpn.example"] == ["89"]  # EDESTADDRREQ
