/* Blocks: command (0 goes on, 2 the last one) | length (2) | content; after the last one of a direction the bytes are bare. */
#include "tests/flow/toy.h"
#include "wire/bytes.h"

enum { BLOCK_HEAD = 3, BLOCK_MOST = 1000 };

struct detach {
    struct stream stream;
    struct stream *below; /* NULL: has been detached in both directions */
    struct stream *owned; /* what it gave us */
    struct stream *raw[3]; /* by direction: what goes on below */
    struct stream_buffer *in, *out;
    struct stream_buffer *left; /* of below, behind `in` */
    uint32_t block; /* content of the block still to come */
    bool last_read, last_sent;
    bool deep;
    size_t written, write_at;
    uint8_t detached;
};

static struct detach *of(struct stream *stream)
{
    return (struct detach *)(void *)stream;
}

static enum stream_status below_said(struct detach *d, enum stream_status status)
{
    return status == STREAM_ERROR ? stream_fail(&d->stream, d->below->reason) : status;
}

/* Takes the layer below away in one direction. */
static enum stream_status dig(struct detach *d, unsigned direction)
{
    struct stream_left left;
    if (!d->deep) {
        d->raw[direction] = d->below;
        return STREAM_OK;
    }
    enum stream_status status = d->below->ops->detach(d->below, direction, &left);
    if (status != STREAM_OK)
        return below_said(d, status);
    d->raw[direction] = left.below;
    if (direction == STREAM_READ)
        d->left = left.bytes;
    if (left.owned) {
        d->owned = left.owned;
        d->below->ops->close(d->below);
        d->below = NULL;
    }
    return STREAM_OK;
}

static enum stream_status fill(struct detach *d, size_t n)
{
    struct stream_host *host = d->stream.host;
    while (!d->in || d->in->size < n) {
        if (!d->in && !(d->in = host->take(host, 2000, STREAM_UNIT)))
            return STREAM_STARVED;
        if (d->in->start) {
            memmove(d->in->bytes, stream_buffer_start(d->in), d->in->size);
            d->in->start = 0;
        }
        size_t got;
        enum stream_status status = d->below->ops->read(d->below, d->in->bytes + d->in->size,
                                                        d->in->capacity - d->in->size, STREAM_ONE_UNIT, &got);
        d->in->size += (uint32_t)got;
        if (d->in->size >= n)
            return STREAM_OK;
        bool none = !d->in->size;
        if (none) {
            host->give(host, d->in);
            d->in = NULL;
        }
        if (status == STREAM_END && (!none || d->block))
            return stream_fail(&d->stream, STREAM_REASON_TRUNCATED);
        if (status != STREAM_OK)
            return below_said(d, status);
    }
    return STREAM_OK;
}

static enum stream_status detach_read(struct stream *stream, void *to, size_t size, unsigned flags, size_t *got)
{
    struct detach *d = of(stream);
    enum stream_status status = STREAM_OK;
    *got = 0;
    while (*got < size && status == STREAM_OK) {
        if (!d->block && d->last_read) {
            if (!d->raw[STREAM_READ] && (status = dig(d, STREAM_READ)) != STREAM_OK)
                return status;
            return STREAM_SWITCH;
        }
        if (!d->block) {
            if ((status = fill(d, BLOCK_HEAD)) != STREAM_OK)
                return status;
            d->last_read = stream_buffer_start(d->in)[0] == 2;
            d->block = load_be16(stream_buffer_start(d->in) + 1);
            stream_buffer_consume(d->in, BLOCK_HEAD);
        } else {
            if ((status = fill(d, 1)) != STREAM_OK)
                return status;
            size_t n = MIN(MIN(size - *got, (size_t)d->block), d->in->size);
            memcpy((uint8_t *)to + *got, stream_buffer_start(d->in), n);
            stream_buffer_consume(d->in, n);
            d->block -= (uint32_t)n;
            *got += n;
        }
        if (d->in && !d->in->size) {
            stream->host->give(stream->host, d->in);
            d->in = NULL;
        }
    }
    return status;
}

static enum stream_status flush(struct detach *d)
{
    while (d->out) {
        struct iovec v = {stream_buffer_start(d->out), d->out->size};
        size_t accepted;
        enum stream_status status = d->below->ops->write(d->below, &v, 1, 0, &accepted);
        stream_buffer_consume(d->out, accepted);
        if (!d->out->size) {
            d->stream.host->give(d->stream.host, d->out);
            d->out = NULL;
        }
        if (status != STREAM_OK)
            return below_said(d, status);
    }
    return STREAM_OK;
}

static enum stream_status detach_write(struct stream *stream, const struct iovec *from, unsigned count, unsigned flags,
                                       size_t *accepted)
{
    struct detach *d = of(stream);
    enum stream_status status;
    size_t skip = 0;
    *accepted = 0;
    if (!d->out && d->below) { /* push on what is stuck below */
        size_t none;
        if ((status = d->below->ops->write(d->below, NULL, 0, flags, &none)) != STREAM_OK)
            return below_said(d, status);
    }
    for (;;) {
        if ((status = flush(d)) != STREAM_OK)
            return status;
        if (d->last_sent) {
            status = d->raw[STREAM_WRITE] ? STREAM_OK : dig(d, STREAM_WRITE);
            return status == STREAM_OK ? STREAM_SWITCH : status;
        }
        while (count && skip == from->iov_len)
            from++, count--, skip = 0;
        if (!count && d->write_at != d->written)
            return STREAM_OK;
        size_t n = count ? MIN(MIN(from->iov_len - skip, (size_t)BLOCK_MOST), d->write_at - d->written) : 0;
        if (!(d->out = stream->host->take(stream->host, BLOCK_HEAD + n, STREAM_OUTPUT)))
            return STREAM_STARVED;
        if (n)
            memcpy(d->out->bytes + BLOCK_HEAD, (const uint8_t *)from->iov_base + skip, n);
        d->written += n;
        d->last_sent = d->written == d->write_at;
        d->out->bytes[0] = d->last_sent ? 2 : 0;
        store_be16(d->out->bytes + 1, (uint16_t)n);
        d->out->size = (uint32_t)(BLOCK_HEAD + n);
        skip += n;
        *accepted += n;
    }
}

static size_t detach_room(struct stream *stream)
{
    struct detach *d = of(stream);
    return d->out ? 0 : d->below ? d->below->ops->room(d->below) : SIZE_MAX;
}

static enum stream_status detach_finish(struct stream *stream)
{
    struct detach *d = of(stream);
    enum stream_status status = flush(d);
    if (status != STREAM_OK)
        return status;
    if (d->last_sent)
        return d->raw[STREAM_WRITE] || (status = dig(d, STREAM_WRITE)) == STREAM_OK ? STREAM_SWITCH : status;
    return below_said(d, d->below->ops->finish(d->below));
}

static struct stream *any_below(struct detach *d)
{
    return d->below ? d->below : d->owned;
}

static void detach_abort(struct stream *stream, unsigned directions, enum stream_reason reason)
{
    any_below(of(stream))->ops->abort(any_below(of(stream)), directions, reason);
}

static void detach_wait(struct stream *stream, unsigned directions, struct stream_waiter *waiter)
{
    any_below(of(stream))->ops->wait(any_below(of(stream)), directions, waiter);
}

static enum stream_status detach_detach(struct stream *stream, unsigned direction, struct stream_left *left)
{
    struct detach *d = of(stream);
    *left = (struct stream_left){.fd = -1, .below = d->raw[direction]};
    if (!left->below)
        return stream_fail(stream, STREAM_REASON_LOCAL); /* of its own accord only */
    if (direction == STREAM_READ) {
        struct stream_buffer **end = &left->bytes;
        *end = d->in;
        if (d->in)
            end = &d->in->next;
        *end = d->left;
        d->in = d->left = NULL;
    }
    d->detached |= (uint8_t)direction;
    if (d->detached == (STREAM_READ | STREAM_WRITE)) {
        left->owned = any_below(d);
        d->below = d->owned = NULL;
    }
    return STREAM_OK;
}

static uint64_t detach_next(const struct stream *stream)
{
    const struct detach *d = (const struct detach *)(const void *)stream;
    const struct stream *below = d->below ? d->below : d->owned;
    return below->ops->next(below);
}

static void detach_tick(struct stream *stream, uint64_t now)
{
    any_below(of(stream))->ops->tick(any_below(of(stream)), now);
}

static void detach_close(struct stream *stream)
{
    struct detach *d = of(stream);
    stream_give_all(stream->host, d->in);
    stream_give_all(stream->host, d->left);
    stream_give_all(stream->host, d->out);
    if (any_below(d))
        any_below(d)->ops->close(any_below(d));
    stream->host->unmake(stream->host, d);
}

static const struct stream_ops detach_ops = {
    "detach",    detach_read,   detach_write,     detach_room, detach_finish, detach_abort,
    detach_wait, detach_detach, stream_no_splice, detach_next, detach_tick,   detach_close,
};

struct stream *toy_detach(struct stream *below, size_t write_at, bool deep)
{
    struct detach *d = below->host->make(below->host, sizeof *d);
    d->stream = (struct stream){&detach_ops, below->host, 1, below->can & STREAM_HALF_CLOSE, 0};
    d->below = below;
    d->write_at = write_at;
    d->deep = deep;
    return &d->stream;
}
