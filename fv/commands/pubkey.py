"""`fv pubkey`: as `wg pubkey`, the private key comes by standard input so that no argument list shows it."""

import sys

import click

from fv.errors import FvError, Where
from fv.keys import parse_key, public_of, show_key


@click.command()
def command() -> None:
    """Read a private key from standard input, print its public key."""
    if sys.stdin.isatty():
        click.echo("private key: ", nl=False, err=True)
    try:
        private = parse_key(sys.stdin.readline())
    except ValueError as error:
        raise FvError(str(error), where=Where("stdin")) from None
    click.echo(show_key(public_of(private)))
