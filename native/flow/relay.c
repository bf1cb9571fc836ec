#include "flow/relay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/feature.h"
#include "io/log.h"
#include "wire/bytes.h"

const char *const relay_state_names[] = {"open", "draining", "held", "discarding", "done"};
_Static_assert(ARRAY_COUNT(relay_state_names) == RELAY_STATES, "a name for every state");

enum { DISCARD_BYTES = 4096 };

static struct relay_way *other_way(struct relay *relay, const struct relay_way *way)
{
    return &relay->way[way == &relay->way[0]];
}

static void set_state(struct relay *relay, struct relay_way *way, enum relay_state state)
{
    if (way->state == state)
        return;
    log_debug("relay %p: %s to %s: %s, after %llu bytes", (void *)relay, way->from->ops->name, way->to->ops->name,
              relay_state_names[state], (unsigned long long)way->moved);
    way->state = (uint8_t)state;
}

static void fail(struct relay *relay, enum stream_reason reason)
{
    if (!relay->failed)
        relay->reason = (uint8_t)reason;
    relay->failed = true;
}

/* --- what a way holds --- */

static void hold(struct relay_way *way, struct stream_buffer *chain)
{
    *way->held_end = chain;
    while (*way->held_end)
        way->held_end = &(*way->held_end)->next;
}

static void drop_held(struct relay *relay, struct relay_way *way)
{
    stream_give_all(&relay->streams->host, way->held);
    way->held = NULL;
    way->held_end = &way->held;
    if (way->pipe)
        streams_pipe_give(relay->streams, way->pipe);
    way->pipe = NULL;
}

static void written(struct relay *relay, struct relay_way *way, size_t n)
{
    struct stream_host *host = &relay->streams->host;
    if (n) {
        relay->active = host->now;
        relay->streams->worker->moved = true;
        relay->first_until = 0;
        way->moved += n;
        relay->streams->counters.copied += n;
    }
    while (way->held && n >= way->held->size) {
        struct stream_buffer *done = way->held;
        n -= done->size;
        way->held = done->next;
        host->give(host, done);
    }
    if (!way->held)
        way->held_end = &way->held;
    else
        stream_buffer_consume(way->held, n);
}

/* The far side is blocked: a large buffer is not kept for a few bytes. */
static void shrink(struct relay *relay, struct relay_way *way)
{
    struct stream_host *host = &relay->streams->host;
    for (struct stream_buffer **at = &way->held; *at; at = &(*at)->next) {
        struct stream_buffer *old = *at;
        if (lease_class_for(old->size + sizeof *old) >= lease_class_for(old->capacity + sizeof *old))
            continue;
        struct stream_buffer *new = host->take(host, old->size, STREAM_UNIT);
        if (!new)
            return;
        memcpy(new->bytes, stream_buffer_start(old), old->size);
        new->size = old->size;
        new->next = old->next;
        *at = new;
        if (way->held_end == &old->next)
            way->held_end = &new->next;
        host->give(host, old);
    }
}

/* --- what calls say --- */

/* The way's stream in this direction gives way to the one below. */
static bool switch_down(struct relay *relay, struct relay_way *way, unsigned direction)
{
    struct stream **at = direction == STREAM_READ ? &way->from : &way->to, *stream = *at;
    struct stream_left left = {.fd = -1};
    enum stream_status status = stream->ops->detach(stream, direction, &left);
    if (status == STREAM_AGAIN) {
        way->blocked = way->push = true;
        return false;
    }
    if (status != STREAM_OK || !left.below) {
        stream_give_all(&relay->streams->host, left.bytes);
        fail(relay, STREAM_REASON_LOCAL);
        return false;
    }
    hold(way, left.bytes);
    *at = left.below;
    left.below->ops->wait(left.below, direction, &way->waiter);
    if (left.owned) {
        relay->top[relay->top[1] == stream] = left.owned;
        stream->ops->close(stream);
    }
    *(direction == STREAM_READ ? &way->quiet : &way->blocked) = false;
    return true;
}

static void discard(struct relay *relay, struct relay_way *way, enum stream_reason reason)
{
    drop_held(relay, way);
    way->from->ops->abort(way->from, STREAM_READ, reason);
    set_state(relay, way, RELAY_DISCARD);
    stream_wake(&relay->streams->host, &way->waiter, 0);
}

/* After a write or finish. True: go on. */
static bool wrote(struct relay *relay, struct relay_way *way, enum stream_status status)
{
    switch (status) {
    case STREAM_OK:
        return true;
    case STREAM_SWITCH:
        return switch_down(relay, way, STREAM_WRITE);
    case STREAM_STARVED:
        way->push = true;
        stream_starve(&relay->streams->host, &way->waiter);
        return false;
    case STREAM_AGAIN:
        way->blocked = true;
        return false;
    default:
        if (!relay->reason)
            relay->reason = way->to->reason;
        discard(relay, way, way->to->reason);
        return false;
    }
}

/* After a read. True: go on. */
static bool did_read(struct relay *relay, struct relay_way *way, enum stream_status status)
{
    struct relay_way *other = other_way(relay, way);
    switch (status) {
    case STREAM_OK:
        return true;
    case STREAM_SWITCH:
        return switch_down(relay, way, STREAM_READ);
    case STREAM_STARVED:
        stream_starve(&relay->streams->host, &way->waiter);
        return false;
    case STREAM_AGAIN:
        way->quiet = true;
        return false;
    case STREAM_END:
        set_state(relay, way, way->state == RELAY_DISCARD ? RELAY_DONE : RELAY_DRAINING);
        if (!(way->from->can & STREAM_HALF_CLOSE) && (other->state == RELAY_OPEN || other->held || other->pipe))
            discard(relay, other, STREAM_REASON_NONE);
        return false;
    default:
        if (way->state == RELAY_DISCARD)
            set_state(relay, way, RELAY_DONE);
        else
            fail(relay, way->from->reason);
        return false;
    }
}

/* --- push --- */

/* The far side turns out not to splice: what is in the pipe is copied out of it. */
static bool pipe_to_buffers(struct relay *relay, struct relay_way *way)
{
    struct stream_host *host = &relay->streams->host;
    while (way->pipe->held) {
        struct stream_buffer *buffer = host->take(host, way->pipe->held, STREAM_INPUT);
        if (!buffer) {
            stream_starve(host, &way->waiter);
            return false;
        }
        ssize_t got = pipe_read(way->pipe, buffer->bytes, MIN(buffer->capacity, way->pipe->held));
        if (got <= 0) {
            host->give(host, buffer);
            fail(relay, STREAM_REASON_LOCAL);
            return false;
        }
        buffer->size = (uint32_t)got;
        hold(way, buffer);
    }
    return true;
}

static bool push_pipe(struct relay *relay, struct relay_way *way)
{
    struct pipe *pipe = way->pipe;
    while (pipe->held) {
        if (!(way->to->can & STREAM_SPLICE_WRITE)) {
            if (!pipe_to_buffers(relay, way))
                return false;
            break;
        }
        size_t moved;
        enum stream_status status = way->to->ops->splice(way->to, STREAM_WRITE, pipe->ends[0], pipe->held, &moved);
        pipe->held -= moved;
        way->moved += moved;
        relay->streams->counters.spliced += moved;
        if (moved) {
            relay->active = relay->streams->host.now;
            relay->streams->worker->moved = true;
        }
        if (status != STREAM_OK && pipe->held) {
            if (status == STREAM_AGAIN && !way->blocked)
                relay->streams->counters.pipes_private++;
            return wrote(relay, way, status);
        }
    }
    streams_pipe_give(relay->streams, pipe);
    way->pipe = NULL;
    return true;
}

static bool finish(struct relay *relay, struct relay_way *way)
{
    struct relay_way *other = other_way(relay, way);
    for (;;) {
        bool both = !(way->to->can & STREAM_HALF_CLOSE) && other->state == RELAY_OPEN;
        if (both && !way->no_hold) {
            set_state(relay, way, RELAY_HELD);
            return false;
        }
        enum stream_status status = way->to->ops->finish(way->to);
        if (status == STREAM_OK) {
            set_state(relay, way, RELAY_DONE);
            if (both) { /* nothing more will come from there */
                set_state(relay, other, RELAY_DRAINING);
                stream_wake(&relay->streams->host, &other->waiter, 0);
            }
            return false;
        }
        if (!wrote(relay, way, status))
            return false;
    }
}

/* True: nothing is held and the far side takes more. */
static bool push(struct relay *relay, struct relay_way *way)
{
    if (way->blocked || way->state == RELAY_DISCARD || way->state == RELAY_DONE)
        return way->state == RELAY_DISCARD;
    if (way->pipe && !push_pipe(relay, way))
        return false;
    while (way->held || way->push || (way->flush && way->quiet)) {
        struct iovec iov[RELAY_IOV];
        unsigned count = 0;
        size_t accepted;
        for (struct stream_buffer *b = way->held; b && count < RELAY_IOV; b = b->next)
            iov[count++] = (struct iovec){stream_buffer_start(b), b->size};
        enum stream_status status = way->to->ops->write(way->to, iov, count, way->flush ? STREAM_FLUSH : 0u, &accepted);
        way->push = false;
        if (status != STREAM_AGAIN && status != STREAM_STARVED)
            way->flush = false;
        written(relay, way, accepted);
        if (!wrote(relay, way, status))
            return false;
    }
    return way->state == RELAY_OPEN || finish(relay, way);
}

/* --- pull --- */

/* True: something was pulled, or another way of pulling is to be tried. */
static bool pull_pipe(struct relay *relay, struct relay_way *way, struct pipe *pipe, size_t *left)
{
    size_t moved;
    enum stream_status status =
        way->from->ops->splice(way->from, STREAM_READ, pipe->ends[1], MIN(pipe->capacity, *left), &moved);
    pipe->held += moved;
    *left -= moved;
    if (moved)
        way->pipe = pipe;
    else
        streams_pipe_give(relay->streams, pipe);
    return did_read(relay, way, status) || moved || way->state == RELAY_DRAINING;
}

static bool pull_buffers(struct relay *relay, struct relay_way *way, size_t room, size_t *left)
{
    struct stream_host *host = &relay->streams->host;
    /* More than one buffer only while memory is no matter. */
    uint32_t depth =
        streams_spare(relay->streams) > relay->streams->worker->leases.budget->limit / 2 ? relay->config->depth : 1;
    struct stream *from = way->from;
    bool go = true, pulled = false;
    for (uint32_t i = 0; i < depth && go && room && *left && way->from == from; i++) {
        size_t want = MIN(MIN(room, *left), RELAY_READ), got;
        struct stream_buffer *buffer = host->take(host, want, STREAM_INPUT);
        if (!buffer && !pulled) { /* trickle: only with room for certain */
            size_t none;
            if (!wrote(relay, way, way->to->ops->write(way->to, NULL, 0, 0, &none)))
                return false;
            buffer = streams_trickle(relay->streams);
            want = MIN(want, STREAMS_TRICKLE);
        }
        if (!buffer)
            return did_read(relay, way, STREAM_STARVED) || pulled;
        want = MIN(want, buffer->capacity);
        if (want > way->to->unit)
            want -= want % way->to->unit;
        enum stream_status status = from->ops->read(from, buffer->bytes, want, 0, &got);
        buffer->size = (uint32_t)got;
        if (got) {
            hold(way, buffer);
            pulled = true;
        } else {
            streams_unused(relay->streams, buffer);
        }
        *left -= got;
        room -= MIN(got, room);
        go = did_read(relay, way, status);
    }
    return go || pulled || way->state == RELAY_DRAINING;
}

static bool pull_discard(struct relay *relay, struct relay_way *way, size_t *left)
{
    uint8_t dropped[DISCARD_BYTES];
    size_t got;
    enum stream_status status = way->from->ops->read(way->from, dropped, sizeof dropped, 0, &got);
    *left -= MIN(got, *left);
    bool go = did_read(relay, way, status);
    drop_held(relay, way); /* what a layer may have left */
    return go;
}

static bool pull(struct relay *relay, struct relay_way *way, size_t *left)
{
    if ((way->state != RELAY_OPEN && way->state != RELAY_DISCARD) || way->quiet)
        return false;
    if (!*left) {
        stream_wake(&relay->streams->host, &way->waiter, 0);
        return false;
    }
    if (way->state == RELAY_DISCARD)
        return pull_discard(relay, way, left);
    size_t room = way->to->ops->room(way->to);
    if (!room) {
        way->blocked = true;
        return false;
    }
    if (way->from->can & STREAM_SPLICE_READ && way->to->can & STREAM_SPLICE_WRITE && feature_on(FEATURE_SPLICE)) {
        struct pipe *pipe = streams_pipe_take(relay->streams);
        if (pipe)
            return pull_pipe(relay, way, pipe, left);
    }
    return pull_buffers(relay, way, room, left);
}

/* --- the relay --- */

static void release(struct relay *relay)
{
    for (int i = 0; i < 2; i++) {
        drop_held(relay, &relay->way[i]);
        stream_cancel(&relay->way[i].waiter);
    }
    timer_cancel(&relay->streams->worker->loop, &relay->timer);
    for (int i = 0; i < 2; i++) {
        if (relay->failed)
            relay->top[i]->ops->abort(relay->top[i], STREAM_READ | STREAM_WRITE, relay->reason);
        relay->top[i]->ops->close(relay->top[i]);
    }
    relay->streams->counters.relays++;
    if (relay->config->ended)
        relay->config->ended(relay);
    free(relay);
}

static void arm(struct relay *relay)
{
    uint64_t at = relay->config->idle_ns ? relay->active + relay->config->idle_ns : UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        uint64_t next = relay->top[i]->ops->next(relay->top[i]);
        at = MIN(at, next);
    }
    if (relay->first_until)
        at = MIN(at, relay->first_until);
    if (relay->config->held_ns && (relay->way[0].state == RELAY_HELD || relay->way[1].state == RELAY_HELD))
        at = MIN(at, relay->active + relay->config->held_ns);
    if (relay->linger_until)
        at = MIN(at, relay->linger_until);
    /* A deadline that has moved away is not moved in the heap: the timer finds out when it fires. */
    if (at != UINT64_MAX && (!timer_armed(&relay->timer) || at < relay->timer.at))
        timer_arm(&relay->streams->worker->loop, &relay->timer, WAKE_STREAM_TIMER, at);
}

static void after(struct relay *relay)
{
    struct relay_way *way = relay->way;
    bool discard0 = way[0].state == RELAY_DISCARD, discard1 = way[1].state == RELAY_DISCARD;
    if (discard0 && discard1)
        fail(relay, relay->reason);
    if (relay->failed || (way[0].state == RELAY_DONE && way[1].state == RELAY_DONE)) {
        release(relay);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (way[i].state == RELAY_HELD && way[!i].state != RELAY_OPEN) {
            set_state(relay, &way[i], RELAY_DRAINING);
            stream_wake(&relay->streams->host, &way[i].waiter, 0);
        }
    if (!relay->linger_until && ((discard0 && way[1].state == RELAY_DONE) || (discard1 && way[0].state == RELAY_DONE)))
        relay->linger_until = relay->streams->host.now + relay->config->linger_ns;
    arm(relay);
}

static void run(struct relay *relay, struct relay_way *way)
{
    size_t left = relay->config->quantum;
    while (!relay->failed && push(relay, way) && !relay->failed && pull(relay, way, &left))
        ;
    if (!relay->failed && way->flush && way->quiet && !way->held)
        push(relay, way); /* nothing to take along: what waits for company goes alone */
    if (way->blocked && way->held)
        shrink(relay, way);
    after(relay);
}

static void way_ready(struct relay *relay, struct relay_way *way, unsigned events)
{
    if (events & STREAM_READ)
        way->quiet = false;
    if (events & STREAM_WRITE) {
        way->blocked = false;
        way->push = true;
    }
    run(relay, way);
}

#define RELAY_OF(pointer, i) ((struct relay *)(void *)((char *)(pointer) - offsetof(struct relay, way[i].waiter)))

static void way0_ready(struct stream_waiter *waiter, unsigned events)
{
    struct relay *relay = RELAY_OF(waiter, 0);
    way_ready(relay, &relay->way[0], events);
}

static void way1_ready(struct stream_waiter *waiter, unsigned events)
{
    struct relay *relay = RELAY_OF(waiter, 1);
    way_ready(relay, &relay->way[1], events);
}

struct relay *relay_start(struct streams *streams, const struct relay_config *config, void *owner, struct stream *a,
                          struct stream *b, struct stream_buffer *prefix_a, struct stream_buffer *prefix_b)
{
    struct relay *relay = calloc(1, sizeof *relay);
    if (!relay) {
        stream_give_all(&streams->host, prefix_a);
        stream_give_all(&streams->host, prefix_b);
        a->ops->close(a);
        b->ops->close(b);
        return NULL;
    }
    relay->streams = streams;
    relay->config = config;
    relay->owner = owner;
    relay->top[0] = a;
    relay->top[1] = b;
    relay->active = streams->host.now = streams->worker->loop.now;
    for (int i = 0; i < 2; i++) {
        struct relay_way *way = &relay->way[i];
        way->waiter.ready = i ? way1_ready : way0_ready;
        way->from = relay->top[i];
        way->to = relay->top[!i];
        way->held_end = &way->held;
        hold(way, i ? prefix_b : prefix_a);
        way->from->ops->wait(way->from, STREAM_READ, &way->waiter);
        way->to->ops->wait(way->to, STREAM_WRITE, &way->waiter);
        stream_wake(&streams->host, &way->waiter, 0); /* it runs with the turn */
    }
    if (config->first_wait_ns && !prefix_a)
        relay->first_until = relay->active + config->first_wait_ns;
    else
        relay->way[0].flush = !prefix_a;
    return relay;
}

void relay_cancel(struct relay *relay, enum stream_reason reason)
{
    fail(relay, reason);
    release(relay);
}

void relay_timer(struct relay *relay)
{
    uint64_t now = relay->streams->host.now = relay->streams->worker->loop.now;
    for (int i = 0; i < 2; i++)
        if (relay->top[i]->ops->next(relay->top[i]) <= now) {
            relay->top[i]->ops->tick(relay->top[i], now);
            relay->way[i].quiet = false; /* it may have ended */
            relay->way[!i].push = true;  /* or have something to send */
            stream_wake(&relay->streams->host, &relay->way[i].waiter, 0);
            stream_wake(&relay->streams->host, &relay->way[!i].waiter, 0);
        }
    if (relay->first_until && relay->first_until <= now) {
        relay->first_until = 0;
        relay->way[0].flush = true;
        stream_wake(&relay->streams->host, &relay->way[0].waiter, 0);
    }
    if (relay->linger_until && relay->linger_until <= now)
        for (int i = 0; i < 2; i++)
            if (relay->way[i].state == RELAY_DISCARD)
                set_state(relay, &relay->way[i], RELAY_DONE);
    if (relay->config->held_ns && now - relay->active >= relay->config->held_ns)
        for (int i = 0; i < 2; i++)
            if (relay->way[i].state == RELAY_HELD) {
                relay->way[i].no_hold = true;
                set_state(relay, &relay->way[i], RELAY_DRAINING);
                stream_wake(&relay->streams->host, &relay->way[i].waiter, 0);
            }
    if (relay->config->idle_ns && now - relay->active >= relay->config->idle_ns)
        fail(relay, STREAM_REASON_TIMEOUT);
    after(relay);
}
