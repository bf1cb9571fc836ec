"""What fv set out to reach, and whether it did: pure functions from results to a sentence with its figures.

Everything is for one tunnel thread pinned to one CPU, in namespaces, MTU 1420, medians. CPU and throughput targets
are over the TCP cells of `local` and `lan`; `lan-plain` has a target of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.summary import BY_NAME, Result, geometric_mean, mean, verdict

OTHERS = ("wireguard-go", "boringtun", "gotatun")

CPU_LIMIT = {"wireguard-go": 0.55, "boringtun": 0.25}
SPEED_FACTOR = 1.5
MEMORY_LIMIT_KIB = 4.5 * 1024


@dataclass(frozen=True)
class Verdict:
    target: str
    word: str  # reached, missed, or not measured
    figures: str


def pick(found: Sequence[Result], topologies: Sequence[str], cell: str = "tcp", restriction: str = "") -> list[Result]:
    return [
        result
        for result in found
        if result.spot.place.backend == "netns"
        and result.spot.threads == "1"
        and result.spot.pinned
        and result.spot.restriction == restriction
        and result.spot.topology in topologies
        and result.spot.cell.startswith(cell)
    ]


def table(found: Sequence[Result], metric: str) -> dict[str, dict[tuple[str, str], float]]:
    """implementation -> (topology, cell) -> median."""
    out: dict[str, dict[tuple[str, str], float]] = {}
    for result in found:
        figure = result.figure(metric)
        if figure is not None:
            out.setdefault(result.impl, {})[result.spot.topology, result.spot.cell] = figure.median
    return out


def missing(target: str) -> Verdict:
    return Verdict(target, "not measured", "")


def cpu(found: Sequence[Result]) -> list[Verdict]:
    verdicts = []
    for other, limit in CPU_LIMIT.items():
        for side in ("sending", "receiving"):
            target = f"CPU per Gbit, {side} side, at most {limit:g} of {other}'s"
            values = table(pick(found, ("local", "lan")), f"{side}_s_gbit")
            common = set(values.get("fv", {})) & set(values.get(other, {}))
            ours = mean(values["fv"][key] for key in common) if common else None
            theirs = mean(values[other][key] for key in common) if common else None
            if ours is None or theirs is None:
                verdicts.append(missing(target))
                continue
            ratio = ours / theirs
            text = f"{ours:.3f} to {theirs:.3f} s/Gbit: {ratio:.2f} (mean of {len(common)} TCP cells)"
            verdicts.append(Verdict(target, "reached" if ratio <= limit else "missed", text))
    return verdicts


def speed(found: Sequence[Result]) -> Verdict:
    target = f"throughput at least {SPEED_FACTOR:g} times the fastest other's (geometric mean), no cell behind"
    values = table(pick(found, ("local", "lan")), "mbit_s")
    ratios = {}
    for key, ours in values.get("fv", {}).items():
        others = [values[other][key] for other in OTHERS if key in values.get(other, {})]
        if others:
            ratios[key] = ours / max(others)
    factor = geometric_mean(ratios.values())
    if factor is None:
        return missing(target)
    behind = [f"{topology} {cell} {ratio:.2f}" for (topology, cell), ratio in ratios.items() if ratio < 1]
    text = f"{factor:.2f} times over {len(ratios)} TCP cells; " + (
        f"behind: {', '.join(behind)}" if behind else "none behind"
    )
    return Verdict(target, "reached" if factor >= SPEED_FACTOR and not behind else "missed", text)


def best_everywhere(
    target: str, found: Sequence[Result], metrics: Sequence[str], others: Sequence[str] = OTHERS
) -> Verdict:
    """Not behind anyone at any spot, in these metrics, beyond the spread."""
    compared, lost = 0, []
    for ours in found:
        if ours.impl != "fv":
            continue
        for other in found:
            if other.impl not in others or other.spot != ours.spot:
                continue
            for name in metrics:
                mine, theirs = ours.figure(name), other.figure(name)
                if mine is None or theirs is None:
                    continue
                compared += 1
                metric = BY_NAME[name]
                if verdict(mine, theirs, metric) == "lost":
                    scaled = f"{mine.median * metric.scale:.3g} to {theirs.median * metric.scale:.3g} {metric.unit}"
                    lost.append(f"{ours.spot} {metric.title} ({other.impl}: {scaled})")
    if not compared:
        return missing(target)
    text = f"{compared} comparisons" + (f"; behind: {'; '.join(lost)}" if lost else ", none behind")
    return Verdict(target, "missed" if lost else "reached", text)


def memory(found: Sequence[Result]) -> Verdict:
    target = f"peak resident memory at most {MEMORY_LIMIT_KIB / 1024:g} MiB with one peer"
    peaks = [
        figure.high
        for result in found
        if result.impl == "fv"
        and result.plain
        and result.spot.place.backend == "netns"
        and (figure := result.figure("peak_kib"))
    ]
    if not peaks:
        return missing(target)
    return Verdict(
        target, "reached" if max(peaks) <= MEMORY_LIMIT_KIB else "missed", f"{max(peaks) / 1024:.2f} MiB at most"
    )


def all_verdicts(found: Sequence[Result], restrictions: Sequence[str]) -> list[Verdict]:
    tunnels: Callable[[Sequence[str], str], list[Result]] = lambda topologies, cell: pick(found, topologies, cell)  # noqa: E731
    speed_and_cpu = ("mbit_s", "sending_s_gbit", "receiving_s_gbit")
    verdicts = [
        *cpu(found),
        speed(found),
        best_everywhere(
            "round trip, idle, not above the best other's",
            tunnels(("local", "lan", "lan-plain"), "rtt"),
            ["rtt_p50_us"],
        ),
        best_everywhere(
            "round trip under TCP load, p99, not above the best other's",
            tunnels(("local", "lan", "lan-plain"), "tcp"),
            ["rtt_p99_us"],
        ),
        memory(found),
        best_everywhere(
            "a LAN without TSO and GRO: best in throughput and CPU", tunnels(("lan-plain",), "tcp"), speed_and_cpu
        ),
    ]
    for restriction in restrictions:
        verdicts.append(
            best_everywhere(
                f"without {restriction}: ahead of boringtun and wireguard-go",
                pick(found, ("local", "lan"), "tcp", restriction),
                speed_and_cpu,
                ("boringtun", "wireguard-go"),
            )
        )
    return verdicts
