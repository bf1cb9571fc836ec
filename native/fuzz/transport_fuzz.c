/* The tunnel's data path without a TUN and a socket: datagrams in, packets out, under keys that are good.
 *
 * Input: steps of (what, length, bytes). A step is a datagram as it came, one with the header of our session and a forged
 * body, one that the far end has sealed properly (its plaintext is the input's), or a packet on its way out with its
 * virtio header. Datagrams are handed over in batches.
 *
 * Whatever comes: every datagram is counted, what is forged never passes, no lease is lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/tunnel.h"
#include "wire/bytes.h"

enum { BATCH = 24, ROOM = 320 };

static struct workers workers;
static struct tunnel *tunnel;
static struct wg_device *far;
static struct wg_keypair *far_key;
static uint64_t counter;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void configure(struct wg_device *dev, const char *text)
{
    struct wg_now now = *tunnel_now(&workers.worker[0]);
    unsigned line;
    const char *why;
    must(wg_uapi_set_text(dev, &now, WG_UAPI_SET, 0, text, strlen(text), &line, &why) == 0);
}

static void hex(char out[65], const uint8_t key[32])
{
    for (unsigned i = 0; i < 32; i++)
        sprintf(out + 2 * i, "%02x", key[i]);
}

/* Two keys, a session between the far device (initiator) and the tunnel's core. */
static void setup(void)
{
    static const uint8_t seed[32] = {1};
    static const char private_near[] = "1111111111111111111111111111111111111111111111111111111111111111",
                      private_far[] = "2222222222222222222222222222222222222222222222222222222222222222";
    struct tunnel_config config = {.name = "fuzz", .tun_fd = -1, .mtu = 1420, .workers = 1};
    struct tunnel_events events = {0};
    struct wg_output out, answer;
    char text[512], key[65];
    uint8_t public[32];
    int error;
    must(workers_init(&workers, 1, 4 << 20) == 0);
    must(tunnel_scratch_init(&workers.worker[0]) == 0);
    tunnel = tunnel_new(&workers, &config, &events, seed, &error);
    far = wg_device_new(seed, NULL);
    must(tunnel && far);
    snprintf(text, sizeof text, "private_key=%s\n", private_near);
    configure(tunnel->core, text);
    must(wg_device_public_key(tunnel->core, public));
    hex(key, public);
    snprintf(text, sizeof text, "private_key=%s\npublic_key=%s\nendpoint=192.0.2.1:1\nallowed_ip=0.0.0.0/0\n",
             private_far, key);
    configure(far, text);
    must(wg_device_public_key(far, public));
    hex(key, public);
    snprintf(text, sizeof text, "public_key=%s\nallowed_ip=10.0.0.0/8\nallowed_ip=fd00::/8\n", key);
    configure(tunnel->core, text);

    struct wg_now now = *tunnel_now(&workers.worker[0]);
    struct wg_endpoint from = {.family = WG_FAMILY_V4, .port = 1, .address = {192, 0, 2, 2}};
    wg_device_up(far, &now);
    wg_device_up(tunnel->core, &now);
    wg_peer_want_handshake(wg_device_first_peer(far), &now);
    while (wg_device_poll(far, &now, &out) && out.action != WG_ACTION_SEND)
        ;
    must(out.action == WG_ACTION_SEND);
    wg_receive_handshake(tunnel->core, &now, &from, out.message, out.length, &answer);
    must(answer.action == WG_ACTION_SEND);
    wg_receive_handshake(far, &now, &from, answer.message, answer.length, &out);
    must(wg_peer_send_key(wg_device_first_peer(far), &now, &far_key) == WG_SEND_OK);
    /* The far end's first packet confirms the session. */
    tunnel->lanes[0].tun.vnet = tunnel->lanes[0].tun.tso = tunnel->lanes[0].tun.uso = true;
}

static uint64_t counted(void)
{
    struct tunnel_stats sum;
    uint64_t total = 0;
    tunnel_stats(tunnel, &sum);
    for (int i = 0; i < WG_DROP_COUNT; i++)
        total += sum.wg_drops[i];
    return total + sum.drops[TUNNEL_DROP_IN_NO_TUN] + sum.drops[TUNNEL_DROP_IN_QUEUE];
}

static uint64_t passed(void)
{
    return tunnel->lanes[0].stats.drops[TUNNEL_DROP_IN_NO_TUN];
}

/* Builds one datagram of step `what` at p; whether it may pass. */
static bool build(uint8_t *p, uint32_t *length, unsigned what, const uint8_t *bytes, unsigned n)
{
    if ((what & 3) == 0) {
        memcpy(p, bytes, n);
        *length = n;
        return false;
    }
    store_le32(p, WG_TYPE_DATA);
    store_le32(p + WG_DATA_RECEIVER, far_key->remote_index);
    store_le64(p + WG_DATA_COUNTER, counter);
    memcpy(p + WG_DATA_SEALED, bytes, n);
    *length = WG_DATA_SEALED + n;
    if ((what & 3) == 1)
        return false;
    struct chacha_job job = {p + WG_DATA_SEALED, p + WG_DATA_SEALED, n, false, counter++};
    chacha_seal_batch(far_key->send_key, &job, 1);
    *length += WG_TAG_SIZE;
    return true;
}

static void out(const uint8_t *bytes, unsigned n)
{
    uint8_t packet[VNET_HEADER_LEN + ROOM];
    memcpy(packet, bytes, n);
    if (n > VNET_HEADER_LEN)
        tunnel_out(&tunnel->lanes[0], packet, packet + VNET_HEADER_LEN, n - VNET_HEADER_LEN);
    tunnel_flush(&tunnel->lanes[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t room[BATCH][ROOM];
    struct tunnel_datagram batch[BATCH];
    struct wg_endpoint from = {.family = WG_FAMILY_V4, .port = 9, .address = {192, 0, 2, 2}};
    if (!tunnel)
        setup();
    for (size_t at = 0; at + 2 <= size;) {
        unsigned n = 0, good = 0;
        uint8_t tos = data[at] >> 4;
        for (; n < BATCH && at + 2 <= size; at += 2u + data[at + 1]) {
            unsigned what = data[at], length = data[at + 1];
            if (at + 2 + length > size)
                length = (unsigned)(size - at - 2);
            if ((what & 3) == 3) {
                out(data + at + 2, length);
                continue;
            }
            good += build(room[n] + 16, &batch[n].length, what, data + at + 2, length);
            batch[n].data = room[n] + 16;
            n++;
        }
        uint64_t before = counted(), before_passed = passed(), before_queued = tunnel->queue_used;
        uint64_t bytes = 0;
        struct wg_peer_info info;
        wg_peer_info(wg_device_first_peer(tunnel->core), &info);
        bytes = info.rx_bytes;
        tunnel_in(&tunnel->lanes[0], &from, tos, batch, n);
        if (tunnel_scratch(&workers.worker[0])->gro_lane)
            tunnel_in_finish(&tunnel->lanes[0]);
        must(passed() - before_passed <= good);
        wg_peer_info(wg_device_first_peer(tunnel->core), &info);
        /* A good empty packet is counted in bytes alone. */
        must(counted() - before + tunnel->queue_used - before_queued + good >= n);
        must(good || info.rx_bytes == bytes);
    }
    tunnel_queue_free(tunnel);
    must(atomic_load(&workers.budget.taken) == 0);
    return 0;
}
