/* What a relay between two TCP connections on loopback costs, spliced and copied, by the size of a turn. CPU is the relay's
 * thread alone (a sender and a sink run in threads of their own). Arguments: bytes for each measurement (default 2 GiB). */
#include "flow/relay.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/fdstream.h"
#include "io/feature.h"
#include "io/log.h"

static uint64_t total = 2ull << 30;
static bool ended;

static void pair(int fd[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    fd[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) < 0 ||
        connect(fd[0], (struct sockaddr *)&address, size) < 0)
        die("no TCP on loopback");
    fd[1] = accept(listener, NULL, NULL);
    close(listener);
}

static void *sender(void *argument)
{
    static uint8_t bytes[1 << 20];
    int fd = *(int *)argument;
    for (uint64_t sent = 0; sent < total;) {
        ssize_t n = send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        if (n <= 0)
            die("sender");
        sent += (uint64_t)n;
    }
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void *sink(void *argument)
{
    static uint8_t bytes[1 << 20];
    int fd = *(int *)argument;
    while (recv(fd, bytes, sizeof bytes, MSG_TRUNC) > 0) /* TCP: dropped without a copy */
        ;
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void over(struct relay *relay)
{
    ended = true;
}

static void measure(const char *name, bool splice, uint32_t depth, size_t memory)
{
    struct workers workers;
    struct streams streams;
    pthread_t threads[2];
    int near[2], far[2];
    struct relay_config config = {.quantum = 4 << 20, .depth = depth, .ended = over, .linger_ns = 1};
    feature_used[FEATURE_SPLICE] = splice;
    if (workers_init(&workers, 1, memory))
        die("workers");
    struct worker *worker = workers.worker;
    if (streams_init(&streams, worker))
        die("streams");
    pair(near);
    pair(far);
    fcntl(near[1], F_SETFL, O_NONBLOCK);
    fcntl(far[0], F_SETFL, O_NONBLOCK);
    struct stream *a = fdstream_open(&streams.host, &worker->loop, near[1], false);
    struct stream *b = fdstream_open(&streams.host, &worker->loop, far[0], false);
    ended = false;
    relay_start(&streams, &config, NULL, a, b, NULL, NULL);
    pthread_create(&threads[0], NULL, sender, &near[0]);
    pthread_create(&threads[1], NULL, sink, &far[1]);
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), wall = clock_mono();
    while (!ended) {
        struct timer *timer;
        loop_wait(&worker->loop, worker->again ? 0 : UINT64_MAX);
        worker->again = false;
        for (uint32_t i = 0; i < worker->loop.ready_count; i++)
            if (worker->loop.ready[i])
                fdstream_ready(
                    (struct fdstream *)(void *)((char *)worker->loop.ready[i] - offsetof(struct fdstream, wake)));
        while ((timer = loop_expired(&worker->loop)) != NULL)
            if (timer->kind == WAKE_STREAM_MEMORY)
                streams_timer(&streams);
        streams_turn(&streams);
    }
    double gib = (double)total / (1 << 30);
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    wall = clock_mono() - wall;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    close(near[0]);
    close(far[1]);
    printf("%-26s %.2f CPU s/GiB, %.1f Gbit/s\n", name, (double)cpu / NS_PER_S / gib, (double)total * 8 / (double)wall);
    streams_free(&streams);
    workers_free(&workers);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        total = strtoull(argv[1], NULL, 0);
    signal(SIGPIPE, SIG_IGN);
    log_setup(LOG_WARNING, false);
    for (int f = 0; f < FEATURE_COUNT; f++)
        feature_used[f] = true;
    measure("splice, 64 KiB pipe", true, 1, 1 << 20);
    measure("splice, 256 KiB pipe", true, 1, 4 << 20);
    measure("splice, 1 MiB pipe", true, 1, 16 << 20);
    measure("copy, 64 KiB", false, 1, 16 << 20);
    measure("copy, 256 KiB", false, 4, 16 << 20);
    measure("copy, 1 MiB", false, 16, 16 << 20);
    return 0;
}
