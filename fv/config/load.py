"""Text to `Config`: syntax, unknown fields, types, then meaning. Every fault names its file, line and key.

Unknown fields are found by a walk of ours over the data and msgspec's own description of the structs, so that all of
them are reported at once and the nearest known name is offered. Types are msgspec's to
judge; its path is turned into a line by the document's map.
"""

import pathlib
import re
from typing import Any

import msgspec

from fv.config.model import HELD, Config, Secret
from fv.config.syntax import Document, Path, parse, show
from fv.errors import FvError, Where, raise_all, unknown_hint

NEWEST = 1  # version of the configuration that this fv writes


class Loaded(msgspec.Struct, frozen=True):
    config: Config
    document: Document


def load(file: str) -> Loaded:
    """Read and check one file. `-` is standard input."""
    from fv.config.check import check  # checks need `Loaded`

    loaded = decode(parse(_read(file), file))
    check(loaded)
    return loaded


def _read(file: str) -> str:
    where = Where(file)
    try:
        raw = pathlib.Path("/dev/stdin" if file == "-" else file).read_bytes()
    except FileNotFoundError:
        raise FvError("there is no such file", where=where) from None
    except OSError as error:
        raise FvError(f"cannot be read: {error.strerror}", where=where) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise FvError("not UTF-8", where=Where(file, line), hint="save the file as UTF-8") from None


def decode(document: Document) -> Loaded:
    version = document.data.get("version", 1)
    if isinstance(version, int) and version > NEWEST:
        raise FvError(f"version {version} is newer than this fv", where=document.where(("version",)),
                      hint=f"fv reads up to version {NEWEST}; install a newer fv")  # fmt: skip
    walk = _Walk(document)
    data = walk.value(document.data, msgspec.inspect.type_info(Config), ())
    raise_all(walk.errors)
    try:
        config = msgspec.convert(data, Config, dec_hook=_hook)
    except msgspec.ValidationError as error:
        raise _located(error, document) from None
    return Loaded(config, document)


def _hook(kind: type, value: object) -> object:
    if kind is Secret:
        if isinstance(value, str):
            return Secret(value)
        raise ValueError("Expected `str`")
    raise NotImplementedError(kind)


class _Walk:
    """One pass over the data: a single item where a list belongs becomes a list of it (sing-box's rule), and unknown
    fields are collected."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.errors: list[FvError] = []

    def value(self, data: Any, kind: msgspec.inspect.Type, path: Path) -> Any:
        if isinstance(kind, msgspec.inspect.UnionType):
            inner = [t for t in kind.types if isinstance(t, msgspec.inspect.StructType | msgspec.inspect.VarTupleType)]
            # A union with a list in it (`reserved`) takes the other form as it is.
            wanted = [t for t in inner if isinstance(t, msgspec.inspect.StructType) == isinstance(data, dict)]
            return self.value(data, wanted[0], path) if wanted and not isinstance(data, str) else data
        if isinstance(kind, msgspec.inspect.VarTupleType):
            if not isinstance(data, list):
                return [self.value(data, kind.item_type, path)]
            return [self.value(item, kind.item_type, (*path, index)) for index, item in enumerate(data)]
        if isinstance(kind, msgspec.inspect.StructType) and isinstance(data, dict):
            return self.table(data, kind, path)
        return data

    def table(self, data: dict[str, Any], kind: msgspec.inspect.StructType, path: Path) -> dict[str, Any]:
        fields = {field.encode_name: field for field in kind.fields}
        known = [*fields, *([kind.tag_field] if kind.tag_field else [])]
        table = next((str(step) for step in path[:1]), "")
        out = {}
        for key, value in data.items():
            if key in fields:
                out[key] = self.value(value, fields[key].type, (*path, key))
            elif key == kind.tag_field:
                out[key] = value
            elif len(path) < 3 and key in HELD.get(table, ()):
                self.errors.append(FvError("fv does not have this yet", where=self.document.where((*path, key)),
                                           hint="take it out, or wait for a version that has it"))  # fmt: skip
            else:
                self.errors.append(FvError("unknown field", where=self.document.where((*path, key)),
                                           hint=unknown_hint(key, known)))  # fmt: skip
        return out


_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\.\.\.|\d+)\]")
_RIGHT = {
    "Expected `str`": "a text in quotes",
    "Expected `int`": "a number",
    "Expected `bool`": "true or false",
    "Expected `array`": "a list in [ ]",
    "Expected `object`": "a table",
    "Expected `int | str`": "a number or a text in quotes",
}


def _located(error: msgspec.ValidationError, document: Document) -> FvError:
    """msgspec's complaint in fv's form."""
    text = str(error)
    match = _PATH.search(text)
    what = text[: match.start()] if match else text
    path = _steps(match[1] if match else "")
    missing = re.fullmatch(r"Object missing required field `(.+)`", what)
    if missing:
        return FvError(f"{missing[1]} is missing", where=document.where(path), hint=f"add `{missing[1]}` there")
    if path and path[-1] == "type":
        return FvError("fv does not have this type yet", where=document.where(path), hint="known here: wireguard")
    got = re.fullmatch(r"(Expected `.+`), got `(\w+)`", what)
    if got:
        right = _RIGHT.get(got[1], got[1].replace("Expected ", "").strip("`"))
        return FvError(f"this is {_a(got[2])}", where=document.where(path), hint=f"it should be {right}")
    what = what.replace("Invalid enum value", "unknown word").replace("`", "'")
    return FvError(what[0].lower() + what[1:], where=document.where(path), hint=_choices(path))


def _a(kind: str) -> str:
    return {"str": "a text", "int": "a number", "float": "a number with a fraction", "bool": "true or false",
            "array": "a list", "object": "a table", "null": "null"}.get(kind, kind)  # fmt: skip


def _choices(path: Path) -> str:
    """The words that a field takes, where it takes some words only."""
    kind: Any = msgspec.inspect.type_info(Config)
    for step in path:
        if isinstance(kind, msgspec.inspect.UnionType):
            kind = next((t for t in kind.types if isinstance(t, msgspec.inspect.StructType)), None)
        if isinstance(kind, msgspec.inspect.VarTupleType):
            kind = kind.item_type
        elif isinstance(kind, msgspec.inspect.StructType):
            kind = next((f.type for f in kind.fields if f.encode_name == step), None)
    if isinstance(kind, msgspec.inspect.LiteralType):
        return "one of " + ", ".join(str(word) for word in kind.values if word)
    return ""


def _steps(text: str) -> Path:
    """msgspec's path; it ends at a dictionary whose keys are free, which msgspec writes as [...]."""
    out: list[str | int] = []
    for match in _STEP.finditer(text):
        if match[2] == "...":
            break
        out.append(match[1] if match[1] else int(match[2]))
    return tuple(out)


__all__ = ["Loaded", "decode", "load", "show"]
