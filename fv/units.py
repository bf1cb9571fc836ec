"""Numbers for readers."""


def size(count: float) -> str:
    """Bytes in binary units, three digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    raise AssertionError("the loop returns")


def rate(bits: float) -> str:
    """Bits per second in decimal units, as networks are sold."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bits < 1000:
            return f"{bits:.0f} {unit}" if unit == "bit/s" else f"{bits:.1f} {unit}"
        bits /= 1000
    return f"{bits:.2f} Gbit/s"


def age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"
