/* Integers in byte strings: unaligned loads and stores in a named byte order, and rounding helpers.
 *
 * ARMv5 faults on unaligned words, so nothing in fv casts a byte pointer to a wider one; memcpy of a constant size
 * compiles to the one instruction where the CPU has it. */
#ifndef FV_WIRE_BYTES_H
#define FV_WIRE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BYTES_LE(bits, x) (x)
#define BYTES_BE(bits, x) __builtin_bswap##bits(x)
#else
#define BYTES_LE(bits, x) __builtin_bswap##bits(x)
#define BYTES_BE(bits, x) (x)
#endif

#define BYTES_DEFINE(bits) \
    static inline uint##bits##_t load_le##bits(const void *p) \
    { \
        uint##bits##_t v; \
        memcpy(&v, p, sizeof v); \
        return BYTES_LE(bits, v); \
    } \
    static inline uint##bits##_t load_be##bits(const void *p) \
    { \
        uint##bits##_t v; \
        memcpy(&v, p, sizeof v); \
        return BYTES_BE(bits, v); \
    } \
    static inline void store_le##bits(void *p, uint##bits##_t v) \
    { \
        v = BYTES_LE(bits, v); \
        memcpy(p, &v, sizeof v); \
    } \
    static inline void store_be##bits(void *p, uint##bits##_t v) \
    { \
        v = BYTES_BE(bits, v); \
        memcpy(p, &v, sizeof v); \
    }

BYTES_DEFINE(16)
BYTES_DEFINE(32)
BYTES_DEFINE(64)

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ROUND_UP(x, to) (((x) + (to) - 1) / (to) * (to))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
