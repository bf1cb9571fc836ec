#include "tests/flow/toy.h"
#include "wire/bytes.h"

struct drip {
    struct stream stream;
    struct stream *below;
    struct stream_waiter *reader, *writer;
    int read_most, write_most;
    uint32_t seed;
    uint8_t detached;
};

static struct drip *of(struct stream *stream)
{
    return (struct drip *)(void *)stream;
}

static size_t most(struct drip *d, int bound)
{
    return bound < 0 ? 1 + toy_random(&d->seed) % 3000 : bound == 0 ? SIZE_MAX : (size_t)bound;
}

static enum stream_status below_said(struct drip *d, enum stream_status status)
{
    return status == STREAM_ERROR ? stream_fail(&d->stream, d->below->reason) : status;
}

static enum stream_status drip_read(struct stream *stream, void *to, size_t size, unsigned flags, size_t *got)
{
    struct drip *d = of(stream);
    if (d->read_most && toy_random(&d->seed) % 16 == 0) { /* a refusal for nothing */
        *got = 0;
        stream_wake(stream->host, d->reader, STREAM_READ);
        return STREAM_AGAIN;
    }
    size_t bound = most(d, d->read_most);
    return below_said(d, d->below->ops->read(d->below, to, MIN(size, bound), flags, got));
}

static enum stream_status drip_write(struct stream *stream, const struct iovec *from, unsigned count, unsigned flags,
                                     size_t *accepted)
{
    struct drip *d = of(stream);
    if (!d->write_most || !count)
        return below_said(d, d->below->ops->write(d->below, from, count, flags, accepted));
    size_t bound = most(d, d->write_most);
    struct iovec one = {from[0].iov_base, MIN(from[0].iov_len, bound)};
    enum stream_status status = below_said(d, d->below->ops->write(d->below, &one, 1, flags, accepted));
    if (status == STREAM_OK && (count > 1 || one.iov_len < from[0].iov_len)) {
        stream_wake(stream->host, d->writer, STREAM_WRITE);
        return STREAM_AGAIN;
    }
    return status;
}

static size_t drip_room(struct stream *stream)
{
    return of(stream)->below->ops->room(of(stream)->below);
}

static enum stream_status drip_finish(struct stream *stream)
{
    return below_said(of(stream), of(stream)->below->ops->finish(of(stream)->below));
}

static void drip_abort(struct stream *stream, unsigned directions, enum stream_reason reason)
{
    of(stream)->below->ops->abort(of(stream)->below, directions, reason);
}

static void drip_wait(struct stream *stream, unsigned directions, struct stream_waiter *waiter)
{
    struct drip *d = of(stream);
    if (directions & STREAM_READ)
        d->reader = waiter;
    if (directions & STREAM_WRITE)
        d->writer = waiter;
    d->below->ops->wait(d->below, directions, waiter);
}

/* Stays where it is: what is above goes on through it one byte at a time. */
static enum stream_status drip_detach(struct stream *stream, unsigned direction, struct stream_left *left)
{
    *left = (struct stream_left){.fd = -1};
    return stream_fail(stream, STREAM_REASON_LOCAL);
}

static uint64_t drip_next(const struct stream *stream)
{
    const struct drip *d = (const struct drip *)(const void *)stream;
    return d->below->ops->next(d->below);
}

static void drip_tick(struct stream *stream, uint64_t now)
{
    of(stream)->below->ops->tick(of(stream)->below, now);
}

static void drip_close(struct stream *stream)
{
    of(stream)->below->ops->close(of(stream)->below);
    stream->host->unmake(stream->host, stream);
}

static const struct stream_ops drip_ops = {
    "drip",    drip_read,   drip_write,       drip_room, drip_finish, drip_abort,
    drip_wait, drip_detach, stream_no_splice, drip_next, drip_tick,   drip_close,
};

struct stream *toy_drip(struct stream *below, int read_most, int write_most, uint32_t seed)
{
    struct drip *d = below->host->make(below->host, sizeof *d);
    d->stream = (struct stream){&drip_ops, below->host, 1, below->can & STREAM_HALF_CLOSE, 0};
    d->below = below;
    d->read_most = read_most;
    d->write_most = write_most;
    d->seed = seed;
    return &d->stream;
}
