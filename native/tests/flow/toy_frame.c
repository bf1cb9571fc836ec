/* Records of at most 16 KiB: length (2, big endian) | payload XOR 0x5a | sum of the payload (4). Length 0 ends the direction.
 * Each side says an 8-byte hello first and takes nothing before it has the other's. */
#include "tests/flow/toy.h"
#include "wire/bytes.h"

enum {
    RECORD = 16384,
    FRAME_HEAD = 2,
    FRAME_TAIL = 4,
    FRAME_MOST = FRAME_HEAD + RECORD + FRAME_TAIL,
    HELLO = 8,
    READ_AHEAD = 4000
};
static const uint8_t hello[HELLO] = "toyhello";

struct frame {
    struct stream stream;
    struct stream *below;
    struct stream_waiter *writer;
    struct stream_buffer *in, *out; /* read ahead, opened in place; sealed and not yet taken */
    uint32_t plain; /* bytes at in->start that are opened */
    bool said_hello, heard_hello, ended, finished;
    uint8_t detached;
};

static struct frame *of(struct stream *stream)
{
    return (struct frame *)(void *)stream;
}

static enum stream_status flush(struct frame *f)
{
    while (f->out) {
        struct iovec v = {stream_buffer_start(f->out), f->out->size};
        size_t accepted;
        enum stream_status status = f->below->ops->write(f->below, &v, 1, 0, &accepted);
        stream_buffer_consume(f->out, accepted);
        if (!f->out->size) {
            f->stream.host->give(f->stream.host, f->out);
            f->out = NULL;
        }
        if (status == STREAM_ERROR)
            return stream_fail(&f->stream, f->below->reason);
        if (status != STREAM_OK)
            return status;
    }
    return STREAM_OK;
}

/* Puts bytes into a new `out` when there is none. */
static enum stream_status seal(struct frame *f, const struct iovec *from, unsigned count, size_t skip, size_t n)
{
    f->out = f->stream.host->take(f->stream.host, FRAME_HEAD + n + FRAME_TAIL, STREAM_OUTPUT);
    if (!f->out)
        return STREAM_STARVED;
    uint8_t *to = f->out->bytes + FRAME_HEAD;
    uint32_t sum = 0;
    store_be16(f->out->bytes, (uint16_t)n);
    for (size_t left = n; left; from++) {
        const uint8_t *bytes = from->iov_base;
        for (size_t i = MIN(skip, from->iov_len); i < from->iov_len && left; i++, left--) {
            sum = sum * 31 + bytes[i];
            *to++ = bytes[i] ^ 0x5a;
        }
        skip -= MIN(skip, from->iov_len);
    }
    (void)count;
    store_be32(to, sum);
    f->out->size = (uint32_t)(FRAME_HEAD + n + FRAME_TAIL);
    return STREAM_OK;
}

static enum stream_status shake(struct frame *f)
{
    if (!f->said_hello) {
        f->out = f->stream.host->take(f->stream.host, HELLO, STREAM_OUTPUT);
        if (!f->out)
            return STREAM_STARVED;
        memcpy(f->out->bytes, hello, HELLO);
        f->out->size = HELLO;
        f->said_hello = true;
    }
    enum stream_status status = flush(f);
    return status != STREAM_OK ? status : f->heard_hello ? STREAM_OK : STREAM_AGAIN;
}

/* A whole unit of n bytes in `in`; otherwise why not. */
static enum stream_status fill(struct frame *f, size_t n)
{
    struct stream_host *host = f->stream.host;
    while (!f->in || f->in->size < n) {
        if (!f->in || f->in->capacity < n) { /* as large as the unit in hand needs: many wait here for a few bytes */
            struct stream_buffer *larger = host->take(host, MAX(n, (size_t)READ_AHEAD), STREAM_UNIT);
            if (!larger)
                return STREAM_STARVED;
            if (f->in) {
                memcpy(larger->bytes, stream_buffer_start(f->in), f->in->size);
                larger->size = f->in->size;
                host->give(host, f->in);
            }
            f->in = larger;
        }
        if (f->in->start) {
            memmove(f->in->bytes, stream_buffer_start(f->in), f->in->size);
            f->in->start = 0;
        }
        size_t got;
        enum stream_status status =
            f->below->ops->read(f->below, f->in->bytes + f->in->size, f->in->capacity - f->in->size, 0, &got);
        f->in->size += (uint32_t)got;
        if (f->in->size >= n)
            return STREAM_OK;
        bool none = !f->in->size;
        if (none) {
            host->give(host, f->in);
            f->in = NULL;
        }
        if (status == STREAM_END)
            return stream_fail(&f->stream, STREAM_REASON_TRUNCATED);
        if (status == STREAM_ERROR)
            return stream_fail(&f->stream, f->below->reason);
        if (status != STREAM_OK)
            return status;
    }
    return STREAM_OK;
}

static void in_done(struct frame *f)
{
    if (f->in && !f->in->size) {
        f->stream.host->give(f->stream.host, f->in);
        f->in = NULL;
    }
}

static enum stream_status open_record(struct frame *f)
{
    enum stream_status status;
    if (!f->heard_hello) {
        if ((status = fill(f, HELLO)) != STREAM_OK)
            return status;
        if (memcmp(stream_buffer_start(f->in), hello, HELLO) != 0)
            return stream_fail(&f->stream, STREAM_REASON_AUTH);
        stream_buffer_consume(f->in, HELLO);
        in_done(f);
        f->heard_hello = true;
        stream_wake(f->stream.host, f->writer, STREAM_WRITE); /* it was refused by us, not by what is below */
    }
    if ((status = fill(f, FRAME_HEAD)) != STREAM_OK)
        return status;
    uint32_t n = load_be16(stream_buffer_start(f->in)), sum = 0;
    if (n > RECORD)
        return stream_fail(&f->stream, STREAM_REASON_PROTOCOL);
    if ((status = fill(f, FRAME_HEAD + n + FRAME_TAIL)) != STREAM_OK)
        return status;
    stream_buffer_consume(f->in, FRAME_HEAD);
    uint8_t *bytes = stream_buffer_start(f->in);
    for (uint32_t i = 0; i < n; i++) {
        bytes[i] ^= 0x5a;
        sum = sum * 31 + bytes[i];
    }
    if (load_be32(bytes + n) != sum)
        return stream_fail(&f->stream, STREAM_REASON_AUTH);
    f->plain = n;
    f->ended = n == 0;
    if (!n) {
        stream_buffer_consume(f->in, FRAME_TAIL);
        in_done(f);
    }
    return STREAM_OK;
}

static enum stream_status frame_read(struct stream *stream, void *to, size_t size, unsigned flags, size_t *got)
{
    struct frame *f = of(stream);
    *got = 0;
    if (!f->said_hello)
        shake(f);
    while (*got < size) {
        if (!f->plain) {
            if (f->ended)
                return STREAM_END;
            enum stream_status status = open_record(f);
            if (status != STREAM_OK)
                return status;
            continue;
        }
        size_t n = MIN(size - *got, f->plain);
        memcpy((uint8_t *)to + *got, stream_buffer_start(f->in), n);
        stream_buffer_consume(f->in, n);
        *got += n;
        f->plain -= (uint32_t)n;
        if (!f->plain) {
            stream_buffer_consume(f->in, FRAME_TAIL);
            in_done(f);
            if (flags & STREAM_ONE_UNIT)
                return STREAM_OK; /* what follows may not be ours */
        }
    }
    return STREAM_OK;
}

static enum stream_status frame_write(struct stream *stream, const struct iovec *from, unsigned count, unsigned flags,
                                      size_t *accepted)
{
    struct frame *f = of(stream);
    size_t offered = 0;
    *accepted = 0;
    for (unsigned i = 0; i < count; i++)
        offered += from[i].iov_len;
    enum stream_status status = f->heard_hello && f->said_hello ? flush(f) : shake(f);
    if (status == STREAM_OK && !offered)
        return f->below->ops->write(f->below, NULL, 0, flags, accepted);
    while (status == STREAM_OK && *accepted < offered) {
        size_t n = MIN(offered - *accepted, (size_t)RECORD);
        status = seal(f, from, count, *accepted, n);
        if (status != STREAM_OK)
            break;
        *accepted += n;
        status = flush(f);
    }
    return status;
}

static size_t frame_room(struct stream *stream)
{
    struct frame *f = of(stream);
    if (!f->heard_hello) {
        shake(f);
        return 0;
    }
    return f->out ? 0 : f->below->ops->room(f->below);
}

static enum stream_status frame_finish(struct stream *stream)
{
    struct frame *f = of(stream);
    enum stream_status status = f->heard_hello ? flush(f) : shake(f);
    if (status == STREAM_OK && !f->finished) {
        status = seal(f, NULL, 0, 0, 0);
        if (status != STREAM_OK)
            return status;
        f->finished = true;
        status = flush(f);
    }
    return status == STREAM_OK ? f->below->ops->finish(f->below) : status;
}

static void frame_abort(struct stream *stream, unsigned directions, enum stream_reason reason)
{
    of(stream)->below->ops->abort(of(stream)->below, directions, reason);
}

static void frame_wait(struct stream *stream, unsigned directions, struct stream_waiter *waiter)
{
    struct frame *f = of(stream);
    if (directions & STREAM_WRITE)
        f->writer = waiter;
    f->below->ops->wait(f->below, directions, waiter);
}

static enum stream_status frame_detach(struct stream *stream, unsigned direction, struct stream_left *left)
{
    struct frame *f = of(stream);
    *left = (struct stream_left){.fd = -1, .below = f->below};
    if (direction == STREAM_WRITE) {
        enum stream_status status = flush(f);
        if (status != STREAM_OK)
            return status;
    } else if (f->in) {
        if (f->plain) { /* the opened part and what follows its record become neighbours */
            uint8_t *plain = stream_buffer_start(f->in);
            uint32_t raw = f->in->size - f->plain - FRAME_TAIL;
            memmove(plain + f->plain, plain + f->plain + FRAME_TAIL, raw);
            f->in->size = f->plain + raw;
            left->plain = f->plain;
        }
        left->bytes = f->in;
        f->in = NULL;
        f->plain = 0;
    }
    f->detached |= (uint8_t)direction;
    if (f->detached == (STREAM_READ | STREAM_WRITE)) {
        left->owned = f->below;
        f->below = NULL;
    }
    return STREAM_OK;
}

static uint64_t frame_next(const struct stream *stream)
{
    const struct frame *f = (const struct frame *)(const void *)stream;
    return f->below->ops->next(f->below);
}

static void frame_tick(struct stream *stream, uint64_t now)
{
    of(stream)->below->ops->tick(of(stream)->below, now);
}

static void frame_close(struct stream *stream)
{
    struct frame *f = of(stream);
    stream_give_all(stream->host, f->in);
    stream_give_all(stream->host, f->out);
    if (f->below)
        f->below->ops->close(f->below);
    stream->host->unmake(stream->host, f);
}

static const struct stream_ops frame_ops = {
    "frame",    frame_read,   frame_write,      frame_room, frame_finish, frame_abort,
    frame_wait, frame_detach, stream_no_splice, frame_next, frame_tick,   frame_close,
};

struct stream *toy_frame(struct stream *below)
{
    struct frame *f = below->host->make(below->host, sizeof *f);
    f->stream = (struct stream){&frame_ops, below->host, RECORD, below->can & STREAM_HALF_CLOSE, 0};
    f->below = below;
    return &f->stream;
}
