/* The way out: from the TUN to the wire. */
#include <errno.h>
#include <string.h>

#include "flow/tunnel.h"
#include "io/log.h"
#include "wire/bytes.h"
#include "wire/checksum.h"
#include "wire/icmp.h"

/* --- addresses between the core's form and the kernel's --- */

static void endpoint_to_kernel(const struct wg_endpoint *e, union udp_address *to, struct udp_source *source)
{
    memset(to, 0, sizeof *to);
    if (e->family == WG_FAMILY_V4) {
        to->in4.sin_family = AF_INET;
        to->in4.sin_port = htons(e->port);
        memcpy(&to->in4.sin_addr, e->address, 4);
    } else {
        to->in6.sin6_family = AF_INET6;
        to->in6.sin6_port = htons(e->port);
        to->in6.sin6_scope_id = e->scope;
        memcpy(&to->in6.sin6_addr, e->address, 16);
    }
    memset(source, 0, sizeof *source);
    if (e->local_family == e->family) {
        source->family = e->family == WG_FAMILY_V4 ? AF_INET : AF_INET6;
        source->ifindex = e->scope ? e->local_ifindex : 0; /* by which way is the routing table's to say */
        if (e->family == WG_FAMILY_V4)
            memcpy(&source->in4, e->local, 4);
        else
            memcpy(&source->in6, e->local, 16);
    }
}

void tunnel_send_message(struct tunnel *tunnel, const struct wg_endpoint *to, uint8_t tos, const uint8_t *message,
                         size_t n)
{
    struct tunnel_lane *lane = &tunnel->lanes[0];
    if (tunnel->carrier) {
        struct tunnel_lane *under = tunnel_lane(tunnel->carrier, lane->worker);
        tunnel_carry(under, wg_device_port(tunnel->core), to, tos, message, n, n);
        tunnel_flush(under);
        return;
    }
    struct tunnel_socket *socket = to->family == WG_FAMILY_V6 ? &lane->socket6 : &lane->socket4;
    union udp_address address;
    struct udp_source source;
    struct udp_outcome outcome = {0};
    if (socket->fd < 0)
        return;
    endpoint_to_kernel(to, &address, &source);
    lane->stats.udp_sends++;
    if (udp_send(socket->fd, &address, &source, tos, message, n, n, &outcome) == UDP_SENT)
        lane->stats.udp_sent_packets++;
    else
        lane->stats.drops[TUNNEL_DROP_OUT_SOCKET]++;
}

/* --- the batch --- */

static void batch_seal(struct tunnel_batch *batch)
{
    unsigned n = batch->count - batch->sealed;
    uint64_t counter;
    if (!n)
        return;
    if (!wg_keypair_counters(batch->keypair, n, &counter)) {
        /* The reject limit: these cannot go; the core has asked for a handshake long ago (2^60). */
        batch->count = batch->sealed;
        batch->used = batch->count ? (uint32_t)(batch->jobs[batch->count - 1].dst - batch->buffer) +
                                         batch->jobs[batch->count - 1].len + WG_TAG_SIZE
                                   : 0;
        return;
    }
    for (unsigned i = batch->sealed; i < batch->count; i++) {
        uint8_t *header = batch->jobs[i].dst - WG_DATA_SEALED;
        batch->jobs[i].counter = counter;
        store_le32(header, WG_TYPE_DATA);
        store_le32(header + WG_DATA_RECEIVER, batch->keypair->remote_index);
        store_le64(header + WG_DATA_COUNTER, counter++);
    }
    chacha_seal_batch(batch->keypair->send_key, batch->jobs + batch->sealed, n);
    batch->sealed = batch->count;
}

static void batch_reset(struct tunnel_batch *batch)
{
    batch->peer = NULL;
    batch->keypair = NULL;
    batch->used = batch->data_packets = 0;
    batch->count = batch->sealed = 0;
    batch->closed = false;
}

static void batch_done(struct tunnel_lane *lane)
{
    batch_reset(&lane->batch);
    lane->blocked = false;
    lane->pending_at = 0;
}

/* A path whose route is smaller than the batch's packets takes no batches: for a while it is not asked again, and its
 * packets go one by one, in fragments. */
static bool singly_known(const struct tunnel_lane *lane)
{
    return lane->singly_peer == lane->batch.peer && lane->batch.segment >= lane->singly_segment &&
           tunnel_now(lane->worker)->mono < lane->singly_until;
}

static void singly_learn(struct tunnel_lane *lane)
{
    lane->singly_peer = lane->batch.peer;
    lane->singly_segment = lane->batch.segment;
    lane->singly_until = tunnel_now(lane->worker)->mono + 10 * WG_SECOND;
    lane->stats.udp_segment_refused++;
    log_info("%s: packets of %u bytes do not fit the path to a peer whole: they go one by one (MTU)",
             lane->tunnel->config.name, lane->batch.segment);
}

/* Hands the sealed batch to the socket; on a full socket it stays, and the TUN is not read until there is room. */
static void batch_send(struct tunnel_lane *lane)
{
    struct tunnel_batch *batch = &lane->batch;
    struct wg_endpoint endpoint;
    if (!batch->used || !wg_peer_endpoint(batch->peer, &endpoint)) {
        batch_done(lane);
        return;
    }
    if (lane->tunnel->carrier) {
        struct tunnel_lane *under = tunnel_lane(lane->tunnel->carrier, lane->worker);
        tunnel_carry(under, wg_device_port(lane->tunnel->core), &endpoint, batch->tos, batch->buffer, batch->used,
                     batch->segment);
        batch_done(lane);
        return;
    }
    struct tunnel_socket *socket = endpoint.family == WG_FAMILY_V6 ? &lane->socket6 : &lane->socket4;
    if (socket->fd < 0) {
        lane->stats.drops[TUNNEL_DROP_OUT_SOCKET] += batch->count;
        batch_done(lane);
        return;
    }
    union udp_address address;
    struct udp_source source;
    struct udp_outcome outcome = {.singly = singly_known(lane)};
    endpoint_to_kernel(&endpoint, &address, &source);
    bool had_source = source.family != 0;
    uint32_t left = batch->used - lane->pending_at;
    enum udp_result result = udp_send(socket->fd, &address, &source, batch->tos, batch->buffer + lane->pending_at, left,
                                      batch->segment, &outcome);
    lane->stats.udp_sends++;
    lane->stats.udp_sent_packets += outcome.sent;
    if (outcome.singly)
        singly_learn(lane);
    if (had_source && !source.family)
        tunnel_forget_source(lane, batch->peer);
    if (result == UDP_AGAIN) {
        lane->pending_at += outcome.sent * batch->segment;
        lane->blocked = true;
        lane->stats.blocked++;
        loop_interest(&lane->worker->loop, &socket->wake, WAKE_READ | WAKE_WRITE);
        if (lane->tun_wake.kind)
            loop_interest(&lane->worker->loop, &lane->tun_wake, 0);
        return;
    }
    if (result == UDP_FAILED) {
        unsigned packets = (left + batch->segment - 1) / batch->segment;
        lane->stats.drops[TUNNEL_DROP_OUT_SOCKET] += packets - outcome.sent;
        log_warning("%s: sending failed: %s", lane->tunnel->config.name, strerror(-outcome.error));
    }
    batch_done(lane);
}

void tunnel_flush(struct tunnel_lane *lane)
{
    struct tunnel_batch *batch = &lane->batch;
    if (lane->blocked || !batch->buffer)
        return;
    if (batch->count) {
        batch_seal(batch);
        tunnel_sent(lane, batch->peer, batch->keypair, batch->data_packets, batch->used);
        batch_send(lane);
    }
    if (!lane->blocked) {
        lease_give(&lane->worker->leases, batch->buffer);
        batch->buffer = NULL;
    }
    if (lane->tunnel->carrier)
        tunnel_flush(tunnel_lane(lane->tunnel->carrier, lane->worker));
}

/* Sends what is in the batch, keeps its buffer. False: the socket is full. */
static bool batch_turn_over(struct tunnel_lane *lane)
{
    struct tunnel_batch *batch = &lane->batch;
    if (!batch->count)
        return true;
    batch_seal(batch);
    tunnel_sent(lane, batch->peer, batch->keypair, batch->data_packets, batch->used);
    batch_send(lane);
    return !lane->blocked;
}

/* Room for one more packet of `plain` bytes (padding included) for this peer; NULL: dropped and counted. */
static uint8_t *batch_place(struct tunnel_lane *lane, struct wg_peer *peer, struct wg_keypair *keypair, uint8_t tos,
                            uint32_t plain)
{
    struct tunnel_batch *batch = &lane->batch;
    uint32_t wire = plain + WG_DATA_OVERHEAD;
    if (lane->blocked) { /* what waits is sealed; behind it comes nothing until there is room */
        lane->stats.drops[TUNNEL_DROP_OUT_BLOCKED]++;
        return NULL;
    }
    if (batch->count &&
        (batch->peer != peer || batch->keypair != keypair || batch->tos != tos || batch->closed ||
         wire > batch->segment || batch->count == TUNNEL_BATCH || batch->used + wire > UDP_MAX_PAYLOAD)) {
        if (!batch_turn_over(lane)) {
            lane->stats.drops[TUNNEL_DROP_OUT_BLOCKED]++;
            return NULL;
        }
    }
    if (!batch->buffer) {
        batch->buffer = lease_take(&lane->worker->leases, LEASE_LARGE);
        if (!batch->buffer) {
            lane->stats.drops[TUNNEL_DROP_OUT_NO_MEMORY]++;
            return NULL;
        }
    }
    if (wire > LEASE_LARGE_SIZE) {
        lane->stats.drops[TUNNEL_DROP_OUT_PACKET]++;
        return NULL;
    }
    if (!batch->count) {
        batch->peer = peer;
        batch->keypair = keypair;
        batch->tos = tos;
        batch->segment = wire;
    }
    return batch->buffer + batch->used + WG_DATA_SEALED;
}

/* The packet at batch_place's address is complete: n bytes of it, padded to plain. */
static void batch_add(struct tunnel_lane *lane, uint8_t *at, uint32_t n, uint32_t plain)
{
    struct tunnel_batch *batch = &lane->batch;
    memset(at + n, 0, plain - n);
    batch->jobs[batch->count++] = (struct chacha_job){.dst = at, .src = at, .len = plain};
    batch->used += plain + WG_DATA_OVERHEAD;
    batch->data_packets += n != 0;
    if (plain + WG_DATA_OVERHEAD < batch->segment)
        batch->closed = true;
    if (batch->count - batch->sealed == TUNNEL_GROUP)
        batch_seal(batch);
}

/* Length of the packet that vnet_split_next would write. */
static uint32_t split_length(const struct vnet_split *s)
{
    uint32_t left = s->ip.length - s->head - s->offset;
    if (!s->super)
        return s->ip.length;
    return s->head + MIN(s->size, left);
}

/* Tells the sender that nobody is there, as a router would. The unreachable address itself is named as the one that
 * says so: the device may have none of its own. */
static void answer_unreachable(struct tunnel_lane *lane, const struct ip_view *v, const uint8_t *packet, size_t n)
{
    enum { GAP = 10000000, BURST = 50 }; /* 100 a second */
    uint64_t now = tunnel_now(lane->worker)->mono;
    if (lane->tun.fd < 0)
        return;
    if (lane->unreachable_at < now)
        lane->unreachable_at = now;
    if (lane->unreachable_at - now > (uint64_t)GAP * BURST) {
        lane->stats.drops[TUNNEL_DROP_OUT_ICMP_RATE]++;
        return;
    }
    lane->unreachable_at += GAP;
    uint8_t answer[VNET_HEADER_LEN + ICMP_MAX6] = {0};
    size_t length =
        icmp_error(answer + VNET_HEADER_LEN, ICMP_MAX6, ICMP_ADDRESS, 0, ip_dst(v->version, packet), packet, n);
    unsigned skip = lane->tun.vnet ? 0 : VNET_HEADER_LEN;
    struct iovec iov = {answer + skip, length + VNET_HEADER_LEN - skip};
    /* The offender was translated on its way here; the answer is about what its sender has sent. */
    if (!length || (lane->tunnel->nat && !tunnel_nat_in(lane, NULL, answer + VNET_HEADER_LEN, length)))
        return;
    if (tun_write(&lane->tun, &iov, 1))
        lane->stats.drops[TUNNEL_DROP_TUN_WRITE]++;
}

/* The keypair for this peer, or NULL with the packet dealt with. */
static struct wg_keypair *keypair_for(struct tunnel_lane *lane, struct wg_peer *peer, const struct ip_view *v,
                                      const uint8_t *header, const uint8_t *packet, size_t n)
{
    struct wg_keypair *keypair = NULL;
    switch (tunnel_send_key(lane, peer, &keypair)) {
    case WG_SEND_OK:
        return keypair;
    case WG_SEND_STAGE:
        if (tunnel_owner(lane))
            tunnel_stage(lane, peer, header, packet, n);
        else
            tunnel_give_packet(lane, header, packet, n);
        break;
    case WG_SEND_NO_ENDPOINT:
        lane->stats.wg_drops[WG_DROP_SEND_NO_ENDPOINT]++;
        answer_unreachable(lane, v, packet, n);
        break;
    case WG_SEND_DOWN:
    case WG_SEND_COUNT:
        lane->stats.wg_drops[WG_DROP_SEND_NO_KEY]++;
        break;
    }
    return NULL;
}

void tunnel_out(struct tunnel_lane *lane, const uint8_t header[VNET_HEADER_LEN], uint8_t *packet, size_t n)
{
    static const uint8_t plain_header[VNET_HEADER_LEN];
    struct tunnel *tunnel = lane->tunnel;
    struct vnet_split split;
    if (vnet_split_begin(&split, header ? header : plain_header, packet, n) != VNET_OK) {
        lane->stats.drops[TUNNEL_DROP_OUT_PACKET]++;
        return;
    }
    const uint8_t *destination = ip_dst(split.ip.version, packet);
    struct wg_peer *peer = split.ip.version == 4 ? wg_allowedips_lookup4(tunnel->core, destination)
                                                 : wg_allowedips_lookup6(tunnel->core, destination);
    if (!peer) {
        lane->stats.wg_drops[WG_DROP_SEND_NO_PEER]++;
        answer_unreachable(lane, &split.ip, packet, n);
        return;
    }
    struct wg_keypair *keypair = keypair_for(lane, peer, &split.ip, header, packet, n);
    if (!keypair)
        return;
    uint8_t tos = wg_ecn_encapsulate(split.ip.tos & 3);
    for (unsigned i = 0; i < split.count; i++) {
        uint32_t length = split_length(&split);
        uint32_t plain = (uint32_t)wg_padded_length(length, tunnel->mtu);
        uint8_t *at = batch_place(lane, peer, keypair, tos, plain);
        if (!at)
            return;
        batch_add(lane, at, (uint32_t)vnet_split_next(&split, at), plain);
    }
}

/* The lane or one that carries it waits for its socket: reading on would only drop. */
static bool blocked_somewhere(const struct tunnel_lane *lane)
{
    for (; lane; lane = lane->tunnel->carrier ? tunnel_lane(lane->tunnel->carrier, lane->worker) : NULL)
        if (lane->blocked)
            return true;
    return false;
}

/* The lane's own TUN, and those of what it carries. */
static void tun_read_again(struct tunnel_lane *lane)
{
    if (lane->tun_wake.kind)
        loop_interest(&lane->worker->loop, &lane->tun_wake, WAKE_READ);
    for (struct tunnel *inner = lane->tunnel->carried; inner; inner = inner->next_carried)
        tun_read_again(tunnel_lane(inner, lane->worker));
}

void tunnel_batch_drop(struct tunnel_lane *lane)
{
    if (lane->blocked)
        tun_read_again(lane);
    batch_done(lane);
    if (lane->batch.buffer)
        lease_give(&lane->worker->leases, lane->batch.buffer);
    lane->batch.buffer = NULL;
}

void tunnel_resume(struct tunnel_lane *lane)
{
    batch_send(lane);
    if (lane->blocked)
        return;
    tun_read_again(lane);
    tunnel_flush(lane);
}

void tunnel_keepalive(struct tunnel_lane *lane, struct wg_peer *peer)
{
    struct wg_keypair *keypair = NULL;
    if (tunnel_send_key(lane, peer, &keypair) != WG_SEND_OK)
        return;
    uint8_t *at = batch_place(lane, peer, keypair, 0, 0);
    if (at)
        batch_add(lane, at, 0, 0);
    tunnel_flush(lane);
}

/* A read has failed. */
static void tun_failed(struct tunnel_lane *lane, int error)
{
    if (error != -EBADFD && error != -EBADF && error != -ENODEV && error != -ENXIO) {
        lane->stats.drops[TUNNEL_DROP_TUN_READ]++;
        return;
    }
    loop_remove(&lane->worker->loop, &lane->tun_wake);
    if (tunnel_owner(lane) && lane->tunnel->events.closed) /* its own queue goes with the others */
        lane->tunnel->events.closed(lane->tunnel->events.user, lane->tunnel);
}

void tunnel_tun_ready(struct tunnel_lane *lane)
{
    struct worker *worker = lane->worker;
    unsigned offset = lane->tun.vnet ? VNET_HEADER_LEN : 0;
    uint8_t *buffer = lease_take(&worker->leases, LEASE_LARGE);
    if (!buffer) { /* left where they are the packets would wake us again and again */
        int dropped = tun_discard(&lane->tun, TUNNEL_READS);
        if (dropped < 0)
            tun_failed(lane, dropped);
        else
            lane->stats.drops[TUNNEL_DROP_OUT_NO_MEMORY] += (unsigned)dropped;
        return;
    }
    size_t bytes = 0;
    for (unsigned reads = 0; reads < TUNNEL_READS && bytes < TUNNEL_TURN && !blocked_somewhere(lane); reads++) {
        ssize_t n = tun_read(&lane->tun, buffer, LEASE_LARGE_SIZE);
        if (n == 0)
            break;
        if (n < 0) {
            tun_failed(lane, (int)n);
            break;
        }
        lane->stats.tun_reads++;
        bytes += (size_t)n;
        worker_moved(worker, (size_t)n, 1);
        if ((size_t)n <= offset)
            lane->stats.drops[TUNNEL_DROP_TUN_READ]++;
        else if (!lane->tunnel->nat ||
                 tunnel_nat_out(lane, offset ? buffer : NULL, buffer + offset, (size_t)n - offset))
            tunnel_out(lane, offset ? buffer : NULL, buffer + offset, (size_t)n - offset);
    }
    if (lane->tunnel->nat)
        tunnel_nat_held(lane);
    tunnel_flush(lane);
    if (blocked_somewhere(lane) && lane->tun_wake.kind)
        loop_interest(&worker->loop, &lane->tun_wake, 0);
    lease_give(&worker->leases, buffer);
}

/* --- carrying --- */

enum { UDP_HEADER = 8 };

/* Writes IP and UDP headers for n bytes of payload in front of at; returns their length. */
static uint32_t carry_headers(const struct tunnel *tunnel, uint8_t *at, uint16_t port, const struct wg_endpoint *to,
                              uint8_t tos, const uint8_t *payload, uint32_t n)
{
    uint32_t udp_length = UDP_HEADER + n, head;
    uint64_t sum;
    uint8_t *udp;
    if (to->family == WG_FAMILY_V4) {
        head = 20;
        at[0] = 0x45;
        at[1] = tos;
        store_be16(at + 2, (uint16_t)(head + udp_length));
        store_be32(at + 4, 0); /* id 0, DF clear: the exit may fragment */
        at[8] = 64;
        at[9] = IP_PROTO_UDP;
        store_be16(at + 10, 0);
        memcpy(at + 12, tunnel->config.source4, 4);
        memcpy(at + 16, to->address, 4);
        checksum_finish(at + 10, checksum_add(0, at, head));
        sum = checksum_pseudo4(at + 12, at + 16, IP_PROTO_UDP, udp_length);
    } else {
        head = 40;
        store_be32(at, 0x60000000u | (uint32_t)tos << 20);
        store_be16(at + 4, (uint16_t)udp_length);
        at[6] = IP_PROTO_UDP;
        at[7] = 64;
        memcpy(at + 8, tunnel->config.source6, 16);
        memcpy(at + 24, to->address, 16);
        sum = checksum_pseudo6(at + 8, at + 24, IP_PROTO_UDP, udp_length);
    }
    udp = at + head;
    store_be16(udp, port);
    store_be16(udp + 2, to->port);
    store_be16(udp + 4, (uint16_t)udp_length);
    store_be16(udp + 6, 0);
    sum = checksum_add(sum, udp, UDP_HEADER);
    checksum_finish_udp(udp + 6, checksum_copy(udp + UDP_HEADER, payload, n, sum));
    return head + udp_length;
}

void tunnel_carry(struct tunnel_lane *lane, uint16_t port, const struct wg_endpoint *to, uint8_t tos,
                  const uint8_t *data, size_t length, size_t segment)
{
    struct tunnel *tunnel = lane->tunnel;
    bool v4 = to->family == WG_FAMILY_V4;
    if (v4 ? !tunnel->config.source4_set : !tunnel->config.source6_set) {
        log_warning("%s: cannot carry to an IPv%d endpoint: it has no IPv%d address (source%d=)", tunnel->config.name,
                    v4 ? 4 : 6, v4 ? 4 : 6, v4 ? 4 : 6);
        lane->stats.drops[TUNNEL_DROP_OUT_PACKET]++;
        return;
    }
    struct wg_peer *peer =
        v4 ? wg_allowedips_lookup4(tunnel->core, to->address) : wg_allowedips_lookup6(tunnel->core, to->address);
    if (!peer) {
        lane->stats.wg_drops[WG_DROP_SEND_NO_PEER]++;
        return;
    }
    struct wg_keypair *keypair = NULL;
    bool can = tunnel_send_key(lane, peer, &keypair) == WG_SEND_OK;
    for (size_t at = 0; at < length; at += segment) {
        uint32_t part = (uint32_t)MIN(segment, length - at), inner = (v4 ? 20u : 40u) + UDP_HEADER + part;
        if (!can) { /* builds the packet aside: the ordinary way stages it and asks for the handshake */
            uint8_t *packet = lease_take(&lane->worker->leases, LEASE_LARGE);
            if (packet) {
                carry_headers(tunnel, packet, port, to, tos, data + at, part);
                tunnel_out(lane, NULL, packet, inner);
                lease_give(&lane->worker->leases, packet);
            }
            continue;
        }
        uint32_t plain = (uint32_t)wg_padded_length(inner, tunnel->mtu);
        uint8_t *place = batch_place(lane, peer, keypair, wg_ecn_encapsulate(tos & 3), plain);
        if (!place)
            return;
        carry_headers(tunnel, place, port, to, tos, data + at, part);
        batch_add(lane, place, inner, plain);
    }
}
