"""The one error class of fv's Python side: where it is, what is wrong, what would be right.

A message never contains a secret. Whoever raises an error about a key says its length, not its text.
"""

import difflib
from collections.abc import Iterable, Sequence

import msgspec


class Where(msgspec.Struct, frozen=True):
    """A place the user can go to. `line` counts from 1; 0 means that no line is known."""

    file: str = ""
    line: int = 0
    key: str = ""

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        return ": ".join(part for part in (place, self.key) if part)


class FvError(Exception):
    """Something the user can put right. `more` holds further errors found in the same pass."""

    def __init__(
        self, what: str, *, where: Where | None = None, hint: str = "", more: Sequence["FvError"] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where or Where()
        self.hint = hint
        self.more = tuple(more)

    def line(self) -> str:
        """This error alone, on one line (the hint after a semicolon)."""
        place = str(self.where)
        text = f"{place}: {self.what}" if place else self.what
        return f"{text}; {self.hint}" if self.hint else text

    def all(self) -> tuple["FvError", ...]:
        return (self, *(deeper for error in self.more for deeper in error.all()))

    def __str__(self) -> str:
        return "\n".join(error.line() for error in self.all())


def raise_all(errors: Sequence[FvError]) -> None:
    """Raise every error in one, in the order of their lines; nothing when there is none."""
    if not errors:
        return
    flat = sorted((e for error in errors for e in error.all()), key=lambda e: (e.where.file, e.where.line))
    first = flat[0]
    raise FvError(first.what, where=first.where, hint=first.hint, more=[_alone(e) for e in flat[1:]]) from errors[0]


def _alone(error: FvError) -> FvError:
    return FvError(error.what, where=error.where, hint=error.hint)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that was probably meant, or an empty string."""
    words = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), words, n=1, cutoff=0.6)
    return words[close[0]] if close else ""


def unknown_hint(word: str, known: Iterable[str]) -> str:
    words = list(known)
    near = nearest(word, words)
    if near:
        return f"did you mean {near!r}?"
    return "known here: " + ", ".join(words) if words else ""
