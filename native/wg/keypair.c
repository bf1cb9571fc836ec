#include "wg/keypair.h"

#include <stdlib.h>

#include "crypto/secret.h"
#include "wg/device.h"
#include "wire/bytes.h"

struct wg_index_table *wg_index_table_new(uint32_t size)
{
    struct wg_index_table *t = calloc(1, sizeof *t + size * sizeof t->slots[0]);
    if (t)
        t->mask = size - 1;
    return t;
}

/* Failing to grow is no failure while there is a free place left. */
static void index_grow(struct wg_device *dev)
{
    struct wg_index_table *old = dev->indices, *bigger = NULL;
    if (old->mask < 1u << 30)
        bigger = wg_index_table_new((old->mask + 1) * 2);
    if (!bigger)
        return;
    bigger->used = old->used;
    for (uint32_t i = 0; i <= old->mask; i++) {
        const struct wg_index_slot *s = &old->slots[i];
        if (s->keypair || s->peer)
            bigger->slots[(s->peer ? s->index : s->keypair->local_index) & bigger->mask] = *s;
    }
    __atomic_store_n(&dev->indices, bigger, __ATOMIC_RELEASE);
    old->next = dev->fresh.tables;
    dev->fresh.tables = old;
}

bool wg_index_new(struct wg_device *dev, struct wg_peer *peer, uint32_t *index)
{
    if (dev->indices->used > dev->indices->mask / 2)
        index_grow(dev);
    struct wg_index_table *t = dev->indices;
    if (t->used > t->mask)
        return false;
    struct wg_index_slot *s;
    do {
        *index = random_u32(&dev->random);
        s = &t->slots[*index & t->mask];
    } while (s->keypair || s->peer);
    s->peer = peer;
    s->index = *index;
    t->used++;
    return true;
}

void wg_index_free(struct wg_device *dev, uint32_t index)
{
    struct wg_index_table *t = dev->indices;
    struct wg_index_slot *s = &t->slots[index & t->mask];
    __atomic_store_n(&s->keypair, NULL, __ATOMIC_RELEASE);
    s->peer = NULL;
    t->used--;
}

struct wg_keypair *wg_keypair_find(struct wg_device *dev, uint32_t receiver_index)
{
    struct wg_index_table *t = __atomic_load_n(&dev->indices, __ATOMIC_ACQUIRE);
    struct wg_keypair *kp = __atomic_load_n(&t->slots[receiver_index & t->mask].keypair, __ATOMIC_ACQUIRE);
    return kp && kp->local_index == receiver_index ? kp : NULL;
}

struct wg_peer *wg_index_peer(struct wg_device *dev, uint32_t index)
{
    const struct wg_index_slot *s = &dev->indices->slots[index & dev->indices->mask];
    if (s->peer)
        return s->index == index ? s->peer : NULL;
    return s->keypair && s->keypair->local_index == index ? s->keypair->peer : NULL;
}

static void keypair_retire(struct wg_keypair *kp)
{
    if (!kp)
        return;
    struct wg_device *dev = kp->peer->dev;
    __atomic_store_n(&kp->dead, 1, __ATOMIC_RELEASE);
    wg_index_free(dev, kp->local_index);
    kp->next_retired = dev->fresh.keypairs;
    dev->fresh.keypairs = kp;
}

static void keypair_set_current(struct wg_peer *peer, struct wg_keypair *kp)
{
    __atomic_store_n(&peer->current, kp, __ATOMIC_RELEASE);
}

struct wg_keypair *wg_keypair_begin(struct wg_peer *peer, const struct wg_now *now, const struct wg_session_keys *keys,
                                    uint32_t local_index, uint32_t remote_index, bool initiator)
{
    struct wg_device *dev = peer->dev;
    struct wg_keypair *kp = calloc(1, sizeof *kp);
    if (!kp) {
        wg_index_free(dev, local_index);
        return NULL;
    }
    memcpy(kp->receive_key, keys->receive, 32);
    memcpy(kp->send_key, keys->send, 32);
    kp->birth = now->boot;
    kp->peer = peer;
    kp->local_index = local_index;
    kp->remote_index = remote_index;
    kp->initiator = initiator;

    struct wg_index_slot *s = &dev->indices->slots[local_index & dev->indices->mask];
    s->peer = NULL;
    __atomic_store_n(&s->keypair, kp, __ATOMIC_RELEASE);

    if (!initiator) {
        keypair_retire(peer->next);
        keypair_retire(peer->previous);
        peer->next = kp;
        peer->previous = NULL;
        return kp;
    }
    struct wg_keypair *old = peer->current;
    keypair_retire(peer->previous);
    keypair_set_current(peer, kp);
    if (peer->next) { /* the peer may be using it already: it is younger than the current one */
        peer->previous = peer->next;
        peer->next = NULL;
        keypair_retire(old);
    } else {
        peer->previous = old;
    }
    return kp;
}

bool wg_keypair_confirm(struct wg_peer *peer, struct wg_keypair *kp)
{
    if (kp != peer->next)
        return false;
    keypair_retire(peer->previous);
    peer->previous = peer->current;
    peer->next = NULL;
    keypair_set_current(peer, kp);
    return true;
}

void wg_keypair_drop_all(struct wg_peer *peer)
{
    struct wg_keypair *current = peer->current;
    keypair_set_current(peer, NULL);
    keypair_retire(current);
    keypair_retire(peer->previous);
    keypair_retire(peer->next);
    peer->previous = peer->next = NULL;
}

void wg_keypair_destroy(struct wg_keypair *kp)
{
    secret_wipe(kp, sizeof *kp);
    free(kp);
}

/* Signed: another thread's `now` may be a turn older than the keypair. */
bool wg_keypair_usable(const struct wg_keypair *kp, const struct wg_now *now)
{
    return !__atomic_load_n(&kp->dead, __ATOMIC_ACQUIRE) &&
           (int64_t)(now->boot - kp->birth) < (int64_t)WG_REJECT_AFTER_TIME;
}

/* Compare and swap, not an addition: refused attempts must never bring the counter round to zero. */
bool wg_keypair_counters(struct wg_keypair *kp, unsigned n, uint64_t *first)
{
    uint64_t at = __atomic_load_n(&kp->send_counter, __ATOMIC_RELAXED);
    do {
        if (at > WG_REJECT_AFTER_MESSAGES - n)
            return false;
    } while (!__atomic_compare_exchange_n(&kp->send_counter, &at, at + n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    *first = at;
    return true;
}

bool wg_keypair_accept(struct wg_keypair *kp, uint64_t counter)
{
    return wg_replay_accept(&kp->replay, counter);
}
