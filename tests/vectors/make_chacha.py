#!/usr/bin/env python3
"""Writes chacha20poly1305.json: known answers of the primitives in native/crypto.

The generated cases come from libraries that the engine does not contain (cryptography, hashlib); the published ones are
typed in from their documents and checked against those libraries before they are written. Deterministic: run again, the
file is the same.
"""

import hashlib
import hmac
import json
import random
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

# RFC 8439, 2.8.2
SUNSCREEN = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
SUNSCREEN += b"sunscreen would be it."
PUBLISHED_AEAD = [
    {
        "name": "RFC 8439 2.8.2",
        "key": bytes(range(0x80, 0xA0)).hex(),
        "nonce": "070000004041424344454647",
        "ad": "50515253c0c1c2c3c4c5c6c7",
        "plain": SUNSCREEN.hex(),
        "sealed": "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
        "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
        "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b6116"
        "1ae10b594f09e26a7e902ecbd0600691",
    }
]
# draft-irtf-cfrg-xchacha-03, A.3.1 and 2.2.1
PUBLISHED_XAEAD = {
    "name": "draft-irtf-cfrg-xchacha-03 A.3.1",
    "key": bytes(range(0x80, 0xA0)).hex(),
    "nonce": bytes(range(0x40, 0x58)).hex(),
    "ad": "50515253c0c1c2c3c4c5c6c7",
    "plain": SUNSCREEN.hex(),
    "sealed": "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb"
    "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452"
    "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9"
    "21f9664c97637da9768812f615c68b13b52e"
    "c0875924c1c7987947deafd8780acf49",
}
PUBLISHED_HCHACHA = {
    "key": bytes(range(32)).hex(),
    "nonce": "000000090000004a0000000031415927",
    "out": "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc",
}
# RFC 7748, 5.2 and 6.1
PUBLISHED_X25519 = [
    {
        "private": "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "public": "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "shared": "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    },
    {
        "private": "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "public": "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "shared": "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
    },
]


def aead_cases(rng: random.Random) -> list[dict[str, str]]:
    """Lengths around every edge of a block, of a 64-byte ChaCha block and of the vectors' 8 and 16 lanes."""
    lengths = [
        0,
        1,
        15,
        16,
        17,
        31,
        32,
        48,
        63,
        64,
        65,
        127,
        128,
        129,
        191,
        255,
        256,
        511,
        512,
        513,
        1023,
        1024,
        1025,
        1420,
    ]
    cases = list(PUBLISHED_AEAD)
    for n in lengths:
        for ad_len in (0, rng.choice([1, 12, 15, 16, 17, 32, 33])):
            key, nonce, plain, ad = rng.randbytes(32), rng.randbytes(12), rng.randbytes(n), rng.randbytes(ad_len)
            cases.append(case(f"{n} bytes, {ad_len} of ad", key, nonce, plain, ad))
    for name, key, nonce, plain in edges() + last_reductions():
        cases.append(case(name, key, nonce, plain, b""))
    return cases


def case(name: str, key: bytes, nonce: bytes, plain: bytes, ad: bytes) -> dict[str, str]:
    sealed = ChaCha20Poly1305(key).encrypt(nonce, plain, ad)
    return {
        "name": name,
        "key": key.hex(),
        "nonce": nonce.hex(),
        "ad": ad.hex(),
        "plain": plain.hex(),
        "sealed": sealed.hex(),
    }


def edges() -> list[tuple[str, bytes, bytes, bytes]]:
    """Ciphertexts that drive Poly1305's limbs to their ends: all zero, all one bits, and p - 1, p, p + 1 as blocks.

    The plaintext is the wanted ciphertext xor the keystream, so that the authenticator sees exactly those bytes.
    """
    p = (1 << 130) - 5
    low = [(p + d) % (1 << 128) for d in (-2, -1, 0, 1, 2, 4)]
    wanted = {
        "ciphertext all zero": bytes(1024),
        "ciphertext all ones": b"\xff" * 1024,
        "ciphertext of blocks around p": b"".join(x.to_bytes(16, "little") for x in low) * 12,
        "ciphertext of one set limb bit": b"".join((1 << (i % 128)).to_bytes(16, "little") for i in range(64)),
    }
    out = []
    for i, (name, text) in enumerate(wanted.items()):
        for variant, key in enumerate((bytes(32), b"\xff" * 32, hashlib.sha256(bytes([i])).digest())):
            nonce = bytes(4) + (0xFFFFFFFFFFFFFFF0 + i).to_bytes(8, "little")
            stream = ChaCha20Poly1305(key).encrypt(nonce, bytes(len(text)), b"")[:-16]
            plain = bytes(a ^ b for a, b in zip(text, stream, strict=True))
            out.append((f"{name}, key {variant}", key, nonce, plain))
    return out


def last_reductions() -> list[tuple[str, bytes, bytes, bytes]]:
    """One-block messages whose Poly1305 sum is 0 to 4 modulo p.

    An accumulator then ends at p or above, below 2^130, and only the very last subtraction makes the tag right. Random
    messages never get there.
    """
    p = (1 << 130) - 5
    out = []
    for target in range(5):
        for attempt in range(1 << 16):
            key = hashlib.sha256(bytes([target]) + attempt.to_bytes(2, "little")).digest()
            nonce = bytes(4) + (attempt << 30).to_bytes(8, "little")
            cipher = Cipher(algorithms.ChaCha20(key, bytes(4) + nonce), mode=None)
            stream = cipher.encryptor().update(bytes(80))
            r = int.from_bytes(stream[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
            lengths = (16 << 64) + (1 << 128)
            block = ((target * pow(r, -1, p) - lengths) * pow(r, -1, p)) % p - (1 << 128)
            if 0 <= block < 1 << 128:
                text = block.to_bytes(16, "little")
                plain = bytes(a ^ b for a, b in zip(text, stream[64:], strict=True))
                out.append((f"sum of {target} modulo p", key, nonce, plain))
                break
    assert len(out) == 5
    return out


def batch_cases(rng: random.Random) -> list[dict[str, object]]:
    """Packets of one batch: one key, nonce = four zero bytes and a counter. Sealed bytes by their SHA-256."""
    shapes = {
        "one packet": [1420],
        "equal packets": [1420] * 16,
        "equal small packets": [64] * 9,
        "empty packets": [0] * 17,
        "mixed": [0, 1, 15, 16, 17, 63, 64, 65, 1420, 1280, 8920, 128, 127, 129, 40, 52, 576, 9000, 3, 1500],
        "one long among short": [32] * 7 + [9000] + [48] * 5,
        "all of 64": [rng.randrange(0, 1501) for _ in range(64)],
    }
    cases = []
    for name, lengths in shapes.items():
        key = rng.randbytes(32)
        start = rng.choice([0, (1 << 32) - 3, (1 << 60) - 1, (1 << 64) - 9000])
        aead = ChaCha20Poly1305(key)
        digest = hashlib.sha256()
        for i, n in enumerate(lengths):
            # byte j of packet i is (7 i + 3 j) mod 251, so that the C test can make it too
            plain = bytes((7 * i + 3 * j) % 251 for j in range(n))
            digest.update(aead.encrypt(bytes(4) + (start + i).to_bytes(8, "little"), plain, b""))
        cases.append(
            {"name": name, "key": key.hex(), "counter": start, "lengths": lengths, "sha256": digest.hexdigest()}
        )
    return cases


def blake2s_cases(rng: random.Random) -> list[dict[str, object]]:
    cases = []
    for n in (0, 1, 3, 63, 64, 65, 116, 127, 128, 129, 200, 1000):
        for key_len, out in ((0, 32), (32, 16), (32, 32), (16, 16), (1, 1)):
            key, data = rng.randbytes(key_len), rng.randbytes(n)
            digest = hashlib.blake2s(data, key=key, digest_size=out).hexdigest()
            cases.append({"key": key.hex(), "out": out, "input": data.hex(), "digest": digest})
    return cases


def hmac_cases(rng: random.Random) -> list[dict[str, str]]:
    cases = []
    for key_len in (0, 32, 64, 65, 100):
        for n in (0, 1, 32, 33, 64, 100):
            key, data = rng.randbytes(key_len), rng.randbytes(n)
            cases.append({"key": key.hex(), "input": data.hex(), "digest": hmac.digest(key, data, "blake2s").hex()})
    return cases


def x25519_cases(rng: random.Random) -> list[dict[str, str]]:
    cases = list(PUBLISHED_X25519)
    for _ in range(6):
        private, other = rng.randbytes(32), X25519PrivateKey.from_private_bytes(rng.randbytes(32))
        public = other.public_key().public_bytes_raw()
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
        cases.append({"private": private.hex(), "public": public.hex(), "shared": shared.hex()})
    for c in cases:
        key = X25519PrivateKey.from_private_bytes(bytes.fromhex(c["private"]))
        got = key.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(c["public"])))
        assert got.hex() == c["shared"], c
        c["base"] = key.public_key().public_bytes_raw().hex()
    return cases


# Points of small order (and p, p + 1 as encodings of 0 and 1): the shared secret is zero and must be refused.
X25519_REFUSED = [
    bytes(32).hex(),
    (1).to_bytes(32, "little").hex(),
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    ((1 << 255) - 20).to_bytes(32, "little").hex(),
    ((1 << 255) - 19).to_bytes(32, "little").hex(),
    ((1 << 255) - 18).to_bytes(32, "little").hex(),
]


def main() -> None:
    rng = random.Random(8439)
    aead = aead_cases(rng)
    for c in aead:
        again = case("", *(bytes.fromhex(c[k]) for k in ("key", "nonce", "plain", "ad")))
        assert again["sealed"] == c["sealed"], c["name"]
    vectors = {
        "about": "Known answers for native/crypto, written by tests/vectors/make_chacha.py.",
        "aead": aead,
        "xaead": [PUBLISHED_XAEAD],
        "hchacha": [PUBLISHED_HCHACHA],
        "batch": batch_cases(rng),
        "blake2s": blake2s_cases(rng),
        "hmac": hmac_cases(rng),
        "x25519": x25519_cases(rng),
        "x25519_refused": X25519_REFUSED,
    }
    path = Path(__file__).with_name("chacha20poly1305.json")
    path.write_text(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
