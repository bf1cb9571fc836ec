/* BLAKE2s (RFC 7693), HMAC over it, and the key derivation of WireGuard's handshake.
 *
 * Our own, not libcrypto's: docs/decisions/0001-blake2s.md has the reason. Nothing allocates, nothing fails. */
#ifndef FV_CRYPTO_BLAKE2S_H
#define FV_CRYPTO_BLAKE2S_H

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2S_OUT = 32, BLAKE2S_KEY = 32, BLAKE2S_BLOCK = 64 };

struct blake2s {
    uint32_t h[8];
    uint64_t count;  /* bytes compressed so far */
    uint32_t filled; /* bytes waiting in block; a full block waits until more comes, for the last one is special */
    uint32_t out;    /* digest length, 1..32 */
    uint8_t block[BLAKE2S_BLOCK];
};

/* out: digest bytes, 1..32; key: key_len bytes, 0..32 (0: unkeyed, key may be NULL). */
void blake2s_init(struct blake2s *s, size_t out, const void *key, size_t key_len);
void blake2s_update(struct blake2s *s, const void *p, size_t n);
/* Writes s->out bytes and wipes the state. */
void blake2s_final(struct blake2s *s, void *digest);

/* One shot. `blake2s(mac, 16, key, 32, p, n)` is WireGuard's MAC, `blake2s(h, 32, NULL, 0, p, n)` its HASH. */
void blake2s(void *digest, size_t out, const void *key, size_t key_len, const void *p, size_t n);

/* HMAC (RFC 2104) with BLAKE2s-256, any key length. */
void blake2s_hmac(uint8_t digest[BLAKE2S_OUT], const void *key, size_t key_len, const void *p, size_t n);

/* WireGuard's KDFn(ck, input): n is the number of outputs wanted, 1..3; t2 and t3 may be NULL when n is below.
 * t1 may be ck itself, and any output may be the input. */
void blake2s_kdf(unsigned n, uint8_t *t1, uint8_t *t2, uint8_t *t3, const uint8_t ck[BLAKE2S_OUT], const void *input,
                 size_t input_len);

#endif
