"""The engine's [network] against real kernels' state, in namespaces of our own, by native/tests/engine/network_apply.

    lan (192.168.88.2, fd12::2) --- lan0 gw up0 --- (198.51.100.1, fd34::1) world

The kill switch is proved by a capture on the world's side of the uplink while the LAN's host sends all the time: no
netfilter anywhere, so what forwarding lets out is seen there.
"""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

pytestmark = pytest.mark.needs("root", "netns", "tun", "ip")

PROTOCOL = 157
TARGET4, TARGET6, PORT = "203.0.113.9", "2001:db8:9::9", 4444

# Sends to both targets for as long as it lives.
SENDER = f"""
import socket, time
four, six = (socket.socket(f, socket.SOCK_DGRAM) for f in (socket.AF_INET, socket.AF_INET6))
while True:
    for s, to in ((four, "{TARGET4}"), (six, "{TARGET6}")):
        try:
            s.sendto(b"kill switch", (to, {PORT}))
        except OSError:
            pass
    time.sleep(0.002)
"""

# Counts packets to the port on one interface; tells the counts of IPv4 and IPv6 since the last question.
CAPTURE = f"""
import select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
s.bind((sys.argv[1], 0))
s.setblocking(False)
count = [0, 0]
print("ready", flush=True)
while True:
    ready, _, _ = select.select([s, sys.stdin], [], [])
    if s in ready:
        try:
            while True:
                f = s.recv(2048)
                if f[0] >> 4 == 4 and f[9] == 17 and f[22:24] == ({PORT}).to_bytes(2, "big"):
                    count[0] += 1
                if f[0] >> 4 == 6 and f[6] == 17 and f[42:44] == ({PORT}).to_bytes(2, "big"):
                    count[1] += 1
        except BlockingIOError:
            pass
    if sys.stdin in ready:
        if not sys.stdin.readline():
            break
        print(*count, flush=True)
        count = [0, 0]
"""


class Driver:
    """network_apply in a namespace."""

    def __init__(self, program: Path, namespace: str, state: Path | None) -> None:
        command = ["ip", "netns", "exec", namespace, str(program), str(state or "")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.greeting = self._answer()
        assert self.greeting.startswith("ok"), self.greeting

    def _answer(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def ask(self, order: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(order + "\n")
        return self._answer()

    def do(self, *orders: str) -> None:
        for order in orders:
            assert self.ask(order) == "ok", order

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(10) in (0, -9)


class Net:
    """The three namespaces."""

    number = itertools.count()

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        prefix = f"netcfg-{os.getpid()}-{next(self.number)}"
        self.lan, self.gw, self.world = (f"{prefix}-{x}" for x in ("lan", "gw", "world"))
        self.helpers: list[subprocess.Popen[str]] = []

    def ip(self, namespace: str, words: str) -> str:
        command = ["ip", "-n", namespace, *words.split()]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def sysctl(self, namespace: str, key: str, value: str | None = None) -> str:
        setting = key if value is None else f"{key}={value}"
        command = ["ip", "netns", "exec", namespace, "sysctl", "-n", setting]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def up(self) -> None:
        for namespace in (self.lan, self.gw, self.world):
            subprocess.run(["ip", "netns", "add", namespace], check=True)
            self.ip(namespace, "link set lo up")
            self.sysctl(namespace, "net.ipv6.conf.default.accept_dad", "0")
        for near, far, gw_address, far_address, v6 in (
            ("lan0", self.lan, "192.168.88.1/24", "192.168.88.2/24", "fd12::"),
            ("up0", self.world, "198.51.100.2/24", "198.51.100.1/24", "fd34::"),
        ):
            self.ip(self.gw, f"link add {near} type veth peer name {near} netns {far}")
            gw_host, far_host = ("1", "2") if near == "lan0" else ("2", "1")
            for namespace, address, host in ((self.gw, gw_address, gw_host), (far, far_address, far_host)):
                self.ip(namespace, f"address add {address} dev {near}")
                self.ip(namespace, f"address add {v6}{host}/64 dev {near} nodad")
                self.ip(namespace, f"link set {near} up")
        self.ip(self.lan, "route add default via 192.168.88.1")
        self.ip(self.lan, "route add default via fd12::1")
        self.ip(self.gw, "route add default via 198.51.100.1")
        self.ip(self.gw, "route add default via fd34::1")
        # IPv6 needs a moment to find the links usable; what is looked at later must not change by itself.
        for namespace in (self.lan, self.gw, self.world):
            for _ in range(100):
                if "tentative" not in self.ip(namespace, "-6 address show"):
                    break
                time.sleep(0.05)

    def down(self) -> None:
        for helper in self.helpers:
            helper.kill()
            helper.wait()
        for namespace in (self.lan, self.gw, self.world):
            subprocess.run(["ip", "netns", "del", namespace], check=False, stderr=subprocess.DEVNULL)

    def python(self, namespace: str, text: str, *arguments: str) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", namespace, sys.executable, "-c", text, *arguments]
        helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.helpers.append(helper)
        return helper

    def driver(self, state: str | None = "state") -> Driver:
        return Driver(self.program, self.gw, self.folder / state if state else None)

    def plan(self, *lines: str) -> str:
        path = self.folder / f"plan-{next(self.number)}"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def json(self, words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ip(self.gw, f"-j -d {words}") or "[]")
        return found

    def state(self) -> dict[str, Any]:
        """All that [network] may change, without what counts or ages."""
        links = [{k: x[k] for k in ("ifname", "mtu", "flags", "txqlen")} for x in self.json("link show")]
        addresses = [
            (x["ifname"], a["local"], a["prefixlen"], a.get("address"))
            for x in self.json("address show")
            for a in x["addr_info"]
        ]
        routes = [
            {k: v for k, v in r.items() if k not in ("expires", "cache", "flags")}
            for family in ("-4", "-6")
            for r in self.json(f"{family} route show table all")
            if r.get("type") != "multicast"
        ]
        rules = [r for family in ("-4", "-6") for r in self.json(f"{family} rule show")]
        keys = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.lan0.rp_filter")
        return {
            "links": links,
            "addresses": sorted(map(str, addresses)),
            "routes": sorted(map(str, routes)),
            "rules": sorted(map(str, rules)),
            "sysctls": [self.sysctl(self.gw, key) for key in keys],
        }

    def ours(self) -> list[str]:
        """Routes of fv's number, as `TYPE DESTINATION TABLE`."""
        return sorted(
            f"{r['type']} {r['dst']} {r.get('table', 'main')}"
            for family in ("-4", "-6")
            for r in self.json(f"{family} route show table all proto {PROTOCOL}")
        )

    def rules(self) -> list[int]:
        return sorted(
            r["priority"]
            for f in ("-4", "-6")
            for r in self.json(f"{f} rule show")
            if r.get("protocol") == str(PROTOCOL)
        )


@pytest.fixture
def net(build: Path, tmp_path: Path) -> Iterator[Net]:
    made = Net(build / "native" / "tests" / "engine" / "network_apply", tmp_path)
    try:
        made.up()
        yield made
    finally:
        made.down()


GUARDED = (
    "address=10.7.0.2/32 dev wg0",
    "address=fd00::2/128 dev wg0",
    "link=wg0 mtu 1420 up",
    "route=default dev wg0 table 51820 metric 10",
    "route=unreachable default table 51820 metric 4096",
    "rule=priority 5210 iif lan0 table 51820",
    "rule=priority 5200 fwmark 0xca6c table main",
    "sysctl=net.ipv4.ip_forward=1",
    "sysctl=net.ipv6.conf.all.forwarding=1",
)
GUARDS = ["unreachable default 51820"] * 2


def test_applied_as_written_and_taken_back(net: Net) -> None:
    with net.driver() as engine:
        engine.do("tun wg0")
        before = net.state()
        engine.do("apply " + net.plan(*GUARDED))
        assert net.ours() == ["unicast default 51820"] * 2 + GUARDS
        assert net.rules() == [5200, 5200, 5210, 5210]
        link = next(x for x in net.json("link show") if x["ifname"] == "wg0")
        assert link["mtu"] == 1420
        assert "UP" in link["flags"]
        addresses = next(x for x in net.json("address show") if x["ifname"] == "wg0")["addr_info"]
        assert {"10.7.0.2", "fd00::2"} <= {a["local"] for a in addresses}
        assert net.sysctl(net.gw, "net.ipv4.ip_forward") == "1"
        (mark,) = [r for r in net.json("-4 rule show") if r["priority"] == 5200]
        assert (mark["fwmark"], mark["table"]) == ("0xca6c", "main")
        assert (net.folder / "state" / "network").stat().st_mode & 0o777 == 0o600
        engine.do("stop open")
        assert net.state() == before
        assert not (net.folder / "state" / "network").exists()


def test_asked_twice_does_nothing(net: Net) -> None:
    with net.driver() as engine:
        engine.do("tun wg0", "apply " + net.plan(*GUARDED))
        time.sleep(0.3)  # the kernel's own reports about a new link
        assert "+route" in engine.ask("watch")
        engine.do("apply " + net.plan(*GUARDED))
        assert engine.ask("watch") == "ok"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["route=192.0.2.0/24 via 10.99.0.1"], "route=192.0.2.0/24 via 10.99.0.1 table main"),
        (["route=192.0.2.0/24 dev nowhere"], "there is no interface nowhere"),
        (["address=10.0.0.1/24 dev nowhere"], "there is no interface nowhere"),
        (["sysctl=net.ipv4.no_such_key=1"], "this kernel has no such key"),
        (["sysctl=net.ipv4.conf.lan0.rp_filter=many"], "Invalid argument"),
        (["route=198.51.100.0/24 dev lan0 table 77"], "another route of that destination"),
        (["route=unreachable default metric 0"], "another route of that destination"),
        (["link=up0 mtu 1300 txqueuelen 77", "link=lan0 mtu 1300", "route=192.0.2.0/24 via 10.99.0.1"], "10.99.0.1"),
    ],
)
def test_one_failure_undoes_all(net: Net, lines: list[str], words: str) -> None:
    with net.driver() as engine:
        engine.do("tun wg0")
        net.ip(net.gw, "route add 198.51.100.0/24 via 192.168.88.2 table 77")
        before = net.state()
        answer = engine.ask("apply " + net.plan(*GUARDED, *lines))
        assert answer.startswith("error: -"), answer
        assert words in answer
        assert net.state() == before
        assert not (net.folder / "state" / "network").exists()


def test_what_was_there_before_stays(net: Net) -> None:
    net.ip(net.gw, "route add 192.0.2.0/24 via 198.51.100.1")
    net.ip(net.gw, "address add 192.168.88.9/32 dev lan0")
    net.ip(net.gw, "rule add priority 700 iif lan0 table 9")
    with net.driver() as engine:
        before = net.state()
        engine.do(
            "apply "
            + net.plan(
                "route=192.0.2.0/24 via 198.51.100.1",
                "address=192.168.88.9/32 dev lan0",
                "address=192.168.88.10/32 dev lan0",
                "rule=-4 priority 700 iif lan0 table 9",
                "link=lan0 up mtu 1400",
            )
        )
        assert net.ours() == []
        engine.do("stop open")
        assert net.state() == before


def test_swap_changes_only_the_differences(net: Net) -> None:
    with net.driver() as engine:
        engine.do("tun wg0")
        before = net.state()
        engine.do("apply " + net.plan(*GUARDED, "route=192.0.2.0/24 dev wg0", "link=lan0 mtu 1400"))
        time.sleep(0.3)
        engine.ask("watch")
        changed = [x for x in GUARDED if "5200" not in x and "10.7.0.2" not in x]
        engine.do("apply " + net.plan(*changed, "address=10.7.0.3/24 dev wg0", "route=192.0.2.0/24 dev lan0"))
        told = engine.ask("watch").split()
        assert "+link" not in told[:-1] or "-link" not in told  # lan0's MTU goes back; nothing is deleted and remade
        assert net.rules() == [5210, 5210]
        (route,) = net.json("-4 route show 192.0.2.0/24")
        assert route["dev"] == "lan0"
        assert next(x for x in net.json("link show") if x["ifname"] == "lan0")["mtu"] == 1500
        engine.do("stop open")
        assert net.state() == before


def test_secondary_address_survives_its_primary(net: Net) -> None:
    """The kernel deletes an IPv4 address's secondaries with it."""
    with net.driver() as engine:
        engine.do("tun wg0", "apply " + net.plan("address=10.7.0.2/24 dev wg0", "link=wg0 up"))
        engine.do(
            "apply " + net.plan("address=10.7.0.3/24 dev wg0", "link=wg0 up", "route=10.8.0.0/24 dev wg0 src 10.7.0.3")
        )
        addresses = next(x for x in net.json("address show") if x["ifname"] == "wg0")["addr_info"]
        assert [a["local"] for a in addresses if a["family"] == "inet"] == ["10.7.0.3"]
        assert net.ours() == ["unicast 10.8.0.0/24 main"]


def test_crash_is_taken_back_at_the_next_start(net: Net) -> None:
    before = net.state()
    with net.driver() as engine:
        engine.do("tun wg0")
        engine.do("apply " + net.plan(*GUARDED, "address=192.168.88.7/32 dev lan0", "link=lan0 mtu 1300"))
        engine.kill()
    assert net.ours() == GUARDS
    assert net.sysctl(net.gw, "net.ipv4.ip_forward") == "1"
    with net.driver() as engine:
        # A plan without anything in common: all of the earlier one goes, after the new one is there.
        engine.do("apply " + net.plan("route=blackhole 192.0.2.0/24"))
        assert net.ours() == ["blackhole 192.0.2.0/24 main"]
        engine.do("stop open")
        assert net.state() == before


def test_crash_and_the_same_plan_again(net: Net) -> None:
    before = net.state()
    for _ in range(2):
        with net.driver() as engine:
            engine.do("tun wg0", "apply " + net.plan(*GUARDED))
            engine.kill()
    with net.driver() as engine:
        engine.do("tun wg0", "apply " + net.plan(*GUARDED))
        assert net.ours() == ["unicast default 51820"] * 2 + GUARDS
        engine.do("close", "stop open")
        # The values before the first start, not those that the crashed one had set.
        assert net.state() == before


@pytest.mark.parametrize(("choice", "left"), [("closed", GUARDS), ("open", [])])
def test_on_crash_decides_when_the_next_start_fails(net: Net, choice: str, left: list[str]) -> None:
    with net.driver() as engine:
        engine.do("tun wg0", "apply " + net.plan(*GUARDED))
        engine.kill()
    with net.driver() as engine:
        answer = engine.ask("apply " + net.plan(f"on_crash={choice}", "route=192.0.2.0/24 dev nowhere"))
        assert "there is no interface nowhere" in answer
        assert net.ours() == left
        engine.do("stop open")
        assert net.ours() == left
    with net.driver() as engine:
        engine.do("clear")
    assert net.ours() == []
    assert net.rules() == []


def test_without_a_state_folder_routes_and_rules_are_found(net: Net) -> None:
    with net.driver(None) as engine:
        engine.do("tun wg0", "apply " + net.plan(*GUARDED))
        engine.kill()
    with net.driver(None) as engine:
        engine.do("apply " + net.plan("route=blackhole 192.0.2.0/24"))
        assert net.ours() == ["blackhole 192.0.2.0/24 main"]
        assert net.rules() == []


def test_another_fv_in_the_namespace_is_left_alone(net: Net) -> None:
    with net.driver("one") as one, net.driver("two") as two:
        assert (one.greeting, two.greeting) == ("ok alone=1", "ok alone=0")
        one.do("tun wg0", "apply " + net.plan(*GUARDED))
        two.do(
            "tun wg1",
            "apply " + net.plan("link=wg1 up", "route=default dev wg1 table 600", "route=-4 blackhole 192.0.2.0/24"),
        )
        two.kill()
        with net.driver("two") as again:
            assert again.greeting == "ok alone=0"
            again.do("apply " + net.plan("rule=priority 900 iif lan0 table 601"))
            assert net.ours() == ["unicast default 51820"] * 2 + GUARDS
            assert net.rules() == [900, 900, 5200, 5200, 5210, 5210]


def test_a_link_without_ipv6(net: Net) -> None:
    with net.driver() as engine:
        engine.do("tun wg0")
        net.sysctl(net.gw, "net.ipv6.conf.wg0.disable_ipv6", "1")
        engine.do("apply " + net.plan(*(x for x in GUARDED if "fd00" not in x)))
        # Nothing of IPv6 goes through it, and nothing past it.
        assert net.ours() == ["unicast default 51820", *GUARDS]
        assert net.rules() == [5200, 5200, 5210, 5210]


def test_uplink_is_the_default_route(net: Net) -> None:
    with net.driver() as engine:
        engine.do("tun wg0")
        net.ip(net.gw, "link set wg0 up")
        net.ip(net.gw, "route add default dev wg0 metric 0 table 55")
        assert engine.ask("uplink 4") == "up0 ok"
        assert engine.ask("uplink 6") == "up0 ok"
        net.ip(net.gw, "route replace default via 198.51.100.1 metric 100")
        net.ip(net.gw, "route del default via 198.51.100.1 metric 0")
        net.ip(net.gw, "route add default dev wg0 metric 5")
        assert engine.ask("uplink 4") == "up0 ok"
        net.ip(net.gw, "route add default via 192.168.88.2 metric 7")
        assert engine.ask("uplink 4") == "lan0 ok"
        net.ip(net.gw, "route flush table main")
        assert "no default route" in engine.ask("uplink 4")


class Capture:
    def __init__(self, net: Net, namespace: str, device: str) -> None:
        self.process = net.python(namespace, CAPTURE, device)
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"

    def count(self, seconds: float = 0.25) -> tuple[int, int]:
        """Packets (IPv4, IPv6) since the last question and for so long from now."""
        time.sleep(seconds)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        four, six = self.process.stdout.readline().split()
        return int(four), int(six)


def test_kill_switch_holds_through_start_reload_stop_and_kill(net: Net) -> None:
    # Start on a host that does not forward yet: the plan's own sysctl opens the door, after the guard is there.
    plan = net.plan(*GUARDED)
    other = net.plan(*(x.replace("51820", "600").replace("5210", "5300") for x in GUARDED))
    outside = Capture(net, net.world, "up0")
    sender = net.python(net.lan, SENDER)
    assert outside.count() == (0, 0)
    engine = net.driver()
    engine.do("guard " + plan)
    # From here the host forwards whatever the plan's sysctls say: only the guard is in the way.
    net.sysctl(net.gw, "net.ipv4.ip_forward", "1")
    net.sysctl(net.gw, "net.ipv6.conf.all.forwarding", "1")
    net.ip(net.gw, "-6 route replace default via fd34::1")
    assert outside.count() == (0, 0)
    engine.do("tun wg0", "devices " + plan)
    assert outside.count() == (0, 0)
    assert min(Capture(net, net.gw, "wg0").count()) > 20  # it is sending, and the way through the tunnel is open
    for file in (other, plan) * 5:
        engine.do("apply " + file)
    assert outside.count() == (0, 0)
    engine.kill()  # the TUN and its routes are gone at once
    assert outside.count() == (0, 0)
    engine = net.driver()
    engine.do("guard " + other)  # another plan than the one that crashed
    assert outside.count() == (0, 0)
    engine.do("tun wg0", "devices " + other)
    assert outside.count() == (0, 0)
    engine.do("stop closed")
    with engine:
        pass
    assert net.ours() == [x.replace("51820", "600") for x in GUARDS]
    assert outside.count() == (0, 0)
    engine = net.driver()
    engine.do("tun wg0", "apply " + plan)
    assert net.ours() == ["unicast default 51820"] * 2 + GUARDS
    assert outside.count() == (0, 0)
    # The proof that this test can fail: opened, the LAN is seen outside.
    engine.do("stop open")
    with engine:
        pass
    assert min(outside.count()) > 20
    assert sender.poll() is None
