/* One IP packet seen: what is where, every length checked against the bytes at hand.
 *
 * ip_parse accepts only what can be forwarded: version 4 or 6, header inside the packet, total length not beyond the
 * bytes given (fewer is fine: WireGuard pads, so `length` cuts), an extension header chain that ends inside the packet.
 * A transport header that is cut short is no error by itself: `l4` then says IP_L4_NONE, and the packet can still be
 * routed by address. */
#ifndef FV_WIRE_IP_H
#define FV_WIRE_IP_H

#include "wire/bytes.h"

#include <stdbool.h>

enum {
    IP_PROTO_HOPOPTS = 0,
    IP_PROTO_ICMP = 1,
    IP_PROTO_TCP = 6,
    IP_PROTO_UDP = 17,
    IP_PROTO_ROUTING = 43,
    IP_PROTO_FRAGMENT = 44,
    IP_PROTO_ESP = 50,
    IP_PROTO_AH = 51,
    IP_PROTO_ICMP6 = 58,
    IP_PROTO_NONE = 59,
    IP_PROTO_DSTOPTS = 60,
    IP_PROTO_MOBILITY = 135,
};

enum {
    TCP_FIN = 0x01,
    TCP_SYN = 0x02,
    TCP_RST = 0x04,
    TCP_PSH = 0x08,
    TCP_ACK = 0x10,
    TCP_URG = 0x20,
    TCP_ECE = 0x40,
    TCP_CWR = 0x80
};

enum ip_error {
    IP_OK,
    IP_SHORT,     /* fewer bytes than a header */
    IP_VERSION,   /* neither 4 nor 6 */
    IP_HEADER,    /* header length below the minimum or beyond the packet */
    IP_LENGTH,    /* total length below the header or beyond the bytes given */
    IP_EXTENSION, /* IPv6 extension headers that do not end inside the packet, or too many */
    IP_FRAGMENT,  /* a fragment that would reach beyond 65,535 bytes, or an empty one */
    IP_ERROR_COUNT,
};

enum ip_l4 {
    IP_L4_NONE, /* not the first fragment, cut short, or a protocol without ports here */
    IP_L4_TCP,
    IP_L4_UDP,
    IP_L4_ICMP,       /* v4 or v6; not an echo, not an error */
    IP_L4_ICMP_ECHO,  /* request or reply: sport = dport = identifier */
    IP_L4_ICMP_ERROR, /* `inner` is where the embedded packet begins */
    IP_L4_COUNT,
};

struct ip_view {
    uint8_t version;          /* 4, 6 */
    uint8_t protocol;         /* after IPv6 extension headers; ICMPv6 is 58 */
    uint8_t tos;              /* TOS byte or traffic class: DSCP << 2 | ECN */
    uint8_t ttl;              /* or hop limit */
    uint8_t l4_kind;          /* enum ip_l4 */
    uint8_t tcp_flags;        /* TCP_* */
    uint8_t icmp_type, icmp_code;
    bool fragment;            /* part of a datagram (offset not 0 or more to come) */
    bool more;                /* more fragments follow */
    bool options;             /* IPv4 options or IPv6 extension headers are there */
    bool dont_fragment;       /* IPv4 DF; IPv6: true */
    uint16_t fragment_offset; /* bytes */
    uint16_t fragment_header; /* IPv6: where the fragment header begins, else 0 */
    uint32_t fragment_id;     /* IPv4 identification (always), IPv6 only of fragments */
    uint32_t length;          /* of the IP packet, at most the bytes given */
    uint32_t l4;              /* offset of the transport header (or of the fragment's data) */
    uint32_t payload;         /* offset of what follows the transport header; l4 when that is unknown */
    uint16_t sport, dport;    /* host order; valid for TCP, UDP, echo */
    uint32_t inner;           /* of an ICMP error: offset of the embedded packet */
};

enum ip_error ip_parse(struct ip_view *v, const uint8_t *packet, size_t n);
/* The packet inside an ICMP error, or the first part of a super-packet: as ip_parse, but it may be cut anywhere after
 * its IP header (RFC 792: 8 bytes of transport are enough for ports). */
enum ip_error ip_parse_inner(struct ip_view *v, const uint8_t *packet, size_t n);
const char *ip_error_name(enum ip_error e);

static inline size_t ip_addr_len(uint8_t version)
{
    return version == 4 ? 4 : 16;
}
static inline const uint8_t *ip_src(uint8_t version, const uint8_t *packet)
{
    return packet + (version == 4 ? 12 : 8);
}
static inline const uint8_t *ip_dst(uint8_t version, const uint8_t *packet)
{
    return packet + (version == 4 ? 16 : 24);
}
static inline uint8_t *ip_src_edit(uint8_t version, uint8_t *packet)
{
    return packet + (version == 4 ? 12 : 8);
}
static inline uint8_t *ip_dst_edit(uint8_t version, uint8_t *packet)
{
    return packet + (version == 4 ? 16 : 24);
}

/* TOS byte or traffic class of a packet of at least 2 bytes. */
static inline uint8_t ip_tos(const uint8_t *packet)
{
    return packet[0] >> 4 == 6 ? (uint8_t)(packet[0] << 4 | packet[1] >> 4) : packet[1];
}
/* Sets the two ECN bits; corrects the IPv4 header checksum. The packet has at least 20 bytes. */
void ip_set_ecn(uint8_t *packet, uint8_t ecn);

/* The same for both directions of a flow; fragments hash by addresses and protocol alone. */
uint32_t ip_flow_hash(const struct ip_view *v, const uint8_t *packet);

#endif
