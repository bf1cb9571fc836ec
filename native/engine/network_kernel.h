/* One object of [network] against the kernel: seen, put, removed. Used by network.c only. */
#ifndef FV_ENGINE_NETWORK_KERNEL_H
#define FV_ENGINE_NETWORK_KERNEL_H

#include "engine/network.h"

/* What is there: our routes and rules (by protocol number), all addresses. */
struct network_seen {
    struct netlink_route *routes;
    struct netlink_rule *rules;
    struct netlink_address *addresses;
    size_t route_count, rule_count, address_count;
};

int network_seen_read(struct netlink *nl, struct network_seen *seen); /* 0 or -errno */
void network_seen_free(struct network_seen *seen);

/* Routes of the table that have the item's key and are not ours: 1 the first one is in *found, 0 none, -errno. */
int network_route_foreign(struct netlink *nl, const struct network_item *item, struct netlink_route *found);
/* Our route with the item's key, or NULL. */
const struct netlink_route *network_seen_route(const struct network_seen *seen, const struct network_item *item);
bool network_seen_rule(const struct network_seen *seen, const struct network_item *item);
bool network_seen_address(const struct network_seen *seen, const struct network_item *item);
/* Does the kernel's route do what the item says? The item's index has been resolved. */
bool network_route_matches(const struct network_item *item, const struct netlink_route *route);
/* The kernel's route as an item (names its interface). */
int network_route_item(struct netlink *nl, const struct netlink_route *route, struct network_item *item);

/* Fills in the interface's index. -ENODEV. */
int network_resolve(struct netlink *nl, struct network_item *item);
/* Puts an object there; replace only matters for routes. 0 or -errno. */
int network_put(struct netlink *nl, const struct network_item *wanted, bool replace);
/* Removes it; what is not there (any more) is no error. Sysctls and links cannot be removed. */
int network_remove(struct netlink *nl, const struct network_item *there);

/* The value as one line of words; 0 or -errno. */
int network_sysctl_read(const char *key, char *value, size_t size);
/* True where IPv6 is absent, or off on that interface ("": on the host). */
bool network_lacks_ipv6(const char *device);

#endif
