"""`fv import FILE`: a wg-quick file to a configuration of fv's."""

import pathlib
import re

import click

from fv import wgquick
from fv.config.check import check
from fv.config.load import decode
from fv.config.syntax import parse
from fv.errors import FvError, Where
from fv.files import write_atomically


@click.command()
@click.argument("file", type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Write there (mode 0600) and not to standard output.")
@click.option("--tag", default="", help="Name of the endpoint and its interface; the file's name by default.")
def command(file: str, output: str | None, tag: str) -> None:
    """Turn a wg-quick file into a configuration."""
    try:
        raw = pathlib.Path("/dev/stdin" if file == "-" else file).read_bytes()
    except OSError as error:
        raise FvError(f"cannot be read: {error.strerror}", where=Where(file)) from None
    # Latin-1 cannot fail: a comment in another encoding is no reason to refuse a file whose keys are ASCII.
    text = _decoded(raw)
    found = wgquick.read(text, file)
    name = tag or re.sub(r"[^A-Za-z0-9_=+.-]", "-", pathlib.Path(file).stem)[:15].strip(".-") or "wg0"
    toml = wgquick.to_toml(found, name)
    check(decode(parse(toml, f"{name}.toml")))
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    dropped = [*found.search, *(() if wgquick.takes_everything(found) else found.dns)]
    if dropped:
        click.echo(f"warning: DNS {', '.join(dropped)} is left out: set it where this host's resolver is set", err=True)
    if output is None:
        click.echo(toml, nl=False)
        return
    if pathlib.Path(output).exists():
        raise FvError("is there already", where=Where(output), hint="choose another name, or remove it")
    try:
        write_atomically(pathlib.Path(output), toml)
    except OSError as error:
        raise FvError(f"cannot be written: {error.strerror}", where=Where(output)) from None
    click.echo(f"{output}: {len(found.peers)} peer{'s' if len(found.peers) != 1 else ''}; next: fv check {output}")


def _decoded(raw: bytes) -> str:
    for encoding in ("utf-8-sig", "utf-16") if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ("utf-8-sig",):
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            continue
    return raw.decode("latin-1")
