/* A device: its peers by key, their going, what waits to be freed, up and down, what is to be done. */
#include "wg/device.c"

#include "tests/check.h"

static struct wg_device *dev;
static struct wg_now now = {.mono = 10 * WG_SECOND, .boot = 20 * WG_SECOND, .wall_sec = 1700000000};
static unsigned removed;

static void hook_removed(void *user, struct wg_peer *peer)
{
    (void)user, (void)peer;
    removed++;
}

static void setup(void)
{
    uint8_t seed[32] = {11};
    struct wg_hooks hooks = {.peer_removed = hook_removed};
    removed = 0;
    dev = wg_device_new(seed, &hooks);
    CHECK(dev != NULL);
}

static void number_key(uint32_t i, uint8_t key[32])
{
    memset(key, 0, 32);
    store_le32(key + 8, i); /* the hash looks at the first eight bytes: all in one chain is the worst case */
    store_le32(key, i / 4);
}

static unsigned actions(enum wg_action wanted)
{
    struct wg_output out;
    unsigned n = 0;
    while (wg_device_poll(dev, &now, &out))
        n += out.action == wanted;
    return n;
}

static void test_peers(void)
{
    enum { N = 3000 };
    uint8_t key[32];
    setup();
    for (uint32_t i = 0; i < N; i++) {
        number_key(i, key);
        CHECK(wg_device_peer(dev, key) == NULL);
        struct wg_peer *peer = wg_peer_new(dev, key);
        CHECK(wg_device_peer(dev, key) == peer);
        *wg_peer_user(peer) = dev;
        CHECK(wg_peer_device(peer) == dev);
    }
    CHECK_EQ(wg_device_peers(dev), N);
    uint32_t i = 0;
    for (struct wg_peer *peer = wg_device_first_peer(dev); peer; peer = wg_peer_next(peer)) { /* in order */
        number_key(i++, key);
        CHECK_MEM(peer->public_key, key, 32);
    }
    CHECK_EQ(i, N);
    for (i = 0; i < N; i += 3) {
        number_key(i, key);
        wg_peer_remove(wg_device_peer(dev, key));
    }
    CHECK_EQ(removed, N / 3);
    for (i = 0; i < N; i++) {
        number_key(i, key);
        CHECK((wg_device_peer(dev, key) != NULL) == (i % 3 != 0));
    }
    wg_device_free(dev);
    CHECK_EQ(removed, N); /* each is told of */
}

/* Nothing is freed before both calls, and what dies between them waits for the next round. */
static void test_reclaim(void)
{
    uint8_t key[32] = {1};
    setup();
    CHECK(!wg_device_retire(dev));
    struct wg_peer *first = wg_peer_new(dev, key);
    key[0] = 2;
    struct wg_peer *second = wg_peer_new(dev, key);
    wg_peer_remove(first);
    CHECK(wg_device_retire(dev));
    wg_peer_remove(second);
    CHECK(wg_device_retire(dev));
    CHECK(dev->closed.peers == first && dev->fresh.peers == second);
    CHECK_EQ(first->public_key[0], 1); /* still readable */
    wg_device_reclaim(dev);
    CHECK(dev->closed.peers == NULL && dev->fresh.peers == second);
    CHECK_EQ(second->public_key[0], 2);
    CHECK(wg_device_retire(dev));
    wg_device_reclaim(dev);
    CHECK(!wg_device_retire(dev));
    wg_device_free(dev);
}

static void test_up_and_down(void)
{
    uint8_t key[32] = {1};
    setup();
    struct wg_peer *a = wg_peer_new(dev, key);
    key[0] = 2;
    struct wg_peer *b = wg_peer_new(dev, key);
    CHECK(!wg_device_is_up(dev));
    CHECK_EQ(wg_device_next(dev), WG_NEVER);
    wg_peer_set_persistent_keepalive(b, 25); /* waits for up */
    CHECK_EQ(wg_device_next(dev), WG_NEVER);
    wg_device_up(dev, &now);
    CHECK(wg_device_is_up(dev));
    CHECK_EQ(wg_device_next(dev), 0);
    struct wg_output out;
    CHECK(wg_device_poll(dev, &now, &out) && out.action == WG_ACTION_FLUSH && out.peer == a);
    CHECK(wg_device_poll(dev, &now, &out) && out.action == WG_ACTION_KEEPALIVE && out.peer == b);
    CHECK(!wg_device_poll(dev, &now, &out));
    CHECK(out.action == WG_ACTION_NONE && out.peer == NULL);
    wg_device_up(dev, &now); /* again: nothing */
    CHECK_EQ(wg_device_next(dev), WG_NEVER);
    wg_device_down(dev);
    CHECK_EQ(actions(WG_ACTION_DROP_STAGED), 2);
    wg_device_down(dev);
    CHECK_EQ(wg_device_next(dev), WG_NEVER);
    /* What is pending goes with its peer. */
    wg_device_up(dev, &now);
    wg_peer_remove(a);
    CHECK_EQ(actions(WG_ACTION_KEEPALIVE), 1);
    wg_device_free(dev);
}

static void test_persist(void)
{
    uint8_t seed[32] = {1}, key[32] = {9}, stamp[WG_STAMP_SIZE], zero[WG_STAMP_SIZE] = {0};
    struct wg_endpoint e = {.family = WG_FAMILY_V4, .port = 1, .address = {192, 0, 2, 1}};
    struct wg_output out;
    setup();
    wg_device_set_private_key(dev, seed);
    wg_device_up(dev, &now);
    struct wg_peer *peer = wg_peer_new(dev, key);
    wg_peer_set_endpoint(peer, &e, &now);
    CHECK_EQ(actions(WG_ACTION_FLUSH), 1);
    wg_device_stamp(dev, stamp);
    CHECK_MEM(stamp, zero, sizeof stamp);
    wg_peer_want_handshake(peer, &now);
    CHECK(wg_device_poll(dev, &now, &out) && out.action == WG_ACTION_PERSIST); /* first written, then sent */
    CHECK(load_be64(out.stamp) - WG_TAI64_BASE == 1700000000 + WG_STAMP_AHEAD);
    wg_device_stamp(dev, stamp);
    CHECK_MEM(stamp, zero, sizeof stamp);
    CHECK(wg_device_poll(dev, &now, &out) && out.action == WG_ACTION_SEND && out.length == WG_INIT_SIZE);
    CHECK(out.public_key_work && out.tos == 0x88 && out.to.port == 1);
    wg_device_stamp(dev, stamp);
    CHECK(load_be64(stamp) - WG_TAI64_BASE == 1700000000);
    CHECK(!wg_device_poll(dev, &now, &out));
    CHECK(wg_device_next(dev) >= now.mono + WG_REKEY_TIMEOUT);
    now.mono += 6 * WG_SECOND; /* the next one needs no writing, and no earlier one is asked for twice */
    CHECK(wg_device_poll(dev, &now, &out) && out.action == WG_ACTION_SEND);
    wg_peer_want_handshake(peer, &now);
    CHECK(!wg_device_poll(dev, &now, &out));
    wg_device_free(dev);
}

/* A peer whose public key makes a zero DH: never a message, never a crash. */
static void test_zero_key(void)
{
    uint8_t seed[32] = {1}, key[32] = {0};
    struct wg_endpoint e = {.family = WG_FAMILY_V4, .port = 1, .address = {192, 0, 2, 1}};
    struct wg_keypair *kp;
    setup();
    wg_device_set_private_key(dev, seed);
    wg_device_up(dev, &now);
    struct wg_peer *peer = wg_peer_new(dev, key);
    wg_peer_set_endpoint(peer, &e, &now);
    CHECK_EQ(wg_peer_send_key(peer, &now, &kp), WG_SEND_STAGE);
    CHECK_EQ(actions(WG_ACTION_SEND), 0);
    CHECK_EQ(wg_device_next(dev), WG_NEVER);
    wg_device_free(dev);
}

/* A worker's clock is read at the beginning of its turn, so it may be older than a keypair that another one has just made:
 * age 0, not an age of centuries. */
static void test_young_keypair(void)
{
    static const struct wg_session_keys keys = {{1}, {2}};
    struct wg_now before = now, later = now;
    uint8_t key[32] = {9};
    uint32_t index = 0;
    bool rekey;
    setup();
    struct wg_peer *peer = wg_peer_new(dev, key);
    CHECK(wg_index_new(dev, peer, &index));
    struct wg_keypair *kp = wg_keypair_begin(peer, &now, &keys, index, 7, true);
    before.boot -= WG_MS;
    CHECK(wg_keypair_usable(kp, &before));
    CHECK(wg_peer_current(peer, &before, &rekey) == kp && !rekey);
    later.boot += WG_REJECT_AFTER_TIME - 1;
    CHECK(wg_keypair_usable(kp, &later));
    later.boot++;
    CHECK(!wg_keypair_usable(kp, &later));
    wg_device_free(dev);
}

int main(void)
{
    test_young_keypair();
    test_peers();
    test_reclaim();
    test_up_and_down();
    test_persist();
    test_zero_key();
    return check_done();
}
