#include "wg/handshake.h"

#include <stdlib.h>

#include "crypto/secret.h"
#include "wg/device.h"
#include "wire/bytes.h"

/* ---- sending ---- */

static void handshake_output(struct wg_output *out, struct wg_peer *peer, const struct wg_endpoint *to, uint8_t tos,
                             uint16_t length)
{
    out->action = WG_ACTION_SEND;
    out->peer = peer;
    out->to = *to;
    out->tos = tos;
    out->length = length;
}

/* Both macs, and what every handshake message to a peer does to its counters and timers. */
static void handshake_seal(struct wg_peer *peer, const struct wg_now *now, struct wg_output *out, size_t mac1_at)
{
    wg_cookie_sign(&peer->cookies, peer->public_key, now, out->message, mac1_at);
    peer->handshake_sent = true;
    peer->handshake_sent_at = now->mono;
    peer->tx_bytes += out->length;
    wg_timers_any_sent(peer, now->mono);
}

bool wg_send_initiation(struct wg_peer *peer, const struct wg_now *now, struct wg_output *out)
{
    struct wg_device *dev = peer->dev;
    struct wg_endpoint to;
    uint8_t stamp[WG_STAMP_SIZE], ephemeral[32];

    if (!dev->up || !dev->has_key || !wg_peer_static_dh(peer)) {
        wg_peer_pend_done(peer, WG_PENDING_INITIATION);
        return false;
    }
    if (!wg_peer_endpoint(peer, &to)) { /* its name has no address yet: asked again when the timer fires */
        wg_timers_initiation_sent(peer, now->mono);
        wg_peer_pend_done(peer, WG_PENDING_INITIATION);
        return false;
    }
    if (!wg_stamp_peek(&dev->stamp, now->wall_sec, now->wall_nsec, stamp)) {
        wg_stamp_reserve(&dev->stamp, stamp);
        out->action = WG_ACTION_PERSIST;
        out->peer = NULL;
        memcpy(out->stamp, dev->stamp.reserved, WG_STAMP_SIZE);
        return true;
    }

    wg_peer_pend_done(peer, WG_PENDING_INITIATION);
    wg_peer_drop_handshake(peer);
    struct wg_handshake *hs = calloc(1, sizeof *hs);
    uint32_t index;
    if (!hs || !wg_index_new(dev, peer, &index)) {
        free(hs);
        wg_device_count(dev, WG_DROP_HANDSHAKE_MEMORY, 1);
        wg_timers_initiation_sent(peer, now->mono);
        return false;
    }
    random_bytes(&dev->random, ephemeral, sizeof ephemeral);
    enum wg_noise_result made = wg_noise_initiate(hs, out->message, &dev->identity, peer->public_key,
                                                  peer->static_shared, ephemeral, stamp, index);
    secret_wipe(ephemeral, sizeof ephemeral);
    if (made != WG_NOISE_OK) {
        secret_wipe(hs, sizeof *hs);
        free(hs);
        wg_index_free(dev, index);
        wg_device_count(dev, WG_DROP_HANDSHAKE_DH, 1);
        return false;
    }
    wg_stamp_take(&dev->stamp, stamp);
    peer->handshake = hs;
    handshake_output(out, peer, &to, WG_TOS_HANDSHAKE, WG_INIT_SIZE);
    out->public_key_work = true;
    handshake_seal(peer, now, out, WG_INIT_MAC1);
    wg_timers_initiation_sent(peer, now->mono);
    return true;
}

/* ---- receiving ---- */

static enum wg_drop handshake_noise_drop(enum wg_noise_result result)
{
    return result == WG_NOISE_BAD_KEY ? WG_DROP_HANDSHAKE_DH : WG_DROP_HANDSHAKE_DECRYPT;
}

/* Something of the peer's has proved authentic. */
static void handshake_received(struct wg_peer *peer, const struct wg_now *now, const struct wg_endpoint *from, size_t n)
{
    peer->rx_bytes += n;
    wg_peer_learn(peer, from);
    wg_timers_any_received(peer, now->mono);
}

static enum wg_drop receive_initiation(struct wg_device *dev, const struct wg_now *now, const struct wg_endpoint *from,
                                       const uint8_t *msg, struct wg_incoming *in, struct wg_output *out)
{
    out->public_key_work = true;
    enum wg_noise_result result = wg_noise_read_static(in, msg, &dev->identity);
    if (result != WG_NOISE_OK)
        return handshake_noise_drop(result);
    struct wg_peer *peer = wg_device_peer(dev, in->static_key);
    if (!peer)
        return WG_DROP_HANDSHAKE_UNKNOWN_PEER;
    out->peer = peer;
    if (!wg_peer_static_dh(peer))
        return WG_DROP_HANDSHAKE_DH;
    result = wg_noise_read_stamp(in, msg, peer->static_shared);
    if (result != WG_NOISE_OK)
        return handshake_noise_drop(result);
    if (memcmp(in->stamp, peer->stamp_seen, WG_STAMP_SIZE) <= 0)
        return WG_DROP_HANDSHAKE_STAMP;
    if (peer->initiation_seen && now->mono - peer->initiation_seen_at < WG_PEER_INITIATION_GAP)
        return WG_DROP_HANDSHAKE_FLOOD;
    memcpy(peer->stamp_seen, in->stamp, WG_STAMP_SIZE);
    peer->initiation_seen = true;
    peer->initiation_seen_at = now->mono;

    struct wg_session_keys keys;
    uint8_t ephemeral[32];
    uint32_t index;
    if (!wg_index_new(dev, peer, &index))
        return WG_DROP_HANDSHAKE_MEMORY;
    random_bytes(&dev->random, ephemeral, sizeof ephemeral);
    result = wg_noise_respond(in, out->message, peer->preshared_key, ephemeral, index, &keys);
    secret_wipe(ephemeral, sizeof ephemeral);
    if (result != WG_NOISE_OK) {
        wg_index_free(dev, index);
        return handshake_noise_drop(result);
    }
    struct wg_keypair *kp = wg_keypair_begin(peer, now, &keys, index, in->index, false);
    secret_wipe(&keys, sizeof keys);
    if (!kp)
        return WG_DROP_HANDSHAKE_MEMORY;

    handshake_received(peer, now, from, WG_INIT_SIZE);
    wg_timers_keypair_made(peer, now->mono);
    handshake_output(out, peer, from, WG_TOS_HANDSHAKE, WG_RESP_SIZE);
    handshake_seal(peer, now, out, WG_RESP_MAC1);
    return WG_DROP_NONE;
}

static enum wg_drop receive_response(struct wg_device *dev, const struct wg_now *now, const struct wg_endpoint *from,
                                     const uint8_t *msg, struct wg_output *out)
{
    uint32_t index = load_le32(msg + WG_RESP_RECEIVER);
    struct wg_peer *peer = wg_index_peer(dev, index);
    if (!peer)
        return WG_DROP_HANDSHAKE_INDEX;
    out->peer = peer;
    if (!peer->handshake || peer->handshake->index != index)
        return WG_DROP_HANDSHAKE_STATE;

    struct wg_session_keys keys;
    out->public_key_work = true;
    enum wg_noise_result result = wg_noise_finish(peer->handshake, msg, &dev->identity, peer->preshared_key, &keys);
    if (result != WG_NOISE_OK)
        return handshake_noise_drop(result);

    secret_wipe(peer->handshake, sizeof *peer->handshake);
    free(peer->handshake);
    peer->handshake = NULL; /* its index passes to the keypair */
    struct wg_keypair *kp = wg_keypair_begin(peer, now, &keys, index, load_le32(msg + WG_RESP_SENDER), true);
    secret_wipe(&keys, sizeof keys);
    if (!kp)
        return WG_DROP_HANDSHAKE_MEMORY;

    wg_timers_keypair_made(peer, now->mono);
    wg_timers_handshake_complete(peer, now);
    handshake_received(peer, now, from, WG_RESP_SIZE);
    out->action = WG_ACTION_KEEPALIVE;
    return WG_DROP_NONE;
}

static enum wg_drop receive_cookie(struct wg_device *dev, const struct wg_now *now, const uint8_t *msg,
                                   struct wg_output *out)
{
    struct wg_peer *peer = wg_index_peer(dev, load_le32(msg + WG_COOKIE_RECEIVER));
    if (!peer)
        return WG_DROP_COOKIE_INDEX;
    out->peer = peer;
    return wg_cookie_consume(&peer->cookies, peer->public_key, now, msg);
}

static enum wg_drop receive_message(struct wg_device *dev, const struct wg_now *now, const struct wg_endpoint *from,
                                    const uint8_t *msg, size_t n, struct wg_output *out)
{
    uint32_t type = n >= 4 ? load_le32(msg) : 0;
    static const struct {
        uint16_t size, mac1_at;
    } shapes[] = {
        [WG_TYPE_INITIATION] = {WG_INIT_SIZE, WG_INIT_MAC1},
        [WG_TYPE_RESPONSE] = {WG_RESP_SIZE, WG_RESP_MAC1},
        [WG_TYPE_COOKIE] = {WG_COOKIE_REPLY_SIZE, 0},
    };
    if (type < WG_TYPE_INITIATION || type > WG_TYPE_COOKIE)
        return WG_DROP_HANDSHAKE_TYPE;
    if (n != shapes[type].size)
        return WG_DROP_HANDSHAKE_SIZE;
    if (!dev->up)
        return WG_DROP_HANDSHAKE_DOWN;
    if (!dev->has_key)
        return WG_DROP_HANDSHAKE_NO_KEY;
    if (type == WG_TYPE_COOKIE)
        return receive_cookie(dev, now, msg, out);

    bool load = now->mono < dev->loaded_until;
    size_t mac1_at = shapes[type].mac1_at;
    enum wg_mac mac = wg_cookie_check(&dev->cookies, now, &dev->random, from, msg, mac1_at, load);
    if (mac == WG_MAC_BAD)
        return WG_DROP_HANDSHAKE_MAC1;
    if (load && mac != WG_MAC_BOTH) {
        wg_cookie_reply(&dev->cookies, now, &dev->random, from, msg, mac1_at, out->message);
        handshake_output(out, NULL, from, WG_TOS_COOKIE, WG_COOKIE_REPLY_SIZE);
        return WG_DROP_HANDSHAKE_COOKIE_SENT;
    }
    if (load && !wg_ratelimit_allow(&dev->rate, now->mono, &dev->random, from))
        return WG_DROP_HANDSHAKE_RATE;

    if (type == WG_TYPE_RESPONSE)
        return receive_response(dev, now, from, msg, out);
    struct wg_incoming in;
    enum wg_drop drop = receive_initiation(dev, now, from, msg, &in, out);
    secret_wipe(&in, sizeof in);
    return drop;
}

void wg_receive_handshake(struct wg_device *dev, const struct wg_now *now, const struct wg_endpoint *from,
                          const uint8_t *msg, size_t n, struct wg_output *out)
{
    out->action = WG_ACTION_NONE;
    out->public_key_work = false;
    out->tos = 0;
    out->length = 0;
    out->peer = NULL;
    out->drop = receive_message(dev, now, from, msg, n, out);
    if (out->drop != WG_DROP_NONE)
        dev->drops[out->drop]++;
}
