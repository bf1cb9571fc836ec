#include "io/worker.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static int worker_init(struct workers *all, unsigned index)
{
    struct worker *worker = &all->worker[index];
    worker->index = index;
    worker->all = all;
    int error = loop_init(&worker->loop);
    if (!error)
        error = lease_pool_init(&worker->leases, &all->budget);
    if (error || all->count == 1)
        return error;
    size_t size = all->count * sizeof *worker->inboxes;
    worker->inboxes = aligned_alloc(64, size);
    if (!worker->inboxes)
        return -ENOMEM;
    memset(worker->inboxes, 0, size);
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return fd < 0 ? -errno : loop_add(&worker->loop, &worker->inbox_wake, WAKE_MESSAGE, fd, WAKE_READ);
}

int workers_init(struct workers *all, unsigned count, size_t memory)
{
    memset(all, 0, sizeof *all);
    all->count = count;
    all->budget.limit = memory;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    all->worker = calloc(count, sizeof *all->worker);
    if (!all->worker)
        return -ENOMEM;
    for (unsigned i = 0; i < count; i++) {
        int error = worker_init(all, i);
        if (error)
            return error;
    }
    return 0;
}

enum {
    GATHER_WINDOW = 1000000,     /* ns in which the rate is measured */
    GATHER_BYTES = 128 << 10,    /* of a window: dense */
    GATHER_PACKETS = 64,         /* likewise */
    GATHER_TURN = 128 << 10,     /* a turn that has moved so much does not sleep: there may be as much again */
    GATHER_SLEEP = 200000,       /* ns */
};

void worker_gather(struct worker *worker)
{
    struct worker_rate *rate = &worker->rate;
    uint64_t now = worker->loop.now, age = now - rate->window_start;
    rate->window_bytes += rate->turn_bytes;
    rate->window_packets += rate->turn_packets;
    if (age >= GATHER_WINDOW) {
        rate->dense =
            age < 2 * GATHER_WINDOW && (rate->window_bytes >= GATHER_BYTES || rate->window_packets >= GATHER_PACKETS);
        rate->window_start = now;
        rate->window_bytes = 0;
        rate->window_packets = 0;
    }
    if (rate->dense && rate->turn_bytes < GATHER_TURN && !worker->again)
        nanosleep(&(struct timespec){0, GATHER_SLEEP}, NULL);
    rate->turn_bytes = 0;
    rate->turn_packets = 0;
}

struct start {
    struct worker *worker;
    void (*run)(struct worker *worker);
    int cpu;
};

static void *thread_main(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    if (start.cpu >= 0)
        worker_pin(start.cpu);
    start.run(start.worker);
    return NULL;
}

int workers_start(struct workers *all, void (*run)(struct worker *worker), const int *cpus)
{
    sigset_t every, before;
    sigfillset(&every); /* signals are worker 0's: it reads them from a descriptor */
    pthread_sigmask(SIG_BLOCK, &every, &before);
    int error = 0;
    for (unsigned i = 1; i < all->count && !error; i++) {
        struct start *start = malloc(sizeof *start);
        if (!start) {
            error = -ENOMEM;
            break;
        }
        *start = (struct start){&all->worker[i], run, cpus ? cpus[i] : -1};
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 256 * 1024);
        error = -pthread_create(&all->worker[i].thread, &attributes, thread_main, start);
        pthread_attr_destroy(&attributes);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    all->running = !error;
    return error;
}

int worker_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) < 0 ? -errno : 0;
}

static void worker_wake(struct worker *worker)
{
    uint64_t one = 1;
    if (atomic_exchange_explicit(&worker->posted, 1, memory_order_acq_rel) == 0) {
        ssize_t done = write(worker->inbox_wake.fd, &one, sizeof one); /* full means: it is awake */
        (void)done;
    }
}

void workers_stop(struct workers *all)
{
    atomic_store(&all->stop, true);
    if (!all->running)
        return;
    for (unsigned i = 1; i < all->count; i++) {
        worker_wake(&all->worker[i]);
        pthread_join(all->worker[i].thread, NULL);
    }
    all->running = false;
}

void workers_free(struct workers *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        struct worker *worker = &all->worker[i];
        if (worker->inboxes)
            close(worker->inbox_wake.fd);
        free(worker->inboxes);
        lease_pool_free(&worker->leases);
        loop_free(&worker->loop);
    }
    free(all->worker);
    pthread_mutex_destroy(&all->lock);
    pthread_cond_destroy(&all->changed);
    memset(all, 0, sizeof *all);
}

bool worker_post(struct worker *from, struct worker *to, const struct message *message)
{
    struct inbox *inbox = &to->inboxes[from->index];
    unsigned tail = atomic_load_explicit(&inbox->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&inbox->head, memory_order_acquire) == INBOX_SIZE)
        return false;
    inbox->slots[tail % INBOX_SIZE] = *message;
    atomic_store_explicit(&inbox->tail, tail + 1, memory_order_release);
    worker_wake(to);
    return true;
}

void worker_receive(struct worker *worker)
{
    uint64_t count;
    ssize_t got = read(worker->inbox_wake.fd, &count, sizeof count);
    (void)got;
    /* Before looking: a later post writes again. An exchange, so that an earlier one's messages are seen. */
    atomic_exchange_explicit(&worker->posted, 0, memory_order_acq_rel);
    for (unsigned i = 0; i < worker->all->count; i++) {
        struct inbox *inbox = &worker->inboxes[i];
        unsigned head = atomic_load_explicit(&inbox->head, memory_order_relaxed);
        unsigned tail = atomic_load_explicit(&inbox->tail, memory_order_acquire);
        while (head != tail) {
            struct message message = inbox->slots[head % INBOX_SIZE];
            atomic_store_explicit(&inbox->head, ++head, memory_order_release);
            message.run(worker, &message);
        }
    }
}

void workers_pause(struct workers *all)
{
    if (!all->running || all->count == 1 || all->pause_depth++)
        return;
    atomic_fetch_add(&all->pause_wanted, 1);
    for (unsigned i = 1; i < all->count; i++)
        worker_wake(&all->worker[i]);
    pthread_mutex_lock(&all->lock);
    while (atomic_load(&all->paused) != all->count - 1)
        pthread_cond_wait(&all->changed, &all->lock);
    pthread_mutex_unlock(&all->lock);
}

void workers_resume(struct workers *all)
{
    if (!all->running || all->count == 1 || --all->pause_depth)
        return;
    pthread_mutex_lock(&all->lock);
    atomic_fetch_add(&all->pause_wanted, 1);
    pthread_cond_broadcast(&all->changed);
    while (atomic_load(&all->paused) != 0) /* so that a next pause does not count one that has not left this one */
        pthread_cond_wait(&all->changed, &all->lock);
    pthread_mutex_unlock(&all->lock);
}

bool worker_rest(struct worker *worker)
{
    struct workers *all = worker->all;
    if (!(atomic_load_explicit(&all->pause_wanted, memory_order_acquire) & 1))
        return false;
    pthread_mutex_lock(&all->lock);
    atomic_fetch_add(&all->paused, 1);
    pthread_cond_broadcast(&all->changed);
    while (atomic_load(&all->pause_wanted) & 1)
        pthread_cond_wait(&all->changed, &all->lock);
    atomic_fetch_sub(&all->paused, 1);
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return true;
}
