"""The text of a configuration: TOML or JSON (with comments and trailing commas) to data, and a map from every key
path to its line and place in the text.

msgspec and tomllib say what is wrong and where in the data; the map says where in the file. The scanners only follow
structure (keys, brackets, strings): the parsers have accepted the text before a scanner sees it.
"""

import json
import re
import tomllib
from typing import Any

import msgspec

from fv.errors import FvError, Where

Path = tuple[str | int, ...]


class Span(msgspec.Struct, frozen=True):
    """Where a value stands: line of its key (from 1), offset of its first character and of the one after its last."""

    line: int
    start: int
    end: int


class Document(msgspec.Struct, frozen=True):
    file: str
    text: str
    json: bool
    data: dict[str, Any]
    spans: dict[Path, Span]

    def where(self, path: Path) -> Where:
        """The place of a path, or of the nearest thing around it that has one.

        A single item may stand where a list belongs; then the file has no index for it, and the path loses its own.
        """
        here: Any = self.data
        written: list[str | int] = []
        for step in path:
            if isinstance(step, int) and not isinstance(here, list):
                continue
            written.append(step)
            if isinstance(here, list) and isinstance(step, int) and step < len(here):
                here = here[step]
            else:
                here = here.get(step) if isinstance(here, dict) else None
        path = tuple(written)
        for length in range(len(path), -1, -1):
            span = self.spans.get(path[:length])
            if span is not None:
                return Where(self.file, span.line, show(path))
        return Where(self.file, 1, show(path))


def show(path: Path) -> str:
    """`endpoints[0].peers[1].port`"""
    out = ""
    for step in path:
        out += f"[{step}]" if isinstance(step, int) else f".{step}" if out else step
    return out


def parse(text: str, file: str) -> Document:
    """By the file's name; without a telling one, by the first character that is not a space."""
    text = text.removeprefix("\ufeff")
    is_json = file.endswith((".json", ".jsonc")) or (
        not file.endswith(".toml") and text.lstrip().startswith(("{", "//", "/*"))
    )
    return _parse_json(text, file) if is_json else _parse_toml(text, file)


# JSON


_JSON_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|#[^\n]*', re.DOTALL)


def _blank(text: str) -> str:
    """Comments and trailing commas replaced by spaces, so that offsets and lines stay."""

    def comment(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    def comma(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else " " + found[1:]

    plain = _JSON_TOKEN.sub(comment, text)
    return re.sub(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])', comma, plain)


def _parse_json(text: str, file: str) -> Document:
    plain = _blank(text)
    pairs_twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in items:
            if key in out:
                pairs_twice.append(key)
            out[key] = value
        return out

    try:
        data = json.loads(plain, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise FvError(f"not JSON: {error.msg} (column {error.colno})", where=Where(file, error.lineno)) from None
    except RecursionError:
        raise FvError("nested too deeply", where=Where(file, 1)) from None
    if not isinstance(data, dict):
        raise FvError("not a configuration", where=Where(file, 1), hint="the whole is one object in { }")
    scan = _JsonScan(plain)
    scan.value((), 1)
    if pairs_twice:
        raise FvError("stands twice in one object", where=Where(file, scan.twice or 1, pairs_twice[0]))
    return Document(file, text, True, data, scan.spans)


class _Scan:
    """A cursor over text that counts lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.line = 1
        self.spans: dict[Path, Span] = {}

    def peek(self, count: int = 1) -> str:
        return self.text[self.place : self.place + count]

    def step(self, count: int = 1) -> None:
        self.line += self.text.count("\n", self.place, self.place + count)
        self.place += count

    def skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.place)
        found = match.group() if match else ""
        self.step(len(found))
        return found


_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_JSON_WORD = re.compile(r"[^\s,\]}]+")


class _JsonScan(_Scan):
    twice = 0

    def value(self, path: Path, line: int) -> None:
        self.skip(_JSON_SPACE)
        start = self.place
        if self.peek() == "{":
            self.step()
            while self.skip(_JSON_SPACE) is not None and self.peek() not in "}":
                key_line = self.line
                key = str(json.loads(self.skip(_JSON_STRING)))
                self.skip(_JSON_SPACE)
                self.step()  # the colon
                if (*path, key) in self.spans:
                    self.twice = self.twice or key_line
                self.value((*path, key), key_line)
                self.comma()
            self.step()
        elif self.peek() == "[":
            self.step()
            index = 0
            while self.skip(_JSON_SPACE) is not None and self.peek() not in "]":
                self.value((*path, index), self.line)
                self.comma()
                index += 1
            self.step()
        elif not self.skip(_JSON_STRING):
            self.skip(_JSON_WORD)
        self.spans[path] = Span(line, start, self.place)

    def comma(self) -> None:
        self.skip(_JSON_SPACE)
        if self.peek() == ",":
            self.step()


# TOML


def _parse_toml(text: str, file: str) -> Document:
    # tomllib takes CRLF; a lone NBSP between tokens comes from web pages and phones and is only a space.
    lenient = text.replace("\u00a0", " ")
    try:
        data = tomllib.loads(lenient)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r" \(at line (\d+), column (\d+)\)$", str(error))
        what = str(error)[: match.start()] if match else re.sub(r" \(at end of document\)$", "", str(error))
        line = int(match[1]) if match else max(1, len(text.splitlines()))
        raise FvError(f"not TOML: {what}", where=Where(file, line)) from None
    except RecursionError:
        raise FvError("nested too deeply", where=Where(file, 1)) from None
    scan = _TomlScan(lenient)
    scan.document()
    return Document(file, text, False, data, scan.spans)


_TOML_SPACE = re.compile(r"[ \t]*")
_TOML_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_TOML_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TOML_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:\\.|[^"\\\n])*"|' r"'[^'\n]*'", re.DOTALL)
_TOML_WORD = re.compile(r"[^,\]}\n#]+")


class _TomlScan(_Scan):
    def document(self) -> None:
        arrays: dict[Path, int] = {}  # how many [[...]] of a path have been seen, by resolved path
        here: Path = ()
        self.spans[()] = Span(1, 0, len(self.text))
        while self.skip(_TOML_BLANK) is not None and self.place < len(self.text):
            line, start = self.line, self.place
            if self.peek(2) == "[[":
                self.step(2)
                here = self.resolve(self.key(), arrays)
                arrays[here] = arrays.get(here, -1) + 1
                here = (*here, arrays[here])
                self.step(2)
                self.spans[here] = Span(line, start, self.place)
                self.spans.setdefault(here[:-1], self.spans[here])
            elif self.peek() == "[":
                self.step(1)
                here = self.resolve(self.key(), arrays)
                self.step(1)
                self.spans[here] = Span(line, start, self.place)
            else:
                self.pair(here)

    def resolve(self, key: Path, arrays: dict[Path, int]) -> Path:
        """A header's key: every part but the last that is an array of tables means its last table."""
        out: Path = ()
        for place, part in enumerate(key):
            out = (*out, part)
            if out in arrays and place < len(key) - 1:
                out = (*out, arrays[out])
        return out

    def key(self) -> Path:
        parts: list[str] = []
        while True:
            self.skip(_TOML_SPACE)
            quoted = self.skip(_TOML_STRING)
            parts.append(str(tomllib.loads(f"k = {quoted}")["k"]) if quoted else self.skip(_TOML_BARE))
            self.skip(_TOML_SPACE)
            if self.peek() != ".":
                return tuple(parts)
            self.step()

    def pair(self, here: Path) -> None:
        line = self.line
        key = self.key()
        path = (*here, *key)
        self.step()  # the equals sign
        self.skip(_TOML_SPACE)
        for length in range(len(here) + 1, len(path)):
            self.spans.setdefault(path[:length], Span(line, self.place, self.place))
        self.value(path, line)

    def value(self, path: Path, line: int) -> None:
        start = self.place
        if self.peek() == "[":
            self.step()
            index = 0
            while self.skip(_TOML_BLANK) is not None and self.peek() != "]":
                self.value((*path, index), self.line)
                self.skip(_TOML_BLANK)
                if self.peek() == ",":
                    self.step()
                index += 1
            self.step()
        elif self.peek() == "{":
            self.step()
            while self.skip(_TOML_BLANK) is not None and self.peek() != "}":
                self.pair(path)
                self.skip(_TOML_BLANK)
                if self.peek() == ",":
                    self.step()
            self.step()
        elif not self.skip(_TOML_STRING):
            word = self.skip(_TOML_WORD)
            self.place -= len(word) - len(word.rstrip())
        self.spans[path] = Span(line, start, self.place)
