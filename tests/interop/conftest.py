"""The engine under test is that of `--build` (tests/conftest.py) unless FVD names a program."""

import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("FVD", str(Path(config.getoption("--build")).resolve() / "fvd"))
