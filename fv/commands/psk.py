"""`fv psk`: as `wg genpsk`."""

import click

from fv.keys import generate_psk, show_key


@click.command()
def command() -> None:
    """Make a preshared key."""
    click.echo(show_key(generate_psk()))
