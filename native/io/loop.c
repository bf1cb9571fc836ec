#include "io/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/log.h"

const char *const wake_kind_names[] = {
    "none",
    "signal",
    "message",
    "control listener",
    "control connection",
    "TUN",
    "WireGuard socket",
    "WireGuard timer",
    "netlink",
    "resolver",
    "resolver timer",
    "names timer",
    "inotify",
    "housekeeping",
    "stream",
    "stream timer",
    "stream memory",
};
_Static_assert(sizeof wake_kind_names / sizeof *wake_kind_names == WAKE_KINDS, "a name for every kind");

int loop_init(struct loop *loop)
{
    memset(loop, 0, sizeof *loop);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->now = clock_mono();
    return loop->epoll_fd < 0 ? -errno : 0;
}

void loop_free(struct loop *loop)
{
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    free(loop->heap);
    memset(loop, 0, sizeof *loop);
    loop->epoll_fd = -1;
}

static uint32_t epoll_bits(unsigned interest)
{
    return (interest & WAKE_READ ? EPOLLIN : 0u) | (interest & WAKE_WRITE ? EPOLLOUT : 0u);
}

int loop_add(struct loop *loop, struct wake *wake, enum wake_kind kind, int fd, unsigned interest)
{
    struct epoll_event event = {.events = epoll_bits(interest), .data.ptr = wake};
    wake->fd = fd;
    wake->kind = (uint8_t)kind;
    wake->interest = (uint8_t)interest;
    wake->events = 0;
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int loop_interest(struct loop *loop, struct wake *wake, unsigned interest)
{
    if (wake->interest == interest)
        return 0;
    struct epoll_event event = {.events = epoll_bits(interest), .data.ptr = wake};
    wake->interest = (uint8_t)interest;
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, wake->fd, &event) < 0 ? -errno : 0;
}

void loop_remove(struct loop *loop, struct wake *wake)
{
    if (wake->kind == WAKE_NONE)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, wake->fd, NULL);
    for (uint32_t i = 0; i < loop->ready_count; i++)
        if (loop->ready[i] == wake)
            loop->ready[i] = NULL;
    wake->kind = WAKE_NONE;
    wake->interest = wake->events = 0;
}

/* --- timers: heap[0] is the earliest; slot = index + 1 --- */

static void heap_put(struct loop *loop, uint32_t i, struct timer *timer)
{
    loop->heap[i] = timer;
    timer->slot = i + 1;
}

static void heap_up(struct loop *loop, uint32_t i, struct timer *timer)
{
    while (i > 0 && loop->heap[(i - 1) / 2]->at > timer->at) {
        heap_put(loop, i, loop->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_put(loop, i, timer);
}

static void heap_down(struct loop *loop, uint32_t i, struct timer *timer)
{
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= loop->heap_used)
            break;
        if (child + 1 < loop->heap_used && loop->heap[child + 1]->at < loop->heap[child]->at)
            child++;
        if (loop->heap[child]->at >= timer->at)
            break;
        heap_put(loop, i, loop->heap[child]);
        i = child;
    }
    heap_put(loop, i, timer);
}

void timer_arm(struct loop *loop, struct timer *timer, enum wake_kind kind, uint64_t at)
{
    timer->kind = (uint8_t)kind;
    if (timer->slot) {
        uint64_t was = timer->at;
        timer->at = at;
        if (at < was)
            heap_up(loop, timer->slot - 1, timer);
        else
            heap_down(loop, timer->slot - 1, timer);
        return;
    }
    if (loop->heap_used == loop->heap_size) {
        uint32_t size = loop->heap_size ? 2 * loop->heap_size : 16;
        struct timer **heap = realloc(loop->heap, size * sizeof *heap);
        if (!heap)
            die("out of memory for %u timers", size);
        loop->heap = heap;
        loop->heap_size = size;
    }
    timer->at = at;
    heap_up(loop, loop->heap_used++, timer);
}

void timer_cancel(struct loop *loop, struct timer *timer)
{
    if (!timer->slot)
        return;
    uint32_t i = timer->slot - 1;
    struct timer *last = loop->heap[--loop->heap_used];
    timer->slot = 0;
    if (last == timer)
        return;
    if (i > 0 && loop->heap[(i - 1) / 2]->at > last->at)
        heap_up(loop, i, last);
    else
        heap_down(loop, i, last);
}

struct timer *loop_expired(struct loop *loop)
{
    if (!loop->heap_used || loop->heap[0]->at > loop->now)
        return NULL;
    struct timer *timer = loop->heap[0];
    timer_cancel(loop, timer);
    return timer;
}

static int wait_events(struct loop *loop, struct epoll_event *events, uint64_t until)
{
    if (until == 0)
        return epoll_wait(loop->epoll_fd, events, LOOP_EVENTS, 0);
    if (until == UINT64_MAX)
        return epoll_wait(loop->epoll_fd, events, LOOP_EVENTS, -1);
    uint64_t now = clock_mono(), wait = until > now ? until - now : 0;
#ifdef SYS_epoll_pwait2
    if (!loop->no_pwait2) {
        /* The kernel's 64-bit timespec, also on 32-bit machines. */
        struct {
            int64_t sec, nsec;
        } limit = {(int64_t)(wait / NS_PER_S), (int64_t)(wait % NS_PER_S)};
        int n = (int)syscall(SYS_epoll_pwait2, loop->epoll_fd, events, LOOP_EVENTS, &limit, NULL, 0);
        if (n >= 0 || (errno != ENOSYS && errno != EPERM))
            return n;
        loop->no_pwait2 = true;
    }
#endif
    uint64_t ms = (wait + NS_PER_MS - 1) / NS_PER_MS;
    return epoll_wait(loop->epoll_fd, events, LOOP_EVENTS, ms > 60000 ? 60000 : (int)ms);
}

int loop_wait(struct loop *loop, uint64_t latest)
{
    struct epoll_event events[LOOP_EVENTS];
    uint64_t until = latest;
    if (until && loop->heap_used && loop->heap[0]->at < until)
        until = loop->heap[0]->at ? loop->heap[0]->at : 1;
    int n = wait_events(loop, events, until);
    int error = n < 0 ? errno : 0;
    loop->now = clock_mono();
    loop->ready_count = 0;
    if (n < 0)
        return error == EINTR ? 0 : -error;
    for (int i = 0; i < n; i++) {
        struct wake *wake = events[i].data.ptr;
        uint32_t bits = events[i].events;
        wake->events = (uint8_t)((bits & EPOLLIN ? WAKE_READ : 0) | (bits & EPOLLOUT ? WAKE_WRITE : 0) |
                                 (bits & (EPOLLERR | EPOLLHUP) ? WAKE_HANGUP : 0));
        loop->ready[loop->ready_count++] = wake;
    }
    return 0;
}
