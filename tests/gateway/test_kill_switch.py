"""The kill switch by the engine itself, on a gateway without netfilter: a capture of the uplink through start, swap,
stop, kill -9 and restart. Only WireGuard's own datagrams may be there; the LAN sends all the while.

The exit has a route to the LAN and forwards, so what leaves beside the tunnel would arrive and be answered.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.gateway.network import CLIENT4, CLIENT6, SERVER4, SERVER6, Capture, Engine, Lan, ip_json, lan, source_of
from tests.interop.netns import wait_for

pytestmark = pytest.mark.needs("root", "netns", "tun")


@dataclass
class Watch:
    """A LAN that talks all the time, and what of it the uplink shows."""

    net: Lan
    capture: Capture
    stop: threading.Event = field(default_factory=threading.Event)
    sent: int = 0

    def talk(self) -> None:
        with self.net.client.udp(CLIENT4) as four, self.net.client.udp(CLIENT6) as six:
            while not self.stop.is_set():
                for sock, address in ((four, SERVER4), (six, SERVER6)):
                    with contextlib.suppress(OSError):  # unreachable is the answer that a closed switch gives
                        sock.sendto(b"from the LAN", (address, 9))
                        self.sent += 1
                time.sleep(0.002)

    def leaked(self, seconds: float = 0.3) -> list[str]:
        """Sources of what the LAN sent and the uplink saw in clear since the last question."""
        before = self.sent
        time.sleep(seconds)
        assert self.sent > before + 10, "the LAN is not talking"
        return [
            source_of(p)
            for p in self.capture.packets()
            if source_of(p) in (CLIENT4, CLIENT6) or b"from the LAN" in p  # whatever its source has become
        ]


@contextlib.contextmanager
def watch(net: Lan) -> Iterator[Watch]:
    with Capture(net.gate, "wire") as capture:
        one = Watch(net, capture)
        thread = threading.Thread(target=one.talk, daemon=True)
        thread.start()
        try:
            yield one
        finally:
            one.stop.set()
            thread.join()


@pytest.fixture
def net() -> Iterator[Lan]:
    with lan() as made:
        made.start_exit()
        yield made


def forward(net: Lan) -> None:
    """The host forwards whatever the engine does: only the kill switch is in the way."""
    net.gate.sysctl("net/ipv4/ip_forward", "1")
    net.gate.sysctl("net/ipv6/conf/all/forwarding", "1")


CLOSED = '[gateway.kill_switch]\non_stop = "closed"\non_crash = "closed"'
OPEN = '[gateway.kill_switch]\non_stop = "open"\non_crash = "closed"'


def restart(net: Lan, gateway: str, workers: int = 1) -> Engine:
    engine = net.start_gate(gateway=gateway, engine=f"workers = {workers}")
    wait_for("the tunnel", lambda: net.echo(SERVER4) and net.echo(SERVER6), 10)
    return engine


@pytest.mark.parametrize("workers", [1, 2])
def test_closed_through_start_swap_stop_and_kill(net: Lan, workers: int) -> None:
    with watch(net) as seen:
        # Nothing forwards yet: the plan's own sysctl opens the door when the switch is there.
        assert seen.leaked() == []
        engine = net.start_gate(gateway=CLOSED, engine=f"workers = {workers}")
        assert seen.leaked() == []
        forward(net)
        wait_for("the tunnel", lambda: net.echo(SERVER4) and net.echo(SERVER6), 10)
        plan = engine.plan()
        other = plan.replace("51820 metric", "600 metric").replace("table 51820", "table 600").replace("5210", "5310")
        assert other != plan
        for text in (other, plan) * 4:
            engine.swap(text)
        assert net.echo(SERVER4)
        assert seen.leaked() == []
        assert engine.stop() == 0
        assert seen.leaked() == []
        engine = restart(net, CLOSED, workers)
        assert seen.leaked() == []
        engine.kill()
        assert seen.leaked() == []
        engine = restart(net, CLOSED, workers)
        assert seen.leaked() == []
        engine.swap(other)
        engine.kill()
        assert seen.leaked() == []
        # The proof that this test can fail: the owner chooses open, and the LAN is seen outside.
        engine = restart(net, OPEN)
        assert seen.leaked() == []
        assert engine.stop() == 0
        forward(net)  # the engine has put the host's own values back
        assert {CLIENT4, CLIENT6} <= set(seen.leaked())


def test_open_after_stop_leaves_nothing(net: Lan) -> None:
    """The host's own values and routes are as they were."""
    before = ip_json(net.gate)
    engine = restart(net, OPEN)
    assert ip_json(net.gate) != before
    assert engine.stop() == 0
    assert ip_json(net.gate) == before
    with net.gate.inside():
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "0"
        assert Path("/proc/sys/net/ipv6/conf/all/forwarding").read_text().strip() == "0"


def test_a_failed_start_opens_nothing(net: Lan) -> None:
    """The plan is refused in the middle: the switch that a crash left stays, and there is no moment without it."""
    engine = restart(net, CLOSED)
    with watch(net) as seen:
        forward(net)
        engine.kill()
        broken = net.compile(net.gate, net.gate_config(gateway=CLOSED)).replace(
            f"link={net.name('gw')}", "link=nosuchlink0"
        )
        failed = net.engine(net.gate, "gate", broken).start(wait=False)
        assert failed.program.process.wait(10) != 0
        assert "nosuchlink0" in failed.log()
        assert seen.leaked() == []
