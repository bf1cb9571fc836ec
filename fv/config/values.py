"""Values that a configuration writes in words: sizes, durations, prefixes, marks, interface names. Each reader returns
the value or raises ValueError with what would be right."""

import ipaddress
import re

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "kb": 1000, "m": 1 << 20, "mib": 1 << 20, "mb": 1000**2,
          "g": 1 << 30, "gib": 1 << 30, "gb": 1000**3}  # fmt: skip
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def size(value: int | str) -> int:
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"\s*(\d{1,15})\s*([A-Za-z]*)\s*", value)
    if not match or match[2].lower() not in _UNITS:
        raise ValueError('a size such as "16MiB"')
    return int(match[1]) * _UNITS[match[2].lower()]


def seconds(value: int | str) -> int:
    """Whole seconds from a number or a duration such as 25s or 1m30s."""
    if isinstance(value, int):
        return value
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value)
    if value.isdigit():
        return int(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ValueError('seconds, or a duration such as "25s"')
    return round(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def mark(value: int | str) -> int:
    try:
        number = value if isinstance(value, int) else int(value, 0)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFFFFFF:
        raise ValueError('a number up to 0xffffffff, such as 51820 or "0xca6c"')
    return number


def prefix(value: str) -> Network:
    """A network; host bits are masked off, an address alone is a network of one."""
    try:
        return ipaddress.ip_network(value.strip(), strict=False)
    except ValueError:
        raise ValueError('a prefix such as "10.0.0.0/8" or "fd00::/64"') from None


def interface(value: str) -> Interface:
    try:
        return ipaddress.ip_interface(value.strip())
    except ValueError:
        raise ValueError('an address with its prefix length, such as "10.7.0.2/24"') from None


def address(value: str) -> Address:
    try:
        return ipaddress.ip_address(value.strip())
    except ValueError:
        raise ValueError("an IPv4 or IPv6 address") from None


def host(value: str) -> str:
    """A host name or an address without brackets or port."""
    try:
        return str(ipaddress.ip_address(value.strip("[]")))
    except ValueError:
        pass
    if re.fullmatch(
        r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})?)*\.?", value
    ):
        return value
    raise ValueError("an address or a host name, without port: the port is its own field")


def interface_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_=+.-]{1,15}", value) or value in (".", ".."):
        raise ValueError("an interface name: 1 to 15 letters, digits or _=+.-")
    return value


def is_prefix(value: str) -> bool:
    try:
        prefix(value)
    except ValueError:
        return False
    return True
