"""Heads of HTTP/1 messages for the reference proxy: parsed strictly, since what two parsers read differently is how
requests are smuggled (RFC 9112 section 11.2). Values keep their bytes (as Latin-1), headers their order.
"""

import re
from dataclasses import dataclass

from .proxy import BadInputError, Target, literal

MAX_LINE, MAX_HEAD, MAX_HEADERS = 8192, 32768, 100

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
REG_NAME = re.compile(r"[!$&'()*+,;=%._~0-9A-Za-z\x80-\xff-]+")
HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"),
        *("te", "trailer", "upgrade"),
    )
)


class HttpError(BadInputError):
    """What cannot be served; `status` of the answer, 0 for none."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


@dataclass
class Head:
    """Start line and headers, without their line ends."""

    start: str
    headers: list[tuple[str, str]]

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    def tokens(self, name: str) -> list[str]:
        """All values of a list-valued header, in lower case."""
        values = ",".join(v for n, v in self.headers if n.lower() == name.lower())
        return [token for part in values.split(",") if (token := part.strip(" \t").lower())]

    @property
    def method(self) -> str:
        return self.start.split(" ")[0]

    @property
    def target(self) -> str:
        return self.start.split(" ")[1]

    @property
    def version(self) -> str:
        return self.start.split(" ")[2]

    @property
    def status(self) -> int:
        return int(self.start.split(" ")[1])

    @property
    def chunked(self) -> bool:
        return self.get("Transfer-Encoding") is not None  # parse_head has refused every other

    @property
    def length(self) -> int | None:
        text = self.get("Content-Length")
        return None if text is None else int(text.split(",")[0])

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.length)

    @property
    def keeps(self) -> bool:
        """Whether the sender keeps the connection (RFC 9112 section 9.3), by what it tells origins or proxies."""
        said = self.tokens("Connection") + self.tokens("Proxy-Connection")
        return "close" not in said and (self.version == "HTTP/1.1" or "keep-alive" in said)

    @property
    def named(self) -> frozenset[str]:
        """Headers that Connection makes hop-by-hop; never those that frame the body or name the host."""
        return frozenset(self.tokens("Connection")) - {"content-length", "transfer-encoding", "host"}

    def without(self, names: frozenset[str], more: frozenset[str] | None = None) -> "Head":
        dropped = names | (self.named if more is None else more)
        return Head(self.start, [(n, v) for n, v in self.headers if n.lower() not in dropped])

    def encode(self) -> bytes:
        lines = [self.start, *(f"{n}: {v}" for n, v in self.headers)]
        return "".join(line + "\r\n" for line in [*lines, ""]).encode("latin-1")


def parse_head(lines: list[bytes], *, is_request: bool) -> Head:
    """Lines with their ends, without the empty one. LF alone ends a line too."""
    if not lines:
        raise HttpError(400, "an empty head")
    bare = [line.removesuffix(b"\n").removesuffix(b"\r").decode("latin-1") for line in lines]
    if any("\0" in line or "\r" in line for line in bare):
        raise HttpError(400, "a control character")
    head = Head(bare[0], [_header(line) for line in bare[1:]])
    parts = head.start.split(" ")
    if is_request:
        if len(parts) != 3 or not TOKEN.fullmatch(parts[0]) or parts[2] not in ("HTTP/1.0", "HTTP/1.1"):
            raise HttpError(400, "a request line that is none")
    elif not re.match(r"HTTP/1\.[01] [1-9][0-9][0-9](?: |$)", head.start):
        raise HttpError(400, "a status line that is none")
    if is_request and sum(n.lower() == "host" for n, _ in head.headers) > 1:
        raise HttpError(400, "more than one Host")  # RFC 9112 section 3.2
    if len(head.headers) > MAX_HEADERS:
        raise HttpError(431, "too many headers")
    _check_framing(head)
    return head


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not TOKEN.fullmatch(name):
        raise HttpError(400, "a header that is none")  # a folded line begins with a space, which no name has
    return name, value.strip(" \t")


def _check_framing(head: Head) -> None:
    lengths = {part.strip(" \t") for n, v in head.headers if n.lower() == "content-length" for part in v.split(",")}
    encodings = [v.lower() for n, v in head.headers if n.lower() == "transfer-encoding"]
    if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]{1,15}", text) for text in lengths):
        raise HttpError(400, "a Content-Length that is none")
    if encodings and (lengths or encodings != ["chunked"]):
        raise HttpError(400, "a body framed twice, or in an unknown way")


def split_authority(text: str, default_port: int | None = None) -> Target:
    """host:port, the port mandatory unless there is a default; IPv6 in brackets only."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?", text)
    if match is None:
        raise HttpError(400, "an authority that is none")
    v6, name, port_text = match.groups()
    if v6 is not None:
        ip = literal(v6)
        if ip is None or ip.version != 6:
            raise HttpError(400, "an IPv6 address that is none")
        host = str(ip)
    elif not REG_NAME.fullmatch(name) or len(name) > 255:
        raise HttpError(400, "a host that is none")
    else:
        host = name
    port = default_port if port_text is None else int(port_text)
    if port is None or not 1 <= port <= 65535:
        raise HttpError(400, "no port, or one that is none")
    return Target(host, port)


def split_absolute(text: str) -> tuple[Target, str]:
    """Target and path of http://authority/path?query."""
    match = re.fullmatch(r"(?i:http)://([^/?#]*)([^#]*)(?:#.*)?", text)
    if match is None:
        raise HttpError(400, "neither an authority nor an http URI")
    path = match[2]
    return split_authority(match[1], 80), path if path.startswith("/") else "/" + path


def host_header(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == 80 else f"{host}:{target.port}"
