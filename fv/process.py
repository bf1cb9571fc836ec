"""What a process uses, read from /proc: CPU and memory seen from outside, as the benchmarks see them."""

import os
import pathlib

import msgspec

_TICK = os.sysconf("SC_CLK_TCK")


class Usage(msgspec.Struct, frozen=True):
    user: float  # seconds of CPU
    system: float
    resident: int  # bytes
    peak: int
    descriptors: int


def usage(pid: int) -> Usage | None:
    """None when the process is gone or may not be looked at."""
    folder = pathlib.Path(f"/proc/{pid}")
    try:
        # The command may hold spaces and brackets: fields are counted from the last ')' (proc(5), fields 14 and 15).
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        descriptors = len(list((folder / "fd").iterdir()))
    except (OSError, ValueError):
        return None
    return Usage(
        int(fields[11]) / _TICK,
        int(fields[12]) / _TICK,
        _kib(status.get("VmRSS", "0")),
        _kib(status.get("VmHWM", "0")),
        descriptors,
    )


def _kib(text: str) -> int:
    words = text.split()
    return int(words[0]) * 1024 if words and words[0].isdigit() else 0


def alive(pid: int, program: str = "fvd") -> bool:
    """Whether the process is there and is that program: a number alone may have been given to another."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == program
    except OSError:
        return False
