#include "../check.h"
#include "packets.h"
#include "wire/gro.h"

/* A batch of received packets with room before each, as they lie after decryption in place. */
#define BATCH 600
#define ROOM 2048
static uint8_t store[BATCH][ROOM];
static uint32_t lengths[BATCH];
static unsigned received;
static struct gro g;

/* What a TUN makes of the writes: the packets after segmentation by vnet.c (itself held against the kernel's). */
static uint8_t delivered[BATCH][ROOM];
static uint32_t delivered_len[BATCH];
static unsigned delivered_count;

static void begin(unsigned flags)
{
    gro_init(&g, flags);
    received = delivered_count = 0;
}

static uint8_t *receive(const struct packet_spec *s, uint32_t payload)
{
    uint8_t *p = store[received] + VNET_HEADER_LEN + 2;
    memset(store[received], 0xee, ROOM);
    lengths[received] = packet_make(p, s, NULL, payload);
    received++;
    return p;
}

static void add_all(void)
{
    for (unsigned i = 0; i < received; i++)
        CHECK(gro_add(&g, store[i] + VNET_HEADER_LEN + 2, lengths[i] + i % 16));
    gro_finish(&g);
}

static void deliver(const uint8_t *written, size_t n)
{
    static uint8_t packet[65536];
    struct vnet_split s;
    if (!CHECK(n >= VNET_HEADER_LEN))
        return;
    memcpy(packet, written + VNET_HEADER_LEN, n - VNET_HEADER_LEN);
    if (!CHECK(vnet_split_begin(&s, written, packet, n - VNET_HEADER_LEN) == VNET_OK))
        return;
    for (unsigned i = 0; i < s.count && delivered_count < BATCH; i++)
        delivered_len[delivered_count] = (uint32_t)vnet_split_next(&s, delivered[delivered_count]), delivered_count++;
}

static void write_all(void)
{
    static uint8_t written[70000];
    for (unsigned i = 0; i < g.output_count; i++) {
        size_t n = 0;
        for (unsigned k = 0; k < g.output[i].iov_count; k++) {
            memcpy(written + n, g.output[i].iov[k].iov_base, g.output[i].iov[k].iov_len);
            n += g.output[i].iov[k].iov_len;
        }
        CHECK_EQ(n, g.output[i].length);
        CHECK(n <= 65535 + VNET_HEADER_LEN);
        CHECK(g.output[i].count <= GRO_SEGMENTS);
        deliver(written, n);
    }
}

static void write_one(void *ctx, const struct iovec *iov)
{
    (void)ctx;
    uint8_t zero[VNET_HEADER_LEN] = {0};
    CHECK_MEM(iov->iov_base, zero, VNET_HEADER_LEN);
    deliver(iov->iov_base, iov->iov_len);
}

static const struct packet_spec base = {.protocol = 6,
                                        .ttl = 64,
                                        .flags = TCP_ACK,
                                        .src = 1,
                                        .dst = 2,
                                        .sport = 5001,
                                        .dport = 40000,
                                        .seq = 0xfffff000,
                                        .ack = 9,
                                        .options = 12,
                                        .id = 1,
                                        .dont_fragment = true};

/* Two segments of 1,000 bytes where the second differs by one thing: how many writes? */
static void one_difference(void)
{
    enum {
        SAME,
        SEQ,
        ACK,
        TOS,
        TTL,
        DF,
        SPORT,
        DST,
        OPTIONS,
        WINDOW,
        SHORTER,
        LONGER,
        EMPTY,
        SYN,
        FIN,
        URG,
        PSH,
        PSH1,
        CORRUPT,
        CORRUPT1,
        CORRUPT_IP,
        RESERVED,
        FRAGMENT,
        IP_OPTIONS,
        ID,
        LABEL,
        COUNT
    };
    static const uint8_t merged4[COUNT] = {[SAME] = 1, [SHORTER] = 1, [PSH] = 1, [ID] = 1};
    for (int six = 0; six < 2; six++)
        for (int what = 0; what < COUNT; what++) {
            if (six && (what == DF || what == IP_OPTIONS || what == ID || what == FRAGMENT || what == CORRUPT_IP))
                continue;
            if (!six && what == LABEL)
                continue;
            struct packet_spec s = base;
            s.six = six;
            begin(GRO_VNET | GRO_TCP | GRO_UDP);
            if (what == PSH1)
                s.flags |= TCP_PSH;
            uint8_t *first = receive(&s, 1000);
            s.flags &= (uint8_t)~TCP_PSH;
            s.seq += 1000;
            uint32_t n = 1000, l4 = six ? 40 : 20;
            s.seq += what == SEQ;
            s.ack += what == ACK;
            s.tos += what == TOS; /* ECN */
            s.ttl -= what == TTL;
            s.dont_fragment ^= what == DF;
            s.sport += what == SPORT;
            s.dst += what == DST;
            s.id += what == ID ? 700 : 1;
            if (what == OPTIONS)
                s.options += 4;
            n = what == SHORTER ? 999 : what == LONGER ? 1001 : what == EMPTY ? 0 : n;
            if (what == SYN || what == FIN || what == URG || what == PSH)
                s.flags |= what == SYN ? TCP_SYN : what == FIN ? TCP_FIN : what == URG ? TCP_URG : TCP_PSH;
            uint8_t *p = receive(&s, n);
            uint32_t length = lengths[received - 1];
            if (what == WINDOW)
                p[l4 + 15]++;
            if (what == RESERVED)
                p[l4 + 12] |= 1;
            if (what == LABEL)
                p[3]++;
            if (what == FRAGMENT)
                p[6] |= 0x20;
            if (what == WINDOW || what == RESERVED || what == FRAGMENT || what == LABEL)
                naive_finish(p, length, l4);
            if (what == CORRUPT)
                p[length - 1] ^= 1;
            if (what == CORRUPT1)
                first[lengths[0] - 1] ^= 1;
            if (what == CORRUPT_IP)
                p[11] ^= 1;
            if (what == IP_OPTIONS) {
                memmove(p + 24, p + 20, length - 20);
                memset(p + 20, 1, 4);
                p[0] = 0x46;
                lengths[received - 1] = length += 4;
                naive_finish(p, length, 24);
            }
            uint8_t want[2][ROOM];
            for (int i = 0; i < 2; i++)
                memcpy(want[i], store[i] + VNET_HEADER_LEN + 2, lengths[i]);
            add_all();
            if (!CHECK(g.output_count == (merged4[what] ? 1u : 2u)))
                fprintf(stderr, "    difference %d, IPv%d\n", what, six ? 6 : 4);
            write_all();
            if (CHECK(delivered_count == 2))
                for (int i = 0; i < 2; i++) {
                    CHECK_EQ(delivered_len[i], lengths[i]);
                    if (what == ID && i) /* numbered anew */
                        memcpy(want[1] + 4, delivered[1] + 4, 2), memcpy(want[1] + 10, delivered[1] + 10, 2);
                    CHECK_MEM(delivered[i], want[i], lengths[i]);
                }
        }
}

static void flags_that_forbid(void)
{
    for (unsigned flags = 0; flags < 8; flags++)
        for (int udp = 0; udp < 2; udp++) {
            begin(flags);
            struct packet_spec s = base;
            s.protocol = udp ? 17 : 6;
            s.options = 0;
            for (int i = 0; i < 3; i++, s.seq += 100)
                receive(&s, 100);
            add_all();
            bool joins = flags & GRO_VNET && flags & (udp ? GRO_UDP : GRO_TCP);
            CHECK_EQ(g.output_count, joins ? 1 : 3);
            CHECK_EQ(g.output[0].iov[0].iov_len, (flags & GRO_VNET ? VNET_HEADER_LEN : 0) + lengths[0]);
        }
    begin(GRO_VNET | GRO_UDP);
    struct packet_spec s = base;
    s.protocol = 17;
    s.options = 0;
    s.no_checksum = true;
    for (int i = 0; i < 3; i++)
        receive(&s, 100);
    add_all();
    CHECK_EQ(g.output_count, 3); /* checksum 0 is left alone */
}

/* 1 the 65th segment begins anew, 2 so does the byte after 65,535, 3 a flow too many ends another, 4 the batch has an end */
static void limits(void)
{
    begin(GRO_VNET | GRO_TCP);
    struct packet_spec s = base;
    for (int i = 0; i < 130; i++, s.seq += 10)
        receive(&s, 10);
    add_all();
    CHECK_EQ(g.output_count, 3);
    CHECK_EQ(g.output[0].count, 64);
    CHECK_EQ(g.output[2].count, 2);
    CHECK_EQ(g.joined, 127);

    begin(GRO_VNET | GRO_TCP);
    for (int i = 0; i < 50; i++, s.seq += 1900)
        receive(&s, 1900);
    add_all();
    CHECK_EQ(g.output_count, 2);
    CHECK_EQ(g.output[0].count, 34); /* 52 + 34 * 1900 = 64652 */

    begin(GRO_VNET | GRO_TCP);
    for (int round = 0; round < 2; round++, s.seq += 10)
        for (unsigned i = 0; i < GRO_FLOWS + 1; i++) {
            s.sport = (uint16_t)i;
            receive(&s, 10);
        }
    add_all();
    write_all();
    CHECK_EQ(delivered_count, 2 * (GRO_FLOWS + 1));
    CHECK(g.output_count > GRO_FLOWS && g.output_count <= 2 * (GRO_FLOWS + 1));

    begin(GRO_VNET | GRO_TCP);
    for (unsigned i = 0; i < GRO_PACKETS; i++, s.seq += 10) {
        uint8_t *p = receive(&s, 10);
        CHECK(gro_add(&g, p, lengths[i]));
    }
    CHECK(!gro_add(&g, receive(&s, 10), 62));
    gro_finish(&g);
    CHECK_EQ(g.output_count, GRO_PACKETS / GRO_SEGMENTS);
    gro_reset(&g);
    CHECK(gro_add(&g, store[0] + VNET_HEADER_LEN + 2, 62));

    begin(GRO_VNET | GRO_TCP); /* a fragment may be of any flow: none overtakes it */
    s = base;
    receive(&s, 100);
    uint8_t *fragment = receive(&s, 100);
    fragment[7] = 9;
    naive_finish(fragment, lengths[1], 20);
    s.seq += 100;
    receive(&s, 100);
    add_all();
    CHECK_EQ(g.output_count, 3);

    begin(GRO_VNET | GRO_TCP); /* not IP at all: passed on as it is */
    random_fill(store[0], 64);
    store[0][VNET_HEADER_LEN] = 0xf0;
    CHECK(gro_add(&g, store[0] + VNET_HEADER_LEN, 17));
    gro_finish(&g);
    CHECK_EQ(g.output[0].length, 27);
}

static bool same_flow_of(const uint8_t *a, const uint8_t *b)
{
    bool six = a[0] >> 4 == 6;
    return a[0] >> 4 == b[0] >> 4 && a[six ? 6 : 9] == b[six ? 6 : 9] &&
           memcmp(a + (six ? 8 : 12), b + (six ? 8 : 12), six ? 36 : 12) == 0;
}

/* Random traffic of several flows: what comes out of the TUN is, flow by flow, what came in (IPv4 identifications of
 * joined packets aside), whether the writes succeed or are taken apart. */
static void random_streams(void)
{
    static uint8_t want[BATCH][ROOM];
    unsigned joined = 0;
    for (int round = 0; round < 400; round++) {
        begin(GRO_VNET | GRO_TCP | GRO_UDP);
        struct packet_spec flow[6];
        unsigned size[6];
        unsigned flows = 1 + random_below(6), total = 1 + random_below(200);
        for (unsigned i = 0; i < flows; i++) {
            flow[i] = base;
            flow[i].six = random_below(2);
            flow[i].protocol = random_below(3) ? 6 : 17;
            flow[i].options = flow[i].protocol == 6 ? (uint8_t)(4 * random_below(4)) : 0;
            flow[i].sport = (uint16_t)(100 + i);
            size[i] = 1 + random_below(1400);
        }
        for (unsigned k = 0; k < total; k++) {
            unsigned i = random_below(flows);
            struct packet_spec s = flow[i];
            uint32_t n = random_below(12) ? size[i] : random_below(size[i] + 1);
            switch (random_below(40)) {
            case 0:
                s.flags |= TCP_PSH;
                break;
            case 1:
                s.flags |= TCP_FIN;
                break;
            case 2:
                s.seq -= 100;
                break;
            case 3:
                s.tos = 3;
                break;
            case 4:
                flow[i].ack++;
                break;
            case 5:
                s.no_checksum = s.protocol == 17 && !s.six;
                break;
            default:
                break;
            }
            uint8_t *p = receive(&s, n);
            flow[i].seq += n;
            flow[i].id++;
            if (random_below(40) == 0)
                p[lengths[k] - 1] ^= 0x40; /* corrupt: passed on as it is */
            memcpy(want[k], p, lengths[k]);
        }
        add_all();
        if (round % 4 == 0) {
            for (unsigned i = 0; i < g.output_count; i++)
                gro_unjoin(&g, i, write_one, NULL);
        } else {
            write_all();
        }
        joined += g.joined;
        CHECK_EQ(delivered_count, total);
        bool used[BATCH] = {false};
        for (unsigned i = 0; i < delivered_count; i++) {
            unsigned k = 0; /* the oldest packet of the same flow that is not out yet */
            while (k < total && (used[k] || !same_flow_of(want[k], delivered[i])))
                k++;
            if (!CHECK(k < total && delivered_len[i] == lengths[k]))
                break;
            used[k] = true;
            if (want[k][0] >> 4 == 4)
                memcpy(want[k] + 4, delivered[i] + 4, 2), memcpy(want[k] + 10, delivered[i] + 10, 2);
            CHECK(memcmp(delivered[i], want[k], lengths[k]) == 0);
        }
    }
    CHECK(joined > 5000);
}

int main(void)
{
    one_difference();
    flags_that_forbid();
    limits();
    random_streams();
    return check_done();
}
