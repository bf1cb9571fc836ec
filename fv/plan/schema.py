"""Every section and key of the plan, once.

The reader and the writer (`text.py`) and the table in docs/plan.md are made from this list; the engine's parser is
tested against plans that the compiler wrote from it. `python -m fv.plan.schema` prints the table for the document.
"""

import ipaddress
import re
from collections.abc import Callable

import msgspec

LINE_LIMIT = 4096  # bytes of one line without its line feed
VERSION = 1

# What a plan can ask the engine for, in the order in which `needs=` lists it.
FEATURES = {
    "wireguard": "a [wireguard] section",
    "multihop": "a [wireguard] section with detour=",
    "nat": "a [nat] section",
    "network": "a [network] section that is not empty",
    "resolver": "a [resolver] section",
}


class Kind(msgspec.Struct, frozen=True):
    """A form of value. `check` says what would be right, or nothing when the value is right."""

    name: str
    check: Callable[[str], str]


class Key(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    text: str
    default: str = ""
    required: bool = False
    repeat: bool = False
    secret: bool = False
    peer: bool = False  # belongs to the peer that the last public_key= opened


class SectionType(msgspec.Struct, frozen=True):
    name: str
    named: bool
    text: str
    keys: tuple[Key, ...]

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)


def _integer(low: int, high: int) -> Kind:
    def check(value: str) -> str:
        digits = value[1:] if low < 0 and value.startswith("-") else value
        good = digits.isascii() and digits.isdigit() and len(value) <= 20 and low <= int(value) <= high
        return "" if good else f"a number from {low} to {high}"

    return Kind(f"number {low}..{high}", check)


def _one_of(*words: str) -> Kind:
    return Kind("|".join(words), lambda value: "" if value in words else "one of " + ", ".join(words))


def _matching(name: str, pattern: str, right: str, empty: bool = True) -> Kind:
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        return "" if (empty and not value) or compiled.fullmatch(value) else right

    return Kind(name, check)


def _address(version: int) -> Kind:
    def check(value: str) -> str:
        try:
            return "" if not value or ipaddress.ip_address(value).version == version else f"an IPv{version} address"
        except ValueError:
            return f"an IPv{version} address"

    return Kind(f"IPv{version} address", check)


def _prefix(version: int | None) -> Kind:
    right = f"an IPv{version} prefix" if version else "an IPv4 or IPv6 prefix"

    def check(value: str) -> str:
        try:
            network = ipaddress.ip_network(value, strict=False)
        except ValueError:
            return right
        return "" if "/" in value and version in (None, network.version) else right

    return Kind(f"IPv{version} prefix" if version else "prefix", check)


def _endpoint(value: str) -> str:
    right = "HOST:PORT, an IPv6 address in brackets"
    host, colon, port = value.rpartition(":")
    if not colon or _PORT.check(port):
        return right
    if host.startswith("[") and host.endswith("]"):
        try:
            return "" if ipaddress.ip_address(host[1:-1]).version == 6 else right
        except ValueError:
            return right
    return "" if re.fullmatch(r"[A-Za-z0-9_.-]{1,253}", host) else right


def _mss(value: str) -> str:
    return "" if value in ("auto", "off") or not _integer(88, 65495).check(value) else "auto, off or 88 to 65495"


def _server(value: str) -> str:
    """ADDRESS or ADDRESS:PORT ([V6]:PORT)."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        host = value.rpartition(":")[0]
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            return "an address, with :PORT when it is not 53"
        return _endpoint(value)
    return ""


def _host(value: str) -> str:
    words = value.split(" ")
    try:
        if len(words) == 2 and words[0]:
            ipaddress.ip_address(words[1])
            return ""
    except ValueError:
        pass
    return "NAME ADDRESS"


_PORT = _integer(0, 65535)
_KEY = _matching("64 hex digits", r"[0-9a-f]{64}", "64 lower-case hex digits", empty=False)
_BOOL = _one_of("true", "false")
_TEXT = Kind("text", lambda value: "")
_PATH = _matching("path", r"/.*", "an absolute path")
_NAME = _matching("name", r"[^\s/]{1,15}", "an interface name of 1 to 15 bytes")
_CPUS = _matching("list", r"\d{1,4}(,\d{1,4})*", "numbers separated by commas")
_WORDS = _matching("list", r"[a-z0-9_]+(,[a-z0-9_]+)*", "words separated by commas")
_SYSCTL = _matching("NAME=VALUE", r"[A-Za-z0-9_./-]+=.+", "NAME=VALUE as for sysctl -w", empty=False)
_LINE = _matching("words", r"\S+( \S+)*", "words separated by single spaces", empty=False)

# fmt: off
SECTIONS: tuple[SectionType, ...] = (
    SectionType("engine", False, "The process itself.", (
        Key("workers", _integer(1, 16), "threads that move packets", "1"),
        Key("cpu", _CPUS, "CPU that worker i is pinned to, i-th in the list; empty: not pinned"),
        Key("nice", _integer(-20, 19), "scheduling priority of the process, as nice(1) counts; kept as it is where the "
            "kernel refuses", "-15"),
        Key("memory", _integer(1 << 18, 1 << 40), "budget of all leases, bytes", "16777216"),
        Key("log_level", _one_of("error", "warning", "info", "debug"), "least urgent message that is written", "info"),
        Key("log_format", _one_of("text", "json"), "form of a line on stderr", "text"),
        Key("state", _PATH, "folder that outlives the process (last handshake stamps); empty: none"),
        Key("control", _PATH, "the engine's own control socket; empty: none"),
        Key("feature_off", _WORDS, "features not to be used, by the names that `fvd --probe` prints"),
        Key("on_stop", _one_of("open", "closed"), "kill switch after a clean stop: taken away or left", "open"),
        Key("on_crash", _one_of("open", "closed"), "kill switch after a crash", "closed"),
    )),
    SectionType("wireguard", True, "A WireGuard device; the name is the interface's. The lines from `private_key` on "
                "are the set operation of WireGuard's configuration protocol, in its order.", (
        Key("mtu", _integer(576, 65535), "MTU of the inner packets; bounds padding as well", "1420"),
        Key("detour", _NAME, "the [wireguard] whose tunnel carries this one's outer packets"),
        Key("tun", _BOOL, "whether the device has an interface; false: it only carries others", "true"),
        Key("source4", _address(4), "the tunnel's own IPv4 address: what translated flows leave with, and the source "
            "of the outer packets of the tunnels that it carries"),
        Key("source6", _address(6), "the same for IPv6"),
        Key("private_key", _KEY, "own key", required=True, secret=True),
        Key("listen_port", _PORT, "outer UDP port; 0: any", "0"),
        Key("fwmark", _integer(0, 0xFFFFFFFF), "mark of the outer packets; 0: none", "0"),
        Key("public_key", _KEY, "begins a peer", repeat=True, peer=True),
        Key("preshared_key", _KEY, "of the peer", secret=True, peer=True),
        Key("endpoint", Kind("HOST:PORT", _endpoint), "where the peer is; a host name is resolved by the engine, again "
            "when the handshake fails", peer=True),
        Key("persistent_keepalive_interval", _PORT, "seconds; 0: none", peer=True),
        Key("allowed_ip", _prefix(None), "what the peer may send, and what is sent to it", repeat=True, peer=True),
    )),
    SectionType("nat", True, "Source translation of what enters the device from elsewhere; the name is the "
                "device's.", (
        Key("lan4", _prefix(4), "inner IPv4 sources that are translated; others pass untouched", repeat=True),
        Key("lan6", _prefix(6), "the same for IPv6", repeat=True),
        Key("entries", _integer(64, 1 << 22), "bound of the table; when full, the oldest idle entry goes", "65536"),
        Key("mss", Kind("auto|off|number", _mss), "clamp of the TCP maximum segment size on SYN and SYN-ACK; auto: "
            "from the MTU", "auto"),
    )),
    SectionType("network", False, "Kernel state, set by netlink in the order written and taken back in the reverse "
                "order; iproute2's words.", (
        Key("sysctl", _SYSCTL, "`NAME=VALUE`; the old value is recorded and put back", repeat=True),
        Key("route", _LINE, "`[unreachable] PREFIX|default [via ADDRESS] [dev NAME] [src ADDRESS] [table N] "
            "[metric N] [mtu N]`", repeat=True),
        Key("address", _LINE, "`PREFIX dev NAME`", repeat=True),
        Key("link", _LINE, "`NAME [mtu N] [up]`", repeat=True),
        Key("rule", _LINE, "`priority N [not] [from PREFIX] [to PREFIX] [iif NAME] [fwmark 0xN] table N "
            "[suppress_prefixlength N]`", repeat=True),
    )),
    SectionType("resolver", False, "Where endpoint names are looked up.", (
        Key("server", Kind("ADDRESS[:PORT]", _server), "name server; none: those of /etc/resolv.conf", repeat=True),
        Key("host", Kind("NAME ADDRESS", _host), "an answer known beforehand", repeat=True),
    )),
)
# fmt: on


def section_type(name: str) -> SectionType | None:
    return next((section for section in SECTIONS if section.name == name), None)


def table() -> str:
    """The reference tables of docs/plan.md."""
    out: list[str] = []
    for section in SECTIONS:
        out += [f"#### `[{section.name}{' NAME' if section.named else ''}]`", "", section.text, ""]
        out += ["| key | value | default | meaning |", "|---|---|---|---|"]
        for key in section.keys:
            kind = key.kind.name.replace("|", "\\|")
            notes = [
                word
                for word, on in (
                    ("required", key.required),
                    ("repeated", key.repeat),
                    ("secret", key.secret),
                    ("of a peer", key.peer),
                )
                if on
            ]
            meaning = (key.text + (f" ({', '.join(notes)})" if notes else "")).replace("|", "\\|")
            out.append(f"| `{key.name}` | {kind} | {f'`{key.default}`' if key.default else ''} | {meaning} |")
        out.append("")
    out += ["#### `needs=`", "", "| word | when |", "|---|---|"]
    out += [f"| `{word}` | the plan has {text} |" for word, text in FEATURES.items()]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(table(), end="")
