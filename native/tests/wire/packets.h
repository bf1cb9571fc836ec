/* Packets made for tests, and slow, plain references to hold the fast code against. */
#ifndef FV_TESTS_WIRE_PACKETS_H
#define FV_TESTS_WIRE_PACKETS_H

#include "wire/ip.h"

#include <stdlib.h>

/* xorshift64*: the same numbers at every run, so that a failure can be repeated. */
static uint64_t random_state = 0x9e3779b97f4a7c15;
static inline uint32_t random_u32(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (uint32_t)((random_state * 0x2545f4914f6cdd1d) >> 32);
}
static inline uint32_t random_below(uint32_t n)
{
    return (uint32_t)(((uint64_t)random_u32() * n) >> 32);
}
static inline void random_fill(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)random_u32();
}

/* RFC 1071 as it is written: big-endian 16-bit words, carries folded at the end; not complemented. */
static inline uint16_t naive_sum(uint32_t sum, const uint8_t *p, size_t n)
{
    uint64_t s = sum;
    for (size_t i = 0; i + 1 < n; i += 2)
        s += (uint32_t)p[i] << 8 | p[i + 1];
    if (n & 1)
        s += (uint32_t)p[n - 1] << 8;
    while (s >> 16)
        s = (s & 0xffff) + (s >> 16);
    return (uint16_t)s;
}

static inline uint16_t naive_pseudo(const uint8_t *packet, uint8_t protocol, uint32_t l4_len)
{
    bool six = packet[0] >> 4 == 6;
    return naive_sum(
        naive_sum(0, packet + (six ? 8 : 12), six ? 32 : 8) + protocol + (l4_len >> 16) + (l4_len & 0xffff), NULL, 0);
}

static inline int naive_field(uint8_t protocol)
{
    return protocol == IP_PROTO_TCP ? 16 : protocol == IP_PROTO_UDP ? 6 : 2;
}

static inline bool naive_has_field(uint8_t protocol)
{
    return protocol == IP_PROTO_TCP || protocol == IP_PROTO_UDP || protocol == IP_PROTO_ICMP ||
           protocol == IP_PROTO_ICMP6;
}

/* Lengths and full checksums of a packet without extension headers and fragments; l4 is its transport offset. */
static inline void naive_finish(uint8_t *p, uint32_t length, uint32_t l4)
{
    bool six = p[0] >> 4 == 6;
    uint8_t protocol = p[six ? 6 : 9];
    if (six) {
        store_be16(p + 4, (uint16_t)(length - 40));
    } else {
        store_be16(p + 2, (uint16_t)length);
        store_be16(p + 10, 0);
        store_be16(p + 10, (uint16_t)~naive_sum(0, p, l4));
    }
    if (protocol == IP_PROTO_UDP)
        store_be16(p + l4 + 4, (uint16_t)(length - l4));
    if (!naive_has_field(protocol))
        return;
    uint8_t *field = p + l4 + naive_field(protocol);
    store_be16(field, 0);
    uint32_t pseudo = protocol == IP_PROTO_ICMP ? 0 : naive_pseudo(p, protocol, length - l4);
    uint16_t sum = (uint16_t)~naive_sum(pseudo, p + l4, length - l4);
    store_be16(field, protocol == IP_PROTO_UDP && !sum ? 0xffff : sum);
}

/* Are the checksums of such a packet right? UDP over IPv4 may have none. */
static inline bool naive_valid(const uint8_t *p, uint32_t length, uint32_t l4)
{
    bool six = p[0] >> 4 == 6;
    uint8_t protocol = p[six ? 6 : 9];
    if (!six && naive_sum(0, p, l4) != 0xffff)
        return false;
    if (!naive_has_field(protocol))
        return true;
    if (protocol == IP_PROTO_UDP && !six && load_be16(p + l4 + 6) == 0)
        return true;
    uint32_t pseudo = protocol == IP_PROTO_ICMP ? 0 : naive_pseudo(p, protocol, length - l4);
    return naive_sum(pseudo, p + l4, length - l4) == 0xffff;
}

struct packet_spec {
    bool six;
    uint8_t protocol;
    uint8_t tos, ttl, flags; /* flags: TCP */
    uint8_t src, dst;        /* last byte of each address */
    uint16_t sport, dport, id;
    uint32_t seq, ack;
    uint8_t options;  /* bytes of TCP options, a multiple of 4 */
    bool no_checksum; /* UDP over IPv4 with checksum 0 */
    bool dont_fragment;
};

/* Writes a packet with n payload bytes (random, or from `payload`) and returns its length. ICMP: an echo request with
 * identifier sport and sequence dport. */
static inline uint32_t packet_make(uint8_t *p, const struct packet_spec *s, const uint8_t *payload, uint32_t n)
{
    uint32_t l4 = s->six ? 40 : 20;
    memset(p, 0, l4 + 60);
    if (s->six) {
        p[0] = (uint8_t)(0x60 | s->tos >> 4);
        p[1] = (uint8_t)(s->tos << 4);
        p[6] = s->protocol;
        p[7] = s->ttl;
        p[8] = p[24] = 0xfd;
        p[23] = s->src;
        p[39] = s->dst;
    } else {
        p[0] = 0x45;
        p[1] = s->tos;
        store_be16(p + 4, s->id);
        p[6] = s->dont_fragment ? 0x40 : 0;
        p[8] = s->ttl;
        p[9] = s->protocol;
        store_be32(p + 12, 0x0a000000u | s->src);
        store_be32(p + 16, 0x0a000100u | s->dst);
    }
    uint8_t *h = p + l4;
    uint32_t header = 8;
    if (s->protocol == IP_PROTO_TCP || s->protocol == IP_PROTO_UDP) {
        store_be16(h, s->sport);
        store_be16(h + 2, s->dport);
    } else {
        h[0] = s->six ? 128 : 8;
        store_be16(h + 4, s->sport);
        store_be16(h + 6, s->dport);
    }
    if (s->protocol == IP_PROTO_TCP) {
        header = 20u + s->options;
        store_be32(h + 4, s->seq);
        store_be32(h + 8, s->ack);
        h[12] = (uint8_t)(header / 4 << 4);
        h[13] = s->flags;
        store_be16(h + 14, 501);
        for (uint32_t i = 0; i < s->options; i++)
            h[20 + i] = (uint8_t)(i < 2 ? 1 : i * 7 + s->options);
    }
    if (payload)
        memcpy(h + header, payload, n);
    else
        random_fill(h + header, n);
    uint32_t length = l4 + header + n;
    naive_finish(p, length, l4);
    if (s->no_checksum)
        store_be16(h + 6, 0);
    return length;
}

#endif
