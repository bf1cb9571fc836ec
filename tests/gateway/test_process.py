"""The engine as a process: PID 1, descriptors, signals, exit codes, what it says and what it must not say."""

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from fv import uapi
from tests.gateway.network import Engine, findings, fvd, ip_json
from tests.interop.netns import Host, Program, hosts, wait_for
from tests.peers.wg_noise import Identity

pytestmark = pytest.mark.needs("root", "netns", "tun")

PRIVATE, PEER, PSK = Identity.fresh().private, Identity.fresh().public, os.urandom(32)


def name() -> str:
    return f"fvp{os.getpid()}"


def plan(host: Host, *, engine: str = "", more: str = "") -> str:
    return (
        f"plan=1\nneeds=wireguard,network\n\n[engine]\ncontrol={host.folder}/{host.name}.sock\n"
        f"state={host.folder}/{host.name}.state\n{engine}\n"
        f"[wireguard {name()}]\nmtu=1420\nprivate_key={PRIVATE.hex()}\nlisten_port=0\n"
        f"public_key={PEER.hex()}\npreshared_key={PSK.hex()}\nendpoint=192.0.2.9:51820\nallowed_ip=10.0.0.0/8\n\n"
        f"[network]\nroute=unreachable default table 600 metric 4096\nlink={name()} mtu 1420 up\n"
        f"address=10.7.0.2/24 dev {name()}\nrule=priority 700 fwmark 0x7 table 600\n{more}"
    )


def prepared(host: Host, text: str) -> Engine:
    file = host.folder / f"{host.name}.plan"
    file.write_text(text)
    return Engine(host, file, f"{host.folder}/{host.name}.sock")


@pytest.fixture
def host() -> Iterator[Host]:
    with hosts(1) as (one,):
        yield one
        for program in one.programs:
            program.stop()
            assert not findings(program.log.read_text(errors="replace"))


@pytest.fixture
def engine(host: Host) -> Engine:
    return prepared(host, plan(host)).start()


def run(host: Host, *argv: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return host.run(fvd(), *argv, check=False, env=env)


# Becomes process 1 of its own pid namespace with signals ignored and a child already dead, then the engine.
FIRST = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
if os.fork() == 0:                 # a zombie of the engine's own before it begins
    if os.fork() == 0:             # an orphan that dies while the engine runs
        time.sleep(1.5)
    os._exit(0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def children(pid: int) -> list[str]:
    """States of the children of a process."""
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                states.append(fields[0])
    return states


@pytest.mark.needs("unshare")
def test_process_1(host: Host) -> None:
    engine = prepared(host, plan(host))
    program = host.start(
        "unshare", "--fork", "--pid", "--mount-proc", "--kill-child",
        sys.executable, "-c", FIRST, fvd(), "--plan", str(engine.file),
    )  # fmt: skip
    wait_for("the control socket", engine.answers, 15)
    (pid,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.read_text().rpartition(")")[2].split()[1] == str(program.process.pid)
    )
    time.sleep(1.6)
    wait_for("zombies reaped", lambda: children(pid) == [], 3)
    os.kill(pid, signal.SIGHUP)
    time.sleep(0.1)
    assert engine.answers(), "SIGHUP ended it"
    os.kill(pid, signal.SIGTERM)
    assert program.process.wait(10) == 0, program.tail()


def test_descriptors_are_not_inherited(host: Host) -> None:
    engine = prepared(host, plan(host))
    read, write = os.pipe()
    file = os.open("/etc/hostname", os.O_RDONLY)
    try:
        engine.program = host.start(fvd(), "--plan", str(engine.file), pass_fds=[read, write, file])
        wait_for("the control socket", engine.answers, 15)
        pid = engine.program.process.pid
        links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]
        assert "/etc/hostname" not in links
        assert not [link for link in links if link.startswith("pipe:")]
    finally:
        for fd in (read, write, file):
            os.close(fd)


def test_closed_standard_descriptors(host: Host) -> None:
    """0, 1 and 2 are there before anything else is opened: a socket must not become stderr."""
    engine = prepared(host, plan(host))
    program = host.start("sh", "-c", f"exec {fvd()} --plan {engine.file} <&- >&- 2>&-")
    wait_for("the control socket", engine.answers, 15)
    for fd in (0, 1, 2):
        assert str(Path(f"/proc/{program.process.pid}/fd/{fd}").readlink()) == "/dev/null"
    assert program.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_clean(host: Host, number: signal.Signals) -> None:
    before = ip_json(host)
    engine = prepared(host, plan(host)).start()
    assert ip_json(host) != before
    engine.program.process.send_signal(number)
    assert engine.program.process.wait(5) == 0
    assert ip_json(host) == before
    assert not Path(engine.control).exists()
    assert not Path(f"/var/run/wireguard/{name()}.sock").exists()


def test_stop_by_the_control_socket(host: Host, engine: Engine) -> None:
    uapi.stop(engine.control)
    assert engine.program.process.wait(5) == 0


def test_exit_codes_and_errors(host: Host) -> None:
    cases: list[tuple[list[str], int, str]] = [
        ([], 2, "--plan FILE and NAME"),
        (["--nonsense"], 2, "arguments"),
        (["--plan"], 2, "arguments"),
        (["--plan", "x", "y"], 2, "--plan FILE and NAME"),
        (["--plan", "/nonexistent/plan"], 1, "/nonexistent/plan: No such file"),
        (["-f", "a-name-that-is-much-too-long"], 1, "too long"),
        (["a-name-that-is-much-too-long"], 1, "too long"),
        (["show", "nonsense"], 2, "stats, log or plan"),
        (["show", "--control", "/nonexistent/sock"], 1, "/nonexistent/sock"),
        (["--health", "--control", "/nonexistent/sock"], 1, "/nonexistent/sock"),
        (["--version"], 0, "fvd "),
        (["--help"], 0, "fvd --plan FILE"),
    ]
    for argv, status, words in cases:
        done = run(host, *argv)
        assert done.returncode == status, f"{argv}: {done}"
        assert words in done.stdout + done.stderr, f"{argv}: {done}"


def test_bad_plan_names_file_and_line(host: Host) -> None:
    engine = prepared(host, plan(host).replace("mtu=1420", "mtu=14x0", 1))
    before = ip_json(host)
    done = run(host, "--plan", str(engine.file))
    assert done.returncode == 1
    assert re.search(re.escape(str(engine.file)) + r":\d+: .*mtu", done.stderr)
    assert ip_json(host) == before


def test_bad_environment(host: Host) -> None:
    for key, value in (("WG_TUN_FD", "seven"), ("FV_FEATURE_OFF", "teleport"), ("FV_WORKERS", "99")):
        done = run(host, "-f", name(), env={key: value})
        assert done.returncode == 1
        assert key in done.stderr


def test_show_and_health(host: Host, engine: Engine) -> None:
    control = ["--control", engine.control]
    done = run(host, "--health", *control)
    assert (done.returncode, done.stdout) == (0, "healthy\n")
    stats = run(host, "show", "stats", *control)
    assert stats.returncode == 0
    pairs = dict(line.split("=", 1) for line in stats.stdout.splitlines())
    assert {"version", "uptime_ms", "workers", "lease_taken", f"device.{name()}.peers"} <= pairs.keys()
    shown = run(host, "show", "plan", *control)
    assert shown.stdout.strip() == engine.file.read_text().strip()
    assert "is ready" in run(host, "show", "log", *control).stdout


def test_health_of_an_engine_that_hangs(host: Host, engine: Engine) -> None:
    """A supervisor's question must not hang with it."""
    engine.program.process.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = host.run(fvd(), "--health", "--control", engine.control, check=False, seconds=15)
        assert done.returncode == 1
        assert time.monotonic() - began < 12
    finally:
        engine.program.process.send_signal(signal.SIGCONT)
    wait_for("an answer", engine.answers)


def test_json_log_lines(host: Host) -> None:
    engine = prepared(host, plan(host, engine="log_format=json\nlog_level=debug\n")).start()
    with contextlib.suppress(Exception):
        engine.swap('plan=1\nneeds=teleport "quoted\\"\n')
    engine.program.process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert engine.stop() == 0
    lines = [json.loads(line) for line in engine.log().splitlines()]
    assert len(lines) >= 2
    for line in lines:
        assert {"time", "level", "message"} <= line.keys(), line


def test_secrets_stay_inside(host: Host) -> None:
    """Neither key in a log line, a statistic, the arguments or the environment, whatever goes wrong on the way."""
    engine = prepared(host, plan(host, engine="log_level=debug\n")).start()
    for text in (
        plan(host).replace(PRIVATE.hex(), PRIVATE.hex()[:-1]),
        plan(host).replace(PSK.hex(), PSK.hex() + "0"),
        plan(host).replace("private_key=", "private_key "),
        plan(host).replace("preshared_key=", "preshared="),
    ):
        with contextlib.suppress(Exception):
            engine.swap(text)
    host.run("wg", "show", name())
    pid = engine.program.process.pid
    said = engine.log() + str(engine.stats()) + uapi.log_ring(engine.control)
    said += Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/environ").read_text()
    for secret in (PRIVATE, PSK):
        for form in (secret.hex(), secret.hex().upper(), b64encode(secret).decode(), secret.hex()[:32]):
            assert form not in said
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"Max core file size\s+0\s+0", limits)
    assert stat.S_IMODE(Path(engine.control).stat().st_mode) == 0o600
    for path in (Path(host.folder) / f"{host.name}.state").iterdir():
        text = path.read_text()
        assert PRIVATE.hex() not in text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_deleted_interface_ends_it(host: Host, engine: Engine) -> None:
    """Whoever supervises it starts it anew; the switch's routes stay, as after a crash."""
    host.ip(f"link delete dev {name()}")
    assert engine.program.process.wait(5) == 1
    assert "deleted" in engine.log()


def policy(host: Host) -> str:
    """The routes of the plan's table, the rules and the interface's address."""
    words = (["route", "show", "table", "600"], ["-6", "route", "show", "table", "600"], ["rule"], ["-6", "rule"],
             ["-4", "address", "show", "scope", "global"])  # fmt: skip
    text = "".join(host.run("ip", *argv).stdout for argv in words)
    return re.sub(r"^\d+: ", "", text, flags=re.MULTILINE)


def test_restart_after_kill(host: Host, engine: Engine) -> None:
    before = policy(host)
    engine.kill()
    again = prepared(host, plan(host)).start()
    assert policy(host) == before
    assert again.stop() == 0
    assert "600" not in policy(host)


@pytest.mark.needs("setpriv")
def test_without_net_admin(host: Host) -> None:
    engine = prepared(host, plan(host))
    before = ip_json(host)
    for argv in (["--plan", str(engine.file)], ["-f", name()]):
        done = host.run("setpriv", "--bounding-set", "-net_admin", fvd(), *argv, check=False)
        assert done.returncode == 1
        assert "CAP_NET_ADMIN" in done.stderr or "permitted" in done.stderr, done.stderr
    assert ip_json(host) == before
    assert not Path(f"/var/run/wireguard/{name()}.sock").exists()


def second(host: Host, text: str) -> Program:
    file = host.folder / f"{host.name}.second.plan"
    file.write_text(text)
    program = host.start(fvd(), "--plan", str(file))
    assert program.process.wait(10) == 1, program.tail()
    return program


def test_control_socket_of_a_living_engine(host: Host, engine: Engine) -> None:
    """A second engine on the same control socket: a clear error, nothing touched, the first one goes on."""
    before = ip_json(host)
    other = plan(host).replace(name(), f"{name()}b").replace("10.7.0.2", "10.8.0.2").replace("600", "601")
    program = second(host, other.replace("priority 700", "priority 701"))
    assert engine.control in program.tail()
    assert "another engine" in program.tail()
    assert ip_json(host) == before
    assert engine.answers()
    assert not Path(f"/var/run/wireguard/{name()}b.sock").exists()


def test_the_same_plan_twice(host: Host, engine: Engine) -> None:
    before = ip_json(host)
    second(host, plan(host))
    assert ip_json(host) == before
    assert engine.answers()
    host.run("wg", "show", name())


def test_stale_control_socket_is_replaced(host: Host, engine: Engine) -> None:
    engine.kill()
    assert Path(engine.control).exists()
    assert prepared(host, plan(host)).start().stop() == 0
