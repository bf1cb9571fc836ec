"""`task bench:report`: docs/benchmarks/README.md and its charts, from the log and nothing else.

Every number on that page is computed here from docs/benchmarks/results.csv; so are the sentences about who was
better. The checkout is asked one thing: which version of a path's sources is in it now, for the mark on older rows.
The same log and sources give the same page, byte for byte.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lab import implementations, log, machine, summary, targets
from lab.summary import BY_NAME, Figure, Metric, Place, Result

PAGE = log.DEFAULT.parent

STALE = "†"

TOPOLOGY_TEXT = {
    "local": "both ends of the load are the tunnel's ends",
    "lan": "a LAN behind a gateway",
    "lan-plain": "a LAN that delivers single 1,500-byte packets (TSO, GSO and GRO off)",
}


def value(metric: Metric, figure: Figure | None) -> str:
    """Median, and the spread where there was more than one sample."""
    if figure is None:
        return ""
    text = f"{figure.median * metric.scale:.{metric.digits}g}"
    if figure.samples > 1:
        text += f" ({figure.low * metric.scale:.{metric.digits}g} to {figure.high * metric.scale:.{metric.digits}g})"
    return text


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows),
        "",
    ]


def title(impl: str) -> str:
    known = implementations.BY_NAME.get(impl)
    return known.title if known else impl


def name(result: Result) -> str:
    return title(result.impl) + (f" {STALE}" if result.stale else "")


def order(results: Iterable[Result]) -> list[Result]:
    ranks = {impl: rank for rank, impl in enumerate(implementations.BY_NAME)}
    return sorted(results, key=lambda r: (ranks.get(r.impl, 99), r.impl))


def unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def places(results: Iterable[Result]) -> list[Place]:
    return list(dict.fromkeys(result.spot.place for result in results))


def how_measured(results: Sequence[Result]) -> str:
    """What a table's figures are of."""
    lengths = unique(
        f"{r.profile}: {max(f.samples for f in r.figures.values())} of {r.seconds} s" for r in results if r.figures
    )
    pins = unique(r.pinning for r in results)
    runs = {r.run for r in results}
    dates = sorted({r.date[:10] for r in results})
    text = f"Samples: {', '.join(lengths)}. CPUs: {'; '.join(pins)}. Measured {dates[0]}"
    text += f" to {dates[-1]}" if len(dates) > 1 else ""
    text += ", interleaved in one run." if len(runs) == 1 else f", in {len(runs)} runs: those are not interleaved."
    return text


def comparison(results: Sequence[Result]) -> list[str]:
    """Tables of one thread and no restriction, by place and topology."""
    lines: list[str] = []
    plain = [r for r in results if r.plain]
    for place in places(plain):
        lines += [f"### {place}", ""]
        here = [r for r in plain if r.spot.place == place]
        for topology in unique(r.spot.topology for r in here):
            there = [r for r in here if r.spot.topology == topology]
            lines += [f"**{topology}**: {TOPOLOGY_TEXT.get(topology, topology)}. {how_measured(there)}", ""]
            header = ["cell", "implementation", "Gbit/s", "CPU sending, s/Gbit", "CPU receiving", "whole machine",
                      "RTT ms", "RTT p99 ms", "peak MiB", "threads"]  # fmt: skip
            rows = []
            for cell in unique(r.spot.cell for r in there):
                rows += [comparison_row(result) for result in order(r for r in there if r.spot.cell == cell)]
            lines += markdown(header, rows)
    return lines


def comparison_row(result: Result) -> list[str]:
    speed = value(BY_NAME["mbit_s"], result.figure("mbit_s"))
    packets = result.figure("packets_s")
    if packets is not None:
        loss = result.figure("loss_pct")
        speed += f"; {value(BY_NAME['packets_s'], packets)} k datagrams/s"
        speed += f", {loss.median:.0f} % lost" if loss else ""
    columns = ("sending_s_gbit", "receiving_s_gbit", "machine_s_gbit", "rtt_p50_us", "rtt_p99_us", "peak_kib")
    return [
        result.spot.cell,
        name(result),
        speed,
        *(value(BY_NAME[column], result.figure(column)) for column in columns),
        str(result.thread_count or ""),
    ]


def split_table(results: Sequence[Result]) -> list[str]:
    """Where CPU time and memory go, over the TCP cells."""
    rows = []
    plain = [r for r in results if r.plain and r.spot.cell.startswith("tcp")]
    for place in places(plain):
        for impl in unique(r.impl for r in order(r for r in plain if r.spot.place == place)):
            mine = [r for r in plain if r.spot.place == place and r.impl == impl]
            means = [
                summary.mean(figure.median for r in mine if (figure := r.figure(column)))
                for column in ("sending_user", "sending_system", "receiving_user", "receiving_system")
            ]
            memory = [
                max((figure.high / 1024 for r in mine if (figure := r.figure(column))), default=None)
                for column in ("peak_kib", "anonymous_kib", "file_kib")
            ]
            if means[0] is None:
                continue
            cells = [f"{v:.3f}" if v is not None else "" for v in means]
            cells += [f"{v:.1f}" if v is not None else "" for v in memory]
            rows.append([f"{place.arch} {place.backend}", title(impl), *cells])
    header = ["where", "implementation", "sending user", "sending system", "receiving user", "receiving system",
              "peak MiB", "anonymous", "file-backed"]  # fmt: skip
    return markdown(header, rows) if rows else ["Not measured.", ""]


def threads_table(results: Sequence[Result]) -> list[str]:
    """What was run with every CPU free, so that only the number of threads differs."""
    chosen = [r for r in results if not r.spot.pinned and not r.spot.restriction and r.spot.cell.startswith("tcp")]
    rows = [
        [
            f"{r.spot.topology} {r.spot.cell}",
            name(r),
            r.spot.threads,
            str(r.thread_count),
            value(BY_NAME["mbit_s"], r.figure("mbit_s")),
            value(BY_NAME["sending_s_gbit"], r.figure("sending_s_gbit")),
            value(BY_NAME["receiving_s_gbit"], r.figure("receiving_s_gbit")),
            r.pinning,
        ]
        for r in sorted(chosen, key=lambda r: (str(r.spot.place), r.spot.topology, r.spot.cell, r.impl, r.spot.threads))
    ]
    header = [
        "cell",
        "implementation",
        "asked for",
        "threads seen",
        "Gbit/s",
        "CPU sending, s/Gbit",
        "CPU receiving",
        "CPUs",
    ]
    return markdown(header, rows) if rows else ["Not measured.", ""]


def restriction_table(results: Sequence[Result]) -> list[str]:
    rows = [
        [
            f"without {r.spot.restriction}",
            f"{r.spot.topology} {r.spot.cell}",
            name(r),
            value(BY_NAME["mbit_s"], r.figure("mbit_s")),
            value(BY_NAME["sending_s_gbit"], r.figure("sending_s_gbit")),
            value(BY_NAME["receiving_s_gbit"], r.figure("receiving_s_gbit")),
        ]
        for r in sorted(
            order(r for r in results if r.spot.restriction),
            key=lambda r: (r.spot.restriction, r.spot.topology, r.spot.cell),
        )
    ]
    header = ["kernel feature", "cell", "implementation", "Gbit/s", "CPU sending, s/Gbit", "CPU receiving"]
    return markdown(header, rows) if rows else ["Not measured.", ""]


def verdicts_table(results: Sequence[Result]) -> list[str]:
    return markdown(
        ["target", "verdict", "figures"],
        [[v.target, v.word, v.figures] for v in targets.all_verdicts(results, implementations.RESTRICTIONS)],
    )


def losses_table(results: Sequence[Result]) -> list[str]:
    lost = summary.losses([r for r in results if r.spot.threads == "1" and r.spot.pinned])
    if not lost:
        measured = any(r.impl == "fv" for r in results)
        return ["Nothing, beyond the spread." if measured else "fv has not been measured yet.", ""]
    rows = [
        [
            loss.metric.kind,
            loss.metric.title,
            f"{loss.spot.place.arch} {loss.spot.place.backend} {loss.spot.place.accelerator}",
            str(loss.spot),
            f"{value(loss.metric, loss.ours)} {loss.metric.unit}",
            f"{title(loss.impl)}: {value(loss.metric, loss.other)} {loss.metric.unit}",
        ]
        for loss in sorted(
            lost, key=lambda loss: (loss.metric.kind, loss.metric.name, str(loss.spot.place), str(loss.spot), loss.impl)
        )
    ]
    count = Counter(loss.metric.kind for loss in lost)
    words = ", ".join(f"{number} in {kind}" for kind, number in sorted(count.items()))
    return [
        f"{len(lost)} comparisons: {words}.",
        "",
        *markdown(["in", "metric", "where", "cell", "fv", "better"], rows),
    ]


def packets_table(results: Sequence[Result], column: str, unit: str) -> list[str]:
    """Crypto: implementations across, sizes and directions down."""
    lines: list[str] = []
    for place in places(results):
        here = [r for r in results if r.spot.place == place and r.figure(column)]
        if not here:
            continue
        impls = unique(r.impl for r in order(here))
        rows = []
        for cell in unique(r.spot.cell for r in here):
            by_impl = {r.impl: r for r in here if r.spot.cell == cell}
            rows.append([cell, *(f"{by_impl[i].figures[column].median:.4g}" if i in by_impl else "" for i in impls)])
        marks = {i: STALE if any(r.stale for r in here if r.impl == i) else "" for i in impls}
        lines += [
            f"{place}; {unit}.",
            "",
            *markdown(["cell", *(f"{title(i)} {marks[i]}".strip() for i in impls)], rows),
        ]
    return lines or ["Not measured.", ""]


def bench_table(results: Sequence[Result]) -> list[str]:
    """Floor and multihop: every result a row."""
    rows = [
        [
            str(r.spot.topology),
            r.spot.cell,
            name(r),
            value(BY_NAME["mbit_s"], r.figure("mbit_s")),
            value(BY_NAME["sending_s_gbit"], r.figure("sending_s_gbit")),
            value(BY_NAME["receiving_s_gbit"], r.figure("receiving_s_gbit")),
            value(BY_NAME["rtt_p50_us"], r.figure("rtt_p50_us")),
            value(BY_NAME["peak_kib"], r.figure("peak_kib")),
        ]
        for r in results
    ]
    header = ["where", "cell", "what", "Gbit/s", "CPU sending, s/Gbit", "CPU receiving", "RTT ms", "peak MiB"]
    return markdown(header, rows) if rows else ["Not measured.", ""]


def other_words(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Rows that have no figure: failed and unsupported are different words."""
    lines = []
    for status in ("failed", "unsupported"):
        counts = Counter(
            (row["bench"], row["backend"], row["impl"], row["restriction"], row["threads"], row["error"])
            for row in rows
            if row["status"] == status
        )
        lines += [f"**{status}**: {sum(counts.values())} samples", ""]
        table = [
            [bench, backend, title(impl), restriction, threads, error[:160], str(number)]
            for (bench, backend, impl, restriction, threads, error), number in sorted(counts.items())
        ]
        if table:
            lines += markdown(["bench", "where", "implementation", "without", "threads", "why", "samples"], table)
    return lines


def versions(results: Iterable[Result]) -> list[str]:
    seen = {(title(r.impl), r.version) for r in results if r.impl not in {"none", "kernel"}}
    return [f"- {impl}: {version}" for impl, version in sorted(seen)] + [""]


def page(rows: Sequence[Mapping[str, str]], current: Mapping[str, str], charts: Sequence[str]) -> str:
    impls = summary.results(rows, "impls", current)
    every = [r for bench in ("impls", "crypto", "floor", "multihop") for r in summary.results(rows, bench, current)]
    stale = sum(1 for r in every if r.stale)
    lines = [
        "# Benchmarks",
        "",
        "Made by `task bench:report` from [results.csv](results.csv) and nothing else; do not edit. Every run of every",
        "benchmark appends to that log, failed ones too. A figure is the median of one run's samples, with the lowest",
        "and the highest; two are level when they differ by less than 5 % or than their spread. CPU is user and system",
        "time of the implementation's process per Gbit of goodput, read from outside; memory is its peak resident set.",
        f"{STALE} marks what was measured before the last change to the path it measures: {stale} of {len(every)}.",
        "",
        "## Targets",
        "",
        *verdicts_table(impls),
        "## What we did not win",
        "",
        *losses_table(impls),
        *(f"![{chart}]({chart})" for chart in charts),
        "",
        "## Implementations, one data-plane thread each",
        "",
        *comparison(impls),
        "### Where CPU time (s/Gbit, mean of the TCP cells) and memory go",
        "",
        *split_table(impls),
        "## Number of threads",
        "",
        *threads_table(impls),
        "## With a kernel feature refused",
        "",
        *restriction_table(impls),
        "## Sealing and opening, no socket and no TUN",
        "",
        *packets_table(summary.results(rows, "crypto", current), "ns_packet", "nanoseconds per packet"),
        "Under emulation, as executed instructions:",
        "",
        *packets_table(summary.results(rows, "crypto", current), "instructions_packet", "instructions per packet"),
        "## What the machine allows",
        "",
        *bench_table(summary.results(rows, "floor", current)),
        "## Nested tunnels",
        "",
        *bench_table(summary.results(rows, "multihop", current)),
        "## Without a figure",
        "",
        *other_words(rows),
        "## Versions",
        "",
        *versions(every),
        "## The log's columns",
        "",
        *markdown(["column", "what it holds"], [[f"`{column}`", text] for column, text in log.COLUMNS.items()]),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log", type=Path, default=log.DEFAULT)
    parser.add_argument("--out", type=Path, default=PAGE, help="folder of README.md and the charts")


def run(args: argparse.Namespace) -> int:
    from lab import charts  # matplotlib takes a second to load, and a reader of --help needs none

    rows = log.read(args.log)
    current = {path: machine.path_version(path) for path in machine.PATHS}
    args.out.mkdir(parents=True, exist_ok=True)
    drawn = charts.draw(summary.results(rows, "impls", current), args.out)
    (args.out / "README.md").write_text(page(rows, current, drawn), encoding="utf-8")
    print(f"report: {len(rows)} rows -> {args.out / 'README.md'}, {len(drawn)} charts")
    return 0
