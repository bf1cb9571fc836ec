/* Every number and every message layout of WireGuard on one screen. Integers on the wire are little-endian; a layout
 * is given by offsets because messages are read in place, unaligned. */
#ifndef FV_WG_MESSAGES_H
#define FV_WG_MESSAGES_H

/* clang-format off */

#define WG_CONSTRUCTION "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s" /* hashed without the terminator */
#define WG_IDENTIFIER   "WireGuard v1 zx2c4 Jason@zx2c4.com"
#define WG_LABEL_MAC1   "mac1----"
#define WG_LABEL_COOKIE "cookie--"

#define WG_KEY_SIZE    32u
#define WG_TAG_SIZE    16u
#define WG_MAC_SIZE    16u
#define WG_COOKIE_SIZE 16u
#define WG_NONCE_SIZE  24u /* of a cookie reply */
#define WG_STAMP_SIZE  12u /* TAI64N */

/* The type is a whole 32-bit word: one byte and three zero bytes. */
enum wg_type { WG_TYPE_INITIATION = 1, WG_TYPE_RESPONSE = 2, WG_TYPE_COOKIE = 3, WG_TYPE_DATA = 4 };

enum { /* 1: initiation */
    WG_INIT_SENDER = 4, WG_INIT_EPHEMERAL = 8, WG_INIT_STATIC = 40, WG_INIT_STAMP = 88, WG_INIT_MAC1 = 116,
    WG_INIT_MAC2 = 132, WG_INIT_SIZE = 148,
};
enum { /* 2: response */
    WG_RESP_SENDER = 4, WG_RESP_RECEIVER = 8, WG_RESP_EPHEMERAL = 12, WG_RESP_EMPTY = 44, WG_RESP_MAC1 = 60,
    WG_RESP_MAC2 = 76, WG_RESP_SIZE = 92,
};
enum { /* 3: cookie reply */
    WG_COOKIE_RECEIVER = 4, WG_COOKIE_NONCE = 8, WG_COOKIE_SEALED = 32, WG_COOKIE_REPLY_SIZE = 64,
};
enum { /* 4: data; the smallest is a keepalive */
    WG_DATA_RECEIVER = 4, WG_DATA_COUNTER = 8, WG_DATA_SEALED = 16, WG_DATA_OVERHEAD = 32,
};
#define WG_HANDSHAKE_MAX 148u

#define WG_TOS_HANDSHAKE 0x88u /* AF41 */
#define WG_TOS_COOKIE    0u

#define WG_SECOND 1000000000ull
#define WG_MS     1000000ull

#define WG_WINDOW_BITS            8192u
#define WG_WINDOW                 (WG_WINDOW_BITS - 64u) /* 64-bit words on every machine */
#define WG_REKEY_AFTER_MESSAGES   (1ull << 60)
#define WG_REJECT_AFTER_MESSAGES  (UINT64_MAX - WG_WINDOW - 1u)
#define WG_REKEY_AFTER_TIME       (120 * WG_SECOND) /* initiator only */
#define WG_REJECT_AFTER_TIME      (180 * WG_SECOND)
#define WG_REKEY_ATTEMPT_TIME     (90 * WG_SECOND)
#define WG_REKEY_TIMEOUT          (5 * WG_SECOND)
#define WG_REKEY_JITTER_MAX       (334 * WG_MS)     /* exclusive: 0..333 ms */
#define WG_KEEPALIVE_TIMEOUT      (10 * WG_SECOND)
#define WG_ZERO_AFTER_TIME        (3 * WG_REJECT_AFTER_TIME)
#define WG_RETRIES_MAX            18u /* the timer gives up when more tries than this were in vain: 20 initiations */
#define WG_STAGED_MAX             128u
/* A receiving initiator renews in time for one keepalive and one try before the keypair is refused. */
#define WG_REKEY_RECEIVING_TIME   (WG_REJECT_AFTER_TIME - WG_KEEPALIVE_TIMEOUT - WG_REKEY_TIMEOUT)

#define WG_COOKIE_SECRET_TIME     (120 * WG_SECOND)
#define WG_COOKIE_LATENCY         (5 * WG_SECOND) /* a cookie is used 120 - 5 s */
#define WG_QUEUE_MAX              4096u
#define WG_QUEUE_LOADED           (WG_QUEUE_MAX / 8)
#define WG_LOADED_TIME            WG_SECOND
#define WG_RATE_PER_SECOND        20u
#define WG_RATE_BURST             5u
#define WG_PEER_INITIATION_GAP    (WG_SECOND / 50)

#define WG_TAI64_BASE             0x400000000000000aull /* + unix seconds; ten, and no table of leap seconds */
#define WG_STAMP_TICK             (1u << 24) /* ns: no precise clock for others; greatest power of two <= 1e9 / 50 */

#endif
