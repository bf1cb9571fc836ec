#include "flow/streams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/bytes.h"

enum { HEAD = sizeof(struct stream_buffer) };

static struct streams *of(struct stream_host *host)
{
    return (struct streams *)(void *)host; /* its first member */
}

size_t streams_spare(const struct streams *streams)
{
    const struct lease_budget *budget = streams->worker->leases.budget;
    size_t taken = atomic_load_explicit(&budget->taken, memory_order_relaxed);
    return taken < budget->limit ? budget->limit - taken : 0;
}

static struct stream_buffer *buffer_of(struct streams *streams, void *lease, enum lease_class class)
{
    struct stream_buffer *buffer = lease;
    *buffer = (struct stream_buffer){.capacity = lease_sizes[class] - HEAD, .lease = class};
    streams->out++;
    return buffer;
}

static struct stream_buffer *host_take(struct stream_host *host, size_t size, enum stream_purpose purpose)
{
    struct streams *streams = of(host);
    enum lease_class class = lease_class_for(size + HEAD);
    void *lease = NULL;
    if (purpose == STREAM_INPUT) {
        size_t limit = streams->worker->leases.budget->limit, spare = streams_spare(streams);
        enum lease_class most = spare > limit / 2 ? LEASE_LARGE : spare > limit / 8 ? LEASE_RECORD : LEASE_SMALL;
        class = MIN(class, most);
        while (!(lease = lease_take(&streams->worker->leases, class)) && class > LEASE_SMALL)
            class--;
    } else if (class < LEASE_CLASSES) {
        lease = lease_take(&streams->worker->leases, class);
    }
    if (!lease && purpose != STREAM_INPUT && class <= LEASE_RECORD) {
        class = LEASE_RECORD;
        if (purpose == STREAM_OUTPUT && streams->outputs)
            lease = streams->output[--streams->outputs];
        if (purpose == STREAM_UNIT && streams->units)
            lease = streams->unit[--streams->units];
    }
    if (!lease) {
        streams->counters.starved++;
        return NULL;
    }
    return buffer_of(streams, lease, class);
}

struct stream_buffer *streams_trickle(struct streams *streams)
{
    void *lease = streams->trickle;
    streams->trickle = NULL;
    return lease ? buffer_of(streams, lease, LEASE_SMALL) : NULL;
}

static void host_give(struct stream_host *host, struct stream_buffer *buffer)
{
    struct streams *streams = of(host);
    uint32_t class = buffer->lease;
    streams->out--;
    streams->given = true;
    if (class == LEASE_RECORD && streams->units < STREAMS_RESERVE_UNIT)
        streams->unit[streams->units++] = buffer;
    else if (class == LEASE_RECORD && streams->outputs < STREAMS_RESERVE_OUTPUT)
        streams->output[streams->outputs++] = buffer;
    else if (class == LEASE_SMALL && !streams->trickle)
        streams->trickle = buffer;
    else
        lease_give(&streams->worker->leases, buffer);
}

void streams_unused(struct streams *streams, struct stream_buffer *buffer)
{
    bool given = streams->given;
    host_give(&streams->host, buffer);
    streams->given = given;
}

/* Buffers of other classes have come back while the reserve was short: fill it up. True: it is full. */
static bool refill(struct streams *streams)
{
    struct lease_pool *leases = &streams->worker->leases;
    void *lease = NULL;
    while (streams->units < STREAMS_RESERVE_UNIT && (lease = lease_take(leases, LEASE_RECORD)) != NULL)
        streams->unit[streams->units++] = lease;
    while (streams->outputs < STREAMS_RESERVE_OUTPUT && (lease = lease_take(leases, LEASE_RECORD)) != NULL)
        streams->output[streams->outputs++] = lease;
    if (!streams->trickle)
        streams->trickle = lease_take(leases, LEASE_SMALL);
    return streams->units == STREAMS_RESERVE_UNIT && streams->outputs == STREAMS_RESERVE_OUTPUT && streams->trickle;
}

static bool host_reserve(struct stream_host *host, size_t bytes)
{
    struct lease_budget *budget = of(host)->worker->leases.budget;
    /* Half of the budget stays for what is really there: promises alone must not stop the bytes that they promise for. */
    if (streams_spare(of(host)) < budget->limit / 2 + bytes)
        return false;
    return lease_budget_take(budget, bytes) == 0;
}

static void host_release(struct stream_host *host, size_t bytes)
{
    lease_budget_give(of(host)->worker->leases.budget, bytes);
    of(host)->given = true;
}

static void *host_make(struct stream_host *host, size_t size)
{
    void *state = calloc(1, size);
    of(host)->made += state != NULL;
    return state;
}

static void host_unmake(struct stream_host *host, void *state)
{
    of(host)->made--;
    free(state);
}

int streams_init(struct streams *streams, struct worker *worker)
{
    memset(streams, 0, sizeof *streams);
    streams->host = (struct stream_host){
        .take = host_take,
        .give = host_give,
        .reserve = host_reserve,
        .release = host_release,
        .make = host_make,
        .unmake = host_unmake,
        .now = worker->loop.now,
    };
    stream_list_init(&streams->host.ready);
    stream_list_init(&streams->host.starving);
    streams->worker = worker;
    streams->pipe_size = 65536;
    while (streams->pipe_size < STREAMS_PIPE_MAX && streams->pipe_size * 2 <= worker->leases.budget->limit / 16)
        streams->pipe_size *= 2;
    if (!refill(streams)) {
        streams_free(streams);
        return -ENOMEM;
    }
    return 0;
}

void streams_free(struct streams *streams)
{
    timer_cancel(&streams->worker->loop, &streams->starving);
    streams_quiet(streams);
    while (streams->units)
        lease_give(&streams->worker->leases, streams->unit[--streams->units]);
    while (streams->outputs)
        lease_give(&streams->worker->leases, streams->output[--streams->outputs]);
    if (streams->trickle)
        lease_give(&streams->worker->leases, streams->trickle);
    streams->trickle = NULL;
}

void streams_quiet(struct streams *streams)
{
    if (!streams->pipe)
        return;
    struct pipe *pipe = streams->pipe;
    streams->pipe = NULL;
    pipe_close(pipe);
    lease_budget_give(streams->worker->leases.budget, pipe->capacity);
    free(pipe);
}

struct pipe *streams_pipe_take(struct streams *streams)
{
    struct lease_budget *budget = streams->worker->leases.budget;
    struct pipe *pipe = streams->pipe;
    streams->pipe = NULL;
    if (pipe)
        return pipe;
    /* A pipe is the largest thing that a blocked way can hold: not the last of the memory. */
    if (streams_spare(streams) < budget->limit / 2 || lease_budget_take(budget, streams->pipe_size))
        return NULL;
    pipe = malloc(sizeof *pipe);
    if (!pipe || pipe_open(pipe, streams->pipe_size)) {
        free(pipe);
        lease_budget_give(budget, streams->pipe_size);
        return NULL;
    }
    if (pipe->capacity < streams->pipe_size) { /* the kernel grants less */
        lease_budget_give(budget, streams->pipe_size - pipe->capacity);
        streams->pipe_size = pipe->capacity;
    } else if (pipe->capacity > streams->pipe_size) { /* larger pages: the least that a pipe can be */
        atomic_fetch_add_explicit(&budget->taken, pipe->capacity - streams->pipe_size, memory_order_relaxed);
        streams->pipe_size = pipe->capacity;
    }
    return pipe;
}

void streams_pipe_give(struct streams *streams, struct pipe *pipe)
{
    struct pipe *spare = streams->pipe;
    streams->given = true;
    streams->pipe = pipe;
    if (!spare && !pipe->held)
        return;
    streams_quiet(streams); /* closes this one */
    streams->pipe = spare;
}

static bool list_empty(const struct stream_waiter *head)
{
    return head->next == head;
}

static void run_round(struct streams *streams)
{
    /* What becomes ready meanwhile is the next round's; what goes away takes itself off whichever list it is on. */
    struct stream_waiter round, *ready = &streams->host.ready;
    stream_list_init(&round);
    if (list_empty(ready))
        return;
    round.next = ready->next;
    round.prev = ready->prev;
    round.next->prev = round.prev->next = &round;
    stream_list_init(ready);
    /* NOLINTNEXTLINE(clang-analyzer-core.StackAddressEscape): when the loop ends nobody points into the round */
    while (!list_empty(&round)) {
        struct stream_waiter *waiter = round.next;
        unsigned events = waiter->events;
        stream_list_take(waiter);
        waiter->events = 0;
        waiter->ready(waiter, events);
    }
}

static void wake_starving(struct streams *streams)
{
    struct stream_waiter *starving = &streams->host.starving;
    for (unsigned n = 0; n < STREAMS_WAKE && !list_empty(starving); n++)
        stream_wake(&streams->host, starving->next, STREAM_MEMORY);
}

void streams_timer(struct streams *streams)
{
    wake_starving(streams);
}

void streams_turn(struct streams *streams)
{
    struct loop *loop = &streams->worker->loop;
    streams->host.now = loop->now;
    for (unsigned round = 0; round < STREAMS_ROUNDS && !list_empty(&streams->host.ready); round++)
        run_round(streams);
    if (streams->given) {
        streams->given = false;
        refill(streams);
        wake_starving(streams);
    }
    if (!list_empty(&streams->host.ready))
        streams->worker->again = true;
    if (list_empty(&streams->host.starving))
        timer_cancel(loop, &streams->starving);
    else if (!timer_armed(&streams->starving))
        timer_arm(loop, &streams->starving, WAKE_STREAM_MEMORY, loop->now + STREAMS_STARVE_NS);
}
