/* What a device is, inside native/wg. */
#ifndef FV_WG_DEVICE_H
#define FV_WG_DEVICE_H

#include "wg/handshake.h"
#include "wg/keypair.h"
#include "wg/peer.h"
#include "wg/ratelimit.h"
#include "wg/stamp.h"
#include "wg/timers.h"
#include "wg/wg.h"

/* What died and what other threads may still be reading: a list of each kind. */
struct wg_retired {
    struct wg_keypair *keypairs;
    struct wg_peer *peers;         /* by list_next */
    struct wg_allowed *allowed;    /* by next */
    struct wg_index_table *tables; /* by next */
};

struct wg_device {
    struct wg_index_table *indices; /* atomic */
    struct wg_allowedips allowedips;

    struct wg_identity identity;
    bool has_key, up;
    uint16_t port;
    uint32_t fwmark;
    struct random random;
    struct wg_hooks hooks;

    struct wg_cookie_checker cookies;
    struct wg_ratelimit rate;
    uint64_t loaded_until; /* mono */
    struct wg_stamp stamp;
    bool persist;          /* a bound must be written before the next initiation */

    struct wg_peer **by_key; /* chained hash of peers */
    unsigned by_key_size;    /* a power of two */
    uint64_t by_key_seed;
    unsigned peers;
    struct wg_peer *first, *last;
    struct wg_peer *pending_first, *pending_last;
    struct wg_heap heap;
    struct wg_uapi_get *gets; /* in progress: told when what they stand on goes */

    struct wg_retired fresh, closed;
    uint64_t drops[WG_DROP_COUNT];
};

/* Into and out of the hash and the list. */
int wg_device_add_peer(struct wg_device *dev, struct wg_peer *peer);
void wg_device_remove_peer(struct wg_device *dev, struct wg_peer *peer);
void wg_device_set_fwmark(struct wg_device *dev, uint32_t fwmark);
/* A get in progress must not stand on what goes (uapi_get.c). */
void wg_uapi_get_peer_gone(struct wg_device *dev, const struct wg_peer *peer);
void wg_uapi_get_allowed_gone(struct wg_device *dev, const struct wg_allowed *allowed);

#endif
