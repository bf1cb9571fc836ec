#include "../check.h"
#include "gso_vectors.h"
#include "packets.h"
#include "wire/vnet.h"

static uint8_t packet[65536], segment[65536];
static struct vnet_split s;

static void header(uint8_t out[10], uint8_t flags, uint8_t type, uint16_t size, uint16_t start, uint16_t offset)
{
    struct vnet_header h = {flags, type, 0, size, start, offset};
    vnet_write(out, &h);
}

/* The kernel's own segmentation, byte for byte. The header's numbers are little-endian in the file. */
static void vectors(void)
{
    for (size_t i = 0; i < ARRAY_COUNT(gso_vectors); i++) {
        const struct gso_vector *t = &gso_vectors[i];
        const uint8_t *b = t->header;
        uint8_t h[10];
        header(h, b[0], b[1], load_le16(b + 4), load_le16(b + 6), load_le16(b + 8));
        memcpy(packet, t->packet, t->packet_len);
        CHECK_EQ(vnet_split_begin(&s, h, packet, t->packet_len), VNET_OK);
        CHECK_EQ(s.count, t->count);
        const uint8_t *want = t->segments;
        for (unsigned k = 0; k < t->count; k++) {
            size_t n = vnet_split_next(&s, segment);
            if (!CHECK(n == t->lengths[k]) || !CHECK(memcmp(segment, want, n) == 0))
                fprintf(stderr, "    '%s', segment %u\n", t->name, k);
            CHECK(n <= s.segment_max);
            want += t->lengths[k];
        }
        CHECK_EQ(vnet_split_next(&s, segment), 0);
        CHECK(memcmp(packet, t->packet, t->packet_len) == 0);
    }
}

/* A partial checksum is finished, in place and in a copy; a plain packet stays what it is. */
static void singles(void)
{
    for (int i = 0; i < 400; i++) {
        struct packet_spec spec = {.six = i & 1,
                                   .protocol = i & 2 ? 6 : 17,
                                   .ttl = 64,
                                   .src = 1,
                                   .dst = 2,
                                   .sport = 5,
                                   .dport = (uint16_t)i,
                                   .flags = TCP_SYN,
                                   .options = i & 2 ? 20 : 0};
        uint32_t n = packet_make(packet, &spec, NULL, random_below(1400)), l4 = spec.six ? 40 : 20;
        uint8_t whole[2000], h[10];
        memcpy(whole, packet, n);
        header(h, 0, 0, 0, 0, 0);
        CHECK_EQ(vnet_split_begin(&s, h, packet, n), VNET_OK);
        CHECK_EQ(s.count, 1);
        CHECK_EQ(vnet_split_next(&s, segment), n);
        CHECK(memcmp(segment, whole, n) == 0);

        uint16_t offset = spec.protocol == 6 ? 16 : 6;
        store_be16(packet + l4 + offset, naive_pseudo(packet, spec.protocol, n - l4));
        header(h, VNET_NEEDS_CSUM, 0, 0, (uint16_t)l4, offset);
        CHECK_EQ(vnet_split_begin(&s, h, packet, n), VNET_OK);
        CHECK_EQ(s.segment_max, n);
        memset(segment, 0x5a, n + 1);
        CHECK_EQ(vnet_split_next(&s, segment), n);
        CHECK_MEM(segment, whole, n);
        CHECK_EQ(segment[n], 0x5a);
        CHECK_EQ(vnet_split_begin(&s, h, packet, n), VNET_OK);
        CHECK_EQ(vnet_split_in_place(&s), n);
        CHECK_MEM(packet, whole, n);

        /* a super-packet of one segment is a packet */
        store_be16(packet + l4 + offset, naive_pseudo(packet, spec.protocol, n - l4));
        header(h, VNET_NEEDS_CSUM,
               spec.protocol == 17 ? VNET_UDP_L4
               : spec.six          ? VNET_TCP6
                                   : VNET_TCP4,
               1500, (uint16_t)l4, offset);
        CHECK_EQ(vnet_split_begin(&s, h, packet, n), VNET_OK);
        CHECK_EQ(s.count, 1);
        CHECK_EQ(vnet_split_next(&s, segment), n);
        CHECK_MEM(segment, whole, n);
    }
}

static void refused(void)
{
    static const struct {
        const char *why;
        uint8_t flags, type;
        uint16_t size, start, offset;
        enum vnet_error e;
    } cases[] = {
        {"1 a type without a size", 1, VNET_TCP4, 0, 20, 16, VNET_SIZE},
        {"2 TCPv6 on IPv4", 1, VNET_TCP6, 100, 20, 16, VNET_TYPE},
        {"3 UDP on TCP", 1, VNET_UDP_L4, 100, 20, 6, VNET_TYPE},
        {"4 UFO", 1, VNET_UDP, 100, 20, 6, VNET_TYPE},
        {"5 unknown type", 1, 7, 100, 20, 16, VNET_TYPE},
        {"6 ECN bit alone", 1, VNET_ECN, 100, 20, 16, VNET_TYPE},
        {"7 csum_start inside the IP header", 1, 0, 0, 19, 16, VNET_CHECKSUM},
        {"8 csum_start not the TCP header", 1, VNET_TCP4, 100, 22, 16, VNET_CHECKSUM},
        {"9 csum_offset not TCP's", 1, VNET_TCP4, 100, 20, 6, VNET_CHECKSUM},
        {"10 csum_start beyond the packet", 1, 0, 0, 1040, 0, VNET_CHECKSUM},
        {"11 csum_offset beyond the packet", 1, 0, 0, 20, 1019, VNET_CHECKSUM},
        {"12 sums that wrap", 1, 0, 0, 65535, 65535, VNET_CHECKSUM},
        {"13 the last place there is", 1, 0, 0, 20, 1018, VNET_OK},
        {"14 with the ECN bit", 1, VNET_TCP4 | VNET_ECN, 100, 20, 16, VNET_OK},
    };
    struct packet_spec spec = {.protocol = 6, .flags = TCP_ACK};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint32_t n = packet_make(packet, &spec, NULL, 1000);
        uint8_t h[10];
        header(h, cases[i].flags, cases[i].type, cases[i].size, cases[i].start, cases[i].offset);
        enum vnet_error e = vnet_split_begin(&s, h, packet, n);
        if (!CHECK(e == cases[i].e))
            fprintf(stderr, "    case %s: %s\n", cases[i].why, vnet_error_name(e));
    }
    uint8_t h[10];
    header(h, 1, VNET_TCP4, 100, 20, 16);
    packet_make(packet, &spec, NULL, 1000);
    packet[6] = 0x20;
    CHECK_EQ(vnet_split_begin(&s, h, packet, 1040), VNET_FRAGMENT);
    CHECK_EQ(vnet_split_begin(&s, h, packet, 1039), VNET_PACKET);
    CHECK_EQ(vnet_split_begin(&s, h, packet, 0), VNET_PACKET);
}

/* Any super-packet: every segment is a right packet, and together they are the whole. */
static void random_supers(void)
{
    static uint8_t payload[65536];
    for (int i = 0; i < 3000; i++) {
        bool tcp = random_below(2), six = random_below(2), partial = random_below(4) != 0;
        struct packet_spec spec = {.six = six,
                                   .protocol = tcp ? 6 : 17,
                                   .ttl = 64,
                                   .tos = (uint8_t)random_u32(),
                                   .src = 1,
                                   .dst = 2,
                                   .sport = (uint16_t)random_u32(),
                                   .dport = 9,
                                   .id = (uint16_t)random_u32(),
                                   .seq = random_u32(),
                                   .ack = random_u32(),
                                   .flags = (uint8_t)random_u32() & (TCP_FIN | TCP_PSH | TCP_ACK | TCP_CWR | TCP_ECE),
                                   .options = tcp ? (uint8_t)(4 * random_below(11)) : 0};
        uint32_t l4 = six ? 40 : 20, head = l4 + (tcp ? 20u + spec.options : 8);
        uint32_t n = 1 + random_below(i % 8 ? 9000 : 65535 - head), size = 1 + random_below(i % 3 ? 1460 : n + 10);
        random_fill(payload, n);
        uint32_t length = packet_make(packet, &spec, payload, n);
        uint16_t field = tcp ? 16 : 6;
        if (partial)
            store_be16(packet + l4 + field, naive_pseudo(packet, spec.protocol, length - l4));
        uint8_t h[10];
        header(h, partial ? VNET_NEEDS_CSUM : 0, tcp ? (six ? VNET_TCP6 : VNET_TCP4) : VNET_UDP_L4, (uint16_t)size,
               (uint16_t)l4, field);
        CHECK_EQ(vnet_split_begin(&s, h, packet, length), VNET_OK);
        CHECK_EQ(s.count, (n + size - 1) / size);
        uint32_t at = 0;
        for (unsigned k = 0; k < s.count; k++) {
            size_t got = vnet_split_next(&s, segment);
            uint32_t want = MIN(size, n - at);
            CHECK_EQ(got, head + want);
            CHECK(naive_valid(segment, (uint32_t)got, l4));
            CHECK(memcmp(segment + head, payload + at, want) == 0);
            struct packet_spec one = spec;
            one.id = (uint16_t)(spec.id + k);
            one.seq = spec.seq + at;
            if (k)
                one.flags &= (uint8_t)~TCP_CWR;
            if (k + 1 < s.count)
                one.flags &= (uint8_t)~(TCP_PSH | TCP_FIN);
            uint8_t expect[200];
            packet_make(expect, &one, payload + at, 0); /* headers alone, lengths and sums of the segment */
            memcpy(expect + (six ? 4 : 2), segment + (six ? 4 : 2), 2);
            if (!six)
                memcpy(expect + 10, segment + 10, 2);
            if (!tcp)
                memcpy(expect + l4 + 4, segment + l4 + 4, 2);
            memcpy(expect + l4 + field, segment + l4 + field, 2);
            CHECK_MEM(segment, expect, head);
            at += want;
        }
        CHECK_EQ(at, n);
    }
}

int main(void)
{
    vectors();
    singles();
    refused();
    random_supers();
    struct vnet_header a = {1, 4, 0x1234, 0x5678, 0x9abc, 0xdef0}, b;
    uint8_t bytes[10];
    vnet_write(bytes, &a);
    vnet_read(&b, bytes);
    CHECK(a.hdr_len == b.hdr_len && a.gso_size == b.gso_size && a.csum_start == b.csum_start &&
          a.csum_offset == b.csum_offset && a.flags == b.flags && a.gso_type == b.gso_type);
    return check_done();
}
