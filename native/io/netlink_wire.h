/* rtnetlink messages as bytes: a small builder (netlink_build.c) and a strict parser (netlink_parse.c), no system
 * call; netlink.c has the socket.
 *
 * A message is a 16-byte header, a fixed body per family (link, address, route, rule) and attributes of 4 bytes plus
 * payload, padded to 4; all integers in the host's byte order, addresses in the network's (RFC 3549; linux/netlink.h).
 * The parser takes nothing on trust: every length is checked against what contains it, every attribute it uses has
 * the size that it should have; attributes it does not know are passed over. */
#ifndef FV_IO_NETLINK_WIRE_H
#define FV_IO_NETLINK_WIRE_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Marks fv's routes and rules (RTPROT_*, FRA_PROTOCOL), so that they are found after a crash. Not in iproute2's
 * rt_protos; shown by `ip route` as "proto 157". */
#define NETLINK_PROTOCOL_FV 157

#define NETLINK_MESSAGE_MAX 512 /* bytes of a message that fv sends */

/* Builder: writes into its own bytes; what does not fit sets overflow and is left out. */
struct netlink_request {
    uint8_t bytes[NETLINK_MESSAGE_MAX];
    size_t length;
    bool overflow;
};

/* An address with its prefix length; family 0: none given. */
struct netlink_prefix {
    uint8_t family; /* AF_INET, AF_INET6, 0 */
    uint8_t length; /* bits */
    uint8_t address[16];
};

struct netlink_link {
    int index;
    uint32_t flags; /* IFF_* */
    uint32_t mtu;
    uint32_t txqueuelen;
    uint16_t type; /* ARPHRD_* */
    char name[IF_NAMESIZE];
};

/* What netlink_build_link sets: a zero in mtu and txqueuelen leaves them, up < 0 leaves the state. */
struct netlink_link_change {
    uint32_t mtu;
    uint32_t txqueuelen;
    int up; /* 1 up, 0 down, -1 as it is */
};

struct netlink_address {
    int index;
    struct netlink_prefix local; /* its length is the prefix of the peer where there is one */
    struct netlink_prefix peer;  /* the far end of a point-to-point link; family 0: none */
    struct netlink_prefix broadcast;
    uint8_t scope;  /* RT_SCOPE_* */
    uint32_t flags; /* IFA_F_*: NODAD, NOPREFIXROUTE */
};

struct netlink_route {
    uint8_t family;
    uint8_t type;     /* RTN_* */
    uint8_t protocol; /* RTPROT_* */
    uint8_t scope;
    uint8_t flags_onlink;
    struct netlink_prefix destination; /* length 0: default; its family is always set */
    struct netlink_prefix via;         /* may be of the other family */
    struct netlink_prefix source;      /* preferred source address */
    int index;                         /* output interface; 0: none */
    uint32_t table;
    uint32_t metric;
    uint32_t mtu, advmss; /* RTA_METRICS; 0: not set */
    uint32_t state;       /* RTNH_F_* of the (first) next hop, read only */
    uint32_t cloned;      /* RTM_F_CLONED: a cache entry, not a route */
};

struct netlink_rule {
    uint8_t family;
    uint8_t action; /* FR_ACT_* */
    uint8_t protocol;
    bool invert;
    struct netlink_prefix from, to;
    char iif[IF_NAMESIZE], oif[IF_NAMESIZE];
    uint32_t priority;
    uint32_t table;
    bool has_mark;
    uint32_t mark, mask;
    int32_t suppress_prefixlength; /* -1: off */
};

/* A message inside a datagram. body points into it. */
struct netlink_message {
    uint16_t type, flags;
    uint32_t sequence, port;
    const uint8_t *body;
    size_t length;
};

struct netlink_reply {
    int error;       /* -errno, 0: acknowledged */
    char text[200];  /* the kernel's extended acknowledgement, "" where it gave none */
    uint32_t offset; /* of the attribute it means, 0: none given */
};

/* Requests. flags: NLM_F_* beyond REQUEST and ACK, which are always set. True: it fitted. */
bool netlink_build_link_get(struct netlink_request *r, uint32_t sequence, int index, const char *name);
bool netlink_build_link_set(struct netlink_request *r, uint32_t sequence, int index,
                            const struct netlink_link_change *change);
bool netlink_build_address(struct netlink_request *r, uint32_t sequence, uint16_t type, uint16_t flags,
                           const struct netlink_address *a);
bool netlink_build_route(struct netlink_request *r, uint32_t sequence, uint16_t type, uint16_t flags,
                         const struct netlink_route *route);
bool netlink_build_rule(struct netlink_request *r, uint32_t sequence, uint16_t type, uint16_t flags,
                        const struct netlink_rule *rule);
/* type RTM_GETLINK, GETADDR, GETROUTE or GETRULE; table and protocol (0: any) only for routes. */
bool netlink_build_dump(struct netlink_request *r, uint32_t sequence, uint16_t type, uint8_t family, uint32_t table,
                        uint8_t protocol);

/* Takes the next message off a datagram: 1, 0 at its end, -EBADMSG. */
int netlink_next(const uint8_t **data, size_t *length, struct netlink_message *message);

/* 0, -EBADMSG, or -EPROTO for a message of another type. */
int netlink_parse_link(const struct netlink_message *m, struct netlink_link *link);
int netlink_parse_address(const struct netlink_message *m, struct netlink_address *a);
int netlink_parse_route(const struct netlink_message *m, struct netlink_route *route);
int netlink_parse_rule(const struct netlink_message *m, struct netlink_rule *rule);
/* NLMSG_ERROR, and NLMSG_DONE whose body is an error number. */
int netlink_parse_reply(const struct netlink_message *m, struct netlink_reply *reply);

/* Bytes of an address of the family: 4, 16, or 0. */
size_t netlink_address_size(uint8_t family);
bool netlink_prefix_equal(const struct netlink_prefix *a, const struct netlink_prefix *b);

#endif
