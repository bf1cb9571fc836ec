/* Between the workers of a tunnel: worker 0 owns the core, the others ask it by message. On the owner's own lane each of
 * these is the plain call. What a message names (peers, keypairs) lives until the owner has emptied its inbox. */
#include <string.h>

#include "flow/tunnel.h"

static bool post(struct tunnel_lane *lane, void (*run)(struct worker *, const struct message *), void *b, void *c,
                 uint64_t n, uint64_t m)
{
    struct message message = {.run = run, .a = lane->tunnel, .b = b, .c = c, .n = n, .m = m};
    return worker_post(lane->worker, &lane->tunnel->workers->worker[0], &message);
}

/* --- keys --- */

static void run_want_handshake(struct worker *worker, const struct message *message)
{
    wg_peer_want_handshake(message->b, tunnel_now(worker));
}

enum wg_send tunnel_send_key(struct tunnel_lane *lane, struct wg_peer *peer, struct wg_keypair **keypair)
{
    const struct wg_now *now = tunnel_now(lane->worker);
    bool rekey = false;
    if (tunnel_owner(lane))
        return wg_peer_send_key(peer, now, keypair);
    *keypair = wg_peer_current(peer, now, &rekey);
    if (!*keypair)
        return WG_SEND_STAGE; /* the owner stages the packet, and asks for the handshake */
    /* Once a millisecond is often enough: until the new keypair is there this is asked for every batch. */
    if (rekey && now->mono - lane->rekey_asked > 1000000) {
        lane->rekey_asked = now->mono;
        post(lane, run_want_handshake, peer, NULL, 0, 0);
    }
    return WG_SEND_OK;
}

static void run_sent(struct worker *worker, const struct message *message)
{
    wg_peer_sent(message->b, message->c, tunnel_now(worker), (unsigned)message->n, message->m);
}

void tunnel_sent(struct tunnel_lane *lane, struct wg_peer *peer, struct wg_keypair *keypair, unsigned packets,
                 uint64_t bytes)
{
    if (tunnel_owner(lane))
        wg_peer_sent(peer, keypair, tunnel_now(lane->worker), packets, bytes);
    else if (!post(lane, run_sent, peer, keypair, packets, bytes))
        lane->stats.drops[TUNNEL_DROP_IN_OWNER]++; /* only the accounting of this batch */
}

static void run_forget_source(struct worker *worker, const struct message *message)
{
    (void)worker;
    wg_peer_forget_source(message->b);
}

void tunnel_forget_source(struct tunnel_lane *lane, struct wg_peer *peer)
{
    if (tunnel_owner(lane))
        wg_peer_forget_source(peer);
    else
        post(lane, run_forget_source, peer, NULL, 0, 0);
}

/* --- handshakes --- */

static void run_handshake(struct worker *worker, const struct message *message)
{
    struct tunnel *tunnel = message->a;
    struct tunnel_handshake *handshake = message->b;
    tunnel_queue_add(tunnel_lane(tunnel, worker), &handshake->from, handshake->message, handshake->length);
    lease_give_remote(message->c, handshake);
}

void tunnel_give_handshake(struct tunnel_lane *lane, const struct wg_endpoint *from, const uint8_t *message, uint32_t n)
{
    struct lease_pool *pool = &lane->worker->leases;
    struct tunnel_handshake *handshake = n <= WG_HANDSHAKE_MAX ? lease_take(pool, LEASE_SMALL) : NULL;
    if (!handshake) {
        if (n > WG_HANDSHAKE_MAX)
            lane->stats.wg_drops[WG_DROP_HANDSHAKE_SIZE]++;
        else
            lane->stats.drops[TUNNEL_DROP_IN_NO_MEMORY]++;
        return;
    }
    handshake->from = *from;
    handshake->length = (uint8_t)n;
    memcpy(handshake->message, message, n);
    if (!post(lane, run_handshake, handshake, pool, 0, 0)) {
        lane->stats.drops[TUNNEL_DROP_IN_OWNER]++;
        lease_give(pool, handshake);
    }
}

/* --- packets out that find no key --- */

struct given_packet {
    uint32_t length;
    bool header_set;
    uint8_t header[VNET_HEADER_LEN];
    uint8_t packet[];
};

static void run_packet(struct worker *worker, const struct message *message)
{
    struct tunnel_lane *lane = tunnel_lane(message->a, worker);
    struct given_packet *given = message->b;
    tunnel_out(lane, given->header_set ? given->header : NULL, given->packet, given->length);
    tunnel_flush(lane);
    lease_give_remote(message->c, given);
}

void tunnel_give_packet(struct tunnel_lane *lane, const uint8_t header[VNET_HEADER_LEN], const uint8_t *packet,
                        size_t n)
{
    struct lease_pool *pool = &lane->worker->leases;
    enum lease_class class = lease_class_for(sizeof(struct given_packet) + n);
    struct given_packet *given = class < LEASE_CLASSES ? lease_take(pool, class) : NULL;
    if (!given) {
        lane->stats.drops[TUNNEL_DROP_OUT_NO_MEMORY]++;
        return;
    }
    given->length = (uint32_t)n;
    given->header_set = header != NULL;
    if (header)
        memcpy(given->header, header, VNET_HEADER_LEN);
    memcpy(given->packet, packet, n);
    if (!post(lane, run_packet, given, pool, 0, 0)) {
        lane->stats.drops[TUNNEL_DROP_IN_OWNER]++;
        lease_give(pool, given);
    }
}

/* --- packets in --- */

static void run_opened(struct worker *worker, const struct message *message)
{
    struct tunnel_opened *opened = message->b;
    tunnel_commit(tunnel_lane(opened->tunnel, worker), opened);
    lease_give_remote(message->c, opened);
}

bool tunnel_give_opened(struct tunnel_lane *lane, struct tunnel_opened *opened)
{
    struct lease_pool *pool = &lane->worker->leases;
    if (opened->n && post(lane, run_opened, opened, pool, 0, 0))
        return true;
    lane->stats.drops[TUNNEL_DROP_IN_OWNER] += opened->n;
    lease_give(pool, opened);
    return false;
}

static void run_buffer(struct worker *worker, const struct message *message)
{
    struct tunnel_scratch *scratch = tunnel_scratch(worker);
    if (scratch->gro_lane) /* its packets are the last ones of this buffer */
        tunnel_in_finish(scratch->gro_lane);
    lease_give_remote(message->c, message->b);
}

bool tunnel_give_buffer(struct worker *worker, uint8_t *buffer)
{
    struct message message = {.run = run_buffer, .b = buffer, .c = &worker->leases};
    bool went_on = true;
    /* Where not even this fits, the inbox has hundreds of messages and the owner is at work: it will not be long. At
     * the end of all it does not look any more: then the buffer goes with its pool. */
    while (!worker_post(worker, &worker->all->worker[0], &message) && !atomic_load(&worker->all->stop))
        went_on &= !worker_rest(worker);
    return went_on;
}
