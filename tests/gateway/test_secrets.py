"""Where keys stay in the engine's memory: in the plan in force and in the core, and in nothing that was given back."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.gateway.network import lan
from tests.interop.netns import wait_for

pytestmark = pytest.mark.needs("root", "netns", "tun", "wg")


def copies(pid: int, needle: bytes) -> int:
    found = 0
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            words = line.split()
            begin, end = (int(x, 16) for x in words[0].split("-"))
            if "w" not in words[1] or end - begin > 1 << 28:
                continue
            with contextlib.suppress(OSError, ValueError):
                memory.seek(begin)
                found += memory.read(end - begin).count(needle)
    return found


def test_answers_and_reloads_leave_no_copy() -> None:
    with lan() as net:
        one = net.start_exit()
        pid, key = one.program.process.pid, net.keys["exit"].private
        before = copies(pid, key.hex().encode()), copies(pid, key)
        assert all(before), "the core and the plan have it"
        plan = one.plan()
        longer = plan + "".join("#" + "x" * 3000 + "\n" for _ in range(8))
        one.swap(longer)
        assert one.plan() == longer
        one.file.write_text(plan)
        os.kill(pid, signal.SIGHUP)
        wait_for("the file's plan", lambda: one.plan() == plan)
        private = subprocess.run(
            ["wg", "show", net.name("ex"), "private-key"], capture_output=True, check=True, text=True
        ).stdout
        assert private.strip()
        wait_for("no more copies", lambda: (copies(pid, key.hex().encode()), copies(pid, key)) == before)
