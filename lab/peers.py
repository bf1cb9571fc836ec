"""The other implementations, built by their ordinary clients at pinned versions, outside the checkout.

    ~/.cache/fv/peers/bin/NAME      the program, by its plain name
    ~/.cache/fv/peers/bin-ARCH/     the same for guests of another architecture (--arch)
    ~/.cache/fv/peers/bin/NAME.pin  the version it was built from; another pin means: build again

Each WireGuard program takes under two minutes on two cores. The proxies take longer and are built when they are named,
or all of them by the name of their group, "proxies". A missing Go or Rust is named and counted, never passed over.
"""

import argparse
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Peer:
    name: str  # of the program in bin/
    version: str
    client: str  # the program that fetches and builds it
    command: tuple[str, ...]  # {version}, {root}, {jobs}
    product: str  # what the client leaves, under {root}
    environment: tuple[tuple[str, str], ...] = ()
    # For another architecture: what takes the place of the command and the product, and more environment.
    cross_command: tuple[str, ...] = ()
    cross_product: str = ""
    cross_environment: tuple[tuple[str, str], ...] = ()
    also: tuple[str, ...] = ()  # further programs of the same build, under {root}; they go by their own names

    @property
    def programs(self) -> tuple[str, ...]:
        return (self.name, *(Path(path).name for path in self.also))


CARGO = ("cargo", "install", "--quiet", "--locked", "--jobs", "{jobs}", "--root", "{root}")
CARGO_CROSS = (*CARGO, "--target", "{arch}-unknown-linux-gnu")

# The distribution's cross compiler links and compiles what is in C; `rustup target add` brings Rust's own library.
CROSS = (
    ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
    ("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc"),
)

# machine -> Go's name
GO_ARCH = {"aarch64": "arm64", "x86_64": "amd64"}

PEERS = (
    Peer(
        name="wireguard-go",
        version="v0.0.0-20260522210424-ecfc5a8d5446",
        client="go",
        command=("go", "install", "-p", "{jobs}", "golang.zx2c4.com/wireguard@{version}"),
        product="bin/wireguard",
        environment=(("GOBIN", "{root}/bin"), ("CGO_ENABLED", "0")),
        cross_product="bin/linux_{go_arch}/wireguard",
        # go refuses GOBIN when it cross-compiles, and would leave its module cache read-only
        cross_environment=(("GOBIN", ""), ("GOPATH", "{root}"), ("GOARCH", "{go_arch}"), ("GOFLAGS", "-modcacherw")),
    ),
    Peer(
        name="boringtun-cli",
        version="0.7.1",
        client="cargo",
        command=(*CARGO, "boringtun-cli@{version}"),
        product="bin/boringtun-cli",
        cross_command=(*CARGO_CROSS, "boringtun-cli@{version}"),
        cross_environment=CROSS,
    ),
    Peer(
        name="gotatun-cli",
        version="0.10.2",
        client="cargo",
        command=(*CARGO, "gotatun-cli@{version}"),
        product="bin/gotatun",
        cross_command=(*CARGO_CROSS, "gotatun-cli@{version}"),
        cross_environment=CROSS,
    ),
)

# What speaks SOCKS5, HTTP, Shadowsocks and the protocols after them.
PROXIES = (
    Peer(
        name="sing-box",
        version="v1.14.1",
        client="go",
        command=(
            *("go", "install", "-p", "{jobs}", "-tags", "with_quic,with_utls,with_gvisor,with_clash_api"),
            "github.com/sagernet/sing-box/cmd/sing-box@{version}",
        ),
        product="bin/sing-box",
        environment=(("GOBIN", "{root}/bin"), ("CGO_ENABLED", "0")),
    ),
    Peer(
        name="xray",
        version="v1.260327.0",
        client="go",
        command=("go", "install", "-p", "{jobs}", "github.com/xtls/xray-core/main@{version}"),
        product="bin/main",
        environment=(("GOBIN", "{root}/bin"), ("CGO_ENABLED", "0")),
    ),
    Peer(
        name="ssserver",
        version="1.25.0",
        client="cargo",
        command=(*CARGO, "shadowsocks-rust@{version}"),
        product="bin/ssserver",
        also=("bin/sslocal",),
    ),
)

GROUPS = {"wireguard": PEERS, "proxies": PROXIES}
ALL = (*PEERS, *PROXIES)

HOW_TO_GET = {
    "go": "install Go 1.23 or newer: your distribution's golang package, or the archive from go.dev",
    "cargo": "install Rust 1.85 or newer: your distribution's rustup or cargo package, or rustup.rs",
}

# Where a client's installer puts it, when the shell's profile has not been read.
ALSO_IN = ("~/.cargo/bin", "/usr/local/go/bin", "~/go/bin")


def cache() -> Path:
    """fv's folder in the user's cache; outside the checkout, so that it outlives it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fv"


def binaries(arch: str = platform.machine()) -> Path:
    return cache() / "peers" / ("bin" if arch == platform.machine() else f"bin-{arch}")


def search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), *(str(Path(p).expanduser()) for p in ALSO_IN)])


def installed(peer: Peer, arch: str) -> bool:
    pin = binaries(arch) / f"{peer.name}.pin"
    return (
        all((binaries(arch) / program).is_file() for program in peer.programs)
        and pin.is_file()
        and pin.read_text().strip() == peer.version
    )


def build(peer: Peer, jobs: int, arch: str) -> None:
    """Builds one peer; raises CalledProcessError with the client's own words on stderr."""
    cross = arch != platform.machine()
    root = cache() / "peers" / (f"{peer.name}-{arch}" if cross else peer.name)
    words = {"version": peer.version, "root": str(root), "jobs": str(jobs), "arch": arch}
    words["go_arch"] = GO_ARCH.get(arch, arch)
    command = peer.cross_command or peer.command if cross else peer.command
    product = peer.cross_product or peer.product if cross else peer.product
    environment = {**os.environ, "PATH": search_path()}
    for key, value in peer.environment + (peer.cross_environment if cross else ()):
        environment[key] = value.format(**words)
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run([part.format(**words) for part in command], check=True, env=environment)
    binaries(arch).mkdir(parents=True, exist_ok=True)
    shutil.copy2(root / product.format(**words), binaries(arch) / peer.name)
    for path in peer.also:
        shutil.copy2(root / path, binaries(arch) / Path(path).name)
    (binaries(arch) / f"{peer.name}.pin").write_text(peer.version + "\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help=f"which, or a group ({', '.join(GROUPS)}); default: wireguard")
    parser.add_argument("--arch", default=platform.machine(), help="of the machine they will run on: x86_64, aarch64")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="compilers at once")


def run(args: argparse.Namespace) -> int:
    choices = GROUPS | {peer.name: (peer,) for peer in ALL}
    for name in args.names:
        if name not in choices:
            print(f"peers: no peer is called {name} (there are {', '.join(sorted(choices))})")
            return 2
    skipped: list[str] = []
    failed: list[str] = []
    for peer in dict.fromkeys(peer for name in args.names or ["wireguard"] for peer in choices[name]):
        if installed(peer, args.arch):
            print(f"peers: {peer.name} {peer.version}: there already")
        elif shutil.which(peer.client, path=search_path()) is None:
            print(f"peers: {peer.name} {peer.version}: SKIPPED, there is no {peer.client}: {HOW_TO_GET[peer.client]}")
            skipped.append(peer.name)
        else:
            print(f"peers: {peer.name} {peer.version}: building with {peer.client}", flush=True)
            try:
                build(peer, args.jobs, args.arch)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"peers: {peer.name} {peer.version}: FAILED: {error}")
                failed.append(peer.name)
    if skipped:
        print(f"peers: {len(skipped)} skipped: {', '.join(skipped)}")
    print(f"peers: in {binaries(args.arch)}")
    return 1 if failed else 0
