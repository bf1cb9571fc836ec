"""WireGuard's primitives for the reference peer: slow, readable, independent of the engine.

BLAKE2s comes from the standard library, X25519 and ChaCha20-Poly1305 from `cryptography`. HChaCha20 is written
out here because neither offers it; tests/test_peer_wireguard.py compares it with the published vector and the
XChaCha20-Poly1305 built on it with libsodium's.
"""

import hashlib
import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ZERO_KEY = bytes(32)

CONSTRUCTION = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
IDENTIFIER = b"WireGuard v1 zx2c4 Jason@zx2c4.com"
LABEL_MAC1 = b"mac1----"
LABEL_COOKIE = b"cookie--"

# Points of order 1, 2, 4 and 8 on Curve25519 and its twist, each encoded below 2^255 (RFC 7748 section 6.1 is why they
# matter: X25519 with any private key gives zero). The last three are the non-canonical encodings p-1, p, p+1.
LOW_ORDER_POINTS = tuple(
    bytes.fromhex(text)
    for text in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)


class RefusedError(Exception):
    """A message that must not change any state; the text says why."""


def clamp(private: bytes) -> bytes:
    """RFC 7748 section 5: what X25519 does to a scalar, done when a private key is set."""
    return bytes([private[0] & 248]) + private[1:31] + bytes([(private[31] & 127) | 64])


def public_key(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def dh(private: bytes, public: bytes) -> bytes:
    """X25519; a low-order public key is refused, as every WireGuard implementation must."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise RefusedError("low-order public key") from None


def hash_(*parts: bytes) -> bytes:
    return hashlib.blake2s(b"".join(parts)).digest()


def mac(key: bytes, *parts: bytes) -> bytes:
    """Keyed BLAKE2s with 16 bytes of output; not HMAC."""
    return hashlib.blake2s(b"".join(parts), key=key, digest_size=16).digest()


def kdf(n: int, key: bytes, data: bytes) -> tuple[bytes, ...]:
    """HKDF (RFC 5869) over BLAKE2s with empty info: n outputs of 32 bytes."""
    secret = hmac.digest(key, data, "blake2s")
    outputs: list[bytes] = []
    last = b""
    for i in range(1, n + 1):
        last = hmac.digest(secret, last + bytes([i]), "blake2s")
        outputs.append(last)
    return tuple(outputs)


def seal(key: bytes, counter: int, plain: bytes, ad: bytes = b"") -> bytes:
    """ChaCha20-Poly1305 (RFC 8439) with WireGuard's nonce: four zero bytes and the counter, little-endian."""
    return ChaCha20Poly1305(key).encrypt(bytes(4) + struct.pack("<Q", counter), plain, ad)


def open_(key: bytes, counter: int, sealed: bytes, ad: bytes = b"") -> bytes:
    if len(sealed) < 16:
        raise RefusedError("shorter than its tag")
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(4) + struct.pack("<Q", counter), sealed, ad)
    except InvalidTag:
        raise RefusedError("authentication failed") from None


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & 0xFFFFFFFF


def _quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
    """RFC 8439 section 2.1."""
    for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & 0xFFFFFFFF
        s[z] = _rotate(s[z] ^ s[x], bits)


def hchacha20(key: bytes, nonce: bytes) -> bytes:
    """draft-irtf-cfrg-xchacha section 2.2: 20 rounds, no final addition, first and last row of the state."""
    assert (len(key), len(nonce)) == (32, 16)
    s = list(struct.unpack("<4I8I4I", b"expand 32-byte k" + key + nonce))
    for _ in range(10):
        for column in range(4):
            _quarter(s, column, 4 + column, 8 + column, 12 + column)
        for start in range(4):
            _quarter(s, start, 4 + (start + 1) % 4, 8 + (start + 2) % 4, 12 + (start + 3) % 4)
    return struct.pack("<8I", *s[0:4], *s[12:16])


def xseal(key: bytes, nonce: bytes, plain: bytes, ad: bytes) -> bytes:
    """XChaCha20-Poly1305: 24 bytes of nonce, the first 16 of which go into the key."""
    return ChaCha20Poly1305(hchacha20(key, nonce[:16])).encrypt(bytes(4) + nonce[16:], plain, ad)


def xopen(key: bytes, nonce: bytes, sealed: bytes, ad: bytes) -> bytes:
    try:
        return ChaCha20Poly1305(hchacha20(key, nonce[:16])).decrypt(bytes(4) + nonce[16:], sealed, ad)
    except InvalidTag:
        raise RefusedError("authentication failed") from None


INITIAL_CHAIN = hash_(CONSTRUCTION)
INITIAL_HASH = hash_(INITIAL_CHAIN, IDENTIFIER)

STAMP_GRAIN = 1 << 24  # ns; the largest power of two not above a fiftieth of a second: the stamp is no precise clock


def tai64n(unix_ns: int) -> bytes:
    """TAI64N label: seconds since 1970 plus 10 above 2^62, then nanoseconds rounded down to the grain; big-endian."""
    seconds, nanoseconds = divmod(unix_ns, 1_000_000_000)
    return struct.pack(">QI", 0x400000000000000A + seconds, nanoseconds & ~(STAMP_GRAIN - 1))


def mac1_key(receiver_public: bytes) -> bytes:
    return hash_(LABEL_MAC1, receiver_public)


def cookie_key(responder_public: bytes) -> bytes:
    return hash_(LABEL_COOKIE, responder_public)
