"""`fv keygen`: as `wg genkey`."""

import click

from fv.keys import generate_private, show_key


@click.command()
def command() -> None:
    """Make a private key."""
    click.echo(show_key(generate_private()))
