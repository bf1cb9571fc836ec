"""The plan as text: percent-coding, writer, reader, difference.

`read(write(plan)) == plan` for every plan. Reading is all or nothing: the first thing wrong is an error with its line.
Comments and blank lines are not part of a plan.
"""

import difflib
import hashlib

import msgspec

from fv.errors import FvError, Where, unknown_hint
from fv.plan.schema import FEATURES, LINE_LIMIT, SECTIONS, VERSION, SectionType, section_type

HIDDEN = "(hidden)"


class Line(msgspec.Struct, frozen=True):
    key: str
    value: str


class Section(msgspec.Struct, frozen=True):
    type: str
    name: str
    lines: tuple[Line, ...]

    def header(self) -> str:
        return f"[{self.type} {encode(self.name, also=']')}]" if self.name else f"[{self.type}]"

    def get(self, key: str) -> str:
        """The value of a key that stands once; its default when it is absent."""
        found = [line.value for line in self.lines if line.key == key]
        if found:
            return found[0]
        schema = section_type(self.type)
        known = schema.key(key) if schema else None
        return known.default if known else ""

    def all(self, key: str) -> tuple[str, ...]:
        return tuple(line.value for line in self.lines if line.key == key)


class Plan(msgspec.Struct, frozen=True):
    needs: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()

    def of(self, type_name: str) -> tuple[Section, ...]:
        return tuple(section for section in self.sections if section.type == type_name)


def encode(value: str, also: str = "") -> str:
    """Percent-code what a line cannot hold: other than 0x20..0x7e, `%`, a space at either end."""
    raw = value.encode("utf-8", "surrogateescape")
    out = []
    for place, byte in enumerate(raw):
        edge_space = byte == 0x20 and place in (0, len(raw) - 1)
        if not 0x20 <= byte <= 0x7E or byte == 0x25 or edge_space or chr(byte) in also:
            out.append(f"%{byte:02X}")
        else:
            out.append(chr(byte))
    return "".join(out)


def decode(text: str) -> str:
    """The reverse of `encode`. ValueError says what is wrong with the text."""
    out = bytearray()
    place = 0
    while place < len(text):
        char = text[place]
        if char == "%":
            digits = text[place + 1 : place + 3]
            if len(digits) != 2 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise ValueError("% without two hex digits after it")
            out.append(int(digits, 16))
            place += 3
            continue
        if not "\x20" <= char <= "\x7e":
            raise ValueError(f"character U+{ord(char):04X} is not percent-encoded")
        out.append(ord(char))
        place += 1
    if text != text.strip(" "):
        raise ValueError("a space at the start or the end is not percent-encoded")
    return out.decode("utf-8", "surrogateescape")


def write(plan: Plan, *, secrets: bool = True) -> str:
    """The text for the engine; with `secrets=False`, the text for a reader: keys are replaced by a remark."""
    out = [f"plan={VERSION}", f"needs={','.join(plan.needs)}"]
    for section in plan.sections:
        out += ["", section.header()]
        schema = section_type(section.type)
        for line in section.lines:
            known = schema.key(line.key) if schema else None
            hide = not secrets and known is not None and known.secret
            out.append(f"{line.key}={HIDDEN if hide else encode(line.value)}")
    text = "\n".join(out) + "\n"
    for number, written in enumerate(out, 1):
        if len(written) > LINE_LIMIT:
            raise FvError(
                f"a line of {len(written)} bytes; the plan's limit is {LINE_LIMIT}",
                where=Where("plan", number, written.split("=", 1)[0]),
            )
    return text


class _Reader:
    """State of one reading. `file` is only for messages."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.number = 0
        self.needs: tuple[str, ...] = ()
        self.sections: list[Section] = []
        self.schema: SectionType | None = None
        self.name = ""
        self.lines: list[Line] = []
        self.peer = False
        self.seen: set[str] = set()
        self.headers: set[tuple[str, str]] = set()

    def wrong(self, what: str, *, key: str = "", hint: str = "") -> FvError:
        return FvError(what, where=Where(self.file, self.number, key), hint=hint)

    def close(self) -> None:
        if self.schema is None:
            return
        for key in self.schema.keys:
            if key.required and not any(line.key == key.name for line in self.lines):
                raise self.wrong(f"[{self.schema.name} {self.name}] has no {key.name}=", hint=key.text)
        self.sections.append(Section(self.schema.name, self.name, tuple(self.lines)))

    def header(self, text: str) -> None:
        self.close()
        if not text.endswith("]"):
            raise self.wrong("a section header without its ]")
        kind, space, raw = text[1:-1].partition(" ")
        schema = section_type(kind)
        if schema is None:
            raise self.wrong(f"unknown section [{kind}]", hint=unknown_hint(kind, [s.name for s in SECTIONS]))
        try:
            name = decode(raw)
        except ValueError as error:
            raise self.wrong(str(error), key=text) from None
        if schema.named != bool(space and name):
            raise self.wrong(f"[{kind}] {'needs a name' if schema.named else 'has no name'}", key=text)
        if (kind, name) in self.headers:
            raise self.wrong("the same section a second time", key=text)
        self.headers.add((kind, name))
        self.schema, self.name, self.lines, self.peer, self.seen = schema, name, [], False, set()

    def pair(self, text: str) -> None:
        name, equals, raw = text.partition("=")
        if not equals:
            raise self.wrong("neither key=value nor [SECTION]")
        try:
            value = decode(raw)
        except ValueError as error:
            raise self.wrong(str(error), key=name) from None
        if self.schema is None:
            self.preamble(name, value)
            return
        key = self.schema.key(name)
        if key is None:
            raise self.wrong(
                f"unknown key in [{self.schema.name}]",
                key=name,
                hint=unknown_hint(name, [k.name for k in self.schema.keys]),
            )
        right = key.kind.check(value)
        if right:
            # A secret's text stays out of messages, its length may be said.
            shown = f"a value of {len(value)} characters" if key.secret else repr(value)
            raise self.wrong(f"{shown} is not {right}", key=name)
        if key.name == "public_key":
            self.peer = True
            self.seen -= {k.name for k in self.schema.keys if k.peer}
        elif key.peer != self.peer:
            raise self.wrong("stands before any public_key=" if key.peer else "stands after the first peer", key=name)
        if not key.repeat and name in self.seen:
            raise self.wrong("stands a second time", key=name)
        self.seen.add(name)
        self.lines.append(Line(name, value))

    def preamble(self, name: str, value: str) -> None:
        if name == "plan" and not self.seen:
            if value != str(VERSION):
                raise self.wrong(f"plan version {value!r}; this fv reads version {VERSION}", key=name)
        elif "plan" not in self.seen:
            raise self.wrong(f"the first line is not plan={VERSION}", key=name)
        elif name == "needs" and "needs" not in self.seen:
            self.needs = tuple(value.split(",")) if value else ()
            for word in self.needs:
                if word not in FEATURES:
                    raise self.wrong(f"needs {word!r}, which is unknown", key=name, hint=unknown_hint(word, FEATURES))
        else:
            raise self.wrong("stands before any section", key=name)
        self.seen.add(name)


def read(text: str, file: str = "plan") -> Plan:
    reader = _Reader(file)
    for number, line in enumerate(text.split("\n"), 1):
        reader.number = number
        if len(line.encode("utf-8", "surrogateescape")) > LINE_LIMIT:
            raise reader.wrong(f"a line longer than {LINE_LIMIT} bytes")
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            if "plan" not in reader.seen and not reader.headers:
                raise reader.wrong(f"the first line is not plan={VERSION}")
            reader.header(line)
        else:
            reader.pair(line)
    if "plan" not in reader.seen and not reader.headers:
        raise reader.wrong(f"the first line is not plan={VERSION}")
    reader.close()
    return Plan(reader.needs, tuple(reader.sections))


def difference(old: Plan, new: Plan) -> str:
    """What a swap changes, secrets hidden but a changed secret visible as a change; empty when nothing does."""
    before, after = _fingerprinted(old), _fingerprinted(new)
    return "".join(difflib.unified_diff(before, after, "in force", "new", n=2))


def _fingerprinted(plan: Plan) -> list[str]:
    """Lines of the plan with every secret replaced by 24 bits of a digest: it shows that a key changed, and 24 bits
    of 32 random bytes give nothing of it away."""
    out = [f"needs={','.join(plan.needs)}\n"]
    for section in plan.sections:
        schema = section_type(section.type)
        out.append(section.header() + "\n")
        for line in section.lines:
            known = schema.key(line.key) if schema else None
            if known and known.secret:
                mark = hashlib.blake2s(line.value.encode(), digest_size=3, person=b"fv-diff").hexdigest()
                out.append(f"{line.key}=(hidden, mark {mark})\n")
            else:
                out.append(f"{line.key}={encode(line.value)}\n")
    return out
