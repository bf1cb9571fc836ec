/* A peer's five timers. Everybody else reports what has happened; only this file arms and stops.
 *
 *   retransmit      5 s + jitter after an initiation; gives up after 20 of them
 *   keepalive       10 s after data came with nothing going back. Data that comes while it runs is answered by that
 *                   same keepalive (the kernel notes it for another round, which the sending then cancels)
 *   new handshake   15 s + jitter after data went with nothing coming back
 *   zero keys       540 s after the last new keypair
 *   persistent      so many seconds after the last authenticated packet either way
 *
 * One heap a device, by a peer's earliest timer. Every batch moves timers, nearly always later, so a heap entry may be
 * too early and is put right when it comes to the top; only moving one earlier touches the heap at once. */
#ifndef FV_WG_TIMERS_H
#define FV_WG_TIMERS_H

#include "wg/wg.h"

struct wg_heap_entry {
    uint64_t when; /* at or before the peer's earliest timer */
    struct wg_peer *peer;
};

struct wg_heap {
    struct wg_heap_entry *entries; /* [0] is not used */
    uint32_t used, size;
};

/* Room for n peers: called when one is added, so that arming never allocates. */
bool wg_heap_reserve(struct wg_heap *heap, uint32_t n);

void wg_timers_init(struct wg_peer *peer);
void wg_timers_stop(struct wg_peer *peer);

/* Events. Times are mono. */
void wg_timers_data_sent(struct wg_peer *peer, uint64_t mono);
void wg_timers_data_received(struct wg_peer *peer, uint64_t mono);
void wg_timers_any_sent(struct wg_peer *peer, uint64_t mono);     /* authenticated: data, keepalive, handshake */
void wg_timers_any_received(struct wg_peer *peer, uint64_t mono);
void wg_timers_initiation_sent(struct wg_peer *peer, uint64_t mono);
void wg_timers_initiation_late(struct wg_peer *peer, uint64_t when); /* wanted, but may not go before `when` */
void wg_timers_handshake_complete(struct wg_peer *peer, const struct wg_now *now);
void wg_timers_keypair_made(struct wg_peer *peer, uint64_t mono);
void wg_timers_persistent_off(struct wg_peer *peer);
/* True while initiations are being sent or wanted. */
bool wg_timers_trying(const struct wg_peer *peer);

uint64_t wg_timers_next(struct wg_device *dev);
/* Lets one timer that is due expire; it leaves what is to be done pending. False: none was due. */
bool wg_timers_expire(struct wg_device *dev, const struct wg_now *now);

#endif
