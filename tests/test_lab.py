"""The lab's pure parts by cases: figures from rows, verdicts, losses, the page; the log's file; what is refused."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab import cells, charts, guest_root, implementations, impls, log, machine, peers, qemu, report, summary, targets
from lab.errors import LabError
from lab.summary import Figure

ROOT = Path(__file__).resolve().parent.parent
CURRENT = {"wireguard": "aaaa", "crypto": "bbbb"}


def row(impl: str = "fv", **columns: object) -> dict[str, str]:
    """A row of the log as it is read back."""
    base: dict[str, object] = {
        "date": "2026-01-01T00:00:00Z",
        "run": "1",
        "bench": "impls",
        "backend": "netns",
        "accelerator": "native",
        "machine": "a CPU; 2 CPUs",
        "arch": "x86_64",
        "kernel": "6.1",
        "path": "wireguard" if impl == "fv" else "",
        "path_version": "aaaa" if impl == "fv" else "",
        "impl": impl,
        "profile": "full",
        "topology": "local",
        "cell": "tcp1-up",
        "direction": "up",
        "threads": "1",
        "seconds": 15,
        "pinning": "a=0 b=1 load-a=0 load-b=1",
        "status": "ok",
    }
    return {column: log.text((base | columns).get(column)) for column in log.COLUMNS}


def speeds(impl: str, *values: float, **columns: object) -> list[dict[str, str]]:
    return [row(impl, sample=i + 1, mbit_s=v, **columns) for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("ours", "other", "more", "expected"),
    [
        ((100, 100, 100), (104, 104, 104), True, "level"),  # less than 5 %
        ((100, 100, 100), (106, 106, 106), True, "lost"),
        ((106, 106, 106), (100, 100, 100), True, "won"),
        ((106, 106, 106), (100, 100, 100), False, "lost"),
        ((100, 90, 130), (120, 120, 120), True, "level"),  # our spread of 40
        ((120, 120, 120), (100, 90, 130), True, "level"),  # theirs
        ((100, 95, 105), (120, 118, 122), True, "lost"),
    ],
)
def test_verdict(
    ours: tuple[float, float, float], other: tuple[float, float, float], more: bool, expected: str
) -> None:
    metric = summary.BY_NAME["mbit_s" if more else "rtt_p50_us"]
    assert summary.verdict(Figure(*ours, 3), Figure(*other, 3), metric) == expected


def test_a_full_run_counts_before_a_newer_quick_one() -> None:
    rows = [
        *speeds("fv", 1000, 1200, 1100),
        *speeds("fv", 5000, run="2", profile="quick", date="2026-02-01T00:00:00Z"),
    ]
    (result,) = summary.results(rows, "impls", CURRENT)
    assert result.figures["mbit_s"] == Figure(1100, 1000, 1200, 3)
    rows += speeds("fv", 3000, run="3", date="2026-03-01T00:00:00Z")
    (result,) = summary.results(rows, "impls", CURRENT)
    assert result.figures["mbit_s"].median == 3000


def test_one_thread_with_every_cpu_free_is_another_figure() -> None:
    rows = [*speeds("fv", 1000), *speeds("fv", 2000, run="2", date="2026-02-01T00:00:00Z", pinning="none")]
    found = summary.results(rows, "impls", CURRENT)
    assert [(r.plain, r.figures["mbit_s"].median) for r in found] == [(True, 1000), (False, 2000)]
    assert len(targets.pick(found, ("local",))) == 1


def test_sides_follow_the_direction() -> None:
    sides: dict[str, Any] = {
        "a_user_s_gbit": 0.1,
        "a_system_s_gbit": 0.2,
        "b_user_s_gbit": 0.5,
        "b_system_s_gbit": 0.6,
    }
    up, down = summary.derived(row(**sides)), summary.derived(row(direction="down", **sides))
    assert up["sending_s_gbit"] == pytest.approx(0.3)
    assert up["receiving_s_gbit"] == pytest.approx(1.1)
    assert down["sending_s_gbit"] == pytest.approx(1.1)
    assert down["receiving_s_gbit"] == pytest.approx(0.3)


def test_a_side_that_is_in_the_kernel_has_no_figure() -> None:
    assert "sending_s_gbit" not in summary.derived(row("kernel", mbit_s=100))


def test_failed_samples_are_no_figures() -> None:
    rows = [*speeds("fv", 1000), row("fv", status="failed", error="it ended")]
    (result,) = summary.results(rows, "impls", CURRENT)
    assert result.figures["mbit_s"].samples == 1


def test_older_than_the_path_is_marked() -> None:
    old = speeds("fv", 1000, path_version="0000")
    assert summary.results(old, "impls", CURRENT)[0].stale
    assert not summary.results(speeds("fv", 1000), "impls", CURRENT)[0].stale
    assert not summary.results(speeds("boringtun", 1000), "impls", CURRENT)[0].stale


def test_losses_name_all_kinds_and_leave_out_no_tunnel() -> None:
    rows = [
        row("fv", mbit_s=1000, a_peak_kib=4000, rtt_p99_us=100, machine_s_gbit=1),
        row("boringtun", mbit_s=2000, a_peak_kib=3000, rtt_p99_us=101, machine_s_gbit=0.5),
        row("none", mbit_s=9000),
    ]
    found = summary.losses(summary.results(rows, "impls", CURRENT))
    assert [(loss.metric.kind, loss.impl) for loss in found] == [
        ("speed", "boringtun"),
        ("CPU", "boringtun"),
        ("memory", "boringtun"),
    ]


def word(rows: list[dict[str, str]], start: str) -> str:
    found = targets.all_verdicts(summary.results(rows, "impls", CURRENT), ("udp_gro",))
    (verdict,) = [v for v in found if v.target.startswith(start)]
    return verdict.word


@pytest.mark.parametrize(("ours", "expected"), [(0.16, "reached"), (0.17, "missed")])
def test_cpu_target(ours: float, expected: str) -> None:
    rows = [
        row("fv", mbit_s=1, a_user_s_gbit=ours, a_system_s_gbit=0, b_user_s_gbit=0, b_system_s_gbit=0),
        row("wireguard-go", mbit_s=1, a_user_s_gbit=0.3, a_system_s_gbit=0, b_user_s_gbit=1, b_system_s_gbit=0),
    ]
    assert word(rows, "CPU per Gbit, sending side, at most 0.55") == expected
    assert word(rows, "CPU per Gbit, sending side, at most 0.25") == "not measured"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(1500, 1500, "reached"), (1400, 1500, "missed"), (4000, 900, "missed")],  # the last: fast, but behind in a cell
)
def test_speed_target(first: float, second: float, expected: str) -> None:
    rows = [
        *speeds("fv", first),
        *speeds("fv", second, cell="tcp1-down", direction="down"),
        *speeds("gotatun", 1000),
        *speeds("gotatun", 1000, cell="tcp1-down", direction="down"),
        *speeds("boringtun", 500),
    ]
    assert word(rows, "throughput at least") == expected


@pytest.mark.parametrize(("peak", "expected"), [(4608, "reached"), (4609, "missed")])
def test_memory_target(peak: int, expected: str) -> None:
    assert word([row("fv", a_peak_kib=1000, b_peak_kib=peak)], "peak resident memory") == expected


def test_nothing_measured_reaches_nothing() -> None:
    assert {v.word for v in targets.all_verdicts([], ("udp_gro",))} == {"not measured"}


def test_page(tmp_path: Path) -> None:
    """Everything in the log is on the page, and the same log gives the same bytes."""
    full = {
        "a_user_s_gbit": 0.1,
        "a_system_s_gbit": 0.1,
        "b_user_s_gbit": 0.1,
        "b_system_s_gbit": 0.1,
        "a_peak_kib": 2048,
    }
    rows = [
        *speeds("fv", 4000, 4200, 4100, path_version="0000", **full),
        *speeds("wireguard-go", 2000, 2100, 2050, **full),
        *speeds("fv", 3000, restriction="udp_gro"),
        *speeds("boringtun", 700, threads="4", a_threads=5, pinning="none"),
        row("gotatun", status="unsupported", error="GotaTun cannot be refused a kernel feature"),
        row("boringtun", status="failed", error="no answer through the tunnel in 10 s"),
        row("fv", bench="crypto", cell="encapsulate 1420", ns_packet=444.4, topology="core"),
        row("fv", bench="multihop", topology="2 hops", mbit_s=1234),
    ]
    first = report.page(rows, CURRENT, ["throughput.svg"])
    assert first == report.page(rows, CURRENT, ["throughput.svg"])
    for part in (
        "4.1 (4 to 4.2)",
        "fv †",
        "without udp_gro",
        "**failed**: 1 samples",
        "**unsupported**: 1 samples",
        "no answer through the tunnel in 10 s",
        "444.4",
        "2 hops",
        "throughput.svg",
        "## What we did not win",
    ):
        assert part in first, part
    drawn = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files = charts.draw(summary.results(rows, "impls", CURRENT), tmp_path / name)
        drawn.append({file: (tmp_path / name / file).read_bytes() for file in files})
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) == {"throughput.svg", "cpu.svg", "memory.svg"}


def test_log_keeps_rows_when_columns_are_added(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    columns = list(log.COLUMNS)
    path.write_text(
        ",".join(columns[:-1]) + "\n" + ",".join("x" if c != "status" else "ok" for c in columns[:-1]) + "\n"
    )
    log.append(path, [{"impl": "fv", "status": "ok", "mbit_s": 1234.56, columns[-1]: 3}])
    first, second = log.read(path)
    assert (first["impl"], first[columns[-1]]) == ("x", "")
    assert (second["impl"], second["mbit_s"], second[columns[-1]]) == ("fv", "1235", "3")


@pytest.mark.parametrize("bad", [{"status": "fine"}, {"status": "ok", "colour": "red"}, {}])
def test_log_refuses_rows(tmp_path: Path, bad: Mapping[str, object]) -> None:
    with pytest.raises(LabError):
        log.append(tmp_path / "results.csv", [bad])
    assert not (tmp_path / "results.csv").exists()


def test_log_refuses_a_file_of_others(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("name,score\na,1\n")
    with pytest.raises(LabError, match="header"):
        log.append(path, [{"status": "ok"}])
    assert path.read_text() == "name,score\na,1\n"


def test_path_version_is_of_the_path_s_sources(tmp_path: Path) -> None:
    source = tmp_path / "native" / "wg" / "noise.c"
    other = tmp_path / "native" / "proxy" / "socks.c"
    for file in (source, other):
        file.parent.mkdir(parents=True)
        file.write_text("one")
    before = machine.path_version("wireguard", tmp_path)
    other.write_text("two")
    assert machine.path_version("wireguard", tmp_path) == before
    source.write_text("two")
    assert machine.path_version("wireguard", tmp_path) != before
    assert machine.path_version("") == ""


TCP = {"end": {"sum_sent": {"retransmits": 7}, "sum_received": {"bytes": 250_000_000, "seconds": 2.0}}}
UDP = {"end": {"sum_received": {"bytes": 64_000, "seconds": 2.0, "lost_percent": 12.5}}}


def test_iperf_is_understood() -> None:
    load = cells.understand(json.dumps(TCP), cells.BY_NAME["tcp1-up"])
    assert (load.bits, load.mbit_s, load.retransmits) == (2e9, 1000, 7)
    load = cells.understand(json.dumps(UDP), cells.BY_NAME["udp64-up"])
    assert (load.packets_s, load.loss_pct) == (500, 12.5)


@pytest.mark.parametrize(
    "text",
    ["", "iperf3: error", '{"error": "unable to connect"}', '{"end": {"sum_received": {"bytes": 0, "seconds": 2}}}'],
)
def test_iperf_s_failures_are_errors(text: str) -> None:
    with pytest.raises(LabError):
        cells.understand(text, cells.BY_NAME["tcp1-up"])


def test_percentile_is_by_nearest_rank() -> None:
    values = [float(v) for v in range(1, 101)]
    assert [cells.percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert cells.percentile([3.0], 0.99) == 3


ASKS = """
import fcntl, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for name, option in (("udp_segment", 103), ("udp_gro", 104)):
    try:
        s.setsockopt(17, option, 1)
        print(name, "granted")
    except OSError as error:
        print(name, error.errno)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
try:
    fcntl.ioctl(s, 0x400454D0, 0x20 | 0x1)
except OSError as error:
    print("tun_uso", error.errno)
try:
    fcntl.ioctl(s, 0x400454D0, 0x1)
except OSError as error:
    print("tun_tso", error.errno)
"""

ENOTTY = 25  # what a socket, which is no TUN, says to TUNSETOFFLOAD


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ("udp_gro", {"udp_segment": "granted", "udp_gro": "92", "tun_uso": "25", "tun_tso": "25"}),
        ("udp_segment", {"udp_segment": "92", "udp_gro": "granted", "tun_uso": "25", "tun_tso": "25"}),
        ("tun_uso", {"udp_segment": "granted", "udp_gro": "granted", "tun_uso": "22", "tun_tso": "25"}),
        ("udp_gro,udp_segment,tun_uso", {"udp_segment": "92", "udp_gro": "92", "tun_uso": "22", "tun_tso": "25"}),
    ],
)
def test_a_restricted_program_is_refused_just_that(features: str, expected: dict[str, str]) -> None:
    command = [sys.executable, str(ROOT / "lab" / "restrict.py"), features, "--", sys.executable, "-c", ASKS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert dict(line.split() for line in done.stdout.splitlines()) == expected


def test_missing_compilers_are_named_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(peers, "search_path", lambda: str(tmp_path))
    parser_args = type("Arguments", (), {"names": [], "jobs": 1, "arch": "x86_64"})()
    assert peers.run(parser_args) == 0
    told = capsys.readouterr().out
    for peer in peers.PEERS:
        assert f"{peer.name} {peer.version}: SKIPPED" in told
        assert peers.HOW_TO_GET[peer.client] in told
    assert "3 skipped" in told


@pytest.mark.needs("busybox")
def test_archive_is_one_that_others_read(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "odd").write_bytes(b"abc")
    (tmp_path / "tree" / "link").symlink_to("odd")
    qemu.job_archive(tmp_path / "job.cpio", "echo hello\n", {"/fv/deep/tree": tmp_path / "tree"}, tmp_path / "work")
    out = tmp_path / "out"
    out.mkdir()
    with (tmp_path / "job.cpio").open("rb") as file:
        subprocess.run(["busybox", "cpio", "-id"], stdin=file, cwd=out, check=True, capture_output=True)
    assert (out / "job" / "script").read_text() == "echo hello\n"
    assert (out / "init").stat().st_mode & 0o777 == 0o755
    assert (out / "fv" / "deep" / "tree" / "odd").read_bytes() == b"abc"
    assert (out / "fv" / "deep" / "tree" / "link").readlink() == Path("odd")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("net/wireguard/wireguard.ko", True),
        ("drivers/net/wireguard/wireguard.ko", True),
        ("drivers/net/tun.ko", True),
        ("drivers/net/ethernet/intel/e1000.ko", False),
        ("drivers/gpu/drm/drm.ko", False),
        ("network.ko", False),
    ],
)
def test_kernel_modules_of_a_guest(path: str, wanted: bool) -> None:
    assert guest_root.module_wanted(path) is wanted


def arguments(*words: str) -> object:
    import argparse

    parser = argparse.ArgumentParser()
    impls.add_arguments(parser)
    return parser.parse_args(words)


def test_a_set_fills_in_what_is_not_named() -> None:
    filled = impls.in_set(arguments("--impls", "fv"), "threads")  # type: ignore[arg-type]
    assert (filled.impls, filled.threads, filled.topologies) == ("fv", "1,2,4,ships", "local")
    main = impls.in_set(arguments("--profile", "full"), "main")  # type: ignore[arg-type]
    assert main.cells == impls.PROFILES["full"].cells
    assert {v.implementation.name for v in impls.variants(main)} == {
        "fv", "wireguard-go", "boringtun", "gotatun", "kernel", "none"
    }  # fmt: skip


@pytest.mark.parametrize(
    "words", [("--impls", "nobody"), ("--restrict", "gravity"), ("--threads", "0"), ("--threads", "many")]
)
def test_wrong_words_are_named(words: tuple[str, str]) -> None:
    with pytest.raises(LabError) as error:
        impls.variants(impls.in_set(arguments(*words), "main"))  # type: ignore[arg-type]
    assert error.value.where == words[0]


def test_the_kernel_cannot_be_restricted_and_that_is_unsupported() -> None:
    kernel = impls.Variant(implementations.BY_NAME["kernel"], "1", "udp_gro")
    assert "cannot be refused" in impls.unsupported(kernel)
    assert impls.unsupported(impls.Variant(implementations.BY_NAME["fv"], "4", "udp_gro")) == ""


def test_ping_reads_its_own_answers() -> None:
    from lab import ping

    packet = ping.request(0x1234, 7)
    assert ping.checksum(packet) == 0
    assert len(packet) == 56
    assert packet[4:8] == bytes([0x12, 0x34, 0, 7])
