#include "io/lease.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/check.h"

enum { MIB = 1 << 20 };

static size_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long size = 0, rss = 0;
    if (!f || fscanf(f, "%lu %lu", &size, &rss) != 2)
        rss = 0;
    if (f)
        fclose(f);
    return rss * (size_t)sysconf(_SC_PAGESIZE);
}

/* The budget is one over all classes and pools. */
static void test_budget(void)
{
    struct lease_budget budget = {.limit = MIB};
    struct lease_pool a, b;
    void *taken[512];
    unsigned n = 0;
    CHECK_EQ(lease_pool_init(&a, &budget), 0);
    CHECK_EQ(lease_pool_init(&b, &budget), 0);
    CHECK_EQ(lease_budget_take(&budget, MIB / 2), 0);
    CHECK_EQ(lease_budget_take(&budget, MIB), -ENOBUFS);
    while ((taken[n] = lease_take(n % 2 ? &a : &b, LEASE_SMALL)) != NULL)
        n++;
    CHECK_EQ(n, MIB / 2 / LEASE_SMALL_SIZE);
    CHECK(lease_take(&a, LEASE_LARGE) == NULL);
    lease_budget_give(&budget, MIB / 2);
    void *large = lease_take(&a, LEASE_LARGE);
    CHECK(large != NULL);
    CHECK_EQ(lease_size(&a, large), LEASE_LARGE_SIZE);
    lease_give(&a, large);
    while (n)
        n--, lease_give(n % 2 ? &a : &b, taken[n]);
    CHECK_EQ(atomic_load(&budget.taken), 0);
    lease_pool_free(&a);
    lease_pool_free(&b);
}

/* What waits gets what its limit leaves, and never what is beyond it. */
static void test_within(void)
{
    struct lease_budget budget = {.limit = MIB};
    struct lease_pool pool;
    void *taken[512];
    unsigned n = 0;
    CHECK_EQ(lease_pool_init(&pool, &budget), 0);
    while ((taken[n] = lease_take_within(&pool, LEASE_SMALL, MIB / 2)) != NULL)
        n++;
    CHECK_EQ(n, MIB / 2 / LEASE_SMALL_SIZE);
    CHECK(lease_take_within(&pool, LEASE_LARGE, MIB / 2) == NULL);
    void *large = lease_take(&pool, LEASE_LARGE);
    CHECK(large != NULL);
    lease_give(&pool, taken[--n]);
    CHECK(lease_take_within(&pool, LEASE_SMALL, MIB / 2) == NULL);
    lease_give(&pool, large);
    CHECK((taken[n] = lease_take_within(&pool, LEASE_SMALL, MIB / 2)) != NULL);
    n++;
    while (n)
        lease_give(&pool, taken[--n]);
    CHECK_EQ(atomic_load(&budget.taken), 0);
    lease_pool_free(&pool);
}

static void test_classes(void)
{
    CHECK_EQ(lease_class_for(1), LEASE_SMALL);
    CHECK_EQ(lease_class_for(LEASE_SMALL_SIZE), LEASE_SMALL);
    CHECK_EQ(lease_class_for(LEASE_SMALL_SIZE + 1), LEASE_RECORD);
    CHECK_EQ(lease_class_for(65545), LEASE_LARGE);
    CHECK_EQ(lease_class_for(LEASE_LARGE_SIZE + 1), LEASE_CLASSES);
}

/* Pages larger than the grain of the buffers: what is given back leaves the neighbours' bytes alone. */
static void test_large_pages(void)
{
    enum { COUNT = 64, PAGE = 65536 };
    struct lease_budget budget = {.limit = 16 * MIB};
    struct lease_pool pool;
    uint8_t *taken[COUNT];
    CHECK_EQ(lease_pool_init(&pool, &budget), 0);
    pool.page = PAGE;
    for (int i = 0; i < COUNT; i++) {
        taken[i] = lease_take(&pool, LEASE_LARGE);
        memset(taken[i], i + 1, LEASE_LARGE_SIZE);
    }
    for (int i = 0; i < COUNT; i += 2)
        lease_give(&pool, taken[i]);
    size_t returned = lease_quiet(&pool);
    CHECK(returned > 0 && returned % PAGE == 0 && returned <= (COUNT / 2 - LEASE_WARM) * (size_t)LEASE_LARGE_SIZE);
    for (int i = 1; i < COUNT; i += 2) {
        uint8_t expected[LEASE_LARGE_SIZE];
        memset(expected, i + 1, sizeof expected);
        CHECK_MEM(taken[i], expected, sizeof expected);
        lease_give(&pool, taken[i]);
    }
    lease_pool_free(&pool);
}

/* What was given back last is taken first; quiet returns all but the warm set to the kernel. */
static void test_quiet(void)
{
    enum { COUNT = 100 };
    struct lease_budget budget = {.limit = 16 * MIB};
    struct lease_pool pool;
    void *taken[COUNT];
    CHECK_EQ(lease_pool_init(&pool, &budget), 0);
    size_t before = resident();
    for (int i = 0; i < COUNT; i++) {
        taken[i] = lease_take(&pool, LEASE_LARGE);
        memset(taken[i], 1, LEASE_LARGE_SIZE);
    }
    for (int i = 0; i < COUNT; i++)
        lease_give(&pool, taken[i]);
    void *again = lease_take(&pool, LEASE_LARGE);
    CHECK(again == taken[COUNT - 1]);
    lease_give(&pool, again);
    CHECK_EQ(lease_quiet(&pool), (COUNT - LEASE_WARM) * (size_t)LEASE_LARGE_SIZE);
    CHECK_EQ(lease_quiet(&pool), 0);
#if !defined(__SANITIZE_ADDRESS__)
    CHECK(resident() < before + 2 * MIB);
#else
    (void)before;
#endif
    /* A buffer that went back to the kernel is usable again. */
    for (int i = 0; i < COUNT; i++) {
        taken[i] = lease_take(&pool, LEASE_LARGE);
        CHECK(taken[i] != NULL);
        memset(taken[i], 2, LEASE_LARGE_SIZE);
    }
    for (int i = 0; i < COUNT; i++)
        lease_give(&pool, taken[i]);
    lease_pool_free(&pool);
}

static struct lease_pool remote_pool;

static void *give_all(void *argument)
{
    void **taken = argument;
    for (int i = 0; i < 64; i++)
        lease_give_remote(&remote_pool, taken[i]);
    return NULL;
}

static void test_remote(void)
{
    struct lease_budget budget = {.limit = MIB};
    void *taken[2][64];
    pthread_t threads[2];
    CHECK_EQ(lease_pool_init(&remote_pool, &budget), 0);
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < 64; i++)
            taken[t][i] = lease_take(&remote_pool, LEASE_SMALL);
    for (int t = 0; t < 2; t++)
        pthread_create(&threads[t], NULL, give_all, taken[t]);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    CHECK_EQ(atomic_load(&budget.taken), 0); /* at once: this pool's worker may not look for long */
    lease_quiet(&remote_pool);
    CHECK_EQ(atomic_load(&budget.taken), 0);
    unsigned n = 0;
    while (lease_take(&remote_pool, LEASE_SMALL))
        n++;
    CHECK_EQ(n, MIB / LEASE_SMALL_SIZE);
    lease_pool_free(&remote_pool);
}

int main(void)
{
    test_budget();
    test_within();
    test_classes();
    test_quiet();
    test_large_pages();
    test_remote();
    return check_done();
}
