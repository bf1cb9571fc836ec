#include "io/log.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/check.h"

/* A pipe for stderr that nobody reads fills up; the next lines are in the ring alone, and nobody waits. */
static void test_full_pipe(void)
{
    int ends[2], before = dup(STDERR_FILENO);
    char ring[LOG_RING];
    CHECK_EQ(pipe(ends), 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 4096);
    CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
    alarm(20); /* where it waits all the same */
    log_setup(LOG_DEBUG, false); /* no line is left out */
    for (int i = 0; i < 2000; i++)
        log_debug("line %d", i);
    dup2(before, STDERR_FILENO);
    size_t n = log_ring_copy(ring, sizeof ring - 1);
    ring[n] = 0;
    CHECK(strstr(ring, "line 1999\n") != NULL);
    CHECK(strstr(ring, "line 0\n") == NULL);
    ring[0] = 0;
    close(ends[1]);
    ssize_t got = read(ends[0], ring, sizeof ring);
    CHECK(got > 0 && ring[got - 1] == '\n'); /* whole lines */
    close(ends[0]);
    close(before);
}

/* Nor does a pipe without a reader end it. */
static void test_no_reader(void)
{
    int ends[2], before = dup(STDERR_FILENO);
    CHECK_EQ(pipe(ends), 0);
    signal(SIGPIPE, SIG_IGN); /* as process_begin does */
    CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[0]);
    close(ends[1]);
    log_debug("into nothing");
    dup2(before, STDERR_FILENO);
    close(before);
    char ring[LOG_RING];
    size_t n = log_ring_copy(ring, sizeof ring - 1);
    ring[n] = 0;
    CHECK(strstr(ring, "into nothing\n") != NULL);
}

int main(void)
{
    test_full_pipe();
    test_no_reader();
    return check_done();
}
