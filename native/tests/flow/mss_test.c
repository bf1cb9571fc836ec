#include "../check.h"
#include "../wire/packets.h"
#include "flow/mss.h"

static uint8_t p[200];

/* A SYN with these options (padded by the caller to a multiple of 4). */
static uint32_t syn(bool six, uint8_t flags, const uint8_t *options, uint8_t n)
{
    struct packet_spec s = {
        .six = six, .protocol = 6, .ttl = 64, .flags = flags, .src = 1, .dst = 2, .sport = 3, .dport = 4, .options = n};
    uint32_t length = packet_make(p, &s, NULL, 0), l4 = six ? 40 : 20;
    memcpy(p + l4 + 20, options, n);
    naive_finish(p, length, l4);
    return length;
}

int main(void)
{
    static const struct {
        const char *what;
        uint8_t options[12];
        uint8_t n, flags, at; /* at: where the MSS is, 0: nothing may change */
    } cases[] = {
        {"1 MSS first", {2, 4, 5, 180, 1, 1, 1, 0}, 8, TCP_SYN, 2},
        {"2 SYN-ACK", {2, 4, 5, 180}, 4, TCP_SYN | TCP_ACK, 2},
        {"3 behind window scale and NOP", {3, 3, 7, 1, 2, 4, 5, 180}, 8, TCP_SYN, 6},
        {"4 at an odd place", {1, 2, 4, 5, 180, 0, 0, 0}, 8, TCP_SYN, 3},
        {"5 no SYN", {2, 4, 5, 180}, 4, TCP_ACK, 0},
        {"6 small already", {2, 4, 4, 0}, 4, TCP_SYN, 0},
        {"7 exactly right", {2, 4, 5, 0x64}, 4, TCP_SYN, 0},
        {"8 none", {1, 1, 1, 0}, 4, TCP_SYN, 0},
        {"9 after the end", {0, 2, 4, 5, 180, 0, 0, 0}, 8, TCP_SYN, 0},
        {"10 cut by the header's end", {1, 1, 2, 4}, 4, TCP_SYN, 0},
        {"11 length 0", {3, 0, 2, 4, 5, 180, 0, 0}, 8, TCP_SYN, 0},
        {"12 length 1", {3, 1, 2, 4, 5, 180, 0, 0}, 8, TCP_SYN, 0},
        {"13 a length beyond the end", {3, 40, 2, 4, 5, 180, 0, 0}, 8, TCP_SYN, 0},
        {"14 MSS of length 6, then a right one", {2, 6, 9, 9, 9, 9, 2, 4, 5, 180, 0, 0}, 12, TCP_SYN, 8},
        {"15 a kind alone at the end", {1, 1, 1, 2}, 4, TCP_SYN, 0},
    };
    for (int six = 0; six < 2; six++)
        for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
            for (int partial = 0; partial < 2; partial++) {
                uint32_t n = syn(six, cases[i].flags, cases[i].options, cases[i].n), l4 = six ? 40 : 20;
                if (partial)
                    store_be16(p + l4 + 16, naive_pseudo(p, 6, n - l4));
                uint8_t before[200];
                memcpy(before, p, sizeof p);
                struct ip_view v;
                CHECK_EQ(ip_parse(&v, p, n), IP_OK);
                bool changed = mss_clamp(p, &v, partial, 1380);
                if (!CHECK(changed == (cases[i].at != 0)))
                    fprintf(stderr, "    case %s\n", cases[i].what);
                if (!changed) {
                    CHECK_MEM(p, before, n);
                    continue;
                }
                CHECK_EQ(load_be16(p + l4 + 20 + cases[i].at), 1380);
                if (partial)
                    CHECK_MEM(p + l4 + 16, before + l4 + 16, 2);
                else
                    CHECK(naive_valid(p, n, l4));
            }
    CHECK_EQ(mss_of_mtu(4, 1420), 1380);
    CHECK_EQ(mss_of_mtu(6, 1420), 1360);
    CHECK_EQ(mss_of_mtu(6, 60), 0);
    CHECK_EQ(mss_of_mtu(4, 100000), 65535);
    return check_done();
}
