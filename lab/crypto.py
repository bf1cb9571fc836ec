"""`task bench:crypto`: encapsulate and decapsulate with no socket and no TUN, per direction and size.

1 s of warm-up, 100 samples, 3 s in each direction and size (`--profile full`). Every program does the same work on the
same ring of 256 packets and reads its own thread's CPU time:

    fv              native/tests/bench/bench_transport.c: WireGuard's core, 32 packets at a time and one at a time
    boringtun       lab/bench_peers/boringtun: its Tunn, one packet at a time
    wireguard-go    lab/bench_peers/wireguard-go: its cipher, header and replay filter; the rest cannot be had alone

`--emulate ARCH=PROGRAM` counts instead: executed instructions per packet of a bench_transport built for another
architecture, under QEMU's user emulation with lab/native/count.c as its plugin.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import implementations, impls, log, machine, peers
from lab.errors import LabError

SOURCES = machine.CHECKOUT / "lab" / "bench_peers"

SIZES = (64, 128, 256, 512, 1024, 1420, 2048, 4096, 8920)

PROFILES = {  # ms of a sample, samples, ms of warm-up
    "quick": (10, 11, 100),
    "full": (30, 100, 1000),
}

# QEMU's user emulators, by machine.
EMULATORS = {"aarch64": "qemu-aarch64", "armv7l": "qemu-arm", "x86_64": "qemu-x86_64"}

# Where the distribution's cross compilers have the C library of that architecture.
LIBRARIES = {"aarch64": "/usr/aarch64-linux-gnu", "armv7l": "/usr/arm-linux-gnueabihf", "x86_64": "/"}


@dataclass(frozen=True)
class Bench:
    impl: str
    program: Path
    version: str
    path: str
    batches: tuple[int, ...]  # () : the program takes no batch


def stamp(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def build_peer(name: str, client: str, command: Sequence[str], product: Path) -> Path:
    """Builds a peer's bench program into the cache, once per version of its sources."""
    folder = SOURCES / name
    mark = product.with_name(product.name + ".stamp")
    if product.is_file() and mark.is_file() and mark.read_text() == stamp(folder):
        return product
    if shutil.which(client, path=peers.search_path()) is None:
        raise LabError(f"there is no {client}", where=f"{name}'s bench", hint=peers.HOW_TO_GET[client])
    print(f"crypto: building {name}'s bench with {client}", flush=True)
    product.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PATH": peers.search_path(), "CARGO_TARGET_DIR": str(product.parent / "target")}
    # In a copy: cargo writes its lock file beside the sources, and a lock file names the registry's host.
    sources = product.parent / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(folder, sources)
    subprocess.run(command, check=True, cwd=sources, env=environment)
    built = product.parent / "target" / "release" / product.name
    if built.is_file():
        shutil.copy2(built, product)
    mark.write_text(stamp(folder))
    return product


def find_own() -> Path:
    for folder in implementations.folders():
        program = folder / "native" / "tests" / "bench" / "bench_transport"
        if program.is_file():
            return program
    raise LabError("there is no bench_transport", where="build", hint="`task build`")


def benches(names: Sequence[str]) -> Iterator[Bench | tuple[str, str]]:
    """What can be run, or a name and why it cannot."""
    home = peers.cache() / "bench"
    versions = {peer.name: peer.version for peer in peers.PEERS}
    if "fv" in names:
        yield Bench("fv", find_own(), implementations.version(implementations.BY_NAME["fv"]), "wireguard", (32, 1))
    if "boringtun" in names:
        command = ["cargo", "build", "--quiet", "--release", "--jobs", "2"]
        product = home / "boringtun" / "bench-boringtun"
        try:
            program = build_peer("boringtun", "cargo", command, product)
            yield Bench("boringtun", program, versions["boringtun-cli"], "", ())
        except (LabError, subprocess.CalledProcessError) as error:
            yield "boringtun", str(error)
    if "wireguard-go" in names:
        product = home / "wireguard-go" / "bench-wireguard-go"
        try:
            program = build_peer("wireguard-go", "go", ["go", "build", "-p", "2", "-o", str(product), "."], product)
            yield Bench("wireguard-go", program, versions["wireguard-go"], "", ())
        except (LabError, subprocess.CalledProcessError) as error:
            yield "wireguard-go", str(error)


def measure(bench: Bench, size: int, batch: int | None, profile: str) -> Iterator[dict[str, object]]:
    ms, samples, warmup = PROFILES[profile]
    command = [str(bench.program), "--size", str(size), "--ms", str(ms), "--samples", str(samples)]
    command += ["--warmup-ms", str(warmup), *(["--batch", str(batch)] if batch else [])]
    cpu = machine.cpus()[-1]

    def pin() -> None:
        os.sched_setaffinity(0, [cpu])

    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=pin)
    if done.returncode:
        raise LabError(done.stderr.strip()[-200:], where=bench.impl)
    for line in done.stdout.splitlines():
        told = json.loads(line)
        yield {
            "cell": cell_name(told["what"], size, batch),
            "direction": "up" if told["what"] == "encapsulate" else "down",
            "seconds": ms * samples / 1000,
            "pinning": f"a={cpu}",
            "ns_packet": float(told["ns"]),
            "ns_packet_low": float(told["ns_low"]),
            "ns_packet_high": float(told["ns_high"]),
        }


def cell_name(what: str, size: int, batch: int | None) -> str:
    return f"{what} {size}" + (" alone" if batch == 1 else "")


def count(program: Path, arch: str, size: int, plugin: Path) -> float:
    """Executed instructions per packet, both directions: the difference of two runs, so that start and handshake go."""
    emulator = shutil.which(EMULATORS[arch]) or shutil.which(EMULATORS[arch] + "-static")
    if emulator is None:
        raise LabError(f"there is no {EMULATORS[arch]}", where="--emulate", hint="install qemu-user")
    counts = []
    for packets in (64, 64 + 640):
        command = [emulator, "-plugin", str(plugin), "-d", "plugin", str(program)]
        command += ["--size", str(size), "--packets", str(packets), "--batch", "32"]
        environment = {"QEMU_LD_PREFIX": LIBRARIES[arch], **os.environ}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
        found = re.search(r"instructions (\d+)", done.stderr + done.stdout)
        if done.returncode or not found:
            raise LabError(done.stderr.strip()[-200:] or "no count", where=f"{emulator} -plugin")
        counts.append(int(found.group(1)))
    return (counts[1] - counts[0]) / 640


def build_plugin() -> Path:
    product = peers.cache() / "bench" / "count.so"
    source = machine.CHECKOUT / "lab" / "native" / "count.c"
    product.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(product), str(source)], check=True)
    return product


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="quick")
    parser.add_argument("--impls", default="fv,boringtun,wireguard-go", help="comma-separated")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, comma-separated")
    parser.add_argument(
        "--emulate", action="append", default=[], metavar="ARCH=PROGRAM", help=f"ARCH: {', '.join(EMULATORS)}"
    )
    parser.add_argument("--log", type=Path, default=log.DEFAULT)


def identity(bench: Bench) -> dict[str, object]:
    return {
        "path": bench.path,
        "path_version": machine.path_version(bench.path),
        "impl": bench.impl,
        "impl_version": bench.version,
        "topology": "core",
        "threads": "1",
        "sample": 1,
    }


def run_emulated(args: argparse.Namespace, common: dict[str, object], sizes: Sequence[int]) -> int:
    plugin = build_plugin()
    for word in args.emulate:
        arch, _, program = word.partition("=")
        if arch not in EMULATORS or not Path(program).is_file():
            raise LabError(f"{word}: no such architecture or program", where="--emulate", hint="aarch64=PROGRAM")
        bench = Bench("fv", Path(program), implementations.version(implementations.BY_NAME["fv"]), "wireguard", ())
        where = {
            "arch": arch,
            "accelerator": "tcg",
            "backend": "qemu",
            "kernel": "user emulation",
            "machine": "emulated",
        }
        for size in sizes:
            number = count(bench.program, arch, size, plugin)
            row = {"date": impls.now(), "status": "ok", "size": size, "cell": f"both directions {size}"}
            row |= {"direction": "up", "instructions_packet": number}
            log.append(args.log, [common | where | identity(bench) | row])
            print(f"{arch:9} fv {size:5} bytes: {number:.0f} instructions a packet, both directions", flush=True)
    return 0


def run(args: argparse.Namespace) -> int:
    sizes = [int(word) for word in impls.split(args.sizes)]
    common = impls.common_columns("crypto", args, str(time.time_ns() // 1_000_000))
    if args.emulate:
        return run_emulated(args, common, sizes)
    usable: list[Bench] = []
    skipped: list[str] = []
    for found in benches(impls.split(args.impls)):
        if isinstance(found, Bench):
            usable.append(found)
        else:
            skipped.append(f"{found[0]}: {found[1]}")
    failures = 0
    for size in sizes:
        for bench in usable:
            for batch in bench.batches or (None,):
                begun, load = impls.now(), os.getloadavg()[0]
                fixed = common | identity(bench) | {"date": begun, "load": load, "size": size}
                try:
                    rows = [fixed | {"status": "ok"} | row for row in measure(bench, size, batch, args.profile)]
                except LabError as error:
                    rows = [fixed | {"cell": cell_name("both", size, batch), "status": "failed", "error": str(error)}]
                    failures += 1
                log.append(args.log, rows)
                for row in rows:
                    told = (
                        f"{float(str(row['ns_packet'])):8.1f} ns" if "ns_packet" in row else f"failed: {row['error']}"
                    )
                    print(f"{bench.impl:13} {row['cell']!s:24} {told}", flush=True)
    for line in skipped:
        print(f"SKIPPED {line}")
    print(
        f"crypto: {len(usable)} run, {len(skipped)} skipped, {failures} failed on {platform.machine()}; log: {args.log}"
    )
    return 1 if failures else 0
