"""A new plan while a transfer runs: what changes, what is untouched, and what a plan that cannot be taken leaves alone.

A swap goes over the control socket, as `fv reload` does it; SIGHUP reads the plan's file again.
"""

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fv import uapi
from fv.errors import FvError
from tests.gateway.network import (
    CLIENT4,
    SERVER4,
    SERVER6,
    Engine,
    Lan,
    ip_json,
    running,
    sanitized,
)
from tests.gateway.stream import Stream
from tests.interop.implementations import base64
from tests.interop.netns import wait_for
from tests.peers.wg_noise import Identity

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")


@pytest.fixture(scope="module", params=[1, 2], ids=["one worker", "two workers"])
def net(request: pytest.FixtureRequest) -> Iterator[Lan]:
    with running(engine=f"workers = {request.param}") as made:
        yield made


@pytest.fixture
def gate(net: Lan) -> Iterator[Engine]:
    """The gateway's engine; a test leaves the plan behind as it found it."""
    engine = net.engines[1]
    plan = engine.plan()
    yield engine
    engine.swap(plan)
    net.ready()


def wg_show(net: Lan) -> str:
    """Peers, endpoints, allowed IPs of the gateway's devices; counters and handshake times left out."""
    lines = [line.split("\t") for line in net.gate.run("wg", "show", "all", "dump").stdout.splitlines()]
    return "\n".join(
        "\t".join(word for i, word in enumerate(line) if len(line) < 7 or i not in (5, 6, 7))
        for line in lines
        if line[0].endswith(net.name("gw"))  # the folder of sockets is the whole machine's
    )


def with_peer(plan: str) -> str:
    """The plan with another peer at the end of the device's section."""
    other = Identity.fresh().public.hex()
    return plan.replace("\n[nat ", f"public_key={other}\nallowed_ip=10.9.0.0/24\n\n[nat ", 1)


def with_device(net: Lan, plan: str) -> str:
    extra = f"\n[wireguard x{net.name('gw')}]\nmtu=1400\nprivate_key={Identity.fresh().private.hex()}\n\n"
    plan = plan.replace("\n[nat ", extra + "[nat ", 1)
    return plan + f"link=x{net.name('gw')} mtu 1400 up\naddress=10.8.0.1/24 dev x{net.name('gw')}\n"


CHANGES: dict[str, Callable[[Lan, str], str]] = {
    "a peer": lambda net, plan: with_peer(plan),
    "a device": with_device,
    "a prefix of the LAN": lambda net, plan: plan.replace("lan4=", "lan4=192.168.99.0/24\nlan4=", 1),
    "entries": lambda net, plan: plan.replace("entries=65536", "entries=65536", 1).replace("mss=auto", "mss=1200", 1),
    "a route": lambda net, plan: plan + f"route=10.99.0.0/16 dev {net.name('gw')}\n",
    "listen_port": lambda net, plan: plan.replace("listen_port=0", "listen_port=52222", 1),
    "mtu": lambda net, plan: plan.replace("mtu=1420", "mtu=1380", 1).replace(" mtu 1420 up", " mtu 1380 up", 1),
    "log_level": lambda net, plan: plan.replace("log_level=debug", "log_level=info", 1),
    "keepalive": lambda net, plan: plan.replace("endpoint=192.0.2.2:51820", "endpoint=192.0.2.2:51820\n"
                                                "persistent_keepalive_interval=21", 1),
    "another family": lambda net, plan: plan.replace("endpoint=192.0.2.2:51820", "endpoint=[2001:db8::2]:51820", 1),
}  # fmt: skip


@pytest.mark.parametrize("what", [what for what in CHANGES if what != "entries"])
def test_change_and_change_back_during_a_transfer(net: Lan, gate: Engine, what: str) -> None:
    plan = gate.plan()
    changed = CHANGES[what](net, plan)
    assert changed != plan
    state, shown = ip_json(net.gate), wg_show(net)
    with Stream(net) as stream:
        for text in (changed, plan, changed, plan):
            gate.swap(text)
            assert gate.plan() == text
            stream.goes_on()
    assert ip_json(net.gate) == state
    if what not in ("listen_port", "another family"):  # the port and the address that it has now are others
        assert wg_show(net) == shown


def test_what_changed_is_in_force(net: Lan, gate: Engine) -> None:
    plan = gate.plan()
    name = net.name("gw")
    gate.swap(CHANGES["a peer"](net, plan))
    assert "10.9.0.0/24" in net.gate.run("wg", "show", name, "allowed-ips").stdout
    gate.swap(CHANGES["listen_port"](net, plan))
    assert net.gate.run("wg", "show", name, "listen-port").stdout.strip() == "52222"
    assert "10.9.0.0/24" not in net.gate.run("wg", "show", name, "allowed-ips").stdout
    gate.swap(CHANGES["mtu"](net, plan))
    assert "mtu 1380" in net.gate.run("ip", "link", "show", name).stdout
    assert gate.number("mtu") == 1380
    gate.swap(CHANGES["a device"](net, plan))
    assert net.gate.has_link(f"x{name}")
    assert Path(f"/var/run/wireguard/x{name}.sock").exists()
    gate.swap(plan)
    assert not net.gate.has_link(f"x{name}")
    assert not Path(f"/var/run/wireguard/x{name}.sock").exists()
    # mss=auto follows the MTU, a number stands
    with_number = plan.replace("mss=auto", "mss=900", 1)
    gate.swap(with_number)
    before = gate.number("nat.mss_clamped")
    with Stream(net) as stream:
        mss = stream.inside.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        assert mss <= 900
    assert gate.number("nat.mss_clamped") > before


def test_nat_prefix_taken_away(net: Lan, gate: Engine) -> None:
    """Without its prefix the LAN is not translated any more: the exit's peer may not send from there."""
    plan = gate.plan()
    gate.swap(plan.replace("lan4=192.168.88.0/24", "lan4=192.168.77.0/24"))
    assert not net.echo(SERVER4)
    assert net.echo(SERVER6)
    gate.swap(plan)
    wait_for("the translation", lambda: net.echo(SERVER4))


def test_peers_of_wg_set(net: Lan, gate: Engine) -> None:
    """A swap makes the device what the plan says, as `wg syncconf` would: sessions of peers that stay are kept."""
    name = net.name("gw")
    before = net.gate.run("wg", "show", name, "latest-handshakes").stdout
    other = Identity.fresh()
    net.gate.run("wg", "set", name, "peer", base64(other.public), "allowed-ips", "10.9.1.0/24")
    gate.swap(CHANGES["a peer"](net, gate.plan()))
    assert "10.9.1.0/24" not in net.gate.run("wg", "show", name, "allowed-ips").stdout
    after = net.gate.run("wg", "show", name, "latest-handshakes").stdout
    assert before.strip() in after, "the peer that stayed had to shake hands again"


def broken_plans(net: Lan, plan: str) -> dict[str, tuple[str, str]]:
    """What is wrong, the plan, a word of the message."""
    name = net.name("gw")
    key = plan.index("private_key=")
    bad_key = plan[:key] + "private_key=12\n" + plan[plan.index("\n", key) + 1 :]
    port = net.gate.udp("0.0.0.0")
    net.__dict__.setdefault("taken", []).append(port)  # held for as long as the test's network
    taken = port.getsockname()[1]
    return {
        "no plan at all": ("hello\n", "line 1"),
        "empty": ("\n", "plan="),
        "another version": (plan.replace("plan=1", "plan=2", 1), "plan"),
        "unknown need": (plan.replace("needs=", "needs=teleport,", 1), "teleport"),
        "bad key line": (bad_key, "line"),
        "no key=value": (plan.replace("[nat ", "nonsense\n[nat ", 1), "line"),
        "unknown section": (plan + "\n[teleport x]\n", "teleport"),
        "unknown key": (plan.replace("mtu=1420", "mtu=1420\nspeed=9", 1), "speed"),
        "key twice": (plan.replace("mtu=1420", "mtu=1420\nmtu=1420", 1), "mtu"),
        "section twice": (plan + f"\n[nat {name}]\n", "line"),
        "bad endpoint": (plan.replace("endpoint=192.0.2.2:51820", "endpoint=192.0.2.2:99999"), "line"),
        "bad prefix": (plan.replace("allowed_ip=0.0.0.0/0", "allowed_ip=0.0.0.0/33"), "line"),
        "bad route": (plan + "route=default through the wall\n", "line"),
        "nat without a device": (plan.replace(f"[nat {name}]", "[nat nobody0]"), "nobody0"),
        "nat without a source": (plan.replace("source4=10.7.0.2", "source4=", 1), "source4"),
        "detour to nobody": (plan.replace("detour=", "detour=nobody0", 1), "nobody0"),
        "detour to itself": (plan.replace("detour=", f"detour={name}", 1), "detour"),
        "port in use": (plan.replace("listen_port=0", f"listen_port={taken}", 1), "listen_port"),
        "port in use, after other changes": (
            with_device(net, with_peer(plan)).replace("listen_port=0", f"listen_port={taken}", 1),
            "listen_port",
        ),
        "an address that is there": (plan + "address=192.168.88.1/24 dev lan\n", ""),
        "a route to nowhere": (plan + "route=10.50.0.0/16 via 172.31.0.1\n", "10.50.0.0/16"),
        "a device that is not there": (with_device(net, plan) + "link=nosuchlink0 mtu 1300 up\n", "nosuchlink0"),
        "a port, then a device that is not there": (
            plan.replace("listen_port=0", "listen_port=52223", 1).replace("fwmark=51820", "fwmark=77", 1)
            + "link=nosuchlink0 mtu 1300 up\n",
            "nosuchlink0",
        ),
        "a peer goes, then a device that is not there": (
            plan[: plan.index("public_key=")] + plan[plan.index("\n[nat ") :] + "link=nosuchlink0 mtu 1300 up\n",
            "nosuchlink0",
        ),
        "an mtu that cannot be": (plan.replace("mtu=1420", "mtu=100", 1), "mtu"),
        "workers": (plan.replace("workers=", "workers=1", 1), "workers"),
        "memory": (plan.replace("memory=16777216", "memory=33554432", 1), "memory"),
        "no memory for the table": (plan.replace("entries=65536", "entries=99999999", 1), "entries"),
    }


def test_broken_plans_leave_everything_alone(net: Lan, gate: Engine) -> None:
    """Each is refused with a message, and links, addresses, routes, rules, peers and the transfer are as they were."""
    plan = gate.plan()
    state, shown = ip_json(net.gate), wg_show(net)
    wrong: list[str] = []
    with Stream(net) as stream:
        for what, (text, word) in broken_plans(net, plan).items():
            assert text != plan, what
            try:
                gate.swap(text)
            except FvError as error:
                if word not in str(error):
                    wrong.append(f"{what}: said {error}")
            else:
                if word:  # an address that was there before is kept, not taken
                    wrong.append(f"{what}: was taken")
                gate.swap(plan)
            if gate.plan() != plan:
                wrong.append(f"{what}: another plan is in force")
            if ip_json(net.gate) != state:
                wrong.append(f"{what}: the kernel's state changed")
            if wg_show(net) != shown:
                wrong.append(f"{what}: {shown}\nbecame\n{wg_show(net)}")
            stream.goes_on()
    assert not wrong, "\n".join(wrong)


def test_port_in_use_by_wg_set(net: Lan, gate: Engine) -> None:
    """The same over WireGuard's own socket: the old port is opened again."""
    name = net.name("gw")
    before = net.gate.run("wg", "show", name, "listen-port").stdout
    with net.gate.udp("0.0.0.0") as other, Stream(net) as stream:
        done = net.gate.run("wg", "set", name, "listen-port", str(other.getsockname()[1]), check=False)
        assert done.returncode != 0
        assert net.gate.run("wg", "show", name, "listen-port").stdout == before
        stream.goes_on()


def test_swap_without_length_and_cut_off(net: Lan, gate: Engine) -> None:
    plan = gate.plan()
    with uapi.Connection(gate.control) as connection:
        connection.send(b"swap=1\n\n")
        with pytest.raises(FvError, match="length"):
            connection.answer()
    with uapi.Connection(gate.control) as connection:
        connection.send(b"swap=1\nlength=100000\n\n" + plan.encode()[:1000])
    assert gate.plan() == plan
    with uapi.Connection(gate.control) as connection:  # a byte at a time, over several turns
        raw = CHANGES["a peer"](net, plan).encode()
        for part in (f"swap=1\nlength={len(raw)}\n\n".encode(), raw[:10], raw[10:500], raw[500:]):
            connection.send(part)
            time.sleep(0.02)
        assert connection.answer() == []
    assert "10.9.0.0/24" in gate.plan()


def test_sighup_reads_the_file_again(net: Lan, gate: Engine) -> None:
    plan = gate.plan()
    changed = CHANGES["a peer"](net, plan)
    with Stream(net) as stream:
        gate.file.write_text(changed)
        gate.program.process.send_signal(signal.SIGHUP)
        wait_for("the new plan", lambda: gate.plan() == changed)
        stream.goes_on()
        gate.file.write_text("nonsense\n")
        gate.program.process.send_signal(signal.SIGHUP)
        wait_for("the complaint", lambda: "the old plan stays in force" in gate.log())
        assert gate.plan() == changed
        gate.file.unlink()
        gate.program.process.send_signal(signal.SIGHUP)
        wait_for("the complaint", lambda: gate.log().count("the old plan stays in force") == 2)
        stream.goes_on()
    gate.file.write_text(plan)
    gate.program.process.send_signal(signal.SIGHUP)
    wait_for("the old plan", lambda: gate.plan() == plan)


def test_hundred_swaps_leak_nothing(net: Lan, gate: Engine) -> None:
    """Descriptors, memory and leases are after a hundred changes what they were after ten."""
    plan = gate.plan()
    changes = [CHANGES[what](net, plan) for what in ("a peer", "a device", "a route", "mtu", "listen_port")]

    def fds_now() -> int:
        return len(list(Path(f"/proc/{gate.program.process.pid}/fd").iterdir()))

    def some(n: int) -> tuple[int, int]:
        for text in changes * n:
            gate.swap(text)
        gate.swap(plan)
        return fds_now(), int(gate.stats()["resident"])

    fds, resident = some(2)
    _, after_resident = some(20)
    wait_for("descriptors closed", lambda: fds_now() <= fds, 3)  # a connection's end is seen a turn later
    assert sanitized() or after_resident < resident + (1 << 20)
    wait_for("leases given back", lambda: gate.stats()["lease_taken"] == "0", 3)


def test_swap_of_the_client_s_own_way(net: Lan, gate: Engine) -> None:
    """The default route of the tunnel goes and comes: in between the kill switch answers."""
    plan = gate.plan()
    closed = "".join(line + "\n" for line in plan.split("\n")[:-1] if not line.startswith("route=0.0.0.0/0 dev"))
    assert closed != plan
    gate.swap(closed)
    with net.client.udp(CLIENT4) as sock, contextlib.suppress(OSError):
        sock.sendto(b"x", (SERVER4, 9))
    assert not net.echo(SERVER4)
    gate.swap(plan)
    wait_for("the route", lambda: net.echo(SERVER4))
    assert subprocess.run(["ip", "-n", net.gate.name, "rule"], capture_output=True, check=True).stdout
