"""Prints the package's files, for fv/meson.build: one path a line, relative to this folder."""

from pathlib import Path


def package_files() -> list[str]:
    """Every Python file of the package, and py.typed, in one order on every machine."""
    folder = Path(__file__).resolve().parent
    return sorted(str(p.relative_to(folder)) for p in [*folder.rglob("*.py"), folder / "py.typed"])


if __name__ == "__main__":
    print("\n".join(package_files()))
