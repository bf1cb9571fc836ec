/* The handshake Noise_IKpsk2 of WireGuard: message contents without macs, cookies, peers or time.
 *
 *   initiator                              responder
 *   wg_noise_initiate  --- initiation -->  wg_noise_read_static (who is it?), wg_noise_read_stamp
 *   wg_noise_finish    <--- response ----  wg_noise_respond
 *
 * The responder keeps nothing: its state lives on the stack from reading to responding, and the keys that come out are
 * the keypair. Hence an initiation of ours in flight is not disturbed by one of the peer's (simultaneous opening).
 * The initiator keeps a wg_handshake, and a failed response does not change it. Every DH result that is zero fails. */
#ifndef FV_WG_NOISE_H
#define FV_WG_NOISE_H

#include <stdbool.h>
#include <stdint.h>

#include "wg/messages.h"

struct wg_noise {
    uint8_t ck[32]; /* chaining key */
    uint8_t h[32];  /* hash of all that was said */
};

struct wg_identity {
    uint8_t private_key[32];
    uint8_t public_key[32];
};

struct wg_session_keys {
    uint8_t send[32], receive[32];
};

/* Of the initiator, from initiation to response. */
struct wg_handshake {
    struct wg_noise noise;
    uint8_t ephemeral[32]; /* private */
    uint32_t index;
};

/* Of the responder. */
struct wg_incoming {
    struct wg_noise noise;
    uint8_t static_key[32];
    uint8_t ephemeral[32];
    uint8_t stamp[WG_STAMP_SIZE];
    uint32_t index; /* sender's */
};

enum wg_noise_result { WG_NOISE_OK, WG_NOISE_BAD_KEY, WG_NOISE_NOT_AUTHENTIC };

/* ss: DH of the two static keys. Fills msg up to mac1. */
enum wg_noise_result wg_noise_initiate(struct wg_handshake *hs, uint8_t msg[WG_INIT_SIZE], const struct wg_identity *us,
                                       const uint8_t their_public[32], const uint8_t ss[32],
                                       const uint8_t ephemeral[32], const uint8_t stamp[WG_STAMP_SIZE], uint32_t index);

enum wg_noise_result wg_noise_read_static(struct wg_incoming *in, const uint8_t msg[WG_INIT_SIZE],
                                          const struct wg_identity *us);
enum wg_noise_result wg_noise_read_stamp(struct wg_incoming *in, const uint8_t msg[WG_INIT_SIZE], const uint8_t ss[32]);
/* Fills msg up to mac1. */
enum wg_noise_result wg_noise_respond(struct wg_incoming *in, uint8_t msg[WG_RESP_SIZE], const uint8_t psk[32],
                                      const uint8_t ephemeral[32], uint32_t index, struct wg_session_keys *keys);

enum wg_noise_result wg_noise_finish(const struct wg_handshake *hs, const uint8_t msg[WG_RESP_SIZE],
                                     const struct wg_identity *us, const uint8_t psk[32], struct wg_session_keys *keys);

#endif
