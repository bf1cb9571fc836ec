#include "wg/noise.h"

#include <string.h>

#include "crypto/blake2s.h"
#include "crypto/chacha20poly1305.h"
#include "crypto/secret.h"
#include "crypto/x25519.h"
#include "wire/bytes.h"

/* The test includes this file and compares every intermediate value with the vectors' traces. */
#ifndef NOISE_TRACE
#define NOISE_TRACE(name, bytes) ((void)0)
#endif

static const uint8_t nonce_zero[CHACHA_NONCE];

static void noise_mix_hash(struct wg_noise *n, const void *p, size_t len)
{
    struct blake2s s;
    blake2s_init(&s, 32, NULL, 0);
    blake2s_update(&s, n->h, 32);
    blake2s_update(&s, p, len);
    blake2s_final(&s, n->h);
}

/* ck, h for a conversation with the owner of `responder` (public key). */
static void noise_begin(struct wg_noise *n, const uint8_t responder[32])
{
    blake2s(n->ck, 32, NULL, 0, WG_CONSTRUCTION, sizeof WG_CONSTRUCTION - 1);
    memcpy(n->h, n->ck, 32);
    noise_mix_hash(n, WG_IDENTIFIER, sizeof WG_IDENTIFIER - 1);
    noise_mix_hash(n, responder, 32);
    NOISE_TRACE("h_after_responder_static", n->h);
}

/* An ephemeral public key goes into both. */
static void noise_mix_ephemeral(struct wg_noise *n, const uint8_t public_key[32])
{
    blake2s_kdf(1, n->ck, NULL, NULL, n->ck, public_key, 32);
    NOISE_TRACE("ck_after_e", n->ck);
    noise_mix_hash(n, public_key, 32);
    NOISE_TRACE("h_after_e", n->h);
}

/* key NULL: only the chaining key moves on. */
static bool noise_mix_dh(struct wg_noise *n, uint8_t *key, const uint8_t private_key[32], const uint8_t public_key[32])
{
    uint8_t dh[32];
    bool ok = x25519(dh, private_key, public_key);
    if (ok)
        blake2s_kdf(key ? 2 : 1, n->ck, key, NULL, n->ck, dh, 32);
    secret_wipe(dh, sizeof dh);
    return ok;
}

static void noise_seal(struct wg_noise *n, uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[32])
{
    chacha_seal(dst, src, len, n->h, 32, nonce_zero, key);
    noise_mix_hash(n, dst, len + WG_TAG_SIZE);
}

/* src has the tag at its end; len counts it. */
static bool noise_open(struct wg_noise *n, uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[32])
{
    if (!chacha_open(dst, src, len, n->h, 32, nonce_zero, key))
        return false;
    noise_mix_hash(n, src, len);
    return true;
}

enum wg_noise_result wg_noise_initiate(struct wg_handshake *hs, uint8_t msg[WG_INIT_SIZE], const struct wg_identity *us,
                                       const uint8_t their_public[32], const uint8_t ss[32],
                                       const uint8_t ephemeral[32], const uint8_t stamp[WG_STAMP_SIZE], uint32_t index)
{
    struct wg_noise *n = &hs->noise;
    uint8_t key[32];
    enum wg_noise_result result = WG_NOISE_BAD_KEY;

    store_le32(msg, WG_TYPE_INITIATION);
    store_le32(msg + WG_INIT_SENDER, index);
    hs->index = index;
    memcpy(hs->ephemeral, ephemeral, 32);

    noise_begin(n, their_public);
    if (!x25519_base(msg + WG_INIT_EPHEMERAL, ephemeral))
        goto out;
    noise_mix_ephemeral(n, msg + WG_INIT_EPHEMERAL);
    if (!noise_mix_dh(n, key, ephemeral, their_public))
        goto out;
    NOISE_TRACE("ck_after_es", n->ck);
    NOISE_TRACE("key_static", key);
    noise_seal(n, msg + WG_INIT_STATIC, us->public_key, 32, key);
    NOISE_TRACE("h_after_static", n->h);
    blake2s_kdf(2, n->ck, key, NULL, n->ck, ss, 32);
    NOISE_TRACE("ck_after_ss", n->ck);
    NOISE_TRACE("key_timestamp", key);
    noise_seal(n, msg + WG_INIT_STAMP, stamp, WG_STAMP_SIZE, key);
    NOISE_TRACE("h_after_timestamp", n->h);
    result = WG_NOISE_OK;
out:
    if (result != WG_NOISE_OK)
        secret_wipe(hs, sizeof *hs);
    secret_wipe(key, sizeof key);
    return result;
}

enum wg_noise_result wg_noise_read_static(struct wg_incoming *in, const uint8_t msg[WG_INIT_SIZE],
                                          const struct wg_identity *us)
{
    struct wg_noise *n = &in->noise;
    uint8_t key[32];
    enum wg_noise_result result = WG_NOISE_OK;

    in->index = load_le32(msg + WG_INIT_SENDER);
    memcpy(in->ephemeral, msg + WG_INIT_EPHEMERAL, 32);
    noise_begin(n, us->public_key);
    noise_mix_ephemeral(n, in->ephemeral);
    if (!noise_mix_dh(n, key, us->private_key, in->ephemeral)) {
        result = WG_NOISE_BAD_KEY;
    } else {
        NOISE_TRACE("ck_after_es", n->ck);
        NOISE_TRACE("key_static", key);
        if (!noise_open(n, in->static_key, msg + WG_INIT_STATIC, 32 + WG_TAG_SIZE, key))
            result = WG_NOISE_NOT_AUTHENTIC;
        else
            NOISE_TRACE("h_after_static", n->h);
    }
    secret_wipe(key, sizeof key);
    return result;
}

enum wg_noise_result wg_noise_read_stamp(struct wg_incoming *in, const uint8_t msg[WG_INIT_SIZE], const uint8_t ss[32])
{
    struct wg_noise *n = &in->noise;
    uint8_t key[32];
    blake2s_kdf(2, n->ck, key, NULL, n->ck, ss, 32);
    NOISE_TRACE("ck_after_ss", n->ck);
    NOISE_TRACE("key_timestamp", key);
    bool ok = noise_open(n, in->stamp, msg + WG_INIT_STAMP, WG_STAMP_SIZE + WG_TAG_SIZE, key);
    NOISE_TRACE("h_after_timestamp", n->h);
    secret_wipe(key, sizeof key);
    return ok ? WG_NOISE_OK : WG_NOISE_NOT_AUTHENTIC;
}

/* The preshared key, absent (zeros) or not, makes the key of the response's empty payload. */
static void noise_mix_psk(struct wg_noise *n, uint8_t key[32], const uint8_t psk[32])
{
    uint8_t tau[32];
    blake2s_kdf(3, n->ck, tau, key, n->ck, psk, 32);
    NOISE_TRACE("ck_after_psk", n->ck);
    NOISE_TRACE("tau", tau);
    NOISE_TRACE("key_empty", key);
    noise_mix_hash(n, tau, 32);
    NOISE_TRACE("h_after_psk", n->h);
    secret_wipe(tau, sizeof tau);
}

enum wg_noise_result wg_noise_respond(struct wg_incoming *in, uint8_t msg[WG_RESP_SIZE], const uint8_t psk[32],
                                      const uint8_t ephemeral[32], uint32_t index, struct wg_session_keys *keys)
{
    struct wg_noise *n = &in->noise;
    uint8_t key[32];
    enum wg_noise_result result = WG_NOISE_BAD_KEY;

    store_le32(msg, WG_TYPE_RESPONSE);
    store_le32(msg + WG_RESP_SENDER, index);
    store_le32(msg + WG_RESP_RECEIVER, in->index);
    if (!x25519_base(msg + WG_RESP_EPHEMERAL, ephemeral))
        goto out;
    noise_mix_ephemeral(n, msg + WG_RESP_EPHEMERAL);
    if (!noise_mix_dh(n, NULL, ephemeral, in->ephemeral))
        goto out;
    NOISE_TRACE("ck_after_ee", n->ck);
    if (!noise_mix_dh(n, NULL, ephemeral, in->static_key))
        goto out;
    NOISE_TRACE("ck_after_se", n->ck);
    noise_mix_psk(n, key, psk);
    noise_seal(n, msg + WG_RESP_EMPTY, msg, 0, key);
    NOISE_TRACE("h_final", n->h);
    blake2s_kdf(2, keys->receive, keys->send, NULL, n->ck, NULL, 0);
    result = WG_NOISE_OK;
out:
    secret_wipe(key, sizeof key);
    secret_wipe(n, sizeof *n);
    return result;
}

enum wg_noise_result wg_noise_finish(const struct wg_handshake *hs, const uint8_t msg[WG_RESP_SIZE],
                                     const struct wg_identity *us, const uint8_t psk[32], struct wg_session_keys *keys)
{
    struct wg_noise n = hs->noise; /* a copy: a forged response must not spoil the true one */
    uint8_t key[32], nothing[1];
    enum wg_noise_result result = WG_NOISE_BAD_KEY;

    noise_mix_ephemeral(&n, msg + WG_RESP_EPHEMERAL);
    if (!noise_mix_dh(&n, NULL, hs->ephemeral, msg + WG_RESP_EPHEMERAL))
        goto out;
    NOISE_TRACE("ck_after_ee", n.ck);
    if (!noise_mix_dh(&n, NULL, us->private_key, msg + WG_RESP_EPHEMERAL))
        goto out;
    NOISE_TRACE("ck_after_se", n.ck);
    noise_mix_psk(&n, key, psk);
    result = WG_NOISE_NOT_AUTHENTIC;
    if (!noise_open(&n, nothing, msg + WG_RESP_EMPTY, WG_TAG_SIZE, key))
        goto out;
    NOISE_TRACE("h_final", n.h);
    blake2s_kdf(2, keys->send, keys->receive, NULL, n.ck, NULL, 0);
    result = WG_NOISE_OK;
out:
    secret_wipe(key, sizeof key);
    secret_wipe(&n, sizeof n);
    return result;
}
