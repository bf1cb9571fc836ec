#include "wg/device.h"

#include <errno.h>
#include <stdlib.h>

#include "crypto/secret.h"
#include "crypto/x25519.h"
#include "wire/bytes.h"

#define INDEX_TABLE_FIRST 16u
#define BY_KEY_FIRST 16u

/* ---- life ---- */

struct wg_device *wg_device_new(const uint8_t seed[32], const struct wg_hooks *hooks)
{
    struct wg_device *dev = calloc(1, sizeof *dev);
    if (!dev)
        return NULL;
    random_seed(&dev->random, seed);
    random_bytes(&dev->random, &dev->by_key_seed, sizeof dev->by_key_seed);
    if (hooks)
        dev->hooks = *hooks;
    dev->indices = wg_index_table_new(INDEX_TABLE_FIRST);
    dev->by_key_size = BY_KEY_FIRST;
    dev->by_key = calloc(dev->by_key_size, sizeof *dev->by_key);
    if (!dev->indices || !dev->by_key) {
        free(dev->indices);
        free(dev->by_key);
        free(dev);
        return NULL;
    }
    return dev;
}

void wg_device_free(struct wg_device *dev)
{
    if (!dev)
        return;
    while (dev->first)
        wg_peer_remove(dev->first);
    wg_device_reclaim(dev);
    wg_device_retire(dev);
    wg_device_reclaim(dev);
    wg_ratelimit_free(&dev->rate);
    free(dev->heap.entries);
    free(dev->indices);
    free(dev->by_key);
    secret_wipe(dev, sizeof *dev);
    free(dev);
}

void wg_device_reseed(struct wg_device *dev, const uint8_t seed[32])
{
    random_reseed(&dev->random, seed, 32);
}

/* ---- what has died ---- */

static bool retired_any(const struct wg_retired *r)
{
    return r->keypairs || r->peers || r->allowed || r->tables;
}

bool wg_device_retire(struct wg_device *dev)
{
    if (!retired_any(&dev->closed)) {
        dev->closed = dev->fresh;
        memset(&dev->fresh, 0, sizeof dev->fresh);
    }
    return retired_any(&dev->closed);
}

void wg_device_reclaim(struct wg_device *dev)
{
    struct wg_retired *r = &dev->closed;
    for (struct wg_keypair *kp; (kp = r->keypairs);) {
        r->keypairs = kp->next_retired;
        wg_keypair_destroy(kp);
    }
    for (struct wg_allowed *a; (a = r->allowed);) {
        r->allowed = a->next;
        free(a);
    }
    for (struct wg_peer *peer; (peer = r->peers);) {
        r->peers = peer->list_next;
        wg_peer_destroy(peer);
    }
    for (struct wg_index_table *t; (t = r->tables);) {
        r->tables = t->next;
        free(t);
    }
}

/* ---- peers ---- */

static struct wg_peer **device_bucket(struct wg_device *dev, const uint8_t key[32])
{
    uint64_t x = (load_le64(key) ^ dev->by_key_seed) * 0x9e3779b97f4a7c15ull;
    return &dev->by_key[x >> 32 & (dev->by_key_size - 1)];
}

static void device_grow(struct wg_device *dev)
{
    struct wg_peer **bigger = calloc(dev->by_key_size * 2, sizeof *bigger);
    if (!bigger) /* longer chains, nothing worse */
        return;
    free(dev->by_key);
    dev->by_key = bigger;
    dev->by_key_size *= 2;
    for (struct wg_peer *peer = dev->first; peer; peer = peer->list_next) {
        struct wg_peer **bucket = device_bucket(dev, peer->public_key);
        peer->hash_next = *bucket;
        *bucket = peer;
    }
}

int wg_device_add_peer(struct wg_device *dev, struct wg_peer *peer)
{
    if (!wg_heap_reserve(&dev->heap, dev->peers + 1))
        return -ENOMEM;
    if (dev->peers >= dev->by_key_size)
        device_grow(dev);
    struct wg_peer **bucket = device_bucket(dev, peer->public_key);
    peer->hash_next = *bucket;
    *bucket = peer;
    peer->list_next = NULL;
    peer->list_prev = dev->last;
    *(dev->last ? &dev->last->list_next : &dev->first) = peer;
    dev->last = peer;
    dev->peers++;
    return 0;
}

void wg_device_remove_peer(struct wg_device *dev, struct wg_peer *peer)
{
    struct wg_peer **at = device_bucket(dev, peer->public_key);
    while (*at != peer)
        at = &(*at)->hash_next;
    *at = peer->hash_next;
    *(peer->list_prev ? &peer->list_prev->list_next : &dev->first) = peer->list_next;
    *(peer->list_next ? &peer->list_next->list_prev : &dev->last) = peer->list_prev;
    dev->peers--;
}

struct wg_peer *wg_device_peer(struct wg_device *dev, const uint8_t public_key[32])
{
    for (struct wg_peer *peer = *device_bucket(dev, public_key); peer; peer = peer->hash_next)
        if (memcmp(peer->public_key, public_key, 32) == 0)
            return peer;
    return NULL;
}

struct wg_peer *wg_device_first_peer(struct wg_device *dev)
{
    return dev->first;
}

unsigned wg_device_peers(const struct wg_device *dev)
{
    return dev->peers;
}

/* ---- settings ---- */

int wg_device_set_private_key(struct wg_device *dev, const uint8_t key[32])
{
    struct wg_identity identity = {0};
    bool has_key = key && !secret_is_zero(key, 32);
    int result = 0;
    if (has_key) {
        memcpy(identity.private_key, key, 32);
        x25519_clamp(identity.private_key);
        if (dev->has_key && secret_equal(identity.private_key, dev->identity.private_key, 32))
            goto out;
        if (!x25519_base(identity.public_key, identity.private_key)) {
            result = -ENOMEM;
            goto out;
        }
        struct wg_peer *self = wg_device_peer(dev, identity.public_key);
        if (self)
            wg_peer_remove(self);
    } else if (!dev->has_key) {
        goto out;
    }
    dev->identity = identity;
    dev->has_key = has_key;
    wg_cookie_checker_init(&dev->cookies, identity.public_key);
    for (struct wg_peer *peer = dev->first; peer; peer = peer->list_next) {
        wg_peer_drop_keys(peer);
        peer->handshake_sent = false; /* a new handshake may begin at once */
        peer->static_dh = WG_STATIC_DH_UNKNOWN;
        secret_wipe(peer->static_shared, sizeof peer->static_shared);
        if (has_key && dev->up && peer->persistent_keepalive)
            wg_peer_pend(peer, WG_PENDING_KEEPALIVE); /* what it kept alive is gone, or never began */
    }
out:
    secret_wipe(&identity, sizeof identity);
    return result;
}

bool wg_device_public_key(const struct wg_device *dev, uint8_t key[32])
{
    memcpy(key, dev->identity.public_key, 32);
    return dev->has_key;
}

void wg_device_set_port(struct wg_device *dev, uint16_t port)
{
    dev->port = port;
}

uint16_t wg_device_port(const struct wg_device *dev)
{
    return dev->port;
}

void wg_device_set_fwmark(struct wg_device *dev, uint32_t fwmark)
{
    dev->fwmark = fwmark;
}

uint32_t wg_device_fwmark(const struct wg_device *dev)
{
    return dev->fwmark;
}

const uint64_t *wg_device_drops(const struct wg_device *dev)
{
    return dev->drops;
}

void wg_device_count(struct wg_device *dev, enum wg_drop drop, uint64_t n)
{
    dev->drops[drop] += n;
}

void wg_device_stamp_floor(struct wg_device *dev, const uint8_t stamp[WG_STAMP_SIZE])
{
    wg_stamp_floor(&dev->stamp, stamp);
}

void wg_device_stamp(const struct wg_device *dev, uint8_t stamp[WG_STAMP_SIZE])
{
    memcpy(stamp, dev->stamp.last, WG_STAMP_SIZE);
}

/* ---- up and down ---- */

void wg_device_up(struct wg_device *dev, const struct wg_now *now)
{
    if (dev->up)
        return;
    dev->up = true;
    for (struct wg_peer *peer = dev->first; peer; peer = peer->list_next)
        wg_peer_pend(peer, WG_PENDING_FLUSH | (peer->persistent_keepalive ? WG_PENDING_KEEPALIVE : 0));
}

void wg_device_down(struct wg_device *dev)
{
    if (!dev->up)
        return;
    dev->up = false;
    for (struct wg_peer *peer = dev->first; peer; peer = peer->list_next) {
        wg_peer_drop_keys(peer);
        wg_timers_stop(peer);
        peer->handshake_sent = false;
        peer->pending &= WG_PENDING_RESOLVE;
        wg_peer_pend(peer, WG_PENDING_DROP_STAGED);
    }
}

bool wg_device_is_up(const struct wg_device *dev)
{
    return dev->up;
}

void wg_device_load(struct wg_device *dev, const struct wg_now *now, unsigned queued)
{
    if (queued >= WG_QUEUE_LOADED)
        dev->loaded_until = now->mono + WG_LOADED_TIME;
    else if (dev->rate.entries && now->mono >= dev->loaded_until)
        wg_ratelimit_free(&dev->rate); /* every bucket is full again after a quarter of a second */
}

/* ---- what is to be done ---- */

uint64_t wg_device_next(struct wg_device *dev)
{
    return dev->pending_first ? 0 : wg_timers_next(dev);
}

static bool device_give(struct wg_output *out, struct wg_peer *peer, unsigned what, enum wg_action action)
{
    wg_peer_pend_done(peer, what);
    out->action = action;
    out->peer = peer;
    return true;
}

bool wg_device_poll(struct wg_device *dev, const struct wg_now *now, struct wg_output *out)
{
    out->action = WG_ACTION_NONE;
    out->drop = WG_DROP_NONE;
    out->public_key_work = false;
    out->tos = 0;
    out->length = 0;
    out->peer = NULL;
    do {
        for (struct wg_peer *peer; (peer = dev->pending_first);) {
            unsigned pending = peer->pending;
            if (pending & WG_PENDING_DROP_STAGED)
                return device_give(out, peer, WG_PENDING_DROP_STAGED, WG_ACTION_DROP_STAGED);
            if (pending & WG_PENDING_RESOLVE)
                return device_give(out, peer, WG_PENDING_RESOLVE, WG_ACTION_RESOLVE);
            if (pending & WG_PENDING_INITIATION) {
                if (wg_send_initiation(peer, now, out))
                    return true;
                continue;
            }
            if (pending & WG_PENDING_KEEPALIVE)
                return device_give(out, peer, WG_PENDING_FLUSH | WG_PENDING_KEEPALIVE, WG_ACTION_KEEPALIVE);
            if (pending & WG_PENDING_FLUSH)
                return device_give(out, peer, WG_PENDING_FLUSH, WG_ACTION_FLUSH);
            wg_peer_pend_done(peer, 0);
        }
    } while (wg_timers_expire(dev, now));
    return false;
}
