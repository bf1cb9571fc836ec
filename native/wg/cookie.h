/* mac1, mac2 and cookies: proof that the sender of a handshake message knows our public key (mac1, always checked,
 * before any DH) and, under load, that it can receive at its source address (mac2 over a cookie that we gave it).
 *
 * The checker is the device's half (receiver of messages), the jar a peer's half (sender of messages to that peer).
 * A cookie reply is tied to the mac1 that it answers; one sent message accepts one cookie, and the cookie is used from
 * the next initiation on, which the retry timer sends: nothing is retransmitted at once. */
#ifndef FV_WG_COOKIE_H
#define FV_WG_COOKIE_H

#include "wg/wg.h"

struct wg_cookie_checker {
    uint8_t mac1_key[32];   /* HASH("mac1----" || our public key) */
    uint8_t cookie_key[32]; /* HASH("cookie--" || our public key) */
    uint8_t secret[32];
    uint64_t secret_until;  /* mono; 0: none yet */
};

struct wg_cookie_jar {
    uint64_t until;          /* boot time at which the cookie is no longer used; 0: none */
    uint8_t cookie[WG_COOKIE_SIZE];
    uint8_t sent_mac1[WG_MAC_SIZE];
    bool waiting;            /* sent_mac1 has not been answered by a cookie yet */
};

enum wg_mac { WG_MAC_BAD, WG_MAC_FIRST, WG_MAC_BOTH };

void wg_cookie_checker_init(struct wg_cookie_checker *c, const uint8_t public_key[32]);
/* mac1_at: offset of mac1. mac2 is only looked at (secrets made or renewed) when `load`. */
enum wg_mac wg_cookie_check(struct wg_cookie_checker *c, const struct wg_now *now, struct random *random,
                            const struct wg_endpoint *from, const uint8_t *msg, size_t mac1_at, bool load);
/* The answer to msg, whose sender index is at offset 4. */
void wg_cookie_reply(struct wg_cookie_checker *c, const struct wg_now *now, struct random *random,
                     const struct wg_endpoint *from, const uint8_t *msg, size_t mac1_at,
                     uint8_t reply[WG_COOKIE_REPLY_SIZE]);

/* Adds both macs to a message for the peer of that key. */
void wg_cookie_sign(struct wg_cookie_jar *jar, const uint8_t their_public[32], const struct wg_now *now, uint8_t *msg,
                    size_t mac1_at);
enum wg_drop wg_cookie_consume(struct wg_cookie_jar *jar, const uint8_t their_public[32], const struct wg_now *now,
                               const uint8_t reply[WG_COOKIE_REPLY_SIZE]);

#endif
