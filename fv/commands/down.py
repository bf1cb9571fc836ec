"""`fv down FILE`: take back what `fv up FILE` did."""

import contextlib

import click

from fv.config.load import load
from fv.config.model import Engine
from fv.errors import FvError
from fv.plan.network import policy
from fv.service import down


@click.command()
@click.argument("file", type=click.Path())
@click.option("--control", default="", help="The control socket, where the configuration no longer says it.")
def command(file: str, control: str) -> None:
    """Stop what `fv up FILE` started and take everything back."""
    tables: tuple[int, ...] = ()
    priorities: tuple[int, ...] = ()
    # The file may be gone or broken since: what is up is still to be taken down.
    with contextlib.suppress(FvError):
        config = load(file).config
        control = control or config.engine.control
        chosen = policy(config)
        if chosen is not None:
            tables = (chosen.table,)
            priorities = (chosen.priority, chosen.priority + 5, chosen.priority + 10)
    done = down(file, control or Engine().control, tables, priorities)
    click.echo(f"{file} is down: {done}")
