/* Frames: type (1) | stream (2) | length (2) | payload. The connection owns the stream below; streams hang on it. */
#include "tests/flow/toy.h"
#include "wire/bytes.h"

enum { MUX_OPEN = 1, MUX_DATA, MUX_FIN, MUX_RESET, MUX_STOP, MUX_CREDIT, MUX_HEAD = 5, WINDOW = 16384, BUFFER = 4000 };
/* Frames that a stream wants sent, in this order. */
enum { WANT_OPEN = 1, WANT_CREDIT = 2, WANT_FIN = 4, WANT_RESET = 8, WANT_STOP = 16 };

struct toy_mux {
    struct stream_host *host;
    struct stream *below;
    struct stream_waiter waiter;
    struct mux_stream *streams;
    struct stream_buffer *in, *out;
    struct mux_stream *stalled; /* its queue is full: reading has stopped */
    uint64_t stalled_until, patience;
    void (*opened)(void *context, struct stream *stream, unsigned id);
    void *context;
    unsigned resets;
    size_t peak;
    bool windows, dead, stuck; /* stuck: the stream below has refused to write */
};

struct mux_stream {
    struct stream stream;
    struct toy_mux *mux;
    struct mux_stream *next;
    struct stream_waiter *reader, *writer;
    struct stream_buffer *queue, **queue_end;
    size_t queued;
    uint32_t credit;               /* windows: bytes that we may send */
    uint32_t promised, to_promise; /* windows: reserved for what the peer may send; read, and not promised again */
    uint16_t id;
    uint8_t want;
    bool peer_fin, peer_reset, peer_stop, finished, aborted, closed, slow, refused;
};

static struct mux_stream *of(struct stream *stream)
{
    return (struct mux_stream *)(void *)stream;
}

static void queue_drop(struct mux_stream *s)
{
    stream_give_all(s->stream.host, s->queue);
    s->queue = NULL;
    s->queue_end = &s->queue;
    s->queued = 0;
}

static void stream_gone(struct toy_mux *mux, struct mux_stream *s)
{
    struct mux_stream **at = &mux->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (mux->stalled == s)
        mux->stalled = NULL;
    queue_drop(s);
    mux->host->release(mux->host, s->promised);
    mux->host->unmake(mux->host, s);
}

static struct mux_stream *stream_new(struct toy_mux *mux, unsigned id, const struct stream_ops *ops)
{
    struct mux_stream *s = mux->host->make(mux->host, sizeof *s), **end = &mux->streams;
    s->stream = (struct stream){ops, mux->host, 1, mux->windows ? STREAM_HALF_CLOSE : 0, 0};
    s->mux = mux;
    s->id = (uint16_t)id;
    s->queue_end = &s->queue;
    if (mux->windows) {
        s->to_promise = WINDOW;
        s->want = WANT_CREDIT;
    }
    while (*end)
        end = &(*end)->next;
    *end = s;
    return s;
}

static void dies(struct toy_mux *mux)
{
    mux->dead = true;
    for (struct mux_stream *s = mux->streams, *next; s; s = next) {
        next = s->next;
        stream_wake(mux->host, s->reader, STREAM_READ);
        stream_wake(mux->host, s->writer, STREAM_WRITE);
        if (s->closed)
            stream_gone(mux, s);
    }
}

/* --- out --- */

static enum stream_status flush(struct toy_mux *mux)
{
    if (mux->dead)
        return STREAM_ERROR;
    if (!mux->out && mux->stuck) { /* the layer below holds something */
        size_t none;
        enum stream_status status = mux->below->ops->write(mux->below, NULL, 0, 0, &none);
        mux->stuck = status == STREAM_AGAIN || status == STREAM_STARVED;
        if (status == STREAM_ERROR)
            dies(mux);
        if (status != STREAM_OK)
            return status;
    }
    while (mux->out) {
        struct iovec v = {stream_buffer_start(mux->out), mux->out->size};
        size_t accepted;
        enum stream_status status = mux->below->ops->write(mux->below, &v, 1, STREAM_FLUSH, &accepted);
        stream_buffer_consume(mux->out, accepted);
        if (!mux->out->size) {
            mux->host->give(mux->host, mux->out);
            mux->out = NULL;
        }
        mux->stuck = status == STREAM_AGAIN || status == STREAM_STARVED;
        if (status == STREAM_STARVED)
            stream_starve(mux->host, &mux->waiter);
        if (status == STREAM_ERROR)
            dies(mux);
        if (status != STREAM_OK)
            return status;
    }
    return STREAM_OK;
}

static void put(struct toy_mux *mux, unsigned type, unsigned id, const void *payload, size_t n)
{
    uint8_t *to = mux->out->bytes + mux->out->size;
    to[0] = (uint8_t)type;
    store_be16(to + 1, (uint16_t)id);
    store_be16(to + 3, (uint16_t)n);
    if (n)
        memcpy(to + MUX_HEAD, payload, n);
    mux->out->size += (uint32_t)(MUX_HEAD + n);
}

static bool out_buffer(struct toy_mux *mux)
{
    if (!mux->out && !(mux->out = mux->host->take(mux->host, BUFFER, STREAM_OUTPUT)))
        stream_starve(mux->host, &mux->waiter);
    return mux->out != NULL;
}

/* The control frames that this stream wants, into a buffer that has nothing in it but such frames. */
static bool put_wanted(struct toy_mux *mux, struct mux_stream *s)
{
    uint8_t bytes[4];
    if (!s->want)
        return true;
    if (!out_buffer(mux) || mux->out->size > BUFFER - 64)
        return false;
    if (s->want & WANT_OPEN)
        put(mux, MUX_OPEN, s->id, NULL, 0);
    s->want &= (uint8_t)~WANT_OPEN;
    if (s->want & WANT_CREDIT) {
        /* A promise is made only of what the budget has. */
        uint32_t some = s->to_promise;
        bool granted = mux->host->reserve(mux->host, some);
        if (!granted) {
            some = MIN(some, 2048u);
            granted = mux->host->reserve(mux->host, some);
        }
        if (granted) {
            store_be32(bytes, some);
            put(mux, MUX_CREDIT, s->id, bytes, 4);
            s->promised += some;
            s->to_promise -= some;
            s->want &= (uint8_t)~WANT_CREDIT;
        } else {
            stream_starve(mux->host, &mux->waiter);
        }
    }
    if (s->want & WANT_FIN)
        put(mux, MUX_FIN, s->id, NULL, 0);
    if (s->want & WANT_RESET)
        put(mux, MUX_RESET, s->id, NULL, 0);
    if (s->want & WANT_STOP)
        put(mux, MUX_STOP, s->id, NULL, 0);
    s->want &= WANT_CREDIT;
    if (mux->out && !mux->out->size) {
        mux->host->give(mux->host, mux->out);
        mux->out = NULL;
    }
    return true;
}

static void pump_out(struct toy_mux *mux)
{
    if (flush(mux) != STREAM_OK)
        return;
    bool all = true;
    for (struct mux_stream *s = mux->streams, *next; s; s = next) {
        next = s->next;
        all = put_wanted(mux, s) && all;
        if (s->closed && !(s->want & ~WANT_CREDIT))
            stream_gone(mux, s);
    }
    if (flush(mux) != STREAM_OK)
        return;
    if (!all)
        stream_wake(mux->host, &mux->waiter, STREAM_WRITE);
    for (struct mux_stream *s = mux->streams; s; s = s->next)
        if (s->refused && (!mux->windows || s->credit)) {
            s->refused = false;
            stream_wake(mux->host, s->writer, STREAM_WRITE);
        }
}

/* --- in --- */

static struct mux_stream *find(struct toy_mux *mux, unsigned id)
{
    for (struct mux_stream *s = mux->streams; s; s = s->next)
        if (s->id == id)
            return s;
    return NULL;
}

/* False: the frame has to wait (memory, or a full queue). */
static bool queue_put(struct toy_mux *mux, struct mux_stream *s, const uint8_t *bytes, size_t n)
{
    if (!mux->windows && s->queued >= TOY_MUX_BOUND) {
        if (mux->stalled != s)
            mux->stalled_until = mux->host->now + mux->patience;
        mux->stalled = s;
        return false;
    }
    struct stream_buffer *tail =
        s->queue ? (struct stream_buffer *)(void *)((char *)s->queue_end - offsetof(struct stream_buffer, next)) : NULL;
    if (!tail || tail->capacity - tail->start - tail->size < n) {
        if (mux->windows) { /* what was promised becomes a lease */
            uint32_t part = (uint32_t)MIN(n, (size_t)s->promised);
            mux->host->release(mux->host, part);
            s->promised -= part;
        }
        tail = mux->host->take(mux->host, BUFFER, STREAM_UNIT);
        if (!tail) {
            stream_starve(mux->host, &mux->waiter);
            return false;
        }
        *s->queue_end = tail;
        s->queue_end = &tail->next;
    } else if (mux->windows) {
        uint32_t part = (uint32_t)MIN(n, (size_t)s->promised);
        mux->host->release(mux->host, part);
        s->promised -= part;
    }
    memcpy(stream_buffer_start(tail) + tail->size, bytes, n);
    tail->size += (uint32_t)n;
    s->queued += n;
    mux->peak = MAX(mux->peak, s->queued);
    stream_wake(mux->host, s->reader, STREAM_READ);
    return true;
}

static const struct stream_ops mux_ops;

static bool frame_in(struct toy_mux *mux, unsigned type, unsigned id, const uint8_t *payload, size_t n)
{
    struct mux_stream *s = find(mux, id);
    if (type == MUX_OPEN && !s) {
        s = stream_new(mux, id, &mux_ops);
        stream_wake(mux->host, &mux->waiter, STREAM_WRITE); /* its first credit */
        mux->opened(mux->context, &s->stream, id);
    } else if (s && type == MUX_DATA && !s->slow && !s->closed) {
        return queue_put(mux, s, payload, n);
    } else if (s && type == MUX_FIN) {
        s->peer_fin = true;
        stream_wake(mux->host, s->reader, STREAM_READ);
        if (!mux->windows)
            stream_wake(mux->host, s->writer, STREAM_WRITE);
    } else if (s && type == MUX_RESET) {
        s->peer_reset = true;
        queue_drop(s);
        stream_wake(mux->host, s->reader, STREAM_READ);
        stream_wake(mux->host, s->writer, STREAM_WRITE);
    } else if (s && type == MUX_STOP) {
        s->peer_stop = true;
        stream_wake(mux->host, s->writer, STREAM_WRITE);
    } else if (s && type == MUX_CREDIT && n == 4) {
        s->credit += load_be32(payload);
        if (s->refused)
            stream_wake(mux->host, s->writer, STREAM_WRITE);
        s->refused = false;
    }
    return true;
}

static void pump_in(struct toy_mux *mux)
{
    for (unsigned turns = 0; turns < 64 && !mux->dead; turns++) {
        if (!mux->in && !(mux->in = mux->host->take(mux->host, BUFFER, STREAM_UNIT))) {
            stream_starve(mux->host, &mux->waiter);
            return;
        }
        while (mux->in->size >= MUX_HEAD) {
            uint8_t *f = stream_buffer_start(mux->in);
            size_t n = load_be16(f + 3);
            if (mux->in->size < MUX_HEAD + n)
                break;
            if (!frame_in(mux, f[0], load_be16(f + 1), f + MUX_HEAD, n))
                return; /* stays in `in`, and nothing is read */
            stream_buffer_consume(mux->in, MUX_HEAD + n);
        }
        mux->stalled = NULL;
        memmove(mux->in->bytes, stream_buffer_start(mux->in), mux->in->size);
        mux->in->start = 0;
        size_t got;
        enum stream_status status = mux->below->ops->read(mux->below, mux->in->bytes + mux->in->size,
                                                          mux->in->capacity - mux->in->size, 0, &got);
        mux->in->size += (uint32_t)got;
        if (!mux->in->size) {
            mux->host->give(mux->host, mux->in);
            mux->in = NULL;
        }
        if (status == STREAM_END || status == STREAM_ERROR)
            dies(mux);
        if (status == STREAM_STARVED)
            stream_starve(mux->host, &mux->waiter);
        if (status != STREAM_OK && !got)
            return;
    }
    stream_wake(mux->host, &mux->waiter, STREAM_READ);
}

static void mux_ready(struct stream_waiter *waiter, unsigned events)
{
    struct toy_mux *mux = (struct toy_mux *)(void *)((char *)waiter - offsetof(struct toy_mux, waiter));
    if (mux->dead)
        return;
    if (events & STREAM_WRITE)
        mux->stuck = true;
    pump_in(mux);
    if (!mux->dead)
        pump_out(mux);
}

/* --- a stream --- */

static enum stream_status mux_read(struct stream *stream, void *to, size_t size, unsigned flags, size_t *got)
{
    struct mux_stream *s = of(stream);
    *got = 0;
    while (s->queue && *got < size) {
        struct stream_buffer *b = s->queue;
        size_t n = MIN(size - *got, b->size);
        memcpy((uint8_t *)to + *got, stream_buffer_start(b), n);
        stream_buffer_consume(b, n);
        *got += n;
        if (!b->size) {
            s->queue = b->next;
            if (!s->queue)
                s->queue_end = &s->queue;
            stream->host->give(stream->host, b);
        }
    }
    s->queued -= *got;
    if (*got && s->mux->windows && !s->mux->dead) {
        s->to_promise += (uint32_t)*got;
        if (s->to_promise >= WINDOW / 4 && !s->peer_fin) {
            s->want |= WANT_CREDIT;
            stream_wake(stream->host, &s->mux->waiter, 0);
        }
    }
    if (s->mux->stalled == s && s->queued < TOY_MUX_BOUND / 2)
        stream_wake(stream->host, &s->mux->waiter, STREAM_READ);
    if (s->queue)
        return STREAM_OK;
    if (s->slow)
        return stream_fail(stream, STREAM_REASON_SLOW);
    if (s->peer_reset)
        return stream_fail(stream, STREAM_REASON_RESET);
    if (s->peer_fin)
        return STREAM_END;
    return s->mux->dead ? stream_fail(stream, STREAM_REASON_TRUNCATED) : STREAM_AGAIN;
}

static enum stream_status mux_write(struct stream *stream, const struct iovec *from, unsigned count, unsigned flags,
                                    size_t *accepted)
{
    struct mux_stream *s = of(stream);
    struct toy_mux *mux = s->mux;
    size_t skip = 0;
    *accepted = 0;
    for (;;) {
        if (mux->dead || s->slow || s->peer_reset || s->peer_stop || s->finished || (s->peer_fin && !mux->windows))
            return stream_fail(stream, s->slow ? STREAM_REASON_SLOW : STREAM_REASON_RESET);
        while (count && skip == from->iov_len)
            from++, count--, skip = 0;
        if (!count && !(flags & STREAM_FLUSH && s->want & WANT_OPEN))
            return STREAM_OK;
        enum stream_status status = mux->out || mux->stuck ? flush(mux) : STREAM_OK;
        if (status == STREAM_OK && !put_wanted(mux, s))
            status = STREAM_STARVED;
        size_t n = count ? MIN(from->iov_len - skip, (size_t)TOY_MUX_FRAME) : 0;
        if (mux->windows)
            n = MIN(n, (size_t)s->credit);
        if (status == STREAM_OK && n && out_buffer(mux)) {
            put(mux, MUX_DATA, s->id, (const uint8_t *)from->iov_base + skip, n);
            s->credit -= mux->windows ? (uint32_t)n : 0;
            skip += n;
            *accepted += n;
        }
        if (status == STREAM_OK)
            status = flush(mux);
        if (status == STREAM_ERROR)
            continue; /* dead now */
        if (status != STREAM_OK || (count && !n)) {
            /* To the end of the list: the others come first when there is room again. */
            struct mux_stream **at = &mux->streams;
            while (*at != s)
                at = &(*at)->next;
            *at = s->next;
            while (*at)
                at = &(*at)->next;
            *at = s;
            s->next = NULL;
            s->refused = true;
            return STREAM_AGAIN;
        }
        if (!count)
            return STREAM_OK;
    }
}

static size_t mux_room(struct stream *stream)
{
    struct mux_stream *s = of(stream);
    if (s->mux->dead || s->peer_reset || s->peer_stop || s->slow || (s->peer_fin && !s->mux->windows))
        return SIZE_MAX; /* the write will say */
    if (s->mux->out || s->mux->stuck || (s->mux->windows && !s->credit)) {
        s->refused = true;
        if (s->want)
            stream_wake(stream->host, &s->mux->waiter, STREAM_WRITE);
        return 0;
    }
    return s->mux->windows ? s->credit : SIZE_MAX;
}

static enum stream_status mux_finish(struct stream *stream)
{
    struct mux_stream *s = of(stream);
    if (s->peer_fin && !s->mux->windows)
        s->finished = true; /* it has ended both directions: no answer */
    if (!s->finished)
        s->want |= WANT_FIN;
    s->finished = true;
    stream_wake(stream->host, &s->mux->waiter, STREAM_WRITE); /* it sends the FIN, also after close() */
    return STREAM_OK;
}

static void mux_abort(struct stream *stream, unsigned directions, enum stream_reason reason)
{
    struct mux_stream *s = of(stream);
    if (directions == STREAM_READ && !s->mux->windows)
        return; /* not to be said alone */
    s->want &= (uint8_t)~WANT_FIN;
    s->want |= (uint8_t)((directions & STREAM_WRITE ? WANT_RESET : 0) |
                         (directions & STREAM_READ && s->mux->windows ? WANT_STOP : 0));
    s->aborted |= (directions & STREAM_WRITE) != 0;
    stream_wake(stream->host, &s->mux->waiter, STREAM_WRITE);
}

static void mux_wait(struct stream *stream, unsigned directions, struct stream_waiter *waiter)
{
    struct mux_stream *s = of(stream);
    if (directions & STREAM_READ)
        s->reader = waiter;
    if (directions & STREAM_WRITE)
        s->writer = waiter;
}

static enum stream_status mux_detach(struct stream *stream, unsigned direction, struct stream_left *left)
{
    *left = (struct stream_left){.fd = -1};
    return stream_fail(stream, STREAM_REASON_LOCAL);
}

static uint64_t mux_next(const struct stream *stream)
{
    return UINT64_MAX; /* the connection has its own timer */
}

static void mux_tick(struct stream *stream, uint64_t now)
{
}

static void mux_close(struct stream *stream)
{
    struct mux_stream *s = of(stream);
    if (!s->finished && !s->aborted && !(s->peer_fin && !s->mux->windows))
        s->want |= WANT_RESET;
    queue_drop(s);
    s->reader = s->writer = NULL;
    s->closed = true;
    if (s->mux->dead)
        stream_gone(s->mux, s);
    else
        stream_wake(s->mux->host, &s->mux->waiter, STREAM_WRITE);
}

static const struct stream_ops mux_ops = {
    "mux stream", mux_read,   mux_write,        mux_room, mux_finish, mux_abort,
    mux_wait,     mux_detach, stream_no_splice, mux_next, mux_tick,   mux_close,
};

/* --- the connection --- */

struct toy_mux *toy_mux_new(struct stream *below, bool windows, uint64_t patience_ns)
{
    struct toy_mux *mux = below->host->make(below->host, sizeof *mux);
    mux->host = below->host;
    mux->below = below;
    mux->windows = windows;
    mux->patience = patience_ns;
    mux->waiter.ready = mux_ready;
    below->ops->wait(below, STREAM_READ | STREAM_WRITE, &mux->waiter);
    stream_wake(mux->host, &mux->waiter, STREAM_READ | STREAM_WRITE);
    return mux;
}

void toy_mux_on_open(struct toy_mux *mux, void (*opened)(void *, struct stream *, unsigned), void *context)
{
    mux->opened = opened;
    mux->context = context;
}

struct stream *toy_mux_dial(struct toy_mux *mux, unsigned id)
{
    struct mux_stream *s = stream_new(mux, id, &mux_ops);
    s->want |= WANT_OPEN;
    return &s->stream;
}

/* Only with others open is there a limit to the patience. */
uint64_t toy_mux_next(const struct toy_mux *mux)
{
    return mux->stalled && mux->streams && mux->streams->next && !mux->dead ? mux->stalled_until : UINT64_MAX;
}

void toy_mux_tick(struct toy_mux *mux, uint64_t now)
{
    struct mux_stream *s = mux->stalled;
    if (toy_mux_next(mux) > now)
        return;
    mux->stalled = NULL;
    mux->resets++;
    s->slow = true;
    s->aborted = true;
    s->want |= WANT_RESET;
    queue_drop(s);
    stream_wake(mux->host, s->reader, STREAM_READ);
    stream_wake(mux->host, s->writer, STREAM_WRITE);
    stream_wake(mux->host, &mux->waiter, STREAM_READ | STREAM_WRITE);
}

unsigned toy_mux_resets(const struct toy_mux *mux)
{
    return mux->resets;
}

size_t toy_mux_peak(const struct toy_mux *mux)
{
    return mux->peak;
}

void toy_mux_close(struct toy_mux *mux)
{
    while (mux->streams)
        stream_gone(mux, mux->streams);
    stream_cancel(&mux->waiter);
    stream_give_all(mux->host, mux->in);
    stream_give_all(mux->host, mux->out);
    mux->below->ops->close(mux->below);
    mux->host->unmake(mux->host, mux);
}
