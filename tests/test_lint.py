"""The static checks, one case a tool; a case's message is the tool's own output."""

import difflib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.machine import ROOT

TOOLS = Path(sys.executable).parent
PYTHON_FOLDERS = [f for f in ("fv", "lab", "native", "tests") if any((ROOT / f).rglob("*.py"))]


def passes(*command: str | Path) -> None:
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))[:200]}\n{run.stdout}{run.stderr}", pytrace=False)


def c_files() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "native").rglob("*.[ch]"))


def test_ruff_check() -> None:
    passes(TOOLS / "ruff", "check", *PYTHON_FOLDERS)


def test_ruff_format() -> None:
    passes(TOOLS / "ruff", "format", "--check", *PYTHON_FOLDERS)


def test_mypy() -> None:
    passes(TOOLS / "mypy", *PYTHON_FOLDERS)


def test_clang_format() -> None:
    """Names the files and shows how each one's first difference should read."""
    wrong = []
    for file in c_files():
        text = (ROOT / file).read_text()
        run = subprocess.run([TOOLS / "clang-format", file], cwd=ROOT, capture_output=True, text=True, check=True)
        if run.stdout != text:
            diff = difflib.unified_diff(text.splitlines(), run.stdout.splitlines(), file, "formatted", n=0, lineterm="")
            wrong.append("\n".join([*diff][:8]))
    if wrong:
        pytest.fail("run ./task format\n" + "\n".join(wrong), pytrace=False)


def test_clang_tidy(build: Path) -> None:
    """Each source file of the engine; headers are seen through those that include them."""
    commands = json.loads((build / "compile_commands.json").read_text())
    here = {str(Path(c["directory"], c["file"]).resolve()) for c in commands}
    files = sorted(f for f in here if f.startswith(f"{ROOT}/native/") and f.endswith(".c"))
    files = [f for f in files if "/native/tests/" not in f]  # a test may include a .c, and its checks are its own

    def tidy(file: str) -> str:
        run = subprocess.run(
            [TOOLS / "clang-tidy", "--quiet", "-p", build, "--extra-arg=-Wno-unknown-warning-option", file],
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if run.returncode == 0 else run.stdout + run.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = [text for text in pool.map(tidy, files) if text]
    if findings:
        pytest.fail("\n".join(findings), pytrace=False)


@pytest.mark.needs("shellcheck")
def test_shellcheck() -> None:
    passes("shellcheck", "task", ".ci/run")
