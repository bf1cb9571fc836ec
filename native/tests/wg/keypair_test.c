/* The table of indices, the three slots, and counters taken by several threads. */
#include "wg/keypair.c"

#include <pthread.h>

#include "tests/check.h"

static struct wg_device *dev;
static struct wg_peer *peer;
static struct wg_now now = {.mono = 1, .boot = 500 * WG_SECOND};

static void setup(void)
{
    uint8_t seed[32] = {8}, key[32] = {9};
    dev = wg_device_new(seed, NULL);
    peer = wg_peer_new(dev, key);
}

static struct wg_keypair *begin(bool initiator)
{
    static const struct wg_session_keys keys = {{1}, {2}};
    uint32_t index = 0;
    CHECK(wg_index_new(dev, peer, &index));
    CHECK(wg_index_peer(dev, index) == peer);
    return wg_keypair_begin(peer, &now, &keys, index, 7, initiator);
}

static void reclaim(void)
{
    wg_device_retire(dev);
    wg_device_reclaim(dev);
}

static bool slots(const struct wg_keypair *previous, const struct wg_keypair *current, const struct wg_keypair *next)
{
    return peer->previous == previous && peer->current == current && peer->next == next;
}

/* A case is a line. */
/* clang-format off */
static void test_slots(void)
{
    setup();
    /*  1: initiator: current at once */             struct wg_keypair *a = begin(true); CHECK(slots(NULL, a, NULL));
    /*  2: again: the old one is previous */         struct wg_keypair *b = begin(true); CHECK(slots(a, b, NULL));
    /*  3: and again: the oldest dies */             struct wg_keypair *c = begin(true); CHECK(slots(b, c, NULL));
    CHECK(a->dead && !b->dead && wg_keypair_find(dev, a->local_index) == NULL);
    /*  4: responder: waits in next, previous dies */ struct wg_keypair *d = begin(false); CHECK(slots(NULL, c, d));
    CHECK(b->dead);
    /*  5: another one replaces it */                struct wg_keypair *e = begin(false); CHECK(slots(NULL, c, e));
    CHECK(d->dead);
    /*  6: data under current confirms nothing */    CHECK(!wg_keypair_confirm(peer, c)); CHECK(slots(NULL, c, e));
    /*  7: data under next promotes it */            CHECK(wg_keypair_confirm(peer, e)); CHECK(slots(c, e, NULL));
    /*  8: once */                                   CHECK(!wg_keypair_confirm(peer, e));
    /*  9: initiator with one in next: that stays */ struct wg_keypair *f = begin(false), *g = begin(true);
    CHECK(slots(f, g, NULL) && e->dead && c->dead);
    /* 10: all found by index, until dropped */      CHECK(wg_keypair_find(dev, f->local_index) == f);
    CHECK(wg_keypair_find(dev, g->local_index) == g);
    CHECK(wg_keypair_find(dev, g->local_index + dev->indices->mask + 1) == NULL);
    uint32_t index = g->local_index;
    CHECK(wg_index_peer(dev, index) == peer);
    wg_keypair_drop_all(peer);
    CHECK(slots(NULL, NULL, NULL) && g->dead);
    CHECK(wg_keypair_find(dev, index) == NULL && wg_index_peer(dev, index) == NULL);
    CHECK(!wg_keypair_usable(g, &now));
    CHECK_EQ(dev->indices->used, 0);
    reclaim();
    wg_device_free(dev);
}

/* clang-format on */

/* Indices are unique, found while the table grows, and their places come free again. */
static void test_table(void)
{
    enum { N = 5000 };
    static uint32_t index[N];
    setup();
    for (unsigned i = 0; i < N; i++)
        CHECK(wg_index_new(dev, peer, &index[i]));
    CHECK(dev->indices->mask + 1 >= N && dev->indices->used == N);
    unsigned wrong = 0;
    for (unsigned i = 0; i < N; i++) {
        wrong += wg_index_peer(dev, index[i]) != peer;
        for (unsigned j = 0; j < i; j++)
            wrong += index[i] == index[j];
    }
    CHECK_EQ(wrong, 0);
    for (unsigned i = 0; i < N; i += 2)
        wg_index_free(dev, index[i]);
    for (unsigned i = 0; i < N; i++)
        wrong += (wg_index_peer(dev, index[i]) == peer) != (i % 2 == 1);
    CHECK_EQ(wrong, 0);
    CHECK_EQ(dev->indices->used, N / 2);
    for (unsigned i = 1; i < N; i += 2)
        wg_index_free(dev, index[i]);
    uint32_t before = dev->indices->mask;
    for (unsigned i = 0; i < 100000; i++) { /* no growth without need */
        CHECK(wg_index_new(dev, peer, &index[0]));
        wg_index_free(dev, index[0]);
    }
    CHECK_EQ(dev->indices->mask, before);
    reclaim();
    wg_device_free(dev);
}

static struct wg_keypair *shared;
enum { THREADS = 4, TAKES = 50000 };
static uint64_t taken[THREADS];
static uint8_t used[THREADS * TAKES * 3];

static void *taker(void *arg)
{
    uint64_t *count = arg, first;
    for (unsigned i = 0; i < TAKES; i++)
        if (wg_keypair_counters(shared, 1 + i % 3, &first))
            for (unsigned j = 0; j < 1 + i % 3; j++, ++*count)
                __atomic_fetch_add(&used[first + j], 1, __ATOMIC_RELAXED);
    return NULL;
}

static void test_counters(void)
{
    pthread_t threads[THREADS];
    uint64_t first = 0, sum = 0;
    unsigned wrong = 0;
    setup();
    shared = begin(true);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, taker, &taken[i]), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += taken[i];
    }
    CHECK_EQ(shared->send_counter, sum);
    for (uint64_t i = 0; i < sum; i++)
        wrong += used[i] != 1;
    CHECK_EQ(wrong, 0);
    /* At the limit: a range that does not fit is refused, however often; a smaller one still goes. */
    shared->send_counter = WG_REJECT_AFTER_MESSAGES - 3;
    for (unsigned i = 0; i < 100000; i++)
        if (wg_keypair_counters(shared, 4, &first))
            CHECK(!"beyond the limit");
    CHECK(wg_keypair_counters(shared, 3, &first));
    CHECK(first == WG_REJECT_AFTER_MESSAGES - 3);
    CHECK(!wg_keypair_counters(shared, 1, &first));
    wg_device_free(dev);
}

/* Lookups while the owner makes, confirms and drops keypairs and the table grows: what is found is the right one, and
 * the sanitizer sees that nothing freed is read (a reader marks where it is, the owner waits for it). */
static uint32_t wanted[64];
static unsigned passes, finished, mismatches, hits;

static void *finder(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&finished, __ATOMIC_ACQUIRE)) {
        for (unsigned i = 0; i < 64; i++) {
            uint32_t index = __atomic_load_n(&wanted[i], __ATOMIC_RELAXED);
            struct wg_keypair *kp = wg_keypair_find(dev, index);
            if (kp) {
                hits++;
                mismatches += kp->local_index != index || kp->peer != peer || kp->send_key[0] != 1;
            }
        }
        __atomic_fetch_add(&passes, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void test_find_while_changing(void)
{
    pthread_t thread;
    setup();
    CHECK_EQ(pthread_create(&thread, NULL, finder, NULL), 0);
    for (unsigned i = 0; i < 20000; i++) {
        uint32_t extra;
        struct wg_keypair *kp = begin(i % 3 != 0);
        __atomic_store_n(&wanted[i % 64], kp->local_index, __ATOMIC_RELAXED);
        if (i % 6 == 0)
            wg_keypair_confirm(peer, kp);
        if (i % 50 == 0)
            CHECK(wg_index_new(dev, peer, &extra)); /* never freed: the table grows */
        if (i % 500 == 0 && wg_device_retire(dev)) {
            unsigned seen = __atomic_load_n(&passes, __ATOMIC_ACQUIRE);
            while (__atomic_load_n(&passes, __ATOMIC_ACQUIRE) - seen < 2)
                sched_yield();
            wg_device_reclaim(dev);
        }
    }
    __atomic_store_n(&finished, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK_EQ(mismatches, 0);
    CHECK(hits > 0);
    wg_device_free(dev);
}

int main(void)
{
    test_slots();
    test_table();
    test_counters();
    test_find_while_changing();
    return check_done();
}
