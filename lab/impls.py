"""`task test:impls`: every implementation through the same cells, interleaved, every sample into the log.

For each sample, for each topology, for each implementation: a fresh network, the implementation on both sides,
the cells one after another, everything away. So a slow minute of the machine hits all of them alike.
"""

import argparse
import datetime as dt
import itertools
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import cells, implementations, log, machine, topology
from lab.cells import Cell
from lab.errors import LabError
from lab.implementations import Implementation
from lab.tunnel import MTU, Keys, Pinning, Tunnel, make_keys, one_cpu_each


@dataclass(frozen=True)
class Profile:
    seconds: float
    samples: int
    cells: str  # run when none are named
    sets: str


PROFILES = {
    "quick": Profile(3, 1, "rtt,tcp1,tcp8-up", "main"),
    "full": Profile(15, 3, "rtt,tcp1,tcp8,udp64", "main,threads,restrictions"),
}

# What is run besides what is named on the command line: a set fills in what the command line leaves open.
SETS: dict[str, dict[str, str]] = {
    # every implementation, one thread, everywhere
    "main": {},
    # what more threads do for one
    "threads": {
        "impls": "fv,wireguard-go,boringtun",
        "threads": "1,2,4,ships",
        "pin": "none",
        "topologies": "local",
        "cells": "tcp1-up,tcp8-up",
    },
    # a kernel that lacks a feature
    "restrictions": {
        "impls": "fv,wireguard-go,boringtun",
        "restrict": ",".join(implementations.RESTRICTIONS),
        "topologies": "local",
        "cells": "tcp1,tcp8-up",
    },
}

PREFIX = "lab"


@dataclass(frozen=True)
class Variant:
    """An implementation as it is run here."""

    implementation: Implementation
    threads: str  # a number, or "ships"
    restriction: str = ""
    pinned: bool = True  # one CPU a side, where it is asked for one thread

    @property
    def title(self) -> str:
        words = [self.implementation.name, f"threads={self.threads}"]
        return " ".join([*words, f"without {self.restriction}"] if self.restriction else words)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="quick")
    parser.add_argument("--impls", default="", help="comma-separated; default: all but the kernel where it has none")
    parser.add_argument("--cells", default="", help=f"comma-separated, of {', '.join(cells.BY_NAME)}")
    parser.add_argument("--topologies", default="", help=f"comma-separated, of {', '.join(topology.TOPOLOGIES)}")
    parser.add_argument("--threads", default="", help="comma-separated numbers of data-plane threads, or ships")
    parser.add_argument(
        "--restrict", default="", help=f"comma-separated, each in turn: none, {', '.join(implementations.RESTRICTIONS)}"
    )
    parser.add_argument(
        "--pin", choices=("one", "none"), default="", help="one thread: one CPU a side (default), or none"
    )
    parser.add_argument("--sets", default="", help=f"comma-separated, of {', '.join(SETS)} (default: the profile's)")
    parser.add_argument("--samples", type=int, help="of each cell (default: the profile's)")
    parser.add_argument("--seconds", type=float, help="of each sample (default: the profile's)")
    parser.add_argument("--log", type=Path, default=log.DEFAULT)


def in_set(args: argparse.Namespace, name: str) -> argparse.Namespace:
    """The arguments with a set's own values where none were given."""
    if name not in SETS:
        raise LabError(f"no set is called {name}", where="--sets", hint=", ".join(SETS))
    filled = argparse.Namespace(**vars(args))
    for key, value in (SETS[name] | {"threads": SETS[name].get("threads", "1")}).items():
        if not getattr(filled, key):
            setattr(filled, key, value)
    if not filled.cells:
        filled.cells = PROFILES[args.profile].cells
    return filled


def split(words: str) -> list[str]:
    return [word for word in words.split(",") if word]


def variants(args: argparse.Namespace) -> list[Variant]:
    names = split(args.impls) or [i.name for i in implementations.IMPLEMENTATIONS if i.bench == "impls"]
    for name in names:
        if name not in implementations.BY_NAME:
            raise LabError(
                f"no implementation is called {name}", where="--impls", hint=", ".join(implementations.BY_NAME)
            )
    restrictions = ["" if word == "none" else word for word in split(args.restrict) or ["none"]]
    for word in restrictions:
        if word and word not in implementations.RESTRICTIONS:
            raise LabError(
                f"no restriction is called {word}", where="--restrict", hint=", ".join(implementations.RESTRICTIONS)
            )
    chosen = []
    for restriction, threads, name in itertools.product(restrictions, split(args.threads), names):
        if threads != "ships" and not (threads.isdigit() and int(threads) > 0):
            raise LabError(f"{threads} is no number of threads", where="--threads", hint="1, 2, 4 or ships")
        chosen.append(Variant(implementations.BY_NAME[name], threads, restriction, pinned=args.pin != "none"))
    return chosen


def chosen_topologies(args: argparse.Namespace) -> list[str]:
    names = split(args.topologies) or list(topology.TOPOLOGIES)
    for name in names:
        if name not in topology.TOPOLOGIES:
            raise LabError(f"no topology is called {name}", where="--topologies", hint=", ".join(topology.TOPOLOGIES))
    return names


def unsupported(variant: Variant) -> str:
    """Why this variant has no meaning; "" when it has one. What is missing is another thing."""
    implementation = variant.implementation
    if variant.restriction and not implementation.restrict:
        return f"{implementation.title} cannot be refused a kernel feature"
    if variant.threads not in {"1", "ships"} and not implementations.threads_can_be_set(implementation):
        return f"{implementation.title} has no setting for threads"
    return ""


def pinning(variant: Variant) -> Pinning:
    """One thread: one CPU a side. More, or as it ships, or not pinned: every CPU, as its user would run it."""
    return one_cpu_each(machine.cpus()) if variant.threads == "1" and variant.pinned else Pinning()


def common_columns(bench: str, args: argparse.Namespace, run_number: str) -> dict[str, object]:
    return {
        "run": run_number,
        "bench": bench,
        "backend": os.environ.get("LAB_BACKEND", "netns"),
        "accelerator": os.environ.get("LAB_ACCELERATOR", "native"),
        "machine": machine.describe(),
        "arch": machine.architecture(),
        "kernel": machine.kernel(),
        "commit": machine.commit(),
        "profile": args.profile,
    }


def now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def run_cells(
    variant: Variant, where: str, todo: list[Cell], keys: Keys, seconds: float
) -> Iterator[tuple[Cell, dict[str, object]]]:
    """A fresh network and tunnel, then each cell. A failure is a row; a failed start fails all that is left."""
    pins = pinning(variant)
    fixed: dict[str, object] = {"pinning": str(pins), "mtu": MTU, "seconds": seconds}
    left = list(todo)
    try:
        with (
            topology.Network(f"{PREFIX}-{os.getpid()}") as network,
            Tunnel(
                variant.implementation,
                topology.build(network, where),
                keys,
                pinning=pins,
                threads=variant.threads,
                restriction=variant.restriction,
            ) as tunnel,
        ):
            while left:
                tunnel.check_alive()
                begun, load = now(), os.getloadavg()[0]
                try:
                    row = {"status": "ok"} | cells.measure(tunnel, left[0], seconds)
                except LabError as error:
                    row = {"status": "failed", "error": str(error)}
                yield left.pop(0), fixed | {"date": begun, "load": load} | row
    except LabError as error:
        for cell in left:
            yield cell, fixed | {"date": now(), "status": "failed", "error": str(error)}


def describe(row: dict[str, object]) -> str:
    if row["status"] != "ok":
        return f"{row['status']}: {row.get('error', '')}"
    words = []
    if row.get("mbit_s") is not None:
        words.append(f"{float(str(row['mbit_s'])):7.0f} Mbit/s")
    if row.get("packets_s") is not None:
        words.append(f"{float(str(row['packets_s'])) / 1000:.0f} kpacket/s")
    if "a_user_s_gbit" in row:
        a = float(str(row["a_user_s_gbit"])) + float(str(row["a_system_s_gbit"]))
        b = float(str(row["b_user_s_gbit"])) + float(str(row["b_system_s_gbit"]))
        words.append(f"CPU {a:.3f}+{b:.3f} s/Gbit")
    if row.get("rtt_p50_us") is not None:
        words.append(f"RTT {float(str(row['rtt_p50_us'])):.0f} us, p99 {float(str(row['rtt_p99_us'])):.0f} us")
    if "a_peak_kib" in row:
        words.append(f"peak {int(str(row['a_peak_kib'])) / 1024:.1f} MiB, {row['a_threads']} threads")
    return ", ".join(words)


def run(args: argparse.Namespace) -> int:
    named = any((args.impls, args.threads, args.restrict))  # then that is what is wanted, and no set besides
    sets = split(args.sets) or (["main"] if named else split(PROFILES[args.profile].sets))
    return max(run_bench("impls", in_set(args, name)) for name in sets)


def run_bench(bench: str, args: argparse.Namespace) -> int:
    profile = PROFILES[args.profile]
    samples, seconds = args.samples or profile.samples, args.seconds or profile.seconds
    todo = cells.select(split(args.cells))
    places = chosen_topologies(args)
    topology.leftovers(PREFIX)
    common = common_columns(bench, args, str(time.time_ns() // 1_000_000))
    usable: list[Variant] = []
    skipped: list[str] = []
    for variant in variants(args):
        why_missing, why_unsupported = implementations.missing(variant.implementation), unsupported(variant)
        if why_missing:
            skipped.append(f"{variant.title}: {why_missing}")
        elif why_unsupported:
            row = identity(variant) | {"date": now(), "status": "unsupported", "error": why_unsupported}
            log.append(args.log, [common | row])
            skipped.append(f"{variant.title}: unsupported: {why_unsupported}")
        else:
            usable.append(variant)
    identities = {variant: identity(variant) for variant in usable}
    keys = make_keys()
    results: dict[tuple[str, str, str], list[dict[str, object]]] = defaultdict(list)
    failures = 0
    for sample, where, variant in itertools.product(range(1, samples + 1), places, usable):
        for cell, row in run_cells(variant, where, todo, keys, seconds):
            settings = {"topology": where, "cell": cell.name, "direction": cell.direction, "streams": cell.streams}
            log.append(args.log, [common | identities[variant] | settings | {"sample": sample} | row])
            print(f"{sample} {where:9} {variant.title:28} {cell.name:10} {describe(row)}", flush=True)
            failures += row["status"] != "ok"
            results[where, cell.name, variant.title].append(row)
    print_medians(results)
    for line in skipped:
        print(f"SKIPPED {line}")
    print(f"{bench}: {len(usable)} run, {len(skipped)} skipped, {failures} cells failed; log: {args.log}")
    return 1 if failures else 0


def identity(variant: Variant) -> dict[str, object]:
    implementation = variant.implementation
    return {
        "path": implementation.path,
        "path_version": os.environ.get("LAB_PATH_VERSION") or machine.path_version(implementation.path)
        if implementation.path
        else "",
        "impl": implementation.name,
        "impl_version": implementations.version(implementation),
        "threads": variant.threads,
        "restriction": variant.restriction,
    }


def print_medians(results: dict[tuple[str, str, str], list[dict[str, object]]]) -> None:
    print()
    for (where, cell, title), rows in sorted(results.items()):
        speeds = [float(str(row["mbit_s"])) for row in rows if row.get("mbit_s") is not None]
        if speeds:
            spread = f"{min(speeds):.0f} to {max(speeds):.0f}"
            print(f"{where:9} {cell:10} {title:28} median {statistics.median(speeds):.0f} Mbit/s ({spread})")
