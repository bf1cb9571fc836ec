"""Reference peer for the HTTP proxy: CONNECT, forwarding of absolute form, Basic; both roles, sans-IO.

    python -m tests.peers.http server --listen 127.0.0.1:8080 [--user NAME:PASSWORD]
    python -m tests.peers.http client --proxy 127.0.0.1:8080 --target HOST:PORT [--user NAME:PASSWORD]
    python -m tests.peers.http attack --proxy 127.0.0.1:8080 --name CASE

The server runs one request after the other. A forwarded one has two scripts: the request's body goes up while the
response, 1xx included, comes down. Framing (chunked, Content-Length) passes through as it is. Sections are of RFC 9110
and 9112. See proxy.py for how a core is driven; heads and the rules against smuggling are in http_head.py.
"""

import argparse
import base64
import binascii
import hmac
from collections.abc import Callable, Generator, Mapping

from . import proxy_cli, proxy_shell
from .http_head import (
    HOP_BY_HOP,
    MAX_HEAD,
    MAX_HEADERS,
    MAX_LINE,
    Head,
    HttpError,
    host_header,
    parse_head,
    split_absolute,
    split_authority,
)
from .proxy import (
    Action,
    BadInputError,
    Core,
    Dial,
    Ended,
    Finish,
    HangUp,
    Opened,
    Payload,
    Script,
    Send,
    Target,
)

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
CHALLENGE = b'Proxy-Authenticate: Basic realm="proxy" charset="UTF-8"\r\n'
REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    407: "Proxy Authentication Required",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    504: "Gateway Timeout",
}
STATUS_OF = {"timeout": 504, "denied": 403}  # of a failed dial; all others 502
LOGIN_TRIES = 3

Emit = Callable[[bytes], None]


def answer(status: int, *, close: bool = True) -> bytes:
    """A reply of the proxy itself. One that closes says so."""
    lines = f"HTTP/1.1 {status} {REASONS[status]}\r\n".encode()
    if close:
        lines += b"Connection: close\r\n"
    if status == 407:
        lines += CHALLENGE
    return lines + b"Content-Length: 0\r\n\r\n"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def credentials(header: str) -> tuple[bytes, bytes] | None:
    """User and password of a Basic header; the scheme in any case, the password with colons."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


class Reader(Core):
    """Lines, heads and bodies from either side: "wire" or "target"."""

    def _side(self, side: str) -> tuple[bytearray, bool]:
        return (self.wire, self.wire_ended) if side == "wire" else (self.target, self.target_ended)

    def line(self, side: str, limit: int = MAX_LINE) -> Generator[None, None, bytes]:
        """Up to and with its LF."""
        while True:
            buffer, ended = self._side(side)
            end = buffer.find(b"\n")
            if end + 1 > limit or (end < 0 and len(buffer) >= limit):
                raise HttpError(431, "a line too long")
            if end >= 0:
                data = bytes(buffer[: end + 1])
                del buffer[: end + 1]
                return data
            if ended:
                raise HttpError(400, "the connection ended inside a message")
            yield

    def head(self, side: str) -> Generator[None, None, Head | None]:
        """None when the side ends before a byte of it."""
        while True:
            buffer, ended = self._side(side)
            if buffer:
                break
            if ended:
                return None
            yield
        if side == "wire" and not buffer[:1].isupper():
            raise HttpError(0, "no HTTP")
        lines: list[bytes] = []
        size = 0
        while True:
            line = yield from self.line(side)
            size += len(line)
            if size > MAX_HEAD or len(lines) > MAX_HEADERS + 1:
                raise HttpError(431, "a head too large")
            if line in (b"\r\n", b"\n"):
                return parse_head(lines, is_request=side == "wire")
            lines.append(line)

    def exactly(self, side: str, size: int, emit: Emit) -> Script:
        while size > 0:
            buffer, ended = self._side(side)
            if buffer:
                data = bytes(buffer[:size])
                del buffer[: len(data)]
                size -= len(data)
                emit(data)
            elif ended:
                raise HttpError(400, "the connection ended inside a body")
            else:
                yield

    def chunked(self, side: str, emit: Emit, emit_frame: Emit) -> Script:
        """RFC 9112 section 7.1; what frames the data, extensions and trailers with it, goes to `emit_frame`."""
        while True:
            line = yield from self.line(side)
            digits = line.split(b";")[0].strip(b" \t\r\n")
            if not digits or len(digits) > 15 or not all(c in b"0123456789abcdefABCDEF" for c in digits):
                raise HttpError(400, "a chunk's length that is none")
            emit_frame(line)
            if int(digits, 16) == 0:
                break
            yield from self.exactly(side, int(digits, 16), emit)
            end = yield from self.line(side, 2)
            if end not in (b"\r\n", b"\n"):
                raise HttpError(400, "a chunk that does not end")
            emit_frame(end)
        size = 0
        while True:
            line = yield from self.line(side)
            size += len(line)
            if size > MAX_HEAD:
                raise HttpError(431, "trailers too large")
            emit_frame(line)
            if line in (b"\r\n", b"\n"):
                return

    def until_end(self, side: str, emit: Emit) -> Script:
        while True:
            buffer, ended = self._side(side)
            if buffer:
                emit(bytes(buffer))
                buffer.clear()
            if ended:
                return
            yield


# --- server -----------------------------------------------------------------------------------------------------------


class Server(Reader):
    def __init__(self, users: Mapping[str, str] | None = None):
        self.users = dict(users or {})
        self.failures = 0
        self.responding = False
        self.upgraded = False
        self.kept = False
        self.said = False  # something of a response has gone out: no reply of our own can follow
        super().__init__()

    def refuse(self, error: BadInputError) -> None:
        status = error.status if isinstance(error, HttpError) else 400
        if self.said:
            self.close(str(error), "reset")  # so that nobody takes the part for the whole
            return
        if status:
            self.actions.append(Send(answer(status)))
        self.close(str(error))

    def script(self) -> Script:
        while True:
            self.said = False
            head = yield from self.head("wire")
            if head is None:
                self.close("the client is done")
                return
            user = self._authenticated(head)
            if user is None:
                self.failures += 1
                stays = head.keeps and not head.has_body and self.failures < LOGIN_TRIES
                self.actions.append(Send(answer(407, close=not stays)))
                if not stays:
                    self.close("wrong credentials")
                    return
            elif head.method == "CONNECT":
                yield from self._tunnel(head, user or None)
                return
            else:
                yield from self._forward(head, user or None)
                if self.upgraded or self.closed:
                    return

    def _authenticated(self, head: Head) -> str | None:
        """The user, "" where there are none, None for who is no user."""
        if not self.users:
            return ""
        given = credentials(head.get("Proxy-Authorization") or "")
        if given is None:
            return None
        matching = [
            user
            for user, password in self.users.items()
            if hmac.compare_digest(user.encode(), given[0]) & hmac.compare_digest(password.encode(), given[1])
        ]
        return matching[0] if matching else None

    def _dial(self, target: Target, user: str | None) -> Generator[None, None, bool]:
        failure, _ = yield from self.dial(Dial(target, user))
        if failure:
            self.actions.append(Send(answer(STATUS_OF.get(failure, 502))))
            self.close(failure)
        return not failure

    def _tunnel(self, head: Head, user: str | None) -> Script:
        target = split_authority(head.target)
        if (yield from self._dial(target, user)):
            self.actions.append(Send(ESTABLISHED))
            self.scripts += [self.copy_to_target(), self.copy_from_target()]

    def _forward(self, head: Head, user: str | None) -> Script:
        target, path = split_absolute(head.target)
        if head.method == "OPTIONS" and path == "/" and not head.target.endswith("/"):
            path = "*"
        upgrade = head.get("Upgrade") if "upgrade" in head.tokens("Connection") else None
        self.target.clear()
        self.target_ended = False
        if not (yield from self._dial(target, user)):
            return
        headers = [(n, v) for n, v in head.without(HOP_BY_HOP).headers if n.lower() != "host"]
        at = next((i for i, (n, _) in enumerate(head.headers) if n.lower() == "host"), 0)
        kept_before = len(Head(head.start, head.headers[:at]).without(HOP_BY_HOP, head.named).headers)
        headers.insert(kept_before, ("Host", host_header(target)))
        if upgrade is not None:
            headers += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
        self.actions.append(Payload(Head(f"{head.method} {path} HTTP/1.1", headers).encode()))
        self.responding = True
        self.scripts.append(self._response(head, upgrade is not None))

        def up(data: bytes) -> None:
            self.actions.append(Payload(data))

        if head.chunked:
            yield from self.chunked("wire", up, up)
        else:
            yield from self.exactly("wire", head.length or 0, up)
        while self.responding:
            yield
        if self.upgraded:
            self.scripts += [self.copy_to_target(), self.copy_from_target()]
        elif self.kept:
            self.actions.append(HangUp())

    def _response(self, request: Head, may_upgrade: bool) -> Script:
        while True:
            try:
                head = yield from self.head("target")
            except HttpError as error:
                raise HttpError(502, f"the origin: {error}") from None
            if head is None:
                raise HttpError(502, "the origin has closed")
            if head.status == 101 and may_upgrade:
                new = head.without(HOP_BY_HOP)
                new.headers += [("Connection", "Upgrade"), ("Upgrade", head.get("Upgrade") or "")]
                self.actions.append(Send(new.encode()))
                self.upgraded, self.responding = True, False
                return
            if not 100 <= head.status < 200:
                break
            self.actions.append(Send(head.without(HOP_BY_HOP).encode()))
        self.said = True
        nothing = request.method == "HEAD" or head.status in (204, 304)
        old = request.version == "HTTP/1.0"
        by_end = not nothing and (head.length is None if not head.chunked else old)
        self.kept = request.keeps and not by_end
        new = head.without(HOP_BY_HOP)
        if head.chunked and old:  # RFC 9112 section 6.1: never to a client of 1.0
            new.headers = [(n, v) for n, v in new.headers if n.lower() != "transfer-encoding"]
        new.start = "HTTP/1.1 " + head.start.partition(" ")[2]
        new.headers.append(("Connection", "keep-alive" if self.kept else "close"))
        self.actions.append(Send(new.encode()))

        def down(data: bytes) -> None:
            self.actions.append(Send(data))

        if nothing:
            pass
        elif head.chunked:
            yield from self.chunked("target", down, (lambda data: None) if old else down)
        elif head.length is not None:
            yield from self.exactly("target", head.length, down)
        else:
            yield from self.until_end("target", down)
        self.responding = False
        if not self.kept:
            self.close("the response was the last")


# --- client -----------------------------------------------------------------------------------------------------------


class ProxyError(BadInputError):
    """The proxy's status was not 2xx."""

    def __init__(self, head: Head):
        super().__init__(head.start)
        self.status = head.status

    @property
    def kind(self) -> str:
        """credentials, policy, target (the proxy itself is alive), other."""
        kinds = {407: "credentials", 403: "policy", 405: "policy", 502: "target", 503: "target", 504: "target"}
        return kinds.get(self.status, "other")


def connect_head(target: Target, user: str | None, password: str, headers: list[tuple[str, str]]) -> bytes:
    authority = f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"
    fields = [("Host", authority)]
    if user is not None:
        fields.append(("Proxy-Authorization", basic(user, password)))
    return Head(f"CONNECT {authority} HTTP/1.1", [*fields, *headers, ("Proxy-Connection", "Keep-Alive")]).encode()


class Client(Reader):
    """A tunnel by CONNECT; credentials are sent at once."""

    def __init__(
        self,
        target: Target,
        *,
        user: str | None = None,
        password: str = "",
        headers: list[tuple[str, str]] | None = None,
    ):
        self.request = connect_head(target, user, password, headers or [])
        self.error: BadInputError | None = None
        super().__init__()

    def refuse(self, error: BadInputError) -> None:
        self.error = error
        super().refuse(error)

    def send(self, data: bytes) -> list[Action]:
        return [Send(data)]

    def finish(self) -> list[Action]:
        return [Finish()]

    def script(self) -> Script:
        self.actions.append(Send(self.request))
        head = yield from self._response_head()
        if not 200 <= head.status < 300:
            raise ProxyError(head)
        self.actions.append(Opened())
        yield from self.until_end("wire", lambda data: self.actions.append(Payload(data)))
        self.actions.append(Ended())

    def _response_head(self) -> Generator[None, None, Head]:
        lines: list[bytes] = []
        size = 0
        while True:
            line = yield from self.line("wire")
            size += len(line)
            if size > MAX_HEAD:
                raise HttpError(431, "a head too large")
            if line not in (b"\r\n", b"\n"):
                lines.append(line)
                continue
            # Framing headers of a 2xx to CONNECT mean nothing (RFC 9110 section 9.3.6): not even wrong ones.
            head = parse_head(lines[:1], is_request=False)
            if head.status >= 200:
                return head
            lines.clear()


# --- malformed messages -----------------------------------------------------------------------------------------------

_HOST = b"Host: 192.0.2.1\r\n"


def _get(*headers: bytes, line: bytes = b"GET http://192.0.2.1/ HTTP/1.1") -> bytes:
    return line + b"\r\n" + _HOST + b"".join(h + b"\r\n" for h in headers) + b"\r\n"


def _connect(authority: bytes) -> bytes:
    return b"CONNECT " + authority + b" HTTP/1.1\r\n\r\n"


# name: (what is sent, the status of the answer before the close; 0: a close without a byte)
ATTACKS: dict[str, tuple[bytes, int]] = {
    "garbage": (bytes(range(0x80, 0xC0)) * 4, 0),
    "tls-hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 0),
    "lower-case-method": (b"get http://192.0.2.1/ HTTP/1.1\r\n\r\n", 0),
    "origin-form": (b"GET / HTTP/1.1\r\nHost: fv.test\r\n\r\n", 400),
    "https-form": (_get(line=b"GET https://192.0.2.1/ HTTP/1.1"), 400),
    "userinfo": (_get(line=b"GET http://u:p@192.0.2.1/ HTTP/1.1"), 400),
    "no-version": (_get(line=b"GET http://192.0.2.1/"), 400),
    "version-2": (_get(line=b"GET http://192.0.2.1/ HTTP/2.0"), 400),
    "two-spaces": (_get(line=b"GET  http://192.0.2.1/ HTTP/1.1"), 400),
    "bare-cr": (_get(b"X: a\rb"), 400),
    "nul": (_get(b"X: a\0b"), 400),
    "name-space": (_get(b"X Y: 1"), 400),
    "space-before-colon": (_get(b"X : 1"), 400),
    "no-colon": (_get(b"just words"), 400),
    "empty-name": (_get(b": 1"), 400),
    "obs-fold": (_get(b"X: 1", b" folded"), 400),
    "two-hosts": (_get(b"Host: 192.0.2.2"), 400),
    "two-lengths": (_get(b"Content-Length: 1", b"Content-Length: 2"), 400),
    "two-lengths-in-one": (_get(b"Content-Length: 1, 2"), 400),
    "length-negative": (_get(b"Content-Length: -1"), 400),
    "length-plus": (_get(b"Content-Length: +1"), 400),
    "length-and-chunked": (_get(b"Content-Length: 1", b"Transfer-Encoding: chunked"), 400),
    "encoding-gzip": (_get(b"Transfer-Encoding: gzip"), 400),
    "encoding-twice": (_get(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    "encoding-disguised": (_get(b"Transfer-Encoding: xchunked"), 400),
    "line-too-long": (_get(line=b"GET http://192.0.2.1/" + b"a" * MAX_LINE + b" HTTP/1.1"), 431),
    "head-too-large": (_get(*[b"X: " + b"a" * 8000] * 5), 431),
    "too-many-headers": (_get(*[b"X: 1"] * MAX_HEADERS), 431),
} | {
    f"authority-{name}": (_connect(authority), 400)
    for name, authority in {
        "no-port": b"fv.test",
        "empty-port": b"fv.test:",
        "port-zero": b"fv.test:0",
        "port-65536": b"fv.test:65536",
        "port-letters": b"fv.test:80a",
        "no-host": b":443",
        "open-bracket": b"[::1",
        "bare-v6": b"::1:443",
        "userinfo": b"user@fv.test:443",
        "space": b"fv test:80",
        "path": b"fv.test:80/",
    }.items()
}


# --- command line -----------------------------------------------------------------------------------------------------


class Protocol(proxy_cli.Protocol):
    name = "http"
    has_udp = False

    def server(self, args: argparse.Namespace) -> proxy_shell.Server:
        users = dict([proxy_cli.pair(args.user)]) if args.user else {}
        return proxy_shell.Server(lambda: Server(users))

    def client(self, args: argparse.Namespace, target: Target) -> Client:
        user, password = proxy_cli.pair(args.user) if args.user else (None, "")
        return Client(target, user=user, password=password)

    def attacks(self, args: argparse.Namespace) -> Mapping[str, bytes]:
        return {name: data for name, (data, _) in ATTACKS.items()}


if __name__ == "__main__":
    proxy_cli.main(Protocol())
