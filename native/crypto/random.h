/* A deterministic random generator for the sans-IO cores: the caller gives entropy, the cores draw indices, nonces,
 * jitter and ephemeral keys from it. ChaCha20 with fast key erasure: every refill overwrites the key that made it, and
 * bytes are wiped as they are handed out, so a state that leaks later tells nothing of what was drawn before. */
#ifndef FV_CRYPTO_RANDOM_H
#define FV_CRYPTO_RANDOM_H

#include <stddef.h>
#include <stdint.h>

enum { RANDOM_SEED = 32, RANDOM_BUFFER = 256 };

struct random {
    uint8_t key[32];
    uint8_t buffer[RANDOM_BUFFER]; /* the unused bytes are its last `left` */
    uint32_t left;
};

/* Starts from 32 bytes of entropy. The same seed gives the same bytes (tests build on that). */
void random_seed(struct random *r, const uint8_t seed[RANDOM_SEED]);
/* Mixes n more bytes of entropy in; what was there stays unpredictable even if these are not. */
void random_reseed(struct random *r, const void *entropy, size_t n);

void random_bytes(struct random *r, void *p, size_t n);
uint32_t random_u32(struct random *r);
/* Uniform in 0 .. bound - 1; bound 0 means the full range. */
uint32_t random_below(struct random *r, uint32_t bound);

#endif
