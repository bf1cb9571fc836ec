/* The Internet checksum (RFC 1071), its incremental update (RFC 1624) and a copy that sums in the same pass.
 *
 * A running sum is a uint64_t of 16-bit words *as they lie in memory* (loaded in the CPU's byte order); ones'
 * complement addition does not care, so no word is ever swapped: checksum_store puts a folded sum back as it lay. A
 * number from a register enters by checksum_word. Sums of up to 2^32 bytes cannot overflow. Only the last piece of a
 * sum may have an odd length.
 *
 * "Partial" is what a kernel leaves for hardware to finish (virtio NEEDS_CSUM, CHECKSUM_PARTIAL): the field holds the
 * folded sum of the pseudo-header, NOT complemented; a full checksum is complemented. */
#ifndef FV_WIRE_CHECKSUM_H
#define FV_WIRE_CHECKSUM_H

#include "wire/bytes.h"

#include <stdbool.h>

/* sum + the words of p[0..n). */
uint64_t checksum_add(uint64_t sum, const void *p, size_t n);
/* Copies n bytes (no overlap) and returns sum + their words. */
uint64_t checksum_copy(void *dst, const void *src, size_t n, uint64_t sum);

/* A 16-bit number in host order, as a word of a sum. */
static inline uint64_t checksum_word(uint16_t host)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_bswap16(host);
#else
    return host;
#endif
}

/* The word at p. */
static inline uint64_t checksum_load(const void *p)
{
    uint16_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static inline uint16_t checksum_fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* The ones' complement of a sum, to subtract it: never negative. */
static inline uint64_t checksum_not(uint64_t sum)
{
    return (uint16_t)~checksum_fold(sum);
}

/* Writes a folded sum as it is: a partial checksum, or the complement that the caller made. */
static inline void checksum_store(void *p, uint16_t word)
{
    memcpy(p, &word, sizeof word);
}

/* The full checksum of a sum: complemented. */
static inline void checksum_finish(void *p, uint64_t sum)
{
    checksum_store(p, (uint16_t)~checksum_fold(sum));
}

/* The same for UDP: 0 means "none" there, so all ones are sent for it (RFC 768). */
static inline void checksum_finish_udp(void *p, uint64_t sum)
{
    uint16_t word = (uint16_t)~checksum_fold(sum);
    checksum_store(p, word ? word : 0xffff);
}

/* Pseudo headers (RFC 791/9293, RFC 8200 8.1): addresses, protocol, upper-layer length. */
uint64_t checksum_pseudo4(const uint8_t src[4], const uint8_t dst[4], uint8_t protocol, uint32_t length);
uint64_t checksum_pseudo6(const uint8_t src[16], const uint8_t dst[16], uint8_t protocol, uint32_t length);

/* RFC 1624: words that summed to `before` in what `field` covers now sum to `after`. partial: the field is not
 * complemented. A full UDP checksum must not be 0 before (the caller leaves that alone) and does not become 0 if `udp`. */
void checksum_replace(void *field, uint64_t before, uint64_t after, bool partial, bool udp);
/* Writes a new number over p (2 or 4 bytes) and corrects a full checksum for it. */
void checksum_set16(void *field, void *p, uint16_t host);
void checksum_set32(void *field, void *p, uint32_t host);

#endif
