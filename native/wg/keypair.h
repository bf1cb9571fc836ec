/* Keypairs, a peer's three slots for them, and the table of indices.
 *
 * An index is a random 32-bit number, unique over the handshakes in flight and the keypairs of a device; the one chosen
 * for a handshake passes to the keypair that comes of it. The table is an array of a power of two; an index sits at
 * the place its low bits name, so an index is drawn until its place is free, a lookup is one load, and a bigger table
 * (at half full) needs no new search: what did not collide before cannot collide after. Other threads look up while
 * the owner changes it; a table that was outgrown is retired. */
#ifndef FV_WG_KEYPAIR_H
#define FV_WG_KEYPAIR_H

#include "wg/noise.h"
#include "wg/wg.h"

struct wg_index_slot {
    struct wg_keypair *keypair; /* atomic */
    struct wg_peer *peer;       /* whose handshake has this index; the owner's only */
    uint32_t index;             /* of that handshake */
};

struct wg_index_table {
    struct wg_index_table *next; /* of the retired */
    uint32_t mask, used;
    struct wg_index_slot slots[];
};

struct wg_index_table *wg_index_table_new(uint32_t size);
/* Draws an index for a handshake of the peer; false: no memory. */
bool wg_index_new(struct wg_device *dev, struct wg_peer *peer, uint32_t *index);
void wg_index_free(struct wg_device *dev, uint32_t index);
/* Whose handshake (its index is the peer's handshake->index) or keypair this is; NULL: nobody's. */
struct wg_peer *wg_index_peer(struct wg_device *dev, uint32_t index);

/* From a finished handshake whose index was drawn by wg_index_new. As initiator it is the current one at once; as
 * responder it waits in `next` until something arrives under it. NULL: no memory, the index is free again. */
struct wg_keypair *wg_keypair_begin(struct wg_peer *peer, const struct wg_now *now, const struct wg_session_keys *keys,
                                    uint32_t local_index, uint32_t remote_index, bool initiator);
/* Something authenticated came under kp. True: it was `next` and is `current` now. */
bool wg_keypair_confirm(struct wg_peer *peer, struct wg_keypair *kp);
void wg_keypair_drop_all(struct wg_peer *peer);
void wg_keypair_destroy(struct wg_keypair *kp); /* of a retired one: wipes and frees */

#endif
