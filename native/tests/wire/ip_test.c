#include "../check.h"
#include "packets.h"
#include "wire/ip.h"

static uint8_t p[4096];
static struct ip_view v;

static const struct packet_spec tcp4 = {.protocol = 6,
                                        .tos = 0xb9,
                                        .ttl = 64,
                                        .flags = TCP_ACK | TCP_PSH,
                                        .src = 1,
                                        .dst = 2,
                                        .sport = 1000,
                                        .dport = 443,
                                        .id = 77,
                                        .options = 12,
                                        .dont_fragment = true};

static void plain(void)
{
    uint32_t n = packet_make(p, &tcp4, NULL, 100);
    CHECK_EQ(n, 152);
    CHECK_EQ(ip_parse(&v, p, n), IP_OK);
    CHECK_EQ(v.version, 4);
    CHECK_EQ(v.tos, 0xb9);
    CHECK_EQ(ip_tos(p), 0xb9);
    CHECK_EQ(v.ttl, 64);
    CHECK_EQ(v.l4_kind, IP_L4_TCP);
    CHECK_EQ(v.tcp_flags, TCP_ACK | TCP_PSH);
    CHECK_EQ(v.l4, 20);
    CHECK_EQ(v.payload, 52);
    CHECK(v.dont_fragment && !v.fragment && !v.options);
    CHECK_EQ(v.fragment_id, 77);
    CHECK_EQ(v.sport, 1000);
    CHECK_EQ(v.dport, 443);
    CHECK_EQ(ip_parse(&v, p, n + 13), IP_OK); /* padding */
    CHECK_EQ(v.length, n);

    struct packet_spec s = {.six = true, .protocol = 17, .tos = 0xb9, .ttl = 9, .sport = 53, .dport = 54};
    n = packet_make(p, &s, NULL, 31);
    CHECK_EQ(ip_parse(&v, p, n), IP_OK);
    CHECK_EQ(v.tos, 0xb9);
    CHECK_EQ(v.l4_kind, IP_L4_UDP);
    CHECK_EQ(v.payload, 48);
    CHECK_EQ(v.length, 79);

    s = (struct packet_spec){.protocol = 1, .sport = 0x1234, .dport = 5};
    n = packet_make(p, &s, NULL, 56);
    CHECK_EQ(ip_parse(&v, p, n), IP_OK);
    CHECK_EQ(v.l4_kind, IP_L4_ICMP_ECHO);
    CHECK_EQ(v.sport, 0x1234);
    CHECK_EQ(v.dport, 0x1234);
}

static void refused(void)
{
    static const struct {
        const char *why;
        size_t at, n;
        enum ip_error e;
        uint8_t value;
    } cases[] = {
        {"1 nothing", 0, 0, IP_SHORT, 0x45},
        {"2 19 bytes", 0, 19, IP_SHORT, 0x45},
        {"3 version 5", 0, 152, IP_VERSION, 0x55},
        {"4 version 0", 0, 152, IP_VERSION, 0x05},
        {"5 header of 16 bytes", 0, 152, IP_HEADER, 0x44},
        {"6 header beyond the bytes", 0, 40, IP_HEADER, 0x4f},
        {"7 total beyond the bytes", 0, 151, IP_LENGTH, 0x45},
        {"8 total below the header", 3, 152, IP_LENGTH, 19},
        {"9 version 6 with 39 bytes", 0, 39, IP_SHORT, 0x60},
        {"10 a fragment, far behind", 7, 152, IP_OK, 0xff},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        packet_make(p, &tcp4, NULL, 100);
        p[cases[i].at] = cases[i].value;
        if (!CHECK(ip_parse(&v, p, cases[i].n) == cases[i].e))
            fprintf(stderr, "    case %s: %s\n", cases[i].why, ip_error_name(ip_parse(&v, p, cases[i].n)));
    }
    packet_make(p, &tcp4, NULL, 100);
    p[6] = 0x1f;
    p[7] = 0xff;
    CHECK_EQ(ip_parse(&v, p, 152), IP_FRAGMENT);
    packet_make(p, &tcp4, NULL, 100);
    p[6] = 0x20; /* first fragment, no data */
    p[3] = 20;
    CHECK_EQ(ip_parse(&v, p, 152), IP_FRAGMENT);
}

static void cut_transport(void)
{
    packet_make(p, &tcp4, NULL, 100);
    p[3] = 20 + 19;
    CHECK_EQ(ip_parse(&v, p, 152), IP_OK);
    CHECK_EQ(v.l4_kind, IP_L4_NONE);
    packet_make(p, &tcp4, NULL, 100);
    p[32] = 0x40; /* TCP header of 16 bytes */
    ip_parse(&v, p, 152);
    CHECK_EQ(v.l4_kind, IP_L4_NONE);
    p[32] = 0xf0; /* TCP header beyond the packet */
    p[3] = 20 + 59;
    ip_parse(&v, p, 152);
    CHECK_EQ(v.l4_kind, IP_L4_NONE);
    p[6] = 0;
    p[7] = 1; /* second fragment */
    ip_parse(&v, p, 152);
    CHECK_EQ(v.l4_kind, IP_L4_NONE);
    CHECK(v.fragment && v.fragment_offset == 8 && !v.more);
}

static void fragments_and_errors(void)
{
    packet_make(p, &tcp4, NULL, 100);
    p[6] = 0x20;
    CHECK_EQ(ip_parse(&v, p, 152), IP_OK);
    CHECK(v.fragment && v.more && v.l4_kind == IP_L4_TCP);

    /* ICMP time exceeded, 28 bytes of the packet embedded */
    struct packet_spec s = {.protocol = 1};
    uint8_t inner[200];
    uint32_t inner_len = packet_make(inner, &tcp4, NULL, 100);
    uint32_t n = packet_make(p, &s, inner, 28);
    p[20] = 11;
    naive_finish(p, n, 20);
    CHECK_EQ(ip_parse(&v, p, n), IP_OK);
    CHECK_EQ(v.l4_kind, IP_L4_ICMP_ERROR);
    CHECK_EQ(v.inner, 28);
    struct ip_view in;
    CHECK_EQ(ip_parse_inner(&in, p + v.inner, v.length - v.inner), IP_OK);
    CHECK_EQ(in.l4_kind, IP_L4_TCP);
    CHECK_EQ(in.sport, 1000);
    CHECK_EQ(in.length, 28);
    CHECK_EQ(ip_parse_inner(&in, inner, 27), IP_OK);
    CHECK_EQ(in.l4_kind, IP_L4_NONE);
    CHECK_EQ(ip_parse_inner(&in, inner, 19), IP_SHORT);
    CHECK_EQ(ip_parse_inner(&in, inner, inner_len), IP_OK);
    CHECK_EQ(in.payload, 52);
}

/* IPv6 with `chain` between its header and UDP. */
static enum ip_error extended(uint8_t first, const uint8_t *chain, uint32_t chain_len)
{
    struct packet_spec s = {.six = true, .protocol = 17, .sport = 7, .dport = 8};
    uint8_t q[200];
    uint32_t n = packet_make(q, &s, NULL, 20);
    memcpy(p, q, 40);
    memcpy(p + 40, chain, chain_len);
    memcpy(p + 40 + chain_len, q + 40, n - 40);
    p[6] = first;
    store_be16(p + 4, (uint16_t)(n - 40 + chain_len));
    return ip_parse(&v, p, n + chain_len);
}

static void extensions(void)
{
    static const uint8_t hop[8] = {17, 0}, frag_first[8] = {17, 0, 0, 1, 0, 0, 1, 2},
                         frag_next[8] = {17, 0, 0, 8, 9, 9, 9, 9}, two[24] = {43, 1, [16] = 17, 0},
                         atomic[8] = {17, 0, 0, 0, 0, 0, 0, 5}, long_one[8] = {17, 200}, ah[16] = {17, 2},
                         twice[16] = {44, 0, 0, 1, [8] = 17, 0, 0, 1};
    CHECK_EQ(extended(0, hop, 8), IP_OK);
    CHECK(v.l4 == 48 && v.l4_kind == IP_L4_UDP && v.options && v.sport == 7);
    CHECK_EQ(extended(0, two, 24), IP_OK);
    CHECK(v.l4 == 64 && v.protocol == 17);
    CHECK_EQ(extended(51, ah, 16), IP_OK);
    CHECK_EQ(v.l4, 56);
    CHECK_EQ(extended(44, frag_first, 8), IP_OK);
    CHECK(v.fragment && v.more && v.fragment_id == 0x102 && v.l4_kind == IP_L4_UDP && v.fragment_header == 40);
    CHECK_EQ(extended(44, frag_next, 8), IP_OK);
    CHECK(v.fragment && !v.more && v.fragment_offset == 8 && v.l4_kind == IP_L4_NONE && v.l4 == 48);
    CHECK_EQ(extended(44, atomic, 8), IP_OK);
    CHECK(!v.fragment && v.l4_kind == IP_L4_UDP);
    CHECK_EQ(extended(0, long_one, 8), IP_EXTENSION);
    CHECK_EQ(extended(44, twice, 16), IP_EXTENSION);
    static const uint8_t frag_of_options[8] = {60, 0, 0, 8, 9, 9, 9, 9}; /* data, though named an extension header */
    CHECK_EQ(extended(44, frag_of_options, 8), IP_OK);
    CHECK(v.l4 == 48 && v.protocol == 60 && v.l4_kind == IP_L4_NONE);
    uint8_t many[80] = {0};
    CHECK_EQ(extended(0, many, 80), IP_EXTENSION);
    CHECK_EQ(extended(59, hop, 0), IP_OK);
    CHECK_EQ(v.l4_kind, IP_L4_NONE);
}

static void hash_and_ecn(void)
{
    unsigned buckets[4] = {0};
    for (int i = 0; i < 4000; i++) {
        struct packet_spec s = tcp4, back;
        s.six = i & 1;
        s.sport = (uint16_t)(30000 + i);
        uint32_t n = packet_make(p, &s, NULL, 10);
        ip_parse(&v, p, n);
        uint32_t there = ip_flow_hash(&v, p);
        buckets[there % 4]++;
        back = s;
        back.src = s.dst; /* v4: the test's address halves differ, so swap by hand */
        back.dst = s.src;
        back.sport = s.dport;
        back.dport = s.sport;
        n = packet_make(p, &back, NULL, 99);
        if (!s.six) {
            store_be32(p + 12, 0x0a000100u | s.dst);
            store_be32(p + 16, 0x0a000000u | s.src);
        }
        ip_parse(&v, p, n);
        CHECK_EQ(ip_flow_hash(&v, p), there);
    }
    for (int i = 0; i < 4; i++)
        CHECK(buckets[i] > 800 && buckets[i] < 1200);

    for (uint8_t ecn = 0; ecn < 4; ecn++) {
        uint32_t n = packet_make(p, &tcp4, NULL, 10);
        ip_set_ecn(p, ecn);
        CHECK_EQ(ip_tos(p), 0xb8 | ecn);
        CHECK(naive_valid(p, n, 20));
        struct packet_spec s = tcp4;
        s.six = true;
        packet_make(p, &s, NULL, 10);
        p[1] |= 0x0f; /* flow label */
        ip_set_ecn(p, ecn);
        CHECK_EQ(ip_tos(p), 0xb8 | ecn);
        CHECK_EQ(p[1] & 0x0f, 0x0f);
        CHECK_EQ(p[0], 0x6b);
    }
}

int main(void)
{
    plain();
    refused();
    cut_transport();
    fragments_and_errors();
    extensions();
    hash_and_ecn();
    return check_done();
}
