"""What a row must say about where it was measured: the machine, the kernel, the commit, the sources measured."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

# The sources that a path runs, so that a row can be marked as older than the path's last change.
# A path is a name in the log's column `path`.
PATHS: dict[str, tuple[str, ...]] = {
    "wireguard": (
        "native/wire/*.[ch]",
        "native/crypto/**/*.[chS]",
        "native/wg/*.[ch]",
        "native/io/*.[ch]",
        "native/flow/*.[ch]",
        "native/engine/*.[ch]",
        "native/fvd.c",
        "meson.build",
        "native/*/meson.build",
    ),
    "crypto": ("native/wire/bytes.h", "native/crypto/**/*.[chS]", "native/crypto/meson.build", "meson.build"),
}


def path_version(path: str, root: Path = CHECKOUT) -> str:
    """Twelve hexadecimal digits that change when a source of this path does; "" for a path that is not ours."""
    patterns = PATHS.get(path)
    if patterns is None:
        return ""
    digest = hashlib.sha256()
    for file in sorted({file for pattern in patterns for file in root.glob(pattern)}):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def commit(root: Path = CHECKOUT) -> str:
    """The commit, with "+dirty" where a tracked file differs from it. In a guest the host says it (LAB_COMMIT)."""
    told = os.environ.get("LAB_COMMIT")
    if told is not None:
        return told
    git = ("git", "-C", str(root))
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "diff-index", "--quiet", "HEAD", "--", "native", "lab"], check=False)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+dirty" if changed.returncode else "")


def cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def describe() -> str:
    """CPU model and count; never the host's name. In a guest: what it runs on (LAB_HOST), and its own CPUs."""
    if host := os.environ.get("LAB_HOST"):
        return f"{host}; guest with {len(cpus())}"
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model"} or (key.strip() == "CPU part" and not model):
            model = value.strip() if key.strip() != "CPU part" else f"part {value.strip()}"
            if key.strip() == "model name":
                break
    return f"{model or platform.machine()}; {len(cpus())} CPUs"


def kernel() -> str:
    return platform.release()


def architecture() -> str:
    return platform.machine()


def busy_seconds() -> tuple[float, float]:
    """CPU seconds of the whole machine since boot: at work (user, system, interrupts), and stolen by the host."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick
