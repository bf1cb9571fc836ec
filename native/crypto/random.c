#include "crypto/random.h"

#include "crypto/blake2s.h"
#include "crypto/chacha20poly1305_impl.h"
#include "crypto/secret.h"
#include "wire/bytes.h"

/* ChaCha20 blocks 0..4 under the old key: the first 32 bytes of block 0 are the new key, blocks 1..4 are what is handed
 * out. The nonce is zero for ever because a key is used for one refill only. */
static void refill(struct random *r)
{
    static const uint8_t nonce[12];
    uint8_t block[64];
    uint8_t key[32];
    memcpy(key, r->key, sizeof key);
    chacha_block(block, key, 0, nonce);
    memcpy(r->key, block, sizeof r->key);
    for (uint32_t i = 0; i < RANDOM_BUFFER / 64; i++)
        chacha_block(r->buffer + 64 * i, key, i + 1, nonce);
    r->left = RANDOM_BUFFER;
    secret_wipe(block, sizeof block);
    secret_wipe(key, sizeof key);
}

void random_seed(struct random *r, const uint8_t seed[RANDOM_SEED])
{
    memcpy(r->key, seed, sizeof r->key);
    refill(r); /* the seed itself is not kept */
}

void random_reseed(struct random *r, const void *entropy, size_t n)
{
    blake2s(r->key, sizeof r->key, r->key, sizeof r->key, entropy, n);
    refill(r);
}

void random_bytes(struct random *r, void *p, size_t n)
{
    uint8_t *to = p;
    while (n) {
        if (r->left == 0)
            refill(r);
        size_t take = MIN(n, r->left);
        uint8_t *from = r->buffer + RANDOM_BUFFER - r->left;
        memcpy(to, from, take);
        secret_wipe(from, take);
        r->left -= (uint32_t)take;
        to += take;
        n -= take;
    }
}

uint32_t random_u32(struct random *r)
{
    uint8_t b[4];
    random_bytes(r, b, sizeof b);
    return load_le32(b);
}

uint32_t random_below(struct random *r, uint32_t bound)
{
    if (bound == 0)
        return random_u32(r);
    /* Multiply and take the high word (Lemire); draws in the uneven low part are thrown away. */
    uint32_t uneven = -bound % bound;
    for (;;) {
        uint64_t product = (uint64_t)random_u32(r) * bound;
        if ((uint32_t)product >= uneven)
            return (uint32_t)(product >> 32);
    }
}
