"""`fv up FILE`: start the engine in the background, one-shot like wg-quick."""

import click

from fv.config.load import load
from fv.host import gather
from fv.plan.compile import compile_plan
from fv.service import log_path, name_of, up


@click.command()
@click.argument("file", type=click.Path())
def command(file: str) -> None:
    """Bring a configuration up in the background; `fv down FILE` takes everything back."""
    loaded = load(file)
    compiled = compile_plan(loaded, gather(loaded.config))
    for warning in compiled.warnings:
        click.echo(f"warning: {warning}", err=True)
    record = up(loaded, compiled.plan)
    click.echo(f"{file} is up: process {record.pid}, log {log_path(name_of(file), record.control)}")
