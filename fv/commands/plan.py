"""`fv plan FILE`: the plan as the engine will get it, the MTU arithmetic, the ceilings."""

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fv.config.load import load
from fv.host import gather
from fv.plan.ceilings import ceilings
from fv.plan.compile import compile_plan
from fv.plan.text import write


@click.command()
@click.argument("file", type=click.Path())
@click.option("--secrets", is_flag=True, help="Show the keys too.")
@click.option("--only", is_flag=True, help="Only the plan's text, for `fvd --plan` (with --secrets) or a diff.")
def command(file: str, secrets: bool, only: bool) -> None:
    """Show what the engine would be told: the plan, how its MTUs come about, what it can use at most."""
    loaded = load(file)
    compiled = compile_plan(loaded, gather(loaded.config))
    click.echo(write(compiled.plan, secrets=secrets), nl=False)
    for warning in compiled.warnings:
        click.echo(f"warning: {warning}", err=True)
    if only:
        return
    # Comments, so that the output is a plan all the same.
    click.echo("\n# MTU")
    for mtu in compiled.mtus:
        click.echo(
            f"#   {mtu.device}: {mtu.note}; TCP segments of {mtu.value - 40} (IPv4) and {mtu.value - 60} (IPv6) bytes"
        )
    click.echo("#   WireGuard pads inner packets to 16 bytes, never beyond the MTU")
    table = Table(title="at most", title_justify="left", box=None, pad_edge=False)
    for column in ("", "memory", "descriptors", ""):
        table.add_column(column, justify="right" if column else "left")
    for item in ceilings(compiled.plan):
        table.add_row(item.what, f"{item.bytes / 1024:,.0f} KiB", str(item.descriptors), Text(item.how))
    console = Console(width=110, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n" + "".join(f"# {line}".rstrip() + "\n" for line in captured.get().splitlines()), nl=False)
