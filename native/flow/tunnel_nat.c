/* Source NAT in the tunnel's way: before splitting on the way out, after joining on the way in. The table is one; with
 * several workers it is locked once a super-packet. */
#include "flow/tunnel.h"
#include "io/clock.h"

static void lock(struct tunnel *tunnel)
{
    if (tunnel->config.workers > 1)
        pthread_mutex_lock(&tunnel->nat_lock);
}

static void unlock(struct tunnel *tunnel)
{
    if (tunnel->config.workers > 1)
        pthread_mutex_unlock(&tunnel->nat_lock);
}

/* Fragments that were waiting for their first one. Called locked; the packet is nat's until the next call of it. */
static void send_held(struct tunnel_lane *lane)
{
    uint8_t *packet;
    size_t n;
    bool out;
    while ((n = nat_take(lane->tunnel->nat, &packet, &out)) != 0) {
        unsigned offset = lane->tun.vnet ? VNET_HEADER_LEN : 0;
        struct iovec iov = {packet - offset, n + offset};
        if (out)
            tunnel_out(lane, NULL, packet, n);
        else if (tun_write(tunnel_queue_for(lane, &iov), &iov, 1))
            lane->stats.drops[TUNNEL_DROP_TUN_WRITE]++;
    }
}

void tunnel_nat_held(struct tunnel_lane *lane)
{
    lock(lane->tunnel);
    send_held(lane);
    unlock(lane->tunnel);
}

static bool passes(enum nat_verdict verdict)
{
    return verdict == NAT_PASS || verdict == NAT_TRANSLATED || verdict == NAT_LOCAL;
}

bool tunnel_nat_out(struct tunnel_lane *lane, const uint8_t *header, uint8_t *packet, size_t n)
{
    struct tunnel *tunnel = lane->tunnel;
    lock(tunnel);
    enum nat_verdict verdict = nat_out(tunnel->nat, tunnel_now(lane->worker)->mono, header, packet, n);
    bool pass = passes(verdict);
    unlock(tunnel);
    return pass;
}

bool tunnel_nat_in(struct tunnel_lane *lane, const uint8_t *header, uint8_t *packet, size_t n)
{
    struct tunnel *tunnel = lane->tunnel;
    lock(tunnel);
    enum nat_verdict verdict = nat_in(tunnel->nat, tunnel_now(lane->worker)->mono, header, packet, n);
    bool pass = passes(verdict);
    unlock(tunnel);
    return pass;
}

void tunnel_nat_expire(struct tunnel *tunnel, uint64_t now)
{
    struct tunnel_lane *lane = &tunnel->lanes[0];
    const uint64_t soon = now + 2ull * NS_PER_S;
    lock(tunnel);
    tunnel->nat_next = nat_expire(tunnel->nat, now);
    if (tunnel->nat_next > soon) /* what begins after this look says nothing: another look, then */
        tunnel->nat_next = soon;
    send_held(lane);
    unlock(tunnel);
    tunnel_flush(lane);
}
