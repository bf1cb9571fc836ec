/* ChaCha20-Poly1305 for AVX-512 with IFMA: many packets at once.
 *
 * Theory of operation. A packet of 1,420 bytes is 24 blocks of ChaCha20 (the first gives its one-time key) and 90 blocks
 * of Poly1305 under a key that no other packet has. Working on one packet leaves vector lanes empty at its end and makes
 * Poly1305 compute powers of r for 90 blocks only. So both run across packets:
 *
 *  - ChaCha20: 16 blocks in the 16 lanes of 32 bits, one state word a register. Which block of which packet a lane holds
 *    does not matter to the rounds. 16 packets of about equal length, the usual case, get a lane each; otherwise the
 *    blocks of up to 16 packets are lined up and taken 16 at a time, so that only the last pass has empty lanes. One-time
 *    keys are blocks like any other.
 *  - Poly1305: 8 packets in the 8 lanes of 64 bits, in limbs of 44, 44 and 42 bits that VPMADD52 multiplies. A step takes
 *    64 bytes (4 blocks) of every packet: h = (h + m0) r^4 + m1 r^3 + m2 r^2 + m3 r, with one carry for the four. The
 *    packets are padded in front, not at the end: leading zero blocks without their 2^128 bit leave h = 0, so lanes of
 *    different length all end at the same step, and the block of lengths is the last block of the last step everywhere.
 *
 * What was tried and does not pay on Zen 4: putting pieces of a Poly1305 step between the quarters of ChaCha20's rounds
 * (rotations and VPMADD52 share their two units there), two passes of ChaCha20 interleaved (gcc runs out of registers),
 * rotations by byte shuffles, and a second set of sums.
 *
 * Packets are sorted by length first, so that those which share a Poly1305 group are alike. Opening takes the one-time
 * keys of a chunk (16 lanes), authenticates, and deciphers what was authentic.
 *
 * Bounds: a limb of h or of a power of r is below 2^46, 20 times that below 2^51, so VPMADD52 sees every bit; twelve
 * 52-bit halves add up below 2^56. */
#include "crypto/chacha20poly1305_impl.h"

#ifdef FV_CHACHA_X86

#include <immintrin.h>
#include <string.h>

#include "crypto/secret.h"
#include "wire/bytes.h"

#define TARGET __attribute__((target("avx512f,avx512vl,avx512bw,avx512ifma,bmi2")))
#define INLINE TARGET __attribute__((always_inline)) static inline

enum { LANES = 16, GROUP = 8, WORTH = 3 };

/* What a pass of ChaCha20 works on: lane i is block `block` of the packet with counter hi:lo. The words are kept in
 * vectors and the pointers written by vector stores, for a vector load from scalars just stored would wait until they have
 * left the core. A last block of less than 64 bytes is worked on in `cut` and copied out after the pass, so that the
 * pass itself has no branch. */
struct lanes {
    __m512i block, lo, hi;
    uint8_t *dst[2 * LANES]; /* entries from n on are scratch: stores are whole vectors */
    const uint8_t *src[2 * LANES];
    uint8_t cut[LANES][64];
    uint8_t *cut_dst[LANES];
    uint8_t cut_len[LANES];
    unsigned n, cuts;
};

/* 16 packets side by side: lane i is the next block of packet i. */
struct columns {
    uint8_t *dst[LANES];
    const uint8_t *src[LANES];
    uint64_t counter[LANES];
    uint32_t len[LANES], longest, shortest;
};

static const uint8_t zeros[64];

#define QUARTER(a, b, c, d) \
    do { \
        a = _mm512_add_epi32(a, b), d = _mm512_rol_epi32(_mm512_xor_si512(d, a), 16); \
        c = _mm512_add_epi32(c, d), b = _mm512_rol_epi32(_mm512_xor_si512(b, c), 12); \
        a = _mm512_add_epi32(a, b), d = _mm512_rol_epi32(_mm512_xor_si512(d, a), 8); \
        c = _mm512_add_epi32(c, d), b = _mm512_rol_epi32(_mm512_xor_si512(b, c), 7); \
    } while (0)

/* Four state words of 16 blocks each (w[i] lane j = word i of block j) to four words a block: out[j] holds, in its 128-bit
 * quarters, those of blocks j, 4 + j, 8 + j and 12 + j. */
INLINE void transpose_words(__m512i out[4], const __m512i w[4])
{
    __m512i a = _mm512_unpacklo_epi32(w[0], w[1]), b = _mm512_unpackhi_epi32(w[0], w[1]);
    __m512i c = _mm512_unpacklo_epi32(w[2], w[3]), d = _mm512_unpackhi_epi32(w[2], w[3]);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

/* A 4 x 4 matrix of 128-bit quarters, rows in, columns out. */
INLINE void transpose_quarters(__m512i out[4], __m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x44), ab_high = _mm512_shuffle_i32x4(a, b, 0xee);
    __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x44), cd_high = _mm512_shuffle_i32x4(c, d, 0xee);
    out[0] = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88);
    out[1] = _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd);
    out[2] = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88);
    out[3] = _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd);
}

/* 16 blocks of keystream from their 16 start words each: block 4 k + j is stream[j][k]. */
INLINE void keystream(__m512i stream[4][4], const __m512i start[16])
{
    __m512i x[16], a[4], b[4], c[4], d[4];
    for (unsigned i = 0; i < 16; i++)
        x[i] = start[i];
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
    for (unsigned i = 0; i < 16; i++)
        x[i] = _mm512_add_epi32(x[i], start[i]);
    transpose_words(a, x);
    transpose_words(b, x + 4);
    transpose_words(c, x + 8);
    transpose_words(d, x + 12);
    for (unsigned j = 0; j < 4; j++)
        transpose_quarters(stream[j], a[j], b[j], c[j], d[j]);
}

/* The words that 16 blocks under one key have in common. */
INLINE void start_set(__m512i start[16], const uint32_t key[8])
{
    static const uint32_t sigma[4] = CHACHA_SIGMA;
    for (unsigned i = 0; i < 4; i++)
        start[i] = _mm512_set1_epi32((int)sigma[i]);
    for (unsigned i = 0; i < 8; i++)
        start[4 + i] = _mm512_set1_epi32((int)key[i]);
    start[13] = _mm512_setzero_si512();
}

/* A pass over 16 blocks. */
TARGET static void lanes_run(struct lanes *l, const uint32_t key[8])
{
    __m512i start[16], stream[4][4];
    start_set(start, key);
    start[12] = l->block;
    start[14] = l->lo;
    start[15] = l->hi;
    keystream(stream, start);
    for (unsigned i = 0; i < LANES; i++) {
        __m512i text = _mm512_loadu_si512(l->src[i]);
        _mm512_storeu_si512(l->dst[i], _mm512_xor_si512(stream[i % 4][i / 4], text));
    }
    for (unsigned i = 0; i < l->cuts; i++)
        _mm512_mask_storeu_epi8(l->cut_dst[i], _bzhi_u64(~(uint64_t)0, l->cut_len[i]), _mm512_loadu_si512(l->cut[i]));
    l->n = l->cuts = 0;
}

/* p + 64 i in entry at + i, for 16 entries. */
INLINE void pointers_set(void *entries, unsigned at, const void *p)
{
    const __m512i step = _mm512_setr_epi64(0, 64, 128, 192, 256, 320, 384, 448);
    __m512i first = _mm512_add_epi64(_mm512_set1_epi64((int64_t)(uintptr_t)p), step);
    _mm512_storeu_si512((uint8_t *)entries + 8 * at, first);
    _mm512_storeu_si512((uint8_t *)entries + 8 * at + 64, _mm512_add_epi64(first, _mm512_set1_epi64(512)));
}

/* Lines up n bytes from block `block` on, and runs a pass whenever 16 blocks are there. */
INLINE void lanes_add(struct lanes *l, const uint32_t key[8], uint8_t *dst, const uint8_t *src, uint32_t n,
                      uint32_t block, uint64_t counter)
{
    const __m512i iota = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    while (n) {
        unsigned at = l->n, take = MIN((n + 63) / 64, LANES - at);
        __mmask16 from = (__mmask16)(0xffffu << at); /* lanes behind are written too, and again by who takes them */
        l->block = _mm512_mask_add_epi32(l->block, from, iota, _mm512_set1_epi32((int)(block - at)));
        l->lo = _mm512_mask_set1_epi32(l->lo, from, (int)(uint32_t)counter);
        l->hi = _mm512_mask_set1_epi32(l->hi, from, (int)(uint32_t)(counter >> 32));
        pointers_set(l->dst, at, dst);
        pointers_set(l->src, at, src);
        if (n < 64 * take) {
            uint32_t whole = 64 * (take - 1);
            unsigned c = l->cuts++;
            l->cut_dst[c] = dst + whole;
            l->cut_len[c] = (uint8_t)(n - whole);
            _mm512_storeu_si512(l->cut[c], _mm512_maskz_loadu_epi8(_bzhi_u64(~(uint64_t)0, n - whole), src + whole));
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
INLINE void lanes_flush(struct lanes *l, const uint32_t key[8])
{
    if (!l->n)
        return;
    for (unsigned i = l->n; i < LANES; i++)
        l->dst[i] = l->cut[LANES - 1], l->src[i] = l->cut[LANES - 1];
    lanes_run(l, key);
}

/* ---- Poly1305 ---- */

/* Sums of products by limb: low halves, and high halves that weigh 2^52 more. */
struct sum {
    __m512i low[3], high[3];
};

/* A multiplier: r, and 20 r for what wraps around (a limb at 2^132 = 4 * 2^130 counts 20 at 2^0). */
struct factor {
    __m512i r[3], s[3]; /* s[0] is not used */
};

#define MASK44 _mm512_set1_epi64(0xfffffffffff)
#define MASK42 _mm512_set1_epi64(0x3ffffffffff)

INLINE void sum_add_one(struct sum *s, unsigned limb, __m512i a, __m512i b)
{
    s->low[limb] = _mm512_madd52lo_epu64(s->low[limb], a, b);
    s->high[limb] = _mm512_madd52hi_epu64(s->high[limb], a, b);
}

/* s += a[row] f. */
INLINE void sum_add_row(struct sum *s, const __m512i a[3], const struct factor *f, unsigned row)
{
    for (unsigned i = 0; i < 3; i++)
        sum_add_one(s, (i + row) % 3, a[row], i + row < 3 ? f->r[i] : f->s[i]);
}

INLINE void sum_add(struct sum *s, const __m512i a[3], const struct factor *f)
{
    for (unsigned row = 0; row < 3; row++)
        sum_add_row(s, a, f, row);
}

INLINE __m512i times5(__m512i x)
{
    return _mm512_add_epi64(x, _mm512_slli_epi64(x, 2));
}

/* The sum as three limbs; limb 1 may keep a bit or two above 44. */
INLINE void sum_carry(__m512i h[3], const struct sum *s)
{
    __m512i d0 = s->low[0];
    __m512i d1 = _mm512_add_epi64(s->low[1], _mm512_slli_epi64(s->high[0], 8));
    __m512i d2 = _mm512_add_epi64(s->low[2], _mm512_slli_epi64(s->high[1], 8));
    d1 = _mm512_add_epi64(d1, _mm512_srli_epi64(d0, 44));
    d2 = _mm512_add_epi64(d2, _mm512_srli_epi64(d1, 44));
    __m512i over = _mm512_add_epi64(_mm512_srli_epi64(d2, 42), _mm512_slli_epi64(s->high[2], 10));
    d0 = _mm512_add_epi64(_mm512_and_si512(d0, MASK44), times5(over));
    h[0] = _mm512_and_si512(d0, MASK44);
    h[1] = _mm512_add_epi64(_mm512_and_si512(d1, MASK44), _mm512_srli_epi64(d0, 44));
    h[2] = _mm512_and_si512(d2, MASK42);
}

INLINE struct sum sum_zero(void)
{
    struct sum s;
    for (unsigned i = 0; i < 3; i++)
        s.low[i] = s.high[i] = _mm512_setzero_si512();
    return s;
}

INLINE void factor_set(struct factor *f, const __m512i r[3])
{
    for (unsigned i = 0; i < 3; i++) {
        f->r[i] = r[i];
        f->s[i] = _mm512_slli_epi64(times5(r[i]), 2);
    }
}

INLINE void split(__m512i m[3], __m512i low, __m512i high)
{
    m[0] = _mm512_and_si512(low, MASK44);
    m[1] = _mm512_and_si512(_mm512_or_si512(_mm512_srli_epi64(low, 44), _mm512_slli_epi64(high, 20)), MASK44);
    m[2] = _mm512_srli_epi64(high, 24);
}

/* A 4 x 4 transposition of 128-bit quarters into every second entry of out. */
INLINE void transpose_half(__m512i *out, const __m512i in[4])
{
    __m512i column[4];
    transpose_quarters(column, in[0], in[1], in[2], in[3]);
    for (unsigned i = 0; i < 4; i++)
        out[2 * i] = column[i];
}

/* 64 bytes of each of 8 packets -> word i of every packet in w[i]. */
INLINE void transpose_packets(__m512i w[8], const __m512i p[8])
{
    __m512i even[4], odd[4];
    for (unsigned i = 0; i < 4; i++) {
        even[i] = _mm512_unpacklo_epi64(p[2 * i], p[2 * i + 1]);
        odd[i] = _mm512_unpackhi_epi64(p[2 * i], p[2 * i + 1]);
    }
    transpose_half(w, even);
    transpose_half(w + 1, odd);
}

/* 8 packets to authenticate: len bytes at m, the one-time key in the first half of otk. */
struct group {
    const uint8_t *m[GROUP], *otk[GROUP];
    uint64_t len[GROUP];
};

/* The bytes of [0, len) that lie in [at, at + 64), the others as zeros. */
INLINE __m512i load_part(const uint8_t *m, int64_t at, int64_t len)
{
    int64_t from = at < 0 ? -at : 0, to = MIN(len - at, 64);
    if (from >= to)
        return _mm512_setzero_si512();
    __mmask64 in = _bzhi_u64(~(uint64_t)0, (unsigned)to) >> from << from;
    return _mm512_maskz_loadu_epi8(in, (const void *)((uintptr_t)m + (uintptr_t)at));
}

/* h = (h + m0) r^4 + m1 r^3 + m2 r^2 + m3 r. power[i] is r^(4 - i), bit[i] the blocks' 2^128. What does not wait for h
 * comes first. */
INLINE void poly_step(__m512i h[3], const __m512i w[8], const struct factor power[4], const __m512i bit[4])
{
    struct sum s = sum_zero();
    __m512i m[3];
    for (unsigned i = 3; i > 0; i--) {
        split(m, w[2 * i], w[2 * i + 1]);
        m[2] = _mm512_or_si512(m[2], bit[i]);
        sum_add(&s, m, &power[i]);
    }
    split(m, w[0], w[1]);
    m[2] = _mm512_or_si512(m[2], bit[0]);
    for (unsigned i = 0; i < 3; i++)
        m[i] = _mm512_add_epi64(m[i], h[i]);
    sum_add(&s, m, &power[0]);
    sum_carry(h, &s);
}

/* The 2^128 of the four blocks of a step, in the lanes that have begun: those that skip no more than so many blocks. */
INLINE void poly_bits(__m512i bit[4], __m512i skips, uint64_t step)
{
    for (unsigned i = 0; i < 4; i++)
        bit[i] = _mm512_maskz_set1_epi64(_mm512_cmple_epu64_mask(skips, _mm512_set1_epi64((int64_t)(4 * step + i))),
                                         (int64_t)1 << 40);
}

TARGET static void poly_group(const struct group *g, uint64_t tag_low[GROUP], uint64_t tag_high[GROUP])
{
    struct factor power[4];
    __m512i rows[8], w[8], h[3], pad_low, pad_high, bit[4];

    for (unsigned i = 0; i < GROUP; i++)
        rows[i] = _mm512_loadu_si512(g->otk[i]);
    transpose_packets(w, rows);
    pad_low = w[2];
    pad_high = w[3];
    split(h, _mm512_and_si512(w[0], _mm512_set1_epi64(0x0ffffffc0fffffff)),
          _mm512_and_si512(w[1], _mm512_set1_epi64(0x0ffffffc0ffffffc)));
    factor_set(&power[3], h);
    for (unsigned i = 3; i > 0; i--) {
        struct sum s = sum_zero();
        sum_add(&s, h, &power[3]);
        sum_carry(h, &s);
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
    const __m512i skips = _mm512_loadu_si512(skip), lengths = _mm512_loadu_si512(g->len);
    h[0] = h[1] = h[2] = _mm512_setzero_si512();

    /* Until every lane has begun. */
    for (; step < steps - 1 && 4 * step < most; step++) {
        for (unsigned i = 0; i < GROUP; i++)
            rows[i] = load_part(g->m[i], 16 * ((int64_t)(4 * step) - (int64_t)skip[i]), (int64_t)g->len[i]);
        transpose_packets(w, rows);
        poly_bits(bit, skips, step);
        poly_step(h, w, power, bit);
    }
    /* 64 bytes of text everywhere. */
    const uint8_t *m[GROUP];
    for (unsigned i = 0; i < GROUP; i++)
        m[i] = (const uint8_t *)((uintptr_t)g->m[i] + 16 * (uintptr_t)(4 * step - skip[i]));
    for (unsigned i = 0; i < 4; i++)
        bit[i] = _mm512_set1_epi64((int64_t)1 << 40);
    for (uintptr_t at = 0; step < steps - 1; step++, at += 64) {
        for (unsigned i = 0; i < GROUP; i++)
            rows[i] = _mm512_loadu_si512(m[i] + at);
        transpose_packets(w, rows);
        poly_step(h, w, power, bit);
    }
    /* The last step: up to three blocks of text, the last of them filled up with zeros, and the block of lengths. */
    for (unsigned i = 0; i < GROUP; i++)
        rows[i] = load_part(g->m[i], 16 * ((int64_t)(4 * step) - (int64_t)skip[i]), (int64_t)g->len[i]);
    transpose_packets(w, rows);
    poly_bits(bit, skips, step);
    w[6] = _mm512_setzero_si512();
    w[7] = lengths;
    poly_step(h, w, power, bit);

    /* h mod 2^130 - 5: carry until every limb is in its bits, then take h - p when that is not negative. */
    for (unsigned turn = 0; turn < 2; turn++) {
        h[1] = _mm512_add_epi64(h[1], _mm512_srli_epi64(h[0], 44));
        h[0] = _mm512_and_si512(h[0], MASK44);
        h[2] = _mm512_add_epi64(h[2], _mm512_srli_epi64(h[1], 44));
        h[1] = _mm512_and_si512(h[1], MASK44);
        h[0] = _mm512_add_epi64(h[0], times5(_mm512_srli_epi64(h[2], 42)));
        h[2] = _mm512_and_si512(h[2], MASK42);
    }
    h[1] = _mm512_add_epi64(h[1], _mm512_srli_epi64(h[0], 44));
    h[0] = _mm512_and_si512(h[0], MASK44);
    __m512i g0 = _mm512_add_epi64(h[0], _mm512_set1_epi64(5));
    __m512i g1 = _mm512_add_epi64(h[1], _mm512_srli_epi64(g0, 44));
    __m512i g2 = _mm512_add_epi64(h[2], _mm512_srli_epi64(g1, 44));
    __mmask8 take = _mm512_test_epi64_mask(g2, _mm512_set1_epi64((int64_t)1 << 42));
    h[0] = _mm512_mask_and_epi64(h[0], take, g0, MASK44);
    h[1] = _mm512_mask_and_epi64(h[1], take, g1, MASK44);
    h[2] = _mm512_mask_and_epi64(h[2], take, g2, MASK42);
    __m512i low = _mm512_or_si512(h[0], _mm512_slli_epi64(h[1], 44));
    __m512i high = _mm512_or_si512(_mm512_srli_epi64(h[1], 20), _mm512_slli_epi64(h[2], 24));
    low = _mm512_add_epi64(low, pad_low);
    high = _mm512_add_epi64(high, pad_high);
    high = _mm512_mask_add_epi64(high, _mm512_cmplt_epu64_mask(low, pad_low), high, _mm512_set1_epi64(1));
    _mm512_storeu_si512(tag_low, low);
    _mm512_storeu_si512(tag_high, high);
}

/* The low and high words of 16 counters. */
INLINE void counters_split(__m512i *lo, __m512i *hi, const uint64_t counter[LANES])
{
    const __m512i a = _mm512_loadu_si512(counter), b = _mm512_loadu_si512(counter + 8);
    *lo = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(a)), _mm512_cvtepi64_epi32(b), 1);
    *hi = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(_mm512_srli_epi64(a, 32))),
                             _mm512_cvtepi64_epi32(_mm512_srli_epi64(b, 32)), 1);
}

/* A pass for the first blocks of 16 packets, whole: dst[i] = block 0 under counter[i]. */
TARGET static void lanes_keys(struct lanes *l, const uint32_t key[8], uint8_t (*dst)[64], const uint64_t counter[LANES])
{
    l->block = _mm512_setzero_si512();
    counters_split(&l->lo, &l->hi, counter);
    for (unsigned i = 0; i < LANES; i++) {
        l->dst[i] = dst[i];
        l->src[i] = zeros;
    }
    lanes_run(l, key);
}

/* The texts of 16 packets of about equal length, a lane each: nothing is lined up then. */
TARGET static void columns_run(const struct columns *c, const uint32_t key[8])
{
    __m512i start[16], stream[4][4];
    start_set(start, key);
    start[12] = _mm512_set1_epi32(1);
    counters_split(&start[14], &start[15], c->counter);
    for (uint32_t at = 0; at < c->longest; at += 64) {
        keystream(stream, start);
        start[12] = _mm512_add_epi32(start[12], _mm512_set1_epi32(1));
        if (at + 64 <= c->shortest) {
            for (unsigned i = 0; i < LANES; i++) {
                __m512i text = _mm512_loadu_si512(c->src[i] + at);
                _mm512_storeu_si512(c->dst[i] + at, _mm512_xor_si512(stream[i % 4][i / 4], text));
            }
            continue;
        }
        for (unsigned i = 0; i < LANES; i++) {
            __mmask64 in = _bzhi_u64(~(uint64_t)0, c->len[i] > at ? MIN(c->len[i] - at, 64u) : 0);
            const uint8_t *src = (const uint8_t *)((uintptr_t)c->src[i] + at); /* may be past the end: then in is 0 */
            uint8_t *dst = (uint8_t *)((uintptr_t)c->dst[i] + at);
            __m512i text = _mm512_maskz_loadu_epi8(in, src);
            _mm512_mask_storeu_epi8(dst, in, _mm512_xor_si512(stream[i % 4][i / 4], text));
        }
    }
}

#include "crypto/chacha20poly1305_batch.h"

static bool avx512_usable(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512ifma") && __builtin_cpu_supports("bmi2");
}

const struct chacha_impl chacha_avx512 = {
    .name = "avx512",
    .usable = avx512_usable,
    .seal_batch = seal_batch,
    .open_batch = open_batch,
    .seal = seal_one,
    .open = open_one,
};

#endif
