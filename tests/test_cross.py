"""The engine for other processors (native/cross/), run under QEMU's user mode: ARM64, ARMv7 with NEON, ARMv5 without.

The quick tier builds the engine and three unit tests for each, where the cross compiler is. The slow one builds all:
every unit test runs emulated, and so does the engine in the interoperability tests. (QEMU allows unaligned access
on any processor: that there is none is UBSan's to prove, in the builds for this machine.)
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from fv import __version__
from native.cross import build as cross
from tests.machine import ROOT, machine_has
from tests.test_native import UnitTest, unit_tests

MIB = 1 << 20


@dataclass(frozen=True)
class Processor:
    """What is emulated, and what of it the engine must find at run time."""

    emulators: tuple[str, ...]  # programs, either will do
    cpu: str
    machine: str  # uname's
    bits: int
    vectors: bool


# ARM926: no NEON, no floating point, no unaligned access, no atomic instructions.
PROCESSORS = {
    "arm64": Processor(("qemu-aarch64", "qemu-aarch64-static"), "cortex-a53", "aarch64", 64, True),
    "armv7": Processor(("qemu-arm", "qemu-arm-static"), "cortex-a15", "armv7l", 32, True),
    "armv5": Processor(("qemu-arm", "qemu-arm-static"), "arm926", "armv5tel", 32, False),
}
QUICK = {"crypto cpucap", "crypto chacha20poly1305", "wg transport"}


@dataclass(frozen=True)
class Built:
    arch: str
    folder: Path
    runner: tuple[str, ...]

    @property
    def processor(self) -> Processor:
        return PROCESSORS[self.arch]

    def run(
        self, *words: str, timeout: float = 60, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        told = {"FV_EMULATED": "1", "FV_EXPECT_VECTORS": str(int(self.processor.vectors))}
        command = [*self.runner, *words]
        return subprocess.run(
            command,
            env=os.environ | (env or {}) | told,
            cwd=cwd or self.folder,
            timeout=timeout,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    def fvd(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(self.folder / "fvd"), *words)

    def unit(self, test: UnitTest) -> None:
        run = self.run(*test.cmd, timeout=test.timeout * 10, cwd=test.workdir, env=test.env)
        if run.returncode == 77:
            pytest.skip(run.stdout.strip() or run.stderr.strip() or "the program says that it cannot run here")
        if run.returncode != 0:
            pytest.fail(f"{test.name}: exit {run.returncode}\n{run.stdout}{run.stderr}", pytrace=False)


def make(arch: str, *targets: str) -> Built:
    """What ./task build arch=ARCH does (Ninja leaves alone what is built already), for these targets or for all."""
    if why := cross.lacking(arch):
        pytest.skip(f"needs {why}")
    if not cross.has_sysroot(arch):
        pytest.skip(f"needs libcrypto for {arch} (./task build arch={arch} fetches it)")
    emulator = next((name for name in PROCESSORS[arch].emulators if machine_has(name)), None)
    if emulator is None:
        pytest.skip(f"needs {PROCESSORS[arch].emulators[0]}")
    command = [sys.executable, str(ROOT / "native/cross/build.py"), arch, *targets]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.fail(f"build.py {arch}\n{run.stdout[-4000:]}{run.stderr[-4000:]}", pytrace=False)
    libraries = f"/usr/{cross.TARGETS[arch].triplet}"  # the unit tests are linked with the C library's shared form
    return Built(arch, ROOT / f"build-{arch}", (emulator, "-cpu", PROCESSORS[arch].cpu, "-L", libraries))


def target_of(test: UnitTest, folder: Path) -> str:
    return str(Path(test.cmd[0]).relative_to(folder))


@pytest.fixture(scope="module", params=PROCESSORS)
def quick(request: pytest.FixtureRequest) -> Built:
    """The engine and the tests of QUICK; which targets those are is known once it is configured."""
    made = make(request.param, "--setup-only")
    tests = [test for test in unit_tests(made.folder) if test.name in QUICK]
    return make(request.param, "fvd", "fvd.stripped", *(target_of(test, made.folder) for test in tests))


@pytest.fixture(scope="module", params=PROCESSORS)
def whole(request: pytest.FixtureRequest) -> Built:
    return make(request.param)


def test_version(quick: Built) -> None:
    run = quick.fvd("--version")
    assert (run.stdout, run.stderr, run.returncode) == (f"fvd {__version__}\n", "", 0)


def test_size_and_form(quick: Built) -> None:
    """One static file of the right machine, at most 6 MiB."""
    stripped = quick.folder / "fvd.stripped"
    assert stripped.stat().st_size <= 6 * MIB
    head = stripped.read_bytes()[:64]
    assert head[4] == (2 if quick.processor.bits == 64 else 1), "the ELF class is its bits"
    assert int.from_bytes(head[18:20], "little") == {64: 183, 32: 40}[quick.processor.bits], "EM_AARCH64 or EM_ARM"
    readelf = subprocess.run(["readelf", "-lW", stripped], capture_output=True, text=True, check=True)
    assert "INTERP" not in readelf.stdout, "it asks for a dynamic linker"


def test_probe(quick: Built) -> None:
    """The table of features as this processor has them, and 64-bit time in it."""
    run = quick.fvd("--probe")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert lines[0].split()[-1] == quick.processor.machine
    rows = {words[0]: words[1] for line in lines[2:] if len(words := line.split()) > 2}
    assert rows["neon"] == ("yes" if quick.processor.vectors else "no")
    assert rows["avx2"] == "no"


def test_refuses_a_wrong_plan(quick: Built, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text("plan=1\n\n[engine]\nworkers=1\nmemory=lots\n")
    plan.chmod(0o600)
    run = quick.fvd("--plan", str(plan))
    assert run.returncode not in (0, -4, -7, -11), "an error, not a signal"
    assert "5" in run.stderr, "the line"
    assert "memory" in run.stderr, run.stderr


@pytest.mark.parametrize("name", sorted(QUICK))
def test_unit_quick(quick: Built, name: str) -> None:
    quick.unit(next(test for test in unit_tests(quick.folder) if test.name == name))


@pytest.mark.slow
def test_units(whole: Built, subtests: pytest.Subtests) -> None:
    """Every unit test that Meson knows, each by its name."""
    for test in unit_tests(whole.folder):
        with subtests.test(test.name):
            whole.unit(test)


@pytest.mark.slow
@pytest.mark.needs("root", "netns", "tun", "wg")
def test_interoperability(whole: Built, tmp_path: Path) -> None:
    """Two emulated engines, and one with the reference peer: test_matrix.py with one worker and two."""
    fvd = tmp_path / "fvd"
    fvd.write_text(f'#!/bin/sh\nexec {" ".join(whole.runner)} {whole.folder / "fvd"} "$@"\n')
    fvd.chmod(0o755)
    environment = os.environ | {"FVD": str(fvd), "FV_INTEROP": "fv,fv-2", "FV_INTEROP_WITH": "fv,reference"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "tests/interop/test_matrix.py"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    last = run.stdout.strip().splitlines()[-1]
    assert " passed" in last, last
