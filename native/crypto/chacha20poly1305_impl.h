/* What the implementations of ChaCha20-Poly1305 share; only files of this folder include it. */
#ifndef FV_CRYPTO_CHACHA20POLY1305_IMPL_H
#define FV_CRYPTO_CHACHA20POLY1305_IMPL_H

#include "crypto/chacha20poly1305.h"

/* "expand 32-byte k" as four little-endian words. */
#define CHACHA_SIGMA {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}

struct chacha_impl {
    const char *name;
    bool (*usable)(void);
    void (*seal_batch)(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n);
    unsigned (*open_batch)(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n);
    /* dst = src ^ keystream from block 1 on, and the tag over ad and ciphertext. */
    void (*seal)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                 const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY]);
    bool (*open)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                 const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY]);
};

extern const struct chacha_impl chacha_portable, chacha_libcrypto;
#if defined(__x86_64__)
#define FV_CHACHA_X86 1
extern const struct chacha_impl chacha_avx2, chacha_avx512;
#endif

/* What the vector implementations leave to others. */
static inline const struct chacha_impl *chacha_fallback(void)
{
    return chacha_libcrypto.usable() ? &chacha_libcrypto : &chacha_portable;
}

/* One 64-byte block of keystream, portable. */
void chacha_block(uint8_t out[64], const uint8_t key[CHACHA_KEY], uint32_t counter, const uint8_t nonce[CHACHA_NONCE]);

#endif
