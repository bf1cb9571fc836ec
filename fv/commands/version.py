"""`fv version`: the versions that matter in a bug report."""

import platform

import click

from fv import __version__


@click.command()
def command() -> None:
    """Print fv's version, Python's and the kernel's."""
    click.echo(f"fv {__version__}")
    click.echo(f"python {platform.python_version()}")
    click.echo(f"{platform.system().lower()} {platform.release()} {platform.machine()}")
