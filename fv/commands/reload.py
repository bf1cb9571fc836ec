"""`fv reload FILE`: compile, show the difference, swap. All or nothing."""

import click

from fv import uapi
from fv.config.load import load
from fv.errors import FvError
from fv.host import gather
from fv.plan.compile import compile_plan
from fv.plan.text import difference, read, write


@click.command()
@click.argument("file", type=click.Path())
@click.option("--control", default="", help="The engine's control socket; the configuration's own by default.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
def command(file: str, control: str, dry_run: bool) -> None:
    """Put a changed configuration in force without dropping a connection."""
    loaded = load(file)
    path = control or loaded.config.engine.control
    if not path:
        raise FvError("this configuration has no control socket", hint="set control in [engine], or give --control")
    compiled = compile_plan(loaded, gather(loaded.config))
    changes = difference(read(uapi.plan_in_force(path), path), compiled.plan)
    for warning in compiled.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(changes, nl=False)
    if not changes:
        click.echo("nothing changes")
    elif not dry_run:
        uapi.swap(path, write(compiled.plan))
        click.echo("in force")
