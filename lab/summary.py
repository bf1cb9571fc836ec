"""The log as figures: pure functions from rows to medians with their spread, and which of two is better.

A figure is the median of the samples of one run: the newest run at full length that has the cell, else the newest
quick one. Its spread is the distance from the lowest to the highest sample. Two figures are level when they differ
by less than 5 % or than the wider of their spreads.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.05

Row = Mapping[str, str]


@dataclass(frozen=True)
class Figure:
    median: float
    low: float
    high: float
    samples: int

    @property
    def spread(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    unit: str
    kind: str  # speed, CPU, memory or latency
    more_is_better: bool
    scale: float = 1.0  # from the log's unit to this one
    digits: int = 3  # significant


METRICS = (
    Metric("mbit_s", "throughput", "Gbit/s", "speed", True, 1e-3),
    Metric("packets_s", "datagrams received", "k/s", "speed", True, 1e-3),
    Metric("sending_s_gbit", "CPU, sending side", "s/Gbit", "CPU", False),
    Metric("receiving_s_gbit", "CPU, receiving side", "s/Gbit", "CPU", False),
    Metric("machine_s_gbit", "CPU, whole machine", "s/Gbit", "CPU", False),
    Metric("peak_kib", "peak resident memory", "MiB", "memory", False, 1 / 1024),
    Metric("rtt_p50_us", "round trip, median", "ms", "latency", False, 1e-3),
    Metric("rtt_p99_us", "round trip, p99", "ms", "latency", False, 1e-3),
)

BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Place:
    """Where figures can be compared with one another at all."""

    backend: str
    accelerator: str
    arch: str
    machine: str
    kernel: str

    def __str__(self) -> str:
        how = "namespaces" if self.backend == "netns" else f"a guest, {self.accelerator}"
        return f"{self.arch}, {how}, {self.machine}, kernel {self.kernel}"


@dataclass(frozen=True)
class Spot:
    """One cell of one place, under one setting: what several implementations have a figure for."""

    place: Place
    topology: str
    cell: str
    threads: str
    restriction: str
    pinned: bool  # to one CPU a side

    def __str__(self) -> str:
        return f"{self.topology} {self.cell}" + (f" without {self.restriction}" if self.restriction else "")


@dataclass(frozen=True)
class Result:
    """One implementation at one spot."""

    spot: Spot
    impl: str
    version: str
    run: str
    date: str
    profile: str
    seconds: str
    pinning: str
    stale: bool  # measured before the last change to the path it measures
    figures: Mapping[str, Figure]
    thread_count: int

    @property
    def plain(self) -> bool:
        """Of the comparison itself: one thread on one CPU, nothing refused."""
        return self.spot.threads == "1" and self.spot.pinned and not self.spot.restriction

    def figure(self, metric: str) -> Figure | None:
        return self.figures.get(metric)


def place_of(row: Row) -> Place:
    return Place(row["backend"], row["accelerator"], row["arch"], row["machine"], row["kernel"])


def number(row: Row, column: str) -> float | None:
    text = row.get(column, "")
    return float(text) if text else None


def total(row: Row, *columns: str) -> float | None:
    values = [number(row, column) for column in columns]
    present = [value for value in values if value is not None]
    return sum(present) if len(present) == len(columns) else None


def derived(row: Row) -> dict[str, float]:
    """The metrics of one sample. Sending and receiving are sides a and b by the cell's direction."""
    sender, receiver = ("a", "b") if row["direction"] == "up" else ("b", "a")
    values = {
        "mbit_s": number(row, "mbit_s"),
        "packets_s": number(row, "packets_s"),
        "loss_pct": number(row, "loss_pct"),
        "sending_s_gbit": total(row, f"{sender}_user_s_gbit", f"{sender}_system_s_gbit"),
        "receiving_s_gbit": total(row, f"{receiver}_user_s_gbit", f"{receiver}_system_s_gbit"),
        "sending_user": number(row, f"{sender}_user_s_gbit"),
        "sending_system": number(row, f"{sender}_system_s_gbit"),
        "receiving_user": number(row, f"{receiver}_user_s_gbit"),
        "receiving_system": number(row, f"{receiver}_system_s_gbit"),
        "machine_s_gbit": number(row, "machine_s_gbit"),
        "rtt_p50_us": number(row, "rtt_p50_us"),
        "rtt_p99_us": number(row, "rtt_p99_us"),
        "anonymous_kib": number(row, "a_anonymous_kib"),
        "file_kib": number(row, "a_file_kib"),
        "ns_packet": number(row, "ns_packet"),
        "instructions_packet": number(row, "instructions_packet"),
    }
    peaks = [peak for peak in (number(row, "a_peak_kib"), number(row, "b_peak_kib")) if peak is not None]
    if peaks:
        values["peak_kib"] = max(peaks)
    return {name: value for name, value in values.items() if value is not None}


def figures_of(rows: Sequence[Row]) -> dict[str, Figure]:
    samples: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in derived(row).items():
            samples[name].append(value)
    return {
        name: Figure(statistics.median(values), min(values), max(values), len(values))
        for name, values in samples.items()
    }


def newest(rows: Iterable[Row]) -> list[Row]:
    """The samples of the run that counts: full before quick, then by date."""
    by_run: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_run[row["run"]].append(row)
    return max(by_run.values(), key=lambda run: (run[0]["profile"] == "full", run[0]["date"], run[0]["run"]))


def results(rows: Iterable[Row], bench: str, current: Mapping[str, str]) -> list[Result]:
    """Figures of a bench, in the order of first appearance. `current`: path -> version of its sources now."""
    groups: dict[tuple[Spot, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["bench"] == bench and row["status"] == "ok":
            pinned = row["pinning"] not in {"", "none"}
            spot = Spot(place_of(row), row["topology"], row["cell"], row["threads"], row["restriction"], pinned)
            groups[spot, row["impl"]].append(row)
    found = []
    for (spot, impl), group in groups.items():
        chosen = newest(group)
        last = chosen[-1]
        stale = any(row["path"] and row["path_version"] != current.get(row["path"]) for row in chosen)
        counts = [number(row, "a_threads") for row in chosen]
        found.append(
            Result(
                spot=spot,
                impl=impl,
                version=last["impl_version"],
                run=last["run"],
                date=last["date"],
                profile=last["profile"],
                seconds=last["seconds"],
                pinning=last["pinning"],
                stale=stale,
                figures=figures_of(chosen),
                thread_count=int(max((count for count in counts if count is not None), default=0)),
            )
        )
    return found


def is_level(ours: Figure, other: Figure) -> bool:
    """5 % of the larger, or the wider spread."""
    return abs(ours.median - other.median) <= max(LEVEL * max(ours.median, other.median), ours.spread, other.spread)


def verdict(ours: Figure, other: Figure, metric: Metric) -> str:
    """ "won", "level" or "lost"."""
    if is_level(ours, other):
        return "level"
    return "won" if (ours.median > other.median) == metric.more_is_better else "lost"


def mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None


def geometric_mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return math.exp(statistics.fmean(math.log(value) for value in found)) if found else None


@dataclass(frozen=True)
class Loss:
    spot: Spot
    metric: Metric
    ours: Figure
    impl: str
    other: Figure


def losses(found: Sequence[Result], ours: str = "fv", ignore: Sequence[str] = ("none",)) -> list[Loss]:
    """Everything in which another implementation was better by more than the spread."""
    by_spot: dict[Spot, dict[str, Result]] = defaultdict(dict)
    for result in found:
        by_spot[result.spot][result.impl] = result
    lost = []
    for spot, here in by_spot.items():
        if ours not in here:
            continue
        for metric in METRICS:
            mine = here[ours].figure(metric.name)
            for impl, result in here.items():
                other = result.figure(metric.name)
                if impl == ours or impl in ignore or mine is None or other is None:
                    continue
                if metric.name == "mbit_s" and "packets_s" in result.figures:
                    continue  # the same thing in another unit
                if verdict(mine, other, metric) == "lost":
                    lost.append(Loss(spot, metric, mine, impl, other))
    return lost
