/* What a peer is, inside native/wg. Idle it is this struct, its name of an endpoint if it has one, and its allowed IPs;
 * keypairs and a handshake come and go. native/tests/wg/memory_test.c holds the sum to 1 KiB. */
#ifndef FV_WG_PEER_H
#define FV_WG_PEER_H

#include "wg/allowedips.h"
#include "wg/cookie.h"
#include "wg/noise.h"
#include "wg/wg.h"

#define WG_ENDPOINT_WORDS 12u

/* A sequence lock around an endpoint (endpoint.c). */
struct wg_endpoint_lock {
    uint32_t count; /* atomic; odd: being written */
    uint32_t words[WG_ENDPOINT_WORDS];
};
bool wg_endpoint_get(const struct wg_endpoint_lock *lock, struct wg_endpoint *e);
/* False: it was so already. */
bool wg_endpoint_put(struct wg_endpoint_lock *lock, const struct wg_endpoint *e);

/* The five timers (timers.c). */
enum wg_timer {
    WG_TIMER_RETRANSMIT,
    WG_TIMER_KEEPALIVE,
    WG_TIMER_NEW_HANDSHAKE,
    WG_TIMER_ZERO_KEYS,
    WG_TIMER_PERSISTENT,
    WG_TIMER_COUNT
};

/* What waits for wg_device_poll, in the order in which one peer's are given out. */
enum {
    WG_PENDING_DROP_STAGED = 1 << 0,
    WG_PENDING_RESOLVE = 1 << 1,
    WG_PENDING_INITIATION = 1 << 2,
    WG_PENDING_FLUSH = 1 << 3,
    WG_PENDING_KEEPALIVE = 1 << 4,
};

/* The DH of the two static keys, computed when first needed. */
enum wg_static_dh { WG_STATIC_DH_UNKNOWN, WG_STATIC_DH_OK, WG_STATIC_DH_BAD };

struct wg_peer {
    struct wg_keypair *current; /* atomic: any thread reads it */
    struct wg_keypair *previous, *next;
    struct wg_device *dev;
    struct wg_endpoint_lock endpoint;
    uint8_t pending; /* WG_PENDING_* */
    uint8_t static_dh; /* enum wg_static_dh */
    uint8_t handshake_attempts;
    bool removed : 1;
    bool stale : 1; /* a configuration in progress has not named it yet */
    bool handshake_sent : 1; /* handshake_sent_at holds a time */
    bool initiation_seen : 1;
    uint16_t persistent_keepalive; /* seconds, 0: off */
    uint64_t tx_bytes, rx_bytes;
    void *user;

    uint64_t when[WG_TIMER_COUNT]; /* mono, WG_NEVER: off */
    uint32_t heap_at; /* place in the device's heap, from 1; 0: not in it */
    uint32_t handshake_nsec; /* wall time of the last completed handshake */
    int64_t handshake_sec;
    uint64_t handshake_boot;

    struct wg_handshake *handshake; /* our initiation in flight */
    uint64_t handshake_sent_at; /* mono: our last initiation or response */
    uint64_t initiation_seen_at; /* mono: the peer's last one that was taken */
    uint8_t stamp_seen[WG_STAMP_SIZE];
    struct wg_cookie_jar cookies;

    uint8_t public_key[32], preshared_key[32], static_shared[32];
    char *host; /* endpoint as a name, malloc'ed; NULL: numbers */
    uint64_t configured; /* fingerprint of the endpoint as it was last configured, 0: never */

    struct wg_allowed_list allowed;
    struct wg_peer *hash_next; /* by public key */
    struct wg_peer *list_next, *list_prev; /* in order of configuration; list_next also of the retired */
    struct wg_peer *pending_next, *pending_prev; /* those that have something pending */
};

/* NULL: no memory. Not in the device's tables when `public_key` is its own (the caller has looked). */
struct wg_peer *wg_peer_new(struct wg_device *dev, const uint8_t public_key[32]);
void wg_peer_remove(struct wg_peer *peer); /* retires it */
void wg_peer_destroy(struct wg_peer *peer); /* of a retired one: wipes and frees */

void wg_peer_pend(struct wg_peer *peer, unsigned what);
void wg_peer_pend_done(struct wg_peer *peer, unsigned what);
void wg_peer_set_preshared_key(struct wg_peer *peer, const uint8_t key[32]);
void wg_peer_set_persistent_keepalive(struct wg_peer *peer, uint16_t seconds);
/* text: "host:port" of n bytes; NULL: none. */
int wg_peer_set_host(struct wg_peer *peer, const char *text, size_t n);
bool wg_peer_static_dh(struct wg_peer *peer); /* false: zero, every handshake of this peer fails */

/* Initiation wanted: not before 5 s after our last initiation or response. retry: by the retransmit timer. */
void wg_peer_initiate(struct wg_peer *peer, uint64_t mono, bool retry);
/* Forgets keypairs and the handshake. */
void wg_peer_drop_keys(struct wg_peer *peer);
void wg_peer_drop_handshake(struct wg_peer *peer);
/* Something authenticated came from there. */
void wg_peer_learn(struct wg_peer *peer, const struct wg_endpoint *from);

#endif
