/* WireGuard without a socket, a clock or a source of randomness: the whole interface of native/wg.
 *
 * Theory of operation
 *   The caller owns sockets, the TUN, time, the staged packets and the sealing of data; this folder owns everything
 *   that WireGuard has to remember: keys, handshakes, cookies, timers, replay windows, allowed IPs, configuration.
 *
 *   handshake in    wg_device_load(queued) -> wg_receive_handshake(...) -> out: at most one message to send, an event
 *   data in         wg_keypair_find(index) -> open the batch -> wg_keypair_accept(counter) each
 *                   -> wg_peer_received(...) once a batch
 *   data out        wg_allowedips_lookup4/6(dst) -> wg_peer_send_key(&kp) -> wg_keypair_counters(n) -> seal the batch
 *                   -> wg_peer_sent(...) once a batch
 *   time            wg_device_next(dev) says when; `while (wg_device_poll(dev, now, &out))` gives one thing to do each.
 *                   Every call that returns nothing to send but wants something sent makes wg_device_next 0.
 *
 * Threads
 *   One owner thread a device. Any thread may call: wg_keypair_find, wg_allowedips_lookup4/6, wg_keypair_usable,
 *   wg_keypair_counters, wg_peer_current, wg_peer_endpoint, the pure functions. Everything else: the owner only.
 *   What other threads may still hold (keypairs, peers, trie nodes, index tables) is not freed when it dies but put on
 *   a list: wg_device_retire() closes the list, the caller sees to it that every other thread has passed a point where
 *   it holds nothing, then calls wg_device_reclaim(), which wipes and frees. With one thread: both, once a turn.
 *
 * Memory
 *   malloc at configuration and at handshakes, never per packet. An idle peer has no session state.
 *
 * Errors are -errno. Times are nanoseconds unless named otherwise. Source: WireGuard's paper; the
 * vectors in tests/vectors/wireguard.json. */
#ifndef FV_WG_WG_H
#define FV_WG_WG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crypto/random.h"
#include "wg/messages.h"
#include "wg/replay.h"

struct wg_device;
struct wg_peer;

/* ---- time ---- */

struct wg_now {
    uint64_t mono;      /* CLOCK_MONOTONIC: timers */
    uint64_t boot;      /* CLOCK_BOOTTIME: ages of keys, so that a suspended machine does not keep old ones */
    int64_t wall_sec;   /* CLOCK_REALTIME: only TAI64N stamps and the handshake time shown to users */
    uint32_t wall_nsec;
};

#define WG_NEVER UINT64_MAX

/* ---- endpoints ---- */

enum wg_family { WG_FAMILY_NONE = 0, WG_FAMILY_V4 = 4, WG_FAMILY_V6 = 6 };

/* Where a peer is and which of our addresses it talks to. Addresses in network order, IPv4 in the first 4 bytes, the
 * rest zero (never ::ffff:a.b.c.d). Ports in host order. 48 bytes, a multiple of four for the snapshot. */
struct wg_endpoint {
    uint8_t family;        /* enum wg_family */
    uint8_t local_family;  /* of `local`; WG_FAMILY_NONE: no sticky source, let the routing table choose */
    uint16_t port;
    uint8_t address[16];
    uint32_t scope;        /* IPv6 zone of a link-local address, else 0 */
    uint8_t local[16];     /* sticky source: the address that the peer's last packet was sent to */
    uint32_t local_ifindex;
    uint32_t reserved;     /* zero: the snapshot compares whole words */
};

/* Parses "1.2.3.4:5", "[2001:db8::1]:5", "[fe80::1%3]:5" (numeric zone). -EINVAL otherwise. */
int wg_endpoint_parse(struct wg_endpoint *e, const char *text, size_t n);
/* The reverse; returns the length. A peer's address only, no local part. */
#define WG_ENDPOINT_TEXT 64
size_t wg_endpoint_format(const struct wg_endpoint *e, char text[WG_ENDPOINT_TEXT]);

/* ---- what is counted ---- */

#define WG_DROPS(X) \
    X(NONE, "none") \
    X(HANDSHAKE_SIZE, "handshake_bad_size") \
    X(HANDSHAKE_TYPE, "handshake_bad_type") \
    X(HANDSHAKE_DOWN, "handshake_device_down") \
    X(HANDSHAKE_NO_KEY, "handshake_no_private_key") \
    X(HANDSHAKE_MAC1, "handshake_bad_mac1") \
    X(HANDSHAKE_COOKIE_SENT, "handshake_cookie_sent") \
    X(HANDSHAKE_RATE, "handshake_rate_limited") \
    X(HANDSHAKE_DH, "handshake_bad_public_key") \
    X(HANDSHAKE_DECRYPT, "handshake_not_authentic") \
    X(HANDSHAKE_UNKNOWN_PEER, "handshake_unknown_peer") \
    X(HANDSHAKE_STAMP, "handshake_replayed") \
    X(HANDSHAKE_FLOOD, "handshake_peer_flood") \
    X(HANDSHAKE_INDEX, "handshake_unknown_index") \
    X(HANDSHAKE_STATE, "handshake_wrong_state") \
    X(HANDSHAKE_MEMORY, "handshake_no_memory") \
    X(COOKIE_INDEX, "cookie_unknown_index") \
    X(COOKIE_UNASKED, "cookie_unasked") \
    X(COOKIE_DECRYPT, "cookie_not_authentic") \
    X(DATA_SHORT, "data_too_short") \
    X(DATA_INDEX, "data_unknown_index") \
    X(DATA_EXPIRED, "data_key_expired") \
    X(DATA_DECRYPT, "data_not_authentic") \
    X(DATA_REPLAY, "data_replayed") \
    X(DATA_INNER, "data_bad_inner_packet") \
    X(DATA_SOURCE, "data_source_not_allowed") \
    X(SEND_NO_PEER, "send_no_peer") \
    X(SEND_NO_ENDPOINT, "send_no_endpoint") \
    X(SEND_STAGED_FULL, "send_staged_full") \
    X(SEND_GAVE_UP, "send_handshake_gave_up") \
    X(SEND_NO_KEY, "send_no_private_key")

enum wg_drop {
#define X(name, text) WG_DROP_##name,
    WG_DROPS(X)
#undef X
        WG_DROP_COUNT
};
const char *wg_drop_name(enum wg_drop drop);

/* ---- what the caller is told to do ---- */

enum wg_action {
    WG_ACTION_NONE,
    WG_ACTION_SEND,        /* send message[0..length) to `to`, TOS `tos` */
    WG_ACTION_KEEPALIVE,   /* seal and send an empty packet to `peer`; with packets staged: those instead */
    WG_ACTION_FLUSH,       /* send what is staged for `peer`; nothing where there is nothing */
    WG_ACTION_DROP_STAGED, /* drop what is staged for `peer` (count WG_DROP_SEND_GAVE_UP) */
    WG_ACTION_RESOLVE,     /* resolve wg_peer_host(peer) (again), then wg_peer_set_endpoint */
    WG_ACTION_PERSIST,     /* write stamp[12] to the state folder; comes before the message that needs it */
    WG_ACTION_COUNT
};
const char *wg_action_name(enum wg_action action);

struct wg_output {
    enum wg_action action;
    enum wg_drop drop;     /* of wg_receive_handshake: why nothing came of the message (already counted in drops[]) */
    bool public_key_work;  /* of wg_receive_handshake: X25519 was computed: count it against the turn's budget */
    uint8_t tos;
    uint16_t length;
    struct wg_peer *peer;  /* NULL where no peer is known */
    struct wg_endpoint to;
    uint8_t message[WG_HANDSHAKE_MAX];
    uint8_t stamp[WG_STAMP_SIZE];
};

/* ---- the device ---- */

/* What the core asks of its caller at once. Every function may be NULL. */
struct wg_hooks {
    void *user;
    /* listen_port= and fwmark= of a configuration: 0 or -errno (-EADDRINUSE). Port 0: pick one and say which by
     * wg_device_set_port. Not called where the value is already in force, except port 0. */
    int (*listen_port)(void *user, struct wg_device *dev, uint16_t port);
    int (*fwmark)(void *user, struct wg_device *dev, uint32_t fwmark);
    /* The peer is going: drop what is staged for it and forget it. Its memory lives until wg_device_reclaim. */
    void (*peer_removed)(void *user, struct wg_peer *peer);
};

/* seed: entropy for keys, indices, cookies and jitter (the only randomness the device ever gets). NULL: no memory. */
struct wg_device *wg_device_new(const uint8_t seed[32], const struct wg_hooks *hooks);
void wg_device_free(struct wg_device *dev);
void wg_device_reseed(struct wg_device *dev, const uint8_t seed[32]);

/* Down at first. Down: keys and handshakes wiped, timers off, WG_ACTION_DROP_STAGED for every peer. Up: FLUSH, and
 * KEEPALIVE for peers with a persistent one. */
void wg_device_up(struct wg_device *dev, const struct wg_now *now);
void wg_device_down(struct wg_device *dev);
bool wg_device_is_up(const struct wg_device *dev);

/* key NULL or all zero: none. Clamps it; recomputes every peer's static DH, drops every keypair and handshake, removes
 * the peer whose key is our own. The same key again changes nothing. */
int wg_device_set_private_key(struct wg_device *dev, const uint8_t key[32]);
bool wg_device_public_key(const struct wg_device *dev, uint8_t key[32]); /* false: no private key */
void wg_device_set_port(struct wg_device *dev, uint16_t port);
uint16_t wg_device_port(const struct wg_device *dev);
uint32_t wg_device_fwmark(const struct wg_device *dev);
unsigned wg_device_peers(const struct wg_device *dev);
const uint64_t *wg_device_drops(const struct wg_device *dev); /* [WG_DROP_COUNT] */
void wg_device_count(struct wg_device *dev, enum wg_drop drop, uint64_t n); /* a drop seen by the caller */

/* TAI64N only grows: max(clock, last + 1 tick). floor: what WG_ACTION_PERSIST last wrote. At a clean stop write
 * wg_device_stamp (the last one really sent) instead of the reserved one, so that nothing is skipped. */
void wg_device_stamp_floor(struct wg_device *dev, const uint8_t stamp[WG_STAMP_SIZE]);
void wg_device_stamp(const struct wg_device *dev, uint8_t stamp[WG_STAMP_SIZE]);

/* Queue length of handshake messages, at most 4096 (WG_QUEUE_MAX; drop what does not fit): under load from 512 on and
 * for a second after. */
void wg_device_load(struct wg_device *dev, const struct wg_now *now, unsigned queued);

/* One message of type 1, 2 or 3. Answers go back through out->action WG_ACTION_SEND. An accepted response gives
 * WG_ACTION_KEEPALIVE (staged packets if any, else an empty packet, so that the responder may begin). */
void wg_receive_handshake(struct wg_device *dev, const struct wg_now *now, const struct wg_endpoint *from,
                          const uint8_t *msg, size_t n, struct wg_output *out);

/* Each WG_ACTION_SEND costs X25519 (an initiation: two or three): poll at most a few times a turn. */
uint64_t wg_device_next(struct wg_device *dev); /* mono; 0: now; WG_NEVER: nothing to wait for */
bool wg_device_poll(struct wg_device *dev, const struct wg_now *now, struct wg_output *out);

bool wg_device_retire(struct wg_device *dev);  /* true: something waits for wg_device_reclaim */
void wg_device_reclaim(struct wg_device *dev); /* frees what the last wg_device_retire closed off */

/* ---- keypairs ---- */

struct wg_keypair {
    /* what the hot path reads, first */
    uint8_t receive_key[32];
    uint64_t birth;              /* boot time */
    struct wg_peer *peer;
    uint32_t local_index, remote_index;
    uint8_t send_key[32];
    uint64_t send_counter;       /* atomic; next free */
    uint8_t initiator;           /* we began this handshake */
    uint8_t dead;                /* atomic; replaced or wiped: neither sends nor receives */
    uint8_t asked_rekey;         /* the one initiation of a receiver at 165 s has been asked for */
    struct wg_keypair *next_retired;
    struct wg_replay replay;     /* 1 KiB */
};

struct wg_keypair *wg_keypair_find(struct wg_device *dev, uint32_t receiver_index);
/* Younger than 180 s, not dead. */
bool wg_keypair_usable(const struct wg_keypair *kp, const struct wg_now *now);
/* n consecutive counters, the first in *first; false at the reject limit. */
bool wg_keypair_counters(struct wg_keypair *kp, unsigned n, uint64_t *first);
/* After authentication: false for a counter seen before, too old, or over the limit. Owner only. */
bool wg_keypair_accept(struct wg_keypair *kp, uint64_t counter);

/* ---- peers ---- */

enum wg_send {
    WG_SEND_OK,          /* *kp is the keypair to use */
    WG_SEND_STAGE,       /* none: stage the packet (at most WG_STAGED_MAX, oldest dropped); a handshake is begun */
    WG_SEND_NO_ENDPOINT, /* where the peer is has never been known: ICMP unreachable */
    WG_SEND_DOWN,        /* device down or without a private key */
    WG_SEND_COUNT
};

/* The keypair to send with; asks for a handshake where there is none (what is due by age or count: wg_peer_sent). */
enum wg_send wg_peer_send_key(struct wg_peer *peer, const struct wg_now *now, struct wg_keypair **kp);
/* For other threads: the same without side effects. NULL with *rekey: tell the owner to call wg_peer_want_handshake. */
struct wg_keypair *wg_peer_current(struct wg_peer *peer, const struct wg_now *now, bool *rekey);
void wg_peer_want_handshake(struct wg_peer *peer, const struct wg_now *now);

/* Sent with kp: data packets (not keepalives) and bytes on the wire, keepalives counted in bytes. Once a batch. */
void wg_peer_sent(struct wg_peer *peer, struct wg_keypair *kp, const struct wg_now *now, unsigned data_packets,
                  uint64_t bytes);

#define WG_RECEIVED_DATA 1u /* at least one packet of the batch was not a keepalive */
/* Authenticated and in the window. Once a batch, with the last packet's addresses. True: staged packets can go now
 * (the responder's keypair was confirmed). */
bool wg_peer_received(struct wg_peer *peer, struct wg_keypair *kp, const struct wg_now *now,
                      const struct wg_endpoint *from, unsigned flags, uint64_t bytes);

/* Any thread. False: not known yet. */
bool wg_peer_endpoint(const struct wg_peer *peer, struct wg_endpoint *e);
/* Owner: from the resolver or a configuration; the sticky source goes. Flushes or begins a handshake that waited. */
void wg_peer_set_endpoint(struct wg_peer *peer, const struct wg_endpoint *e, const struct wg_now *now);
/* Owner: the sticky source was refused by the kernel (EINVAL, ENETUNREACH, EADDRNOTAVAIL). */
void wg_peer_forget_source(struct wg_peer *peer);

struct wg_peer_info {
    const uint8_t *public_key;
    const char *host;             /* NULL: endpoint was given as numbers, or not at all */
    uint64_t tx_bytes, rx_bytes;
    int64_t handshake_sec;        /* unix time of the last one, 0: never */
    uint32_t handshake_nsec;
    uint64_t handshake_boot;      /* boot time of the last one, 0: never: for its age */
    uint16_t persistent_keepalive;
    unsigned handshake_attempts;  /* initiations without an answer so far */
};
void wg_peer_info(const struct wg_peer *peer, struct wg_peer_info *info);
const char *wg_peer_host(const struct wg_peer *peer); /* "host:port" or NULL */
struct wg_device *wg_peer_device(const struct wg_peer *peer);
void **wg_peer_user(struct wg_peer *peer);            /* the caller's: staged packets */

struct wg_peer *wg_device_peer(struct wg_device *dev, const uint8_t public_key[32]);
struct wg_peer *wg_device_first_peer(struct wg_device *dev); /* in order of configuration */
struct wg_peer *wg_peer_next(struct wg_peer *peer);

/* ---- allowed IPs ---- */

struct wg_peer *wg_allowedips_lookup4(struct wg_device *dev, const uint8_t address[4]);
struct wg_peer *wg_allowedips_lookup6(struct wg_device *dev, const uint8_t address[16]);

/* ---- pure functions of the data path ---- */

/* Plaintext length on the wire; mtu 0: unknown. */
size_t wg_padded_length(size_t length, size_t mtu);
/* RFC 6040, on the two ECN bits. */
uint8_t wg_ecn_encapsulate(uint8_t inner);
uint8_t wg_ecn_decapsulate(uint8_t outer, uint8_t inner);
/* Length of the inner packet by its own header, 0: not IP, or longer than n. */
size_t wg_inner_length(const uint8_t *packet, size_t n);

/* ---- configuration protocol (uapi.c) ---- */

enum wg_uapi_mode {
    WG_UAPI_SET,   /* as the socket: line by line, what was before an error stays */
    WG_UAPI_CHECK, /* validates, touches nothing */
    WG_UAPI_SYNC,  /* makes the device equal to the text; unchanged peers keep their sessions and learnt endpoints */
};

#define WG_UAPI_HOSTS 1u /* endpoint=name:port is allowed */

/* A set in progress: on the stack of the caller or in its connection. */
struct wg_uapi_set {
    struct wg_device *dev;
    const struct wg_now *now; /* may be changed between lines */
    enum wg_uapi_mode mode;
    unsigned flags;
    uint8_t section;          /* uapi.c */
    bool created, sweep;      /* of the section's peer */
    bool seen_psk, seen_keepalive, seen_key, seen_mark;
    uint8_t key[32];          /* public key of the section */
    struct wg_peer *peer;
    const char *error;        /* after a failure: what would be right; never holds the value */
};
void wg_uapi_set_begin(struct wg_uapi_set *set, struct wg_device *dev, const struct wg_now *now, enum wg_uapi_mode mode,
                       unsigned flags);
/* A line without its newline ("set=1" and the blank line are the caller's). 0 or -errno; after an error: end. */
int wg_uapi_set_line(struct wg_uapi_set *set, const char *line, size_t n);
/* Ends the last section; ok false: after an error (SYNC then removes nothing). */
int wg_uapi_set_end(struct wg_uapi_set *set, bool ok);
/* A whole text of key=value lines. *line (may be NULL): number of the faulty line, from 1; *error as above. */
int wg_uapi_set_text(struct wg_device *dev, const struct wg_now *now, enum wg_uapi_mode mode, unsigned flags,
                     const char *text, size_t n, unsigned *line, const char **error);

/* A get in progress, in pieces: safe against changes of the device between them. */
struct wg_uapi_get {
    struct wg_device *dev;
    struct wg_uapi_get *next; /* of the device's list */
    struct wg_peer *peer;
    const void *allowed;
    uint8_t state;
};
void wg_uapi_get_begin(struct wg_uapi_get *get, struct wg_device *dev);
/* Writes whole lines into buffer (at least WG_UAPI_GET_MIN bytes); returns how many bytes, 0: done. No errno line. */
#define WG_UAPI_GET_MIN 640u
size_t wg_uapi_get_read(struct wg_uapi_get *get, char *buffer, size_t size);
void wg_uapi_get_end(struct wg_uapi_get *get);

#endif
