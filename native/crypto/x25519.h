/* X25519 (RFC 7748). Private keys are 32 bytes; clamping happens inside the multiplication too, so that an unclamped
 * key gives the same result as its clamped form. */
#ifndef FV_CRYPTO_X25519_H
#define FV_CRYPTO_X25519_H

#include <stdbool.h>
#include <stdint.h>

enum { X25519_KEY = 32 };

/* WireGuard stores private keys clamped. */
static inline void x25519_clamp(uint8_t key[X25519_KEY])
{
    key[0] &= 248;
    key[31] = (key[31] & 127) | 64;
}

/* out = priv * pub. False when the result is all zero (pub of small order: the handshake must stop) or libcrypto has
 * no memory; out is all zero then. */
bool x25519(uint8_t out[X25519_KEY], const uint8_t priv[X25519_KEY], const uint8_t pub[X25519_KEY]);

/* out = the public key of priv. False only when libcrypto has no memory. */
bool x25519_base(uint8_t out[X25519_KEY], const uint8_t priv[X25519_KEY]);

#endif
