"""`fv install FILE`: a systemd unit that runs the configuration."""

import pathlib
import re
import shutil
import subprocess
import sys

import click

from fv.config.load import load
from fv.engine import find_fvd
from fv.errors import FvError, Where
from fv.files import write_atomically
from fv.service import name_of

UNITS = "/etc/systemd/system"

# The engine sets addresses, routes and sysctls: what it may not do is everything else.
UNIT = """[Unit]
Description=fv carries the network of {file}
After=network.target
Before=network-online.target

[Service]
Type=exec
Environment=FV_FVD={fvd}
ExecStartPre={fv} check {file}
ExecStart={fv} run {file}
ExecReload={fv} reload {file}
Restart=on-failure
RestartSec=2
RuntimeDirectory=fv wireguard
RuntimeDirectoryPreserve=yes
StateDirectory=fv
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE CAP_SYS_NICE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
{writable}PrivateTmp=yes
DeviceAllow=/dev/net/tun rw
LimitCORE=0

[Install]
WantedBy=multi-user.target
"""


def unit_text(file: pathlib.Path, fv: str, fvd: str, folders: tuple[str, ...] = ()) -> str:
    """`folders`: where the engine writes, when that is not where systemd makes it a folder anyway."""
    own = [folder for folder in folders if folder not in ("/run/fv", "/var/lib/fv")]
    writable = f"ReadWritePaths={' '.join(map(_escaped, own))}\n" if own else ""
    return UNIT.format(file=_escaped(str(file)), fv=fv, fvd=_escaped(fvd), writable=writable)


def _escaped(text: str) -> str:
    """systemd's own quoting (systemd.syntax(7)): a percent sign is doubled, spaces need quotes."""
    text = text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"' if re.search(r"\s", text) else text


@click.command()
@click.argument("file", type=click.Path())
@click.option("--print", "only_print", is_flag=True, help="Show the unit and install nothing.")
@click.option("--now", is_flag=True, help="Enable and start it as well.")
def command(file: str, only_print: bool, now: bool) -> None:
    """Install a systemd unit that runs a configuration at boot."""
    loaded = load(file)
    program = pathlib.Path(sys.argv[0]).resolve()
    fv = _escaped(str(program)) if program.name == "fv" else f"{_escaped(sys.executable)} -m fv"
    engine = loaded.config.engine
    folders = [engine.state] if engine.state else []
    folders += [str(pathlib.Path(engine.control).parent)] if engine.control else []
    text = unit_text(pathlib.Path(file).resolve(), fv, find_fvd(), tuple(folders))
    if only_print:
        click.echo(text, nl=False)
        return
    if loaded.config.gateway and loaded.config.gateway.dns:
        click.echo("warning: dns is set by `fv up` only, not by the unit", err=True)
    if shutil.which("systemctl") is None:
        raise FvError("there is no systemd here", hint="run `fv run FILE` from this system's own init")
    name = f"fv-{name_of(file)}.service"
    path = pathlib.Path(UNITS) / name
    try:
        write_atomically(path, text, mode=0o644)
    except OSError as error:
        raise FvError(
            f"cannot be written: {error.strerror}", where=Where(str(path)), hint="run as root (sudo)"
        ) from None
    _systemctl("daemon-reload")
    if now:
        _systemctl("enable", "--now", name)
        click.echo(f"{name} is installed and running; its log: journalctl -u {name}")
    else:
        click.echo(f"{name} is installed; start it with: systemctl enable --now {name}")


def _systemctl(*words: str) -> None:
    done = subprocess.run(["systemctl", *words], text=True, capture_output=True, check=False)
    if done.returncode:
        raise FvError(f"systemctl {' '.join(words)}: {done.stderr.strip()}")
