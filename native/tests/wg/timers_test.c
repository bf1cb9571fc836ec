/* The heap against a linear search, and what arming and stopping do to it. What the timers mean is sim_test's. */
#include "wg/timers.c"

#include "tests/check.h"

enum { N = 300 };

static struct wg_device *dev;
static struct wg_peer *peers[N];
static struct wg_now now;

static void setup(unsigned n)
{
    uint8_t seed[32] = {9}, key[32] = {0};
    dev = wg_device_new(seed, NULL);
    for (unsigned i = 0; i < n; i++) {
        store_le32(key, i + 1);
        peers[i] = wg_peer_new(dev, key);
    }
}

static uint64_t earliest(unsigned n)
{
    uint64_t when = WG_NEVER;
    for (unsigned i = 0; i < n; i++)
        for (unsigned t = 0; t < WG_TIMER_COUNT; t++)
            if (peers[i])
                when = MIN(when, peers[i]->when[t]);
    return when;
}

static bool heap_is_sound(const struct wg_heap *heap)
{
    for (uint32_t i = 1; i <= heap->used; i++) {
        if (heap->entries[i].peer->heap_at != i || (i > 1 && heap->entries[i / 2].when > heap->entries[i].when))
            return false;
        if (heap->entries[i].when > heap->entries[i].peer->when[timer_first(heap->entries[i].peer)])
            return false;
    }
    return true;
}

static void test_random(void)
{
    uint64_t x = 99;
    unsigned wrong = 0, expired = 0;
    setup(N);
    now.mono = 1000;
    for (unsigned i = 0; i < 30000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        unsigned who = (unsigned)(x % N), timer = (unsigned)((x >> 20) % WG_TIMER_COUNT);
        if (peers[who]) {
            if (x >> 62)
                timer_arm(peers[who], (enum wg_timer)timer, now.mono + (x >> 30) % 5000);
            else
                timer_stop(peers[who], (enum wg_timer)timer);
            if (i % 1000 == 999) {
                wg_peer_remove(peers[who]);
                peers[who] = NULL;
            }
        }
        if (i % 3 == 0)
            wrong += wg_timers_next(dev) != earliest(N);
        if (i % 10 == 0) {
            now.mono += 200;
            for (uint64_t when; (when = earliest(N)) <= now.mono; expired++)
                if (!wg_timers_expire(dev, &now) || earliest(N) < when) {
                    wrong++;
                    break;
                }
            wrong += wg_timers_expire(dev, &now);
        }
        if (i % 100 == 0)
            wrong += !heap_is_sound(&dev->heap);
    }
    CHECK_EQ(wrong, 0);
    CHECK(expired > 10000);
    wg_device_free(dev);
}

static void test_events(void)
{
    setup(1);
    struct wg_peer *p = peers[0];
    uint64_t t = 50 * WG_SECOND;
    CHECK_EQ(wg_timers_next(dev), WG_NEVER);
    wg_timers_data_sent(p, t);
    CHECK(p->when[WG_TIMER_NEW_HANDSHAKE] >= t + 15 * WG_SECOND &&
          p->when[WG_TIMER_NEW_HANDSHAKE] < t + 15 * WG_SECOND + 334 * WG_MS);
    uint64_t first = p->when[WG_TIMER_NEW_HANDSHAKE];
    wg_timers_data_sent(p, t + WG_SECOND); /* the first one counts */
    CHECK(p->when[WG_TIMER_NEW_HANDSHAKE] == first);
    wg_timers_any_received(p, t);
    CHECK(p->when[WG_TIMER_NEW_HANDSHAKE] == WG_NEVER);
    wg_timers_data_received(p, t);
    CHECK(p->when[WG_TIMER_KEEPALIVE] == t + 10 * WG_SECOND);
    wg_timers_data_received(p, t + WG_SECOND);
    CHECK(p->when[WG_TIMER_KEEPALIVE] == t + 10 * WG_SECOND);
    wg_timers_any_sent(p, t);
    CHECK(p->when[WG_TIMER_KEEPALIVE] == WG_NEVER);
    CHECK(p->when[WG_TIMER_PERSISTENT] == WG_NEVER);
    p->persistent_keepalive = 25;
    wg_timers_any_sent(p, t);
    CHECK(p->when[WG_TIMER_PERSISTENT] == t + 25 * WG_SECOND);
    wg_timers_any_received(p, t + WG_SECOND);
    CHECK(p->when[WG_TIMER_PERSISTENT] == t + 26 * WG_SECOND);
    uint64_t low = WG_NEVER, high = 0;
    for (unsigned i = 0; i < 2000; i++) {
        wg_timers_initiation_sent(p, t);
        low = MIN(low, p->when[WG_TIMER_RETRANSMIT] - t);
        high = MAX(high, p->when[WG_TIMER_RETRANSMIT] - t);
    }
    CHECK(low >= 5 * WG_SECOND && low < 5 * WG_SECOND + 5 * WG_MS);
    CHECK(high < 5 * WG_SECOND + 334 * WG_MS && high > 5 * WG_SECOND + 328 * WG_MS);
    CHECK(wg_timers_trying(p));
    wg_timers_handshake_complete(p, &now);
    CHECK(!wg_timers_trying(p));
    wg_timers_keypair_made(p, t);
    CHECK(p->when[WG_TIMER_ZERO_KEYS] == t + 540 * WG_SECOND);
    wg_timers_stop(p);
    CHECK_EQ(wg_timers_next(dev), WG_NEVER);
    CHECK_EQ(dev->heap.used, 0);
    wg_device_free(dev);
}

int main(void)
{
    test_random();
    test_events();
    return check_done();
}
