/* Looks names up as the engine does, for tests/test_resolver.py:
 *
 *   resolver_lookup HOSTS-FILE RESOLV-CONF SECONDS NAME...
 *
 * All at once; a line for each: NAME ERROR-NUMBER ADDRESS... Ends when all are answered, or with 1 after SECONDS; then
 * says how it was done: "# udp N tcp N timeouts N". Not run by `meson test`: it needs servers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow/resolver_io.h"
#include "io/log.h"

static unsigned waiting;

static void done(void *context, const struct resolver_result *result)
{
    char text[ADDR_TEXT_SIZE];

    (void)context;
    printf("%s %d", (const char *)result->context, -result->error);
    for (unsigned i = 0; i < result->count; i++) {
        addr_format_ip(&result->addresses[i], text);
        printf(" %s", text);
    }
    putchar('\n');
    waiting--;
}

int main(int argc, char **argv)
{
    const struct socket_options options = {0};
    struct loop loop;
    struct resolver_io *io;

    if (argc < 5 || loop_init(&loop) || !(io = resolver_io_new(&loop, &options, done, NULL)))
        return 2;
    if (resolver_io_load(io, argv[1], argv[2], false))
        return 2;
    loop_wait(&loop, 0);
    uint64_t end = loop.now + strtoull(argv[3], NULL, 10) * 1000000000u;
    for (int i = 4; i < argc; i++) {
        waiting++;
        if (resolver_io_lookup(io, argv[i], strlen(argv[i]), 0, RESOLVER_BOTH, argv[i]) < 0) {
            printf("%s refused\n", argv[i]);
            waiting--;
        }
    }
    while (waiting && loop.now < end) {
        if (loop_wait(&loop, end) < 0)
            return 2;
        for (unsigned i = 0; i < loop.ready_count; i++) {
            if (loop.ready[i])
                resolver_io_ready(io, loop.ready[i]);
        }
        while (loop_expired(&loop))
            resolver_io_expired(io);
    }
    const struct resolver_stats *stats = resolver_stats(resolver_io_core(io));
    printf("# udp %llu tcp %llu timeouts %llu\n", (unsigned long long)stats->sent_udp,
           (unsigned long long)stats->sent_tcp, (unsigned long long)stats->timeouts);
    resolver_io_free(io);
    loop_free(&loop);
    return waiting != 0;
}
