/* ChaCha20-Poly1305 for AVX2: the plan of chacha20poly1305_avx512.c with 8 lanes of ChaCha20 and 4 packets a Poly1305 group,
 * in five limbs of 26 bits that VPMULUDQ multiplies. There are no masks here, so the ends of packets go through buffers.
 *
 * Bounds: a limb is below 2^27, 5 times one below 2^30, so twenty products add up below 2^62. */
#include "crypto/chacha20poly1305_impl.h"

#ifdef FV_CHACHA_X86

#include <immintrin.h>
#include <string.h>

#include "crypto/secret.h"
#include "wire/bytes.h"

#define TARGET __attribute__((target("avx2")))
#define INLINE TARGET __attribute__((always_inline)) static inline

enum { LANES = 8, GROUP = 4, WORTH = 4 };

/* As in chacha20poly1305_avx512.c. */
struct lanes {
    __m256i block, lo, hi;
    uint8_t *dst[2 * LANES]; /* entries from n on are scratch: stores are whole vectors */
    const uint8_t *src[2 * LANES];
    uint8_t cut[LANES][64]; /* last blocks of less than 64 bytes are worked on here */
    uint8_t *cut_dst[LANES];
    uint8_t cut_len[LANES];
    unsigned n, cuts;
};

struct columns {
    uint8_t *dst[LANES];
    const uint8_t *src[LANES];
    uint64_t counter[LANES];
    uint32_t len[LANES], longest, shortest;
};

static const uint8_t zeros[64];

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

INLINE void store(void *p, __m256i x)
{
    _mm256_storeu_si256(p, x);
}

#define ROTATE(x, bits) _mm256_or_si256(_mm256_slli_epi32(x, bits), _mm256_srli_epi32(x, 32 - (bits)))
#define QUARTER(a, b, c, d) \
    do { \
        a = _mm256_add_epi32(a, b), d = _mm256_shuffle_epi8(_mm256_xor_si256(d, a), by16); \
        c = _mm256_add_epi32(c, d), b = _mm256_xor_si256(b, c), b = ROTATE(b, 12); \
        a = _mm256_add_epi32(a, b), d = _mm256_shuffle_epi8(_mm256_xor_si256(d, a), by8); \
        c = _mm256_add_epi32(c, d), b = _mm256_xor_si256(b, c), b = ROTATE(b, 7); \
    } while (0)

/* Eight state words of 8 blocks each (w[i] lane j = word i of block j) to eight words of each block. */
INLINE void transpose_words(__m256i out[8], const __m256i w[8])
{
    __m256i quarter[2][4];
    for (unsigned h = 0; h < 2; h++) {
        const __m256i *v = w + 4 * h;
        __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
        __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
        quarter[h][0] = _mm256_unpacklo_epi64(a, c);
        quarter[h][1] = _mm256_unpackhi_epi64(a, c);
        quarter[h][2] = _mm256_unpacklo_epi64(b, d);
        quarter[h][3] = _mm256_unpackhi_epi64(b, d);
    }
    for (unsigned i = 0; i < 4; i++) {
        out[i] = _mm256_permute2x128_si256(quarter[0][i], quarter[1][i], 0x20);
        out[4 + i] = _mm256_permute2x128_si256(quarter[0][i], quarter[1][i], 0x31);
    }
}

/* What changes from block to block and from packet to packet. */
struct position {
    __m256i block, lo, hi;
};

/* 8 blocks of keystream: block i is first[i] and second[i]. */
INLINE void keystream(__m256i first[8], __m256i second[8], const uint32_t key[8], const struct position *p)
{
    static const uint32_t sigma[4] = CHACHA_SIGMA;
    const __m256i by16 = _mm256_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, /**/
                                          2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    const __m256i by8 = _mm256_setr_epi8(3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14, /**/
                                         3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14);
    __m256i x[16];
    for (unsigned i = 0; i < 4; i++)
        x[i] = _mm256_set1_epi32((int)sigma[i]);
    for (unsigned i = 0; i < 8; i++)
        x[4 + i] = _mm256_set1_epi32((int)key[i]);
    x[12] = p->block;
    x[13] = _mm256_setzero_si256();
    x[14] = p->lo;
    x[15] = p->hi;
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
    for (unsigned i = 0; i < 4; i++)
        x[i] = _mm256_add_epi32(x[i], _mm256_set1_epi32((int)sigma[i]));
    for (unsigned i = 0; i < 8; i++)
        x[4 + i] = _mm256_add_epi32(x[4 + i], _mm256_set1_epi32((int)key[i]));
    x[12] = _mm256_add_epi32(x[12], p->block);
    x[14] = _mm256_add_epi32(x[14], p->lo);
    x[15] = _mm256_add_epi32(x[15], p->hi);
    transpose_words(first, x);
    transpose_words(second, x + 8);
}

/* A pass over 8 blocks. */
TARGET static void lanes_run(struct lanes *l, const uint32_t key[8])
{
    const struct position p = {l->block, l->lo, l->hi};
    __m256i first[8], second[8];
    keystream(first, second, key, &p);
    for (unsigned i = 0; i < LANES; i++) {
        __m256i a = load(l->src[i]), b = load(l->src[i] + 32);
        store(l->dst[i], _mm256_xor_si256(first[i], a));
        store(l->dst[i] + 32, _mm256_xor_si256(second[i], b));
    }
    for (unsigned i = 0; i < l->cuts; i++)
        memcpy(l->cut_dst[i], l->cut[i], l->cut_len[i]);
    l->n = l->cuts = 0;
}

/* p + 64 i in entry at + i, for 8 entries. */
INLINE void pointers_set(void *entries, unsigned at, const void *p)
{
    __m256i first = _mm256_add_epi64(_mm256_set1_epi64x((int64_t)(uintptr_t)p), _mm256_setr_epi64x(0, 64, 128, 192));
    store((uint8_t *)entries + 8 * at, first);
    store((uint8_t *)entries + 8 * at + 32, _mm256_add_epi64(first, _mm256_set1_epi64x(256)));
}

/* Lines up n bytes from block `block` on, and runs a pass whenever 8 blocks are there. */
TARGET static void lanes_add(struct lanes *l, const uint32_t key[8], uint8_t *dst, const uint8_t *src, uint32_t n,
                             uint32_t block, uint64_t counter)
{
    const __m256i iota = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i low = _mm256_set1_epi32((int)(uint32_t)counter),
                  high = _mm256_set1_epi32((int)(uint32_t)(counter >> 32));
    while (n) {
        unsigned at = l->n, take = MIN((n + 63) / 64, LANES - at);
        __m256i from = _mm256_cmpgt_epi32(iota, _mm256_set1_epi32((int)at - 1)); /* also what comes behind */
        l->block = _mm256_blendv_epi8(l->block, _mm256_add_epi32(iota, _mm256_set1_epi32((int)(block - at))), from);
        l->lo = _mm256_blendv_epi8(l->lo, low, from);
        l->hi = _mm256_blendv_epi8(l->hi, high, from);
        pointers_set(l->dst, at, dst);
        pointers_set(l->src, at, src);
        if (n < 64 * take) {
            uint32_t whole = 64 * (take - 1);
            unsigned c = l->cuts++;
            l->cut_dst[c] = dst + whole;
            l->cut_len[c] = (uint8_t)(n - whole);
            memcpy(l->cut[c], src + whole, n - whole);
            l->dst[at + take - 1] = l->cut[c];
            l->src[at + take - 1] = l->cut[c];
        }
        l->n = at + take;
        if (l->n == LANES)
            lanes_run(l, key);
        if (n <= 64 * take)
            break;
        dst += 64 * take;
        src += 64 * take;
        n -= 64 * take;
        block += take;
    }
}

/* Runs what is lined up; the empty lanes work on scratch. */
TARGET static void lanes_flush(struct lanes *l, const uint32_t key[8])
{
    if (!l->n)
        return;
    for (unsigned i = l->n; i < LANES; i++)
        l->dst[i] = l->cut[LANES - 1], l->src[i] = l->cut[LANES - 1];
    lanes_run(l, key);
}

/* The low and high words of 8 counters. */
INLINE void counters_split(__m256i *lo, __m256i *hi, const uint64_t counter[LANES])
{
    uint32_t low[LANES], high[LANES];
    for (unsigned i = 0; i < LANES; i++) {
        low[i] = (uint32_t)counter[i];
        high[i] = (uint32_t)(counter[i] >> 32);
    }
    *lo = load(low);
    *hi = load(high);
}

/* A pass for the first blocks of 8 packets, whole: dst[i] = block 0 under counter[i]. */
TARGET static void lanes_keys(struct lanes *l, const uint32_t key[8], uint8_t (*dst)[64], const uint64_t counter[LANES])
{
    l->block = _mm256_setzero_si256();
    counters_split(&l->lo, &l->hi, counter);
    for (unsigned i = 0; i < LANES; i++) {
        l->dst[i] = dst[i];
        l->src[i] = zeros;
    }
    lanes_run(l, key);
}

/* The texts of 8 packets of about equal length, a lane each: nothing is lined up then. */
TARGET static void columns_run(const struct columns *c, const uint32_t key[8])
{
    struct position p = {.block = _mm256_set1_epi32(1)};
    __m256i first[8], second[8];
    counters_split(&p.lo, &p.hi, c->counter);
    for (uint32_t at = 0; at < c->longest; at += 64) {
        keystream(first, second, key, &p);
        p.block = _mm256_add_epi32(p.block, _mm256_set1_epi32(1));
        if (at + 64 <= c->shortest) {
            for (unsigned i = 0; i < LANES; i++) {
                __m256i a = load(c->src[i] + at), b = load(c->src[i] + at + 32);
                store(c->dst[i] + at, _mm256_xor_si256(first[i], a));
                store(c->dst[i] + at + 32, _mm256_xor_si256(second[i], b));
            }
            continue;
        }
        for (unsigned i = 0; i < LANES; i++) {
            uint8_t end[64] = {0};
            if (c->len[i] <= at)
                continue;
            uint32_t n = MIN(c->len[i] - at, 64u);
            memcpy(end, c->src[i] + at, n);
            store(end, _mm256_xor_si256(first[i], load(end)));
            store(end + 32, _mm256_xor_si256(second[i], load(end + 32)));
            memcpy(c->dst[i] + at, end, n);
        }
    }
}

/* ---- Poly1305 ---- */

struct factor {
    __m256i r[5], s[5]; /* r, and 5 r for what wraps around at 2^130; s[0] is not used */
};

#define MASK26 _mm256_set1_epi64x(0x3ffffff)

/* gcc spreads the multiplications so wide that it runs out of its 16 registers and takes a third longer; clang does not. */
#ifdef __clang__
#define KEEP_ROWS_APART(sum)
#else
#define KEEP_ROWS_APART(sum) __asm__("" : "+x"(sum[0]), "+x"(sum[1]), "+x"(sum[2]), "+x"(sum[3]), "+x"(sum[4]))
#endif

/* sum += a f, limb by limb. */
INLINE void sum_add(__m256i sum[5], const __m256i a[5], const struct factor *f)
{
    for (unsigned i = 0; i < 5; i++) {
        for (unsigned j = 0; j < 5; j++)
            sum[(i + j) % 5] =
                _mm256_add_epi64(sum[(i + j) % 5], _mm256_mul_epu32(a[i], i + j < 5 ? f->r[j] : f->s[j]));
        KEEP_ROWS_APART(sum);
    }
}

INLINE __m256i times5(__m256i x)
{
    return _mm256_add_epi64(x, _mm256_slli_epi64(x, 2));
}

/* Limbs of 26 bits again; limb 1 may keep some bits above. */
INLINE void sum_carry(__m256i h[5], const __m256i sum[5])
{
    __m256i d[5] = {sum[0], sum[1], sum[2], sum[3], sum[4]};
    for (unsigned i = 0; i < 4; i++) {
        d[i + 1] = _mm256_add_epi64(d[i + 1], _mm256_srli_epi64(d[i], 26));
        h[i] = _mm256_and_si256(d[i], MASK26);
    }
    h[0] = _mm256_add_epi64(h[0], times5(_mm256_srli_epi64(d[4], 26)));
    h[4] = _mm256_and_si256(d[4], MASK26);
    h[1] = _mm256_add_epi64(h[1], _mm256_srli_epi64(h[0], 26));
    h[0] = _mm256_and_si256(h[0], MASK26);
}

INLINE void factor_set(struct factor *f, const __m256i r[5])
{
    for (unsigned i = 0; i < 5; i++) {
        f->r[i] = r[i];
        f->s[i] = times5(r[i]);
    }
}

INLINE void split(__m256i m[5], __m256i low, __m256i high)
{
    m[0] = _mm256_and_si256(low, MASK26);
    m[1] = _mm256_and_si256(_mm256_srli_epi64(low, 26), MASK26);
    m[2] = _mm256_and_si256(_mm256_or_si256(_mm256_srli_epi64(low, 52), _mm256_slli_epi64(high, 12)), MASK26);
    m[3] = _mm256_and_si256(_mm256_srli_epi64(high, 14), MASK26);
    m[4] = _mm256_srli_epi64(high, 40);
}

/* 32 bytes of each of 4 packets -> word i of every packet in w[i]. */
INLINE void transpose_packets(__m256i w[4], const uint8_t *const p[GROUP], size_t at)
{
    __m256i a = load(p[0] + at), b = load(p[1] + at), c = load(p[2] + at), d = load(p[3] + at);
    __m256i ab_even = _mm256_unpacklo_epi64(a, b), ab_odd = _mm256_unpackhi_epi64(a, b);
    __m256i cd_even = _mm256_unpacklo_epi64(c, d), cd_odd = _mm256_unpackhi_epi64(c, d);
    w[0] = _mm256_permute2x128_si256(ab_even, cd_even, 0x20);
    w[1] = _mm256_permute2x128_si256(ab_odd, cd_odd, 0x20);
    w[2] = _mm256_permute2x128_si256(ab_even, cd_even, 0x31);
    w[3] = _mm256_permute2x128_si256(ab_odd, cd_odd, 0x31);
}

/* 4 packets to authenticate: len bytes at m, the one-time key in the first half of otk. */
struct group {
    const uint8_t *m[GROUP], *otk[GROUP];
    uint64_t len[GROUP];
};

/* h = (h + m0) r^4 + m1 r^3 + m2 r^2 + m3 r. power[i] is r^(4 - i), bit[i] the blocks' 2^128. */
INLINE void poly_step(__m256i h[5], const __m256i w[8], const struct factor power[4], const __m256i bit[4])
{
    __m256i sum[5], m[5];
    for (unsigned i = 0; i < 5; i++)
        sum[i] = _mm256_setzero_si256();
    for (unsigned i = 3; i > 0; i--) {
        split(m, w[2 * i], w[2 * i + 1]);
        m[4] = _mm256_or_si256(m[4], bit[i]);
        sum_add(sum, m, &power[i]);
    }
    split(m, w[0], w[1]);
    m[4] = _mm256_or_si256(m[4], bit[0]);
    for (unsigned i = 0; i < 5; i++)
        m[i] = _mm256_add_epi64(m[i], h[i]);
    sum_add(sum, m, &power[0]);
    sum_carry(h, sum);
}

/* The bytes of every packet that lie in the step's 64, the others as zeros; w and the blocks' 2^128 from them. skip[i] is how
 * many blocks after the common start lane i begins. */
TARGET static void load_edge(__m256i w[8], __m256i bit[4], const struct group *g, const uint64_t skip[GROUP],
                             uint64_t step)
{
    uint8_t part[GROUP][64] = {{0}};
    const uint8_t *const p[GROUP] = {part[0], part[1], part[2], part[3]};
    const __m256i skips = load(skip);
    for (unsigned i = 0; i < GROUP; i++) {
        int64_t at = 16 * ((int64_t)(4 * step) - (int64_t)skip[i]), len = (int64_t)g->len[i];
        int64_t from = MAX(at, 0), to = MIN(at + 64, len);
        if (from < to)
            memcpy(part[i] + (from - at), g->m[i] + from, (size_t)(to - from));
    }
    transpose_packets(w, p, 0);
    transpose_packets(w + 4, p, 32);
    for (unsigned i = 0; i < 4; i++) {
        __m256i waits = _mm256_cmpgt_epi64(skips, _mm256_set1_epi64x((int64_t)(4 * step + i)));
        bit[i] = _mm256_andnot_si256(waits, _mm256_set1_epi64x(1 << 24));
    }
}

/* h mod 2^130 - 5, plus the second half of the one-time key, mod 2^128. */
static void poly_tag(const uint64_t limb[5], const uint8_t *pad, uint64_t *low, uint64_t *high)
{
    uint64_t h[5], g[5], carry = 0;
    for (unsigned i = 0; i < 5; i++) {
        carry += limb[i];
        h[i] = carry & 0x3ffffff;
        carry >>= 26;
    }
    h[0] += carry * 5;
    for (unsigned i = 0; i < 4; i++) {
        h[i + 1] += h[i] >> 26;
        h[i] &= 0x3ffffff;
    }
    carry = 5;
    for (unsigned i = 0; i < 5; i++) {
        carry += h[i];
        g[i] = carry & 0x3ffffff;
        carry >>= 26;
    }
    uint64_t take = -carry;
    for (unsigned i = 0; i < 5; i++)
        h[i] = (h[i] & ~take) | (g[i] & take);
    uint64_t sum = (h[0] | h[1] << 26 | h[2] << 52) + load_le64(pad);
    *high = (h[2] >> 12 | h[3] << 14 | h[4] << 40) + load_le64(pad + 8) + (sum < load_le64(pad));
    *low = sum;
}

TARGET static void poly_group(const struct group *g, uint64_t tag_low[GROUP], uint64_t tag_high[GROUP])
{
    struct factor power[4];
    __m256i w[8], h[5], bit[4];

    transpose_packets(w, g->otk, 0);
    split(h, _mm256_and_si256(w[0], _mm256_set1_epi64x(0x0ffffffc0fffffff)),
          _mm256_and_si256(w[1], _mm256_set1_epi64x(0x0ffffffc0ffffffc)));
    factor_set(&power[3], h);
    for (unsigned i = 3; i > 0; i--) {
        __m256i sum[5];
        for (unsigned k = 0; k < 5; k++)
            sum[k] = _mm256_setzero_si256();
        sum_add(sum, h, &power[3]);
        sum_carry(h, sum);
        factor_set(&power[i - 1], h);
    }

    /* Front padding: lane i's first block is block skip[i] of the common row of 4 * steps blocks. */
    uint64_t blocks[GROUP], skip[GROUP], longest = 0, most = 0;
    for (unsigned i = 0; i < GROUP; i++) {
        blocks[i] = (g->len[i] + 15) / 16 + 1;
        longest = MAX(longest, blocks[i]);
    }
    uint64_t steps = (longest + 3) / 4, step = 0;
    for (unsigned i = 0; i < GROUP; i++) {
        skip[i] = 4 * steps - blocks[i];
        most = MAX(most, skip[i]);
    }
    for (unsigned i = 0; i < 5; i++)
        h[i] = _mm256_setzero_si256();
    for (; step < steps - 1 && 4 * step < most; step++) { /* until every lane has begun */
        load_edge(w, bit, g, skip, step);
        poly_step(h, w, power, bit);
    }
    const uint8_t *m[GROUP];
    for (unsigned i = 0; i < GROUP; i++)
        m[i] = (const uint8_t *)((uintptr_t)g->m[i] + 16 * (uintptr_t)(4 * step - skip[i]));
    for (unsigned i = 0; i < 4; i++)
        bit[i] = _mm256_set1_epi64x(1 << 24);
    for (size_t at = 0; step < steps - 1; step++, at += 64) { /* 64 bytes of text everywhere */
        transpose_packets(w, m, at);
        transpose_packets(w + 4, m, at + 32);
        poly_step(h, w, power, bit);
    }
    load_edge(w, bit, g, skip, step); /* the rest of the text, and the block of lengths */
    w[6] = _mm256_setzero_si256();
    w[7] = load(g->len);
    poly_step(h, w, power, bit);

    uint64_t limbs[5][GROUP];
    for (unsigned i = 0; i < 5; i++)
        store(limbs[i], h[i]);
    for (unsigned k = 0; k < GROUP; k++) {
        const uint64_t limb[5] = {limbs[0][k], limbs[1][k], limbs[2][k], limbs[3][k], limbs[4][k]};
        poly_tag(limb, g->otk[k] + 16, &tag_low[k], &tag_high[k]);
    }
}

#include "crypto/chacha20poly1305_batch.h"

static bool avx2_usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}

const struct chacha_impl chacha_avx2 = {
    .name = "avx2",
    .usable = avx2_usable,
    .seal_batch = seal_batch,
    .open_batch = open_batch,
    .seal = seal_one,
    .open = open_one,
};

#endif
