"""Programs in namespaces, and what they cost, read from outside (/proc)."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lab.errors import LabError

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def command_in(namespace: str, command: Sequence[str]) -> list[str]:
    """nsenter execs, so the program keeps the process number that we know."""
    return ["nsenter", f"--net=/run/netns/{namespace}", *command]


def run_in(namespace: str, *command: str, timeout: float = 30, stdin: str | None = None) -> str:
    done = subprocess.run(
        command_in(namespace, command), capture_output=True, text=True, timeout=timeout, input=stdin, check=False
    )
    if done.returncode:
        raise LabError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}", where=namespace)
    return done.stdout


def start_in(
    namespace: str,
    command: Sequence[str],
    *,
    cpus: Sequence[int] = (),
    environment: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> subprocess.Popen[str]:
    """Starts a program in a namespace, on these CPUs only (empty: all). Output goes to a file, else to pipes."""

    def prepare() -> None:  # in the child, before exec
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a lab that is killed leaves nothing running
        if cpus:
            os.sched_setaffinity(0, cpus)

    def start(stream: int | IO[bytes]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command_in(namespace, command),
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
            preexec_fn=prepare,
        )

    if output is None:
        return start(subprocess.PIPE)
    with output.open("ab") as file:
        return start(file)


def stop(process: subprocess.Popen[str], patience: float = 5) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def wait_until(
    what: str, ready: Callable[[], bool], seconds: float, alive: subprocess.Popen[str] | None = None
) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if alive is not None and alive.poll() is not None:
            raise LabError(f"ended with status {alive.returncode} before {what}")
        if time.monotonic() > deadline:
            raise LabError(f"no {what} within {seconds:g} s")
        time.sleep(0.02)


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of all of a process's threads, ended ones too."""

    user: float
    system: float

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user - other.user, self.system - other.system)


def cpu(pid: int) -> Cpu:
    # The name may hold spaces and parentheses: fields are counted after its last ')'. See proc(5), stat.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    return Cpu(int(fields[11]) / tick, int(fields[12]) / tick)


@dataclass(frozen=True)
class Memory:
    peak_kib: int
    anonymous_kib: int
    file_kib: int


def reset_peak(pid: int) -> None:
    """Makes VmHWM start again from what is resident now: proc(5), clear_refs, 5."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _kib(text: str, key: str) -> int:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0])
    raise LabError(f"no {key}", where="/proc")


def memory(pid: int) -> Memory:
    status = Path(f"/proc/{pid}/status").read_text()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    anonymous = _kib(rollup, "Anonymous")
    return Memory(_kib(status, "VmHWM"), anonymous, _kib(rollup, "Rss") - anonymous)


def threads(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Threads:"):
            return int(line.split()[1])
    raise LabError("no thread count", where=f"/proc/{pid}/status")
