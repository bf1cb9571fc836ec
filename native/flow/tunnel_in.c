/* The way in: from the wire to the TUN. */
#include <errno.h>
#include <string.h>

#include "flow/tunnel.h"
#include "io/feature.h"
#include "io/log.h"
#include "wire/bytes.h"

static void endpoint_from_kernel(const struct udp_message *message, struct wg_endpoint *e)
{
    memset(e, 0, sizeof *e);
    if (message->from.any.sa_family == AF_INET) {
        e->family = WG_FAMILY_V4;
        e->port = ntohs(message->from.in4.sin_port);
        memcpy(e->address, &message->from.in4.sin_addr, 4);
    } else {
        e->family = WG_FAMILY_V6;
        e->port = ntohs(message->from.in6.sin6_port);
        e->scope = message->from.in6.sin6_scope_id;
        memcpy(e->address, &message->from.in6.sin6_addr, 16);
    }
    if (message->to.family == AF_INET) {
        e->local_family = WG_FAMILY_V4;
        memcpy(e->local, &message->to.in4, 4);
    } else if (message->to.family == AF_INET6) {
        e->local_family = WG_FAMILY_V6;
        memcpy(e->local, &message->to.in6, 16);
    }
    e->local_ifindex = message->to.ifindex;
}

/* --- handshakes: queued, so that public-key work never stalls data --- */

static struct tunnel_handshake *queue_slot(struct tunnel *tunnel, unsigned position, bool make)
{
    const unsigned per_lease = LEASE_RECORD_SIZE / sizeof(struct tunnel_handshake);
    unsigned number = position % WG_QUEUE_MAX, chunk = number / per_lease;
    if (!tunnel->queue[chunk] && make)
        tunnel->queue[chunk] = lease_take_within(&tunnel->workers->worker[0].leases, LEASE_RECORD,
                                                 tunnel->workers->budget.limit / 4 *
                                                     3); /* more than what waits for these handshakes, less than all */
    if (!tunnel->queue[chunk])
        return NULL;
    return (struct tunnel_handshake *)(void *)tunnel->queue[chunk] + number % per_lease;
}

static void queue_release(struct tunnel *tunnel)
{
    for (unsigned i = 0; i < ARRAY_COUNT(tunnel->queue); i++) {
        if (tunnel->queue[i])
            lease_give(&tunnel->workers->worker[0].leases, tunnel->queue[i]);
        tunnel->queue[i] = NULL;
    }
    tunnel->queue_head = 0;
}

void tunnel_queue_add(struct tunnel_lane *lane, const struct wg_endpoint *from, const uint8_t *message, uint32_t n)
{
    struct tunnel *tunnel = lane->tunnel;
    if (n > WG_HANDSHAKE_MAX) {
        lane->stats.wg_drops[WG_DROP_HANDSHAKE_SIZE]++;
        return;
    }
    struct tunnel_handshake *slot =
        tunnel->queue_used < WG_QUEUE_MAX ? queue_slot(tunnel, tunnel->queue_head + tunnel->queue_used, true) : NULL;
    if (!slot) {
        lane->stats.drops[TUNNEL_DROP_IN_QUEUE]++;
        return;
    }
    tunnel->queue_used++;
    slot->from = *from;
    slot->length = (uint8_t)n;
    memcpy(slot->message, message, n);
}

static void handshake_message(struct tunnel_lane *lane, const struct wg_endpoint *from, const uint8_t *message,
                              uint32_t n)
{
    if (tunnel_owner(lane))
        tunnel_queue_add(lane, from, message, n);
    else
        tunnel_give_handshake(lane, from, message, n);
}

/* While data moves, public-key work gets about an eighth of the time: each piece of it, some 40 to 120 us, is followed by
 * a wait. A flood then fills the queue, which is what tells the core that it is under load, and from then on a stranger
 * costs a cookie. Where nothing moves, nothing waits. */
enum { HANDSHAKE_WAIT = 400000 }; /* ns for each piece */

static void queue_run(struct tunnel *tunnel)
{
    struct worker *worker = &tunnel->workers->worker[0];
    const struct wg_now *now = tunnel_now(worker);
    unsigned work = 0, seen = 0;
    if (!tunnel->queue_used)
        return;
    wg_device_load(tunnel->core, now, tunnel->queue_used);
    if (worker->moved && now->mono < tunnel->queue_at)
        return; /* tunnel_set_timer sees to it that there is a later turn */
    while (tunnel->queue_used && work < TUNNEL_HANDSHAKES && seen < TUNNEL_HANDSHAKES_SEEN) {
        struct wg_output out;
        struct tunnel_handshake *slot = queue_slot(tunnel, tunnel->queue_head, false);
        wg_receive_handshake(tunnel->core, now, &slot->from, slot->message, slot->length, &out);
        tunnel->queue_head = (tunnel->queue_head + 1) % WG_QUEUE_MAX;
        tunnel->queue_used--;
        seen++;
        work += out.public_key_work;
        tunnel_act(tunnel, &out);
    }
    tunnel->queue_at = now->mono + (uint64_t)work * HANDSHAKE_WAIT;
    if (!tunnel->queue_used)
        queue_release(tunnel);
    else if (!worker->moved)
        worker->again = true;
}

/* --- data --- */

static unsigned gro_flags_of(const struct tunnel_lane *lane)
{
    if (!lane->tun.vnet)
        return 0;
    return GRO_VNET | (lane->tun.tso && feature_on(FEATURE_TUN_TSO) ? GRO_TCP : 0u) |
           (lane->tun.uso && feature_on(FEATURE_TUN_USO) ? GRO_UDP : 0u);
}

static void deliver(struct tunnel_lane *lane, uint8_t *packet, size_t n)
{
    struct tunnel_scratch *scratch = tunnel_scratch(lane->worker);
    struct gro *gro = &scratch->gro;
    if (scratch->gro_lane != lane) { /* a carrier and what it carries share the scratch */
        if (scratch->gro_lane)
            tunnel_in_finish(scratch->gro_lane);
        scratch->gro_lane = lane;
        gro->flags = gro_flags_of(lane);
    }
    if (gro_add(gro, packet, n))
        return;
    tunnel_in_finish(lane);
    gro_add(gro, packet, n);
}

static void gather_flush(struct tunnel_lane *lane)
{
    struct tunnel_gather *gather = lane->gather;
    unsigned n = gather->n;
    gather->n = 0;
    if (n)
        tunnel_in(tunnel_lane(gather->inner, lane->worker), &gather->from, gather->tos, gather->datagrams, n);
}

/* Takes the packet when it is a datagram for a tunnel that this one carries. */
static bool gather_add(struct tunnel_lane *lane, uint8_t *packet, size_t n)
{
    struct tunnel *tunnel = lane->tunnel;
    struct tunnel_gather *gather = lane->gather;
    struct ip_view v;
    if (ip_parse(&v, packet, n) != IP_OK || v.l4_kind != IP_L4_UDP || v.fragment)
        return false;
    const uint8_t *own = v.version == 4 ? tunnel->config.source4 : tunnel->config.source6;
    if (!(v.version == 4 ? tunnel->config.source4_set : tunnel->config.source6_set) ||
        memcmp(ip_dst(v.version, packet), own, ip_addr_len(v.version)) != 0)
        return false;
    struct tunnel *inner = tunnel->carried;
    while (inner && wg_device_port(inner->core) != v.dport)
        inner = inner->next_carried;
    if (!inner)
        return false;
    struct wg_endpoint from = {
        .family = v.version == 4 ? WG_FAMILY_V4 : WG_FAMILY_V6,
        .port = v.sport,
    };
    memcpy(from.address, ip_src(v.version, packet), ip_addr_len(v.version));
    if (gather->n && (gather->inner != inner || gather->tos != v.tos || gather->n == TUNNEL_BATCH ||
                      memcmp(&gather->from, &from, sizeof from) != 0))
        gather_flush(lane);
    gather->inner = inner;
    gather->from = from;
    gather->tos = v.tos;
    gather->datagrams[gather->n++] = (struct tunnel_datagram){packet + v.payload, v.length - v.payload};
    return true;
}

/* One authenticated packet, in its window. */
static void data_packet(struct tunnel_lane *lane, struct wg_peer *peer, uint8_t tos, uint8_t *packet, size_t n)
{
    struct tunnel *tunnel = lane->tunnel;
    size_t length = wg_inner_length(packet, n);
    if (!length) {
        lane->stats.wg_drops[WG_DROP_DATA_INNER]++;
        return;
    }
    uint8_t version = packet[0] >> 4;
    struct wg_peer *owner = version == 4 ? wg_allowedips_lookup4(tunnel->core, packet + 12)
                                         : wg_allowedips_lookup6(tunnel->core, packet + 8);
    if (owner != peer) {
        lane->stats.wg_drops[WG_DROP_DATA_SOURCE]++;
        return;
    }
    if (tos & 3) {
        uint8_t inner = ip_tos(packet) & 3, ecn = wg_ecn_decapsulate(tos & 3, inner);
        if (ecn != inner)
            ip_set_ecn(packet, ecn);
    }
    if (lane->gather && gather_add(lane, packet, length))
        return;
    deliver(lane, packet, length);
}

/* n <= TUNNEL_GROUP data messages of one keypair, opened together where they lie. */
static void open_group(struct tunnel_lane *lane, struct wg_keypair *keypair, const struct tunnel_datagram *datagrams,
                       struct chacha_job *jobs, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint8_t *sealed = datagrams[i].data + WG_DATA_SEALED;
        jobs[i] = (struct chacha_job){
            .dst = sealed,
            .src = sealed,
            .len = datagrams[i].length - WG_DATA_SEALED,
            .counter = load_le64(datagrams[i].data + WG_DATA_COUNTER),
        };
    }
    lane->stats.wg_drops[WG_DROP_DATA_DECRYPT] += chacha_open_batch(keypair->receive_key, jobs, n);
}

/* What a run of packets of one keypair has come to. */
struct committed {
    uint64_t bytes; /* on the wire, of packets that were authentic and in the window */
    unsigned flags;
};

static void commit_packet(struct tunnel_lane *lane, struct wg_keypair *keypair, uint8_t tos, uint8_t *data,
                          uint32_t plain, uint64_t counter, struct committed *committed)
{
    if (!wg_keypair_accept(keypair, counter)) {
        lane->stats.wg_drops[WG_DROP_DATA_REPLAY]++;
        return;
    }
    committed->bytes += plain + WG_DATA_OVERHEAD;
    if (plain) {
        committed->flags |= WG_RECEIVED_DATA;
        data_packet(lane, keypair->peer, tos, data, plain);
    }
}

static void commit_end(struct tunnel_lane *lane, struct wg_keypair *keypair, const struct wg_endpoint *from,
                       const struct committed *committed)
{
    if (lane->gather)
        gather_flush(lane);
    if (committed->bytes &&
        wg_peer_received(keypair->peer, keypair, tunnel_now(lane->worker), from, committed->flags, committed->bytes))
        tunnel_stage_flush(lane, keypair->peer);
}

void tunnel_commit(struct tunnel_lane *lane, const struct tunnel_opened *opened)
{
    struct committed committed = {0};
    for (unsigned i = 0; i < opened->n; i++)
        commit_packet(lane, opened->keypair, opened->tos, opened->packets[i].data, opened->packets[i].plain,
                      opened->packets[i].counter, &committed);
    commit_end(lane, opened->keypair, &opened->from, &committed);
}

/* The owner commits what it has opened at once, while it is warm. */
static void run_here(struct tunnel_lane *lane, struct wg_keypair *keypair, const struct wg_endpoint *from, uint8_t tos,
                     const struct tunnel_datagram *datagrams, unsigned n)
{
    struct chacha_job jobs[TUNNEL_GROUP];
    struct committed committed = {0};
    for (unsigned at = 0; at < n; at += TUNNEL_GROUP) {
        unsigned part = MIN(n - at, (unsigned)TUNNEL_GROUP);
        open_group(lane, keypair, datagrams + at, jobs, part);
        for (unsigned i = 0; i < part; i++)
            if (jobs[i].ok)
                commit_packet(lane, keypair, tos, jobs[i].dst, jobs[i].len - WG_TAG_SIZE, jobs[i].counter, &committed);
    }
    commit_end(lane, keypair, from, &committed);
}

/* Another worker opens and gives the batch to the owner. */
static void run_for_owner(struct tunnel_lane *lane, struct wg_keypair *keypair, const struct wg_endpoint *from,
                          uint8_t tos, const struct tunnel_datagram *datagrams, unsigned n)
{
    struct chacha_job jobs[TUNNEL_GROUP];
    for (unsigned start = 0; start < n; start += TUNNEL_BATCH) {
        unsigned end = MIN(n, start + TUNNEL_BATCH);
        struct tunnel_opened *opened = lease_take(&lane->worker->leases, LEASE_SMALL);
        if (!opened) {
            lane->stats.drops[TUNNEL_DROP_IN_NO_MEMORY] += n - start;
            return;
        }
        opened->tunnel = lane->tunnel;
        opened->keypair = keypair;
        opened->from = *from;
        opened->tos = tos;
        opened->n = 0;
        for (unsigned at = start; at < end; at += TUNNEL_GROUP) {
            unsigned part = MIN(end - at, (unsigned)TUNNEL_GROUP);
            open_group(lane, keypair, datagrams + at, jobs, part);
            for (unsigned i = 0; i < part; i++) {
                if (!jobs[i].ok)
                    continue;
                opened->packets[opened->n].data = jobs[i].dst;
                opened->packets[opened->n].plain = jobs[i].len - WG_TAG_SIZE;
                opened->packets[opened->n++].counter = jobs[i].counter;
            }
        }
        if (tunnel_give_opened(lane, opened))
            tunnel_scratch(lane->worker)->given = true;
    }
}

static void data_run(struct tunnel_lane *lane, const struct wg_endpoint *from, uint8_t tos,
                     const struct tunnel_datagram *datagrams, unsigned n, uint32_t index)
{
    struct wg_keypair *keypair = wg_keypair_find(lane->tunnel->core, index);
    if (!keypair || !wg_keypair_usable(keypair, tunnel_now(lane->worker))) {
        lane->stats.wg_drops[keypair ? WG_DROP_DATA_EXPIRED : WG_DROP_DATA_INDEX] += n;
        return;
    }
    if (tunnel_owner(lane))
        run_here(lane, keypair, from, tos, datagrams, n);
    else
        run_for_owner(lane, keypair, from, tos, datagrams, n);
}

void tunnel_in(struct tunnel_lane *lane, const struct wg_endpoint *from, uint8_t tos, struct tunnel_datagram *datagrams,
               unsigned n)
{
    for (unsigned i = 0; i < n;) {
        uint8_t *data = datagrams[i].data;
        uint32_t length = datagrams[i].length;
        if (length < 4 || load_le32(data) != WG_TYPE_DATA) {
            if (length < 4)
                lane->stats.wg_drops[WG_DROP_HANDSHAKE_SIZE]++;
            else
                handshake_message(lane, from, data, length);
            i++;
            continue;
        }
        if (length < WG_DATA_OVERHEAD) {
            lane->stats.wg_drops[WG_DROP_DATA_SHORT]++;
            i++;
            continue;
        }
        uint32_t index = load_le32(data + WG_DATA_RECEIVER);
        unsigned end = i + 1;
        while (end < n && datagrams[end].length >= WG_DATA_OVERHEAD && load_le32(datagrams[end].data) == WG_TYPE_DATA &&
               load_le32(datagrams[end].data + WG_DATA_RECEIVER) == index)
            end++;
        data_run(lane, from, tos, datagrams + i, end - i, index);
        i = end;
    }
}

/* --- to the TUN --- */

/* The queue that the flow's hash owns: a write moves the flow's answers to that queue too. Any thread may write. */
const struct tun *tunnel_queue_for(const struct tunnel_lane *lane, const struct iovec *iov)
{
    const struct tunnel *tunnel = lane->tunnel;
    unsigned offset = lane->tun.vnet ? VNET_HEADER_LEN : 0;
    struct ip_view view;
    const uint8_t *packet = (const uint8_t *)iov->iov_base + offset;
    if (tunnel->config.workers == 1 || ip_parse_inner(&view, packet, iov->iov_len - offset) != IP_OK)
        return &lane->tun;
    const struct tun *tun = &tunnel->lanes[ip_flow_hash(&view, packet) % tunnel->config.workers].tun;
    return tun->fd < 0 ? &lane->tun : tun; /* a TUN of one queue has only the owner's */
}

struct singles {
    struct tunnel_lane *lane;
    bool first; /* the super-packet's own header has been translated already, the others' have not */
};

static bool translate(struct tunnel_lane *lane, const struct iovec *iov)
{
    unsigned offset = lane->tun.vnet ? VNET_HEADER_LEN : 0;
    uint8_t *base = iov->iov_base;
    return !lane->tunnel->nat || tunnel_nat_in(lane, offset ? base : NULL, base + offset, iov->iov_len - offset);
}

static void write_single(void *ctx, const struct iovec *iov)
{
    struct singles *singles = ctx;
    struct tunnel_lane *lane = singles->lane;
    bool first = singles->first;
    singles->first = false;
    if (!first && !translate(lane, iov))
        return;
    lane->stats.tun_writes++;
    if (tun_write(tunnel_queue_for(lane, iov), iov, 1) == 0)
        lane->stats.tun_written_packets++;
    else
        lane->stats.drops[TUNNEL_DROP_TUN_WRITE]++;
}

static void write_refused(struct tunnel_lane *lane, struct gro *gro, unsigned i, int error)
{
    struct gro_output *output = &gro->output[i];
    if (output->count > 1 && (error == -EINVAL || error == -EIO || error == -EMSGSIZE)) {
        /* EIO is also what a TUN that is down says: then nothing was wrong with the super-packet. */
        if (error != -EIO) {
            bool udp = output->iov[0].iov_len > VNET_HEADER_LEN &&
                       (((const uint8_t *)output->iov[0].iov_base)[1] & 0x7f) == VNET_UDP_L4;
            feature_refused(udp ? FEATURE_TUN_USO : FEATURE_TUN_TSO, strerror(-error));
        }
        struct singles singles = {lane, true};
        gro_unjoin(gro, i, write_single, &singles);
        return;
    }
    lane->stats.drops[TUNNEL_DROP_TUN_WRITE] += output->count;
}

void tunnel_in_finish(struct tunnel_lane *lane)
{
    struct gro *gro = &tunnel_scratch(lane->worker)->gro;
    if (!gro->packet_count)
        return;
    gro_finish(gro);
    for (unsigned i = 0; i < gro->output_count; i++) {
        struct gro_output *output = &gro->output[i];
        if (lane->tun.fd < 0) {
            lane->stats.drops[TUNNEL_DROP_IN_NO_TUN] += output->count;
            continue;
        }
        if (!translate(lane, output->iov))
            continue;
        int error = tun_write(tunnel_queue_for(lane, output->iov), output->iov, output->iov_count);
        lane->stats.tun_writes++;
        if (error)
            write_refused(lane, gro, i, error);
        else
            lane->stats.tun_written_packets += output->count;
    }
    gro_reset(gro);
    if (lane->tunnel->nat) {
        tunnel_nat_held(lane);
        tunnel_flush(lane); /* another worker's fragments, on their way out */
    }
    tunnel_scratch(lane->worker)->gro_lane = NULL;
}

/* One receive call and all that follows from it. False: nothing was there. */
static bool receive_once(struct tunnel_socket *socket, uint8_t **buffers, unsigned count, uint32_t slot, size_t *bytes)
{
    struct tunnel_lane *lane = socket->lane;
    struct tunnel_scratch *scratch = tunnel_scratch(lane->worker);
    struct udp_message messages[UDP_BATCH];
    unsigned per_buffer = LEASE_LARGE_SIZE / slot, n = MIN(count * per_buffer, (unsigned)UDP_BATCH);
    for (unsigned i = 0; i < n; i++) {
        messages[i].data = buffers[i / per_buffer] + (size_t)(i % per_buffer) * slot;
        messages[i].length = slot;
    }
    int got = udp_receive(socket->fd, messages, n);
    if (got <= 0) {
        if (got < 0)
            log_warning("%s: receiving failed: %s", lane->tunnel->config.name, strerror(-got));
        return false;
    }
    lane->stats.udp_receives++;
    for (int i = 0; i < got; i++)
        worker_moved(lane->worker, messages[i].length, 1);
    for (int i = 0; i < got;) {
        struct wg_endpoint from;
        unsigned total = 0;
        int first = i;
        endpoint_from_kernel(&messages[i], &from);
        /* Messages of one sender in a row are one batch, joined by the kernel or not. */
        for (; i < got && total + TUNNEL_BATCH <= ARRAY_COUNT(scratch->datagrams); i++) {
            const struct udp_message *m = &messages[i];
            if (i > first) {
                struct wg_endpoint other;
                endpoint_from_kernel(m, &other);
                if (m->tos != messages[first].tos || memcmp(&other, &from, sizeof from) != 0)
                    break;
            }
            if (m->truncated) {
                lane->stats.drops[TUNNEL_DROP_IN_TRUNCATED]++;
                lane->longest = MAX(lane->longest, MIN(2 * slot, (uint32_t)LEASE_LARGE_SIZE));
                continue;
            }
            *bytes += m->length;
            for (uint32_t at = 0; at < m->length && total < ARRAY_COUNT(scratch->datagrams); at += m->segment)
                scratch->datagrams[total++] = (struct tunnel_datagram){m->data + at, MIN(m->segment, m->length - at)};
        }
        lane->stats.udp_received_packets += total;
        tunnel_in(lane, &from, messages[first].tos, scratch->datagrams, total);
    }
    if (scratch->gro_lane)
        tunnel_in_finish(scratch->gro_lane);
    return (unsigned)got == n;
}

/* One buffer is enough to go on; what makes the batch larger must not be what the other direction goes on by. */
static uint8_t *receive_buffer(struct worker *worker, unsigned have)
{
    size_t limit = worker->leases.budget->limit;
    return lease_take_within(&worker->leases, LEASE_LARGE, have ? limit / 2 : limit);
}

void tunnel_socket_ready(struct tunnel_socket *socket, unsigned events)
{
    struct tunnel_lane *lane = socket->lane;
    struct worker *worker = lane->worker;
    if (events & WAKE_WRITE) {
        loop_interest(&worker->loop, &socket->wake, WAKE_READ);
        if (lane->blocked) {
            lane->blocked = false;
            tunnel_resume(lane);
        }
    }
    if (!(events & (WAKE_READ | WAKE_HANGUP)) || socket->fd < 0)
        return;
    /* With UDP_GRO a message may be 64 KiB. Without it there is room for packets of our own MTU at first, and for longer
     * ones as soon as one has been cut: the peer's MTU is its own affair. */
    bool joined = feature_on(FEATURE_UDP_GRO);
    uint32_t slot = joined ? LEASE_LARGE_SIZE : MAX(lane->longest, ROUND_UP(lane->tunnel->mtu + 512u, 512u));
    uint8_t *buffers[TUNNEL_MESSAGES] = {0};
    struct tunnel_scratch *scratch = tunnel_scratch(worker);
    bool more = true;
    for (size_t bytes = 0, i = 0; more && i < TUNNEL_RECEIVES && bytes < TUNNEL_TURN && socket->fd >= 0; i++) {
        unsigned have = 0;
        while (have < TUNNEL_MESSAGES && (buffers[have] || (buffers[have] = receive_buffer(worker, have)) != NULL))
            have++;
        if (!have) {
            /* Left where it is it would wake us again and again. */
            lane->stats.drops[TUNNEL_DROP_IN_NO_MEMORY] += udp_discard(socket->fd, TUNNEL_RECEIVES);
            break;
        }
        scratch->given = false;
        more = receive_once(socket, buffers, have, slot, &bytes);
        bool went_on = true;
        for (unsigned k = 0; scratch->given && k < have; k++) {
            went_on &= tunnel_give_buffer(worker, buffers[k]);
            buffers[k] = NULL;
        }
        if (!went_on)
            break; /* the socket may be gone */
    }
    for (unsigned k = 0; k < TUNNEL_MESSAGES; k++)
        if (buffers[k])
            lease_give(&worker->leases, buffers[k]);
}

void tunnel_handshakes(struct tunnel *tunnel)
{
    queue_run(tunnel);
}

void tunnel_queue_free(struct tunnel *tunnel)
{
    tunnel->queue_used = 0;
    queue_release(tunnel);
}
