"""Shadowsocks' keys and ciphers for the reference peer: slow, readable, independent of the engine.

AES-GCM, ChaCha20-Poly1305 and the AES block come from `cryptography`, BLAKE3 from the package of its authors; HKDF and
OpenSSL's old key derivation are written out. XChaCha20-Poly1305 is that of wg_crypto.py.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from .proxy import BadInputError

TAG = 16
SESSION, IDENTITY = "shadowsocks 2022 session subkey", "shadowsocks 2022 identity subkey"


@dataclass(frozen=True)
class Method:
    """`size` is that of key and salt. `modern`: the 2022 edition."""

    name: str
    size: int
    aes: bool
    modern: bool

    def aead(self, key: bytes) -> AESGCM | ChaCha20Poly1305:
        return AESGCM(key) if self.aes else ChaCha20Poly1305(key)


METHODS = {
    method.name: method
    for method in (
        Method("aes-128-gcm", 16, aes=True, modern=False),
        Method("aes-256-gcm", 32, aes=True, modern=False),
        Method("chacha20-ietf-poly1305", 32, aes=False, modern=False),
        Method("2022-blake3-aes-128-gcm", 16, aes=True, modern=True),
        Method("2022-blake3-aes-256-gcm", 32, aes=True, modern=True),
        Method("2022-blake3-chacha20-poly1305", 32, aes=False, modern=True),
    )
}


def password_key(password: str, size: int) -> bytes:
    """OpenSSL's EVP_BytesToKey with MD5, no salt, one round."""
    key = last = b""
    while len(key) < size:
        last = hashlib.md5(last + password.encode()).digest()
        key += last
    return key[:size]


def hkdf_sha1(key: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    """RFC 5869."""
    secret = hmac.digest(salt, key, "sha1")
    output = last = b""
    for i in range(1, -(-size // 20) + 1):
        last = hmac.digest(secret, last + info + bytes([i]), "sha1")
        output += last
    return output[:size]


def derive(context: str, material: bytes, size: int) -> bytes:
    return blake3(material, derive_key_context=context).digest(size)


def hash16(psk: bytes) -> bytes:
    return blake3(psk).digest(16)


def decode_psk(text: str, size: int) -> bytes:
    """Standard base64 of exactly `size` bytes, with or without padding."""
    try:
        psk = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except binascii.Error:
        raise ValueError("a key of the 2022 edition is base64") from None
    if len(psk) != size:
        raise ValueError(f"this method's key is base64 of {size} bytes, not of {len(psk)}")
    return psk


@dataclass(frozen=True)
class Keys:
    """`chain`: iPSK0, iPSK1, .., uPSK in the 2022 edition, else the one master key."""

    method: Method
    chain: tuple[bytes, ...]

    @classmethod
    def of(cls, method: str, password: str) -> "Keys":
        m = METHODS[method]
        if not m.modern:
            return cls(m, (password_key(password, m.size),))
        chain = tuple(decode_psk(part, m.size) for part in password.split(":"))
        if len(chain) > 1 and not m.aes:
            raise ValueError(f"{method} has no identity headers: one key is wanted")
        return cls(m, chain)

    @property
    def psk(self) -> bytes:
        return self.chain[-1]

    def session(self, salt: bytes) -> bytes:
        """The subkey of a stream, a datagram (2017) or a session of datagrams (its ID is the salt)."""
        if self.method.modern:
            return derive(SESSION, self.psk + salt, self.method.size)
        return hkdf_sha1(self.psk, salt, b"ss-subkey", self.method.size)

    def user(self, psk: bytes) -> "Keys":
        return Keys(self.method, (psk,))


def identity_subkey(ipsk: bytes, salt: bytes) -> bytes:
    return derive(IDENTITY, ipsk + salt, len(ipsk))


def block_encrypt(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def block_decrypt(key: bytes, block: bytes) -> bytes:
    decryptor = Cipher(algorithms.AES(key), modes.ECB()).decryptor()
    return decryptor.update(block) + decryptor.finalize()


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def identity_headers(keys: Keys, salt: bytes) -> bytes:
    """SIP023 for TCP: in header i the hash of the next PSK, encrypted for who has iPSK i."""
    return b"".join(
        block_encrypt(identity_subkey(ipsk, salt), hash16(following))
        for ipsk, following in zip(keys.chain, keys.chain[1:], strict=False)
    )


def user_of(hashed: bytes, users: Iterable[tuple[str, bytes]]) -> tuple[str, bytes]:
    for name, psk in users:
        if hash16(psk) == hashed:
            return name, psk
    raise BadInputError("unknown user")


def open_(method: Method, key: bytes, nonce: bytes, sealed: bytes) -> bytes:
    if len(sealed) < TAG:
        raise BadInputError("shorter than its tag")
    try:
        return method.aead(key).decrypt(nonce, sealed, None)
    except InvalidTag:
        raise BadInputError("authentication failed") from None


@dataclass
class Direction:
    """One direction of a stream: every seal or open counts the nonce up, 12 bytes little-endian from 0."""

    method: Method
    key: bytes
    count: int = 0

    def _nonce(self) -> bytes:
        nonce = self.count.to_bytes(12, "little")
        self.count += 1
        return nonce

    def seal(self, plain: bytes) -> bytes:
        return self.method.aead(self.key).encrypt(self._nonce(), plain, None)

    def open(self, sealed: bytes) -> bytes:
        return open_(self.method, self.key, self._nonce(), sealed)

    def chunk(self, payload: bytes, length: int | None = None) -> bytes:
        """Length and payload, sealed each; `length` for one that lies."""
        size = len(payload) if length is None else length
        return self.seal(size.to_bytes(2, "big")) + self.seal(payload)

    def chunks(self, payload: bytes) -> bytes:
        """As few as the edition allows."""
        limit = 0xFFFF if self.method.modern else 0x3FFF
        return b"".join(self.chunk(payload[i : i + limit]) for i in range(0, len(payload), limit))
