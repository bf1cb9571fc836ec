"""fv: everything around the engine that happens once per command, deployment or report."""

__version__ = "0.1.0"
