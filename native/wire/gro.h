/* Packets of one batch joined by flow into super-packets for one TUN write each (spec/wireguard.md 10.3).
 *
 * gro_add looks at each decrypted packet in order of arrival; nothing is copied: a packet stays in its receive buffer
 * until the batch is written. gro_finish makes the outputs, in order of their first packet; packets of one flow are
 * never reordered. Each output is a run of iovecs for one writev (or of one iovec, for write): first the virtio header,
 * which is written into the VNET_HEADER_LEN bytes BEFORE the first packet (where WireGuard's data header was, consumed
 * by then: in-place decryption leaves 16 bytes), contiguous with the packet whose IP and TCP/UDP headers are patched in
 * place; then the payloads of the rest.
 *
 * Joined are TCP segments and UDP datagrams of one 5-tuple that differ in nothing but what splitting rebuilds:
 * same TOS, TTL, DF, flow label, TCP options, ACK number and window; flags ACK and PSH only, PSH ends a super-packet;
 * sequence continues; all of one size, a shorter one ends it; no IP options, extension headers or fragments. IPv4
 * identifications are not looked at: splitting numbers them anew. A checksum is verified before a packet is joined, as
 * joining would turn a corrupt packet into a valid one; a packet that stays alone is written as it came, unverified.
 * Whatever does not fit ends its flow's open super-packet first.
 *
 *     gro_init(&g, GRO_VNET | GRO_TCP | GRO_UDP);
 *     for each packet: if (!gro_add(&g, p, n)) { gro_finish, write, gro_reset; gro_add again }
 *     gro_finish(&g);
 *     for (unsigned i = 0; i < g.output_count; i++)
 *         writev(fd, g.output[i].iov, g.output[i].iov_count);
 *     gro_reset(&g);
 *
 * A write that is refused (the kernel lost its taste for offloads): gro_unjoin gives the packets back one by one. */
#ifndef FV_WIRE_GRO_H
#define FV_WIRE_GRO_H

#include "wire/vnet.h"

#include <sys/uio.h>

#define GRO_PACKETS 512  /* packets of a batch */
#define GRO_FLOWS 16     /* super-packets open at a time; one more flow closes the oldest */
#define GRO_SEGMENTS 64  /* of a super-packet: the limit for UDP before Linux 6.9 */
#define GRO_NONE UINT16_MAX

enum gro_flag {
    GRO_VNET = 1, /* the TUN wants a virtio header before each packet; without it nothing is joined */
    GRO_TCP = 2,  /* TUN_F_TSO4/6 work */
    GRO_UDP = 4,  /* TUN_F_USO4/6 work */
};

struct gro_packet {
    uint8_t *data;
    uint32_t length;  /* of the IP packet */
    uint16_t next;    /* following packet of the same super-packet, or GRO_NONE */
    uint16_t payload; /* offset of the transport payload (0: not looked into) */
};

struct gro_output {
    struct iovec *iov;
    uint32_t length;    /* bytes of the write */
    uint16_t iov_count;
    uint16_t first;     /* index of its first packet */
    uint16_t count;     /* packets */
};

struct gro_flow { /* an open super-packet */
    uint32_t hash;
    uint16_t output;   /* index */
    uint16_t last;     /* index of its last packet */
    uint32_t length;   /* IP packet so far */
    uint32_t next_seq; /* TCP */
    uint16_t size;     /* payload bytes per segment */
    bool verified;     /* the first packet's checksum */
};

struct gro {
    unsigned flags;
    unsigned packet_count, output_count, flow_count;
    unsigned last_flow;   /* the flow of the last packet joined or opened */
    unsigned oldest_flow; /* replaced next when all are open */
    unsigned joined;      /* packets that were appended to another, for statistics (never reset) */
    struct gro_flow flow[GRO_FLOWS];
    struct gro_packet packet[GRO_PACKETS];
    struct gro_output output[GRO_PACKETS];
    struct iovec iov[GRO_PACKETS];
};

void gro_init(struct gro *g, unsigned flags);
/* False: the batch is full, nothing was done. n may exceed the IP packet (padding is cut). What is not an IP packet is
 * an output of its own. The VNET_HEADER_LEN bytes before `packet` are gro's until gro_reset (with GRO_VNET). */
bool gro_add(struct gro *g, uint8_t *packet, size_t n);
/* Fills output[0..output_count). */
void gro_finish(struct gro *g);
void gro_reset(struct gro *g);
/* Takes apart output i after its write failed: restores each packet (full checksums, virtio header zero) and calls
 * write with one iovec each, in order. */
void gro_unjoin(struct gro *g, unsigned i, void (*write)(void *ctx, const struct iovec *iov), void *ctx);

#endif
