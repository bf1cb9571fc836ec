/* Allowed IPs: which peer owns an address. One path-compressed binary trie a family; any thread looks up while the
 * owner changes it: every change is one pointer store, and nodes that go are retired, not freed.
 *
 * A node is a prefix; one without a peer only branches and then has two children. Below a node all prefixes are longer
 * and agree with it; child[b] has b as the bit after it. Nodes of a peer are on its list, in order of insertion. */
#ifndef FV_WG_ALLOWEDIPS_H
#define FV_WG_ALLOWEDIPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wg_peer;
struct wg_device;

struct wg_allowed {
    struct wg_allowed *child[2]; /* atomic */
    struct wg_peer *peer;        /* atomic; NULL: only branches */
    struct wg_allowed *next, *prev;
    uint8_t cidr;                /* length of the prefix */
    uint8_t size;                /* 4 or 16 */
    bool stale;                  /* to be removed at the end of the section unless it is named again */
    uint8_t bits[];              /* masked */
};

struct wg_allowed_list {
    struct wg_allowed *first, *last;
};

struct wg_allowedips {
    struct wg_allowed *root4, *root6; /* atomic */
};

/* Takes the prefix over from whoever has it. size 4 or 16, cidr <= 8 * size; host bits are masked. 0 or -ENOMEM. */
int wg_allowedips_insert(struct wg_peer *peer, const uint8_t *address, uint8_t size, uint8_t cidr);
/* Removes the prefix where this peer owns it; nothing where not. */
void wg_allowedips_remove(struct wg_peer *peer, const uint8_t *address, uint8_t size, uint8_t cidr);
void wg_allowedips_remove_peer(struct wg_peer *peer);
/* Marks all of a peer's; those not inserted again until the sweep are removed by it. Lookups see no gap. */
void wg_allowedips_mark(struct wg_peer *peer);
void wg_allowedips_sweep(struct wg_peer *peer);

#endif
