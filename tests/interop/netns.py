"""Hosts made of network namespaces, and what a test does on them.

    left                              right
    +--------------------+            +--------------------+
    | wire               |   veth     |               wire |
    | 192.0.2.1/24       |------------|       192.0.2.2/24 |
    | 2001:db8::1/64     |   mtu N    |     2001:db8::2/64 |
    +--------------------+            +--------------------+

A namespace is named fvpeer-PID-N after the test process. It goes, with every process in it, when the context ends; what
a crashed run left behind goes when the next run starts: names with a dead PID. Processes also die with the thread that
started them (PR_SET_PDEATHSIG).
"""

import contextlib
import ctypes
import itertools
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

PREFIX = "fvpeer"
SOCKETS = Path("/var/run/wireguard")  # of all namespaces together
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count(1)
T = TypeVar("T")

# 44 characters of base64 with its padding, or 64 hex digits: a key, whichever it is.
_KEY = re.compile(r"[A-Za-z0-9+/]{43}=|\b[0-9a-fA-F]{64}\b")


def hide_keys(text: str) -> str:
    return _KEY.sub("[key]", text)


def _enter(path: str) -> None:
    with Path(path).open() as namespace:
        if _libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {path}")


def wait_for(what: str, condition: Callable[[], T], seconds: float = 5.0, every: float = 0.02) -> T:
    """Polls until the condition gives something true, and returns that."""
    end = time.monotonic() + seconds
    while True:
        if got := condition():
            return got
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds:g} s")
        time.sleep(every)


@dataclass
class Program:
    """A process on a host, its output in a file."""

    process: subprocess.Popen[bytes]
    log: Path
    argv: Sequence[str]

    def tail(self, lines: int = 25) -> str:
        """The last lines of the output, keys hidden."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:]
        return hide_keys("\n".join(text))

    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, seconds: float = 5.0) -> int:
        """SIGTERM, then SIGKILL; the exit status, negative for a signal."""
        if self.alive():
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@dataclass
class Host:
    name: str
    folder: Path
    address4: str = ""
    address6: str = ""
    programs: list[Program] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/run/netns/{self.name}"

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread is on this host; what it opens there stays there."""
        with Path("/proc/thread-self/ns/net").open() as before:
            _enter(self.path)
            try:
                yield
            finally:
                if _libc.setns(before.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns back")

    def ip(self, *commands: str) -> None:
        """iproute2, several commands at once."""
        text = "\n".join(commands) + "\n"
        done = subprocess.run(
            ["ip", "-n", self.name, "-batch", "-"], input=text, text=True, capture_output=True, check=False
        )
        if done.returncode != 0:
            raise AssertionError(f"ip on {self.name}: {done.stderr.strip()} in\n{text}")

    def run(
        self, *argv: str, text: str = "", check: bool = True, env: dict[str, str] | None = None, seconds: float = 20
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on this host to its end."""
        done = subprocess.run(
            argv,
            input=text,
            text=True,
            capture_output=True,
            check=False,
            env={**os.environ, **(env or {})},
            timeout=seconds,
            preexec_fn=self._before_exec,
        )
        if check and done.returncode != 0:
            words = hide_keys(
                f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
            )
            raise AssertionError(words)
        return done

    def start(self, *argv: str, env: dict[str, str] | None = None, pass_fds: Sequence[int] = ()) -> Program:
        """Starts a program on this host that is ended with it."""
        log = self.folder / f"{self.name}.{len(self.programs)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                pass_fds=pass_fds,
                preexec_fn=self._before_exec,
            )
        program = Program(process, log, argv)
        self.programs.append(program)
        return program

    def sysctl(self, path: str, value: str) -> None:
        with self.inside():
            (Path("/proc/sys") / path).write_text(value)

    def open_socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        with self.inside():
            return socket.socket(family, kind, protocol)

    def udp(self, address: str, port: int = 0) -> socket.socket:
        """A bound UDP socket."""
        sock = self.open_socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        return sock

    def has_link(self, name: str) -> bool:
        done = subprocess.run(["ip", "-n", self.name, "link", "show", "dev", name], capture_output=True, check=False)
        return done.returncode == 0

    def _before_exec(self) -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _enter(self.path)


def _remove(name: str) -> None:
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout.split()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def sweep() -> None:
    """Removes the namespaces and sockets of runs that died."""
    for path in Path("/run/netns").glob(f"{PREFIX}-*-*"):
        pid = path.name.split("-")[1]
        if not Path(f"/proc/{pid}").exists():
            _remove(path.name)
    for path in SOCKETS.glob("fv*x*.sock"):
        pid = path.name.removeprefix("fv").partition("x")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Hosts with nothing but a loopback that is up."""
    sweep()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}-") as folder:
        made: list[Host] = []
        try:
            for _ in range(count):
                name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}"
                subprocess.run(["ip", "netns", "add", name], check=True)
                made.append(Host(name, Path(folder)))
                made[-1].ip("link set lo up")
                # Losing the first address of a subnet must not take the others with it.
                made[-1].sysctl("net/ipv4/conf/all/promote_secondaries", "1")
            yield made
        finally:
            for host in made:
                for program in host.programs:
                    program.stop()
                _remove(host.name)


@contextlib.contextmanager
def wire(mtu: int = 1500) -> Iterator[tuple[Host, Host]]:
    """The topology drawn above."""
    with hosts(2) as (left, right):
        left.ip(f"link add wire mtu {mtu} type veth peer name wire mtu {mtu} netns {right.name}")
        for number, host in enumerate((left, right), 1):
            host.address4, host.address6 = f"192.0.2.{number}", f"2001:db8::{number}"
            host.ip(
                f"address add {host.address4}/24 dev wire",
                f"address add {host.address6}/64 dev wire nodad",
                "link set wire up",
            )
        yield left, right
