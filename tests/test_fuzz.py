"""Every fuzz target runs for --fuzz-seconds from its kept corpus (tests/corpus/NAME) and finds nothing.

Targets run side by side, one a CPU, so that n targets take n * seconds / CPUs. What a run discovers is thrown away: a
finding is printed as libFuzzer printed it, and whoever mends it adds the input to the corpus.
"""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.machine import ROOT, SANITIZER_ENV

TARGETS = sorted(p.stem.removesuffix("_fuzz") for p in (ROOT / "native" / "fuzz").glob("*_fuzz.c"))


def _fuzz(program: Path, corpus: Path, scratch: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    work = scratch / "corpus"
    work.mkdir(parents=True)
    command: list[str | Path] = [
        program,
        f"-max_total_time={seconds}",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={scratch}/",
        work,
    ]
    if corpus.is_dir():
        command.append(corpus)
    return subprocess.run(
        command,
        env=os.environ | SANITIZER_ENV,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + 120,
        check=False,
    )


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """All selected targets, started at once and queued for the CPUs."""
    folder = Path(request.config.getoption("--build-fuzz"))
    if not (folder / "build.ninja").exists():
        pytest.fail(f"{folder} is not built: run ./task build:fuzz", pytrace=False)
    selected = [
        str(item.callspec.params["target"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_target_finds_nothing"
    ]
    pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
    seconds = request.config.getoption("--fuzz-seconds")
    yield {
        target: pool.submit(
            _fuzz,
            folder / "native" / "fuzz" / f"{target}_fuzz",
            ROOT / "tests" / "corpus" / target,
            tmp_path_factory.mktemp(target),
            seconds,
        )
        for target in selected
    }
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("target", TARGETS)
def test_target_finds_nothing(target: str, runs: dict[str, Future[subprocess.CompletedProcess[str]]]) -> None:
    run = runs[target].result()
    assert run.returncode == 0, run.stderr[-8000:]
    assert "stat::number_of_executed_units" in run.stderr
