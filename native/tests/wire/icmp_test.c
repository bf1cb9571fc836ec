#include "../check.h"
#include "packets.h"
#include "wire/icmp.h"

static uint8_t p[3000], out[ICMP_MAX6];

static void answers(bool six)
{
    static const struct {
        enum icmp_kind kind;
        uint8_t type4, code4, type6, code6;
    } cases[] = {
        {ICMP_TOO_BIG, 3, 4, 2, 0},     {ICMP_NO_ROUTE, 3, 1, 1, 0}, {ICMP_ADDRESS, 3, 1, 1, 3},
        {ICMP_PROHIBITED, 3, 13, 1, 1}, {ICMP_TIME, 11, 0, 3, 0},
    };
    static const uint8_t source[16] = {10, 9, 9, 9, [15] = 7};
    uint32_t l4 = six ? 40 : 20;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        for (uint32_t payload = 0; payload < 2000; payload += 499) {
            struct packet_spec s = {.six = six, .protocol = 17, .src = 1, .dst = 2, .ttl = 1};
            uint32_t n = packet_make(p, &s, NULL, payload), most = six ? 1280 : 576;
            size_t got = icmp_error(out, sizeof out, cases[i].kind, 1420, source, p, n);
            CHECK_EQ(got, MIN(l4 + 8 + n, most));
            CHECK(naive_valid(out, (uint32_t)got, l4));
            CHECK_EQ(out[l4], six ? cases[i].type6 : cases[i].type4);
            CHECK_EQ(out[l4 + 1], six ? cases[i].code6 : cases[i].code4);
            CHECK_EQ(load_be32(out + l4 + 4), cases[i].kind == ICMP_TOO_BIG ? 1420 : 0);
            CHECK_MEM(out + l4 + 8, p, got - l4 - 8);
            CHECK_MEM(ip_src(six ? 6 : 4, out), source, six ? 16 : 4);
            CHECK_MEM(ip_dst(six ? 6 : 4, out), ip_src(six ? 6 : 4, p), six ? 16 : 4);
            CHECK_EQ(icmp_error(out, got - 1, cases[i].kind, 1420, source, p, n), 0);
            struct ip_view v;
            CHECK_EQ(ip_parse(&v, out, got), IP_OK);
            CHECK_EQ(v.l4_kind, IP_L4_ICMP_ERROR);
            /* 1 never about an error */
            uint8_t again[ICMP_MAX6];
            CHECK_EQ(icmp_error(again, sizeof again, cases[i].kind, 1420, source, out, got), 0);
        }
}

static bool answered(bool six, enum icmp_kind kind, void (*change)(uint8_t *packet))
{
    static const uint8_t source[16] = {1};
    struct packet_spec s = {.six = six, .protocol = 17, .src = 1, .dst = 2, .ttl = 1};
    uint32_t n = packet_make(p, &s, NULL, 100);
    change(p);
    return icmp_error(out, sizeof out, kind, 1280, source, p, n) != 0;
}

static void nothing(uint8_t *packet)
{
    (void)packet;
}
static void later_fragment4(uint8_t *packet)
{
    packet[7] = 1;
}
static void first_fragment4(uint8_t *packet)
{
    packet[6] = 0x20;
}
static void from_multicast4(uint8_t *packet)
{
    packet[12] = 224;
}
static void from_nobody4(uint8_t *packet)
{
    memset(packet + 12, 0, 4);
}
static void from_loopback4(uint8_t *packet)
{
    packet[12] = 127;
}
static void to_broadcast4(uint8_t *packet)
{
    memset(packet + 16, 255, 4);
}
static void to_multicast6(uint8_t *packet)
{
    packet[24] = 0xff;
}
static void from_multicast6(uint8_t *packet)
{
    packet[8] = 0xff;
}
static void from_nobody6(uint8_t *packet)
{
    memset(packet + 8, 0, 16);
}

int main(void)
{
    answers(false);
    answers(true);
    CHECK(answered(false, ICMP_TIME, nothing));
    CHECK(answered(false, ICMP_TIME, first_fragment4));
    CHECK(!answered(false, ICMP_TIME, later_fragment4));
    CHECK(!answered(false, ICMP_TIME, from_multicast4));
    CHECK(!answered(false, ICMP_TIME, from_nobody4));
    CHECK(!answered(false, ICMP_TIME, from_loopback4));
    CHECK(!answered(false, ICMP_TIME, to_broadcast4));
    CHECK(answered(true, ICMP_ADDRESS, nothing));
    CHECK(!answered(true, ICMP_ADDRESS, to_multicast6));
    CHECK(answered(true, ICMP_TOO_BIG, to_multicast6));
    CHECK(!answered(true, ICMP_TOO_BIG, from_multicast6));
    CHECK(!answered(true, ICMP_ADDRESS, from_nobody6));
    return check_done();
}
