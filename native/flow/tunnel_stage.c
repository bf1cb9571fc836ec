/* Packets that wait for a peer's keys: a list per peer in order of arrival, at most WG_STAGED_MAX, the oldest dropped.
 * Each lies in a lease of worker 0 together with its virtio header, so that super-packets stay whole. All of them together
 * get half of the budget: a few peers that do not answer must not stop those that do. */
#include <string.h>

#include "flow/tunnel.h"

struct staged {
    struct staged *next;
    uint32_t length;
    bool header_set;
    uint8_t header[VNET_HEADER_LEN];
    uint8_t packet[];
};

/* Hangs on wg_peer_user, itself a small lease: exists only while packets wait. */
struct stage {
    struct staged *first, *last;
    unsigned count;
};

static struct stage *stage_of(struct wg_peer *peer)
{
    return *wg_peer_user(peer);
}

bool tunnel_staged(struct wg_peer *peer)
{
    return stage_of(peer) != NULL;
}

static struct staged *stage_pop(struct lease_pool *pool, struct wg_peer *peer)
{
    struct stage *stage = stage_of(peer);
    struct staged *staged = stage->first;
    stage->first = staged->next;
    if (--stage->count == 0) {
        lease_give(pool, stage);
        *wg_peer_user(peer) = NULL;
    }
    return staged;
}

void tunnel_stage(struct tunnel_lane *lane, struct wg_peer *peer, const uint8_t header[VNET_HEADER_LEN],
                  const uint8_t *packet, size_t n)
{
    struct lease_pool *pool = &lane->worker->leases;
    enum lease_class class = lease_class_for(sizeof(struct staged) + n);
    size_t limit = pool->budget->limit / 2;
    struct staged *staged = class < LEASE_CLASSES ? lease_take_within(pool, class, limit) : NULL;
    struct stage *stage = stage_of(peer);
    if (staged && !stage) {
        stage = *wg_peer_user(peer) = lease_take(pool, LEASE_SMALL);
        if (stage)
            memset(stage, 0, sizeof *stage);
    }
    if (!staged || !stage) {
        if (staged)
            lease_give(pool, staged);
        lane->stats.drops[TUNNEL_DROP_OUT_NO_MEMORY]++;
        return;
    }
    staged->next = NULL;
    staged->length = (uint32_t)n;
    staged->header_set = header != NULL;
    if (header)
        memcpy(staged->header, header, VNET_HEADER_LEN);
    memcpy(staged->packet, packet, n);
    if (stage->count)
        stage->last->next = staged;
    else
        stage->first = staged;
    stage->last = staged;
    if (++stage->count > WG_STAGED_MAX) {
        lease_give(pool, stage_pop(pool, peer));
        wg_device_count(lane->tunnel->core, WG_DROP_SEND_STAGED_FULL, 1);
    }
}

void tunnel_stage_flush(struct tunnel_lane *lane, struct wg_peer *peer)
{
    struct lease_pool *pool = &lane->worker->leases;
    struct stage *stage = stage_of(peer);
    /* Bounded by what is there now: a packet that finds no key is staged again, behind. */
    for (unsigned left = stage ? stage->count : 0; left; left--) {
        struct staged *staged = stage_pop(pool, peer);
        tunnel_out(lane, staged->header_set ? staged->header : NULL, staged->packet, staged->length);
        lease_give(pool, staged);
    }
    tunnel_flush(lane);
}

void tunnel_stage_drop(struct tunnel *tunnel, struct wg_peer *peer, enum wg_drop why)
{
    struct lease_pool *pool = &tunnel->workers->worker[0].leases;
    while (stage_of(peer)) {
        lease_give(pool, stage_pop(pool, peer));
        wg_device_count(tunnel->core, why, 1);
    }
}
