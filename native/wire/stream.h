/* The stream interface: what every byte stream of the engine is, from a TCP socket to VLESS over WebSocket over TLS.
 *
 * A layer is a `struct stream` with one const table of functions, every one present. It sits on the stream below it
 * and looks to whoever is above like any other stream; a descriptor (io/fdstream) is the lowest, a relay
 * (flow/relay) sits on top of two and moves bytes between them. A stream of a mux or of QUIC has no layer below: it
 * hangs on its connection. No layer makes a system call, reads a clock or allocates: time, buffers and memory come
 * from the `stream_host` that it is given at construction, so the folders tls/, quic/ and proxy/ include this header
 * and remain drivable by a test alone.
 *
 * Theory of operation
 *
 * Calls go down, events go up, and they never meet. Whoever is above owns a stream, is the only one to call it, and
 * frees it with close(), which frees the whole stack below it. Nothing below ever calls what is above: it puts the
 * owner's `stream_waiter` on the host's ready list (stream_wake), and the host runs the list from the top of the
 * worker's turn. So no event recurses, whatever the depth; a stream is never called after it was freed, because only
 * its owner calls it; and an owner is never called after it was freed, because freeing it takes its waiter off the
 * list (stream_cancel). A layer that has one layer below passes wait() on, so that the descriptor's event goes
 * straight to the relay: a layer costs nothing when an event passes it; one that refuses for reasons of its own (a
 * handshake) also keeps the waiter, to wake it itself. What shares one stream among many (mux, QUIC connection) is
 * itself the owner of the shared one, has its own waiter and wakes the waiters of the streams that it has something
 * for.
 *
 * A status says what the next call would get; refusal arms. read() and write() give bytes and a status together, so
 * that nobody asks twice to learn "nothing more". STREAM_AGAIN (also: room() of 0) obliges the stream to wake the
 * waiter of that direction once, when asking again may help. Nobody who was not refused is woken for certain, wake-
 * ups for nothing are allowed, and not calling read() at all is how a reader holds back: there is no interest to
 * set. So neither level nor edge: one wake-up for each refusal. (The descriptor below is level-triggered and takes
 * its interest out of epoll only when it is woken for somebody who did not ask.) STREAM_STARVED: memory is wanting;
 * the caller queues with stream_starve and is woken when there is some.
 *
 * write() accepts a prefix of what it is offered, maybe nothing. What was accepted is the stream's: it is sent or
 * the stream fails. A layer that makes units (TLS records, AEAD chunks, frames) accepts whole plaintext units only,
 * seals them into a buffer of its own, and hands that below with one write; what the stream below did not take stays
 * with the layer, at most one buffer of it, and until it is gone the layer accepts nothing more. So partial
 * acceptance below never tears a unit, and nothing is sealed twice. Small writes are not held back: a short unit is
 * sealed when that is all there is, and who reads tries to read whole `unit`s. With count 0, write() pushes on what
 * is stuck and says, for certain, whether more would be taken; the owner does so when it is woken for writing even
 * if it has nothing to write. All calls take as many bytes as there are: none is made for each byte.
 *
 * Dialling. A stream is usable from the moment it is constructed; room() is 0 until bytes can be taken. A header
 * (SOCKS request, VLESS, Shadowsocks address) waits for company: it rides in the same unit as the first bytes
 * written. Where the server speaks first no such bytes come: STREAM_FLUSH in write() means "do not wait any longer",
 * and whoever dials sends it after its deadline, at once where nothing needs sniffing. STREAM_EARLY says that bytes
 * are taken before the far side has answered (0-RTT, WebSocket early data, fast open), so room() is not 0 from the
 * start.
 *
 * Bytes already read by somebody else (sniffing, fallback, a redirected hello) are a chain of `stream_buffer`s, the
 * prefix: the relay takes one for each side, and a layer's constructor takes one where the layer has an input
 * buffer. It is bounded by who collected it.
 *
 * Ends. STREAM_END from read(): the peer has finished its direction in the way of its protocol. finish() is ours:
 * AGAIN until all that was accepted has been handed below, then OK. STREAM_HALF_CLOSE says that the two directions
 * end apart; without it finish() ends both, so it is called only when the other direction has ended, and END from
 * read() means that writing is over too. STREAM_ERROR from any call: `reason` says why, and it stays. A write error
 * says nothing about reading: what the peer sent before it refused more (QUIC's STOP_SENDING, a server that answers
 * and closes) is still delivered. abort() ends directions with a reason, without delivering: TCP sends RST (both
 * directions; one alone is remembered), QUIC RESET_STREAM and STOP_SENDING, TLS an alert and what is below, a mux
 * its FIN. An end without the protocol's own mark is STREAM_REASON_TRUNCATED, never END.
 *
 * Detach: a layer leaves one direction of the stack. Either the layer says so (STREAM_SWITCH from read() or write():
 * nothing of mine remains to be done in this direction) or the one above decides (Vision takes TLS away; REALITY
 * hands a stranger's bytes to the target). detach(direction) gives back what is left of reading: the plaintext
 * already opened and not yet read, then the bytes not yet opened, as one buffer chain, with the length of the first
 * part; and `below`, the stream to use in this direction from now on. For writing it is AGAIN until all sealed bytes
 * are gone. It composes because what comes back is a stream again: Vision detaches TLS and gets TCP, parses the
 * plaintext left, puts the raw bytes in front, and at its own SWITCH hands the relay TCP with what is left; a relay
 * that has bytes of its own in flight appends what is left behind them. Who may detach what it reads from says
 * STREAM_ONE_UNIT to read(): bytes behind the unit in hand may not be the layer's, and must not be opened, before
 * the unit has been looked at. After the second direction `owned` is the stream that now belongs to the caller and
 * the layer is an empty shell to be close()d; until then the layer goes on owning what is below and the caller only
 * borrows it. The lowest stream gives its descriptor instead. `can` is a property of a stream, read again by looking
 * at the stream that one has now.
 *
 * Splice. STREAM_SPLICE_READ / _WRITE: this direction is bare bytes on a descriptor, and splice() moves them from or
 * to a pipe, with the same statuses. Only the lowest streams have it; a stack gets it by detaching down to them.
 *
 * Time. next() is when tick() wants to be called at the latest (padding that waits for company, handshake latency, a
 * ping), UINT64_MAX for never; a layer answers with the earlier of its own and the one below. The owner asks after
 * each turn in which it called the stream. A shared connection has its own timer with its owner in flow/. Timeouts
 * of a whole connection (dial, idle) are the owner's.
 *
 * Memory. A buffer is held only while bytes are in it. Input is taken when bytes are there to be read; STREAM_OUTPUT
 * may draw on a reserve that input may not, so that what was read can always be sealed and the budget cannot lock
 * itself up: after sealing the plaintext's buffer goes back, the reserve is refilled. Reading is the credit: a
 * stream with windows (QUIC) takes its promise from the budget (reserve) before it advertises it, gives it back when
 * the bytes have been read, and promises nothing when there is nothing to lease; promises stop at half of the
 * budget, so that they cannot keep the bytes themselves from being read, and for many streams it is the connection's
 * window that is reserved; its sent and unacknowledged bytes count in the same way. A mux without windows can only
 * stop the whole connection, drop a stream, or grow: it keeps a bound for each stream, and when one is full it stops
 * reading. While that stream is the only one open, that is plain backpressure and lasts as long as it must. With
 * others open it lasts for a short patience, and then the slow stream is reset (STREAM_REASON_SLOW) and its bytes
 * are discarded: one peer that does not read may cost itself its stream, but not the others theirs, and nothing
 * grows.
 *
 * Workers. A stream lives and dies on the worker whose loop has its descriptor; it does not move. accept() decides
 * (SO_REUSEPORT spreads); a dial is made on the worker of the inbound side; a mux or QUIC stream lives where its
 * connection lives, so a pool of sessions is a worker's own, and the other side of such a stream is dialled there. */
#ifndef FV_WIRE_STREAM_H
#define FV_WIRE_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h> /* struct iovec, the type only */

enum stream_status {
    STREAM_OK,      /* go on: a further call may do more */
    STREAM_AGAIN,   /* nothing more now; the waiter will be woken */
    STREAM_STARVED, /* no buffer to be had; stream_starve, then again */
    STREAM_SWITCH,  /* the layer is done with this direction: detach it, go on with the one below */
    STREAM_END,     /* read: the peer has finished */
    STREAM_ERROR,   /* for good, with the stream's reason */
    STREAM_STATUSES
};

enum stream_reason {
    STREAM_REASON_NONE,
    STREAM_REASON_RESET,       /* the peer has reset it */
    STREAM_REASON_TRUNCATED,   /* it ended without the protocol's end */
    STREAM_REASON_PROTOCOL,    /* the peer broke the protocol */
    STREAM_REASON_AUTH,        /* the peer is not who it must be */
    STREAM_REASON_REFUSED,     /* nobody listens there, or the far side says so */
    STREAM_REASON_UNREACHABLE, /* no way there */
    STREAM_REASON_TIMEOUT,     /* idle or unanswered for too long */
    STREAM_REASON_SLOW,        /* would have stopped others on its connection */
    STREAM_REASON_CANCELLED,   /* our side no longer wants it: stop, reload, rule */
    STREAM_REASON_LOCAL,       /* a fault of this machine: memory, descriptors */
    STREAM_REASONS
};

enum { STREAM_READ = 1, STREAM_WRITE = 2 }; /* directions, and the events of a waiter */
enum { STREAM_MEMORY = 4 };                 /* event: there may be memory again */

/* What a stream can do now (`can`). */
enum {
    STREAM_HALF_CLOSE = 1,    /* finish() leaves reading open */
    STREAM_EARLY = 2,         /* takes bytes before the far side has answered */
    STREAM_BOUNDARIES = 4,    /* one write is one read at the far side */
    STREAM_SPLICE_READ = 8,
    STREAM_SPLICE_WRITE = 16,
};

enum { STREAM_FLUSH = 1 };    /* write(): what waits for company goes now */
enum { STREAM_ONE_UNIT = 1 }; /* read(): open nothing beyond the unit that gives the first byte */

struct stream;
struct stream_host;

/* Embedded in what owns a stream. Zeroed except `ready` before use. */
struct stream_waiter {
    void (*ready)(struct stream_waiter *waiter, unsigned events);
    struct stream_waiter *next, *prev; /* on a list of the host; NULL: on none */
    uint8_t events;
    bool starved; /* on the list of those who want memory */
};

/* A leased buffer: this head, then `capacity` bytes, of which [start, start + size) are filled. */
struct stream_buffer {
    struct stream_buffer *next;
    uint32_t start, size, capacity;
    uint32_t lease; /* the host's */
    uint8_t bytes[];
};

enum stream_purpose {
    STREAM_INPUT,  /* to read into: may be smaller than asked for when memory is short */
    STREAM_UNIT,   /* to put a unit together: the size asked for or NULL */
    STREAM_OUTPUT, /* for sealed bytes: likewise, and may use the reserve */
};

/* What a worker gives to its streams; flow/streams fills it in, or a test. */
struct stream_host {
    struct stream_buffer *(*take)(struct stream_host *host, size_t size,
                                  enum stream_purpose purpose); /* NULL: starved */
    void (*give)(struct stream_host *host, struct stream_buffer *buffer); /* one, not a chain */
    bool (*reserve)(struct stream_host *host, size_t bytes); /* of the budget, for what is promised; false: none left */
    void (*release)(struct stream_host *host, size_t bytes);
    void *(*make)(struct stream_host *host, size_t size); /* zeroed state of a layer, at construction; NULL: none */
    void (*unmake)(struct stream_host *host, void *state);
    uint64_t now; /* monotonic ns of this turn */
    struct stream_waiter ready, starving; /* heads of circular lists */
};

struct stream_left {
    struct stream_buffer *bytes; /* reading: plaintext, then bytes not yet opened; the caller gives them back */
    size_t plain; /* how many of them are plaintext */
    struct stream *below; /* goes on in this direction; NULL at the lowest */
    struct stream *owned; /* after the second direction: now the caller's */
    int fd; /* of the lowest after the second direction, now the caller's; otherwise -1 */
};

struct stream_ops {
    const char *name;
    /* Up to size bytes (> 0); *got is always set. Bytes may come with any status. */
    enum stream_status (*read)(struct stream *stream, void *to, size_t size, unsigned flags, size_t *got);
    /* *accepted is always set. OK only if everything was accepted and nothing of it is stuck. */
    enum stream_status (*write)(struct stream *stream, const struct iovec *from, unsigned count, unsigned flags,
                                size_t *accepted);
    /* Bytes worth reading for it now; SIZE_MAX: not known, try. 0 counts as AGAIN. */
    size_t (*room)(struct stream *stream);
    enum stream_status (*finish)(struct stream *stream);
    void (*abort)(struct stream *stream, unsigned directions, enum stream_reason reason);
    void (*wait)(struct stream *stream, unsigned directions, struct stream_waiter *waiter);
    /* direction: STREAM_READ or STREAM_WRITE. OK, AGAIN (writing), or ERROR: there is nothing below. */
    enum stream_status (*detach)(struct stream *stream, unsigned direction, struct stream_left *left);
    /* STREAM_READ: into the pipe's end; STREAM_WRITE: out of it. */
    enum stream_status (*splice)(struct stream *stream, unsigned direction, int pipe, size_t size, size_t *moved);
    uint64_t (*next)(const struct stream *stream);
    void (*tick)(struct stream *stream, uint64_t now);
    void (*close)(
        struct stream *stream); /* frees it and all below; unfinished: as abort() has been told, else plainly */
};

struct stream {
    const struct stream_ops *ops;
    struct stream_host *host;
    uint32_t unit; /* payload bytes of a full unit that it writes; 1: has none */
    uint8_t can; /* STREAM_HALF_CLOSE ... */
    uint8_t reason; /* enum stream_reason, once a call gave ERROR */
};

/* --- the host's lists --- */

static inline void stream_list_init(struct stream_waiter *head)
{
    head->next = head->prev = head;
}

static inline void stream_list_take(struct stream_waiter *waiter)
{
    waiter->prev->next = waiter->next;
    waiter->next->prev = waiter->prev;
    waiter->next = waiter->prev = NULL;
}

static inline void stream_list_put(struct stream_waiter *head, struct stream_waiter *waiter)
{
    waiter->prev = head->prev;
    waiter->next = head;
    head->prev->next = waiter;
    head->prev = waiter;
}

/* Something may be done: `ready` runs later, never from here. NULL is nobody. */
static inline void stream_wake(struct stream_host *host, struct stream_waiter *waiter, unsigned events)
{
    if (!waiter)
        return;
    waiter->events |= (uint8_t)events;
    if (waiter->next && !waiter->starved)
        return;
    if (waiter->next)
        stream_list_take(waiter);
    waiter->starved = false;
    stream_list_put(&host->ready, waiter);
}

/* The owner of the waiter wants memory: woken with STREAM_MEMORY when some may be had, in the order of asking. */
static inline void stream_starve(struct stream_host *host, struct stream_waiter *waiter)
{
    if (waiter->next)
        return;
    waiter->starved = true;
    stream_list_put(&host->starving, waiter);
}

/* Before the owner goes away. */
static inline void stream_cancel(struct stream_waiter *waiter)
{
    if (waiter->next)
        stream_list_take(waiter);
    waiter->events = 0;
    waiter->starved = false;
}

/* --- for layers --- */

static inline uint8_t *stream_buffer_start(struct stream_buffer *buffer)
{
    return buffer->bytes + buffer->start;
}

static inline void stream_buffer_consume(struct stream_buffer *buffer, size_t n)
{
    buffer->start += (uint32_t)n;
    buffer->size -= (uint32_t)n;
}

static inline void stream_give_all(struct stream_host *host, struct stream_buffer *chain)
{
    while (chain) {
        struct stream_buffer *next = chain->next;
        host->give(host, chain);
        chain = next;
    }
}

static inline enum stream_status stream_fail(struct stream *stream, enum stream_reason reason)
{
    if (!stream->reason)
        stream->reason = (uint8_t)reason;
    return STREAM_ERROR;
}

/* splice() of all but the lowest. */
static inline enum stream_status stream_no_splice(struct stream *stream, unsigned direction, int pipe, size_t size,
                                                  size_t *moved)
{
    *moved = 0;
    return stream_fail(stream, STREAM_REASON_LOCAL);
}

#endif
