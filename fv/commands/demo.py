"""`fv demo`: a LAN on this machine whose traffic goes through fv, without any configuration."""

import os
import shutil
import subprocess
import sys

import click

from fv.errors import FvError

_UNSHARED = "FV_DEMO_UNSHARED"


@click.command()
@click.option("--seconds", type=click.FloatRange(min=1), help="End by itself after so many seconds.")
@click.option("--clean", is_flag=True, help="Only take away what a crashed demo left.")
def command(seconds: float | None, clean: bool) -> None:
    """Show a LAN going through fv's WireGuard, in namespaces on this machine."""
    if os.environ.get(_UNSHARED):
        _private_run()
    elif os.geteuid() != 0:
        _unshare()
    from fv.demo import net, run

    if clean:
        with run.alone():
            found = net.clean()
        click.echo(f"taken away: {', '.join(found)}" if found else "there was nothing to take away")
        return
    run.run(seconds)


def _unshare() -> None:
    """Without root: again, as root of a user namespace of its own."""
    words = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    probe = (
        shutil.which("unshare") and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    )
    if not probe:
        raise FvError("this kernel does not let an ordinary user make namespaces", hint="run as root: sudo ./task up")
    os.environ[_UNSHARED] = "1"
    os.execvp(words[0], [*words, sys.executable, "-m", "fv", *sys.argv[1:]])  # noqa: S606 - the same program again


def _private_run() -> None:
    """/run is root's; in our own mount namespace there can be another."""
    if not os.path.ismount("/run") or os.stat("/run").st_uid != os.geteuid() or not os.access("/run", os.W_OK):  # noqa: PTH116
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
