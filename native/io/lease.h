/* Payload buffers, leased: taken when bytes are there, given back when they are written.
 *
 * One budget a process bounds what all pools together have out. A pool belongs to a worker; each class is one range of
 * reserved address space cut into equal buffers, page-aligned so that given-back memory can return to the kernel. What
 * was given back last is taken first (it is warm in the caches). lease_quiet, called after 10 ms without traffic, returns
 * all but a small warm set. A NULL from lease_take is ordinary: the caller stops reading (streams) or drops by name
 * (datagrams). A buffer may be given back by another worker's thread: lease_give_remote. */
#ifndef FV_IO_LEASE_H
#define FV_IO_LEASE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum lease_class { LEASE_SMALL, LEASE_RECORD, LEASE_LARGE, LEASE_CLASSES };

enum {
    LEASE_SMALL_SIZE = 4096,            /* headers, handshakes, control */
    LEASE_RECORD_SIZE = 16384 + 4096,   /* a TLS record with room for framing before and behind */
    LEASE_LARGE_SIZE = 65536 + 4096,    /* a super-packet or a datagram batch, likewise */
    LEASE_WARM = 4                      /* buffers a class that lease_quiet leaves resident */
};
extern const uint32_t lease_sizes[LEASE_CLASSES];

struct lease_budget {
    size_t limit;        /* bytes */
    atomic_size_t taken; /* out of all pools now, and pipe memory: lease_budget_take */
};

struct lease_range {
    uint8_t *base;       /* start of the reserved address space */
    uint32_t count;      /* buffers in it */
    uint32_t fresh;      /* buffers [fresh, count) were never taken */
    uint32_t *free_list; /* stack of given-back buffers' numbers */
    uint32_t free_count;
    uint32_t resident;   /* free_list[free_count - resident ..] still hold memory */
    uint32_t out;
};

struct lease_pool {
    struct lease_budget *budget;
    struct lease_range ranges[LEASE_CLASSES];
    size_t page;            /* bytes; 4 KiB mostly, 16 KiB or 64 KiB on some ARM64 kernels */
    _Atomic(void *) remote; /* stack of buffers given back by other threads, linked through their first bytes */
};

/* 0 or -ENOMEM. Reserves address space for the whole budget in every class, touches none of it. */
int lease_pool_init(struct lease_pool *pool, struct lease_budget *budget);
void lease_pool_free(struct lease_pool *pool);

/* NULL: the budget is used up. */
void *lease_take(struct lease_pool *pool, enum lease_class class);
/* For what waits for others and not for its turn: only while less than `limit` bytes are out of all pools, so that what
 * waits never takes the memory by which the waiting ends. */
void *lease_take_within(struct lease_pool *pool, enum lease_class class, size_t limit);
void lease_give(struct lease_pool *pool, void *buffer);
/* From any other thread than the pool's. */
void lease_give_remote(struct lease_pool *pool, void *buffer);
/* The smallest class that holds n bytes; LEASE_CLASSES when none does. */
enum lease_class lease_class_for(size_t n);
size_t lease_size(const struct lease_pool *pool, const void *buffer);

/* Memory that is not a buffer of a pool but counts (pipes, sent data of QUIC); 0 or -ENOBUFS. */
int lease_budget_take(struct lease_budget *budget, size_t bytes);
void lease_budget_give(struct lease_budget *budget, size_t bytes);

/* Returns resident free buffers beyond the warm set to the kernel; how many bytes went back. */
size_t lease_quiet(struct lease_pool *pool);

#endif
