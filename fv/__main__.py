"""`python -m fv` is `fv`."""

from fv.cli import main

main()
