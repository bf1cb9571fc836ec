"""`fv run FILE`: compile, and become the engine."""

import click

from fv.config.load import load
from fv.engine import become_engine
from fv.host import gather
from fv.plan.compile import compile_plan


@click.command()
@click.argument("file", type=click.Path())
def command(file: str) -> None:
    """Run a configuration in the foreground: compile it and become the engine."""
    loaded = load(file)
    compiled = compile_plan(loaded, gather(loaded.config))
    for warning in compiled.warnings:
        click.echo(f"warning: {warning}", err=True)
    become_engine(compiled.plan)
