"""What this machine has, asked once per name."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from lab.peers import PEERS, PROXIES, binaries

ROOT = Path(__file__).resolve().parent.parent


def _is_root() -> bool:
    return os.geteuid() == 0


def _can_make_namespaces() -> bool:
    probe = subprocess.run(["unshare", "-nm", "true"], capture_output=True, check=False)
    return probe.returncode == 0


def _can_open_tun() -> bool:
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError:
        return False
    return True


def _can_open_kvm() -> bool:
    return os.access("/dev/kvm", os.R_OK | os.W_OK)


# A sanitizer's finding is a failure even where the program would have gone on.
SANITIZER_ENV = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}

# name -> (can it be had here, what to do where it cannot)
CHECKS: dict[str, tuple[Callable[[], bool], str]] = {
    "root": (_is_root, "run as root, or by ./task, which makes a user namespace"),
    "netns": (_can_make_namespaces, "run as root, or by ./task, which makes a user namespace"),
    "tun": (_can_open_tun, "load the kernel's tun module"),
    "kvm": (_can_open_kvm, "enable virtualization; guests run slowly without"),
    "go": (lambda: shutil.which("go") is not None, "./task peers says how to get Go"),
    "cargo": (lambda: shutil.which("cargo") is not None, "./task peers says how to get Rust"),
}

_found: dict[str, bool] = {}


def _is_built(name: str) -> bool:
    """Whether a proxy is in the peers' cache."""
    return any(name in peer.programs for peer in PROXIES) and (binaries() / name).is_file()


def machine_has(name: str) -> bool:
    """Whether a thing of CHECKS, or a program, is here. Asked once per name."""
    if name not in _found:
        _found[name] = CHECKS[name][0]() if name in CHECKS else shutil.which(name) is not None or _is_built(name)
    return _found[name]


def how_to_get(name: str) -> str:
    """The one thing to do where it is lacking."""
    if name in CHECKS:
        return CHECKS[name][1]
    if name in {peer.name for peer in PEERS}:
        return "./task peers builds it"
    if name in {program for peer in PROXIES for program in peer.programs}:
        return "./task peers -- proxies builds it"
    return f"install {name}; ./task does that before a test job where the distribution has it"
