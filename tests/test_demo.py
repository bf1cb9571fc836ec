"""The demo LAN with the real engine: it carries, shows, and leaves nothing behind, however it ends."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from fv.demo import net, show

ROOT = pathlib.Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.needs("root", "netns", "tun")


def start(fvd: pathlib.Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fv", "demo", *words], cwd=ROOT, env=os.environ | {"FV_FVD": str(fvd)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def until_carrying(demo: subprocess.Popen[str]) -> str:
    assert demo.stdout is not None
    out = ""
    for line in demo.stdout:
        out += line
        if "bit/s" in line:
            return out
    pytest.fail(f"the demo ended: {out}")


def nothing_is_left() -> bool:
    return not net.leftovers() and not net.processes()


def test_to_its_end(fvd: pathlib.Path) -> None:
    demo = start(fvd, "--seconds", "3")
    out, _ = demo.communicate(timeout=90)
    assert demo.returncode == 0, out
    assert f"fetched http://{net.WEB_ADDRESS}/" in out
    assert f"the web server saw {net.GATEWAY_TUNNEL}" in out
    total = re.search(r"^(\d+) bytes in ", out, re.MULTILINE)
    assert total is not None
    assert int(total[1]) > 1_000_000
    samples = [line for line in out.splitlines() if "bit/s" in line]
    assert len(samples) >= 2
    for sample in samples:
        assert re.search(r"handshake \d+ s ago  gateway +\d+% CPU +[\d.]+ MiB  exit +\d+% CPU +[\d.]+ MiB$", sample), (
            sample
        )
    assert out.endswith("everything is taken away again\n")
    assert nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(fvd: pathlib.Path, number: signal.Signals) -> None:
    demo = start(fvd)
    until_carrying(demo)
    demo.send_signal(number)
    out, _ = demo.communicate(timeout=30)
    assert out.endswith("everything is taken away again\n")
    assert demo.returncode == 0
    assert nothing_is_left()


def test_killed_and_found_by_the_next_start(fvd: pathlib.Path) -> None:
    demo = start(fvd)
    until_carrying(demo)
    demo.kill()
    demo.wait()
    deadline = time.monotonic() + 5
    while net.processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not net.processes(), "what it started dies with it"
    assert set(net.HOSTS) <= set(net.leftovers())
    clean = start(fvd, "--clean")
    out, _ = clean.communicate(timeout=30)
    assert all(host in out for host in net.HOSTS)
    assert nothing_is_left()
    again, _ = start(fvd, "--clean").communicate(timeout=30)
    assert "nothing to take away" in again


def test_an_engine_that_does_not_start_is_said_and_cleaned(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "fvd"
    broken.write_text("#!/bin/sh\necho the reason >&2\nexit 3\n")
    broken.chmod(0o755)
    demo = start(broken)
    out, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "did not start: the reason" in out
    assert nothing_is_left()


def test_drawing_is_straight() -> None:
    lines = show.topology("g" * 44, "e" * 44).splitlines()
    boxes = [line for line in lines if line.startswith(("  ┌", "  │", "  └"))]
    assert len(boxes) == 5
    assert len({len(line) for line in boxes}) == 1
