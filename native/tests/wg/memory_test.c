/* 10,000 peers, idle, each with an IPv4 and an IPv6 prefix, an endpoint and a persistent keepalive: at most 1 KiB each,
 * all in all, counted by the allocator. Then sessions come and go, and the memory with them. */
#include <malloc.h>
#include <stdlib.h>

#include "tests/check.h"
#include "wg/device.h"

enum { PEERS = 10000 };

static size_t in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

#if defined(__SANITIZE_ADDRESS__)
#define COUNTED false /* the sanitizer's allocator does not count this way */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COUNTED false
#endif
#endif
#ifndef COUNTED
#define COUNTED true
#endif

int main(void)
{
    uint8_t seed[32] = {6};
    struct wg_now now = {.mono = 1, .boot = 1};
    char text[512];
    size_t before = in_use();
    struct wg_device *dev = wg_device_new(seed, NULL);
    wg_device_set_private_key(dev, seed);
    for (unsigned i = 0; i < PEERS; i++) {
        int n = snprintf(text, sizeof text,
                         "public_key=%064x\nendpoint=192.0.2.1:51820\npersistent_keepalive_interval=25\n"
                         "allowed_ip=10.%u.%u.%u/32\nallowed_ip=fd00::%x:%x/128\n",
                         i + 1, i >> 16, i >> 8 & 255, i & 255, i >> 16, i & 0xffff);
        if (wg_uapi_set_text(dev, &now, WG_UAPI_SET, 0, text, (size_t)n, NULL, NULL) != 0)
            CHECK(!"a peer");
    }
    CHECK_EQ(wg_device_peers(dev), PEERS);
    size_t idle = in_use() - before;
    printf("sizeof: peer %zu, keypair %zu, handshake %zu, device %zu\n", sizeof(struct wg_peer),
           sizeof(struct wg_keypair), sizeof(struct wg_handshake), sizeof(struct wg_device));
    if (COUNTED) {
        printf("idle peer: %zu bytes, all in all\n", idle / PEERS);
        CHECK(idle / PEERS <= 1024);
    } else {
        printf("idle peer: not counted under a sanitizer\n");
    }

    /* A session each, three keypairs at most, gone after 540 s. */
    struct wg_session_keys keys = {{1}, {2}};
    struct wg_output out;
    for (unsigned round = 0; round < 5; round++)
        for (struct wg_peer *peer = wg_device_first_peer(dev); peer; peer = wg_peer_next(peer)) {
            uint32_t index;
            if (!wg_index_new(dev, peer, &index) || !wg_keypair_begin(peer, &now, &keys, index, 1, round & 1))
                CHECK(!"a keypair");
            wg_timers_keypair_made(peer, now.mono);
            if (round == 4)
                wg_keypair_confirm(peer, peer->next);
            wg_device_retire(dev);
            wg_device_reclaim(dev);
        }
    CHECK(dev->indices->used <= 3 * PEERS);
    now.mono += WG_ZERO_AFTER_TIME;
    while (wg_device_poll(dev, &now, &out))
        ;
    while (wg_device_retire(dev))
        wg_device_reclaim(dev);
    CHECK_EQ(dev->indices->used, 0);
    CHECK_EQ(wg_device_next(dev), WG_NEVER);
    if (COUNTED) {
        size_t after = in_use() - before;
        printf("after sessions: %zu bytes\n", after / PEERS);
        CHECK(after / PEERS <= 1024 + 512); /* the table of indices has grown, nothing else */
    }
    wg_device_free(dev);
    if (COUNTED) /* stdout's buffer and what malloc keeps at hand; leaks are the sanitizer's to find */
        CHECK(in_use() <= before + 65536);
    return check_done();
}
