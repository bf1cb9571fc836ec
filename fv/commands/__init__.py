"""One file a subcommand of `fv`: see fv/cli.py."""
