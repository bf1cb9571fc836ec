#include "flow/resolver_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"
#include "io/process.h"
#include "io/udp.h"
#include "wire/bytes.h"

enum { FILE_LIMIT = 1 << 20 };

struct resolver_socket {
    struct wake wake;
    bool open, stream;
    struct addr server;
    uint16_t unsent, length; /* of a stream's request */
    uint8_t request[2 + DNS_QUERY_SIZE];
};

struct resolver_io {
    struct loop *loop;
    struct resolver *core;
    struct timer timer;
    struct socket_options options;
    resolver_io_done *done;
    void *context;
    bool running; /* resolver_io_run is under way: a callback's lookup is served by it */
    struct resolver_socket sockets[RESOLVER_SLOTS];
};

static void fill_random(void *context, void *bytes, size_t n)
{
    (void)context;
    process_entropy(bytes, n);
}

struct resolver_io *resolver_io_new(struct loop *loop, const struct socket_options *options, resolver_io_done *done,
                                    void *context)
{
    struct resolver_io *io = calloc(1, sizeof *io);

    if (!io)
        return NULL;
    io->core = resolver_new(fill_random, NULL);
    if (!io->core) {
        free(io);
        return NULL;
    }
    io->loop = loop;
    io->options = *options;
    io->done = done;
    io->context = context;
    return io;
}

static void socket_end(struct resolver_io *io, struct resolver_socket *s)
{
    if (!s->open)
        return;
    loop_remove(io->loop, &s->wake);
    close(s->wake.fd);
    s->open = false;
}

void resolver_io_free(struct resolver_io *io)
{
    if (!io)
        return;
    for (unsigned i = 0; i < RESOLVER_SLOTS; i++)
        socket_end(io, &io->sockets[i]);
    timer_cancel(io->loop, &io->timer);
    resolver_free(io->core);
    free(io);
}

struct resolver *resolver_io_core(struct resolver_io *io)
{
    return io->core;
}

int resolver_io_load(struct resolver_io *io, const char *hosts, const char *resolv_conf, bool fallback)
{
    const struct addr here = {.family = 4, .ip = {127, 0, 0, 1}};
    unsigned servers = 0;
    int first = 0;
    char *text;

    for (int i = 0; i < 2; i++) {
        const char *path = i ? resolv_conf : hosts;
        ssize_t n = path ? file_read_new(path, FILE_LIMIT, &text) : -ENOENT;
        if (n < 0) {
            first = first || n == -ENOENT ? first : (int)n;
            continue;
        }
        if (i)
            servers = resolver_add_resolv_conf(io->core, text, (size_t)n);
        else if (resolver_add_hosts(io->core, text, (size_t)n) < 0)
            first = -ENOMEM;
        free(text);
    }
    if (resolv_conf && !servers && fallback)
        (void)resolver_add_server(io->core, &here);
    return first;
}

static socklen_t socket_address(const struct addr *a, union udp_address *out)
{
    memset(out, 0, sizeof *out);
    if (a->family == 4) {
        out->in4.sin_family = AF_INET;
        store_be16(&out->in4.sin_port, a->port);
        memcpy(&out->in4.sin_addr, a->ip, 4);
        return sizeof out->in4;
    }
    out->in6.sin6_family = AF_INET6;
    store_be16(&out->in6.sin6_port, a->port);
    memcpy(&out->in6.sin6_addr, a->ip, 16);
    out->in6.sin6_scope_id = a->scope;
    return sizeof out->in6;
}

/* A socket for the slot's attempt. False: it cannot be had. */
static bool socket_begin(struct resolver_io *io, const struct resolver_action *action)
{
    struct resolver_socket *s = &io->sockets[action->slot];
    union udp_address to;
    socklen_t size = socket_address(&action->server, &to);

    s->stream = action->kind == RESOLVER_SEND_TCP;
    s->server = action->server;
    int fd = socket_dial(s->stream ? SOCK_STREAM : SOCK_DGRAM, &to.any, size, &io->options);
    if (fd < 0)
        return false;
    if (loop_add(io->loop, &s->wake, WAKE_RESOLVER, fd, s->stream ? WAKE_WRITE : WAKE_READ)) {
        close(fd);
        return false;
    }
    s->open = true;
    if (!s->stream)
        return socket_send(fd, action->bytes, action->length) == (ssize_t)action->length;
    memcpy(s->request, action->bytes, action->length);
    s->length = (uint16_t)action->length;
    s->unsent = 0;
    return true;
}

static void resolver_io_run(struct resolver_io *io)
{
    struct resolver_action action;

    if (io->running)
        return;
    io->running = true;
    while (resolver_next(io->core, &action)) {
        switch (action.kind) {
        case RESOLVER_CLOSE:
            socket_end(io, &io->sockets[action.slot]);
            break;
        case RESOLVER_DONE:
            io->done(io->context, &action.result);
            break;
        case RESOLVER_SEND_UDP:
        case RESOLVER_SEND_TCP:
            if (!socket_begin(io, &action))
                resolver_broken(io->core, action.slot, io->loop->now);
            break;
        }
    }
    io->running = false;
    uint64_t deadline = resolver_deadline(io->core);
    if (deadline == UINT64_MAX)
        timer_cancel(io->loop, &io->timer);
    else
        timer_arm(io->loop, &io->timer, WAKE_RESOLVER_TIMER, deadline);
}

int resolver_io_lookup(struct resolver_io *io, const char *text, size_t n, uint16_t port, unsigned flags, void *context)
{
    int lookup = resolver_lookup(io->core, text, n, port, flags, context, io->loop->now);

    if (lookup >= 0)
        resolver_io_run(io);
    return lookup;
}

void resolver_io_cancel(struct resolver_io *io, int lookup)
{
    resolver_cancel(io->core, lookup);
    resolver_io_run(io);
}

void resolver_io_expired(struct resolver_io *io)
{
    resolver_poll(io->core, io->loop->now);
    resolver_io_run(io);
}

static void stream_write(struct resolver_io *io, struct resolver_socket *s, unsigned slot)
{
    ssize_t n = socket_send(s->wake.fd, s->request + s->unsent, (size_t)(s->length - s->unsent));

    if (n == -EAGAIN)
        return;
    if (n < 0) {
        resolver_broken(io->core, slot, io->loop->now);
        return;
    }
    s->unsent = (uint16_t)(s->unsent + n);
    if (s->unsent == s->length)
        (void)loop_interest(io->loop, &s->wake, WAKE_READ);
}

void resolver_io_ready(struct resolver_io *io, struct wake *wake)
{
    struct resolver_socket *s = (struct resolver_socket *)((char *)wake - offsetof(struct resolver_socket, wake));
    unsigned slot = (unsigned)(s - io->sockets);
    uint8_t bytes[4096];

    if (s->open && s->stream && s->unsent < s->length)
        stream_write(io, s, slot);
    else if (s->open) {
        ssize_t n = socket_receive(s->wake.fd, bytes, sizeof bytes);
        if (n < 0 && n != -EAGAIN)
            resolver_broken(io->core, slot, io->loop->now);
        else if (n >= 0 && s->stream)
            resolver_stream(io->core, slot, bytes, (size_t)n, io->loop->now);
        else if (n > 0)
            resolver_datagram(io->core, slot, &s->server, bytes, (size_t)n, io->loop->now);
    }
    resolver_io_run(io);
}
