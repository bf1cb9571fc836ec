"""`fv check FILE`: read, judge, compile for this host; say what is wrong or that nothing is."""

import click

from fv.config.load import load
from fv.host import gather
from fv.plan.compile import compile_plan
from fv.plan.text import write


@click.command()
@click.argument("file", type=click.Path())
def command(file: str) -> None:
    """Say what is wrong with a configuration: file, line, key, and what would be right."""
    loaded = load(file)
    compiled = compile_plan(loaded, gather(loaded.config))
    write(compiled.plan)  # the line limit
    for warning in compiled.warnings:
        click.echo(f"warning: {warning}", err=True)
    count = len(loaded.config.endpoints)
    click.echo(f"{file}: good: {count} endpoint{'s' if count != 1 else ''}")
