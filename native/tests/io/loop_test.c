#include "io/loop.h"

#include <unistd.h>

#include "io/clock.h"
#include "tests/check.h"

/* Timers come out in order of time, whatever order they were armed, moved and cancelled in. */
static void test_timers(void)
{
    enum { COUNT = 500 };
    struct loop loop;
    static struct timer timers[COUNT];
    uint32_t random = 1;
    CHECK_EQ(loop_init(&loop), 0);
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < COUNT; i++) {
            random = random * 1664525 + 1013904223;
            if (random % 5 == 0)
                timer_cancel(&loop, &timers[i]);
            else
                timer_arm(&loop, &timers[i], WAKE_WG_TIMER, 1 + random % 1000);
        }
    unsigned armed = 0, fired = 0;
    for (int i = 0; i < COUNT; i++)
        armed += timer_armed(&timers[i]);
    CHECK_EQ(armed, loop.heap_used);
    uint64_t last = 0;
    loop.now = 1000;
    for (struct timer *timer; (timer = loop_expired(&loop)) != NULL; fired++) {
        CHECK(timer->at >= last);
        CHECK(!timer_armed(timer));
        last = timer->at;
    }
    CHECK_EQ(fired, armed);
    loop_free(&loop);
}

static void test_timer_not_due(void)
{
    struct loop loop;
    struct timer timer = {0};
    CHECK_EQ(loop_init(&loop), 0);
    timer_arm(&loop, &timer, WAKE_HOUSEKEEPING, loop.now + NS_PER_S);
    CHECK(loop_expired(&loop) == NULL);
    timer_arm(&loop, &timer, WAKE_HOUSEKEEPING, loop.now); /* moved earlier */
    CHECK(loop_expired(&loop) == &timer);
    CHECK(loop_expired(&loop) == NULL);
    loop_free(&loop);
}

/* A wait ends with the first timer, never before it. */
static void test_wait_for_timer(void)
{
    struct loop loop;
    struct timer timer = {0};
    CHECK_EQ(loop_init(&loop), 0);
    uint64_t at = clock_mono() + 5 * NS_PER_MS;
    timer_arm(&loop, &timer, WAKE_HOUSEKEEPING, at);
    while (!loop_expired(&loop))
        CHECK_EQ(loop_wait(&loop, UINT64_MAX), 0);
    CHECK(loop.now >= at);
    loop.no_pwait2 = true; /* an older kernel waits in milliseconds, rounded up */
    at = clock_mono() + 1500 * NS_PER_US;
    timer_arm(&loop, &timer, WAKE_HOUSEKEEPING, at);
    unsigned waits = 0;
    while (!loop_expired(&loop)) {
        CHECK_EQ(loop_wait(&loop, UINT64_MAX), 0);
        waits++;
    }
    CHECK(loop.now >= at);
    CHECK(waits <= 2);
    loop_free(&loop);
}

static void test_descriptors(void)
{
    struct loop loop;
    struct wake a = {0}, b = {0};
    int one[2], two[2];
    CHECK_EQ(loop_init(&loop), 0);
    CHECK_EQ(pipe(one), 0);
    CHECK_EQ(pipe(two), 0);
    CHECK_EQ(loop_add(&loop, &a, WAKE_TUN, one[0], WAKE_READ), 0);
    CHECK_EQ(loop_add(&loop, &b, WAKE_WG_SOCKET, two[0], WAKE_READ), 0);
    CHECK_EQ(write(one[1], "x", 1), 1);
    CHECK_EQ(write(two[1], "x", 1), 1);
    CHECK_EQ(loop_wait(&loop, UINT64_MAX), 0);
    CHECK_EQ(loop.ready_count, 2);
    loop_remove(&loop, &b); /* in the middle of the turn: it must not be called any more */
    for (uint32_t i = 0; i < loop.ready_count; i++)
        CHECK(loop.ready[i] == NULL || loop.ready[i] == &a);
    CHECK_EQ(a.events, WAKE_READ);
    CHECK_EQ(loop_interest(&loop, &a, 0), 0);
    CHECK_EQ(loop_wait(&loop, 0), 0);
    CHECK_EQ(loop.ready_count, 0);
    loop_remove(&loop, &b); /* twice is harmless */
    close(one[1]);
    CHECK_EQ(loop_wait(&loop, 0), 0); /* a hangup is reported whatever the interest */
    CHECK_EQ(loop.ready_count, 1);
    CHECK_EQ(a.events & WAKE_HANGUP, WAKE_HANGUP);
    close(one[0]);
    close(two[0]);
    close(two[1]);
    loop_free(&loop);
}

int main(void)
{
    test_timers();
    test_timer_not_due();
    test_wait_for_timer();
    test_descriptors();
    return check_done();
}
