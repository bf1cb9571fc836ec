/* CPU time of source NAT per packet (or super-packet: its size does not matter), both ways, for one flow and for 10,000
 * flows in turn: `meson test --benchmark`. */
#include "nat_world.h"

#include <time.h>

#define FLOWS 10000
#define ROUNDS 40

static struct packet out_packet[FLOWS], in_packet[FLOWS];

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void measure(bool six, unsigned flows)
{
    struct nat_config c = world_config(65536);
    struct nat *n = nat_new(&c);
    double best_out = 1e18, best_in = 1e18;
    for (unsigned i = 0; i < flows; i++) {
        packet_between(&out_packet[i], six, 6, LAN(i % 250), (uint16_t)(1024 + i), REMOTE(i % 99), 443, TCP_ACK, 1300);
        struct packet p = out_packet[i];
        if (world_out(n, SECOND, &p) != NAT_TRANSLATED)
            exit(1);
        packet_answer(&in_packet[i], &p, TCP_ACK);
    }
    unsigned steps = MAX(flows, 1000u);
    uint8_t head[64];
    for (int r = 0; r < ROUNDS; r++) {
        double t[2] = {0, 0};
        for (int in = 0; in < 2; in++) {
            double begin = cpu_ns();
            for (unsigned k = 0; k < steps; k++) {
                struct packet *p = in ? &in_packet[k % flows] : &out_packet[k % flows];
                memcpy(head, p->bytes, sizeof head);
                if ((in ? world_in(n, SECOND, p) : world_out(n, SECOND, p)) != NAT_TRANSLATED)
                    exit(1);
                memcpy(p->bytes, head, sizeof head);
            }
            t[in] = (cpu_ns() - begin) / steps;
        }
        best_out = MIN(best_out, t[0]);
        best_in = MIN(best_in, t[1]);
    }
    printf("IPv%d, %5u flows: out %5.1f ns, in %5.1f ns\n", six ? 6 : 4, flows, best_out, best_in);
    nat_free(n);
}

int main(void)
{
    for (int six = 0; six < 2; six++) {
        measure(six, 1);
        measure(six, FLOWS);
    }
    return 0;
}
