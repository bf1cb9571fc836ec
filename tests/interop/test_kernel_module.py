"""fv with the Linux kernel's own WireGuard: the other interoperability tests, run inside a guest that has the module.

The guest has the distribution's cloud kernel (lab/guest_root.py), this checkout's tests and the engine under test. A
failure in there is this test's failure, with what pytest printed in the guest.
"""

import os
import platform
import re
from pathlib import Path

import pytest

from lab import qemu

ROOT = Path(__file__).resolve().parents[2]

# Names of the cases' tests that need no more than both ends, by file.
FILES = ("test_matrix.py", "test_addresses.py", "test_offloads.py")

# Two boots' worth of time where the processor is emulated.
SECONDS = {"kvm": 300, "tcg": 1800}


def binaries(arch: str, build: Path) -> Path:
    """The folder with fvd for this architecture; FV_BUILD_AARCH64 names that of a cross build."""
    return (
        build
        if arch == platform.machine()
        else Path(os.environ.get(f"FV_BUILD_{arch.upper()}", ROOT / f"build-{arch}"))
    )


def run(arch: str, build: Path, *words: str) -> str:
    """pytest in a guest with these words; what it printed. Fails as it fails, and where it ran nothing."""
    if why := qemu.missing(arch):
        pytest.skip(f"needs a guest: {why}")
    fvd = binaries(arch, build) / "fvd"
    if not fvd.is_file():
        pytest.skip(f"needs fvd built for {arch} in {fvd.parent.name}")
    files = {
        "/fv/tests": ROOT / "tests",
        "/fv/lab": ROOT / "lab",
        "/fv/pyproject.toml": ROOT / "pyproject.toml",
        "/fv/build/fvd": fvd,
    }
    command = " ".join(f"'{word}'" for word in ("-p", "no:cacheprovider", "-q", "--tb=short", *words))
    script = f"cd /fv && FV_INTEROP_WITH=kernel FVD=/fv/build/fvd python3 -m pytest {command}\n"
    outcome = qemu.run_in_guest(script, files, arch=arch, timeout=SECONDS.get(qemu.accelerator(arch), 1800))
    assert outcome.status == 0, f"in the guest ({outcome.accelerator}, kernel {outcome.kernel}):\n{outcome.output}"
    passed = re.search(r"(\d+) passed", outcome.output)
    assert passed, f"nothing ran:\n{outcome.output}"
    assert "skipped" not in outcome.output.splitlines()[-1], outcome.output
    return outcome.output


@pytest.mark.needs("wg")
def test_handshake_and_transfer(build: Path) -> None:
    """Both roles, with and without a preshared key, and a hashed TCP transfer each way."""
    run(
        platform.machine(),
        build,
        "tests/interop/test_matrix.py",
        "-k",
        "fv:kernel and (test_handshake or test_tcp) and not in6",
    )


@pytest.mark.slow
@pytest.mark.needs("wg")
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_everything(arch: str, file: str, build: Path) -> None:
    run(arch, build, f"tests/interop/{file}", "-k", "kernel")
