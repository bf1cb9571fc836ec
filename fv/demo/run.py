"""The demo from start to end. Whatever happens, what was made is taken away: at the end, at Ctrl-C, at an error;
after a crash or a kill, by the next start (`net.clean`)."""

import contextlib
import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import click
from rich.console import Console
from rich.live import Live

from fv import uapi
from fv.demo import net, show
from fv.errors import FvError
from fv.keys import generate_private, generate_psk, public_of, show_key
from fv.process import Usage, usage

PORT = 51820

_CONFIG = """
[[endpoints]]
type = "wireguard"
tag = "{device}"
address = "{address}"
private_key = "{private}"
{port}
[[endpoints.peers]]
public_key = "{public}"
pre_shared_key = "{psk}"
allowed_ips = ["{allowed}"]
{reach}

[engine]
state = ""
control = "{control}"
log_level = "info"
{gateway}
"""


class Demo:
    """Handles of what runs. Made by `running`, which also takes it away."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.children: list[subprocess.Popen[bytes]] = []
        self.engines: dict[str, subprocess.Popen[bytes]] = {}

    def control(self, host: str) -> str:
        return str(self.folder / f"{host}.sock")

    def log(self, host: str) -> pathlib.Path:
        return self.folder / f"{host}.log"

    def start(self, host: str, *words: str, **how: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fv.demo.roles", host, *words]
        child: subprocess.Popen[bytes] = subprocess.Popen(command, stdin=subprocess.DEVNULL, **how)  # type: ignore[call-overload]
        self.children.append(child)
        return child

    def engine(self, host: str, config: str) -> None:
        """The configuration goes by a memfd: its keys are in no file and no argument."""
        descriptor = os.memfd_create(host)
        os.write(descriptor, config.encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        with self.log(host).open("wb") as log:
            child = self.start(host, "engine", str(descriptor), stdout=log, stderr=log, pass_fds=(descriptor,))
        os.close(descriptor)
        self.engines[host] = child

    def wait_engine(self, host: str) -> None:
        deadline = time.monotonic() + 15
        while True:
            with contextlib.suppress(FvError):
                uapi.stats(self.control(host))
                return
            if self.engines[host].poll() is not None or time.monotonic() > deadline:
                said = self.log(host).read_text(errors="replace").strip().splitlines()[-3:]
                raise FvError(f"the engine in {host} did not start: " + (" | ".join(said) or "it said nothing"))
            time.sleep(0.05)


def keys() -> dict[str, str]:
    gateway, exit_ = generate_private(), generate_private()
    return {
        "gateway": show_key(gateway),
        "exit": show_key(exit_),
        "gateway_public": show_key(public_of(gateway)),
        "exit_public": show_key(public_of(exit_)),
        "psk": show_key(generate_psk()),
    }


def configurations(made: dict[str, str], demo: Demo) -> dict[str, str]:
    """The two hosts' configurations, of the kind that users write."""
    gateway = _CONFIG.format(
        device=net.GATEWAY,
        address=f"{net.GATEWAY_TUNNEL}/32",
        private=made["gateway"],
        port="",
        public=made["exit_public"],
        psk=made["psk"],
        allowed="0.0.0.0/0",
        reach=f'address = "{net.EXIT_WAN}"\nport = {PORT}\npersistent_keepalive_interval = 25',
        control=demo.control(net.GATEWAY),
        gateway='[gateway]\nlan = ["lan0"]',
    )
    exit_ = _CONFIG.format(
        device=net.EXIT,
        address=f"{net.EXIT_TUNNEL}/24",
        private=made["exit"],
        port=f"listen_port = {PORT}",
        public=made["gateway_public"],
        psk=made["psk"],
        allowed=f"{net.GATEWAY_TUNNEL}/32",
        reach="",
        control=demo.control(net.EXIT),
        gateway="",
    )
    return {net.GATEWAY: gateway, net.EXIT: exit_}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One demo at a time on a host: the names are fixed so that a crash's leftovers can be found."""
    with pathlib.Path(net.LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FvError("another demo runs on this host", hint="end it by Ctrl-C in its terminal") from None
        yield


@contextlib.contextmanager
def running() -> Iterator[Demo]:
    """Namespaces, engines and web server; all of it gone afterwards."""

    owner = os.getpid()

    def stop(*_: object) -> None:
        if os.getpid() != owner:
            os._exit(1)  # a process that pyroute2 has forked: it must not run our clean-up
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    demo = Demo(pathlib.Path(net.FOLDER))
    try:
        demo.folder.mkdir(mode=0o700)
        net.build()
        yield demo
    finally:
        # A second Ctrl-C must not leave half of it behind.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for child in demo.children:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        for child in demo.children:
            try:
                child.wait(3)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        net.clean()
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run(seconds: float | None) -> None:
    with alone():
        old = net.clean()
        if old:
            click.echo(f"cleaned up after a demo that crashed: {', '.join(old)}")
        try:
            with running() as demo:
                _run(demo, seconds)
        except KeyboardInterrupt:
            click.echo()
        click.echo("everything is taken away again")


def _run(demo: Demo, seconds: float | None) -> None:
    made = keys()
    for host, config in configurations(made, demo).items():
        demo.engine(host, config)
    for host in demo.engines:
        demo.wait_engine(host)
    # The exit host passes the tunnel's packets on to its own network: a host's switch, not a tunnel's.
    _forward(net.EXIT)
    server = demo.start(net.WEB, "server", net.WEB_ADDRESS, stdout=subprocess.PIPE)
    assert server.stdout is not None
    if server.stdout.readline() != b"ready\n":
        raise FvError("the demo's web server did not start")
    click.echo(show.topology(made["gateway_public"], made["exit_public"]))
    _page(demo)
    _stream(demo, seconds)


def _forward(host: str) -> None:
    code = (
        "import sys,pathlib;from pyroute2 import netns;netns.setns(sys.argv[1]);"
        "pathlib.Path('/proc/sys/net/ipv4/ip_forward').write_text('1')"
    )
    subprocess.run([sys.executable, "-c", code, host], check=True)


def _page(demo: Demo) -> None:
    child = demo.start(net.CLIENT, "page", net.WEB_ADDRESS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, fault = child.communicate(timeout=20)
    text = out.decode()
    seen = re.search(r"seen from ([0-9.]+), page ([0-9a-f]{16})", text)
    if child.returncode or seen is None:
        last = fault.decode(errors="replace").strip().splitlines()[-1:]
        raise FvError(f"the page did not come through the tunnel: {' '.join(last) or 'no answer'}", hint="fv doctor")
    if seen[1] != net.GATEWAY_TUNNEL:
        raise FvError(f"the web server saw {seen[1]}, expected {net.GATEWAY_TUNNEL}: no source NAT")
    title = re.search(r"<title>(.*)</title>", text)
    click.echo(f'fetched http://{net.WEB_ADDRESS}/: "{title[1] if title else ""}", {len(out)} bytes')
    click.echo(f"the web server saw {seen[1]}, the tunnel's address: {net.CLIENT_ADDRESS} was translated by the engine")


def _stream(demo: Demo, seconds: float | None) -> None:
    child = demo.start(net.CLIENT, "stream", net.WEB_ADDRESS, stdout=subprocess.PIPE)
    received = _Received(child)
    ends = "Ctrl-C ends" if seconds is None else f"ends after {seconds:g} s"
    start = last = time.monotonic()
    before, total = _usages(demo), 0
    # The process was Python until it became the engine: what it had used by then is not the engine's.
    first = before
    console = Console(highlight=False)
    context = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with context or contextlib.nullcontext():
        while seconds is None or time.monotonic() - start < seconds:
            time.sleep(1.0)
            if child.poll() is not None:
                raise FvError("the transfer broke off", hint="fv doctor")
            for host, engine in demo.engines.items():
                if engine.poll() is not None:
                    raise FvError(f"the engine in {host} ended: {demo.log(host).read_text(errors='replace')[-300:]}")
            now, bytes_, after = time.monotonic(), received.total, _usages(demo)
            sample = show.Sample(
                now - start,
                (bytes_ - total) * 8 / (now - last),
                bytes_,
                _handshake(demo),
                tuple(_engine(host, first[host], before[host], after[host], now - last) for host in demo.engines),
            )
            last, total, before = now, bytes_, after
            if context:
                context.update(show.live(sample, ends), refresh=True)
            else:
                click.echo(show.plain(sample))
    if total == 0:
        raise FvError("nothing came through the tunnel", hint="fv doctor")
    elapsed = last - start
    click.echo(f"{total} bytes in {elapsed:.1f} s through the tunnel")


class _Received:
    """The client's byte count, read from its lines by a thread."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.total = 0
        assert child.stdout is not None
        self.lines = child.stdout
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.lines:
            self.total = int(line)


def _usages(demo: Demo) -> dict[str, Usage]:
    nothing = Usage(0, 0, 0, 0, 0)
    return {host: usage(engine.pid) or nothing for host, engine in demo.engines.items()}


def _engine(host: str, first: Usage, before: Usage, after: Usage, seconds: float) -> show.Engine:
    used = after.user + after.system
    name = "gateway" if host == net.GATEWAY else "exit"
    since_start = used - first.user - first.system
    return show.Engine(name, (used - before.user - before.system) / seconds, since_start, after.resident, after.peak)


def _handshake(demo: Demo) -> float | None:
    with contextlib.suppress(FvError):
        found = uapi.stats(demo.control(net.GATEWAY)).get(f"device.{net.GATEWAY}.handshake_age_ms")
        return int(found) / 1000 if found else None
    return None
