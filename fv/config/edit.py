"""Adding a peer to a configuration's own text: the user's layout and comments stay, only the peer is new."""

import re

import msgspec

from fv.config.syntax import Document, Path, parse
from fv.errors import FvError


class NewPeer(msgspec.Struct, frozen=True):
    name: str
    public_key: str
    pre_shared_key: str
    allowed_ips: tuple[str, ...]

    def fields(self) -> dict[str, object]:
        out: dict[str, object] = {"public_key": self.public_key}
        if self.pre_shared_key:
            out["pre_shared_key"] = self.pre_shared_key
        out["allowed_ips"] = list(self.allowed_ips)
        return out


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode().replace(",", ", ").replace('":', '": ')


def add_peer(document: Document, endpoint: int, peer: NewPeer) -> str:
    """The new text. It is read again before it is returned: it says what it said before, and the peer."""
    path: Path = ("endpoints", endpoint, "peers")
    if path not in document.spans:
        path = ("endpoints", "peers")  # a single endpoint where a list belongs
    span = document.spans[path]
    value = document.text[span.start : span.end]
    if document.json:
        text = _add_json(document, path, peer)
    elif value.startswith("[") and not value.startswith("[["):
        text = _add_inline(document, path, peer)
    else:
        text = _add_block(document, path, peer)
    _prove(document, text, path, peer)
    return text


def _add_block(document: Document, path: Path, peer: NewPeer) -> str:
    """TOML with [[endpoints.peers]]: after the last line of the endpoint's last peer."""
    end = max(span.end for found, span in document.spans.items() if found[: len(path)] == path)
    line_end = document.text.find("\n", end)
    head, tail = (document.text, "") if line_end < 0 else (document.text[: line_end + 1], document.text[line_end + 1 :])
    ending = "\r\n" if "\r\n" in document.text else "\n"
    if not head.endswith("\n"):
        head += ending
    header = ".".join(step for step in path if isinstance(step, str))
    lines = [
        "",
        f"# {peer.name}",
        f"[[{header}]]",
        *(f"{key} = {_json(value)}" for key, value in peer.fields().items()),
    ]
    return head + "".join(line + ending for line in lines) + tail


def _inline_toml(peer: NewPeer) -> str:
    return "{ " + ", ".join(f"{key} = {_json(value)}" for key, value in peer.fields().items()) + " }"


def _add_inline(document: Document, path: Path, peer: NewPeer) -> str:
    return _into_list(document, path, _inline_toml(peer), f"# {peer.name}")


def _add_json(document: Document, path: Path, peer: NewPeer) -> str:
    span = document.spans[path]
    if document.text[span.start] == "{":
        before, old, after = (
            document.text[: span.start],
            document.text[span.start : span.end],
            document.text[span.end :],
        )
        return f"{before}[{old}, {_json(peer.fields())}]{after}"
    return _into_list(document, path, _json(peer.fields()), f"// {peer.name}")


def _into_list(document: Document, path: Path, item: str, comment: str) -> str:
    """Before the closing bracket of a list; with its comment where the list stands over several lines."""
    span = document.spans[path]
    text = document.text
    elements = [found for found in document.spans if len(found) == len(path) + 1 and found[: len(path)] == path]
    close = span.end - 1
    if not elements:
        return text[: span.start + 1] + item + text[close:]
    last = max(document.spans[found].end for found in elements)
    between = text[last:close]
    comma = "" if re.sub(r"//[^\n]*|#[^\n]*|/\*.*?\*/", "", between, flags=re.DOTALL).strip() == "," else ","
    if "\n" not in text[span.start : span.end]:
        return text[:last] + (comma or ",") + " " + item + text[last:].removeprefix(",")
    first = min(document.spans[found].start for found in elements)
    line = text.rfind("\n", 0, first) + 1
    indent = re.match(r"[ \t]*", text[line:])
    pad = indent.group() if indent and line > span.start else "    "
    tail = between.rstrip()
    closing = between[len(tail) :] or "\n"
    return f"{text[:last]}{comma}{tail}\n{pad}{comment}\n{pad}{item}{closing}{text[close:]}"


def _prove(document: Document, text: str, path: Path, peer: NewPeer) -> None:
    again = parse(text, document.file)
    old: object = document.data
    new: object = again.data
    for step in path:
        old = old[step]  # type: ignore[index]
        new = new[step]  # type: ignore[index]
    before = old if isinstance(old, list) else [old]
    if new != [*before, peer.fields()]:
        raise FvError("the peer cannot be added to this file's text", where=document.where(path),
                      hint="write `peers` as [[endpoints.peers]] blocks (TOML) or as a list (JSON)")  # fmt: skip
