"""Bringing a configuration up and taking it down again, one-shot: what was done is remembered in a record beside the
control socket, so that `fv down` needs nothing but the configuration's name.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

import msgspec

from fv import uapi
from fv.config.check import device_name
from fv.config.load import Loaded
from fv.engine import prepare_folders, start_engine
from fv.errors import FvError, Where
from fv.files import write_atomically
from fv.host import remove_leftovers
from fv.plan import network
from fv.plan.text import Plan
from fv.process import alive

READY = 15.0  # seconds until the engine must answer
STOPPED = 10.0


class Record(msgspec.Struct, frozen=True):
    """What `up` did. Holds no secret."""

    file: str
    pid: int
    control: str
    dns_device: str = ""  # interface whose name servers were set
    dns_by: str = ""  # resolvectl or resolvconf
    tables: tuple[int, ...] = ()  # routing tables and rule priorities of the plan: where a crash's leftovers are
    priorities: tuple[int, ...] = ()


def record_path(name: str, control: str) -> pathlib.Path:
    return pathlib.Path(control).parent / f"{name}.up"


def log_path(name: str, control: str) -> pathlib.Path:
    return pathlib.Path(control).parent / f"{name}.log"


def name_of(file: str) -> str:
    return pathlib.Path(file).stem


def read_record(path: pathlib.Path) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise FvError("this user may not read it", where=Where(str(path)), hint="run as root (sudo)") from None
    except msgspec.DecodeError:
        raise FvError("is not a record of fv's", where=Where(str(path)), hint="remove it") from None


def up(loaded: Loaded, plan: Plan) -> Record:
    """Start the engine in the background, wait until it is ready, set this host's name servers."""
    file = loaded.document.file
    control = loaded.config.engine.control
    if not control:
        raise FvError("`fv up` needs the control socket", where=loaded.document.where(("engine", "control")),
                      hint="set control in [engine], or use `fv run`")  # fmt: skip
    path = record_path(name_of(file), control)
    old = read_record(path)
    if old is not None and alive(old.pid):
        raise FvError(
            f"is up already (process {old.pid})", where=Where(file), hint=f"fv reload {file}, or fv down {file}"
        )
    if _answers(control):
        raise FvError("another engine answers there", where=Where(control), hint="stop it, or set another control path")
    by = _dns_tool(loaded)
    prepare_folders(plan)
    log = log_path(name_of(file), control)
    start = log.stat().st_size if log.exists() else 0
    engine = start_engine(plan, log)
    try:
        _wait_ready(engine, control, log, start)
        record = Record(
            str(pathlib.Path(file).resolve()),
            engine.pid,
            control,
            "",
            "",
            _numbers(plan, "table"),
            _numbers(plan, "priority"),
        )
        if by:
            record = msgspec.structs.replace(record, dns_device=_dns_device(loaded), dns_by=by)
            _set_dns(record, loaded)
        write_atomically(path, msgspec.json.encode(record).decode())
    except BaseException:
        _end(engine.pid)
        raise
    return record


def _numbers(plan: Plan, name: str) -> tuple[int, ...]:
    """The numbers that stand after a word in [network]."""
    words = [line.value.split() for section in plan.of("network") for line in section.lines]
    found = [line[place + 1] for line in words for place, word in enumerate(line[:-1]) if word == name]
    return tuple(sorted({int(text) for text in found if text.isdigit()}))


def _answers(control: str) -> bool:
    with contextlib.suppress(FvError):
        uapi.stats(control)
        return True
    return False


def _wait_ready(engine: subprocess.Popen[bytes], control: str, log: pathlib.Path, start: int) -> None:
    deadline = time.monotonic() + READY
    while not _answers(control):
        status = engine.poll()
        if status is not None:
            raise FvError(f"the engine ended with status {status}: {_said(log, start)}", where=Where(str(log)))
        if time.monotonic() > deadline:
            raise FvError(f"the engine is not ready after {READY:.0f} s: {_said(log, start)}", where=Where(str(log)))
        time.sleep(0.05)


def _said(log: pathlib.Path, start: int) -> str:
    """The last line that the engine wrote since it was started."""
    with contextlib.suppress(OSError), log.open("rb") as text:
        text.seek(start)
        lines = text.read().decode("utf-8", "replace").strip().splitlines()
        if lines:
            return lines[-1]
    return "it said nothing"


def down(file: str, control: str, tables: tuple[int, ...] = (), priorities: tuple[int, ...] = ()) -> str:
    """Stop the engine; what it set in the kernel it takes back itself, and what a crash or `on_stop = "closed"` left is
    taken back here: `down` is the owner's word that it may go. Name servers are put back here as well.

    Without a record (the engine was started by `fv run`), tables and priorities say where leftovers would be. Returns
    what was done.
    """
    path = record_path(name_of(file), control)
    record = read_record(path)
    if record is None:
        return _down_without_record(file, control, tables, priorities)
    _restore_dns(record)
    if alive(record.pid):
        _end(record.pid)
    remove_leftovers(record.tables, record.priorities)
    path.unlink(missing_ok=True)
    return f"process {record.pid} has ended"


def _down_without_record(file: str, control: str, tables: tuple[int, ...], priorities: tuple[int, ...]) -> str:
    ran = _answers(control)
    if ran:
        _wait_ended(uapi.stop(control))
    count = remove_leftovers(tables, priorities)
    if not ran and not count:
        raise FvError("is not up", where=Where(file), hint=f"fv up {file}")
    done = ["the engine has ended"] if ran else []
    return ", ".join(done + ([f"{count} routes and rules of a crash are removed"] if count else []))


def _end(pid: int) -> None:
    """SIGTERM and wait; the process need not be our child."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    _wait_ended(pid)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _wait_ended(pid: int) -> None:
    """Its control socket goes first, the kernel's state after it: only the end of the process is the end."""
    deadline = time.monotonic() + STOPPED
    while alive(pid) and not _zombie(pid):
        if time.monotonic() > deadline:
            raise FvError(f"process {pid} does not end", hint=f"look at its log, then: kill -9 {pid}")
        time.sleep(0.05)


def _zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def _dns_tool(loaded: Loaded) -> str:
    gateway = loaded.config.gateway
    if gateway is None or not gateway.dns:
        return ""
    for tool in ("resolvectl", "resolvconf"):
        if shutil.which(tool):
            return tool
    raise FvError("neither resolvectl nor resolvconf is there to set name servers with",
                  where=loaded.document.where(("gateway", "dns")),
                  hint="install systemd-resolved or openresolv, or take dns out")  # fmt: skip


def _dns_device(loaded: Loaded) -> str:
    endpoint = network.gateway_endpoint(loaded.config)
    return device_name(endpoint) if endpoint else ""


def _set_dns(record: Record, loaded: Loaded) -> None:
    servers = list(loaded.config.gateway.dns) if loaded.config.gateway else []
    if record.dns_by == "resolvectl":
        _tool(["resolvectl", "dns", record.dns_device, *servers])
        _tool(["resolvectl", "domain", record.dns_device, "~."])
    else:
        lines = "".join(f"nameserver {server}\n" for server in servers)
        _tool(["resolvconf", "-a", record.dns_device, "-m", "0", "-x"], lines)


def _restore_dns(record: Record) -> None:
    if record.dns_by == "resolvectl":
        # The link may be gone already, and its name servers with it.
        with contextlib.suppress(FvError):
            _tool(["resolvectl", "revert", record.dns_device])
    elif record.dns_by == "resolvconf":
        _tool(["resolvconf", "-d", record.dns_device, "-f"])


def _tool(words: list[str], stdin: str = "") -> None:
    done = subprocess.run(words, input=stdin, text=True, capture_output=True, check=False)
    if done.returncode:
        raise FvError(f"{' '.join(words)}: {done.stderr.strip() or f'status {done.returncode}'}")
