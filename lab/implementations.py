"""Who is compared: a few lines of data each. Adding one is adding a row (and its build to peers.py)."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab import machine, peers

# The kernel features that a run may refuse to an implementation (`--restrict`).
RESTRICTIONS = ("udp_gro", "udp_segment", "tun_uso")


@dataclass(frozen=True)
class Implementation:
    name: str
    title: str
    # process: a program with a UAPI socket; raw: one that is told everything by its arguments; kernel: a link type;
    # none: no tunnel at all
    kind: str
    program: str = ""  # looked up in binary folders, then in PATH
    arguments: tuple[str, ...] = ("-f", "{name}")
    environment: tuple[tuple[str, str], ...] = ()
    # How the number of data-plane threads is set; both empty: it cannot be.
    threads_arguments: tuple[str, ...] = ()
    threads_environment: tuple[tuple[str, str], ...] = ()
    # How a kernel feature is refused to it: its own switch (an environment variable that holds a list), or
    # "filter": the system calls that ask for the feature fail (lab/restrict.py), or "": not at all.
    restrict: str = "filter"
    path: str = ""  # in machine.PATHS: ours
    bench: str = "impls"  # floor: no implementation of WireGuard, run by `lab floor` only


IMPLEMENTATIONS = (
    Implementation(
        name="fv",
        title="fv",
        kind="process",
        program="fvd",
        threads_environment=(("FV_WORKERS", "{threads}"),),
        restrict="FV_FEATURE_OFF",
        path="wireguard",
    ),
    Implementation(
        name="wireguard-go",
        title="wireguard-go",
        kind="process",
        program="wireguard-go",
        threads_environment=(("GOMAXPROCS", "{threads}"),),
    ),
    Implementation(
        name="boringtun",
        title="boringtun",
        kind="process",
        program="boringtun-cli",
        arguments=("-f", "--disable-drop-privileges", "{name}"),
        threads_arguments=("--threads", "{threads}"),
    ),
    Implementation(
        name="gotatun",
        title="GotaTun",
        kind="process",
        program="gotatun-cli",
        arguments=("-f", "--disable-drop-privileges", "{name}"),
        environment=(("WG_LOG_LEVEL", "error"),),
        threads_environment=(("TOKIO_WORKER_THREADS", "{threads}"),),
    ),
    Implementation(name="kernel", title="kernel module", kind="kernel", restrict=""),
    Implementation(name="none", title="no tunnel", kind="none", restrict=""),
    Implementation(
        name="copying",
        title="a tunnel that only copies",
        kind="raw",
        program="native/tests/bench/floor_tunnel",
        arguments=("{name}", "{local}", "{remote}", "copy"),
        restrict="",
        bench="floor",
    ),
    Implementation(
        name="sealing",
        title="a tunnel that only seals",
        kind="raw",
        program="native/tests/bench/floor_tunnel",
        arguments=("{name}", "{local}", "{remote}", "seal"),
        restrict="",
        path="crypto",
        bench="floor",
    ),
)

BY_NAME = {implementation.name: implementation for implementation in IMPLEMENTATIONS}


def folders() -> list[Path]:
    """Where programs are looked for: LAB_BINARIES (in guests), the build, the peers' cache."""
    told = [Path(folder) for folder in os.environ.get("LAB_BINARIES", "").split(os.pathsep) if folder]
    return [*told, machine.CHECKOUT / "build", peers.binaries()]


def find(implementation: Implementation) -> Path | None:
    for folder in folders():
        program = folder / implementation.program
        if program.is_file() and os.access(program, os.X_OK):
            return program
    found = shutil.which(implementation.program)
    return Path(found) if found else None


def missing(implementation: Implementation) -> str:
    """Why it cannot be run here; "" when it can."""
    if implementation.kind == "none":
        return ""
    if implementation.kind == "kernel":
        subprocess.run(["modprobe", "-q", "wireguard"], check=False, capture_output=True)
        probe = ("ip", "link", "add", "labprobe0", "type", "wireguard")
        done = subprocess.run(probe, check=False, capture_output=True, text=True)
        if done.returncode:
            why = done.stderr.strip() or f"ip ended with {done.returncode}"
            return f"this kernel has no wireguard module: {why} (`python -m lab qemu` runs it in a guest)"
        subprocess.run(["ip", "link", "del", "labprobe0"], check=True)
        return ""
    if find(implementation) is None:
        return f"there is no {implementation.program} (`task build` or `task peers`)"
    return ""


def version(implementation: Implementation) -> str:
    if implementation.kind == "raw":
        return "fv's own"
    if implementation.kind != "process":
        return machine.kernel()
    program = find(implementation)
    if program is None:
        return ""
    pin = program.with_name(program.name + ".pin")
    if pin.is_file():
        return pin.read_text().strip()
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False, timeout=10)
    return (done.stdout or done.stderr).strip().split("\n")[0]


def thread_words(implementation: Implementation, threads: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment that ask for so many data-plane threads; "ships": what it does by itself."""
    if threads == "ships":
        return [], {}
    arguments = [word.format(threads=threads) for word in implementation.threads_arguments]
    environment = {key: value.format(threads=threads) for key, value in implementation.threads_environment}
    return arguments, environment


def threads_can_be_set(implementation: Implementation) -> bool:
    return bool(implementation.threads_arguments or implementation.threads_environment)
