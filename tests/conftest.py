"""What every test shares: where the builds are, and what happens where the machine lacks something.

A test that cannot run here says what it needs:

    @pytest.mark.needs("root", "tun", "wg")

Each name is one of CHECKS in tests/machine.py or a program in PATH. What is lacking skips the test by name; the closing
summary counts the skipped tests by what was lacking, so that nothing is left out in silence.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.machine import ROOT, SANITIZER_ENV, how_to_get, machine_has


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fv")
    group.addoption("--build", default=str(ROOT / "build"), help="the build folder whose fvd is tested")
    group.addoption("--build-asan", default=str(ROOT / "build-asan"), help="the same with ASan and UBSan")
    group.addoption("--build-fuzz", default=str(ROOT / "build-fuzz"), help="the folder with the fuzz targets")
    group.addoption("--fuzz-seconds", type=int, default=60, help="how long each fuzz target runs")


def pytest_configure(config: pytest.Config) -> None:
    """Programs that look for the engine themselves take the one under test; a sanitizer's finding ends it."""
    fvd = str(Path(config.getoption("--build")) / "fvd")
    os.environ.setdefault("FVD", fvd)  # the tests' own helpers
    os.environ.setdefault("FV_FVD", fvd)  # fv/engine.py
    for name, value in SANITIZER_ENV.items():
        os.environ.setdefault(name, value)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if not machine_has(name):
                pytest.skip(f"needs {name}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Groups what was skipped by what the machine lacks."""
    lacking: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        lacking.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    if not lacking:
        return
    terminalreporter.section("skipped here")
    for reason, tests in sorted(lacking.items()):
        name = reason.removeprefix("needs ")
        hint = f" ({how_to_get(name)})" if reason.startswith("needs ") else ""
        terminalreporter.line(f"{len(tests)} skipped, {reason}{hint}:")
        for test, cases in Counter(nodeid.split("[")[0] for nodeid in tests).items():
            terminalreporter.line(f"    {test}" + (f" ({cases} cases)" if cases > 1 else ""))


def _built(config: pytest.Config, option: str, job: str) -> Path:
    folder = Path(config.getoption(option))
    if not (folder / "build.ninja").exists():
        pytest.fail(f"{folder} is not built: run ./task {job}", pytrace=False)
    return folder


@pytest.fixture(scope="session")
def build(request: pytest.FixtureRequest) -> Path:
    """The build folder under test."""
    return _built(request.config, "--build", "build")


@pytest.fixture(scope="session")
def fvd(build: Path) -> Path:
    """The engine under test. `--build build-asan` runs the same tests against the sanitized one."""
    return build / "fvd"
