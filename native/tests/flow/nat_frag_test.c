#include "nat_world.h"

static struct nat *n;
static uint64_t now = 50 * SECOND;
enum { PIECES = 3 };

/* Cuts a packet in three. The id is the packet's own (v4), or `id`. */
static void cut(const struct packet *whole, struct packet piece[PIECES], uint32_t id)
{
    uint32_t l4 = packet_l4(whole), n_data = whole->length - l4, step = n_data / PIECES / 8 * 8, at = 0;
    for (int i = 0; i < PIECES; i++) {
        uint32_t len = i == PIECES - 1 ? n_data - at : step, head = l4 + (whole->six ? 8 : 0);
        struct packet *p = &piece[i];
        *p = *whole;
        memcpy(p->bytes + head, whole->bytes + l4 + at, len);
        p->length = head + len;
        if (whole->six) {
            p->bytes[6] = IP_PROTO_FRAGMENT;
            p->bytes[40] = whole->protocol;
            p->bytes[41] = 0;
            store_be16(p->bytes + 42, (uint16_t)(at | (i < PIECES - 1)));
            store_be32(p->bytes + 44, id);
            store_be16(p->bytes + 4, (uint16_t)(p->length - 40));
        } else {
            store_be16(p->bytes + 2, (uint16_t)p->length);
            store_be16(p->bytes + 4, (uint16_t)id);
            store_be16(p->bytes + 6, (uint16_t)(at / 8 | (i < PIECES - 1 ? 0x2000 : 0)));
            store_be16(p->bytes + 10, 0);
            store_be16(p->bytes + 10, (uint16_t)~naive_sum(0, p->bytes, 20));
        }
        at += len;
    }
}

/* Puts pieces together again as a receiver does; false: they are not one datagram. */
static bool join(struct packet *whole, const struct packet *piece, unsigned count)
{
    *whole = piece[0];
    uint32_t l4 = packet_l4(whole), total = 0, sum = 0, id = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct packet *p = &piece[i];
        struct ip_view v;
        if (ip_parse(&v, p->bytes, p->length) != IP_OK || v.l4 < l4)
            return false;
        if (!p->six && naive_sum(0, p->bytes, 20) != 0xffff)
            return false;
        if (i && v.fragment_id != id)
            return false;
        id = v.fragment_id;
        memcpy(whole->bytes + l4 + v.fragment_offset, p->bytes + v.l4, v.length - v.l4);
        sum += v.length - v.l4;
        if (!v.more)
            total = v.fragment_offset + v.length - v.l4;
    }
    whole->length = l4 + total;
    whole->bytes[6] = whole->six ? whole->protocol : 0;
    if (!whole->six) {
        store_be16(whole->bytes + 2, (uint16_t)whole->length);
        store_be16(whole->bytes + 6, 0);
        store_be16(whole->bytes + 10, 0);
        store_be16(whole->bytes + 10, (uint16_t)~naive_sum(0, whole->bytes, 20));
    } else {
        store_be16(whole->bytes + 4, (uint16_t)(whole->length - 40));
    }
    return sum == total && count == PIECES;
}

static void collect(struct packet *got, unsigned *count, const struct packet *like, bool out)
{
    uint8_t *p;
    bool direction;
    for (size_t len; (len = nat_take(n, &p, &direction));) {
        static const uint8_t zero[VNET_HEADER_LEN];
        CHECK_EQ(direction, out);
        CHECK_MEM(p - VNET_HEADER_LEN, zero, VNET_HEADER_LEN);
        if (!CHECK(*count < PIECES))
            return;
        got[*count] = *like;
        memcpy(got[*count].bytes, p, len);
        got[*count].length = (uint32_t)len;
        ++*count;
    }
}

/* Three fragments in each of the six orders, out and back in. */
static void any_order(bool six, uint8_t protocol)
{
    static const uint8_t orders[6][PIECES] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct nat_config c = world_config(64);
    n = nat_new(&c);
    uint16_t port = 0;
    for (unsigned i = 0; i < 2 * ARRAY_COUNT(orders); i++) {
        bool out = i % 2 == 0;
        struct packet whole, original, piece[PIECES], got[PIECES];
        unsigned count = 0;
        packet_between(&whole, six, protocol, LAN(1), 77, REMOTE(1), 53, TCP_ACK, 1000);
        if (!out)
            packet_between(&whole, six, protocol, REMOTE(1), 53, TUNNEL, port, TCP_ACK, 1000);
        original = whole;
        cut(&whole, piece, 1000 + i / 2);
        for (int k = 0; k < PIECES; k++) {
            struct packet *p = &piece[orders[i / 2][k]];
            enum nat_verdict v = out ? world_out(n, now, p) : world_in(n, now, p);
            if (v == NAT_TRANSLATED)
                got[count++] = *p;
            else
                CHECK_VERDICT(v, NAT_HELD);
            collect(got, &count, p, out);
        }
        CHECK_EQ(count, PIECES);
        CHECK(join(&whole, got, count));
        CHECK_EQ(whole.length, original.length);
        CHECK_VALID(&whole);
        CHECK(packet_is(&whole, !out, out ? TUNNEL : LAN(1)) && packet_is(&whole, out, REMOTE(1)));
        CHECK(memcmp(whole.bytes + packet_l4(&whole) + 20, original.bytes + packet_l4(&whole) + 20,
                     whole.length - packet_l4(&whole) - 20) == 0);
        if (out)
            port = packet_port(&whole, false);
        else if (naive_has_field(protocol))
            CHECK_EQ(packet_port(&whole, true), 77);
    }
    CHECK_EQ(nat_stats(n)->sessions, 1);
    nat_free(n);
}

/* Two hosts send datagrams of one identification to one remote: they leave with two. */
static void equal_ids(bool six)
{
    struct nat_config c = world_config(64);
    n = nat_new(&c);
    struct packet whole, piece[2][PIECES];
    for (unsigned i = 0; i < 2; i++) {
        packet_between(&whole, six, 17, LAN(i), 77, REMOTE(1), 53, 0, 1000);
        cut(&whole, piece[i], 5);
    }
    for (int k = 0; k < PIECES; k++)
        for (unsigned i = 0; i < 2; i++)
            CHECK_VERDICT(world_out(n, now, &piece[i][k]), NAT_TRANSLATED);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(join(&whole, piece[i], PIECES));
        CHECK_VALID(&whole);
    }
    struct ip_view a, b;
    ip_parse(&a, piece[0][1].bytes, piece[0][1].length);
    ip_parse(&b, piece[1][1].bytes, piece[1][1].length);
    CHECK(a.fragment_id != b.fragment_id);
    nat_free(n);
}

/* What was held leaves in the order in which it came, wherever it was held. */
static void held_in_order(void)
{
    struct nat_config c = world_config(64);
    n = nat_new(&c);
    struct packet whole, a[PIECES], b[PIECES];
    packet_between(&whole, false, 17, LAN(1), 77, REMOTE(1), 53, 0, 1001);
    cut(&whole, a, 5);
    cut(&whole, b, 6);
    uint8_t *p;
    bool out;
    CHECK_VERDICT(world_out(n, now, &a[1]), NAT_HELD);
    CHECK_VERDICT(world_out(n, now, &b[2]), NAT_HELD);
    CHECK_VERDICT(world_out(n, now, &a[0]), NAT_TRANSLATED);
    CHECK(nat_take(n, &p, &out) == a[1].length && nat_take(n, &p, &out) == 0);
    CHECK_VERDICT(world_out(n, now, &b[1]), NAT_HELD); /* in the place of a[1], before b[2]'s */
    CHECK_VERDICT(world_out(n, now, &b[0]), NAT_TRANSLATED);
    CHECK_EQ(nat_take(n, &p, &out), b[2].length);
    CHECK_EQ(nat_take(n, &p, &out), b[1].length);
    CHECK(b[1].length != b[2].length);
    nat_free(n);
}

/* 1 what is dropped takes its fragments along, 2 the gateway's pass, 3 the queue has an end, 4 and a time, 5 big ones
 * are not held, 6 a first fragment too short for ports */
static void bounds(bool six)
{
    struct nat_config c = world_config(64);
    n = nat_new(&c);
    struct packet whole, piece[PIECES], p;
    packet_between(&whole, six, 17, LAN(1), 77, REMOTE(1), 53, 0, 100);
    CHECK_VERDICT(world_out(n, now, &whole), NAT_TRANSLATED);
    uint16_t port = packet_port(&whole, false);

    packet_between(&whole, six, 17, REMOTE(2), 53, TUNNEL, port, 0, 1000);
    cut(&whole, piece, 9);
    CHECK_VERDICT(world_in(n, now, &piece[2]), NAT_HELD);
    CHECK_VERDICT(world_in(n, now, &piece[0]), NAT_DROP_FILTERED);
    CHECK_VERDICT(world_in(n, now, &piece[1]), NAT_DROP_FRAGMENT_FILTERED);
    CHECK_EQ(nat_stats(n)->verdict[NAT_DROP_FRAGMENT_FILTERED], 2);
    uint8_t *taken;
    bool out;
    CHECK_EQ(nat_take(n, &taken, &out), 0);

    packet_between(&whole, six, 17, REMOTE(2), 53, TUNNEL, 1, 0, 1000);
    cut(&whole, piece, 10);
    for (int k = 0; k < PIECES; k++)
        CHECK_VERDICT(world_in(n, now, &piece[k]), NAT_LOCAL);

    unsigned held = 0;
    for (uint32_t i = 0; i < 100; i++) {
        packet_between(&whole, six, 17, LAN(1), 77, REMOTE(1), 53, 0, 1000);
        cut(&whole, piece, 100 + i);
        enum nat_verdict v = world_out(n, now, &piece[1]);
        held += v == NAT_HELD;
        CHECK(v == NAT_HELD || v == NAT_DROP_FRAGMENT_FULL);
    }
    CHECK_EQ(held, 32);
    uint64_t next = nat_expire(n, now);
    CHECK(next > now && next <= now + 6 * SECOND);
    CHECK_EQ(nat_stats(n)->verdict[NAT_DROP_FRAGMENT_TIMEOUT], 0);
    nat_expire(n, now + 6 * SECOND);
    CHECK_EQ(nat_stats(n)->verdict[NAT_DROP_FRAGMENT_TIMEOUT], 32);
    CHECK_VERDICT(world_out(n, now + 6 * SECOND, &piece[1]), NAT_HELD);

    packet_between(&whole, six, 17, LAN(1), 77, REMOTE(1), 53, 0, 3900);
    struct packet big[PIECES];
    cut(&whole, big, 7);
    p = big[1];
    p.length = (six ? 48 : 20) + 2048;
    store_be16(p.bytes + (six ? 4 : 2), (uint16_t)(p.length - (six ? 40 : 0)));
    CHECK_VERDICT(world_out(n, now + 6 * SECOND, &p), NAT_DROP_FRAGMENT_FULL);

    packet_between(&whole, six, 6, LAN(1), 78, REMOTE(1), 53, TCP_SYN, 16);
    cut(&whole, piece, 12); /* 16 bytes of TCP in the first */
    CHECK_EQ(piece[0].length, (six ? 48 : 20) + 16);
    CHECK_VERDICT(world_out(n, now + 6 * SECOND, &piece[0]), NAT_DROP_MALFORMED);
    CHECK_VERDICT(world_out(n, now + 6 * SECOND, &piece[1]), NAT_DROP_FRAGMENT_FILTERED);
    nat_free(n);
}

int main(void)
{
    for (int six = 0; six < 2; six++) {
        any_order(six, 17);
        any_order(six, 6);
        any_order(six, 47);
        equal_ids(six);
        bounds(six);
    }
    held_in_order();
    return check_done();
}
