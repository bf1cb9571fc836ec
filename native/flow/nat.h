/* Source NAT for a LAN behind one tunnel address per family.
 *
 * Theory of operation
 *   nat.c        nat_out and nat_in: what is to be done with a packet, and the rewriting of addresses, ports, checksums
 *   nat_table.c  mappings and sessions: look-up in both directions, port choice, TCP states, expiry, eviction
 *   nat_icmp.c   ICMP errors: the embedded packet is translated too, in both directions
 *   nat_frag.c   fragments: what follows a first fragment, and those that came before it
 *   mss.c        the MSS option of SYN and SYN-ACK
 *
 *   A mapping ties (family, protocol, inside address, inside port) to an outside port: the same one whoever is talked
 *   to (endpoint-independent mapping, RFC 4787 REQ-1). A session is one remote end of a mapping. A packet from outside
 *   is let in when its remote *address* has been talked to from that mapping (address-dependent filtering, REQ-8);
 *   TCP from another port of such a host must begin with a SYN. Only packets from inside make mappings and sessions.
 *   ICMP echo is mapped by its identifier, other protocols by address alone: one inside host per remote and protocol.
 *
 *   The gateway's own packets, which leave with the tunnel address already, get mappings like anybody's; as a port is
 *   kept where it is free they pass untouched, and no LAN host is given a port that the gateway uses. What comes in for
 *   the tunnel address and no mapping is the gateway's own and passes untouched (NAT_LOCAL); so does what is from or to
 *   somewhere else (NAT_PASS). The MSS of every SYN is clamped, whatever becomes of it otherwise.
 *
 *   Packets are rewritten in place. They may be super-packets: in nat_in the bytes at hand may end after the headers (a
 *   joined packet whose payload lies elsewhere), which gso_type tells. A partial checksum (NEEDS_CSUM) covers the
 *   pseudo-header only, so only addresses change it; a full one is corrected by difference, never made anew, so that a
 *   corrupt packet stays corrupt.
 *
 * Memory: `entries` sessions and as many mappings, about 100 bytes a session all in all, made at start and touched when
 * first used. A full table gives up the session that has been idle longest, of the kind that matters least: closing,
 * echo, unanswered, other protocols, answered UDP, established TCP.
 *
 * Time is monotonic nanoseconds from outside; a step back is taken for a standstill.
 * Not for two threads at once. */
#ifndef FV_FLOW_NAT_H
#define FV_FLOW_NAT_H

#include "wire/addr.h"
#include "wire/vnet.h"

#define NAT_LANS 32

/* What became of a packet. Everything from NAT_DROP_MALFORMED on is a drop, counted under its name. */
#define NAT_VERDICTS(X) \
    X(NAT_PASS, "pass")                                   /* none of NAT's business; untouched */ \
    X(NAT_TRANSLATED, "translated")                       /* to be sent on */ \
    X(NAT_LOCAL, "local")                                 /* in: for the gateway itself; untouched */ \
    X(NAT_HELD, "held")                                   /* a fragment was copied and waits; not to be sent on */ \
    X(NAT_DROP_MALFORMED, "nat_malformed")                /* not an IP packet, or a cut transport header */ \
    X(NAT_DROP_NO_SOURCE, "nat_no_source")                /* LAN packet of a family without a tunnel address */ \
    X(NAT_DROP_PORTS, "nat_ports_used_up")                /* no outside port is free */ \
    X(NAT_DROP_TAKEN, "nat_remote_taken")                 /* other protocol, and another host has that remote */ \
    X(NAT_DROP_FILTERED, "nat_filtered")                  /* in: from an address that was not talked to */ \
    X(NAT_DROP_STATE, "nat_tcp_state")                    /* TCP without a session that does not open one */ \
    X(NAT_DROP_ICMP_TYPE, "nat_icmp_type")                /* ICMP that is neither echo nor error */ \
    X(NAT_DROP_ICMP_UNKNOWN, "nat_icmp_unknown")          /* ICMP error about no known session */ \
    X(NAT_DROP_ICMP_INNER, "nat_icmp_inner")              /* ICMP error whose embedded packet cannot be read */ \
    X(NAT_DROP_FRAGMENT_FILTERED, "nat_fragment_filtered") /* its first fragment was dropped */ \
    X(NAT_DROP_FRAGMENT_FULL, "nat_fragment_full")        /* no room to hold it until its first fragment comes */ \
    X(NAT_DROP_FRAGMENT_TIMEOUT, "nat_fragment_timeout")  /* held, and the first fragment did not come */
enum nat_verdict {
#define X(name, text) name,
    NAT_VERDICTS(X)
#undef X
        NAT_VERDICT_COUNT
};
const char *nat_verdict_name(enum nat_verdict v);

struct nat_config {
    bool source4_set, source6_set;
    uint8_t source4[4], source6[16]; /* the tunnel addresses */
    unsigned lan_count;
    struct prefix lan[NAT_LANS];     /* inside sources that are translated, both families */
    uint32_t entries;                /* sessions, 16..2^22 */
    uint16_t mss4, mss6;             /* 0: MSS is left alone */
    uint16_t port_low, port_high;    /* outside ports to choose from; 0, 0: 1024..65535 */
    bool parity;                     /* keep a port's parity (RFC 4787 REQ-4) */
    uint64_t seed;                   /* of port choice and hashes */
};

struct nat_stats {
    uint64_t verdict[NAT_VERDICT_COUNT];
    uint64_t created, expired, evicted; /* sessions */
    uint64_t mss_clamped;
    uint32_t sessions, mappings;        /* now */
};

struct nat;

/* NULL: no memory, or a configuration that cannot be (no source, entries out of range). */
struct nat *nat_new(const struct nat_config *config);
void nat_free(struct nat *nat);
/* Takes a new configuration with the same `entries` and keeps sessions; those of a source address that changed end. */
bool nat_configure(struct nat *nat, const struct nat_config *config);

/* A packet on its way into the tunnel; vnet: its virtio header, or NULL for a plain packet with full checksums.
 * n: bytes at hand. Addresses and ports are changed only for NAT_TRANSLATED. */
enum nat_verdict nat_out(struct nat *nat, uint64_t now, const uint8_t vnet[VNET_HEADER_LEN], uint8_t *packet, size_t n);
/* The same for a packet that came out of the tunnel, after joining. */
enum nat_verdict nat_in(struct nat *nat, uint64_t now, const uint8_t vnet[VNET_HEADER_LEN], uint8_t *packet, size_t n);

/* Fragments that were held and may go now, translated: call after nat_out or nat_in until it is 0. The packet lies in
 * nat's memory, with VNET_HEADER_LEN zero bytes (a plain virtio header) before it, until the next call of any function
 * of nat. *out: it leaves through the tunnel; else it goes to the LAN. */
size_t nat_take(struct nat *nat, uint8_t **packet, bool *out);

/* Ends what has been idle too long, a bounded number each call. When to call again (UINT64_MAX: not needed). */
uint64_t nat_expire(struct nat *nat, uint64_t now);
const struct nat_stats *nat_stats(const struct nat *nat);
/* Bytes that a table of so many entries may come to use. */
size_t nat_memory(uint32_t entries);

#endif
