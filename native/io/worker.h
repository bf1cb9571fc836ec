/* A worker: one thread with its own loop, leases and inbox. It owns what it touches; what belongs to another worker is
 * reached by a message, and what concerns all of them (a new configuration, statistics, freeing what others may hold)
 * is done by worker 0 while the others stand still (workers_pause): rare, and no lock on the way of a packet. */
#ifndef FV_IO_WORKER_H
#define FV_IO_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/lease.h"
#include "io/loop.h"

enum { WORKERS_MAX = 16, INBOX_SIZE = 512 };

struct worker;

/* What one worker asks of another: run(worker, message) on the other's thread. */
struct message {
    void (*run)(struct worker *worker, const struct message *message);
    void *a, *b, *c;
    uint64_t n, m;
};

/* One per pair of workers: single producer, single consumer. */
struct inbox {
    _Alignas(64) atomic_uint head; /* next to read; written by the receiver */
    _Alignas(64) atomic_uint tail; /* next to write; written by the sender */
    struct message slots[INBOX_SIZE];
};

/* How much moves: what decides whether a wake-up waits for company. */
struct worker_rate {
    uint64_t window_start;  /* monotonic ns */
    size_t window_bytes, turn_bytes;
    unsigned window_packets, turn_packets;
    bool dense;             /* the last window's */
};

struct worker {
    unsigned index;
    struct workers *all;
    struct loop loop;
    struct lease_pool leases;
    struct timer housekeeping;
    struct wake inbox_wake;        /* an eventfd */
    struct inbox *inboxes;         /* [number of workers], by sender; NULL with one worker */
    bool again;                    /* there is work left: the next wait does not sleep */
    bool moved;                    /* bytes moved in this turn: leases stay warm */
    struct worker_rate rate;
    uint64_t quiet_since;          /* monotonic ns of the last turn that moved something */
    void *scratch;                 /* flow/'s: what a turn needs and no turn keeps */
    pthread_t thread;
    atomic_uint posted;            /* an eventfd write is on its way */
};

struct workers {
    unsigned count;
    struct worker *worker; /* [count]; worker 0 runs on the main thread */
    struct lease_budget budget;
    atomic_bool stop;
    atomic_uint pause_wanted; /* generation: odd while worker 0 wants the others to stand still */
    atomic_uint paused;       /* how many do */
    unsigned pause_depth;     /* worker 0's: pauses may nest */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool running; /* threads are started */
};

/* 0 or -errno. */
int workers_init(struct workers *all, unsigned count, size_t memory);
/* Starts threads 1..count-1 with run(worker) as their whole life; 0 or -errno. cpus: which to pin worker i to, or NULL. */
int workers_start(struct workers *all, void (*run)(struct worker *worker), const int *cpus);
/* Pins the calling thread; 0 or -errno. */
int worker_pin(int cpu);
/* Tells all to stop and joins the threads; worker 0 calls it after its own loop has ended. */
void workers_stop(struct workers *all);
void workers_free(struct workers *all);

/* Counts what a turn has moved; packets are what the kernel handed over at once, joined or not. */
static inline void worker_moved(struct worker *worker, size_t bytes, unsigned packets)
{
    worker->moved = true;
    worker->rate.turn_bytes += bytes;
    worker->rate.turn_packets += packets;
}
/* At the end of a turn. Under a dense stream (a gigabit, or 64,000 packets a second) a worker that keeps up would be woken
 * for every packet: after a small turn it sleeps for 200 us, so that the next one finds a batch. A lone packet, and a
 * conversation of single packets however quick, is never held back. */
void worker_gather(struct worker *worker);

/* From worker `from`'s thread to `to`'s. False: the inbox is full (the caller drops by name or keeps). */
bool worker_post(struct worker *from, struct worker *to, const struct message *message);
/* Runs what has come; called by the switch on WAKE_MESSAGE. */
void worker_receive(struct worker *worker);

/* Worker 0 only: the others stand still, between two turns of theirs, from one call to the other. May be nested. */
void workers_pause(struct workers *all);
void workers_resume(struct workers *all);
/* The others call it once a turn; it returns when they may go on. True: the worker has stood still. */
bool worker_rest(struct worker *worker);

#endif
