"""The engine's C unit tests, each a case of its own: once as shipped, once under ASan and UBSan."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.machine import ROOT, SANITIZER_ENV

# label -> (the option that names the folder, the job that builds it)
BUILDS = {"plain": ("--build", "build"), "asan": ("--build-asan", "build:asan")}


class UnitTest(msgspec.Struct, frozen=True):
    """A row of Meson's intro-tests.json, as far as it is used here."""

    name: str
    cmd: list[str]
    env: dict[str, str]
    timeout: int
    workdir: str | None = None


def unit_tests(build: Path) -> list[UnitTest]:
    return msgspec.json.decode((build / "meson-info" / "intro-tests.json").read_bytes(), type=list[UnitTest])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case for each test that Meson knows, by its name; a build that is missing is one case that fails."""
    if "unit" not in metafunc.fixturenames:
        return
    cases = []
    for label, (option, job) in BUILDS.items():
        folder = Path(metafunc.config.getoption(option))
        if (folder / "build.ninja").exists():
            cases += [pytest.param(unit, folder, id=f"{label}-{unit.name}") for unit in unit_tests(folder)]
        else:
            cases.append(pytest.param(None, f"{folder} is not built: run ./task {job}", id=f"{label}-missing"))
    metafunc.parametrize(("unit", "where"), cases)


def test_unit(unit: UnitTest | None, where: Path | str) -> None:
    if unit is None:
        pytest.fail(str(where), pytrace=False)
    run = subprocess.run(
        unit.cmd,
        env=os.environ | SANITIZER_ENV | unit.env,
        cwd=unit.workdir or where,
        timeout=unit.timeout * 2,  # the machine may be busy with other things
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if run.returncode == 77:  # Meson's and automake's code for "cannot run here"
        pytest.skip(run.stdout.strip() or run.stderr.strip() or "the program says that it cannot run here")
    if run.returncode != 0:
        pytest.fail(f"{unit.cmd[0]}: exit {run.returncode}\n{run.stdout}{run.stderr}", pytrace=False)


def test_files_are_registered(build: Path) -> None:
    """No NAME_test.c lies about without being run."""
    programs = {Path(unit.cmd[0]).name for unit in unit_tests(build)}
    files = {p.stem for p in (ROOT / "native" / "tests").rglob("*_test.c")}
    assert sorted(files - programs) == []
