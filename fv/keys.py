"""WireGuard keys: making them, and reading them from whatever text they came in.

Keys are base64 in configurations and hexadecimal in plans. Reading forgives what other programs, phones and word
processors do to base64: the url-safe alphabet, missing `=`, spaces of any kind. A message about a bad key says its
length and never its text.
"""

import base64
import binascii
import secrets

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEY_BYTES = 32
_SPACES = dict.fromkeys(map(ord, " \t\r\n\f\v\u00a0\u200b\u202f\u2060\ufeff"))
_URL_SAFE = str.maketrans("-_", "+/")


def parse_key(text: str) -> bytes:
    """32 bytes from base64 or from 64 hex digits. ValueError says what is wrong, without the text."""
    clean = text.translate(_SPACES)
    if len(clean) == 2 * KEY_BYTES:
        try:
            return bytes.fromhex(clean)
        except ValueError:
            pass
    body = clean.rstrip("=").translate(_URL_SAFE)
    right = "a key is 32 bytes: 44 characters of base64 with the '=' at the end"
    if not body.isascii():
        raise ValueError(f"a key with characters that are not base64 ({len(clean)} characters); {right}")
    try:
        raw = base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"not base64 ({len(clean)} characters); {right}") from None
    if len(raw) != KEY_BYTES:
        raise ValueError(f"a key of {len(clean)} characters, {len(raw)} bytes; {right}")
    return raw


def show_key(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def clamp(raw: bytes) -> bytes:
    """The form in which `wg genkey` prints a private key (RFC 7748 section 5)."""
    return bytes([raw[0] & 248, *raw[1:31], (raw[31] & 127) | 64])


def generate_private() -> bytes:
    return clamp(secrets.token_bytes(KEY_BYTES))


def generate_psk() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def public_of(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
