"""How an implementation starts and ends: as wg-quick's userspace program, with descriptors handed over, by signals."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import transfer
from tests.interop.implementations import (
    IMPLEMENTATIONS,
    PORT,
    UNDER_TEST,
    Implementation,
    PeerConfig,
    ProgramEndpoint,
    base64,
    start,
)
from tests.interop.netns import SOCKETS, Host, hosts, wait_for, wire
from tests.interop.oracle import can, need
from tests.peers.wg_noise import Identity
from tests.peers.wg_shell import open_tun

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")

# Those that are started by a name; a plan has its own tests.
NAMED = [impl for impl in UNDER_TEST if "NAME" in impl.arguments]
each_impl = pytest.mark.parametrize("impl", NAMED, ids=lambda impl: impl.name)


@contextlib.contextmanager
def running(impl: Implementation) -> Iterator[ProgramEndpoint]:
    need(impl)
    can(impl, "strictness")
    with hosts(1) as (host,):
        end = start(impl, host, 1420, 2)
        assert isinstance(end, ProgramEndpoint)
        try:
            yield end
        finally:
            end.close()


def delete_socket(end: ProgramEndpoint) -> None:
    end.socket_path.unlink()


def delete_link(end: ProgramEndpoint) -> None:
    end.host.ip(f"link delete dev {end.name}")


def terminate(end: ProgramEndpoint) -> None:
    end.program.process.send_signal(signal.SIGTERM)


def interrupt(end: ProgramEndpoint) -> None:
    end.program.process.send_signal(signal.SIGINT)


@each_impl
@pytest.mark.parametrize("stop", [delete_socket, delete_link, terminate, interrupt], ids=lambda f: f.__name__)
def test_ends_with_status_0(impl: Implementation, stop: Callable[[ProgramEndpoint], None]) -> None:
    """And leaves neither socket nor link."""
    with running(impl) as end:
        stop(end)
        try:
            assert end.program.process.wait(3) == 0
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after 3 s\n{end.report()}") from None
        assert not end.socket_path.exists()
        wait_for("link is gone", lambda: not end.host.has_link(end.name))


@each_impl
def test_stale_socket_is_replaced_and_a_live_one_respected(impl: Implementation) -> None:
    with running(impl) as end:
        end.program.process.kill()
        end.program.process.wait()
        assert end.socket_path.exists()
        again = ProgramEndpoint(impl, end.host, 1420, "10.7.0.3", "fd07::3", name=end.name)
        try:
            assert "errno=0" in again.uapi("get=1\n\n")
            second = end.host.start(str(impl.path()), "-f", end.name, env=dict(impl.environment))
            assert second.process.wait(5) != 0, "two processes for one name"
            assert "errno=0" in again.uapi("get=1\n\n"), "the second one took the first one's socket"
        finally:
            again.close()


@contextlib.contextmanager
def in_background(impl: Implementation, host: Host, name: str) -> Iterator[int]:
    """The pid of a program that went to the background by itself."""
    environment = {k: v for k, v in dict(impl.environment).items() if k != "WG_PROCESS_FOREGROUND"}
    first = host.start(str(impl.path()), name, env=environment)
    assert first.process.wait(10) == 0, first.tail()
    pids = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True, check=True).stdout.split()
    assert len(pids) == 1, f"{len(pids)} processes"
    try:
        yield int(pids[0])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pids[0]), signal.SIGTERM)


@each_impl
def test_background(impl: Implementation) -> None:
    """Without -f the command returns when TUN and socket are ready; at once afterwards both must be there."""
    need(impl)
    can(impl, "strictness")
    name = f"fvb{os.getpid()}"
    with hosts(1) as (host,), in_background(impl, host, name) as pid:
        assert (SOCKETS / f"{name}.sock").exists()
        assert host.has_link(name)
        host.run("wg", "set", name, "listen-port", "51900")
        assert "51900" in host.run("wg", "show", name, "listen-port").stdout
        if "session of its own in the background" not in impl.lacks:
            assert os.getsid(pid) != os.getsid(0), "still in the session of who started it"
        os.kill(pid, signal.SIGTERM)
        wait_for("socket is gone", lambda: not (SOCKETS / f"{name}.sock").exists())
        wait_for("link is gone", lambda: not host.has_link(name))


@each_impl
def test_descriptors_handed_over(impl: Implementation) -> None:
    """WG_TUN_FD, WG_UAPI_FD and WG_PROCESS_FOREGROUND: a parent opens TUN and listening socket."""
    need(impl)
    can(impl, "strictness")
    name = f"fvd{os.getpid()}"
    path = SOCKETS / f"{name}.sock"
    with wire() as (host, _):
        SOCKETS.mkdir(mode=0o755, exist_ok=True)
        path.unlink(missing_ok=True)
        with host.inside():
            tun = open_tun(name)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            listener.listen(8)
            environment = {
                **dict(impl.environment),
                "WG_TUN_FD": str(tun),
                "WG_UAPI_FD": str(listener.fileno()),
                "WG_PROCESS_FOREGROUND": "1",
            }
            program = host.start(str(impl.path()), name, env=environment, pass_fds=[tun, listener.fileno()])
            os.close(tun)
            listener.close()
            key = Identity.fresh()
            wait_for("an answer", lambda: host.run("wg", "show", name, check=False).returncode == 0)
            host.run("wg", "set", name, "private-key", "/dev/stdin", text=base64(key.private))
            assert base64(key.public) in host.run("wg", "show", name, "public-key").stdout
            assert program.alive(), program.tail()
            assert program.stop() == 0, program.tail()
            assert not host.has_link(name)
        finally:
            path.unlink(missing_ok=True)


@each_impl
@pytest.mark.parametrize("level", ["silent", "error", "verbose"])
def test_log_level(impl: Implementation, level: str) -> None:
    need(impl)
    can(impl, "strictness")
    with hosts(1) as (host,):
        end = ProgramEndpoint(impl, host, 1420, "10.7.0.2", "fd07::2", environment={"LOG_LEVEL": level})
        key, other = Identity.fresh(), Identity.fresh()
        with contextlib.closing(end):
            end.configure(key, 0, [])
            end.wg("set", end.name, "peer", base64(other.public), "allowed-ips", "10.7.0.9/32")
        text = end.program.log.read_text()
        for secret in (base64(key.private), key.private.hex()):
            assert secret not in text
        if level == "silent":
            assert text == ""
        if level == "verbose":
            assert text, "nothing was said"


WG_QUICK = """[Interface]
PrivateKey = {key}
Address = 10.7.0.1/32, fd07::1/128
MTU = 1380
ListenPort = 51820

[Peer]
PublicKey = {peer}
AllowedIPs = {allowed}
Endpoint = 192.0.2.2:51820
PersistentKeepalive = 25
"""


@each_impl
@pytest.mark.needs("wg-quick", "nft")
@pytest.mark.parametrize("allowed", ["10.7.0.2/32, fd07::2/128", "0.0.0.0/0"], ids=["prefixes", "default-route"])
def test_wg_quick(impl: Implementation, allowed: str) -> None:
    """up, traffic, down, with the implementation as WG_QUICK_USERSPACE_IMPLEMENTATION."""
    need(impl, IMPLEMENTATIONS["wireguard-go"])
    can(impl, "strictness")
    if Path("/sys/module/wireguard").exists():
        pytest.skip("needs a kernel without the wireguard module, which wg-quick would use")
    name = f"fvq{os.getpid()}"
    with wire() as (left, right), contextlib.ExitStack() as stack:
        ours, theirs = Identity.fresh(), Identity.fresh()
        partner = start(IMPLEMENTATIONS["wireguard-go"], right, 1380, 2)
        stack.callback(partner.close)
        partner.configure(theirs, PORT, [PeerConfig(ours.public, ["10.7.0.1/32", "fd07::1/128"])])
        path = left.folder / f"{name}.conf"
        path.write_text(WG_QUICK.format(key=base64(ours.private), peer=base64(theirs.public), allowed=allowed))
        path.chmod(0o600)
        environment = {"WG_QUICK_USERSPACE_IMPLEMENTATION": str(impl.path())}
        quick = ["ip", "netns", "exec", left.name, "wg-quick"]

        def run(verb: str) -> None:
            done = subprocess.run(
                [*quick, verb, str(path)],
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                check=False,
                timeout=20,
            )
            assert done.returncode == 0, done.stderr

        run("up")
        try:
            assert (SOCKETS / f"{name}.sock").exists(), "wg-quick did not use the userspace implementation"
            transfer.ping(left, "10.7.0.2")
            transfer.tcp(left, right, "10.7.0.2", 1 << 20)
            if allowed != "0.0.0.0/0":
                transfer.ping(right, "fd07::1")
            assert "mtu 1380" in left.run("ip", "link", "show", "dev", name).stdout
        finally:
            run("down")
        assert not left.has_link(name)
        wait_for("socket is gone", lambda: not (SOCKETS / f"{name}.sock").exists())
        pids = ["ip", "netns", "pids", left.name]
        wait_for("process is gone", lambda: not subprocess.run(pids, capture_output=True, check=True).stdout)
