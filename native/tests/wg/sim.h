/* Two hosts running WireGuard's core on a virtual clock, with a wire between them that can lose, delay and record.
 *
 *   sim_begin(&s) -> hosts a and b know each other, both up; sim_send(host, n) wants n data packets sent;
 *   sim_run(&s, seconds) lets time pass from event to event. What went over the wire is in s.log.
 *
 * Data packets are really sealed and opened; each carries its number, and the receiver counts what it has not seen. */
#ifndef FV_TESTS_WG_SIM_H
#define FV_TESTS_WG_SIM_H

#include <stdlib.h>

#include "crypto/chacha20poly1305.h"
#include "tests/check.h"
#include "wg/device.h"
#include "wire/bytes.h"

enum { SIM_MESSAGE_MAX = 160, SIM_LOG_MAX = 20000, SIM_FLYING_MAX = 4096 };

struct sim_message {
    uint64_t at;               /* sent */
    unsigned from;             /* host */
    struct wg_endpoint source, destination;
    uint8_t tos;
    bool lost;
    size_t n;
    uint8_t bytes[SIM_MESSAGE_MAX];
};

struct sim_host {
    unsigned number;
    struct wg_device *dev;
    struct wg_peer *peer;      /* the other one */
    struct wg_endpoint address;
    int64_t wall_offset;       /* seconds added to the common wall clock */
    unsigned load;             /* told to wg_device_load before every handshake message */
    unsigned staged;
    uint64_t sent, received, doubles, keepalives, expired, staged_dropped, gave_up;
    unsigned resolves, persists, no_endpoint;
    uint8_t persisted[WG_STAMP_SIZE];
    uint8_t seen[4096];        /* of the other's packet numbers */
};

struct sim {
    uint64_t time;             /* ns, the monotonic clock of both */
    uint64_t latency;
    struct sim_host host[2];
    bool (*lose)(struct sim *s, const struct sim_message *m);
    unsigned loss_percent;
    uint64_t loss_random;
    unsigned flying_first, flying_count;
    struct sim_message *flying; /* in order of arrival: the latency is constant */
    struct sim_message *log;
    unsigned log_count;
};

#define SIM_WALL 1700000000

static inline struct wg_now sim_now(const struct sim *s, const struct sim_host *h)
{
    return (struct wg_now){
        .mono = s->time,
        .boot = s->time + 1000 * WG_SECOND, /* another zero: mixing the two up shows */
        .wall_sec = SIM_WALL + h->wall_offset + (int64_t)(s->time / WG_SECOND),
        .wall_nsec = (uint32_t)(s->time % WG_SECOND),
    };
}

static inline void sim_transmit(struct sim *s, struct sim_host *h, const uint8_t *bytes, size_t n,
                                const struct wg_endpoint *to, uint8_t tos)
{
    struct sim_message m = {
        .at = s->time, .from = h->number, .source = h->address, .destination = *to, .tos = tos, .n = n};
    memcpy(m.bytes, bytes, n);
    s->loss_random ^= s->loss_random << 13, s->loss_random ^= s->loss_random >> 7,
        s->loss_random ^= s->loss_random << 17;
    m.lost = (s->lose && s->lose(s, &m)) || (s->loss_random >> 20) % 100 < s->loss_percent;
    if (CHECK(s->log_count < SIM_LOG_MAX))
        s->log[s->log_count++] = m;
    if (!m.lost && CHECK(s->flying_count < SIM_FLYING_MAX))
        s->flying[(s->flying_first + s->flying_count++) % SIM_FLYING_MAX] = m;
}

/* Seals and sends one packet: number 0 is a keepalive. False: staged or impossible. */
static inline bool sim_seal(struct sim *s, struct sim_host *h, uint64_t number)
{
    struct wg_now now = sim_now(s, h);
    struct wg_keypair *kp;
    enum wg_send how = wg_peer_send_key(h->peer, &now, &kp);
    uint64_t counter;
    h->no_endpoint += how == WG_SEND_NO_ENDPOINT;
    if (how != WG_SEND_OK || !CHECK(wg_keypair_counters(kp, 1, &counter)))
        return false;
    uint8_t plain[64] = {0}, msg[WG_DATA_OVERHEAD + 64];
    size_t length = number ? wg_padded_length(44, 1420) : 0;
    store_be64(plain + 20, number);
    store_le32(msg, WG_TYPE_DATA);
    store_le32(msg + WG_DATA_RECEIVER, kp->remote_index);
    store_le64(msg + WG_DATA_COUNTER, counter);
    struct chacha_job job = {msg + WG_DATA_SEALED, plain, (uint32_t)length, false, counter};
    chacha_seal_batch(kp->send_key, &job, 1);
    struct wg_endpoint to;
    CHECK(wg_peer_endpoint(h->peer, &to));
    sim_transmit(s, h, msg, length + WG_DATA_OVERHEAD, &to, 0);
    wg_peer_sent(h->peer, kp, &now, number != 0, length + WG_DATA_OVERHEAD);
    return true;
}

static inline bool sim_flush(struct sim *s, struct sim_host *h)
{
    bool any = false;
    while (h->staged && sim_seal(s, h, h->sent + 1)) {
        h->staged--;
        h->sent++;
        any = true;
    }
    return any;
}

static inline void sim_send(struct sim *s, struct sim_host *h, unsigned n)
{
    while (n--) {
        if (h->staged == WG_STAGED_MAX) {
            h->staged--;
            h->staged_dropped++;
        }
        h->staged++;
        sim_flush(s, h);
    }
}

static inline void sim_act(struct sim *s, struct sim_host *h, const struct wg_output *out)
{
    switch (out->action) {
    case WG_ACTION_SEND:
        sim_transmit(s, h, out->message, out->length, &out->to, out->tos);
        break;
    case WG_ACTION_KEEPALIVE:
        if (!sim_flush(s, h))
            sim_seal(s, h, 0);
        break;
    case WG_ACTION_FLUSH:
        sim_flush(s, h);
        break;
    case WG_ACTION_DROP_STAGED:
        h->gave_up++;
        h->staged_dropped += h->staged;
        h->staged = 0;
        break;
    case WG_ACTION_RESOLVE:
        h->resolves++;
        break;
    case WG_ACTION_PERSIST:
        h->persists++;
        memcpy(h->persisted, out->stamp, WG_STAMP_SIZE);
        break;
    case WG_ACTION_NONE:
    case WG_ACTION_COUNT:
        break;
    }
}

static inline void sim_poll(struct sim *s, struct sim_host *h)
{
    struct wg_output out;
    struct wg_now now = sim_now(s, h);
    unsigned turns = 0;
    while (wg_device_poll(h->dev, &now, &out) && CHECK(turns++ < 1000))
        sim_act(s, h, &out);
    wg_device_retire(h->dev);
    wg_device_reclaim(h->dev);
}

/* What a host does with a datagram, whoever it is from. */
static inline void sim_receive(struct sim *s, struct sim_host *h, const struct wg_endpoint *from, const uint8_t *bytes,
                               size_t n)
{
    struct wg_now now = sim_now(s, h);
    struct wg_endpoint source = *from;
    source.local_family = h->address.family;
    memcpy(source.local, h->address.address, 16);
    source.local_ifindex = 3;
    if (n >= 4 && load_le32(bytes) == WG_TYPE_DATA) {
        struct wg_keypair *kp =
            n >= WG_DATA_OVERHEAD ? wg_keypair_find(h->dev, load_le32(bytes + WG_DATA_RECEIVER)) : NULL;
        if (!kp)
            return;
        if (!wg_keypair_usable(kp, &now)) {
            h->expired++;
            return;
        }
        uint8_t plain[SIM_MESSAGE_MAX];
        uint64_t counter = load_le64(bytes + WG_DATA_COUNTER);
        struct chacha_job job = {plain, bytes + WG_DATA_SEALED, (uint32_t)(n - WG_DATA_SEALED), false, counter};
        if (chacha_open_batch(kp->receive_key, &job, 1) != 0 || !wg_keypair_accept(kp, counter))
            return;
        struct wg_peer *peer = kp->peer;
        if (n == WG_DATA_OVERHEAD) {
            h->keepalives++;
        } else {
            uint64_t number = load_be64(plain + 20);
            h->received++;
            h->doubles += number < sizeof h->seen && h->seen[number];
            if (number < sizeof h->seen)
                h->seen[number] = 1;
        }
        if (wg_peer_received(peer, kp, &now, &source, n == WG_DATA_OVERHEAD ? 0 : WG_RECEIVED_DATA, n))
            sim_flush(s, h);
    } else {
        struct wg_output out;
        wg_device_load(h->dev, &now, h->load);
        wg_receive_handshake(h->dev, &now, &source, bytes, n, &out);
        sim_act(s, h, &out);
    }
    sim_poll(s, h);
}

static inline void sim_deliver(struct sim *s)
{
    struct sim_message m = s->flying[s->flying_first];
    s->flying_first = (s->flying_first + 1) % SIM_FLYING_MAX;
    s->flying_count--;
    for (unsigned i = 0; i < 2; i++) {
        struct sim_host *h = &s->host[i];
        if (i != m.from && h->address.port == m.destination.port &&
            memcmp(h->address.address, m.destination.address, 16) == 0)
            sim_receive(s, h, &m.source, m.bytes, m.n);
    }
}

/* Lets `ns` pass. */
static inline void sim_run_ns(struct sim *s, uint64_t ns)
{
    uint64_t until = s->time + ns;
    for (;;) {
        uint64_t next = until;
        for (unsigned i = 0; i < 2; i++) {
            sim_poll(s, &s->host[i]);
            next = MIN(next, MAX(s->time, wg_device_next(s->host[i].dev)));
        }
        if (s->flying_count)
            next = MIN(next, s->flying[s->flying_first].at + s->latency);
        s->time = next;
        while (s->flying_count && s->flying[s->flying_first].at + s->latency <= s->time)
            sim_deliver(s);
        if (s->time == until) {
            sim_poll(s, &s->host[0]);
            sim_poll(s, &s->host[1]);
            return;
        }
    }
}

static inline void sim_run(struct sim *s, unsigned seconds)
{
    sim_run_ns(s, seconds * WG_SECOND);
}

static inline struct wg_endpoint sim_address(unsigned last, uint16_t port)
{
    return (struct wg_endpoint){.family = WG_FAMILY_V4, .port = port, .address = {192, 0, 2, (uint8_t)last}};
}

static inline void sim_key(unsigned host, uint8_t key[32])
{
    for (unsigned i = 0; i < 32; i++)
        key[i] = (uint8_t)(i * 7 + host * 31 + 1);
}

static inline void sim_host_begin(struct sim *s, unsigned number)
{
    struct sim_host *h = &s->host[number];
    uint8_t seed[32] = {(uint8_t)number, 77}, key[32];
    *h = (struct sim_host){.number = number, .address = sim_address(1 + number, (uint16_t)(51820 + number))};
    sim_key(number, key);
    h->dev = wg_device_new(seed, NULL);
    CHECK_EQ(wg_device_set_private_key(h->dev, key), 0);
}

static inline void sim_introduce(struct sim *s, unsigned number)
{
    struct sim_host *h = &s->host[number], *other = &s->host[!number];
    uint8_t key[32];
    struct wg_now now = sim_now(s, h);
    CHECK(wg_device_public_key(other->dev, key));
    h->peer = wg_peer_new(h->dev, key);
    wg_peer_set_endpoint(h->peer, &other->address, &now);
    wg_device_up(h->dev, &now);
}

static inline void sim_begin(struct sim *s)
{
    *s = (struct sim){.time = 5000 * WG_SECOND, .latency = 10 * WG_MS, .loss_random = 0x9e3779b97f4a7c15ull};
    s->flying = calloc(SIM_FLYING_MAX, sizeof *s->flying);
    s->log = calloc(SIM_LOG_MAX, sizeof *s->log);
    sim_host_begin(s, 0);
    sim_host_begin(s, 1);
    sim_introduce(s, 0);
    sim_introduce(s, 1);
    sim_run_ns(s, 0);
}

static inline void sim_end(struct sim *s)
{
    wg_device_free(s->host[0].dev);
    wg_device_free(s->host[1].dev);
    free(s->flying);
    free(s->log);
}

/* How many messages of a type a host has sent since log entry `since`; keepalives are type 0. */
static inline unsigned sim_count(const struct sim *s, unsigned host, unsigned type, unsigned since)
{
    unsigned n = 0;
    for (unsigned i = since; i < s->log_count; i++) {
        const struct sim_message *m = &s->log[i];
        unsigned is = load_le32(m->bytes) == WG_TYPE_DATA && m->n == WG_DATA_OVERHEAD ? 0 : load_le32(m->bytes);
        n += m->from == host && is == type;
    }
    return n;
}

/* The n-th (from 0) message of a type by a host; NULL: none. */
static inline const struct sim_message *sim_find(const struct sim *s, unsigned host, unsigned type, unsigned n)
{
    for (unsigned i = 0; i < s->log_count; i++) {
        const struct sim_message *m = &s->log[i];
        unsigned is = load_le32(m->bytes) == WG_TYPE_DATA && m->n == WG_DATA_OVERHEAD ? 0 : load_le32(m->bytes);
        if (m->from == host && is == type && n-- == 0)
            return m;
    }
    return NULL;
}

#endif
