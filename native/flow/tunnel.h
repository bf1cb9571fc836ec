/* A live WireGuard device: the sans-IO core of wg/ between a TUN and UDP sockets.
 *
 * Theory of operation
 *   tunnel.c      life: creation, sockets, configuration, timers, what the core asks for
 *   tunnel_out.c  TUN -> source NAT -> split -> allowed IPs -> batch -> seal -> one sendmsg with UDP_SEGMENT
 *   tunnel_in.c   sockets -> open -> replay window -> allowed IPs -> join by flow -> source NAT -> TUN
 *   tunnel_stage.c packets that wait for a handshake
 *
 *   Each worker has a lane: its queue of the TUN, its sockets, its open batch. Worker 0 owns the core (handshakes, timers,
 *   replay windows, configuration). A batch is one leased buffer of packets of one peer, equal in size (the last may be
 *   shorter), sealed in groups while they are warm in the cache, and is sent when it is full, when a packet does not fit
 *   it, or when nothing more is to be read. A blocked socket keeps its batch and stops the reading of the TUN.
 *
 *   A tunnel can be carried by another one of the same process (`detour`): its datagrams become inner packets of the
 *   carrier, written straight into the carrier's batch, and what the carrier opens for its port goes back the same way.
 */
#ifndef FV_FLOW_TUNNEL_H
#define FV_FLOW_TUNNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "crypto/chacha20poly1305.h"
#include "flow/nat.h"
#include "io/tun.h"
#include "io/udp.h"
#include "io/worker.h"
#include "wg/wg.h"
#include "wire/gro.h"

enum {
    TUNNEL_BATCH = 64,       /* packets of a batch: what UDP_SEGMENT takes on every kernel */
    TUNNEL_GROUP = 16,       /* sealed or opened together: 16 x 1.4 KiB stay in a first-level cache */
    TUNNEL_READS = 64,       /* TUN reads of one turn */
    TUNNEL_RECEIVES = 16,    /* receive calls of one turn */
    TUNNEL_TURN = 256 << 10, /* bytes after which the other direction has its turn: half a millisecond of sealing */
    TUNNEL_MESSAGES = 2,     /* of up to 64 KiB each, a receive call with UDP_GRO */
    TUNNEL_HANDSHAKES = 4,   /* with public-key work, a turn */
    TUNNEL_HANDSHAKES_SEEN = 64, /* of any kind, a turn */
};

struct tunnel;

/* Why a packet went no further, beside the core's own drops (enum wg_drop). */
#define TUNNEL_DROPS(X) \
    X(TUN_READ, "tun_read_bad") \
    X(TUN_WRITE, "tun_write_failed") \
    X(OUT_ICMP_RATE, "out_icmp_rate_limited") \
    X(OUT_PACKET, "out_not_ip") \
    X(OUT_SOCKET, "out_socket_failed") \
    X(OUT_BLOCKED, "out_socket_full") \
    X(OUT_NO_MEMORY, "out_no_memory") \
    X(IN_TRUNCATED, "in_truncated") \
    X(IN_NO_MEMORY, "in_no_memory") \
    X(IN_NO_TUN, "in_no_tun") \
    X(IN_QUEUE, "in_handshake_queue_full") \
    X(IN_OWNER, "in_owner_busy")
enum tunnel_drop {
#define X(name, text) TUNNEL_DROP_##name,
    TUNNEL_DROPS(X)
#undef X
        TUNNEL_DROP_COUNT
};
extern const char *const tunnel_drop_names[TUNNEL_DROP_COUNT];

/* What a lane has counted; owned by its worker, read by worker 0 while the others stand still. */
struct tunnel_stats {
    uint64_t drops[TUNNEL_DROP_COUNT];
    uint64_t tun_reads, tun_read_packets, tun_writes, tun_written_packets;
    uint64_t udp_sends, udp_sent_packets, udp_receives, udp_received_packets;
    uint64_t wg_drops[WG_DROP_COUNT]; /* the core's names, seen by this lane */
    uint64_t udp_segment_refused; /* batches that the kernel would not take whole on their path */
    uint64_t blocked; /* times a full socket stopped the reading of the TUN */
};

struct tunnel_socket {
    struct wake wake; /* WAKE_WG_SOCKET */
    struct tunnel_lane *lane;
    int fd;           /* -1: closed */
    bool v6;
};

struct tunnel_batch {
    struct wg_peer *peer;
    struct wg_keypair *keypair;
    uint8_t *buffer;      /* a LEASE_LARGE, or NULL */
    uint32_t used;        /* bytes */
    uint32_t segment;     /* wire length of the first packet */
    uint32_t data_packets;
    uint16_t count, sealed;
    uint8_t tos;          /* of the outer packets */
    bool closed;          /* a shorter packet is in: none may follow */
    struct chacha_job jobs[TUNNEL_BATCH];
};

struct tunnel_datagram { /* of one UDP message, or of a carried tunnel */
    uint8_t *data;
    uint32_t length;
};

/* What a carrier has opened for one of the tunnels that it carries, on its way there. */
struct tunnel_gather {
    struct tunnel *inner;
    struct wg_endpoint from;
    uint8_t tos;
    unsigned n;
    struct tunnel_datagram datagrams[TUNNEL_BATCH];
};

struct tunnel_lane {
    struct tunnel *tunnel;
    struct worker *worker;
    struct tun tun;            /* fd -1: none */
    struct wake tun_wake;      /* WAKE_TUN */
    struct tunnel_socket socket4, socket6;
    struct tunnel_batch batch;
    struct tunnel_gather *gather; /* of a carrier, else NULL */
    uint64_t unreachable_at;   /* monotonic ns: when the allowance of ICMP errors is whole again */
    const struct wg_peer *singly_peer; /* whose path took no batch of singly_segment bytes; only compared */
    uint32_t singly_segment;
    uint64_t singly_until;     /* monotonic ns */
    uint64_t rekey_asked;      /* monotonic ns; of a lane that is not the owner's */
    uint32_t longest;          /* bytes of room for a datagram that comes alone; 0: by our own MTU */
    bool blocked;              /* the batch waits for its socket */
    uint32_t pending_at;       /* bytes of it that are out already */
    struct tunnel_stats stats;
};

/* A handshake message that waits for its turn. */
struct tunnel_handshake {
    struct wg_endpoint from;
    uint8_t length;
    uint8_t message[WG_HANDSHAKE_MAX];
};

struct tunnel_config {
    char name[TUN_NAME];
    bool tun;                  /* has a TUN of its own */
    int tun_fd;                /* one that somebody else has set up, or -1 */
    unsigned mtu;              /* 0: as it is */
    unsigned workers;
    bool source4_set, source6_set;
    uint8_t source4[4], source6[16]; /* own tunnel addresses: for what it carries, and for NAT */
};

struct tunnel_events {
    void *user;
    void (*closed)(void *user, struct tunnel *tunnel);    /* the TUN is gone: the device was deleted */
    void (*resolve)(void *user, struct tunnel *tunnel, struct wg_peer *peer);
    void (*persist)(void *user, struct tunnel *tunnel, const uint8_t stamp[WG_STAMP_SIZE]);
};

struct tunnel {
    struct tunnel_config config;
    struct wg_device *core;
    struct wg_hooks hooks;
    struct tunnel_events events;
    struct workers *workers;
    struct tunnel_lane *lanes; /* [config.workers] */
    unsigned mtu;
    bool up;
    struct timer timer;        /* WAKE_WG_TIMER, on worker 0 */
    struct nat *nat;           /* or NULL */
    pthread_mutex_t nat_lock;  /* taken once a super-packet, and only where there are several workers */
    uint64_t nat_next;         /* monotonic ns of the next nat_expire */
    struct tunnel *carrier;    /* `detour`, or NULL */
    bool orphan;               /* its carrier is gone: it stays down until tunnel_carry_by says how it goes on */
    struct tunnel *carried;    /* first of the tunnels that this one carries */
    struct tunnel *next_carried;
    struct tunnel *next;       /* of the process */
    /* handshake messages, a ring that grows out of leases as it fills */
    uint8_t *queue[WG_QUEUE_MAX * sizeof(struct tunnel_handshake) / LEASE_RECORD_SIZE + 2];
    unsigned queue_head, queue_used;
    uint64_t queue_at; /* monotonic ns before which no more is worked off while data moves */
};

/* NULL and *error (-errno) on failure. seed: 32 bytes of entropy. The device is down. */
struct tunnel *tunnel_new(struct workers *workers, const struct tunnel_config *config,
                          const struct tunnel_events *events, const uint8_t seed[32], int *error);
void tunnel_free(struct tunnel *tunnel);
/* Its datagrams go through `carrier` from now on; NULL: through sockets of its own. 0 or -errno. */
int tunnel_carry_by(struct tunnel *tunnel, struct tunnel *carrier);
/* Translates from now on by `nat` (NULL: not at all), which is the tunnel's to free. */
void tunnel_set_nat(struct tunnel *tunnel, struct nat *nat);
/* The interface's MTU or state may have changed: takes the MTU over, and goes up and down with the interface as the
 * kernel's own WireGuard does. 0 or -errno of tunnel_up. */
int tunnel_link_changed(struct tunnel *tunnel);
/* Routes or addresses of the host may have changed: forgets our side's address with the peers to whom packets would go by
 * another interface now. */
void tunnel_routes_changed(struct tunnel *tunnel);
/* Opens sockets and lets the core run; 0 or -errno. Worker 0. */
int tunnel_up(struct tunnel *tunnel);
void tunnel_down(struct tunnel *tunnel);
/* After every change of the core from outside (configuration, endpoints): does what it asks for and sets the timer. */
void tunnel_kick(struct tunnel *tunnel);
/* What a turn needs and no turn keeps: one a worker, at worker->scratch. */
struct tunnel_scratch {
    struct wg_now now;                  /* read at the beginning of the turn */
    bool given;                         /* something in the buffers under work was given to the owner */
    struct gro gro;
    struct tunnel_lane *gro_lane;       /* whose packets are in it */
    struct tunnel_datagram datagrams[TUNNEL_MESSAGES * TUNNEL_BATCH];
};
int tunnel_scratch_init(struct worker *worker);
void tunnel_scratch_free(struct worker *worker);
/* At the beginning of each turn of a worker. */
void tunnel_turn_begin(struct worker *worker);
static inline struct tunnel_scratch *tunnel_scratch(const struct worker *worker)
{
    return worker->scratch;
}
static inline const struct wg_now *tunnel_now(const struct worker *worker)
{
    return &tunnel_scratch(worker)->now;
}

/* The cases of the switch. */
void tunnel_tun_ready(struct tunnel_lane *lane);
void tunnel_socket_ready(struct tunnel_socket *socket, unsigned events);
/* Once a turn on worker 0: queued handshakes, what the core wants, memory of the dead. Its timer only wakes the worker. */
void tunnel_turn(struct tunnel *tunnel);

/* Sum over the lanes; worker 0, the others paused. */
void tunnel_stats(const struct tunnel *tunnel, struct tunnel_stats *sum);

/* --- between the files of the tunnel --- */

static inline bool tunnel_owner(const struct tunnel_lane *lane)
{
    return lane->worker->index == 0;
}
/* tunnel_worker.c: what the other workers ask of the owner. */
enum wg_send tunnel_send_key(struct tunnel_lane *lane, struct wg_peer *peer, struct wg_keypair **keypair);
void tunnel_sent(struct tunnel_lane *lane, struct wg_peer *peer, struct wg_keypair *keypair, unsigned packets,
                 uint64_t bytes);
void tunnel_forget_source(struct tunnel_lane *lane, struct wg_peer *peer);
void tunnel_give_handshake(struct tunnel_lane *lane, const struct wg_endpoint *from, const uint8_t *message,
                           uint32_t n);
void tunnel_give_packet(struct tunnel_lane *lane, const uint8_t header[VNET_HEADER_LEN], const uint8_t *packet,
                        size_t n);
/* Packets that another worker has opened, for the owner to commit. In a LEASE_SMALL. */
struct tunnel_opened {
    struct tunnel *tunnel;
    struct wg_keypair *keypair;
    struct wg_endpoint from;
    uint8_t tos;
    unsigned n;
    struct {
        uint8_t *data; /* plaintext */
        uint64_t counter;
        uint32_t plain; /* bytes */
    } packets[TUNNEL_BATCH];
};
_Static_assert(sizeof(struct tunnel_opened) <= LEASE_SMALL_SIZE, "fits its lease");
/* False: the owner's inbox is full, the packets are counted as dropped. */
bool tunnel_give_opened(struct tunnel_lane *lane, struct tunnel_opened *opened);
/* The buffers that what was given lies in go back when the owner is done with it. False: the worker had to stand still
 * for that, and whatever it knew of tunnels and lanes may be gone. */
bool tunnel_give_buffer(struct worker *worker, uint8_t *buffer);
void tunnel_commit(struct tunnel_lane *lane, const struct tunnel_opened *opened);
void tunnel_queue_add(struct tunnel_lane *lane, const struct wg_endpoint *from, const uint8_t *message, uint32_t n);

void tunnel_act(struct tunnel *tunnel, const struct wg_output *out);
void tunnel_send_message(struct tunnel *tunnel, const struct wg_endpoint *to, uint8_t tos, const uint8_t *message,
                         size_t n);
/* An inner packet on its way out. header: virtio header or NULL for a plain, complete packet. */
void tunnel_out(struct tunnel_lane *lane, const uint8_t header[VNET_HEADER_LEN], uint8_t *packet, size_t n);
void tunnel_keepalive(struct tunnel_lane *lane, struct wg_peer *peer);
void tunnel_flush(struct tunnel_lane *lane);
/* The blocked batch's socket has room again. */
void tunnel_resume(struct tunnel_lane *lane);
void tunnel_handshakes(struct tunnel *tunnel);
void tunnel_queue_free(struct tunnel *tunnel);
/* Forgets the open batch and gives its buffer back. */
void tunnel_batch_drop(struct tunnel_lane *lane);
/* Datagrams of the carried tunnel `inner` to `to`: into the carrier's batch. */
void tunnel_carry(struct tunnel_lane *lane, uint16_t port, const struct wg_endpoint *to, uint8_t tos,
                  const uint8_t *data, size_t length, size_t segment);

/* Datagrams that arrived together from one address. */
void tunnel_in(struct tunnel_lane *lane, const struct wg_endpoint *from, uint8_t tos, struct tunnel_datagram *datagrams,
               unsigned n);
/* Writes what tunnel_in has gathered. */
void tunnel_in_finish(struct tunnel_lane *lane);

/* tunnel_nat.c: a packet on its way out of the LAN, or in (joined, not yet written). False: it goes no further. */
bool tunnel_nat_out(struct tunnel_lane *lane, const uint8_t *header, uint8_t *packet, size_t n);
bool tunnel_nat_in(struct tunnel_lane *lane, const uint8_t *header, uint8_t *packet, size_t n);
/* Sends fragments whose first one has gone by now. */
void tunnel_nat_held(struct tunnel_lane *lane);
void tunnel_nat_expire(struct tunnel *tunnel, uint64_t now);
/* Where the packet of iov[0] is to be written. */
const struct tun *tunnel_queue_for(const struct tunnel_lane *lane, const struct iovec *iov);

void tunnel_stage(struct tunnel_lane *lane, struct wg_peer *peer, const uint8_t header[VNET_HEADER_LEN],
                  const uint8_t *packet, size_t n);
void tunnel_stage_flush(struct tunnel_lane *lane, struct wg_peer *peer);
void tunnel_stage_drop(struct tunnel *tunnel, struct wg_peer *peer, enum wg_drop why);
bool tunnel_staged(struct wg_peer *peer);

static inline struct tunnel_lane *tunnel_lane(struct tunnel *tunnel, const struct worker *worker)
{
    return &tunnel->lanes[worker->index < tunnel->config.workers ? worker->index : 0];
}

#endif
