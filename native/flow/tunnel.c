/* A tunnel's life: creation, sockets, what the core asks for. */
#include "flow/tunnel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/feature.h"
#include "io/log.h"
#include "io/route.h"
#include "io/socket.h"
#include "wire/bytes.h"

const char *const tunnel_drop_names[TUNNEL_DROP_COUNT] = {
#define X(name, text) text,
    TUNNEL_DROPS(X)
#undef X
};

/* About 50 ms of a gigabit: more would be a standing queue on a slow router, less loses bursts. */
enum { SOCKET_BUFFER = 7 << 20 };

int tunnel_scratch_init(struct worker *worker)
{
    struct tunnel_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return -ENOMEM;
    worker->scratch = scratch;
    gro_init(&scratch->gro, 0);
    tunnel_turn_begin(worker);
    return 0;
}

void tunnel_scratch_free(struct worker *worker)
{
    free(worker->scratch);
    worker->scratch = NULL;
}

void tunnel_turn_begin(struct worker *worker)
{
    struct wg_now *now = &tunnel_scratch(worker)->now;
    now->mono = worker->loop.now;
    now->boot = clock_boot();
    now->wall_sec = clock_wall(&now->wall_nsec);
}

/* --- sockets --- */

static void socket_close(struct tunnel_socket *socket)
{
    if (socket->fd < 0)
        return;
    loop_remove(&socket->lane->worker->loop, &socket->wake);
    close(socket->fd);
    socket->fd = -1;
}

static int socket_open(struct tunnel_socket *socket, struct tunnel_lane *lane, bool v6, uint16_t port)
{
    struct socket_options options = {
        .mark = wg_device_fwmark(lane->tunnel->core),
        .reuseport = lane->tunnel->config.workers > 1,
        .first = lane == lane->tunnel->lanes,
        .buffer = SOCKET_BUFFER,
    };
    int fd = socket_udp(SOCKET_WIREGUARD, v6 ? AF_INET6 : AF_INET, port, &options);
    if (fd < 0)
        return fd;
    socket->lane = lane;
    socket->v6 = v6;
    socket->fd = fd;
    int error = loop_add(&lane->worker->loop, &socket->wake, WAKE_WG_SOCKET, fd, WAKE_READ);
    if (error) {
        close(fd);
        socket->fd = -1;
    }
    return error;
}

static void sockets_close(struct tunnel *tunnel)
{
    workers_pause(tunnel->workers);
    for (unsigned i = 0; i < tunnel->config.workers; i++) {
        struct tunnel_lane *lane = &tunnel->lanes[i];
        if (lane->blocked) { /* what waited for the old socket is lost with it, and counted */
            lane->stats.drops[TUNNEL_DROP_OUT_SOCKET] += lane->batch.count;
            tunnel_batch_drop(lane);
        }
        socket_close(&lane->socket4);
        socket_close(&lane->socket6);
    }
    workers_resume(tunnel->workers);
}

static void sockets_steer(struct tunnel *tunnel)
{
    const int fds[] = {tunnel->lanes[0].socket4.fd, tunnel->lanes[0].socket6.fd};
    for (unsigned i = 0; i < ARRAY_COUNT(fds); i++) {
        if (fds[i] < 0 || tunnel->config.workers == 1 || !feature_on(FEATURE_REUSEPORT_PROG))
            continue;
        int error = socket_steer_wireguard(fds[i], tunnel->config.workers);
        if (error)
            feature_refused(FEATURE_REUSEPORT_PROG, strerror(-error));
    }
}

/* Opens every lane's sockets on one port; *port 0: picks one. A kernel without IPv6 is no error. */
static int sockets_open_on(struct tunnel *tunnel, uint16_t *port)
{
    for (unsigned i = 0; i < tunnel->config.workers; i++) {
        struct tunnel_lane *lane = &tunnel->lanes[i];
        int error = socket_open(&lane->socket4, lane, false, *port);
        if (error && error != -EAFNOSUPPORT)
            return error;
        if (!*port && lane->socket4.fd >= 0)
            *port = socket_port(lane->socket4.fd);
        error = socket_open(&lane->socket6, lane, true, *port);
        if (error && error != -EAFNOSUPPORT)
            return error;
        if (!*port && lane->socket6.fd >= 0)
            *port = socket_port(lane->socket6.fd);
        if (lane->socket4.fd < 0 && lane->socket6.fd < 0)
            return -EAFNOSUPPORT;
    }
    sockets_steer(tunnel);
    return 0;
}

static bool carried_port_in_use(const struct tunnel *tunnel, uint16_t port)
{
    for (const struct tunnel *other = tunnel->carrier->carried; other; other = other->next_carried)
        if (other != tunnel && other->up && wg_device_port(other->core) == port)
            return true;
    return false;
}

/* No socket, but a port of the carrier's address, which tells what is carried apart. */
static int carried_open(struct tunnel *tunnel, uint16_t port)
{
    enum { LOW = 32768, COUNT = 28000 };
    unsigned number = (unsigned)(tunnel_now(&tunnel->workers->worker[0])->mono / 1000 % COUNT);
    if (port && carried_port_in_use(tunnel, port))
        return -EADDRINUSE;
    while (!port) {
        port = (uint16_t)(LOW + number++ % COUNT);
        if (carried_port_in_use(tunnel, port))
            port = 0;
    }
    wg_device_set_port(tunnel->core, port);
    return 0;
}

static int sockets_open_paused(struct tunnel *tunnel, uint16_t port)
{
    if (tunnel->orphan)
        return -ENETDOWN;
    if (tunnel->carrier)
        return carried_open(tunnel, port);
    for (unsigned tries = 0;; tries++) {
        uint16_t picked = port;
        int error = sockets_open_on(tunnel, &picked);
        if (!error) {
            wg_device_set_port(tunnel->core, picked);
            return 0;
        }
        sockets_close(tunnel);
        /* A port picked for IPv4 may be taken for IPv6. */
        if (port || error != -EADDRINUSE || tries == 100)
            return error;
    }
}

/* The others stand still: they would see a lane with one socket and not yet the other. */
static int sockets_open(struct tunnel *tunnel, uint16_t port)
{
    workers_pause(tunnel->workers);
    int error = sockets_open_paused(tunnel, port);
    workers_resume(tunnel->workers);
    return error;
}

/* --- what the core asks of its caller --- */

static int hook_listen_port(void *user, struct wg_device *dev, uint16_t port)
{
    struct tunnel *tunnel = user;
    if (!tunnel->up)
        return 0;
    /* The device has the new number already; the sockets know the old one. */
    const struct tunnel_lane *lane = &tunnel->lanes[0];
    int open = lane->socket4.fd >= 0 ? lane->socket4.fd : lane->socket6.fd;
    uint16_t before = open >= 0 ? socket_port(open) : 0;
    sockets_close(tunnel);
    int error = sockets_open(tunnel, port);
    if (error && sockets_open(tunnel, before)) /* the old port was ours a moment ago */
        log_error("%s: the old port %u could not be opened again", tunnel->config.name, before);
    /* Who is in the middle of a session learns the new port at once: a peer whose turn it is to send would send to the
     * old one until we happen to speak. */
    const struct wg_now *now = tunnel_now(&tunnel->workers->worker[0]);
    for (struct wg_peer *peer = error ? NULL : wg_device_first_peer(dev); peer; peer = wg_peer_next(peer)) {
        bool rekey = false;
        if (wg_peer_current(peer, now, &rekey))
            tunnel_keepalive(&tunnel->lanes[0], peer);
    }
    return error;
}

static int hook_fwmark(void *user, struct wg_device *dev, uint32_t mark)
{
    struct tunnel *tunnel = user;
    for (unsigned i = 0; tunnel->up && i < tunnel->config.workers; i++) {
        struct tunnel_lane *lane = &tunnel->lanes[i];
        int error = lane->socket4.fd >= 0 ? socket_mark(lane->socket4.fd, mark) : 0;
        if (!error && lane->socket6.fd >= 0)
            error = socket_mark(lane->socket6.fd, mark);
        if (error)
            return error;
    }
    return 0;
}

static void hook_peer_removed(void *user, struct wg_peer *peer)
{
    struct tunnel *tunnel = user;
    tunnel_stage_drop(tunnel, peer, WG_DROP_SEND_NO_PEER);
    workers_pause(tunnel->workers);
    for (unsigned i = 0; i < tunnel->config.workers; i++)
        if (tunnel->lanes[i].batch.peer == peer)
            tunnel_batch_drop(&tunnel->lanes[i]);
    workers_resume(tunnel->workers);
}

void tunnel_act(struct tunnel *tunnel, const struct wg_output *out)
{
    struct tunnel_lane *lane = &tunnel->lanes[0];
    switch (out->action) {
    case WG_ACTION_NONE:
    case WG_ACTION_COUNT:
        break;
    case WG_ACTION_SEND:
        tunnel_send_message(tunnel, &out->to, out->tos, out->message, out->length);
        break;
    case WG_ACTION_KEEPALIVE:
        if (tunnel_staged(out->peer))
            tunnel_stage_flush(lane, out->peer);
        else
            tunnel_keepalive(lane, out->peer);
        break;
    case WG_ACTION_FLUSH:
        tunnel_stage_flush(lane, out->peer);
        break;
    case WG_ACTION_DROP_STAGED:
        tunnel_stage_drop(tunnel, out->peer, WG_DROP_SEND_GAVE_UP);
        break;
    case WG_ACTION_RESOLVE:
        if (tunnel->events.resolve)
            tunnel->events.resolve(tunnel->events.user, tunnel, out->peer);
        break;
    case WG_ACTION_PERSIST:
        if (tunnel->events.persist)
            tunnel->events.persist(tunnel->events.user, tunnel, out->stamp);
        break;
    }
}

static void tunnel_set_timer(struct tunnel *tunnel)
{
    struct loop *loop = &tunnel->workers->worker[0].loop;
    uint64_t next = wg_device_next(tunnel->core);
    if (tunnel->nat && tunnel->nat_next && tunnel->nat_next < next)
        next = tunnel->nat_next;
    if (tunnel->queue_used && tunnel->queue_at < next)
        next = tunnel->queue_at;
    if (next == WG_NEVER)
        timer_cancel(loop, &tunnel->timer);
    else if (!timer_armed(&tunnel->timer) || tunnel->timer.at != next)
        timer_arm(loop, &tunnel->timer, WAKE_WG_TIMER, next);
}

void tunnel_kick(struct tunnel *tunnel)
{
    struct wg_output out;
    const struct wg_now *now = tunnel_now(&tunnel->workers->worker[0]);
    /* Bounded: 10,000 peers that all want something take several turns, those that want handshakes more of them. */
    for (unsigned i = 0, work = 0; i < 256 && work < TUNNEL_HANDSHAKES && wg_device_next(tunnel->core) <= now->mono;
         i++) {
        if (!wg_device_poll(tunnel->core, now, &out))
            break;
        work += out.action == WG_ACTION_SEND;
        tunnel_act(tunnel, &out);
    }
    tunnel_set_timer(tunnel);
}

void tunnel_turn(struct tunnel *tunnel)
{
    uint64_t now = tunnel_now(&tunnel->workers->worker[0])->mono;
    tunnel_handshakes(tunnel);
    tunnel_kick(tunnel);
    if (tunnel->nat && now >= tunnel->nat_next)
        tunnel_nat_expire(tunnel, now);
    if (wg_device_retire(tunnel->core)) {
        workers_pause(tunnel->workers); /* between turns nobody holds anything of the core, but for messages to us */
        if (tunnel->workers->count > 1)
            worker_receive(&tunnel->workers->worker[0]);
        wg_device_reclaim(tunnel->core);
        workers_resume(tunnel->workers);
    }
}

/* --- life --- */

static int lane_open_tun(struct tunnel_lane *lane)
{
    const struct tunnel_config *config = &lane->tunnel->config;
    int error;
    if (config->tun_fd >= 0)
        error = tun_adopt(&lane->tun, config->tun_fd);
    else
        error = tun_open(&lane->tun, config->name, config->workers > 1 && feature_on(FEATURE_TUN_MULTI_QUEUE));
    if (error) {
        lane->tun.fd = -1;
        return error;
    }
    return loop_add(&lane->worker->loop, &lane->tun_wake, WAKE_TUN, lane->tun.fd, WAKE_READ);
}

static int tunnel_open(struct tunnel *tunnel)
{
    for (unsigned i = 0; i < tunnel->config.workers; i++) {
        struct tunnel_lane *lane = &tunnel->lanes[i];
        lane->tunnel = tunnel;
        lane->worker = &tunnel->workers->worker[i];
        lane->tun.fd = lane->socket4.fd = lane->socket6.fd = -1;
    }
    for (unsigned i = 0; tunnel->config.tun && i < tunnel->config.workers; i++) {
        if (i && !feature_on(FEATURE_TUN_MULTI_QUEUE))
            break; /* one queue: worker 0 reads for all, and what the others open is written to it too */
        int error = lane_open_tun(&tunnel->lanes[i]);
        if (error)
            return error;
    }
    if (!tunnel->config.tun) {
        tunnel->mtu = tunnel->config.mtu ? tunnel->config.mtu : 1420;
        return 0;
    }
    struct tun *tun = &tunnel->lanes[0].tun;
    memcpy(tunnel->config.name, tun->name, sizeof tunnel->config.name);
    /* A TUN is born with 1500; WireGuard's is 1420 unless somebody says otherwise. */
    unsigned mtu = tunnel->config.mtu ? tunnel->config.mtu : tunnel->config.tun_fd < 0 ? 1420 : 0;
    int error = mtu ? tun_set_mtu(tun, mtu) : 0;
    if (error)
        return error;
    int got = tun_get_mtu(tun);
    tunnel->mtu = got > 0 ? (unsigned)got : 1420;
    return 0;
}

struct tunnel *tunnel_new(struct workers *workers, const struct tunnel_config *config,
                          const struct tunnel_events *events, const uint8_t seed[32], int *error)
{
    struct tunnel *tunnel = calloc(1, sizeof *tunnel);
    *error = -ENOMEM;
    if (!tunnel)
        return NULL;
    tunnel->config = *config;
    tunnel->events = *events;
    tunnel->workers = workers;
    pthread_mutexattr_t again; /* an answer to a fragment that was held is translated where the fragment is sent on */
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&tunnel->nat_lock, &again);
    pthread_mutexattr_destroy(&again);
    tunnel->hooks = (struct wg_hooks){tunnel, hook_listen_port, hook_fwmark, hook_peer_removed};
    tunnel->lanes = calloc(config->workers, sizeof *tunnel->lanes);
    tunnel->core = wg_device_new(seed, &tunnel->hooks);
    if (!tunnel->lanes || !tunnel->core) {
        free(tunnel->lanes);
        if (tunnel->core)
            wg_device_free(tunnel->core);
        free(tunnel);
        return NULL;
    }
    workers_pause(workers); /* the others' lanes are watched from the moment that they are open */
    *error = tunnel_open(tunnel);
    workers_resume(workers);
    if (*error) {
        tunnel_free(tunnel);
        return NULL;
    }
    return tunnel;
}

static void tunnel_uncarry(struct tunnel *tunnel)
{
    if (!tunnel->carrier)
        return;
    struct tunnel **link = &tunnel->carrier->carried;
    while (*link != tunnel)
        link = &(*link)->next_carried;
    *link = tunnel->next_carried;
    tunnel->carrier = NULL;
}

int tunnel_carry_by(struct tunnel *tunnel, struct tunnel *carrier)
{
    if (tunnel->carrier == carrier && !tunnel->orphan)
        return 0;
    tunnel->orphan = false;
    for (unsigned i = 0; carrier && i < carrier->config.workers; i++)
        if (!carrier->lanes[i].gather && !(carrier->lanes[i].gather = calloc(1, sizeof(struct tunnel_gather))))
            return -ENOMEM;
    workers_pause(tunnel->workers);
    if (tunnel->up)
        sockets_close(tunnel);
    tunnel_uncarry(tunnel);
    if (carrier) {
        tunnel->carrier = carrier;
        tunnel->next_carried = carrier->carried;
        carrier->carried = tunnel;
    }
    int error = tunnel->up ? sockets_open(tunnel, wg_device_port(tunnel->core)) : 0;
    workers_resume(tunnel->workers);
    return error;
}

void tunnel_set_nat(struct tunnel *tunnel, struct nat *nat)
{
    workers_pause(tunnel->workers);
    if (tunnel->nat != nat && tunnel->nat)
        nat_free(tunnel->nat);
    tunnel->nat = nat;
    tunnel->nat_next = 0;
    workers_resume(tunnel->workers);
}

int tunnel_link_changed(struct tunnel *tunnel)
{
    if (!tunnel->config.tun)
        return tunnel_up(tunnel);
    const struct tun *tun = &tunnel->lanes[0].tun;
    int mtu = tun_get_mtu(tun), up = tun_is_up(tun);
    if (mtu > 0 && (unsigned)mtu != tunnel->mtu) {
        log_info("%s: MTU %u is now %d", tunnel->config.name, tunnel->mtu, mtu);
        workers_pause(tunnel->workers);
        tunnel->mtu = (unsigned)mtu;
        workers_resume(tunnel->workers);
    }
    if (up == 0)
        tunnel_down(tunnel);
    return up > 0 ? tunnel_up(tunnel) : 0;
}

void tunnel_routes_changed(struct tunnel *tunnel)
{
    enum { MOST = 256 }; /* questions, some 10 us each; whoever comes later is helped by the timers */
    unsigned asked = 0;
    int fd = -1;
    for (struct wg_peer *peer = tunnel->carrier || !tunnel->up ? NULL : wg_device_first_peer(tunnel->core);
         peer && asked < MOST; peer = wg_peer_next(peer)) {
        struct wg_endpoint e;
        if (!wg_peer_endpoint(peer, &e) || e.local_family != e.family || e.scope)
            continue;
        if (fd < 0 && (fd = route_open()) < 0)
            return;
        asked++;
        int interface = route_interface(fd, e.family == WG_FAMILY_V4 ? AF_INET : AF_INET6, e.address, e.local,
                                        wg_device_fwmark(tunnel->core));
        if (interface != (int)e.local_ifindex)
            wg_peer_forget_source(peer);
    }
    if (fd >= 0)
        close(fd);
}

void tunnel_free(struct tunnel *tunnel)
{
    struct loop *loop = &tunnel->workers->worker[0].loop;
    tunnel_down(tunnel);
    timer_cancel(loop, &tunnel->timer);
    workers_pause(tunnel->workers);
    if (tunnel->workers->count > 1) /* what the others have sent names the tunnel */
        worker_receive(&tunnel->workers->worker[0]);
    for (struct wg_peer *peer = wg_device_first_peer(tunnel->core); peer; peer = wg_peer_next(peer))
        tunnel_stage_drop(tunnel, peer, WG_DROP_SEND_NO_PEER);
    while (tunnel->carried) { /* never past its carrier */
        tunnel_down(tunnel->carried);
        tunnel->carried->orphan = true;
        tunnel_uncarry(tunnel->carried);
    }
    tunnel_uncarry(tunnel);
    for (unsigned i = 0; i < tunnel->config.workers; i++) {
        struct tunnel_lane *lane = &tunnel->lanes[i];
        tunnel_batch_drop(lane);
        if (lane->tun.fd >= 0) {
            loop_remove(&lane->worker->loop, &lane->tun_wake);
            tun_close(&lane->tun);
        }
        free(lane->gather);
    }
    workers_resume(tunnel->workers);
    tunnel_queue_free(tunnel);
    if (tunnel->nat)
        nat_free(tunnel->nat);
    pthread_mutex_destroy(&tunnel->nat_lock);
    wg_device_free(tunnel->core);
    free(tunnel->lanes);
    free(tunnel);
}

int tunnel_up(struct tunnel *tunnel)
{
    if (tunnel->up)
        return 0;
    int error = sockets_open(tunnel, wg_device_port(tunnel->core));
    if (error)
        return error;
    tunnel->up = true;
    wg_device_up(tunnel->core, tunnel_now(&tunnel->workers->worker[0]));
    tunnel_kick(tunnel);
    return 0;
}

void tunnel_down(struct tunnel *tunnel)
{
    if (!tunnel->up)
        return;
    tunnel->up = false;
    wg_device_down(tunnel->core);
    tunnel_kick(tunnel);
    sockets_close(tunnel);
}

void tunnel_stats(const struct tunnel *tunnel, struct tunnel_stats *sum)
{
    memset(sum, 0, sizeof *sum);
    for (unsigned i = 0; i < tunnel->config.workers; i++) {
        const uint64_t *from = (const uint64_t *)&tunnel->lanes[i].stats;
        uint64_t *to = (uint64_t *)sum;
        for (size_t k = 0; k < sizeof *sum / sizeof *to; k++)
            to[k] += from[k];
    }
    const uint64_t *drops = wg_device_drops(tunnel->core);
    for (int i = 0; i < WG_DROP_COUNT; i++)
        sum->wg_drops[i] += drops[i];
}
