/* virtio_net_hdr of a TUN opened with IFF_VNET_HDR (10 bytes, the CPU's byte order), and the splitting of what is read
 * from such a TUN into packets that can be sealed and sent.
 *
 * A read gives a plain packet, a packet whose transport checksum is partial (NEEDS_CSUM), or a super-packet of up to
 * 64 KiB (TCPv4, TCPv6, UDP_L4) that stands for many. Splitting costs per segment: one copy of the payload, which sums
 * it in the same pass, and a few additions; the header's own sum is made once. The kernel's hdr_len is not looked at:
 * for forwarded packets it is the linear part of the buffer. csum_start is checked against the IP header.
 *
 *     struct vnet_split s;
 *     if (vnet_split_begin(&s, header, packet, n) == VNET_OK)
 *         for (unsigned i = 0; i < s.count; i++)
 *             length = vnet_split_next(&s, dst);          // dst has s.segment_max bytes
 *     // or, where s.count == 1: length = vnet_split_in_place(&s); the packet itself is complete then
 */
#ifndef FV_WIRE_VNET_H
#define FV_WIRE_VNET_H

#include "wire/ip.h"

#define VNET_HEADER_LEN 10

enum { VNET_NEEDS_CSUM = 1, VNET_DATA_VALID = 2 }; /* flags */
enum { VNET_NONE = 0, VNET_TCP4 = 1, VNET_UDP = 3, VNET_TCP6 = 4, VNET_UDP_L4 = 5, VNET_ECN = 0x80 }; /* gso_type */

struct vnet_header {
    uint8_t flags, gso_type;
    uint16_t hdr_len, gso_size, csum_start, csum_offset;
};

enum vnet_error {
    VNET_OK,
    VNET_PACKET,   /* not an IP packet, or lengths that contradict each other */
    VNET_TYPE,     /* a gso_type that does not fit the packet, or is unknown */
    VNET_SIZE,     /* gso_size 0 with a type, or more segments than a datagram can have */
    VNET_CHECKSUM, /* csum_start or csum_offset outside the packet or not the transport header's */
    VNET_FRAGMENT, /* a super-packet that is a fragment */
    VNET_ERROR_COUNT,
};
const char *vnet_error_name(enum vnet_error e);

void vnet_read(struct vnet_header *h, const uint8_t bytes[VNET_HEADER_LEN]);
void vnet_write(uint8_t bytes[VNET_HEADER_LEN], const struct vnet_header *h);

struct vnet_split {
    uint8_t *packet;
    struct ip_view ip;     /* of the packet read; ip.length is its length */
    uint32_t head;         /* bytes of all headers: where the payload begins */
    uint32_t size;         /* payload bytes per segment, the last may have fewer */
    uint32_t offset;       /* next payload byte, counted from `head` */
    uint32_t seq;          /* TCP: sequence number of the next segment */
    unsigned count;        /* segments in all */
    unsigned index;        /* next segment */
    uint32_t segment_max;  /* longest packet that vnet_split_next writes */
    uint32_t csum_at;      /* where the transport checksum is; 0: nothing to finish */
    uint64_t sum_ip;       /* IPv4 header without length, identification, checksum */
    uint64_t sum_l4;       /* pseudo header without length, transport header without what changes */
    bool tcp, super;
    uint8_t flags;         /* TCP flags of the packet read */
};

/* n: bytes of the packet after the header. The packet stays where it is until the last segment is written. */
enum vnet_error vnet_split_begin(struct vnet_split *s, const uint8_t header[VNET_HEADER_LEN], uint8_t *packet,
                                 size_t n);
/* Writes the next complete packet to dst and returns its length; 0 after the last. */
size_t vnet_split_next(struct vnet_split *s, uint8_t *dst);
/* For count == 1: completes the checksum where the packet lies and returns its length. */
size_t vnet_split_in_place(struct vnet_split *s);

#endif
