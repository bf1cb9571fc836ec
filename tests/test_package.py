"""The package: what `pip install .` brings, and that engine and command agree on their version."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.machine import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built as pip builds it, but with the build tools of .venv, so that nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", folder, ROOT],
        check=True,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    (path,) = folder.glob("fv-*.whl")
    return path


def test_wheel_has_every_python_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {re.sub(r"^fv-[^/]*\.data/(pure|plat)lib/", "", n) for n in archive.namelist()}
    packed = {n for n in packed if n.startswith("fv/")}
    here = {str(p.relative_to(ROOT)) for p in [*(ROOT / "fv").rglob("*.py"), ROOT / "fv" / "py.typed"]}
    assert sorted(packed) == sorted(here)


def test_wheel_has_the_engine_and_the_command(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (engine,) = [n for n in archive.namelist() if n.endswith(".data/scripts/fvd")]
        (entry_points,) = [n for n in archive.namelist() if n.endswith("entry_points.txt")]
        assert "fv = fv.cli:main" in archive.read(entry_points).decode()
        path = Path(archive.extract(engine, tmp_path))
    path.chmod(0o755)
    fvd = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    assert fvd.split()[1] == wheel.name.split("-")[1]


def test_versions_agree(fvd: Path) -> None:
    engine = subprocess.run([fvd, "--version"], capture_output=True, text=True, check=True).stdout
    command = subprocess.run(
        [sys.executable, "-c", "from fv.cli import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert engine.split()[0] == "fvd"
    assert engine.split()[1] == command.split()[-1]


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
    ]
    assert [w for w in wanted if "==" not in w] == [], "not pinned"
    table = (ROOT / "docs" / "dependencies.md").read_text()
    rows = set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    assert sorted({w.split("==")[0] for w in wanted} - rows) == []
