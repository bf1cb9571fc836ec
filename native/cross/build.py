"""Builds the engine for another architecture: build-ARCH/fvd, static, and fvd.stripped beside it.

    task build arch=arm64        ->  python native/cross/build.py arm64 [--setup-only] [--fresh] [TARGET...]

What it takes is the distribution's: the cross compiler with its C library (installed by ./task), and the target's own
libcrypto. That comes in packages of the other architecture, downloaded by a private apt and unpacked, never installed:
nothing of the machine's own apt is touched, root is not needed.

    ~/.cache/fv/sysroot/ARCH/usr/         libssl-dev and what its archive needs
    ~/.cache/fv/sysroot/ARCH/packages     name=version of each, for who wants to build the same bytes again
    ~/.cache/fv/sysroot/ARCH/sysroot.ini  names the folder to native/cross/ARCH.ini

The packages are looked for again with --fresh (a new libssl-dev), or when the distribution's release changed.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Target:
    triplet: str  # the compiler's, and the folder of libraries
    debian: str  # the distribution's name for it

    @property
    def compiler(self) -> str:
        return f"{self.triplet}-gcc"


TARGETS = {
    "x86_64": Target("x86_64-linux-gnu", "amd64"),
    "arm64": Target("aarch64-linux-gnu", "arm64"),
    "armv7": Target("arm-linux-gnueabihf", "armhf"),
    "armv5": Target("arm-linux-gnueabi", "armel"),
}

# What uname says of a machine -> its name here.
ALIASES = {"aarch64": "arm64", "armv7l": "armv7", "amd64": "x86_64"}

# A library that libcrypto's archive asks for (Debian 13's does) -> the package that has its archive.
LIBRARIES = {"z": "zlib1g-dev", "zstd": "libzstd-dev"}


class CrossError(Exception):
    """What is missing, and what to do."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fv" / "sysroot"


def release() -> str:
    """The distribution's name and version, as in "debian 12"."""
    found = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        found[key] = value.strip('"')
    return f"{found.get('ID', 'unknown')} {found.get('VERSION_ID', '')}".strip()


def apt(home: Path, target: Target, *words: str, where: Path | None = None) -> str:
    """apt with its own state: one architecture, no installed package, the machine's sources and keys."""
    state, archives = home / "apt" / "state", home / "apt" / "cache"
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (archives / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options = {
        "APT::Architecture": target.debian,
        "APT::Architectures": target.debian,
        "Dir::State": str(state),
        "Dir::State::status": "/dev/null",
        "Dir::Cache": str(archives),
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    if os.geteuid() == 0:
        options["APT::Sandbox::User"] = "root"
    command = [words[0], "-q", *(f"-o{key}={value}" for key, value in options.items()), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=where)
    if done.returncode:
        raise CrossError(f"{' '.join(words)} for {target.debian}: {done.stderr.strip()[-400:]}")
    return done.stdout


def candidate(home: Path, target: Target, package: str) -> str:
    """The version that the machine's sources have for this architecture; "" when they have none."""
    for line in apt(home, target, "apt-cache", "policy", package).splitlines():
        key, _, value = line.strip().partition(": ")
        if key == "Candidate" and value != "(none)":
            return value
    return ""


def lacking(arch: str) -> str:
    """Why nothing can be built for this architecture here; "" when it can (packages may have to be downloaded)."""
    target = TARGETS[arch]
    if shutil.which(target.compiler) is None:
        return f"{target.compiler} (./task build arch={arch} installs it on Debian and Ubuntu)"
    if has_sysroot(arch):
        return ""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            return f"{program}: libcrypto for {arch} comes in packages of Debian or Ubuntu"
    return ""


def has_sysroot(arch: str) -> bool:
    return (cache() / arch / "packages").is_file()


def add(home: Path, target: Target, package: str) -> str:
    """Downloads and unpacks a package; its version."""
    version = candidate(home, target, package)
    if not version:
        hint = f"add a source for {target.debian} to the machine's apt (`Architectures: {target.debian}`)"
        if release().startswith("ubuntu"):
            hint = f"Ubuntu keeps {target.debian} on its ports servers: {hint}"
            if target.debian == "armel":
                hint = "Ubuntu has no armel any more: build on Debian 12 or 13"
        raise CrossError(f"this machine's package sources have no {package} for {target.debian}: {hint}")
    for old in home.glob(f"{package}_*.deb"):
        old.unlink()
    apt(home, target, "apt-get", "download", package, where=home)
    archive = next(home.glob(f"{package}_*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(archive), str(home)], check=True)
    archive.unlink()
    return version


def needed_libraries(home: Path, target: Target) -> list[str]:
    """The packages of the archives that libcrypto's own says it needs."""
    words = (home / "usr" / "lib" / target.triplet / "pkgconfig" / "libcrypto.pc").read_text().split()
    named = {word[2:] for word in words if word.startswith("-l")}
    return [LIBRARIES[name] for name in sorted(named) if name in LIBRARIES]


def make_sysroot(arch: str, fresh: bool) -> Path:
    """The folder with the target's libcrypto, made now or found as it was made before."""
    target, home = TARGETS[arch], cache() / arch
    stamp = home / "packages"
    head = f"# {release()}\n"
    if stamp.is_file() and stamp.read_text().startswith(head) and not fresh:
        return home
    print(f"cross: fetching libcrypto for {arch} into {home}", flush=True)
    shutil.rmtree(home / "usr", ignore_errors=True)
    stamp.unlink(missing_ok=True)
    home.mkdir(parents=True, exist_ok=True)
    try:
        apt(home, target, "apt-get", "update")
    except CrossError as error:  # of many sources one may be out of order: what counts is whether the package is found
        print(f"cross: {error}", flush=True)
    versions = {"libssl-dev": add(home, target, "libssl-dev")}
    for package in needed_libraries(home, target):
        versions[package] = add(home, target, package)
    (home / "sysroot.ini").write_text(f"[constants]\nsysroot = '{home}'\n")
    stamp.write_text(head + "".join(f"{name}={version}\n" for name, version in versions.items()))
    return home


def run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], cwd=ROOT, check=False)
    if done.returncode:
        raise CrossError(f"{command[0]} {command[1]}: it ended with {done.returncode}, its own words are above")


def setup(arch: str, fresh: bool) -> Path:
    """build-ARCH, configured."""
    if why := lacking(arch):
        raise CrossError(f"there is no {why}")
    home, build = make_sysroot(arch, fresh), ROOT / f"build-{arch}"
    if fresh or not (build / "build.ninja").is_file():
        shutil.rmtree(build, ignore_errors=True)
        files = [f"--cross-file={home / 'sysroot.ini'}", f"--cross-file={ROOT / 'native' / 'cross' / f'{arch}.ini'}"]
        run("meson", "setup", build, *files)
    return build


def make_sysroots() -> None:
    """One for each other architecture whose compiler is here; where one fails, its tests say what they lack."""
    for arch in TARGETS:
        if arch != ALIASES.get(platform.machine(), platform.machine()) and not lacking(arch):
            try:
                make_sysroot(arch, fresh=False)
            except CrossError as error:
                print(f"cross: {error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="task build arch=ARCH")
    parser.add_argument("--sysroots", action="store_true", help="only fetch libcrypto for every compiler that is here")
    parser.add_argument("arch", nargs="?", type=lambda word: ALIASES.get(word, word), choices=TARGETS)
    parser.add_argument("--fresh", action="store_true", help="look for newer packages, build everything again")
    parser.add_argument("--setup-only", action="store_true", help="configure, build nothing")
    parser.add_argument("targets", nargs="*", help="what Ninja builds; everything when none is named")
    args = parser.parse_args()
    if args.sysroots:
        make_sysroots()
        return
    if args.arch is None:
        parser.error(f"which architecture? {', '.join(TARGETS)}")
    try:
        build = setup(args.arch, args.fresh)
        if not args.setup_only:
            run("ninja", "-C", build, "--quiet", *args.targets)
    except CrossError as error:
        sys.exit(f"cross: {error}")


if __name__ == "__main__":
    main()
