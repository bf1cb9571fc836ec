#include "wg/ratelimit.h"

#include <stdlib.h>

#include "wire/bytes.h"

#define WAYS 4u
#define SETS 1024u
#define COST (WG_SECOND / WG_RATE_PER_SECOND)
#define FULL (COST * WG_RATE_BURST)

/* Two rounds of multiply and fold under a secret key: enough against people who cannot see the result. */
static unsigned ratelimit_set(uint64_t key, uint64_t network, unsigned family)
{
    uint64_t x = (network ^ key) * 0x9e3779b97f4a7c15ull + family;
    x = (x ^ x >> 32) * ((key >> 7) | 1);
    return (unsigned)(x >> 40) % SETS;
}

bool wg_ratelimit_allow(struct wg_ratelimit *r, uint64_t mono, struct random *random, const struct wg_endpoint *from)
{
    if (!r->entries) {
        r->entries = calloc((size_t)SETS * WAYS, sizeof *r->entries);
        if (!r->entries)
            return false;
        random_bytes(random, &r->key, sizeof r->key);
    }
    uint64_t network = from->family == WG_FAMILY_V4 ? load_be32(from->address) : load_be64(from->address);
    struct wg_ratelimit_entry *set = r->entries + (size_t)ratelimit_set(r->key, network, from->family) * WAYS;
    struct wg_ratelimit_entry *e = set;
    for (unsigned i = 0; i < WAYS; i++) {
        if (set[i].family == from->family && set[i].network == network) {
            e = &set[i];
            break;
        }
        if (set[i].family == WG_FAMILY_NONE || (e->family != WG_FAMILY_NONE && set[i].seen < e->seen))
            e = &set[i];
    }
    if (e->family != from->family || e->network != network)
        *e = (struct wg_ratelimit_entry){network, mono, FULL, from->family};
    e->tokens = (uint32_t)MIN(FULL, e->tokens + MIN(mono - e->seen, FULL));
    e->seen = mono;
    if (e->tokens < COST)
        return false;
    e->tokens -= (uint32_t)COST;
    return true;
}

void wg_ratelimit_free(struct wg_ratelimit *r)
{
    free(r->entries);
    r->entries = NULL;
}
