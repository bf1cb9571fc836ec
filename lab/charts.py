"""Charts of the report, as SVG: the same log gives the same bytes."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from lab import implementations
from lab.summary import Place, Result, mean

COLOURS = {
    "fv": "#0b6e4f",
    "wireguard-go": "#6b7a8f",
    "boringtun": "#b08968",
    "gotatun": "#c9a227",
    "kernel": "#4a4e69",
}
REST = "#9a9a9a"


def one_thread(results: Sequence[Result], place: Place) -> list[Result]:
    return [r for r in results if r.spot.place == place and r.plain and r.impl != "none"]


def ordered(names: set[str]) -> list[str]:
    return [impl for impl in implementations.BY_NAME if impl in names]


def title(impl: str) -> str:
    return implementations.BY_NAME[impl].title


def save(canvas: Canvas, path: Path) -> None:
    canvas.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


def throughput(results: Sequence[Result], path: Path) -> bool:
    """Bars by cell, one group per topology and cell, with the spread."""
    tcp = [r for r in results if r.spot.cell.startswith("tcp") and r.figure("mbit_s")]
    spots = list(dict.fromkeys((r.spot.topology, r.spot.cell) for r in tcp))
    impls = ordered({r.impl for r in tcp})
    if not impls:
        return False
    canvas = Canvas(figsize=(max(6.0, 0.9 * len(spots) + 2), 3.6), layout="constrained")
    axes = canvas.add_subplot()
    width = 0.8 / len(impls)
    for index, impl in enumerate(impls):
        figures = {(r.spot.topology, r.spot.cell): r.figures["mbit_s"] for r in tcp if r.impl == impl}
        xs = [x + (index - (len(impls) - 1) / 2) * width for x, spot in enumerate(spots) if spot in figures]
        found = [figures[spot] for spot in spots if spot in figures]
        axes.bar(
            xs,
            [f.median / 1000 for f in found],
            width,
            label=title(impl),
            color=COLOURS.get(impl, REST),
            yerr=[[(f.median - f.low) / 1000 for f in found], [(f.high - f.median) / 1000 for f in found]],
            error_kw={"linewidth": 0.8},
        )
    axes.set_xticks(range(len(spots)), [f"{topology}\n{cell}" for topology, cell in spots], fontsize=7)
    axes.set_ylabel("Gbit/s")
    axes.set_title("TCP through the tunnel, one data-plane thread", fontsize=10)
    axes.legend(fontsize=7)
    save(canvas, path)
    return True


def cpu(results: Sequence[Result], path: Path) -> bool:
    """User and system seconds per Gbit, both sides, mean of the TCP cells."""
    tcp = [r for r in results if r.spot.cell.startswith("tcp") and r.figure("sending_user")]
    impls = ordered({r.impl for r in tcp})
    if not impls:
        return False
    canvas = Canvas(figsize=(6.5, 0.5 * len(impls) + 1.6), layout="constrained")
    axes = canvas.add_subplot()
    parts = (
        ("sending_user", "sending, user", "#0b6e4f"),
        ("sending_system", "sending, system", "#7fb69e"),
        ("receiving_user", "receiving, user", "#6b4e71"),
        ("receiving_system", "receiving, system", "#b9a5be"),
    )
    left = [0.0] * len(impls)
    for column, label, colour in parts:
        values = [mean(r.figures[column].median for r in tcp if r.impl == impl) or 0.0 for impl in impls]
        axes.barh(range(len(impls)), values, 0.6, left=left, label=label, color=colour)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.set_yticks(range(len(impls)), [title(impl) for impl in impls])
    axes.invert_yaxis()
    axes.set_xlabel("CPU seconds per Gbit, mean of the TCP cells")
    axes.legend(fontsize=7)
    save(canvas, path)
    return True


def memory(results: Sequence[Result], path: Path) -> bool:
    peaks = {
        impl: max(r.figures["peak_kib"].high / 1024 for r in results if r.impl == impl and r.figure("peak_kib"))
        for impl in ordered({r.impl for r in results if r.figure("peak_kib")})
    }
    if not peaks:
        return False
    canvas = Canvas(figsize=(6.5, 0.45 * len(peaks) + 1.2), layout="constrained")
    axes = canvas.add_subplot()
    colours = [COLOURS.get(impl, REST) for impl in peaks]
    bars = axes.barh(range(len(peaks)), list(peaks.values()), 0.6, color=colours)
    axes.bar_label(bars, [f"{peak:.1f}" for peak in peaks.values()], fontsize=7, padding=2)
    axes.set_yticks(range(len(peaks)), [title(impl) for impl in peaks])
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel("peak resident memory, MiB (logarithmic)")
    save(canvas, path)
    return True


def draw(results: Sequence[Result], folder: Path) -> list[str]:
    """Charts of the first place that has fv, in namespaces; names of the files made."""
    places = [r.spot.place for r in results if r.spot.place.backend == "netns" and r.impl == "fv"]
    if not places:
        places = [r.spot.place for r in results]
    if not places:
        return []
    chosen = one_thread(results, places[-1])
    names = []
    with mpl.rc_context({"svg.hashsalt": "fv", "svg.fonttype": "none", "font.family": "sans-serif"}):
        for name, make in (("throughput.svg", throughput), ("cpu.svg", cpu), ("memory.svg", memory)):
            if make(chosen, folder / name):
                names.append(name)
            else:
                (folder / name).unlink(missing_ok=True)
    return names
