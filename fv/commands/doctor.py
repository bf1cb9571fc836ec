"""`fv doctor FILE`: why nothing passes, and what to type."""

import sys

import click
import msgspec

from fv.config.load import load
from fv.doctor import BAD, GOOD, examine


@click.command()
@click.argument("file", type=click.Path(), default="/etc/fv/edge.toml")
@click.option("--web", default="", help="A web server whose clock this one is compared with: http://HOST/")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def command(file: str, web: str, as_json: bool) -> None:
    """Look for the cause when the tunnel is up and nothing passes. Status 1 when something is found."""
    findings = examine(load(file), web=web)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.level:4}  {finding.name:{width}}  {finding.what}")
            if finding.do and finding.level != GOOD:
                click.echo(f"{'':4}  {'':{width}}  -> {finding.do}")
    bad = sum(finding.level == BAD for finding in findings)
    if bad:
        click.echo(f"{bad} thing{'s' if bad > 1 else ''} to put right", err=True)
        sys.exit(1)
