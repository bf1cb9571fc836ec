#include "wg/peer.h"

#include <errno.h>
#include <stdlib.h>

#include "crypto/secret.h"
#include "crypto/x25519.h"
#include "wg/device.h"
#include "wire/bytes.h"

/* ---- life ---- */

struct wg_peer *wg_peer_new(struct wg_device *dev, const uint8_t public_key[32])
{
    struct wg_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->dev = dev;
    memcpy(peer->public_key, public_key, 32);
    wg_timers_init(peer);
    if (wg_device_add_peer(dev, peer) < 0) {
        free(peer);
        return NULL;
    }
    return peer;
}

static void peer_unpend(struct wg_peer *peer)
{
    struct wg_device *dev = peer->dev;
    if (peer->pending_prev || dev->pending_first == peer) {
        *(peer->pending_prev ? &peer->pending_prev->pending_next : &dev->pending_first) = peer->pending_next;
        *(peer->pending_next ? &peer->pending_next->pending_prev : &dev->pending_last) = peer->pending_prev;
        peer->pending_next = peer->pending_prev = NULL;
    }
    peer->pending = 0;
}

void wg_peer_remove(struct wg_peer *peer)
{
    struct wg_device *dev = peer->dev;
    if (dev->hooks.peer_removed)
        dev->hooks.peer_removed(dev->hooks.user, peer);
    wg_uapi_get_peer_gone(dev, peer);
    wg_allowedips_remove_peer(peer);
    wg_peer_drop_keys(peer);
    wg_timers_stop(peer);
    peer_unpend(peer);
    wg_device_remove_peer(dev, peer);
    peer->removed = true;
    peer->list_next = dev->fresh.peers;
    dev->fresh.peers = peer;
}

void wg_peer_destroy(struct wg_peer *peer)
{
    free(peer->host);
    secret_wipe(peer, sizeof *peer);
    free(peer);
}

/* ---- what waits for wg_device_poll ---- */

void wg_peer_pend(struct wg_peer *peer, unsigned what)
{
    struct wg_device *dev = peer->dev;
    peer->pending |= (uint8_t)what;
    if (peer->pending_prev || dev->pending_first == peer)
        return;
    peer->pending_prev = dev->pending_last;
    *(dev->pending_last ? &dev->pending_last->pending_next : &dev->pending_first) = peer;
    dev->pending_last = peer;
}

void wg_peer_pend_done(struct wg_peer *peer, unsigned what)
{
    peer->pending &= (uint8_t)~what;
    if (!peer->pending)
        peer_unpend(peer);
}

/* ---- handshakes ---- */

void wg_peer_drop_handshake(struct wg_peer *peer)
{
    if (!peer->handshake)
        return;
    wg_index_free(peer->dev, peer->handshake->index);
    secret_wipe(peer->handshake, sizeof *peer->handshake);
    free(peer->handshake);
    peer->handshake = NULL;
}

void wg_peer_drop_keys(struct wg_peer *peer)
{
    wg_peer_drop_handshake(peer);
    wg_keypair_drop_all(peer);
}

bool wg_peer_static_dh(struct wg_peer *peer)
{
    if (peer->static_dh == WG_STATIC_DH_UNKNOWN)
        peer->static_dh = x25519(peer->static_shared, peer->dev->identity.private_key, peer->public_key)
                              ? WG_STATIC_DH_OK
                              : WG_STATIC_DH_BAD;
    return peer->static_dh == WG_STATIC_DH_OK;
}

void wg_peer_initiate(struct wg_peer *peer, uint64_t mono, bool retry)
{
    struct wg_endpoint e;
    if (!retry)
        peer->handshake_attempts = 0;
    if (!peer->dev->up || !peer->dev->has_key || peer->removed || peer->pending & WG_PENDING_INITIATION)
        return;
    if (!wg_peer_endpoint(peer, &e) && !peer->host)
        return;
    uint64_t earliest = peer->handshake_sent_at + WG_REKEY_TIMEOUT;
    if (!peer->handshake_sent || mono >= earliest)
        wg_peer_pend(peer, WG_PENDING_INITIATION);
    else if (!wg_timers_trying(peer))
        wg_timers_initiation_late(peer, earliest);
}

void wg_peer_want_handshake(struct wg_peer *peer, const struct wg_now *now)
{
    wg_peer_initiate(peer, now->mono, false);
}

/* ---- data ---- */

struct wg_keypair *wg_peer_current(struct wg_peer *peer, const struct wg_now *now, bool *rekey)
{
    struct wg_keypair *kp = __atomic_load_n(&peer->current, __ATOMIC_ACQUIRE);
    bool ok = kp && wg_keypair_usable(kp, now) &&
              __atomic_load_n(&kp->send_counter, __ATOMIC_RELAXED) < WG_REJECT_AFTER_MESSAGES;
    *rekey = !ok;
    return ok ? kp : NULL;
}

enum wg_send wg_peer_send_key(struct wg_peer *peer, const struct wg_now *now, struct wg_keypair **kp)
{
    struct wg_endpoint e;
    bool rekey;
    *kp = NULL;
    if (!peer->dev->up || !peer->dev->has_key || peer->removed)
        return WG_SEND_DOWN;
    if (!wg_peer_endpoint(peer, &e) && !peer->host)
        return WG_SEND_NO_ENDPOINT;
    *kp = wg_peer_current(peer, now, &rekey);
    if (*kp && e.family != WG_FAMILY_NONE)
        return WG_SEND_OK;
    *kp = NULL;
    wg_peer_initiate(peer, now->mono, false);
    return WG_SEND_STAGE;
}

void wg_peer_sent(struct wg_peer *peer, struct wg_keypair *kp, const struct wg_now *now, unsigned data_packets,
                  uint64_t bytes)
{
    if (peer->removed)
        return;
    peer->tx_bytes += bytes;
    wg_timers_any_sent(peer, now->mono);
    if (data_packets)
        wg_timers_data_sent(peer, now->mono);
    if (kp != peer->current)
        return;
    if (__atomic_load_n(&kp->send_counter, __ATOMIC_RELAXED) > WG_REKEY_AFTER_MESSAGES ||
        (kp->initiator && now->boot - kp->birth >= WG_REKEY_AFTER_TIME))
        wg_peer_initiate(peer, now->mono, false);
}

bool wg_peer_received(struct wg_peer *peer, struct wg_keypair *kp, const struct wg_now *now,
                      const struct wg_endpoint *from, unsigned flags, uint64_t bytes)
{
    if (peer->removed || kp->dead)
        return false;
    peer->rx_bytes += bytes;
    wg_peer_learn(peer, from);
    bool confirmed = wg_keypair_confirm(peer, kp);
    if (confirmed)
        wg_timers_handshake_complete(peer, now);
    wg_timers_any_received(peer, now->mono);
    if (flags & WG_RECEIVED_DATA)
        wg_timers_data_received(peer, now->mono);
    struct wg_keypair *current = peer->current;
    if (current && current->initiator && !current->asked_rekey &&
        now->boot - current->birth >= WG_REKEY_RECEIVING_TIME) {
        current->asked_rekey = true;
        wg_peer_initiate(peer, now->mono, false);
    }
    return confirmed;
}

/* ---- where the peer is ---- */

bool wg_peer_endpoint(const struct wg_peer *peer, struct wg_endpoint *e)
{
    return wg_endpoint_get(&peer->endpoint, e);
}

void wg_peer_learn(struct wg_peer *peer, const struct wg_endpoint *from)
{
    if (from->family != WG_FAMILY_NONE)
        wg_endpoint_put(&peer->endpoint, from);
}

void wg_peer_set_endpoint(struct wg_peer *peer, const struct wg_endpoint *e, const struct wg_now *now)
{
    struct wg_endpoint old, bare = *e;
    bool known = wg_peer_endpoint(peer, &old);
    bare.local_family = WG_FAMILY_NONE;
    memset(bare.local, 0, sizeof bare.local);
    bare.local_ifindex = 0;
    if (known && old.family == bare.family && old.port == bare.port && old.scope == bare.scope &&
        memcmp(old.address, bare.address, sizeof old.address) == 0)
        return;
    wg_endpoint_put(&peer->endpoint, &bare);
    if (!peer->dev->up)
        return;
    wg_peer_pend(peer, WG_PENDING_FLUSH);
    if (!known && peer->persistent_keepalive)
        wg_peer_pend(peer, WG_PENDING_KEEPALIVE);
    if (wg_timers_trying(peer)) /* what is in flight went elsewhere, or nowhere */
        wg_peer_initiate(peer, now->mono, false);
}

void wg_peer_forget_source(struct wg_peer *peer)
{
    struct wg_endpoint e;
    if (!wg_peer_endpoint(peer, &e) || e.local_family == WG_FAMILY_NONE)
        return;
    e.local_family = WG_FAMILY_NONE;
    memset(e.local, 0, sizeof e.local);
    e.local_ifindex = 0;
    wg_endpoint_put(&peer->endpoint, &e);
}

int wg_peer_set_host(struct wg_peer *peer, const char *text, size_t n)
{
    char *host = NULL;
    if (text) {
        host = malloc(n + 1);
        if (!host)
            return -ENOMEM;
        memcpy(host, text, n);
        host[n] = '\0';
        wg_peer_pend(peer, WG_PENDING_RESOLVE);
    } else if (peer->pending) {
        wg_peer_pend_done(peer, WG_PENDING_RESOLVE);
    }
    free(peer->host);
    peer->host = host;
    return 0;
}

/* ---- configuration and facts ---- */

void wg_peer_set_preshared_key(struct wg_peer *peer, const uint8_t key[32])
{
    memcpy(peer->preshared_key, key, 32);
}

void wg_peer_set_persistent_keepalive(struct wg_peer *peer, uint16_t seconds)
{
    uint16_t before = peer->persistent_keepalive;
    peer->persistent_keepalive = seconds;
    if (!seconds)
        wg_timers_persistent_off(peer);
    else if (!before && peer->dev->up)
        wg_peer_pend(peer, WG_PENDING_KEEPALIVE);
}

void wg_peer_info(const struct wg_peer *peer, struct wg_peer_info *info)
{
    *info = (struct wg_peer_info){
        .public_key = peer->public_key,
        .host = peer->host,
        .tx_bytes = peer->tx_bytes,
        .rx_bytes = peer->rx_bytes,
        .handshake_sec = peer->handshake_sec,
        .handshake_nsec = peer->handshake_nsec,
        .handshake_boot = peer->handshake_boot,
        .persistent_keepalive = peer->persistent_keepalive,
        .handshake_attempts = peer->handshake_attempts,
    };
}

const char *wg_peer_host(const struct wg_peer *peer)
{
    return peer->host;
}

struct wg_device *wg_peer_device(const struct wg_peer *peer)
{
    return peer->dev;
}

void **wg_peer_user(struct wg_peer *peer)
{
    return &peer->user;
}

struct wg_peer *wg_peer_next(struct wg_peer *peer)
{
    return peer->list_next;
}
