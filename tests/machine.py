"""What this machine has, asked once per name."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

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


def machine_has(name: str) -> bool:
    """Whether a thing of CHECKS, or a program, is here. Asked once per name."""
    if name not in _found:
        _found[name] = CHECKS[name][0]() if name in CHECKS else shutil.which(name) is not None
    return _found[name]
