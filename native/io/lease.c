#include "io/lease.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define LEASE_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LEASE_POISON 1
#endif
#endif
#ifdef LEASE_POISON
#include <sanitizer/asan_interface.h>
#define poison(p, n) __asan_poison_memory_region((p), (n))
#define unpoison(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define poison(p, n) ((void)0)
#define unpoison(p, n) ((void)0)
#endif

const uint32_t lease_sizes[LEASE_CLASSES] = {LEASE_SMALL_SIZE, LEASE_RECORD_SIZE, LEASE_LARGE_SIZE};

static void drain_remote(struct lease_pool *pool);

int lease_pool_init(struct lease_pool *pool, struct lease_budget *budget)
{
    memset(pool, 0, sizeof *pool);
    pool->budget = budget;
    pool->page = (size_t)sysconf(_SC_PAGESIZE);
    for (int c = 0; c < LEASE_CLASSES; c++) {
        struct lease_range *range = &pool->ranges[c];
        range->count = (uint32_t)(budget->limit / lease_sizes[c]);
        if (!range->count)
            continue;
        void *base = mmap(NULL, (size_t)range->count * lease_sizes[c], PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        range->free_list = calloc(range->count, sizeof *range->free_list);
        if (base == MAP_FAILED || !range->free_list) {
            if (base != MAP_FAILED)
                munmap(base, (size_t)range->count * lease_sizes[c]);
            range->base = NULL;
            lease_pool_free(pool);
            return -ENOMEM;
        }
        range->base = base;
        poison(range->base, (size_t)range->count * lease_sizes[c]);
    }
    return 0;
}

void lease_pool_free(struct lease_pool *pool)
{
    drain_remote(pool);
    for (int c = 0; c < LEASE_CLASSES; c++) {
        struct lease_range *range = &pool->ranges[c];
        if (range->base) {
            unpoison(range->base, (size_t)range->count * lease_sizes[c]);
            munmap(range->base, (size_t)range->count * lease_sizes[c]);
            lease_budget_give(pool->budget, (size_t)range->out * lease_sizes[c]);
        }
        free(range->free_list);
    }
    memset(pool, 0, sizeof *pool);
}

int lease_budget_take(struct lease_budget *budget, size_t bytes)
{
    size_t before = atomic_fetch_add_explicit(&budget->taken, bytes, memory_order_relaxed);
    if (before + bytes <= budget->limit)
        return 0;
    atomic_fetch_sub_explicit(&budget->taken, bytes, memory_order_relaxed);
    return -ENOBUFS;
}

void lease_budget_give(struct lease_budget *budget, size_t bytes)
{
    atomic_fetch_sub_explicit(&budget->taken, bytes, memory_order_relaxed);
}

static struct lease_range *range_of(const struct lease_pool *pool, const void *buffer, int *class)
{
    const uint8_t *p = buffer;
    for (int c = 0; c < LEASE_CLASSES; c++) {
        const struct lease_range *range = &pool->ranges[c];
        if (range->base && p >= range->base && p < range->base + (size_t)range->count * lease_sizes[c]) {
            *class = c;
            return (struct lease_range *)(uintptr_t)range;
        }
    }
    abort(); /* not a lease of this pool: memory would be corrupted silently */
}

/* Back into its range; the budget is another matter. */
static void put_back(struct lease_pool *pool, void *buffer)
{
    int class;
    struct lease_range *range = range_of(pool, buffer, &class);
    range->free_list[range->free_count++] = (uint32_t)(((uint8_t *)buffer - range->base) / lease_sizes[class]);
    range->resident++;
    range->out--;
    poison(buffer, lease_sizes[class]);
}

static void drain_remote(struct lease_pool *pool)
{
    void *buffer = atomic_exchange_explicit(&pool->remote, NULL, memory_order_acquire);
    while (buffer) {
        void *next;
        memcpy(&next, buffer, sizeof next);
        put_back(pool, buffer);
        buffer = next;
    }
}

void *lease_take(struct lease_pool *pool, enum lease_class class)
{
    struct lease_range *range = &pool->ranges[class];
    if (atomic_load_explicit(&pool->remote, memory_order_relaxed))
        drain_remote(pool);
    uint32_t number;
    if (!range->free_count && range->fresh == range->count)
        return NULL;
    if (lease_budget_take(pool->budget, lease_sizes[class]))
        return NULL;
    if (range->free_count) {
        number = range->free_list[--range->free_count];
        if (range->resident)
            range->resident--;
    } else {
        number = range->fresh++;
    }
    range->out++;
    void *buffer = range->base + (size_t)number * lease_sizes[class];
    unpoison(buffer, lease_sizes[class]);
    return buffer;
}

void *lease_take_within(struct lease_pool *pool, enum lease_class class, size_t limit)
{
    size_t taken = atomic_load_explicit(&pool->budget->taken, memory_order_relaxed);
    return taken + lease_sizes[class] <= limit ? lease_take(pool, class) : NULL;
}

void lease_give(struct lease_pool *pool, void *buffer)
{
    uint32_t size = (uint32_t)lease_size(pool, buffer);
    put_back(pool, buffer);
    lease_budget_give(pool->budget, size);
}

void lease_give_remote(struct lease_pool *pool, void *buffer)
{
    /* The budget has it back at once: the pool's worker may sleep for long before it looks, and others wait. */
    uint32_t size = (uint32_t)lease_size(pool, buffer);
    void *head = atomic_load_explicit(&pool->remote, memory_order_relaxed);
    do {
        memcpy(buffer, &head, sizeof head);
    } while (!atomic_compare_exchange_weak_explicit(&pool->remote, &head, buffer, memory_order_release,
                                                    memory_order_relaxed));
    lease_budget_give(pool->budget, size);
}

enum lease_class lease_class_for(size_t n)
{
    enum lease_class class = LEASE_SMALL;
    while (class < LEASE_CLASSES && lease_sizes[class] < n)
        class++;
    return class;
}

size_t lease_size(const struct lease_pool *pool, const void *buffer)
{
    int class;
    range_of(pool, buffer, &class);
    return lease_sizes[class];
}

/* Gives the pages that lie wholly in a free buffer to the kernel; how many bytes. A buffer need not begin where a page does:
 * where pages are larger than 4 KiB, its neighbours keep the ones that they share with it. */
static size_t pages_give(const struct lease_pool *pool, uint8_t *buffer, size_t size)
{
    size_t skip = -(uintptr_t)buffer & (pool->page - 1);
    size_t whole = size > skip ? (size - skip) & ~(pool->page - 1) : 0;
    if (whole)
        madvise(buffer + skip, whole, MADV_DONTNEED);
    return whole;
}

size_t lease_quiet(struct lease_pool *pool)
{
    size_t returned = 0;
    if (atomic_load_explicit(&pool->remote, memory_order_relaxed))
        drain_remote(pool);
    for (int c = 0; c < LEASE_CLASSES; c++) {
        struct lease_range *range = &pool->ranges[c];
        /* The resident ones are on top of the stack; the warm set is its top. */
        while (range->resident > LEASE_WARM) {
            uint32_t number = range->free_list[range->free_count - range->resident];
            returned += pages_give(pool, range->base + (size_t)number * lease_sizes[c], lease_sizes[c]);
            range->resident--;
        }
    }
    return returned;
}
