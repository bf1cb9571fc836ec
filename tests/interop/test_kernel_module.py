"""fv with the Linux kernel's own WireGuard: the other interoperability tests, run inside a guest that has the module.

The guest has the distribution's cloud kernel (lab/guest_root.py), this checkout's tests and the engine under test. A
failure in there is this test's failure, with what pytest printed in the guest.
"""

import importlib
import os
import platform
import re
from pathlib import Path

import pytest

from lab import qemu

ROOT = Path(__file__).resolve().parents[2]

# How long it may take, by accelerator: where the processor is emulated everything is slow.
SECONDS = {"kvm": 300, "hvf": 300, "tcg": 1800}

# The pytest of this interpreter: pure Python, and newer than the distribution's.
PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")


def binaries(arch: str, build: Path) -> Path:
    """The folder with fvd for this architecture; FV_BUILD_AARCH64 names that of a cross build."""
    if arch == platform.machine():
        return build
    folder = {"aarch64": "build-arm64"}.get(arch, f"build-{arch}")  # as ./task build arch=... names it
    return Path(os.environ.get(f"FV_BUILD_{arch.upper()}", ROOT / folder))


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
        "/fv/native": ROOT / "native",  # the tests read names from its headers
        "/fv/pyproject.toml": ROOT / "pyproject.toml",
        "/fv/build/fvd": fvd,
    }
    for name in PYTEST:
        source = Path(str(importlib.import_module(name).__file__))
        source = source.parent if source.name == "__init__.py" else source
        files[f"/fv/site/{source.name}"] = source
    command = " ".join(f"'{word}'" for word in ("-p", "no:cacheprovider", "-q", "--tb=short", *words))
    slow = int(qemu.accelerator(arch) == "tcg")
    variables = f"PYTHONPATH=/fv/site FV_INTEROP_WITH=kernel FV_INTEROP_SLOW={slow} FVD=/fv/build/fvd"
    if qemu.accelerator(arch) == "tcg":
        variables += " FV_INTEROP_SLOW=1"
    script = f"cd /fv && {variables} python3 -m pytest {command}\n"
    outcome = qemu.run_in_guest(script, files, arch=arch, timeout=SECONDS[qemu.accelerator(arch)])
    assert outcome.status == 0, f"in the guest ({outcome.accelerator}, kernel {outcome.kernel}):\n{outcome.output}"
    last = outcome.output.strip().splitlines()[-1]
    assert re.search(r"\d+ passed", last), f"nothing ran:\n{outcome.output}"
    assert "skipped" not in last, outcome.output
    return outcome.output


@pytest.mark.slow  # where the processor is emulated: half a minute
@pytest.mark.needs("wg")
def test_handshake_and_transfer(build: Path) -> None:
    """Both roles, with and without a preshared key, and a hashed TCP transfer each way."""
    cases = "fv:kernel and (test_handshake or test_tcp) and not in6"
    run(platform.machine(), build, "tests/interop/test_matrix.py", "-k", cases)


@pytest.mark.slow
@pytest.mark.needs("wg")
def test_handshake_and_transfer_on_arm64(build: Path) -> None:
    """The same for the cross-built engine (./task build arch=arm64) on an emulated machine."""
    cases = "fv:kernel and (test_handshake or test_tcp) and not in6"
    run("aarch64", build, "tests/interop/test_matrix.py", "-k", cases)


@pytest.mark.slow
@pytest.mark.needs("wg")
@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_matrix(arch: str, build: Path) -> None:
    """All that test_matrix.py tries with any other implementation, one and two workers."""
    run(arch, build, "tests/interop/test_matrix.py", "-k", "kernel")
