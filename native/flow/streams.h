/* The worker's side of the stream interface: buffers out of its leases, the list of what is ready, the pipe to
 * splice with.
 *
 * Buffers. A `stream_buffer` is a lease with its head in front. Input gets what it asks for while less than half of
 * the budget is out, a record's worth up to seven eighths, then 4 KiB: as memory gets short everybody reads less at
 * a time, and who holds bytes that the far side does not take does not read at all, so reading stops first where
 * most is buffered.
 *
 * Nobody may wait for ever for memory that is held for his sake (two relays of this process in a row: the first
 * holds all that there is for a connection that the second cannot read for want of it). So each worker sets a
 * reserve aside at its start: records for output, so that what was read can always be sealed (the plaintext's buffer
 * that goes back afterwards fills the reserve up); a record to put a unit together in; and one small buffer to
 * trickle through: a way that gets nothing else asks its far side whether it is writable and then moves 1 KiB, which
 * a writable socket takes whole, so the buffer comes back at once. What is short of everything becomes slow, not
 * still.
 *
 * Memory that comes back in this worker wakes who starves at the end of the turn; memory that another worker gives
 * back is found by a timer of STREAMS_STARVE_NS, which runs only while somebody starves.
 *
 * Fairness. streams_turn() runs what is ready in at most STREAMS_ROUNDS rounds; whoever has more to do than its
 * quantum has put itself at the end of the list. */
#ifndef FV_FLOW_STREAMS_H
#define FV_FLOW_STREAMS_H

#include "io/pipe.h"
#include "io/worker.h"
#include "wire/stream.h"

enum {
    STREAMS_RESERVE_OUTPUT = 2,
    STREAMS_RESERVE_UNIT = 1,
    STREAMS_TRICKLE = 1024,
    STREAMS_ROUNDS = 4,
    STREAMS_WAKE = 64,           /* starving waiters woken in one turn */
    STREAMS_STARVE_NS = 1000000, /* 1 ms */
    STREAMS_PIPE_MAX = 1 << 20,  /* bytes; at most 1/16 of the budget, at least 64 KiB */
};

struct streams_counters {
    uint64_t relays, copied, spliced; /* relays ended; bytes */
    uint64_t starved;                 /* how often memory was wanting */
    uint64_t pipes_private;           /* how often the far side was blocked with bytes in the pipe */
    uint64_t reset_slow;              /* streams of muxes given up */
};

struct streams {
    struct stream_host host;
    struct worker *worker;
    void *output[STREAMS_RESERVE_OUTPUT], *unit[STREAMS_RESERVE_UNIT], *trickle; /* the reserve */
    unsigned outputs, units;
    struct pipe *pipe; /* spare; NULL: none now */
    size_t pipe_size;
    struct timer starving; /* WAKE_STREAM_MEMORY: streams_timer */
    bool given;            /* memory came back in this turn */
    unsigned out;          /* buffers */
    unsigned made;         /* states of layers */
    struct streams_counters counters;
};

/* 0 or -ENOMEM: the budget does not even hold the reserve. */
int streams_init(struct streams *streams, struct worker *worker);
void streams_free(struct streams *streams);

/* Each turn, after the loop's events and timers; sets worker->again when there is more to do. */
void streams_turn(struct streams *streams);
/* Whoever starves asks again: the switch calls it for &streams->starving. */
void streams_timer(struct streams *streams);
/* After 10 ms of quiet: the spare pipe goes back. */
void streams_quiet(struct streams *streams);

/* The worker's pipe, empty; NULL: less than half of the budget left, or no descriptor. It is the caller's until it is given back; what
 * is given back with bytes in it is closed. */
struct pipe *streams_pipe_take(struct streams *streams);
void streams_pipe_give(struct streams *streams, struct pipe *pipe);

/* Gives back a buffer that nothing came into: nobody is woken for it, else two who starve would wake each other for ever. */
void streams_unused(struct streams *streams, struct stream_buffer *buffer);

/* The buffer to trickle through; NULL: in use. */
struct stream_buffer *streams_trickle(struct streams *streams);

/* Bytes of the budget that are not out. */
size_t streams_spare(const struct streams *streams);

#endif
