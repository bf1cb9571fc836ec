/* ChaCha20-Poly1305 in plain C: the implementation that runs everywhere, and the one the others are compared with.
 * Poly1305 in five limbs of 26 bits, so that a 32-bit CPU needs only 32 x 32 -> 64 multiplications. */
#include <string.h>

#include "crypto/chacha20poly1305_impl.h"
#include "crypto/secret.h"
#include "wire/bytes.h"

static inline uint32_t rotate_left(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

#define QUARTER(a, b, c, d) \
    do { \
        a += b, d = rotate_left(d ^ a, 16); \
        c += d, b = rotate_left(b ^ c, 12); \
        a += b, d = rotate_left(d ^ a, 8); \
        c += d, b = rotate_left(b ^ c, 7); \
    } while (0)

static void rounds(uint32_t x[16])
{
    for (unsigned i = 0; i < 10; i++) {
        QUARTER(x[0], x[4], x[8], x[12]);
        QUARTER(x[1], x[5], x[9], x[13]);
        QUARTER(x[2], x[6], x[10], x[14]);
        QUARTER(x[3], x[7], x[11], x[15]);
        QUARTER(x[0], x[5], x[10], x[15]);
        QUARTER(x[1], x[6], x[11], x[12]);
        QUARTER(x[2], x[7], x[8], x[13]);
        QUARTER(x[3], x[4], x[9], x[14]);
    }
}

static void state_init(uint32_t s[16], const uint8_t key[CHACHA_KEY], uint32_t counter,
                       const uint8_t nonce[CHACHA_NONCE])
{
    static const uint32_t sigma[4] = CHACHA_SIGMA;
    memcpy(s, sigma, sizeof sigma);
    for (unsigned i = 0; i < 8; i++)
        s[4 + i] = load_le32(key + 4 * i);
    s[12] = counter;
    for (unsigned i = 0; i < 3; i++)
        s[13 + i] = load_le32(nonce + 4 * i);
}

static void state_block(uint8_t out[64], const uint32_t s[16])
{
    uint32_t x[16];
    memcpy(x, s, sizeof x);
    rounds(x);
    for (unsigned i = 0; i < 16; i++)
        store_le32(out + 4 * i, x[i] + s[i]);
    secret_wipe(x, sizeof x);
}

void chacha_block(uint8_t out[64], const uint8_t key[CHACHA_KEY], uint32_t counter, const uint8_t nonce[CHACHA_NONCE])
{
    uint32_t s[16];
    state_init(s, key, counter, nonce);
    state_block(out, s);
    secret_wipe(s, sizeof s);
}

void hchacha(uint8_t out[32], const uint8_t key[CHACHA_KEY], const uint8_t nonce[16])
{
    uint32_t s[16];
    state_init(s, key, load_le32(nonce), nonce + 4);
    rounds(s);
    for (unsigned i = 0; i < 4; i++) {
        store_le32(out + 4 * i, s[i]);
        store_le32(out + 16 + 4 * i, s[12 + i]);
    }
    secret_wipe(s, sizeof s);
}

/* dst = src ^ keystream, from the block that s names on; s[12] moves on. */
static void stream_xor(uint8_t *dst, const uint8_t *src, size_t n, uint32_t s[16])
{
    uint8_t block[64];
    while (n) {
        size_t take = MIN(n, sizeof block);
        state_block(block, s);
        s[12]++;
        for (size_t i = 0; i < take; i++)
            dst[i] = src[i] ^ block[i];
        dst += take;
        src += take;
        n -= take;
    }
    secret_wipe(block, sizeof block);
}

struct poly {
    uint32_t r[5], h[5], pad[4];
};

enum { MASK26 = 0x3ffffff };

static void poly_init(struct poly *p, const uint8_t key[32])
{
    /* RFC 8439, 2.5: r is clamped; here at once into limbs. */
    p->r[0] = load_le32(key) & 0x3ffffff;
    p->r[1] = load_le32(key + 3) >> 2 & 0x3ffff03;
    p->r[2] = load_le32(key + 6) >> 4 & 0x3ffc0ff;
    p->r[3] = load_le32(key + 9) >> 6 & 0x3f03fff;
    p->r[4] = load_le32(key + 12) >> 8 & 0x00fffff;
    memset(p->h, 0, sizeof p->h);
    for (unsigned i = 0; i < 4; i++)
        p->pad[i] = load_le32(key + 16 + 4 * i);
}

/* h = (h + block + 2^128) * r mod 2^130 - 5, for n whole blocks. */
static void poly_blocks(struct poly *p, const uint8_t *m, size_t n)
{
    const uint32_t r0 = p->r[0], r1 = p->r[1], r2 = p->r[2], r3 = p->r[3], r4 = p->r[4];
    const uint32_t s1 = r1 * 5, s2 = r2 * 5, s3 = r3 * 5, s4 = r4 * 5;
    uint32_t h0 = p->h[0], h1 = p->h[1], h2 = p->h[2], h3 = p->h[3], h4 = p->h[4];
    for (; n; n--, m += 16) {
        h0 += load_le32(m) & MASK26;
        h1 += load_le32(m + 3) >> 2 & MASK26;
        h2 += load_le32(m + 6) >> 4 & MASK26;
        h3 += load_le32(m + 9) >> 6;
        h4 += load_le32(m + 12) >> 8 | 1u << 24;
        uint64_t d0 = (uint64_t)h0 * r0 + (uint64_t)h1 * s4 + (uint64_t)h2 * s3 + (uint64_t)h3 * s2 + (uint64_t)h4 * s1;
        uint64_t d1 = (uint64_t)h0 * r1 + (uint64_t)h1 * r0 + (uint64_t)h2 * s4 + (uint64_t)h3 * s3 + (uint64_t)h4 * s2;
        uint64_t d2 = (uint64_t)h0 * r2 + (uint64_t)h1 * r1 + (uint64_t)h2 * r0 + (uint64_t)h3 * s4 + (uint64_t)h4 * s3;
        uint64_t d3 = (uint64_t)h0 * r3 + (uint64_t)h1 * r2 + (uint64_t)h2 * r1 + (uint64_t)h3 * r0 + (uint64_t)h4 * s4;
        uint64_t d4 = (uint64_t)h0 * r4 + (uint64_t)h1 * r3 + (uint64_t)h2 * r2 + (uint64_t)h3 * r1 + (uint64_t)h4 * r0;
        d1 += d0 >> 26, h0 = (uint32_t)d0 & MASK26;
        d2 += d1 >> 26, h1 = (uint32_t)d1 & MASK26;
        d3 += d2 >> 26, h2 = (uint32_t)d2 & MASK26;
        d4 += d3 >> 26, h3 = (uint32_t)d3 & MASK26;
        h0 += (uint32_t)(d4 >> 26) * 5, h4 = (uint32_t)d4 & MASK26;
        h1 += h0 >> 26, h0 &= MASK26;
    }
    p->h[0] = h0, p->h[1] = h1, p->h[2] = h2, p->h[3] = h3, p->h[4] = h4;
}

/* n bytes, the last block filled up with zeros as the AEAD's construction wants it (RFC 8439, 2.8). */
static void poly_padded(struct poly *p, const uint8_t *m, size_t n)
{
    poly_blocks(p, m, n / 16);
    if (n % 16) {
        uint8_t last[16] = {0};
        memcpy(last, m + n / 16 * 16, n % 16);
        poly_blocks(p, last, 1);
    }
}

static void poly_final(struct poly *p, uint8_t tag[CHACHA_TAG])
{
    uint32_t *h = p->h, g[5];
    for (unsigned turn = 0; turn < 2; turn++) { /* full carry: every limb below 2^26 */
        for (unsigned i = 0; i < 4; i++)
            h[i + 1] += h[i] >> 26, h[i] &= MASK26;
        h[0] += (h[4] >> 26) * 5, h[4] &= MASK26;
    }
    h[1] += h[0] >> 26, h[0] &= MASK26;
    /* g = h - (2^130 - 5); taken instead of h when that is not negative */
    uint32_t carry = 5;
    for (unsigned i = 0; i < 5; i++) {
        g[i] = h[i] + carry;
        carry = g[i] >> 26;
        g[i] &= MASK26;
    }
    uint32_t take = -carry;
    for (unsigned i = 0; i < 5; i++)
        h[i] = (h[i] & ~take) | (g[i] & take);
    const uint32_t word[4] = {h[0] | h[1] << 26, h[1] >> 6 | h[2] << 20, h[2] >> 12 | h[3] << 14,
                              h[3] >> 18 | h[4] << 8};
    uint64_t sum = 0;
    for (unsigned i = 0; i < 4; i++) {
        sum += (uint64_t)word[i] + p->pad[i];
        store_le32(tag + 4 * i, (uint32_t)sum);
        sum >>= 32;
    }
    secret_wipe(p, sizeof *p);
}

static void compute_tag(uint8_t tag[CHACHA_TAG], const uint8_t otk[64], const uint8_t *cipher, size_t n,
                        const uint8_t *ad, size_t ad_len)
{
    struct poly p;
    uint8_t lengths[16];
    poly_init(&p, otk);
    poly_padded(&p, ad, ad_len);
    poly_padded(&p, cipher, n);
    store_le64(lengths, ad_len);
    store_le64(lengths + 8, n);
    poly_blocks(&p, lengths, 1);
    poly_final(&p, tag);
}

static void portable_seal(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                          const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    uint32_t s[16];
    uint8_t otk[64];
    state_init(s, key, 0, nonce);
    state_block(otk, s);
    s[12] = 1;
    stream_xor(dst, src, n, s);
    compute_tag(dst + n, otk, dst, n, ad, ad_len);
    secret_wipe(otk, sizeof otk);
    secret_wipe(s, sizeof s);
}

static bool portable_open(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                          const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    uint32_t s[16];
    uint8_t otk[64], tag[CHACHA_TAG];
    n -= CHACHA_TAG;
    state_init(s, key, 0, nonce);
    state_block(otk, s);
    compute_tag(tag, otk, src, n, ad, ad_len);
    bool ok = secret_equal(tag, src + n, CHACHA_TAG);
    if (ok) {
        s[12] = 1;
        stream_xor(dst, src, n, s);
    }
    secret_wipe(otk, sizeof otk);
    secret_wipe(tag, sizeof tag);
    secret_wipe(s, sizeof s);
    return ok;
}

static void portable_seal_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    uint8_t nonce[CHACHA_NONCE] = {0};
    for (unsigned i = 0; i < n; i++) {
        store_le64(nonce + 4, jobs[i].counter);
        portable_seal(jobs[i].dst, jobs[i].src, jobs[i].len, NULL, 0, nonce, key);
    }
}

static unsigned portable_open_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    uint8_t nonce[CHACHA_NONCE] = {0};
    unsigned failed = 0;
    for (unsigned i = 0; i < n; i++) {
        store_le64(nonce + 4, jobs[i].counter);
        jobs[i].ok =
            jobs[i].len >= CHACHA_TAG && portable_open(jobs[i].dst, jobs[i].src, jobs[i].len, NULL, 0, nonce, key);
        failed += !jobs[i].ok;
    }
    return failed;
}

static bool portable_usable(void)
{
    return true;
}

const struct chacha_impl chacha_portable = {
    .name = "portable",
    .usable = portable_usable,
    .seal_batch = portable_seal_batch,
    .open_batch = portable_open_batch,
    .seal = portable_seal,
    .open = portable_open,
};
