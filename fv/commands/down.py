"""`fv down FILE`: take back what `fv up FILE` did."""

import contextlib

import click

from fv.config.load import load
from fv.config.model import Engine
from fv.errors import FvError
from fv.service import down


@click.command()
@click.argument("file", type=click.Path())
@click.option("--control", default="", help="The control socket, where the configuration no longer says it.")
def command(file: str, control: str) -> None:
    """Stop what `fv up FILE` started and take everything back."""
    if not control:
        # The file may be gone or broken since: what is up is still to be taken down.
        with contextlib.suppress(FvError):
            control = load(file).config.engine.control
    record = down(file, control or Engine().control)
    click.echo(f"{file} is down (process {record.pid} has ended)")
