"""Prints fv's version: the one line in fv/__init__.py that names it, so that engine and CLI agree."""

import pathlib
import re

text = (pathlib.Path(__file__).resolve().parent.parent / "fv" / "__init__.py").read_text()
match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
if match is None:
    raise SystemExit("fv/__init__.py has no __version__ line")
print(match.group(1))
