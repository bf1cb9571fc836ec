/* The datagram interface: what carries whole datagrams with an address, from a UDP socket to UDP over VLESS.
 *
 * The same rules as the stream interface (wire/stream.h): one const table, every function present; calls go down,
 * events go up through the host's ready list; a refusal arms a wake-up. What differs:
 *
 * A datagram is taken whole or not at all and is never waited for: what cannot be sent now is dropped by the caller,
 * by name (enum datagram_drop), and counted; nothing is queued behind a blocked carrier beyond one batch. Calls move
 * batches: an array of datagrams, each with its own address, in buffers of the caller. `address` is the far end in
 * the sense of the carrier's user: the destination when sending, the source when receiving; a carrier with a fixed
 * far end (VLESS command 2) ignores it when sending and fills it in when receiving. A name is allowed where the
 * carrier passes names on (`can`). Mapped IPv4 addresses never appear: they become IPv4 at the socket's edge.
 *
 * Over a stream (UDP over TCP, XUDP, VMess) a layer keeps boundaries by its own length prefix and puts a datagram
 * together in a buffer of the host; partial acceptance below is its own affair, as with units of a stream.
 * `size_max` is what one datagram may carry now (a path's MTU may change it); a longer one is DATAGRAM_DROP_SIZE.
 * Length 0 is a datagram.
 *
 * There is no half-close and no detach: an association ends by close() or by ERROR. Lifetimes are its owner's. */
#ifndef FV_WIRE_DATAGRAM_H
#define FV_WIRE_DATAGRAM_H

#include "wire/stream.h"

enum datagram_drop {
    DATAGRAM_DROP_NONE,
    DATAGRAM_DROP_FULL,    /* the carrier takes no more now */
    DATAGRAM_DROP_MEMORY,  /* no buffer within the budget */
    DATAGRAM_DROP_SIZE,    /* longer than the carrier takes */
    DATAGRAM_DROP_ADDRESS, /* no such address family or name by this carrier */
    DATAGRAM_DROP_FILTER,  /* not from where this association has sent to */
    DATAGRAM_DROPS
};

enum datagram_family { DATAGRAM_NONE, DATAGRAM_IPV4, DATAGRAM_IPV6, DATAGRAM_NAME };

struct datagram_address {
    uint8_t family; /* enum datagram_family */
    uint8_t size;   /* of a name, 1..255 */
    uint16_t port;  /* host order */
    uint32_t scope; /* IPv6 link-local: the interface's index */
    union {
        uint8_t ip[16];   /* network order, 4 or 16 of them */
        const char *name; /* not terminated; valid as long as the datagram's bytes are */
    };
};

struct datagram {
    uint8_t *bytes;
    uint32_t size;
    uint32_t
        capacity; /* receive: bytes there are at `bytes`; what does not fit is cut, and counted as SIZE by the carrier */
    uint8_t drop; /* send: enum datagram_drop, set by the carrier for those that it will never take */
    uint8_t ecn; /* the two bits of the IP header, where the carrier sees them */
    struct datagram_address address;
};

/* `can` of a carrier. */
enum {
    DATAGRAM_NAMES = 1, /* addresses may be names */
    DATAGRAM_ANY = 2, /* one association reaches any address (full cone); otherwise the one given at construction */
    DATAGRAM_LOSSLESS = 4, /* rides on a stream: what was accepted arrives */
};

struct datagram_carrier;

struct datagram_ops {
    const char *name;
    /* Up to count datagrams into the caller's buffers; *got is always set. OK, AGAIN, STARVED, END or ERROR. */
    enum stream_status (*receive)(struct datagram_carrier *carrier, struct datagram *to, unsigned count, unsigned *got);
    /* The first *done of them are dealt with: sent, or `drop` says why not. AGAIN: the others were not looked at. */
    enum stream_status (*send)(struct datagram_carrier *carrier, struct datagram *from, unsigned count, unsigned *done);
    void (*wait)(struct datagram_carrier *carrier, unsigned directions, struct stream_waiter *waiter);
    uint64_t (*next)(const struct datagram_carrier *carrier);
    void (*tick)(struct datagram_carrier *carrier, uint64_t now);
    void (*close)(struct datagram_carrier *carrier, enum stream_reason reason); /* frees it and all below */
};

struct datagram_carrier {
    const struct datagram_ops *ops;
    struct stream_host *host;
    uint32_t size_max; /* payload bytes */
    uint8_t can;
    uint8_t reason; /* enum stream_reason, once a call gave ERROR */
};

#endif
