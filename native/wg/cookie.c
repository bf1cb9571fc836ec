#include "wg/cookie.h"

#include "crypto/blake2s.h"
#include "crypto/chacha20poly1305.h"
#include "crypto/secret.h"
#include "wire/bytes.h"

/* label: 8 characters. */
static void cookie_derive_key(uint8_t key[32], const char *label, const uint8_t public_key[32])
{
    struct blake2s s;
    blake2s_init(&s, 32, NULL, 0);
    blake2s_update(&s, label, 8);
    blake2s_update(&s, public_key, 32);
    blake2s_final(&s, key);
}

void wg_cookie_checker_init(struct wg_cookie_checker *c, const uint8_t public_key[32])
{
    cookie_derive_key(c->mac1_key, WG_LABEL_MAC1, public_key);
    cookie_derive_key(c->cookie_key, WG_LABEL_COOKIE, public_key);
    secret_wipe(c->secret, sizeof c->secret);
    c->secret_until = 0;
}

/* The cookie of an address at this time: MAC(secret, address || port in network order). */
static void cookie_make(struct wg_cookie_checker *c, const struct wg_now *now, struct random *random,
                        const struct wg_endpoint *from, uint8_t cookie[WG_COOKIE_SIZE])
{
    uint8_t source[16 + 2];
    size_t n = from->family == WG_FAMILY_V4 ? 4 : 16;
    if (now->mono >= c->secret_until) {
        random_bytes(random, c->secret, sizeof c->secret);
        c->secret_until = now->mono + WG_COOKIE_SECRET_TIME;
    }
    memcpy(source, from->address, n);
    store_be16(source + n, from->port);
    blake2s(cookie, WG_COOKIE_SIZE, c->secret, sizeof c->secret, source, n + 2);
}

enum wg_mac wg_cookie_check(struct wg_cookie_checker *c, const struct wg_now *now, struct random *random,
                            const struct wg_endpoint *from, const uint8_t *msg, size_t mac1_at, bool load)
{
    uint8_t mac[WG_MAC_SIZE], cookie[WG_COOKIE_SIZE];
    blake2s(mac, sizeof mac, c->mac1_key, sizeof c->mac1_key, msg, mac1_at);
    if (!secret_equal(mac, msg + mac1_at, sizeof mac))
        return WG_MAC_BAD;
    if (!load)
        return WG_MAC_FIRST;
    size_t mac2_at = mac1_at + WG_MAC_SIZE;
    cookie_make(c, now, random, from, cookie);
    blake2s(mac, sizeof mac, cookie, sizeof cookie, msg, mac2_at);
    return secret_equal(mac, msg + mac2_at, sizeof mac) ? WG_MAC_BOTH : WG_MAC_FIRST;
}

void wg_cookie_reply(struct wg_cookie_checker *c, const struct wg_now *now, struct random *random,
                     const struct wg_endpoint *from, const uint8_t *msg, size_t mac1_at,
                     uint8_t reply[WG_COOKIE_REPLY_SIZE])
{
    uint8_t cookie[WG_COOKIE_SIZE];
    store_le32(reply, WG_TYPE_COOKIE);
    memcpy(reply + WG_COOKIE_RECEIVER, msg + 4, 4);
    cookie_make(c, now, random, from, cookie);
    random_bytes(random, reply + WG_COOKIE_NONCE, WG_NONCE_SIZE);
    xchacha_seal(reply + WG_COOKIE_SEALED, cookie, sizeof cookie, msg + mac1_at, WG_MAC_SIZE, reply + WG_COOKIE_NONCE,
                 c->cookie_key);
}

void wg_cookie_sign(struct wg_cookie_jar *jar, const uint8_t their_public[32], const struct wg_now *now, uint8_t *msg,
                    size_t mac1_at)
{
    uint8_t key[32];
    size_t mac2_at = mac1_at + WG_MAC_SIZE;
    cookie_derive_key(key, WG_LABEL_MAC1, their_public);
    blake2s(msg + mac1_at, WG_MAC_SIZE, key, sizeof key, msg, mac1_at);
    memcpy(jar->sent_mac1, msg + mac1_at, WG_MAC_SIZE);
    jar->waiting = true;
    if (now->boot < jar->until)
        blake2s(msg + mac2_at, WG_MAC_SIZE, jar->cookie, sizeof jar->cookie, msg, mac2_at);
    else
        memset(msg + mac2_at, 0, WG_MAC_SIZE);
}

enum wg_drop wg_cookie_consume(struct wg_cookie_jar *jar, const uint8_t their_public[32], const struct wg_now *now,
                               const uint8_t reply[WG_COOKIE_REPLY_SIZE])
{
    uint8_t key[32], cookie[WG_COOKIE_SIZE];
    if (!jar->waiting)
        return WG_DROP_COOKIE_UNASKED;
    cookie_derive_key(key, WG_LABEL_COOKIE, their_public);
    if (!xchacha_open(cookie, reply + WG_COOKIE_SEALED, WG_COOKIE_SIZE + WG_TAG_SIZE, jar->sent_mac1, WG_MAC_SIZE,
                      reply + WG_COOKIE_NONCE, key))
        return WG_DROP_COOKIE_DECRYPT;
    memcpy(jar->cookie, cookie, sizeof cookie);
    secret_wipe(cookie, sizeof cookie);
    jar->until = now->boot + WG_COOKIE_SECRET_TIME - WG_COOKIE_LATENCY;
    jar->waiting = false;
    return WG_DROP_NONE;
}
