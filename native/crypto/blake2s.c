#include "crypto/blake2s.h"

#include "crypto/secret.h"
#include "wire/bytes.h"

static const uint32_t iv[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* RFC 7693, 2.7: the order of the message words in each round. */
static const uint8_t sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint32_t rotate_right(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

#define MIX(a, b, c, d, x, y) \
    do { \
        a += b + (x), d = rotate_right(d ^ a, 16); \
        c += d, b = rotate_right(b ^ c, 12); \
        a += b + (y), d = rotate_right(d ^ a, 8); \
        c += d, b = rotate_right(b ^ c, 7); \
    } while (0)

/* Written out with constant word numbers, so that the message words can stay in registers. */
#define ROUND(r) \
    do { \
        MIX(v[0], v[4], v[8], v[12], m[sigma[r][0]], m[sigma[r][1]]); \
        MIX(v[1], v[5], v[9], v[13], m[sigma[r][2]], m[sigma[r][3]]); \
        MIX(v[2], v[6], v[10], v[14], m[sigma[r][4]], m[sigma[r][5]]); \
        MIX(v[3], v[7], v[11], v[15], m[sigma[r][6]], m[sigma[r][7]]); \
        MIX(v[0], v[5], v[10], v[15], m[sigma[r][8]], m[sigma[r][9]]); \
        MIX(v[1], v[6], v[11], v[12], m[sigma[r][10]], m[sigma[r][11]]); \
        MIX(v[2], v[7], v[8], v[13], m[sigma[r][12]], m[sigma[r][13]]); \
        MIX(v[3], v[4], v[9], v[14], m[sigma[r][14]], m[sigma[r][15]]); \
    } while (0)

static void compress(struct blake2s *s, const uint8_t block[BLAKE2S_BLOCK], uint32_t n, uint32_t last)
{
    uint32_t m[16], v[16];
    s->count += n;
    for (unsigned i = 0; i < 16; i++)
        m[i] = load_le32(block + 4 * i);
    for (unsigned i = 0; i < 8; i++) {
        v[i] = s->h[i];
        v[i + 8] = iv[i];
    }
    v[12] ^= (uint32_t)s->count;
    v[13] ^= (uint32_t)(s->count >> 32);
    v[14] ^= last;
    ROUND(0);
    ROUND(1);
    ROUND(2);
    ROUND(3);
    ROUND(4);
    ROUND(5);
    ROUND(6);
    ROUND(7);
    ROUND(8);
    ROUND(9);
    for (unsigned i = 0; i < 8; i++)
        s->h[i] ^= v[i] ^ v[i + 8];
}

void blake2s_init(struct blake2s *s, size_t out, const void *key, size_t key_len)
{
    memcpy(s->h, iv, sizeof s->h);
    s->h[0] ^= 0x01010000 ^ (uint32_t)key_len << 8 ^ (uint32_t)out; /* RFC 7693, 2.5: fanout 1, depth 1 */
    s->count = 0;
    s->filled = 0;
    s->out = (uint32_t)out;
    if (key_len) {
        memset(s->block, 0, sizeof s->block);
        memcpy(s->block, key, key_len);
        s->filled = BLAKE2S_BLOCK;
    }
}

void blake2s_update(struct blake2s *s, const void *p, size_t n)
{
    const uint8_t *from = p;
    if (n == 0)
        return;
    uint32_t room = BLAKE2S_BLOCK - s->filled;
    if (n > room) {
        memcpy(s->block + s->filled, from, room);
        compress(s, s->block, BLAKE2S_BLOCK, 0);
        s->filled = 0;
        from += room;
        n -= room;
        for (; n > BLAKE2S_BLOCK; from += BLAKE2S_BLOCK, n -= BLAKE2S_BLOCK)
            compress(s, from, BLAKE2S_BLOCK, 0);
    }
    memcpy(s->block + s->filled, from, n);
    s->filled += (uint32_t)n;
}

void blake2s_final(struct blake2s *s, void *digest)
{
    uint8_t full[BLAKE2S_OUT];
    memset(s->block + s->filled, 0, BLAKE2S_BLOCK - s->filled);
    compress(s, s->block, s->filled, ~(uint32_t)0);
    for (unsigned i = 0; i < 8; i++)
        store_le32(full + 4 * i, s->h[i]);
    memcpy(digest, full, s->out);
    secret_wipe(full, sizeof full);
    secret_wipe(s, sizeof *s);
}

void blake2s(void *digest, size_t out, const void *key, size_t key_len, const void *p, size_t n)
{
    struct blake2s s;
    blake2s_init(&s, out, key, key_len);
    blake2s_update(&s, p, n);
    blake2s_final(&s, digest);
}

/* An HMAC key made ready: its two pads, each waiting as the first block of its hash. (Not compressed yet: BLAKE2s
 * treats the last block apart, and for an empty message the inner pad is the last.) */
struct hmac_key {
    struct blake2s inner, outer;
};

static void hmac_key_init(struct hmac_key *k, const void *key, size_t key_len)
{
    uint8_t pad[BLAKE2S_BLOCK] = {0};
    if (key_len > sizeof pad)
        blake2s(pad, BLAKE2S_OUT, NULL, 0, key, key_len);
    else if (key_len)
        memcpy(pad, key, key_len);
    for (unsigned i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36;
    blake2s_init(&k->inner, BLAKE2S_OUT, NULL, 0);
    blake2s_update(&k->inner, pad, sizeof pad);
    for (unsigned i = 0; i < sizeof pad; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    blake2s_init(&k->outer, BLAKE2S_OUT, NULL, 0);
    blake2s_update(&k->outer, pad, sizeof pad);
    secret_wipe(pad, sizeof pad);
}

/* HMAC of a || b. */
static void hmac_two(const struct hmac_key *k, uint8_t *digest, const void *a, size_t a_len, const void *b,
                     size_t b_len)
{
    struct blake2s s = k->inner;
    uint8_t middle[BLAKE2S_OUT];
    blake2s_update(&s, a, a_len);
    blake2s_update(&s, b, b_len);
    blake2s_final(&s, middle);
    s = k->outer;
    blake2s_update(&s, middle, sizeof middle);
    blake2s_final(&s, digest);
    secret_wipe(middle, sizeof middle);
}

void blake2s_hmac(uint8_t digest[BLAKE2S_OUT], const void *key, size_t key_len, const void *p, size_t n)
{
    struct hmac_key k;
    hmac_key_init(&k, key, key_len);
    hmac_two(&k, digest, p, n, NULL, 0);
    secret_wipe(&k, sizeof k);
}

void blake2s_kdf(unsigned n, uint8_t *t1, uint8_t *t2, uint8_t *t3, const uint8_t ck[BLAKE2S_OUT], const void *input,
                 size_t input_len)
{
    static const uint8_t number[3] = {1, 2, 3};
    uint8_t *out[3] = {t1, t2, t3};
    uint8_t t[BLAKE2S_OUT];
    struct hmac_key k;
    blake2s_hmac(t, ck, BLAKE2S_OUT, input, input_len);
    hmac_key_init(&k, t, sizeof t);
    for (unsigned i = 0; i < n && i < 3; i++) {
        hmac_two(&k, t, t, i ? sizeof t : 0, &number[i], 1);
        memcpy(out[i], t, sizeof t);
    }
    secret_wipe(t, sizeof t);
    secret_wipe(&k, sizeof k);
}
