"""The command line `fv`: every file in fv/commands is a subcommand.

A subcommand's module has the name that the user types ('-' written '_', and a trailing '_' where the word is one of
Python's: import_.py is `fv import`) and holds one `click.Command` called `command`. It is imported when it is asked
for, so that `fv status` does not pay for what `fv doctor` needs.
"""

import importlib
import pkgutil
import sys

import click

from fv import __version__, commands
from fv.errors import FvError


def _command_name(module_name: str) -> str:
    return module_name.rstrip("_").replace("_", "-")


class CommandFolder(click.Group):
    """A click group whose commands are the modules of fv/commands."""

    def _modules(self) -> dict[str, str]:
        return {_command_name(m.name): m.name for m in pkgutil.iter_modules(commands.__path__)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._modules())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module_name = self._modules().get(cmd_name)
        if module_name is None:
            return None
        command = importlib.import_module(f"{commands.__name__}.{module_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"fv/commands/{module_name}.py: `command` is not a click command")
        return command


@click.command(cls=CommandFolder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="fv", message="%(prog)s %(version)s")
def cli() -> None:
    """Carry a network's traffic: make keys and plans, start and inspect the engine."""


def main() -> None:
    """Entry point: an FvError is a message for the user, not a traceback."""
    try:
        cli()
    except FvError as error:
        click.echo(f"fv: {error}", err=True)
        sys.exit(1)
