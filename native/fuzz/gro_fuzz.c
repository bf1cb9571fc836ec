/* Any sequence of packets: what the writes carry, split again, is every packet once, with as many payload bytes as came
 * in, flow by flow. Input: a flags byte, then packets as u16 length (little-endian) and bytes; a length with its top
 * bit set repeats the packet before with the sequence number advanced, so that joining is found early. */
#include "wire/gro.h"

#include <stdlib.h>

#define BATCH 24
#define ROOM 600

static struct gro g;
static uint8_t store[BATCH][ROOM + 16], whole[65535 + 16], segment[65535];

struct tally {
    uint64_t bytes[16], packets[16];
};

/* Bytes per (5-tuple hash), which joining must not change. */
static void count(struct tally *t, const uint8_t *p, size_t n)
{
    struct ip_view v;
    unsigned k = 0;
    if (ip_parse(&v, p, n) == IP_OK) { /* of others, how much is padding nobody can say */
        k = 1 + ip_flow_hash(&v, p) % 15;
        t->bytes[k] += v.length;
    }
    t->packets[k]++;
}

static void split_write(struct tally *t, const struct gro_output *o)
{
    size_t n = 0;
    for (unsigned k = 0; k < o->iov_count; k++) {
        if (n + o->iov[k].iov_len > sizeof whole)
            abort();
        memcpy(whole + n, o->iov[k].iov_base, o->iov[k].iov_len);
        n += o->iov[k].iov_len;
    }
    if (n != o->length)
        abort();
    uint8_t *packet = whole + VNET_HEADER_LEN;
    struct vnet_split s;
    if (o->count == 1) {
        count(t, packet, n - VNET_HEADER_LEN);
        return;
    }
    if (vnet_split_begin(&s, whole, packet, n - VNET_HEADER_LEN) != VNET_OK || s.count != o->count)
        abort();
    for (size_t one; (one = vnet_split_next(&s, segment));)
        count(t, segment, one);
}

static void write_one(void *ctx, const struct iovec *iov)
{
    count(ctx, (const uint8_t *)iov->iov_base + VNET_HEADER_LEN, iov->iov_len - VNET_HEADER_LEN);
}

/* The next segment of the same stream. */
static void advance(uint8_t *p, size_t n)
{
    struct ip_view v;
    if (ip_parse(&v, p, n) == IP_OK && v.l4_kind == IP_L4_TCP) {
        uint8_t *seq = p + v.l4 + 4, *sum = p + v.l4 + 16;
        uint32_t before = load_be32(seq), after = before + v.length - v.payload;
        uint32_t s = (uint16_t)~load_be16(sum);
        s += (uint16_t)~(before >> 16) + (uint32_t)(uint16_t)~before + (after >> 16) + (after & 0xffff);
        while (s >> 16)
            s = (s & 0xffff) + (s >> 16);
        store_be16(sum, (uint16_t)~s);
        store_be32(seq, after);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    bool apart = data[0] & 0x80;
    gro_init(&g, (data[0] & 7) | GRO_VNET);
    struct tally in = {0}, out = {0};
    size_t at = 1, previous = 0;
    for (unsigned i = 0; i < BATCH && n - at >= 2; i++) {
        uint16_t len = load_le16(data + at);
        at += 2;
        uint8_t *p = store[i] + 16;
        size_t size = MIN((size_t)(len & 0x3ff), MIN(n - at, (size_t)ROOM));
        if (len & 0x8000 && i) {
            memcpy(p, store[i - 1] + 16, previous);
            size = previous;
            advance(p, size);
        } else {
            memcpy(p, data + at, size);
            at += size;
        }
        previous = size;
        count(&in, p, size);
        if (!gro_add(&g, p, size))
            abort();
    }
    gro_finish(&g);
    for (unsigned i = 0; i < g.output_count; i++)
        if (apart)
            gro_unjoin(&g, i, write_one, &out);
        else
            split_write(&out, &g.output[i]);
    if (memcmp(&in, &out, sizeof in) != 0)
        abort();
    return 0;
}
