"""Turns a JSON file of test vectors into a C header: a tree of constants, read with native/tests/vectors.h.

Usage: to_header.py VECTORS.json OUT.h; defines `static const struct vector vectors_VECTORS`.
A string that could be hex (an even number of digits) is given as bytes too; which of the two it is, the test knows.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")


def quoted(text: str) -> str:
    """A C string literal; three-digit octal escapes cannot swallow what follows."""
    return '"' + "".join(c if " " <= c <= "~" and c not in '"\\?' else f"\\{ord(c):03o}" for c in text) + '"'


class Writer:
    """Collects definitions, children before parents; every node gets a number."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def fields(self, key: str, value: Any) -> str:
        """The initializer of one struct vector."""
        start = f".key = {quoted(key)}"
        if isinstance(value, dict | list):
            pairs = list(value.items()) if isinstance(value, dict) else [(str(i), v) for i, v in enumerate(value)]
            children = [self.fields(k, v) for k, v in pairs]
            if not children:
                return f"{{{start}}}"
            name = self.name("vector_list_")
            self.lines.append(f"static const struct vector {name}[] = {{")
            self.lines += [f"    {child}," for child in children]
            self.lines.append("};")
            return f"{{{start}, .children = {name}, .count = {len(children)}}}"
        if isinstance(value, bool | int):
            return f"{{{start}, .number = {int(value)}u}}"
        if not isinstance(value, str):
            raise TypeError(f"{key}: {type(value).__name__} has no form in a vector header")
        name = self.name("vector_text_")
        # Numbers, not a literal: ISO C promises only 4095 characters of one.
        self.lines.append(f"static const char {name}[] = {{{', '.join(str(b) for b in [*value.encode(), 0])}}};")
        result = f"{start}, .text = {name}, .size = {len(value.encode())}"
        if HEX.fullmatch(value):
            data = bytes.fromhex(value)
            bytes_name = self.name("vector_bytes_")
            self.lines.append(f"static const uint8_t {bytes_name}[] = {{{', '.join(str(b) for b in data) or '0'}}};")
            result += f", .bytes = {bytes_name}, .length = {len(data)}"
        return f"{{{result}}}"


def main(source: Path, target: Path) -> None:
    writer = Writer()
    root = writer.fields("", json.loads(source.read_text()))
    lines = [
        f"/* Made from {source.name} by tests/vectors/to_header.py. */",
        '#include "tests/vectors.h"',
        *writer.lines,
        f"static const struct vector vectors_{source.stem} = {root};",
    ]
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
