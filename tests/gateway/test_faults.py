"""Things that break under a gateway while it carries traffic: streams go on, every drop has a name, nothing leaks."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.network import CLIENT4, SERVER4, SERVER6, Engine, Lan, fvd, lan, running
from tests.gateway.stream import Stream
from tests.interop import transfer
from tests.interop.netns import Host, hosts, wait_for

pytestmark = pytest.mark.needs("root", "netns", "tun", "tc")

workers = pytest.mark.parametrize("workers", [1, 2], ids=["one worker", "two workers"])


def at_rest(*engines: Engine) -> None:
    for engine in engines:
        wait_for("leases given back", lambda e=engine: e.stats()["lease_taken"] == "0", 5)  # type: ignore[misc]


@contextlib.contextmanager
def flood(net: Lan, address: str, size: int = 1200, pause: float = 0) -> Iterator[list[int]]:
    """Datagrams as fast as the client can, to nobody in particular; or 32 at a time with a pause."""
    stop, count = threading.Event(), [0]

    def run() -> None:
        with net.client.udp("::" if ":" in address else CLIENT4) as sock:
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    sock.sendto(bytes(size), (address, 7777))
                    count[0] += 1
                if pause and count[0] % 32 == 0:
                    time.sleep(pause)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()


@workers
def test_uplink_that_blocks(workers: int) -> None:
    """A shaped uplink whose queue is shorter than the socket's buffer: the socket is full again and again."""
    with running(engine=f"workers = {workers}") as net:
        # The queue holds more than the socket may have outstanding, so that it is the socket that says no.
        net.gate.run("tc", "qdisc", "add", "dev", "wire", "root", "tbf", "rate", "40mbit", "burst", "64kb",
                     "limit", "64mb")  # fmt: skip
        gate = net.engines[1]
        with Stream(net) as stream:
            with flood(net, SERVER4):
                wait_for("a full socket", lambda: gate.number("blocked") > 0, 15)
            stream.goes_on(30)
        net.gate.run("tc", "qdisc", "del", "dev", "wire", "root")
        wait_for("the way", lambda: net.echo(SERVER4), 15)
        transfer.tcp(net.client, net.server, SERVER4, 1_000_000)
        at_rest(*net.engines)


@workers
def test_uplink_goes_down_and_up(workers: int) -> None:
    with running(engine=f"workers = {workers}") as net, Stream(net) as stream:
        for _ in range(2):
            net.gate.ip("link set wire down")
            time.sleep(0.3)
            net.gate.ip(
                "link set wire up", "route add default via 192.0.2.2", "address replace 2001:db8::1/64 dev wire nodad"
            )
            stream.goes_on(30)
        assert all(engine.program.alive() for engine in net.engines)


@workers
def test_tunnel_s_interface_goes_down_and_up(workers: int) -> None:
    """As the kernel's own WireGuard: down closes the sockets, up opens them on the same port."""
    with running(engine=f"workers = {workers}") as net:
        name = net.name("gw")
        port = net.gate.run("wg", "show", name, "listen-port").stdout
        net.gate.ip(f"link set {name} down")
        assert not net.echo(SERVER4)
        net.gate.ip(f"link set {name} up")
        # Its routes have gone with it: the engine sets the plan's again.
        gate = net.engines[1]
        assert net.gate.run("wg", "show", name, "listen-port").stdout == port
        wait_for("the tunnel", lambda: net.echo(SERVER4), 15)
        transfer.tcp(net.client, net.server, SERVER4, 1_000_000)
        at_rest(gate)


@workers
def test_uplink_s_address_changes(workers: int) -> None:
    with running(engine=f"workers = {workers}") as net, Stream(net) as stream:
        for number in (77, 78):
            net.gate.ip(f"address add 192.0.2.{number}/24 dev wire")
            net.gate.ip(f"address del 192.0.2.{1 if number == 77 else 77}/24 dev wire")
            net.gate.run("ip", "route", "replace", "default", "via", "192.0.2.2")
            stream.goes_on(30)
        endpoint = net.exit.run("wg", "show", net.name("ex"), "endpoints").stdout
        assert "192.0.2.78" in endpoint


def test_no_ipv6_in_the_namespace() -> None:
    """disable_ipv6 everywhere: the plan for both families is taken as far as the kernel goes, IPv4 works."""
    with lan() as net:
        net.gate.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
        net.gate.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        net.start_exit()
        config = net.gate_config().replace(f', "{"fd07::2"}/128"', "").replace(', "::/0"', "")
        net.engine(net.gate, "gate", net.compile(net.gate, config)).start()
        wait_for("IPv4", lambda: net.echo(SERVER4), 10)
        transfer.tcp(net.client, net.server, SERVER4, 1_000_000)


def test_sockets_folder_is_missing() -> None:
    """/var/run/wireguard is made where it is not; in a mount namespace, since the folder is the machine's."""
    with hosts(1) as (host,):
        script = f"mount -t tmpfs tmpfs /run && exec {fvd()} -f fvm{os.getpid()}"
        program = host.start("unshare", "-m", "sh", "-c", script)
        path = Path("/proc", str(program.process.pid), "root", "run", "wireguard")
        wait_for("the socket", lambda: (path / f"fvm{os.getpid()}.sock").exists(), 10)
        assert path.stat().st_mode & 0o777 == 0o755
        assert program.stop() == 0


def test_state_folder_cannot_be_written() -> None:
    """Nothing can be remembered: said once, and everything else works."""
    with lan() as net:
        net.start_exit()
        config = net.gate_config().replace(f'state = "{net.state("gate")}"', 'state = "/proc/fv"')
        engine = net.engine(net.gate, "gate", net.compile(net.gate, config)).start(wait=False)
        # A folder that can never be is an error at start that names the key.
        assert engine.program.process.wait(10) == 1
        assert "state=/proc/fv" in engine.log()


@pytest.mark.needs("unshare")
def test_state_folder_becomes_read_only() -> None:
    """A flash that has turned read-only: the handshakes' stamps cannot be kept, the tunnel goes on."""
    with lan() as net:
        net.start_exit()
        state = net.state("gate")
        state.mkdir()
        engine = net.engine(net.gate, "gate", net.compile(net.gate, net.gate_config()))
        script = (
            f"mount --bind {state} {state} && mount -o remount,bind,ro {state} && exec {fvd()} --plan {engine.file}"
        )
        engine.program = net.gate.start("unshare", "-m", "sh", "-c", script)
        wait_for("an answer or an end", lambda: engine.answers() or not engine.program.alive(), 10)
        if engine.program.alive():
            net.ready()
        else:
            assert str(state) in engine.log()
        shutil.rmtree(state, ignore_errors=True)


@workers
def test_smallest_memory(workers: int) -> None:
    """256 KiB a worker for all leases: eight streams and a flood. What does not fit is dropped by name, streams lose
    nothing."""
    memory = 262144 * workers
    with running(engine=f"workers = {workers}\nmemory = {memory}") as net:
        failures: list[BaseException] = []

        def one(way: tuple[Host, Host, str]) -> None:
            try:
                transfer.tcp(*way, 1_000_000, seconds=60)
            except (AssertionError, OSError) as error:
                failures.append(error)

        ways = [(net.client, net.server, SERVER4), (net.client, net.server, SERVER6)] * 4
        with flood(net, SERVER4):
            threads = [threading.Thread(target=one, args=(way,)) for way in ways]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not failures, failures
        for engine in net.engines:
            stats = engine.stats()
            assert int(stats["lease_limit"]) == memory
            assert int(stats["resident_peak"]) < 64 << 20
        wait_for("the way", lambda: net.echo(SERVER4), 15)
        at_rest(*net.engines)


def test_exit_dies_and_comes_back() -> None:
    """The far end is killed and starts anew with the same key: the stream goes on when the handshake is made again."""
    with running() as net, Stream(net) as stream:
        exit_ = net.engines[0]
        exit_.kill()
        time.sleep(0.5)
        net.engine(net.exit, "exit", exit_.file.read_text()).start()
        stream.goes_on(40)


def test_stop_under_load() -> None:
    """SIGTERM while both workers have their hands full: a clean end, soon."""
    for _ in range(3):
        with running(engine="workers = 2") as net, flood(net, SERVER4, size=60):
            time.sleep(0.3)
            for engine in net.engines:
                assert engine.stop(5) == 0
