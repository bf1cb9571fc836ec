/* The engine's rtnetlink client: links, addresses, routes and rules, asked and set over one socket, and a second kind
 * of socket that reports their changes.
 *
 * A request is sent and its answer read at once (the kernel works on rtnetlink requests inside sendmsg, so nothing is
 * waited for that is not there already); the calls are for start, swap and stop, not for the data path. An error is
 * -errno, and netlink_error() has the kernel's own words where it gave some (NETLINK_EXT_ACK). Needs CAP_NET_ADMIN
 * in the network namespace only, no netfilter, and Linux 4.20 at least (strict dumps; without them dumps are filtered
 * here). Route and rule objects that fv makes carry NETLINK_PROTOCOL_FV. */
#ifndef FV_IO_NETLINK_H
#define FV_IO_NETLINK_H

#include "io/netlink_wire.h"

struct netlink {
    int fd;
    uint32_t sequence;
    uint32_t port; /* our own port id: what is not addressed to it is not ours */
    uint8_t *buffer;
    char error[256];
};

int netlink_open(struct netlink *nl); /* 0 or -errno */
void netlink_close(struct netlink *nl);
/* What the last failed call failed with: errno's text and the kernel's. Never NULL. */
const char *netlink_error(const struct netlink *nl);

int netlink_link_get(struct netlink *nl, const char *name, struct netlink_link *link); /* -ENODEV: no such link */
int netlink_link_by_index(struct netlink *nl, int index, struct netlink_link *link);
int netlink_link_set(struct netlink *nl, int index, const struct netlink_link_change *change);

/* Adding what is there already is -EEXIST; replace changes it instead. Deleting what is not there: -ENOENT, -ESRCH or
 * -EADDRNOTAVAIL, as the kernel says. */
int netlink_address_add(struct netlink *nl, const struct netlink_address *address);
int netlink_address_delete(struct netlink *nl, const struct netlink_address *address);
int netlink_route_add(struct netlink *nl, const struct netlink_route *route, bool replace);
int netlink_route_delete(struct netlink *nl, const struct netlink_route *route);
int netlink_rule_add(struct netlink *nl, const struct netlink_rule *rule);
int netlink_rule_delete(struct netlink *nl, const struct netlink_rule *rule);

/* What a dump or a watch hands over; a callback that returns other than 0 ends the dump with that value. */
enum netlink_event_kind {
    NETLINK_EVENT_LINK,
    NETLINK_EVENT_ADDRESS,
    NETLINK_EVENT_ROUTE,
    NETLINK_EVENT_RULE,
    NETLINK_EVENT_LOST, /* reports were lost: look again at everything */
    NETLINK_EVENT_COUNT
};

struct netlink_event {
    enum netlink_event_kind kind;
    bool gone;
    union {
        struct netlink_link link;
        struct netlink_address address;
        struct netlink_route route;
        struct netlink_rule rule;
    };
};

typedef int netlink_callback(void *context, const struct netlink_event *event);

struct netlink_filter {
    uint8_t family;   /* 0: IPv4 and IPv6 */
    uint32_t table;   /* routes and rules; 0: all */
    uint8_t protocol; /* routes and rules; 0: all */
};

/* All objects of a kind. -EAGAIN: they changed while they were read (what was handed over may be torn), ask again.
 * The callback may not use nl. */
int netlink_dump(struct netlink *nl, enum netlink_event_kind kind, const struct netlink_filter *filter,
                 netlink_callback *callback, void *context);

/* The default route that the host's own traffic takes: the best one of the main table by metric, not through one of
 * the interfaces in except (fv's own), not fv's own route. -ENETUNREACH: there is none. */
int netlink_uplink(struct netlink *nl, uint8_t family, const int *except, size_t except_count,
                   struct netlink_route *route);

/* Reports of changed links, addresses, routes and rules. Returns a descriptor (non-blocking) to poll, or -errno. */
int netlink_watch_open(void);
/* Reads what is there; 0 when all is read, -errno, or what the callback returned. */
int netlink_watch_read(int fd, netlink_callback *callback, void *context);

#endif
