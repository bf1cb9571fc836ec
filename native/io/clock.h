/* The three clocks, read once a turn and handed down as `now`: nothing below io/ reads a clock.
 *
 * Monotonic time drives every timer; boot time (which goes on while the machine sleeps) ages keys; wall time is used
 * only where a protocol carries it and is never trusted at boot. All 64 bits wide, in nanoseconds (wall: s + ns). */
#ifndef FV_IO_CLOCK_H
#define FV_IO_CLOCK_H

#include <stdint.h>
#include <time.h>

_Static_assert(sizeof(time_t) == 8, "seconds beyond 2038: -D_TIME_BITS=64 (glibc 2.34 and later)");

enum { NS_PER_US = 1000, NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

static inline uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_mono(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t clock_boot(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

/* Seconds since 1970 (may be wrong by decades on a router without a battery), nanoseconds in *nsec. */
static inline int64_t clock_wall(uint32_t *nsec)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    *nsec = (uint32_t)ts.tv_nsec;
    return (int64_t)ts.tv_sec;
}

#endif
