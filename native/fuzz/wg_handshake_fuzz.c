/* Two devices that know each other and a wire that the input rules: it lets time pass, wants handshakes, hands messages
 * over, again, late, changed, or signed anew with a good mac1 after a change, and turns load on and off.
 *
 * Whatever it does: keys agree on both sides, a message that was changed is never taken, and no index is lost. Input:
 * steps of four bytes (what, which message, where, with what), and raw messages. */
#include <stdlib.h>
#include <string.h>

#include "wg/device.h"
#include "wire/bytes.h"

enum { KEPT = 16 };

struct message {
    uint8_t bytes[WG_HANDSHAKE_MAX], original[WG_HANDSHAKE_MAX];
    uint16_t n;
    uint8_t to;
};

static struct wg_device *dev[2];
static struct wg_peer *peer[2];
static struct wg_now now;
static struct message kept[KEPT];
static unsigned count;

static void keep(unsigned from, const struct wg_output *out)
{
    if (out->action != WG_ACTION_SEND)
        return;
    struct message *m = &kept[count++ % KEPT];
    memcpy(m->bytes, out->message, out->length);
    m->n = out->length;
    memcpy(m->original, out->message, out->length);
    m->to = !from;
}

/* Where mac1 is; 0: a message without. */
static size_t mac1_at(const struct message *m)
{
    uint32_t type = m->n >= 4 ? load_le32(m->bytes) : 0;
    return type == 1 && m->n == WG_INIT_SIZE ? WG_INIT_MAC1 : type == 2 && m->n == WG_RESP_SIZE ? WG_RESP_MAC1 : 0;
}

/* In what the handshake itself authenticates: not the sender's index, which mac1 alone covers, nor the macs. */
static bool is_changed(const struct message *m)
{
    size_t end = mac1_at(m);
    return end == 0 || memcmp(m->bytes, m->original, 4) != 0 || memcmp(m->bytes + 8, m->original + 8, end - 8) != 0;
}

static void poll_all(void)
{
    struct wg_output out;
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned turns = 0; wg_device_poll(dev[i], &now, &out); turns++) {
            keep(i, &out);
            if (turns > 100)
                abort();
        }
        wg_device_retire(dev[i]);
        wg_device_reclaim(dev[i]);
        unsigned used = !!peer[i]->current + !!peer[i]->previous + !!peer[i]->next + !!peer[i]->handshake;
        if (dev[i]->indices->used != used)
            abort();
    }
}

/* Two keypairs that name each other have each other's keys. */
static void agree(void)
{
    struct wg_keypair *mine[2][3];
    for (unsigned i = 0; i < 2; i++)
        memcpy(mine[i], (struct wg_keypair *[]){peer[i]->current, peer[i]->previous, peer[i]->next}, sizeof mine[i]);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned j = 0; j < 3; j++) {
            const struct wg_keypair *a = mine[0][i], *b = mine[1][j];
            if (a && b && a->local_index == b->remote_index && b->local_index == a->remote_index &&
                (memcmp(a->send_key, b->receive_key, 32) || memcmp(a->receive_key, b->send_key, 32) ||
                 a->initiator == b->initiator))
                abort();
        }
}

static void deliver(unsigned to, const struct message *m)
{
    struct wg_endpoint from = {.family = WG_FAMILY_V4, .port = 1, .address = {192, 0, 2, (uint8_t)(2 - to)}};
    struct wg_output out;
    struct wg_keypair *current = peer[to]->current, *next = peer[to]->next;
    wg_receive_handshake(dev[to], &now, &from, m->bytes, m->n, &out);
    if (out.drop == WG_DROP_NONE && load_le32(m->bytes) == WG_TYPE_INITIATION && out.action != WG_ACTION_SEND)
        abort();
    if (is_changed(m) && (peer[to]->current != current || peer[to]->next != next))
        abort();
    keep(to, &out);
}

static void begin(void)
{
    now = (struct wg_now){.mono = WG_SECOND, .boot = 2 * WG_SECOND, .wall_sec = 1700000000};
    count = 0;
    memset(kept, 0, sizeof kept);
    for (uint8_t i = 0; i < 2; i++) {
        uint8_t seed[32] = {i, 1}, key[32] = {0, i, 5};
        dev[i] = wg_device_new(seed, NULL);
        wg_device_set_private_key(dev[i], key);
        wg_device_up(dev[i], &now);
    }
    for (uint8_t i = 0; i < 2; i++) {
        struct wg_endpoint e = {.family = WG_FAMILY_V4, .port = 1, .address = {192, 0, 2, (uint8_t)(2 - i)}};
        uint8_t key[32];
        wg_device_public_key(dev[!i], key);
        peer[i] = wg_peer_new(dev[i], key);
        wg_peer_set_endpoint(peer[i], &e, &now);
    }
    poll_all();
}

static void step(const uint8_t *s)
{
    struct message *m = &kept[s[1] % KEPT];
    unsigned side = s[1] >> 7;
    switch (s[0] % 8) {
    case 0: {
        uint64_t ns = ((uint64_t)s[2] << 8 | s[3]) * (s[1] & 1 ? 10 * WG_MS : WG_SECOND / 100000);
        now.mono += ns;
        now.boot += ns;
        now.wall_sec += (int64_t)(ns / WG_SECOND) * (s[1] & 2 ? 1 : -1);
        break;
    }
    case 1:
        wg_peer_want_handshake(peer[side], &now);
        break;
    case 2:
    case 3:
        deliver(m->to, m);
        break;
    case 4:
    case 5: /* changed, on the way or by somebody who knows the receiver's public key */
        if (s[2] < m->n) {
            m->bytes[s[2]] ^= s[3];
            if (s[0] % 8 == 5 && mac1_at(m)) {
                struct wg_cookie_jar jar = {0};
                uint8_t key[32];
                wg_device_public_key(dev[m->to], key);
                wg_cookie_sign(&jar, key, &now, m->bytes, mac1_at(m));
            }
        }
        break;
    case 6:
        wg_device_load(dev[side], &now, s[2] * 16u);
        break;
    case 7: { /* something comes under a keypair */
        struct wg_endpoint from = {.family = WG_FAMILY_V4, .port = 1, .address = {192, 0, 2, (uint8_t)(2 - side)}};
        struct wg_keypair *kp = s[2] & 1 ? peer[side]->next : peer[side]->current;
        if (kp && wg_keypair_usable(kp, &now) && wg_keypair_accept(kp, s[3]))
            wg_peer_received(peer[side], kp, &now, &from, s[2] & 2 ? WG_RECEIVED_DATA : 0, 32);
        break;
    }
    }
    poll_all();
    agree();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    begin();
    if (n > 0 && data[0] == 0xff) { /* one raw message */
        struct message m = {.n = (uint16_t)MIN(n - 1, WG_HANDSHAKE_MAX), .to = 1};
        memcpy(m.bytes, data + 1, m.n);
        deliver(1, &m);
        poll_all();
    } else {
        for (unsigned steps = 0; n >= 4 && steps < 200; steps++, data += 4, n -= 4)
            step(data);
    }
    wg_device_free(dev[0]);
    wg_device_free(dev[1]);
    return 0;
}
