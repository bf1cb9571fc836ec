/* CPU time per 1,420-byte packet of splitting a TUN read and of joining a batch, beside a bare copy and a bare sum:
 * `meson test --benchmark`. The best of many rounds, as other load only ever adds. */
#include "packets.h"
#include "wire/checksum.h"
#include "wire/gro.h"

#include <stdio.h>
#include <time.h>

#define SEGMENTS 47
#define ROUNDS 2000

static uint8_t super[65536], out[SEGMENTS][1600], received[SEGMENTS][1600], head[60];
static uint32_t lengths[SEGMENTS], super_len;
static uint8_t header[VNET_HEADER_LEN];
static struct gro g;
static volatile uint64_t keep;

static void split(void)
{
    struct vnet_split s;
    if (vnet_split_begin(&s, header, super, super_len) != VNET_OK || s.count != SEGMENTS)
        exit(1);
    for (unsigned i = 0; i < SEGMENTS; i++)
        vnet_split_next(&s, out[i]);
}

static void join(void)
{
    memcpy(received[0] + 16, head, sizeof head);
    for (unsigned i = 0; i < SEGMENTS; i++)
        gro_add(&g, received[i] + 16, lengths[i]);
    gro_finish(&g);
    if (g.output_count != 1)
        exit(1);
    gro_reset(&g);
}

static void copy(void)
{
    for (unsigned i = 0; i < SEGMENTS; i++)
        memcpy(out[i], super + i * 1368, 1420);
}

static void sum(void)
{
    for (unsigned i = 0; i < SEGMENTS; i++)
        keep += checksum_add(0, out[i], 1420);
}

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void measure(const char *name, void (*run)(void))
{
    double best = 1e18;
    for (int i = 0; i < ROUNDS; i++) {
        double begin = cpu_ns();
        for (int k = 0; k < 10; k++)
            run();
        double t = (cpu_ns() - begin) / (10 * SEGMENTS);
        best = MIN(best, t);
    }
    printf("%-6s %6.1f ns a packet\n", name, best);
}

int main(void)
{
    struct packet_spec s = {.protocol = IP_PROTO_TCP, .ttl = 64, .flags = TCP_ACK, .src = 1, .dst = 2, .options = 12};
    super_len = packet_make(super, &s, NULL, 1368 * SEGMENTS);
    struct vnet_header h = {VNET_NEEDS_CSUM, VNET_TCP4, 0, 1368, 20, 16};
    vnet_write(header, &h);
    for (unsigned i = 0; i < SEGMENTS; i++, s.seq += 1368)
        lengths[i] = packet_make(received[i] + 16, &s, NULL, 1368);
    memcpy(head, received[0] + 16, sizeof head);
    gro_init(&g, GRO_VNET | GRO_TCP);
    measure("copy", copy);
    measure("sum", sum);
    measure("split", split);
    measure("join", join);
    return 0;
}
