"""The log of every run: docs/benchmarks/results.csv, one row per sample of a cell, failed ones too.

Rows are only ever appended. Columns are only ever added, at the end: a row written before a column existed has
it empty. COLUMNS below is the schema; the report prints it.
"""

import csv
import fcntl
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.errors import LabError

DEFAULT = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "results.csv"

# What was observed about a sample.
STATUSES = ("ok", "failed", "unsupported")

# column -> what it holds, and its unit.
COLUMNS: dict[str, str] = {
    "date": "UTC, start of the sample",
    "run": "one number per start of the program, so that what was interleaved can be told",
    "bench": "impls, crypto, floor or multihop",
    "backend": "netns (this machine's own kernel) or qemu (a guest)",
    "accelerator": "native, kvm, hvf or tcg",
    "machine": "CPU model; number of CPUs",
    "arch": "as uname -m",
    "kernel": "as uname -r",
    "commit": "of the checkout; +dirty where native/ or lab/ differed from it",
    "path": "which path was measured: wireguard or crypto; empty for what is not ours",
    "path_version": "hash of that path's sources",
    "impl": "the implementation",
    "impl_version": "its version",
    "profile": "quick or full",
    "topology": "local, lan, lan-plain",
    "cell": "what was run",
    "direction": "up: client to server; down: server to client",
    "streams": "flows at once",
    "sample": "counted from 1 in a run",
    "seconds": "length of the sample",
    "mtu": "of the tunnel, bytes",
    "threads": "data-plane threads asked for; ships: nothing was set",
    "pinning": "which CPUs each side may use",
    "restriction": "kernel features refused to the implementation; empty: none",
    "status": "ok; failed (it ran and did not do it); unsupported (it does not have it)",
    "error": "why, when not ok",
    "mbit_s": "goodput, Mbit/s, as the receiver counted it",
    "packets_s": "datagrams received per second (UDP)",
    "loss_pct": "datagrams lost, percent (UDP)",
    "retransmits": "TCP segments sent again",
    "a_user_s_gbit": "side A (the client's): user CPU seconds per Gbit of goodput",
    "a_system_s_gbit": "side A: system CPU seconds per Gbit",
    "b_user_s_gbit": "side B (the server's): user CPU seconds per Gbit",
    "b_system_s_gbit": "side B: system CPU seconds per Gbit",
    "machine_s_gbit": "the whole machine's CPU seconds per Gbit, load generator included",
    "stolen_s": "CPU seconds that the hypervisor took away during the sample",
    "load": "runnable tasks (1-minute load average) before the sample",
    "a_peak_kib": "side A: peak resident memory, KiB",
    "a_anonymous_kib": "side A: anonymous part at the end, KiB",
    "a_file_kib": "side A: file-backed part at the end, KiB",
    "b_peak_kib": "side B: peak resident memory, KiB",
    "b_anonymous_kib": "side B: anonymous part at the end, KiB",
    "b_file_kib": "side B: file-backed part at the end, KiB",
    "a_threads": "side A: threads of the process",
    "b_threads": "side B: threads of the process",
    "rtt_p50_us": "round trip through the tunnel, median, microseconds",
    "rtt_p99_us": "round trip through the tunnel, 99th percentile, microseconds",
    "rtt_samples": "answers that these are of",
    "size": "bytes of a packet (crypto)",
    "ns_packet": "nanoseconds per packet, median over the samples (crypto)",
    "ns_packet_low": "the fastest tenth of the samples, nanoseconds (crypto)",
    "ns_packet_high": "the slowest tenth of the samples, nanoseconds (crypto)",
    "instructions_packet": "executed instructions per packet under an emulator (crypto)",
    "hops": "tunnels nested in one another (multihop)",
}

# Before a row as JSON on stdout, where the log is on another machine (`--log -` in a guest).
ROW_MARK = "@row "


def text(value: object) -> str:
    """A cell of the CSV: four significant digits for a float, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).replace("\r", " ").replace("\n", " ").strip()


def check(row: Mapping[str, object]) -> None:
    for key in row:
        if key not in COLUMNS:
            raise LabError(f"no column is called {key}", where="lab/log.py: COLUMNS")
    if row.get("status") not in STATUSES:
        raise LabError(f"status is {row.get('status')!r}", where="lab/log.py", hint="one of " + ", ".join(STATUSES))


def append(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Adds rows; writes the header when the file is new, and extends it when columns have been added since."""
    rows = list(rows)
    for row in rows:
        check(row)
    if str(path) == "-":
        for row in rows:
            print(ROW_MARK + json.dumps({key: text(value) for key, value in row.items()}), flush=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", newline="", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # two runs at once must not cut each other's lines
        file.seek(0)
        content = file.read()
        header = content.split("\n", 1)[0].rstrip("\r").split(",") if content else []
        columns = list(COLUMNS)
        if header and header != columns:
            if header != columns[: len(header)]:
                raise LabError("its header is not this program's", where=str(path), hint="columns are only added")
            content = ",".join(columns) + "\n" + content.split("\n", 1)[1]
            file.truncate(0)
            file.write(content)
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        if not header:
            writer.writerow(columns)
        for row in rows:
            writer.writerow([text(row.get(column)) for column in columns])
        file.write(buffer.getvalue())


def read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise LabError("there is no log", where=str(path), hint="`task test:impls` makes one")
    with path.open(newline="", encoding="utf-8") as file:
        rows = [{key: value or "" for key, value in row.items() if key} for row in csv.DictReader(file)]
    for number, row in enumerate(rows, start=2):
        if row.get("status") not in STATUSES:
            raise LabError(f"status is {row.get('status')!r}", where=f"{path}:{number}: status")
    return rows
