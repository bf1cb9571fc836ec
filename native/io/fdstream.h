/* The lowest stream: a connected (or connecting) TCP or unix socket, or one end of a pipe or socketpair.
 *
 * Level-triggered epoll below, one wake-up for each refusal above: a read that finds nothing, or less than it asked
 * for, puts WAKE_READ into the interest; it stays there while the reader keeps up, and is taken out only when the
 * descriptor is ready and nobody waits, so a stream in steady flow makes no epoll_ctl calls. A hung-up descriptor,
 * which epoll would report for ever, is taken out of the loop: no call on it can be refused any more. */
#ifndef FV_IO_FDSTREAM_H
#define FV_IO_FDSTREAM_H

#include "io/loop.h"
#include "wire/stream.h"

struct fdstream {
    struct stream stream;
    struct wake wake; /* WAKE_STREAM: fdstream_ready */
    struct loop *loop;
    struct stream_waiter *reader, *writer;
    bool connecting;
    bool dead; /* connecting failed; the reason is the stream's */
    bool broken; /* reset: no end is a plain end any more */
    bool read_wanted, write_wanted; /* refused, to be woken */
    bool hung_up;
    bool not_socket;
    uint8_t aborted;  /* directions given up with a reason: both, and close() resets */
    uint8_t detached; /* directions */
};

/* Takes the descriptor over (non-blocking); connecting: connect() said EINPROGRESS. NULL: no memory or epoll refuses it,
 * and the descriptor is closed. */
struct stream *fdstream_open(struct stream_host *host, struct loop *loop, int fd, bool connecting);
/* The switch's: what the wait found is in fdstream->wake.events. */
void fdstream_ready(struct fdstream *fdstream);

#endif
