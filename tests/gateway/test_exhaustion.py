"""What goes wrong around a gateway that runs for a year: no descriptors, no memory, peers that are gone, devices that
are taken away under load. Each is a fault that was once reproduced."""

import contextlib
import os
import resource
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.network import (
    CLIENT4,
    EXIT4,
    GATE4,
    SERVER4,
    Lan,
    _link,
    fragments,
    fvd,
    lan,
    running,
    send_raw,
    udp,
)
from tests.interop.netns import wait_for
from tests.peers.wg_noise import Identity

pytestmark = pytest.mark.needs("root", "netns", "tun")


def cpu_share(pid: int, seconds: float) -> float:
    """User and system time of the process in the next seconds, as a share of one CPU."""

    def ticks() -> int:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(words[11]) + int(words[12])

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds


def test_no_descriptor_left() -> None:
    """Who connects then is turned away; the engine neither spins nor stops, and answers when there are some again."""
    with running() as net:
        gate = net.engines[1]
        pid = gate.program.process.pid
        used = {int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        first_free = next(fd for fd in range(len(used) + 1) if fd not in used)
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, hard))
        with contextlib.ExitStack() as clients:
            for _ in range(3):
                one = clients.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                one.settimeout(5)
                one.connect(gate.control)
                with contextlib.suppress(OSError):
                    one.sendall(b"show=stats\n\n")
            assert cpu_share(pid, 1.0) < 0.15
        assert net.echo(SERVER4), "packets go on"
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        wait_for("an answer", gate.answers, 5)


def test_a_stopped_engine_is_told() -> None:
    """`fvd --health` and `fvd show` end, with a status, where the engine stands still."""
    with lan() as net:
        one = net.start_exit()
        os.kill(one.program.process.pid, 19)
        try:
            for words in (["--health"], ["show"]):
                asked = subprocess.run(
                    [fvd(), *words, "--control", one.control], timeout=15, capture_output=True, check=False
                )
                assert asked.returncode == 1
        finally:
            os.kill(one.program.process.pid, 18)


def dead_peers(count: int) -> str:
    """Peers of the gate's device that nobody will ever answer for."""
    text = ""
    for i in range(count):
        text += (
            f"public_key={Identity.fresh().public.hex()}\nendpoint=192.0.2.{100 + i}:9\nallowed_ip=172.16.{i}.0/24\n"
        )
    return text


def test_peers_that_do_not_answer_leave_memory_for_those_that_do() -> None:
    """Packets that wait for keys get a share of the budget, not all of it: else no handshake could be received any
    more, and the engine would turn in circles over packets that it has no room for."""
    with lan() as net:
        net.start_exit()

        def change(plan: str) -> str:
            lines = plan.split("\n")
            at = max(i for i, line in enumerate(lines) if line.startswith("allowed_ip="))
            lines[at + 1 : at + 1] = dead_peers(8).split("\n")[:-1]
            at = lines.index("[engine]")
            lines = [line for line in lines if not line.startswith("memory=")]
            lines.insert(at + 1, "memory=1048576")
            return "\n".join(lines)

        gate = net.start_gate(change=change)
        with net.client.udp(CLIENT4) as sock:
            for i in range(8):
                for _ in range(128):
                    sock.sendto(b"x" * 1000, (f"172.16.{i}.1", 9))
            wait_for("packets that wait", lambda: int(gate.stats()["lease_taken"]) > 262144, 5)
        assert net.echo(SERVER4) or net.echo(SERVER4), gate.drops()
        assert cpu_share(gate.program.process.pid, 1.0) < 0.15
        assert int(gate.stats()["lease_taken"]) <= 1048576 // 2 + 4096
        assert gate.drops()["out_no_memory"] > 0


def test_fragments_without_a_first_one_do_not_stay() -> None:
    """They are held for 5 s. A table that nobody looks at again would be full of them for ever."""
    with running() as net:
        gate = net.engines[1]
        datagram = udp(CLIENT4, SERVER4, 4000, 9, b"y" * 1600)
        for ident in range(1, 41):
            send_raw(net.client, fragments(CLIENT4, SERVER4, 17, datagram, 800, ident)[1:2])
        wait_for("a full store", lambda: gate.drops().get("nat_fragment_full", 0) > 0, 5)
        wait_for("the end of what was held", lambda: gate.drops().get("nat_fragment_timeout", 0) >= 32, 12)
        with net.server.udp(SERVER4) as outside:
            outside.settimeout(3)
            datagram = udp(CLIENT4, SERVER4, 4000, outside.getsockname()[1], b"z" * 1600)
            send_raw(net.client, list(reversed(fragments(CLIENT4, SERVER4, 17, datagram, 800, 77))))
            assert outside.recv(2000) == b"z" * 1600


@pytest.mark.parametrize("off", ["", "udp_gro", "all"])
def test_packets_longer_than_our_own_mtu(off: str) -> None:
    """The other side's MTU is its own affair: what it sends is taken, whether or not the kernel joins datagrams."""
    with lan() as net:
        net.start_exit(mtu="8920")
        gate = net.start_gate(mtu="1280", engine=f'feature_off = ["{off}"]' if off else "")
        net.ready()
        with net.exit.udp(EXIT4) as there, net.gate.udp(GATE4) as here:
            here.settimeout(2)
            got = False
            for _ in range(8):  # the first may be lost, where it tells how long they are
                there.sendto(b"m" * 8000, here.getsockname()[:2])
                with contextlib.suppress(TimeoutError):
                    got = here.recv(9000) == b"m" * 8000
                if got:
                    break
            assert got, gate.drops()


@contextlib.contextmanager
def flood(net: Lan) -> Iterator[None]:
    """Datagrams from the client through the tunnel, as many as it can."""
    stop = threading.Event()

    def send() -> None:
        with net.client.udp(CLIENT4) as sock:
            while not stop.is_set():
                for _ in range(50):
                    with contextlib.suppress(OSError):
                        sock.sendto(b"f" * 1200, (SERVER4, 9))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_device_taken_away_under_load(workers: int) -> None:
    """What other workers have sent to the owner names the device that goes. (Sanitizers tell.)"""
    with lan() as net:
        one = net.start_exit(engine=f"workers = {workers}")
        gate = net.start_gate()
        plan, whole = one.plan(), gate.plan()
        without = plan[: plan.index("[wireguard ")].rstrip() + "\n"
        assert "[engine]" in without
        peerless = whole[: whole.index("public_key=")] + whole[whole.index("\n[", whole.index("public_key=")) :]
        with flood(net):
            for _ in range(6):
                wait_for("data", lambda: one.number("udp_received_packets") > 500, 15)
                one.swap(without)
                assert one.program.alive()
                one.swap(plan)
                gate.swap(peerless)  # a new handshake at once
                gate.swap(whole)
        assert one.program.alive()
        one.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_one_port_for_two_devices(workers: int) -> None:
    """An error, with several workers too: their shared port must not be joined by somebody else's."""
    with lan() as net:
        plan = net.compile(net.exit, net.exit_config(engine=f"workers = {workers}"))
        begin = plan.index("[wireguard ")
        end = plan.find("\n[", begin) + 1 or len(plan)
        second = plan[begin:end].replace(net.name("ex"), net.name("gw"), 1).replace("tun=true", "tun=false")
        second = second.replace(net.keys["exit"].private.hex(), Identity.fresh().private.hex())
        one = net.engine(net.exit, "exit", plan[:end] + second + plan[end:]).start(wait=False)
        wait_for("its end", lambda: not one.program.alive(), 10)
        assert one.program.process.returncode == 1
        assert "Address already in use" in one.log()


def test_what_one_tunnel_carries_has_ports_of_its_own() -> None:
    """Several begin in one turn of the loop: by the clock alone they would all have the same port."""
    with lan() as net:

        def change(plan: str) -> str:
            for i in range(3):
                plan += f"[wireguard in{net.serial}x{i}]\nmtu=1300\ndetour={net.name('gw')}\ntun=false\n"
                plan += f"private_key={Identity.fresh().private.hex()}\n"
            return plan.replace("needs=wireguard", "needs=wireguard,multihop", 1)

        gate = net.start_gate(change=change)
        ports = [v for k, v in gate.stats().items() if k.startswith(f"device.in{net.serial}x") and k.endswith(".port")]
        assert "0" not in ports
        assert len(ports) == len(set(ports)) == 3, ports


def second_way(net: Lan) -> None:
    """Another wire between gate and exit; the exit's address is reached by both."""
    _link(net.gate, net.exit, "wire2", "192.0.3", "2001:db9", ("1", "2"))
    net.gate.ip("route add 192.0.2.2/32 dev wire src 192.0.2.1 metric 10")
    net.exit.ip("address add 192.0.2.2/32 dev lo")


def test_route_moves_to_another_interface() -> None:
    """The old way stays up and swallows everything: only the routing table knows. Our side's address is forgotten at
    once, not when 15 s of silence have made a timer suspect it."""
    with lan() as net:
        second_way(net)
        net.start_exit()
        net.start_gate()
        net.ready()
        net.gate.ip("neigh replace 192.0.2.2 lladdr 02:00:00:00:00:99 dev wire nud permanent")
        assert not net.echo(SERVER4)
        net.gate.ip("route add 192.0.2.2/32 via 192.0.3.2 dev wire2 src 192.0.3.1 metric 5")
        wait_for("an answer by the other way", lambda: net.echo(SERVER4), 4)


def test_answers_go_by_the_routing_table() -> None:
    """Packets come in by one interface, and the way back is another one: answers leave from the address that was
    addressed, but not by the interface that they came by, where nobody answers for the peer's address."""
    with lan() as net:
        second_way(net)
        net.gate.sysctl("net/ipv4/conf/wire2/arp_ignore", "1")
        net.gate.sysctl("net/ipv4/conf/wire2/arp_announce", "2")
        net.gate.ip("route add 192.0.2.2/32 via 192.0.3.2 dev wire2 src 192.0.2.1 metric 5")
        net.start_exit()
        net.start_gate()
        net.ready()
