/* The relay between toy layers, over TCP on loopback, two workers, 1 MiB:
 *
 *   client end - relay 1 (worker 0) = layers over one link = relay 2 (worker 1) - server end
 *
 * Both ends send what their seed makes and hash what they receive. No test sleeps; each has a deadline. */
#include "flow/relay.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/fdstream.h"
#include "io/feature.h"
#include "io/log.h"
#include "tests/check.h"
#include "tests/flow/toy.h"
#include "wire/bytes.h"

enum { MEMORY = 1 << 20, SESSIONS = 512, MUX_STREAMS = 3 };
static const uint64_t deadline_ns = 20ull * NS_PER_S;

enum kind { KIND_BARE, KIND_FRAME, KIND_DETACH, KIND_DETACH_FRAME, KIND_MUX, KIND_QUIC, KINDS };
static const char *const kind_names[KINDS] = {"bare", "frame", "detach", "detach over frame", "mux", "quic"};
enum drip { DRIP_NONE, DRIP_READ, DRIP_WRITE, DRIP_RANDOM, DRIPS };
static const char *const drip_names[DRIPS] = {"as it comes", "one-byte reads", "one-byte writes", "random sizes"};
enum scene {
    SCENE_A_FIRST,
    SCENE_B_FIRST,
    SCENE_ABORT,
    SCENE_DIES,
    SCENES,
    SCENE_SERVER_FIRST,
    SCENE_SLOW,
    SCENE_IDLE
};
static const char *const scene_names[] = {"A ends first", "B ends first", "abort", "peer dies", "",
                                          "server first", "slow reader",  "idle"};

/* --- what travels --- */

static uint8_t content(uint32_t seed, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ seed;
    return (uint8_t)(x >> 15 ^ x >> 7);
}

static uint64_t hash_step(uint64_t hash, uint8_t byte)
{
    return (hash ^ byte) * 1099511628211u;
}

static uint64_t hash_of(uint32_t seed, size_t n)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        hash = hash_step(hash, content(seed, i));
    return hash;
}

/* --- the machinery --- */

struct place { /* a worker with its streams */
    struct worker *worker;
    struct streams streams;
    bool closed;
    unsigned leaked_buffers, leaked_states;
    size_t peak;
};

struct end {
    struct wake wake; /* WAKE_CONTROL */
    struct place *place;
    size_t total, sent, received, stop_at; /* stop_at: dies or resets here; 0: does not */
    uint32_t seed;
    uint64_t hash;
    bool wait_eof, wait_bytes, hold; /* before its own end; before it sends; does not read yet */
    bool fin, eof, reset, over;
    bool by_reset; /* at stop_at */
};

struct half {
    struct session *session;
    struct place *place;
    struct relay *relay;
    struct end end;
    bool relay_over, told;
    uint8_t reason;
};

struct link { /* one connection between the places, and its mux where there is one */
    int fd[2];
    struct toy_mux *mux[2];
    struct timer timer[2]; /* WAKE_RESOLVER_TIMER stands for it */
    struct session *first;
    unsigned streams;
};

struct session {
    enum kind kind;
    enum drip drip;
    enum scene scene;
    size_t total, switch_at;
    int fd[4]; /* client end, relay 1, relay 2, server end */
    struct link *link;
    unsigned id;
    struct half half[2];
    unsigned halves_over;
};

static struct workers workers;
static struct place places[2];
static struct session *sessions[SESSIONS];
static unsigned session_count, session_over;
static atomic_bool release_holds; /* slow ends may read */
static const uint64_t patient = 30ull * NS_PER_S, impatient = 300 * NS_PER_MS, held_long = 2ull * NS_PER_S;
static uint64_t patience = 30ull * NS_PER_S;

static void relay_over(struct relay *relay);
static struct relay_config config = {
    .idle_ns = 30ull * NS_PER_S,
    .linger_ns = 100 * NS_PER_MS,
    .held_ns = 300 * NS_PER_MS,
    .first_wait_ns = 5 * NS_PER_MS,
    .quantum = 131072,
    .depth = 2,
    .ended = relay_over,
};

static void half_over(struct half *half);

static void fill_pair(int fd[2], bool small)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int one = 1, bytes = 4096, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (small)
        setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (small)
        setsockopt(fd[0], SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0 ||
        connect(fd[0], (struct sockaddr *)&address, size) < 0)
        die("no TCP on loopback: %s", strerror(errno));
    fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    for (int i = 0; i < 2; i++) {
        fcntl(fd[i], F_SETFL, O_NONBLOCK);
        setsockopt(fd[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (small)
            setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
}

/* --- the ends --- */

static void end_over(struct end *end)
{
    if (end->over)
        return;
    end->over = true;
    loop_remove(&end->place->worker->loop, &end->wake);
    close(end->wake.fd);
}

static void end_stop(struct end *end)
{
    struct linger now = {1, 0};
    if (end->by_reset)
        setsockopt(end->wake.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    end_over(end);
}

static void end_pump(struct end *end)
{
    uint8_t bytes[8192];
    for (int turn = 0; turn < 8 && !end->over; turn++) {
        bool moved = false;
        if (!(end->hold && !atomic_load(&release_holds)) && !end->eof) {
            ssize_t n = recv(end->wake.fd, bytes, sizeof bytes, 0);
            if (n == 0)
                end->eof = true;
            if (n < 0 && errno != EAGAIN) {
                end->reset = true;
                end_over(end);
                return;
            }
            for (ssize_t i = 0; i < n; i++)
                end->hash = hash_step(end->hash, bytes[i]);
            end->received += n > 0 ? (size_t)n : 0;
            moved = n >= 0;
        }
        size_t left = end->total - end->sent;
        if (left && !(end->wait_bytes && !end->received)) {
            size_t n = MIN(left, sizeof bytes);
            for (size_t i = 0; i < n; i++)
                bytes[i] = content(end->seed, end->sent + i);
            ssize_t put = send(end->wake.fd, bytes, n, MSG_NOSIGNAL);
            if (put < 0 && errno != EAGAIN) {
                end->reset = true;
                end_over(end);
                return;
            }
            end->sent += put > 0 ? (size_t)put : 0;
            moved |= put > 0;
        }
        if (end->stop_at && end->sent + end->received >= end->stop_at) {
            end_stop(end);
            return;
        }
        if (end->sent == end->total && !end->fin && (!end->wait_eof || end->eof)) {
            end->fin = true;
            shutdown(end->wake.fd, SHUT_WR);
        }
        if (end->fin && end->eof) {
            end_over(end);
            return;
        }
        if (!moved)
            break;
    }
    if (!end->over)
        loop_interest(&end->place->worker->loop, &end->wake,
                      ((end->hold && !atomic_load(&release_holds)) || end->eof ? 0u : WAKE_READ) |
                          (end->sent < end->total && !(end->wait_bytes && !end->received) ? WAKE_WRITE : 0u));
}

/* --- a half --- */

static struct stream *layers(struct place *place, int fd, const struct session *s, bool link, uint32_t seed)
{
    struct stream *top = fdstream_open(&place->streams.host, &place->worker->loop, fd, false);
    if (s->drip == DRIP_READ || s->drip == DRIP_WRITE)
        top = toy_drip(top, s->drip == DRIP_READ, s->drip == DRIP_WRITE, seed);
    if (s->drip == DRIP_RANDOM)
        top = toy_drip(top, -1, -1, seed);
    if (link && (s->kind == KIND_FRAME || s->kind == KIND_DETACH_FRAME))
        top = toy_frame(top);
    if (link && (s->kind == KIND_DETACH || s->kind == KIND_DETACH_FRAME))
        top =
            toy_detach(top, place == &places[0] ? s->switch_at : s->total - s->switch_at, s->kind == KIND_DETACH_FRAME);
    return top;
}

static void half_start(struct session *s, unsigned which, struct stream *link)
{
    struct place *place = &places[which];
    struct half *half = &s->half[which];
    struct stream *near = layers(place, s->fd[1 + which], s, false, s->id * 7 + which);
    half->relay = relay_start(&place->streams, &config, half, which ? link : near, which ? near : link, NULL, NULL);
    loop_add(&place->worker->loop, &half->end.wake, WAKE_CONTROL, s->fd[which ? 3 : 0], WAKE_READ | WAKE_WRITE);
}

static void mux_opened(void *context, struct stream *stream, unsigned id)
{
    struct link *link = context;
    half_start(&link->first[id], 1, stream);
}

static void link_start(struct worker *worker, const struct message *message)
{
    struct link *link = message->a;
    unsigned which = worker->index;
    struct session *first = link->first;
    struct stream *top = layers(&places[which], link->fd[which], first, true, first->id * 13 + which);
    if (first->kind != KIND_MUX && first->kind != KIND_QUIC) {
        half_start(first, which, top);
        return;
    }
    link->mux[which] = toy_mux_new(top, first->kind == KIND_QUIC, patience);
    toy_mux_on_open(link->mux[which], mux_opened, link);
    for (unsigned i = 0; which == 0 && i < link->streams; i++)
        half_start(&first[i], 0, toy_mux_dial(link->mux[0], i));
}

static void session_half_over(struct worker *worker, const struct message *message)
{
    struct session *s = message->a;
    if (++s->halves_over == 2)
        session_over++;
}

static void half_over(struct half *half)
{
    struct message message = {.run = session_half_over, .a = half->session};
    if (half->told || !half->relay_over || !half->end.over)
        return;
    half->told = true;
    if (half->place->worker->index == 0)
        session_half_over(half->place->worker, &message);
    else if (!worker_post(half->place->worker, &workers.worker[0], &message))
        die("inbox full");
}

static void relay_over(struct relay *relay)
{
    struct half *half = relay->owner;
    half->relay_over = true;
    half->reason = relay->reason;
    half_over(half);
}

/* --- a turn, as fvd.c has it --- */

#define OWNER(type, member, pointer) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

static struct link *links[SESSIONS];
static atomic_uint link_count;

static void turn(struct place *place)
{
    struct worker *worker = place->worker;
    struct timer *timer;
    bool busy = worker->again;
    worker->again = false;
    if (loop_wait(&worker->loop, busy ? 0 : worker->loop.now + 20 * NS_PER_MS))
        die("epoll");
    for (uint32_t i = 0; i < worker->loop.ready_count; i++) {
        struct wake *wake = worker->loop.ready[i];
        if (!wake)
            continue;
        if (wake->kind == WAKE_MESSAGE) {
            worker_receive(worker);
        } else if (wake->kind == WAKE_STREAM) {
            fdstream_ready(OWNER(struct fdstream, wake, wake));
        } else {
            end_pump(OWNER(struct end, wake, wake));
            half_over(OWNER(struct half, end.wake, wake));
        }
    }
    while ((timer = loop_expired(&worker->loop)) != NULL) {
        if (timer->kind == WAKE_STREAM_TIMER)
            relay_timer(OWNER(struct relay, timer, timer));
        else if (timer->kind == WAKE_STREAM_MEMORY)
            streams_timer(&place->streams);
        else
            toy_mux_tick(OWNER(struct link, timer[worker->index], timer)->mux[worker->index], worker->loop.now);
    }
    if (place->closed)
        return;
    streams_turn(&place->streams);
    for (unsigned i = 0; i < link_count; i++) {
        struct link *link = links[i];
        struct toy_mux *mux = link->mux[worker->index];
        uint64_t next = mux ? toy_mux_next(mux) : UINT64_MAX;
        if (next != UINT64_MAX)
            timer_arm(&worker->loop, &link->timer[worker->index], WAKE_RESOLVER_TIMER, next);
    }
    place->peak = MAX(place->peak, atomic_load(&workers.budget.taken));
}

static void run_other(struct worker *worker)
{
    while (!atomic_load(&workers.stop))
        turn(&places[worker->index]);
}

/* Ends that were held read on: their interest is set anew. */
static void release_ends(struct worker *worker, const struct message *message)
{
    for (unsigned i = 0; i < session_count; i++) {
        struct half *half = &sessions[i]->half[worker->index];
        if (half->end.hold && !half->end.over && half->relay) {
            end_pump(&half->end);
            half_over(half);
        }
    }
}

static void everywhere(void (*run)(struct worker *, const struct message *), void *argument)
{
    struct message message = {.run = run, .a = argument};
    run(&workers.worker[0], &message);
    if (!worker_post(&workers.worker[0], &workers.worker[1], &message))
        die("inbox full");
}

/* One turn of worker 0 after the other until all sessions are over, or `until` says so. */
static bool run_until(bool (*until)(void))
{
    uint64_t start = clock_mono();
    while (session_over < session_count && !(until && until()))
        if (turn(&places[0]), clock_mono() - start > deadline_ns)
            return false;
    return true;
}

static atomic_uint closed_places;
static void place_close(struct worker *worker, const struct message *message)
{
    struct place *place = &places[worker->index];
    for (unsigned i = 0; i < session_count; i++) { /* of a test that failed */
        struct half *half = &sessions[i]->half[worker->index];
        if (half->relay && !half->relay_over)
            relay_cancel(half->relay, STREAM_REASON_CANCELLED);
        if (half->relay)
            end_over(&half->end);
    }
    for (unsigned i = 0; i < link_count; i++) {
        timer_cancel(&worker->loop, &links[i]->timer[worker->index]);
        if (links[i]->mux[worker->index])
            toy_mux_close(links[i]->mux[worker->index]);
    }
    place->leaked_buffers = place->streams.out;
    place->leaked_states = place->streams.made;
    streams_free(&place->streams);
    place->closed = true;
    atomic_fetch_add(&closed_places, 1);
}

static unsigned descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static unsigned descriptors_before;

static void begin(void)
{
    descriptors_before = descriptors();
    session_count = session_over = 0;
    link_count = 0;
    atomic_store(&release_holds, false);
    atomic_store(&closed_places, 0);
    memset(places, 0, sizeof places);
    if (workers_init(&workers, 2, MEMORY))
        die("no workers");
    for (int i = 0; i < 2; i++) {
        places[i].worker = &workers.worker[i];
        if (streams_init(&places[i].streams, &workers.worker[i]))
            die("no streams");
    }
    if (workers_start(&workers, run_other, NULL))
        die("no thread");
}

static void add(enum kind kind, enum drip drip, enum scene scene, size_t total, size_t switch_at, unsigned streams,
                bool small)
{
    struct link *link = calloc(1, sizeof *link);
    struct session *group = calloc(streams, sizeof *group);
    bool half_close = kind != KIND_MUX;
    fill_pair(link->fd, small);
    link->first = group;
    link->streams = streams;
    links[link_count] = link;
    link_count++; /* after it: the other worker goes by the count */
    for (unsigned i = 0; i < streams; i++) {
        struct session *s = &group[i];
        *s = (struct session){.kind = kind,
                              .drip = drip,
                              .scene = scene,
                              .total = total,
                              .switch_at = switch_at,
                              .link = link,
                              .id = session_count};
        fill_pair(s->fd, small);
        fill_pair(s->fd + 2, small);
        for (unsigned h = 0; h < 2; h++) {
            s->half[h].session = s;
            s->half[h].place = &places[h];
            struct end *end = &s->half[h].end;
            end->place = &places[h];
            end->hash = hash_of(0, 0);
            end->total = total;
            end->seed = s->id * 2 + h;
            end->wait_eof = half_close && scene != SCENE_A_FIRST ? h == 0 : half_close && h == 1;
            end->wait_eof |= scene == SCENE_IDLE;
            end->wait_bytes = scene == SCENE_SERVER_FIRST && h == 0;
            end->hold = scene == SCENE_SLOW && h == 1 && i == 0;
            if (scene == SCENE_ABORT && h == 0)
                end->stop_at = total / 2, end->by_reset = true;
            if (scene == SCENE_DIES && h == 1)
                end->stop_at = total / 2;
        }
        sessions[session_count++] = s;
    }
    everywhere(link_start, link);
}

static void check_sessions(void)
{
    for (unsigned i = 0; i < session_count; i++) {
        struct session *s = sessions[i];
        struct end *a = &s->half[0].end, *b = &s->half[1].end;
        unsigned before = check_failures;
        CHECK_EQ(s->halves_over, 2);
        if (s->scene == SCENE_ABORT) {
            CHECK(b->reset); /* the abort has gone all the way, not a plain end */
            CHECK(s->half[0].reason == STREAM_REASON_RESET);
        } else if (s->scene == SCENE_DIES) {
            CHECK(a->reset || a->eof);
        } else if (!(s->scene == SCENE_SLOW && s->kind == KIND_MUX && b->hold && s->link->streams > 1)) {
            CHECK(!a->reset && !b->reset);
            CHECK_EQ(a->received, s->total);
            CHECK_EQ(b->received, s->total);
            CHECK(a->hash == hash_of(b->seed, s->total));
            CHECK(b->hash == hash_of(a->seed, s->total));
        }
        if (check_failures != before)
            fprintf(stderr,
                    "    session %u: %s, %s, %s, total %zu, switch at %zu: a sent %zu got %zu%s%s, b sent %zu got "
                    "%zu%s%s; relays %s, reasons %u %u\n",
                    i, kind_names[s->kind], drip_names[s->drip], scene_names[s->scene], s->total, s->switch_at, a->sent,
                    a->received, a->eof ? " eof" : "", a->reset ? " reset" : "", b->sent, b->received,
                    b->eof ? " eof" : "", b->reset ? " reset" : "",
                    s->half[0].relay_over && s->half[1].relay_over ? "over" : "not over", s->half[0].reason,
                    s->half[1].reason);
    }
}

static struct streams_counters finish(void)
{
    check_sessions();
    everywhere(place_close, NULL);
    while (atomic_load(&closed_places) != 2)
        loop_wait(&workers.worker[0].loop, clock_mono() + NS_PER_MS);
    struct streams_counters sum = {0};
    workers_stop(&workers);
    for (int i = 0; i < 2; i++) {
        const struct streams_counters *c = &places[i].streams.counters;
        CHECK_EQ(places[i].leaked_buffers, 0);
        CHECK_EQ(places[i].leaked_states, 0);
        sum.spliced += c->spliced;
        sum.copied += c->copied;
        sum.starved += c->starved;
        sum.relays += c->relays;
        sum.pipes_private += c->pipes_private;
    }
    CHECK_EQ(atomic_load(&workers.budget.taken), 0);
    CHECK(places[0].peak <= MEMORY && places[1].peak <= MEMORY);
    workers_free(&workers);
    for (unsigned i = 0; i < link_count; i++) {
        free(links[i]->first);
        free(links[i]);
    }
    CHECK_EQ(descriptors(), descriptors_before);
    return sum;
}

/* --- the tests --- */

/* Every layer, however the bytes come, however it ends. */
static void test_matrix(enum kind kind)
{
    static const size_t totals[DRIPS] = {300000, 3000, 3000, 60000};
    config.held_ns = held_long;
    begin();
    for (int drip = 0; drip < DRIPS; drip++)
        for (int scene = 0; scene < SCENES; scene++)
            add(kind, (enum drip)drip, (enum scene)scene, totals[drip], 700,
                kind == KIND_MUX || kind == KIND_QUIC ? MUX_STREAMS : 1, false);
    CHECK(run_until(NULL));
    struct streams_counters sum = finish();
    config.held_ns = held_long / 4;
    printf("%s: %u sessions, %llu bytes copied, %llu spliced\n", kind_names[kind], session_count,
           (unsigned long long)sum.copied, (unsigned long long)sum.spliced);
}

static void test_detach_everywhere(enum kind kind, enum drip drip)
{
    enum { TOTAL = 300, BATCH = 43 };
    for (size_t at = 0; at <= TOTAL; at += BATCH) {
        begin();
        for (size_t k = at; k < at + BATCH && k <= TOTAL; k++)
            add(kind, drip, k % 2 ? SCENE_A_FIRST : SCENE_B_FIRST, TOTAL, k, 1, false);
        CHECK(run_until(NULL));
        finish();
    }
}

/* Where neither side transforms, or no longer does, bytes are spliced, and with the feature off the same arrives. */
static void test_splice(void)
{
    enum { TOTAL = 3000000 };
    for (int on = 1; on >= 0; on--) {
        feature_used[FEATURE_SPLICE] = on;
        for (int kind = KIND_BARE; kind <= KIND_DETACH_FRAME; kind++) {
            begin();
            for (int i = 0; i < 4; i++)
                add((enum kind)kind, DRIP_NONE, i % 2 ? SCENE_A_FIRST : SCENE_B_FIRST, TOTAL, 1000, 1, i > 1);
            CHECK(run_until(NULL));
            struct streams_counters sum = finish();
            if (on && kind == KIND_BARE)
                CHECK(sum.spliced > sum.copied && sum.pipes_private > 0);
            if (on && kind >= KIND_DETACH)
                CHECK(sum.spliced >
                      4ull * 2 * TOTAL * 9 / 10); /* one direction switches at once, the other at its end */
            printf("splice %s, %s: %llu bytes spliced, %llu copied\n", on ? "on" : "off", kind_names[kind],
                   (unsigned long long)sum.spliced, (unsigned long long)sum.copied);
            if (!on || kind == KIND_FRAME)
                CHECK_EQ(sum.spliced, 0);
        }
    }
    feature_used[FEATURE_SPLICE] = true;
}

static bool somebody_starves(void)
{
    return places[0].streams.counters.starved > 20;
}

/* More than the budget wants to be buffered: reading stops, nothing is lost, and it recovers. */
static void test_exhaustion(enum kind kind, int count)
{
    begin();
    for (int i = 0; i < count; i++)
        add(kind, DRIP_NONE, i % 4 ? SCENE_SLOW : SCENE_A_FIRST, 50000, 0, 1, true);
    if (kind == KIND_QUIC) { /* nobody starves where only what can be leased is promised */
        for (int i = 0; i < 500; i++)
            turn(&places[0]);
        CHECK(!somebody_starves());
    } else {
        CHECK(run_until(somebody_starves));
        CHECK(somebody_starves());
    }
    CHECK(session_over < session_count);
    atomic_store(&release_holds, true);
    everywhere(release_ends, NULL);
    CHECK(run_until(NULL));
    size_t peak = places[0].peak;
    struct streams_counters sum = finish();
    printf("exhaustion, %s: peak %zu of %d, starved %llu times\n", kind_names[kind], peak, MEMORY,
           (unsigned long long)sum.starved);
}

static bool others_over(void)
{
    unsigned over = 0;
    for (unsigned i = 1; i < session_count; i++)
        over += sessions[i]->halves_over == 2;
    return over == session_count - 1;
}

/* One that does not read: the others of its connection finish. Without windows it loses its stream; with them it waits. */
static void test_slow(enum kind kind)
{
    patience = impatient;
    begin();
    add(kind, DRIP_NONE, SCENE_SLOW, 400000, 0, MUX_STREAMS, true);
    CHECK(run_until(others_over));
    CHECK(others_over());
    if (kind == KIND_QUIC)
        CHECK_EQ(sessions[0]->halves_over, 0);
    atomic_store(&release_holds, true);
    everywhere(release_ends, NULL);
    CHECK(run_until(NULL));
    CHECK_EQ(toy_mux_resets(links[0]->mux[1]), kind == KIND_MUX ? 1 : 0);
    CHECK(toy_mux_peak(links[0]->mux[1]) <= TOY_MUX_BOUND + TOY_MUX_FRAME);
    if (kind == KIND_MUX)
        CHECK(sessions[0]->half[0].end.reset && sessions[0]->half[1].end.reset);
    finish();
    patience = patient;
}

/* Alone on a connection without windows it loses nothing, however long it takes. */
static void test_slow_alone(void)
{
    begin();
    patience = 1;
    add(KIND_MUX, DRIP_NONE, SCENE_SLOW, 400000, 0, 1, true);
    uint64_t start = clock_mono();
    while (clock_mono() - start < 50 * NS_PER_MS)
        turn(&places[0]); /* the bound is long reached */
    CHECK_EQ(session_over, 0);
    atomic_store(&release_holds, true);
    everywhere(release_ends, NULL);
    CHECK(run_until(NULL));
    CHECK_EQ(toy_mux_resets(links[0]->mux[1]), 0);
    finish();
    patience = patient;
}

/* The client says nothing before it has heard the server: what waits for its first bytes must not wait for ever. */
static void test_server_first(void)
{
    begin();
    for (int kind = 0; kind < KINDS; kind++)
        add((enum kind)kind, DRIP_NONE, SCENE_SERVER_FIRST, 5000, 2000, 1, false);
    CHECK(run_until(NULL));
    finish();
}

static atomic_uint held[2];
static void count_held(struct worker *worker, const struct message *message)
{
    atomic_store(&held[worker->index], places[worker->index].streams.out + 1);
}

static bool all_received(void)
{
    for (unsigned i = 0; i < session_count; i++)
        if (sessions[i]->half[0].end.received < sessions[i]->total)
            return false;
    return true;
}

static void let_end(struct worker *worker, const struct message *message)
{
    for (unsigned i = 0; i < session_count; i++) {
        sessions[i]->half[worker->index].end.wait_eof = false;
        end_pump(&sessions[i]->half[worker->index].end);
        half_over(&sessions[i]->half[worker->index]);
    }
}

/* Open and idle: no buffer, and at most 1 KiB of state. */
static void test_idle(void)
{
    CHECK(sizeof(struct relay) + 2 * sizeof(struct fdstream) + 3 * 16 <= 1024);
    begin();
    for (int i = 0; i < 20; i++) {
        add(i % 2 ? KIND_FRAME : KIND_BARE, DRIP_NONE, SCENE_IDLE, 1000, 0, 1, false);
    }
    CHECK(run_until(all_received));
    for (int i = 0; i < 2; i++)
        atomic_store(&held[i], 0);
    uint64_t start = clock_mono();
    while ((atomic_load(&held[0]) != 1 || atomic_load(&held[1]) != 1) && clock_mono() - start < deadline_ns) {
        everywhere(count_held, NULL);
        turn(&places[0]);
    }
    CHECK_EQ(atomic_load(&held[0]), 1);
    CHECK_EQ(atomic_load(&held[1]), 1);
    everywhere(let_end, NULL);
    CHECK(run_until(NULL));
    finish();
    printf("relay %zu bytes, fdstream %zu: an idle relay of two sockets %zu\n", sizeof(struct relay),
           sizeof(struct fdstream), sizeof(struct relay) + 2 * sizeof(struct fdstream));
}

/* Nobody says anything: the idle timeout ends it. */
static void test_idle_timeout(void)
{
    uint64_t idle = config.idle_ns;
    config.idle_ns = 30 * NS_PER_MS;
    begin();
    add(KIND_BARE, DRIP_NONE, SCENE_IDLE, 0, 0, 1, false);
    CHECK(run_until(NULL));
    CHECK_EQ(sessions[0]->half[0].reason == STREAM_REASON_TIMEOUT ||
                 sessions[0]->half[1].reason == STREAM_REASON_TIMEOUT,
             1);
    sessions[0]->scene = SCENE_DIES;
    finish();
    config.idle_ns = idle;
}

static void test_matrices(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        test_matrix((enum kind)kind);
}

static void test_detaching(void)
{
    test_detach_everywhere(KIND_DETACH, DRIP_NONE);
    test_detach_everywhere(KIND_DETACH_FRAME, DRIP_NONE);
    test_detach_everywhere(KIND_DETACH_FRAME, DRIP_READ);
}

static void test_exhaustions(void)
{
    test_exhaustion(KIND_BARE, 80);
    test_exhaustion(KIND_FRAME, 36);
    test_exhaustion(KIND_QUIC, 80);
}

static void test_slow_readers(void)
{
    test_slow(KIND_MUX);
    test_slow(KIND_QUIC);
    test_slow_alone();
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"matrix", test_matrices},   {"detach", test_detaching},
    {"splice", test_splice},     {"exhaustion", test_exhaustions},
    {"slow", test_slow_readers}, {"server first", test_server_first},
    {"idle", test_idle},         {"timeout", test_idle_timeout},
};

/* With an argument: only the tests of that name. */
int main(int argc, char **argv)
{
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = MIN(files.rlim_max, (rlim_t)8192);
    setrlimit(RLIMIT_NOFILE, &files);
    log_setup(getenv("RELAY_DEBUG") ? LOG_DEBUG : LOG_WARNING, false);
    for (int f = 0; f < FEATURE_COUNT; f++)
        feature_used[f] = true;
    for (size_t i = 0; i < ARRAY_COUNT(tests); i++) {
        if (argc > 1 && strcmp(argv[1], tests[i].name) != 0)
            continue;
        uint64_t start = clock_mono();
        tests[i].run();
        printf("%s: %.1f s\n", tests[i].name, (double)(clock_mono() - start) / NS_PER_S);
    }
    return check_done();
}
