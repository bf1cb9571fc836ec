/* The relay: two streams, bytes both ways. Written once; whatever the streams are, it knows them by wire/stream.h
 * only.
 *
 * Theory of operation
 *
 * A relay is two ways, each with its own waiter, woken by reading of one stream and writing of the other. A way
 * pushes what it holds, and pulls more only when it holds nothing and the far side takes bytes: so a blocked far
 * side stops the reading, and a way holds at most what one pull brought (`depth` buffers), and nothing while it is
 * idle. A pull reads into leased buffers, whole units of the far side where it has units, and one write takes all of
 * them. Where both ends of a way are bare descriptors it splices, through the worker's pipe; only if the far side is
 * blocked with bytes in the pipe does the way keep it. After `quantum` bytes a way goes to the end of the list. A
 * few bytes left in a large buffer move to a small one when the far side blocks.
 *
 *   OPEN      reads and writes
 *   DRAINING  the source has ended: what is held is written, then the far side finished
 *   HELD      nothing left, but finishing would end the other way too (no half-close): waits until that way's source has ended,
 *             or has been silent for held_ns: else two relays in a row, each with an end to tell, would wait for each other
 *   DISCARD   the far side takes no more, though its own bytes may still come: the source is read and dropped, so that
 *             closing it does not destroy (by RST) what it has not yet received; at most linger_ns after the other way is done
 *   DONE
 *
 * A read error ends the relay: both streams are aborted with its reason. A write error ends its way (DISCARD); the
 * other delivers what is left. Without half-close, the end of what such a stream sends is also the end of what it
 * takes.
 *
 * STREAM_SWITCH replaces a way's stream by the one below, in the middle of whatever it holds; that is all that a
 * relay knows of Vision or REALITY. The timer is the earliest of idle, linger, first payload's deadline and what the
 * layers ask for.
 *
 * An idle relay of two sockets: its own struct and two fdstreams, under 600 bytes together, and no buffer. */
#ifndef FV_FLOW_RELAY_H
#define FV_FLOW_RELAY_H

#include "flow/streams.h"

enum relay_state { RELAY_OPEN, RELAY_DRAINING, RELAY_HELD, RELAY_DISCARD, RELAY_DONE, RELAY_STATES };
extern const char *const relay_state_names[RELAY_STATES];

enum { RELAY_READ = 65536, RELAY_IOV = 16 };

struct relay;

struct relay_config {
    uint64_t idle_ns;       /* without a byte either way; 0: none */
    uint64_t linger_ns;     /* see DISCARD */
    uint64_t held_ns;       /* see HELD: without a byte of the other way; 0: for as long as it takes */
    uint64_t first_wait_ns; /* how long b's header waits for a's first bytes; 0: not at all */
    uint32_t quantum;       /* bytes a way and turn */
    uint32_t depth;         /* buffers of one pull, 1..RELAY_IOV */
    void (*ended)(
        struct relay *relay); /* the streams are closed, reason is set; the relay is freed after it; may be NULL */
};

struct relay_way {
    struct stream_waiter waiter;
    struct stream *from, *to;
    struct stream_buffer *held, **held_end;
    struct pipe *pipe;  /* with bytes in it */
    uint64_t moved;     /* bytes written */
    uint8_t state;      /* enum relay_state */
    bool quiet;         /* `from` has nothing: woken by STREAM_READ */
    bool blocked;       /* `to` takes nothing: woken by STREAM_WRITE */
    bool push, flush;   /* write even without bytes */
    bool no_hold;       /* has been HELD for long enough */
};

struct relay {
    struct relay_way way[2];   /* 0: a to b, 1: b to a */
    struct stream *top[2];     /* a, b: what is owned; a way may have left it for one below */
    struct streams *streams;
    const struct relay_config *config;
    void *owner;
    struct timer timer;        /* WAKE_STREAM_TIMER: relay_timer */
    uint64_t active;           /* monotonic ns of the last byte */
    uint64_t first_until, linger_until; /* monotonic ns; 0: not waited for */
    uint8_t reason;            /* enum stream_reason */
    bool failed;
};

/* Takes over both streams and the prefixes (bytes already read from each; chains, may be NULL). b is the one that was
 * dialled. NULL: no memory, and the streams are closed. */
struct relay *relay_start(struct streams *streams, const struct relay_config *config, void *owner, struct stream *a,
                          struct stream *b, struct stream_buffer *prefix_a, struct stream_buffer *prefix_b);
/* Ends it from outside: both streams are aborted; `ended` is called from here. */
void relay_cancel(struct relay *relay, enum stream_reason reason);
/* The switch's, for WAKE_STREAM_TIMER. */
void relay_timer(struct relay *relay);

#endif
