/* The event loop of one worker: epoll for descriptors, one binary heap for timers.
 *
 * Whatever can wake a worker is a `struct wake` (a descriptor) or a `struct timer`, embedded in the object that it
 * belongs to, and carries a kind; the one switch over all kinds is fvd.c's. The loop itself calls nobody: loop_wait
 * returns what happened. Everything here belongs to its worker's thread. */
#ifndef FV_IO_LOOP_H
#define FV_IO_LOOP_H

#include <stdbool.h>
#include <stdint.h>

/* All that can wake a worker, descriptors and timers alike. */
enum wake_kind {
    WAKE_NONE,
    WAKE_SIGNAL,          /* signalfd: TERM, INT, HUP, CHLD */
    WAKE_MESSAGE,         /* eventfd: another worker has put a message into this one's queue */
    WAKE_CONTROL_LISTEN,  /* the engine's own control socket */
    WAKE_CONTROL,         /* a connection to it */
    WAKE_TUN,             /* a queue of a TUN device */
    WAKE_WG_SOCKET,       /* a WireGuard device's UDP socket */
    WAKE_WG_TIMER,        /* a WireGuard device's next deadline */
    WAKE_NETLINK,         /* link, address or route changes */
    WAKE_RESOLVER,        /* an answer of a name server */
    WAKE_RESOLVER_TIMER,  /* the resolver's next deadline */
    WAKE_NAMES_TIMER,     /* a host name that could not be resolved is due again */
    WAKE_INOTIFY,         /* a watched socket file was deleted */
    WAKE_HOUSEKEEPING,    /* slow timer: returning memory, NAT expiry, reclaiming */
    WAKE_STREAM,          /* one descriptor of a relayed stream */
    WAKE_STREAM_TIMER,    /* a relay's next deadline */
    WAKE_STREAM_MEMORY,   /* streams want memory: ask again */
    WAKE_KINDS
};
extern const char *const wake_kind_names[WAKE_KINDS];

enum { WAKE_READ = 1, WAKE_WRITE = 2, WAKE_HANGUP = 4 };

struct wake {
    int fd;
    uint8_t kind;     /* enum wake_kind */
    uint8_t interest; /* WAKE_READ | WAKE_WRITE as registered */
    uint8_t events;   /* what the last wait found; cleared by loop_remove so that a dead object is not called */
};

struct timer {
    uint64_t at;   /* monotonic ns; meaningful while armed */
    uint32_t slot; /* 1 + place in the heap; 0: not armed */
    uint8_t kind;  /* enum wake_kind */
};

enum { LOOP_EVENTS = 64 };

struct loop {
    int epoll_fd;
    bool no_pwait2;         /* before Linux 5.11: milliseconds, rounded up */
    uint64_t now;           /* monotonic ns, read after each wait */
    struct timer **heap;
    uint32_t heap_used, heap_size;
    struct wake *ready[LOOP_EVENTS]; /* of the current turn; loop_remove clears its entry */
    uint32_t ready_count;
};

/* 0 or -errno. */
int loop_init(struct loop *loop);
void loop_free(struct loop *loop);

/* Registers wake->fd (level-triggered); 0 or -errno. */
int loop_add(struct loop *loop, struct wake *wake, enum wake_kind kind, int fd, unsigned interest);
/* Changes the interest; nothing is called when it is the same. */
int loop_interest(struct loop *loop, struct wake *wake, unsigned interest);
/* Takes it out (does not close); also out of the turn under way. Harmless when it was not in. */
void loop_remove(struct loop *loop, struct wake *wake);

void timer_arm(struct loop *loop, struct timer *timer, enum wake_kind kind, uint64_t at);
void timer_cancel(struct loop *loop, struct timer *timer);
static inline bool timer_armed(const struct timer *timer)
{
    return timer->slot != 0;
}

/* Waits for descriptors until the first timer is due, at most until `latest` (monotonic ns; 0: does not wait at all,
 * UINT64_MAX: without bound). Afterwards loop->now is fresh and ready[0..ready_count) holds what is ready, events set;
 * entries may have become NULL by the time they are looked at. -errno only on a broken loop. */
int loop_wait(struct loop *loop, uint64_t latest);
/* The next timer that is due at loop->now, disarmed; NULL when none is. */
struct timer *loop_expired(struct loop *loop);

#endif
