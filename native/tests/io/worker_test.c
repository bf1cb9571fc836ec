#include "io/worker.h"

#include "tests/check.h"

enum { MESSAGES = 20000 };

static struct {
    unsigned long sum;
    unsigned long seen, last;
    bool ordered;
} got;

static void run_add(struct worker *worker, const struct message *message)
{
    (void)worker;
    got.sum += message->n;
    got.ordered &= message->n == got.last + 1;
    got.last = message->n;
    got.seen++;
}

static unsigned long turns[4];

static void sender(struct worker *worker)
{
    unsigned long next = 1;
    while (!atomic_load(&worker->all->stop)) {
        loop_wait(&worker->loop, next <= MESSAGES && worker->index == 1 ? 0 : UINT64_MAX);
        for (uint32_t i = 0; i < worker->loop.ready_count; i++)
            worker_receive(worker);
        if (worker->index == 1 && next <= MESSAGES &&
            worker_post(worker, &worker->all->worker[0], &(struct message){.run = run_add, .n = next}))
            next++;
        turns[worker->index]++;
        worker_rest(worker);
    }
}

/* Messages arrive once each and in order; a pause finds every other worker standing still, nested or not. */
int main(void)
{
    struct workers all;
    got.ordered = true;
    CHECK_EQ(workers_init(&all, 3, 1 << 20), 0);
    CHECK_EQ(workers_start(&all, sender, NULL), 0);
    while (got.seen < MESSAGES) {
        loop_wait(&all.worker[0].loop, UINT64_MAX);
        for (uint32_t i = 0; i < all.worker[0].loop.ready_count; i++)
            worker_receive(&all.worker[0]);
        if (got.seen % 7 == 0) {
            workers_pause(&all);
            unsigned long before[3] = {0, turns[1], turns[2]};
            workers_pause(&all);
            workers_resume(&all);
            CHECK_EQ(turns[1], before[1]);
            CHECK_EQ(turns[2], before[2]);
            workers_resume(&all);
        }
    }
    CHECK(got.ordered);
    CHECK_EQ(got.sum, (unsigned long)MESSAGES * (MESSAGES + 1) / 2);
    workers_stop(&all);
    workers_free(&all);
    return check_done();
}
