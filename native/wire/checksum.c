/* The two loops are written twice: in plain C, 32-bit words into 64-bit sums (which compilers turn into SSE2 or NEON
 * code, and into add-with-carry on small ARM), and for AVX2, chosen at run time on x86-64. Sums of lanes are 64 bits
 * wide, so no length overflows them. */
#include "wire/checksum.h"

static inline uint64_t load32(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* The last 0..3 bytes; an odd last byte is padded with a zero byte behind it. */
static inline uint64_t add_tail(uint64_t sum, const uint8_t *p, size_t n)
{
    uint8_t tail[4] = {0};
    for (size_t i = 0; i < n; i++)
        tail[i] = p[i];
    return sum + load32(tail);
}

static inline uint64_t add_words(uint64_t sum, const uint8_t *p, size_t n)
{
    size_t words = n / 4;
    for (size_t i = 0; i < words; i++)
        sum += load32(p + 4 * i);
    return n & 3 ? add_tail(sum, p + 4 * words, n & 3) : sum;
}

#if defined(__x86_64__)
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))

/* Four 64-bit lanes to one sum; each lane is folded first so that the whole cannot overflow. */
AVX2 static inline uint64_t lanes(__m256i v)
{
    uint64_t l[4], sum = 0;
    memcpy(l, &v, sizeof l);
    for (int i = 0; i < 4; i++)
        sum += (l[i] & 0xffffffff) + (l[i] >> 32);
    return sum;
}

AVX2 static uint64_t add_avx2(uint64_t sum, const uint8_t *p, size_t n)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (; n >= 64; p += 64, n -= 64) {
        __m256i x = _mm256_loadu_si256((const __m256i_u *)p), y = _mm256_loadu_si256((const __m256i_u *)(p + 32));
        a = _mm256_add_epi64(a, _mm256_add_epi64(_mm256_and_si256(x, low), _mm256_srli_epi64(x, 32)));
        b = _mm256_add_epi64(b, _mm256_add_epi64(_mm256_and_si256(y, low), _mm256_srli_epi64(y, 32)));
    }
    return add_words(sum + lanes(a) + lanes(b), p, n);
}

AVX2 static uint64_t copy_avx2(uint8_t *d, const uint8_t *p, size_t n, uint64_t sum)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i a = _mm256_setzero_si256(), b = a;
    for (; n >= 64; p += 64, d += 64, n -= 64) {
        __m256i x = _mm256_loadu_si256((const __m256i_u *)p), y = _mm256_loadu_si256((const __m256i_u *)(p + 32));
        _mm256_storeu_si256((__m256i_u *)d, x);
        _mm256_storeu_si256((__m256i_u *)(d + 32), y);
        a = _mm256_add_epi64(a, _mm256_add_epi64(_mm256_and_si256(x, low), _mm256_srli_epi64(x, 32)));
        b = _mm256_add_epi64(b, _mm256_add_epi64(_mm256_and_si256(y, low), _mm256_srli_epi64(y, 32)));
    }
    memcpy(d, p, n);
    return add_words(sum + lanes(a) + lanes(b), p, n);
}
#endif

uint64_t checksum_add(uint64_t sum, const void *p, size_t n)
{
#if defined(__x86_64__)
    if (n >= 128 && __builtin_cpu_supports("avx2"))
        return add_avx2(sum, p, n);
#endif
    return add_words(sum, p, n);
}

/* Piece by piece, so that the second pass finds the bytes in the first-level cache: where no vector unit is known to
 * do both at once, two loops that vectorise beat one that does not. */
#define COPY_PIECE 2048

uint64_t checksum_copy(void *dst, const void *src, size_t n, uint64_t sum)
{
    uint8_t *d = dst;
    const uint8_t *s = src;
#if defined(__x86_64__)
    if (n >= 128 && __builtin_cpu_supports("avx2"))
        return copy_avx2(d, s, n, sum);
#endif
    for (; n > COPY_PIECE; d += COPY_PIECE, s += COPY_PIECE, n -= COPY_PIECE) {
        memcpy(d, s, COPY_PIECE);
        sum = add_words(sum, d, COPY_PIECE);
    }
    memcpy(d, s, n);
    return add_words(sum, d, n);
}

uint64_t checksum_pseudo4(const uint8_t src[4], const uint8_t dst[4], uint8_t protocol, uint32_t length)
{
    return load32(src) + load32(dst) + checksum_word(protocol) + checksum_word((uint16_t)length) +
           checksum_word((uint16_t)(length >> 16));
}

uint64_t checksum_pseudo6(const uint8_t src[16], const uint8_t dst[16], uint8_t protocol, uint32_t length)
{
    return add_words(add_words(0, src, 16), dst, 16) + checksum_word(protocol) + checksum_word((uint16_t)length) +
           checksum_word((uint16_t)(length >> 16));
}

void checksum_replace(void *field, uint64_t before, uint64_t after, bool partial, bool udp)
{
    uint64_t sum = checksum_load(field);
    if (partial) {
        checksum_store(field, checksum_fold(sum + checksum_not(before) + after));
        return;
    }
    /* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'). */
    uint64_t full = (uint16_t)~sum + checksum_not(before) + after;
    if (udp)
        checksum_finish_udp(field, full);
    else
        checksum_finish(field, full);
}

void checksum_set16(void *field, void *p, uint16_t host)
{
    checksum_replace(field, checksum_load(p), checksum_word(host), false, false);
    store_be16(p, host);
}

void checksum_set32(void *field, void *p, uint32_t host)
{
    uint64_t before = load32(p);
    store_be32(p, host);
    checksum_replace(field, before, load32(p), false, false);
}
