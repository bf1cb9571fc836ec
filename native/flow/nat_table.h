/* Inside of the NAT: its tables. For nat*.c alone. */
#ifndef FV_FLOW_NAT_TABLE_H
#define FV_FLOW_NAT_TABLE_H

#include "flow/nat.h"

/* Timeouts in seconds, in the order in which sessions are given up when the table is full. */
#define NAT_CLASSES(X) \
    X(CLOSING, 240)  /* FIN or RST seen; RFC 5382 REQ-5: transitory, 4 minutes at least */ \
    X(ECHO, 60)      /* RFC 5508 REQ-2 */ \
    X(UDP_NEW, 120)  /* no answer yet; RFC 4787 REQ-5: 2 minutes at least */ \
    X(TCP_NEW, 240)  /* handshake not complete; RFC 5382 REQ-5 */ \
    X(OTHER, 600)    /* protocols without ports */ \
    X(UDP, 300)      /* RFC 4787 REQ-5: 5 minutes recommended */ \
    X(TCP, 7440)     /* established; RFC 5382 REQ-5: 2 hours 4 minutes at least */
enum nat_class {
#define X(name, seconds) NAT_CLASS_##name,
    NAT_CLASSES(X)
#undef X
        NAT_CLASS_COUNT
};

/* What a session has seen. */
enum { NAT_SEEN_OUT = 1, NAT_SEEN_IN = 2, NAT_FIN_OUT = 4, NAT_FIN_IN = 8, NAT_RST = 16 };

/* Indices begin at 1; 0 is "none", so that fresh zero pages are an empty table. */
struct nat_mapping {
    uint8_t inside[16];
    uint32_t first;                      /* its sessions */
    uint32_t next_inside, next_outside;  /* hash chains; next_inside links the free ones too */
    uint16_t inside_port, outside_port;  /* echo: identifiers */
    uint8_t family, protocol;
    bool other; /* by address alone: not found by port */
};

struct nat_session {
    uint8_t remote[16];
    uint32_t mapping;
    uint32_t next;            /* hash chain; links the free ones too */
    uint32_t older, newer;    /* of its class, by time of last packet */
    uint32_t before, after;   /* of its mapping */
    uint32_t seen;            /* second of the last packet */
    uint16_t remote_port;     /* echo: 0; other: protocol */
    uint8_t class, state;
};

enum { NAT_FRAGMENT_WAYS = 4, NAT_FRAGMENT_SETS = 32, NAT_HELD_SLOTS = 32, NAT_HELD_ROOM = 2048 };
enum { NAT_FRAGMENT_SECONDS = 30, NAT_HELD_SECONDS = 5 };

/* What makes fragments one datagram (RFC 791; RFC 8200 4.5, without the protocol). */
struct nat_fragment_key {
    uint8_t src[16], dst[16];
    uint32_t id;
    uint8_t family, protocol;
    bool out;
};

struct nat_fragment {
    struct nat_fragment_key key;
    uint8_t verdict;    /* of the first fragment */
    bool used;
    uint8_t address[16]; /* what replaces src (out) or dst */
    uint32_t new_id;    /* out: identifications of several hosts must not meet behind one address */
    uint32_t seen;
};

struct nat_held {
    struct nat_fragment_key key;
    enum { NAT_HELD_FREE, NAT_HELD_WAITING, NAT_HELD_READY } state;
    uint32_t seen, number; /* number: order of arrival */
    uint32_t length;
    uint8_t bytes[16 + NAT_HELD_ROOM]; /* room for a virtio header, then the packet */
};

struct nat {
    struct nat_config config;
    struct nat_stats stats;
    uint32_t now;           /* seconds, never goes back */
    uint64_t random;
    uint32_t mask;          /* of the three hashes */
    uint32_t *inside, *outside, *remote; /* heads: mappings by inside, by outside, sessions */
    struct nat_mapping *mapping;         /* [entries + 1] */
    struct nat_session *session;
    uint32_t mapping_top, session_top;   /* never used from here on */
    uint32_t mapping_free, session_free; /* used once, free again */
    uint32_t oldest[NAT_CLASS_COUNT], newest[NAT_CLASS_COUNT];
    unsigned held_waiting, held_ready;
    uint32_t held_number;
    struct nat_fragment fragment[NAT_FRAGMENT_SETS][NAT_FRAGMENT_WAYS];
    struct nat_held *held; /* [NAT_HELD_SLOTS] */
};

/* --- nat_table.c --- */

bool nat_table_init(struct nat *n, uint32_t entries);
void nat_table_free(struct nat *n);
void nat_table_time(struct nat *n, uint64_t now);
uint64_t nat_table_random(struct nat *n);

uint32_t nat_mapping_inside(struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *inside, uint16_t port);
uint32_t nat_mapping_outside(struct nat *n, uint8_t family, uint8_t protocol, uint16_t port);
/* mapping 0: of a protocol without ports, then port is the protocol. Not one that has been idle too long: that ends. */
uint32_t nat_session_find(struct nat *n, uint32_t mapping, uint8_t family, const uint8_t *remote, uint16_t port);
/* Has this mapping talked to the address (any port)? */
bool nat_mapping_knows(const struct nat *n, uint32_t mapping, const uint8_t *remote);

/* A session from inside, its mapping with it where that is new. 0: *why says why not. own: the gateway's. */
uint32_t nat_session_open(struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *inside, uint16_t inside_port,
                          const uint8_t *remote, uint16_t remote_port, bool own, enum nat_verdict *why);
/* One of a protocol without ports. */
uint32_t nat_session_other(struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *inside,
                           const uint8_t *remote);
/* A packet has passed: state, class, time. tcp_flags: 0 for others. */
void nat_session_touch(struct nat *n, uint32_t session, bool out, uint8_t tcp_flags);
void nat_session_end(struct nat *n, uint32_t session);
/* Ends expired sessions, at most `limit`; true: more are left. */
bool nat_table_expire(struct nat *n, unsigned limit);
uint64_t nat_table_next(const struct nat *n); /* when the next one expires, ns */

/* --- nat.c --- */

/* Replaces src (dst) and its port in a packet or in the part of one inside an ICMP error (what is cut off is not
 * corrected), with IP and transport checksums. port is the identifier of an echo and ignored for protocols without. */
void nat_rewrite(uint8_t *packet, const struct ip_view *v, bool dst, const uint8_t *address, uint16_t port,
                 bool partial);
/* The address alone, and the IPv4 header checksum. */
void nat_rewrite_address(uint8_t *packet, uint8_t version, bool dst, const uint8_t *address);
static inline const uint8_t *nat_source(const struct nat *n, uint8_t family)
{
    return family == 4 ? n->config.source4 : n->config.source6;
}
bool nat_is_own(const struct nat *n, uint8_t family, const uint8_t *address);

/* --- nat_icmp.c --- */

enum nat_verdict nat_icmp_in(struct nat *n, uint8_t *packet, const struct ip_view *v);
enum nat_verdict nat_icmp_out(struct nat *n, uint8_t *packet, const struct ip_view *v, bool own);

/* --- nat_frag.c --- */

void nat_fragment_key(struct nat_fragment_key *key, const uint8_t *packet, const struct ip_view *v, bool out);
/* The first fragment became `verdict` (packet is rewritten already): those that follow will, and those held do. */
void nat_fragment_first(struct nat *n, const struct nat_fragment_key *key, uint8_t *packet, const struct ip_view *v,
                        enum nat_verdict verdict);
enum nat_verdict nat_fragment_next(struct nat *n, uint8_t *packet, const struct ip_view *v, bool out);
void nat_fragment_expire(struct nat *n);

#endif
