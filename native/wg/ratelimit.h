/* Initiations under load, from addresses that have proved themselves by mac2: 20 a second, 5 at once, for each IPv4
 * address or IPv6 /64.
 *
 * A token bucket in nanoseconds an address, in a table of fixed size (96 KiB) that exists only while there is load: 4
 * places a hash, and where all four are taken the one that was quiet longest goes. Somebody with very many addresses
 * can thus empty buckets early; what that costs is bounded by the caller's budget for public-key work. The hash is
 * keyed. */
#ifndef FV_WG_RATELIMIT_H
#define FV_WG_RATELIMIT_H

#include "wg/wg.h"

struct wg_ratelimit_entry {
    uint64_t network; /* address or upper half of it */
    uint64_t seen;    /* mono */
    uint32_t tokens;  /* ns, at most WG_RATE_BURST / WG_RATE_PER_SECOND seconds */
    uint8_t family;   /* WG_FAMILY_NONE: free */
};

struct wg_ratelimit {
    struct wg_ratelimit_entry *entries; /* NULL: no load */
    uint64_t key;
};

/* False: too many (or no memory for the table). */
bool wg_ratelimit_allow(struct wg_ratelimit *r, uint64_t mono, struct random *random, const struct wg_endpoint *from);
void wg_ratelimit_free(struct wg_ratelimit *r);

#endif
