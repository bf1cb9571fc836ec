#include "wg/timers.h"

#include <stdlib.h>

#include "wg/device.h"
#include "wire/bytes.h"

/* ---- the heap ---- */

bool wg_heap_reserve(struct wg_heap *heap, uint32_t n)
{
    if (n < heap->size)
        return true;
    uint32_t size = MAX(16u, heap->size);
    while (size <= n)
        size += size / 2;
    struct wg_heap_entry *entries = realloc(heap->entries, size * sizeof *entries);
    if (!entries)
        return false;
    heap->entries = entries;
    heap->size = size;
    return true;
}

static void heap_place(struct wg_heap *heap, uint32_t at, struct wg_heap_entry e)
{
    heap->entries[at] = e;
    e.peer->heap_at = at;
}

static void heap_up(struct wg_heap *heap, uint32_t at, struct wg_heap_entry e)
{
    for (; at > 1 && heap->entries[at / 2].when > e.when; at /= 2)
        heap_place(heap, at, heap->entries[at / 2]);
    heap_place(heap, at, e);
}

static void heap_down(struct wg_heap *heap, uint32_t at, struct wg_heap_entry e)
{
    for (uint32_t child; (child = at * 2) <= heap->used; at = child) {
        if (child < heap->used && heap->entries[child + 1].when < heap->entries[child].when)
            child++;
        if (heap->entries[child].when >= e.when)
            break;
        heap_place(heap, at, heap->entries[child]);
    }
    heap_place(heap, at, e);
}

static void heap_remove(struct wg_heap *heap, struct wg_peer *peer)
{
    uint32_t at = peer->heap_at;
    if (!at)
        return;
    peer->heap_at = 0;
    struct wg_heap_entry last = heap->entries[heap->used--];
    if (last.peer == peer)
        return;
    if (at > 1 && heap->entries[at / 2].when > last.when)
        heap_up(heap, at, last);
    else
        heap_down(heap, at, last);
}

/* ---- one peer's timers ---- */

static void timer_arm(struct wg_peer *peer, enum wg_timer timer, uint64_t when)
{
    struct wg_heap *heap = &peer->dev->heap;
    peer->when[timer] = when;
    if (!peer->heap_at)
        heap_up(heap, ++heap->used, (struct wg_heap_entry){when, peer});
    else if (when < heap->entries[peer->heap_at].when)
        heap_up(heap, peer->heap_at, (struct wg_heap_entry){when, peer});
}

static void timer_stop(struct wg_peer *peer, enum wg_timer timer)
{
    peer->when[timer] = WG_NEVER;
}

static bool timer_runs(const struct wg_peer *peer, enum wg_timer timer)
{
    return peer->when[timer] != WG_NEVER;
}

static enum wg_timer timer_first(const struct wg_peer *peer)
{
    unsigned first = 0;
    for (unsigned i = 1; i < WG_TIMER_COUNT; i++)
        if (peer->when[i] < peer->when[first])
            first = i;
    return (enum wg_timer)first;
}

static uint64_t timer_jitter(struct wg_peer *peer)
{
    return random_below(&peer->dev->random, WG_REKEY_JITTER_MAX);
}

void wg_timers_init(struct wg_peer *peer)
{
    for (unsigned i = 0; i < WG_TIMER_COUNT; i++)
        peer->when[i] = WG_NEVER;
    peer->heap_at = 0;
}

void wg_timers_stop(struct wg_peer *peer)
{
    heap_remove(&peer->dev->heap, peer);
    wg_timers_init(peer);
    peer->handshake_attempts = 0;
}

/* ---- events ---- */

static void timers_traversed(struct wg_peer *peer, uint64_t mono)
{
    if (peer->persistent_keepalive)
        timer_arm(peer, WG_TIMER_PERSISTENT, mono + peer->persistent_keepalive * WG_SECOND);
}

void wg_timers_data_sent(struct wg_peer *peer, uint64_t mono)
{
    if (!timer_runs(peer, WG_TIMER_NEW_HANDSHAKE))
        timer_arm(peer, WG_TIMER_NEW_HANDSHAKE, mono + WG_KEEPALIVE_TIMEOUT + WG_REKEY_TIMEOUT + timer_jitter(peer));
}

void wg_timers_data_received(struct wg_peer *peer, uint64_t mono)
{
    if (!timer_runs(peer, WG_TIMER_KEEPALIVE))
        timer_arm(peer, WG_TIMER_KEEPALIVE, mono + WG_KEEPALIVE_TIMEOUT);
}

void wg_timers_any_sent(struct wg_peer *peer, uint64_t mono)
{
    timer_stop(peer, WG_TIMER_KEEPALIVE);
    timers_traversed(peer, mono);
}

void wg_timers_any_received(struct wg_peer *peer, uint64_t mono)
{
    timer_stop(peer, WG_TIMER_NEW_HANDSHAKE);
    timers_traversed(peer, mono);
}

void wg_timers_initiation_sent(struct wg_peer *peer, uint64_t mono)
{
    timer_arm(peer, WG_TIMER_RETRANSMIT, mono + WG_REKEY_TIMEOUT + timer_jitter(peer));
}

void wg_timers_initiation_late(struct wg_peer *peer, uint64_t when)
{
    timer_arm(peer, WG_TIMER_RETRANSMIT, when + timer_jitter(peer));
}

void wg_timers_handshake_complete(struct wg_peer *peer, const struct wg_now *now)
{
    timer_stop(peer, WG_TIMER_RETRANSMIT);
    peer->pending &= (uint8_t)~WG_PENDING_INITIATION;
    peer->handshake_attempts = 0;
    peer->handshake_sec = now->wall_sec;
    peer->handshake_nsec = now->wall_nsec;
    peer->handshake_boot = now->boot;
}

void wg_timers_keypair_made(struct wg_peer *peer, uint64_t mono)
{
    timer_arm(peer, WG_TIMER_ZERO_KEYS, mono + WG_ZERO_AFTER_TIME);
}

void wg_timers_persistent_off(struct wg_peer *peer)
{
    timer_stop(peer, WG_TIMER_PERSISTENT);
}

bool wg_timers_trying(const struct wg_peer *peer)
{
    return timer_runs(peer, WG_TIMER_RETRANSMIT) || peer->pending & WG_PENDING_INITIATION;
}

/* ---- expiry ---- */

static void retransmit_expired(struct wg_peer *peer, uint64_t mono)
{
    if (peer->handshake_attempts > WG_RETRIES_MAX) {
        timer_stop(peer, WG_TIMER_KEEPALIVE);
        wg_peer_pend(peer, WG_PENDING_DROP_STAGED);
        if (!timer_runs(peer, WG_TIMER_ZERO_KEYS))
            timer_arm(peer, WG_TIMER_ZERO_KEYS, mono + WG_ZERO_AFTER_TIME);
        return;
    }
    /* A name may mean another address by now: asked anew at the first failure and every third after. */
    if (peer->host && peer->handshake_attempts % 3 == 0)
        wg_peer_pend(peer, WG_PENDING_RESOLVE);
    peer->handshake_attempts++;
    wg_peer_forget_source(peer);
    wg_peer_initiate(peer, mono, true);
}

static void timer_expired(struct wg_peer *peer, enum wg_timer timer, uint64_t mono)
{
    switch (timer) {
    case WG_TIMER_RETRANSMIT:
        retransmit_expired(peer, mono);
        break;
    case WG_TIMER_KEEPALIVE:
        wg_peer_pend(peer, WG_PENDING_KEEPALIVE);
        break;
    case WG_TIMER_NEW_HANDSHAKE:
        wg_peer_forget_source(peer);
        wg_peer_initiate(peer, mono, false);
        break;
    case WG_TIMER_ZERO_KEYS:
        wg_peer_drop_keys(peer);
        break;
    case WG_TIMER_PERSISTENT:
        if (peer->persistent_keepalive)
            wg_peer_pend(peer, WG_PENDING_KEEPALIVE);
        break;
    case WG_TIMER_COUNT:
        break;
    }
}

/* Puts the top of the heap right. False: empty. */
static bool heap_settle(struct wg_heap *heap)
{
    while (heap->used) {
        struct wg_heap_entry top = heap->entries[1];
        uint64_t when = top.peer->when[timer_first(top.peer)];
        if (when == top.when)
            return true;
        if (when == WG_NEVER)
            heap_remove(heap, top.peer);
        else
            heap_down(heap, 1, (struct wg_heap_entry){when, top.peer});
    }
    return false;
}

uint64_t wg_timers_next(struct wg_device *dev)
{
    return heap_settle(&dev->heap) ? dev->heap.entries[1].when : WG_NEVER;
}

bool wg_timers_expire(struct wg_device *dev, const struct wg_now *now)
{
    if (!heap_settle(&dev->heap) || dev->heap.entries[1].when > now->mono)
        return false;
    struct wg_peer *peer = dev->heap.entries[1].peer;
    enum wg_timer timer = timer_first(peer);
    timer_stop(peer, timer);
    timer_expired(peer, timer, now->mono);
    return true;
}
