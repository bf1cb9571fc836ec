"""wg-quick's files: reading every key of theirs, and writing one for a new peer.

All faults of a file are reported at once, each with its line. What fv will not do is refused by name: hooks (a file
that runs commands is a program, not a configuration) and AmneziaWG's keys (another protocol). What Windows, phones and
web pages put into such files is forgiven: BOM, CRLF, no-break spaces, keys without '=' or in the url-safe alphabet.
"""

import re
from collections.abc import Callable

import msgspec

from fv.config import values
from fv.errors import FvError, Where, raise_all, unknown_hint
from fv.keys import parse_key, show_key

_HOOKS = ("preup", "postup", "predown", "postdown")
_AMNEZIA = re.compile(r"jc|jmin|jmax|s[1-4]|h[1-4]|i[1-5]|j[1-3]|itime|jd", re.IGNORECASE)
_INTERFACE = ("PrivateKey", "Address", "ListenPort", "FwMark", "DNS", "MTU", "Table", "SaveConfig")
_PEER = ("PublicKey", "PresharedKey", "AllowedIPs", "Endpoint", "PersistentKeepalive")


class Peer(msgspec.Struct, frozen=True):
    public_key: str
    preshared_key: str = ""
    allowed_ips: tuple[str, ...] = ()
    host: str = ""
    port: int = 0
    keepalive: int = 0
    comment: str = ""  # of the line above [Peer], where tools put the peer's name


class File(msgspec.Struct, frozen=True):
    private_key: str
    addresses: tuple[str, ...] = ()
    listen_port: int = 0
    mark: int = 0
    dns: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    mtu: int = 0
    table: str = "auto"
    peers: tuple[Peer, ...] = ()
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<wg-quick file, {len(self.peers)} peers>"


class _Block(msgspec.Struct):
    """A section while it is read: values by lower-case key, with the line of each."""

    line: int
    interface: bool
    found: dict[str, list[tuple[int, str]]]
    comment: str = ""


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file
        self.errors: list[FvError] = []
        self.warnings: list[str] = []

    def wrong(self, line: int, key: str, what: str, hint: str = "") -> None:
        self.errors.append(FvError(what, where=Where(self.file, line, key), hint=hint))

    def blocks(self, text: str) -> list[_Block]:
        out: list[_Block] = []
        remark = ""
        for number, raw in enumerate(text.split("\n"), 1):
            content, mark, comment = raw.translate(_FORGIVEN).partition("#")
            content = content.strip()
            if not content:
                remark = comment.strip() if mark else ""
                continue
            if content.startswith("["):
                kind = content.strip("[] ").lower()
                if kind not in ("interface", "peer"):
                    self.wrong(number, "", "unknown section", "[Interface] or [Peer]")
                out.append(_Block(number, kind == "interface", {}, remark))
            else:
                self.pair(number, content, out)
            remark = ""
        return out

    def pair(self, line: int, content: str, blocks: list[_Block]) -> None:
        name, equals, value = (part.strip() for part in content.partition("="))
        if not equals or not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
            # The line may be a key gone astray: its text stays out of the message.
            self.wrong(line, "", f"neither Key = value nor a section ({len(content)} characters)")
            return
        if not blocks:
            self.wrong(line, name, "stands before any section", "[Interface] comes first")
            return
        block = blocks[-1]
        known = _INTERFACE if block.interface else _PEER
        if name.lower() in _HOOKS:
            self.wrong(line, name, "a hook: fv runs no commands from a configuration",
                       "routes, rules, NAT and the kill switch are [gateway]'s; take the line out")  # fmt: skip
        elif _AMNEZIA.fullmatch(name):
            self.wrong(line, name, "AmneziaWG's: it changes the protocol, and fv speaks WireGuard",
                       "ask the provider for a WireGuard configuration")  # fmt: skip
        elif name.lower() not in map(str.lower, known):
            self.wrong(
                line, name, f"unknown in [{'Interface' if block.interface else 'Peer'}]", unknown_hint(name, known)
            )
        else:
            block.found.setdefault(name.lower(), []).append((line, value))

    def once(self, block: _Block, key: str, read: Callable[[str], str], default: str = "") -> str:
        """The value of a key that counts once; the last one wins, as for wg."""
        entries = block.found.get(key.lower(), [])
        if not entries:
            return default
        line, value = entries[-1]
        try:
            return read(value)
        except ValueError as error:
            self.wrong(line, key, str(error))
            return default

    def listed(self, block: _Block, key: str, read: Callable[[str], str]) -> tuple[str, ...]:
        out: list[str] = []
        for line, text in block.found.get(key.lower(), []):
            for part in filter(None, re.split(r"[,\s]+", text)):
                try:
                    out.append(read(part))
                except ValueError as error:
                    self.wrong(line, key, str(error))
        return tuple(dict.fromkeys(out))

    def interface(self, block: _Block, peers: tuple[Peer, ...]) -> File:
        if "privatekey" not in block.found:
            self.wrong(block.line, "PrivateKey", "is missing")
        if not block.found.get("address"):
            self.wrong(block.line, "Address", "is missing", "the tunnel's own address, such as 10.7.0.2/32")
        dns = self.listed(block, "DNS", str)
        if self.once(block, "SaveConfig", _boolean, "false") == "true":
            self.warnings.append("SaveConfig is left out: fv never writes over a configuration")
        return File(
            self.once(block, "PrivateKey", _key),
            self.listed(block, "Address", lambda text: str(values.interface(text))),
            int(self.once(block, "ListenPort", _within(0, 65535), "0")),
            int(self.once(block, "FwMark", _mark, "0")),
            tuple(text for text in dns if _is_address(text)),
            tuple(text for text in dns if not _is_address(text)),
            int(self.once(block, "MTU", _within(576, 65535), "0")),
            self.once(block, "Table", _table, "auto"),
            peers,
        )

    def peer(self, block: _Block) -> Peer:
        if "publickey" not in block.found:
            self.wrong(block.line, "PublicKey", "is missing")
        host, _, port = self.once(block, "Endpoint", _endpoint).rpartition(" ")
        return Peer(
            self.once(block, "PublicKey", _key),
            self.once(block, "PresharedKey", _key),
            self.listed(block, "AllowedIPs", lambda text: str(values.prefix(text))),
            host,
            int(port or 0),
            int(self.once(block, "PersistentKeepalive", _keepalive, "0")),
            block.comment,
        )


# A no-break space, a zero-width one and a BOM are only spaces here; so is a carriage return.
_FORGIVEN = dict.fromkeys(map(ord, "\u00a0\u202f\u200b\u2060\ufeff\r\t\f\v"), " ")


def read(text: str, file: str) -> File:
    """FvError holds every fault of the file."""
    reader = _Reader(file)
    blocks = reader.blocks(text)
    interfaces = [block for block in blocks if block.interface]
    peers = tuple(reader.peer(block) for block in blocks if not block.interface)
    if not interfaces:
        reader.wrong(1, "", "no [Interface] section", "is this a wg-quick file?")
        raise_all(reader.errors)
    merged = interfaces[0]
    for other in interfaces[1:]:
        for key, entries in other.found.items():
            merged.found.setdefault(key, []).extend(entries)
    found = reader.interface(merged, peers)
    raise_all(reader.errors)
    return msgspec.structs.replace(found, warnings=tuple(reader.warnings))


def _key(text: str) -> str:
    return show_key(parse_key(text))


def _within(low: int, high: int) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and low <= int(text) <= high):
            raise ValueError(f"not a number from {low} to {high}")
        return str(int(text))

    return check


def _keepalive(text: str) -> str:
    return "0" if text.lower() == "off" else _within(0, 65535)(text)


def _mark(text: str) -> str:
    return "0" if text.lower() == "off" else str(values.mark(text))


def _boolean(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise ValueError("not true or false")
    return text.lower()


def _table(text: str) -> str:
    if text.lower() in ("auto", "off", "main"):
        return {"main": "auto"}.get(text.lower(), text.lower())
    try:
        number = int(text, 0)
    except ValueError:
        raise ValueError("a table's name: fv takes auto, off, or its number") from None
    if not 1 <= number <= 0xFFFFFFFF:
        raise ValueError("not a table's number")
    return str(number)


def _endpoint(text: str) -> str:
    """`HOST PORT`, brackets gone."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError("not HOST:PORT (an IPv6 address stands in brackets)")
    return f"{values.host(host)} {_within(1, 65535)(port)}"


def _is_address(text: str) -> bool:
    try:
        values.address(text)
    except ValueError:
        return False
    return True


def to_toml(found: File, tag: str) -> str:
    """The same as a configuration of fv's."""
    out = ["[[endpoints]]", 'type = "wireguard"', f"tag = {_quoted(tag)}", f"address = {_list(found.addresses)}",
           f"private_key = {_quoted(found.private_key)}"]  # fmt: skip
    if found.listen_port:
        out.append(f"listen_port = {found.listen_port}")
    if found.mtu:
        out.append(f"mtu = {found.mtu}")
    if found.mark:
        out.append(f"routing_mark = {found.mark}")
    if found.table != "auto":
        out.append(f"routes = {found.table if found.table.isdigit() else _quoted(found.table)}")
    for peer in found.peers:
        out += ["", *([f"# {peer.comment}"] if peer.comment else []), "[[endpoints.peers]]"]
        if peer.host:
            out += [f"address = {_quoted(peer.host)}", f"port = {peer.port}"]
        out.append(f"public_key = {_quoted(peer.public_key)}")
        if peer.preshared_key:
            out.append(f"pre_shared_key = {_quoted(peer.preshared_key)}")
        out.append(f"allowed_ips = {_list(peer.allowed_ips)}")
        if peer.keepalive:
            out.append(f"persistent_keepalive_interval = {peer.keepalive}")
    if found.dns and takes_everything(found):
        out += ["", "[gateway]", "everything = true", f"dns = {_list(found.dns)}"]
        out += ["# wg-quick has none; take this line out to have one.", "kill_switch = { enabled = false }"]
    return "\n".join(out) + "\n"


def takes_everything(found: File) -> bool:
    everything = any(values.prefix(text).prefixlen == 0 for peer in found.peers for text in peer.allowed_ips)
    return everything and found.table == "auto"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(texts: tuple[str, ...]) -> str:
    return "[" + ", ".join(map(_quoted, texts)) + "]"


def client_text(
    private_key: str, addresses: tuple[str, ...], server: Peer, *, dns: tuple[str, ...] = (), mtu: int = 0
) -> str:
    """A wg-quick file for the other side of a peer."""
    out = ["[Interface]", f"PrivateKey = {private_key}", f"Address = {', '.join(addresses)}"]
    if dns:
        out.append(f"DNS = {', '.join(dns)}")
    if mtu:
        out.append(f"MTU = {mtu}")
    host = f"[{server.host}]" if ":" in server.host else server.host
    out += ["", "[Peer]", f"PublicKey = {server.public_key}"]
    if server.preshared_key:
        out.append(f"PresharedKey = {server.preshared_key}")
    out += [f"AllowedIPs = {', '.join(server.allowed_ips)}", f"Endpoint = {host}:{server.port}"]
    if server.keepalive:
        out.append(f"PersistentKeepalive = {server.keepalive}")
    return "\n".join(out) + "\n"
