#include "nat_world.h"

static struct packet p, q, original;
static struct nat *n;
static uint64_t now = 1000 * SECOND;

static void begin(uint32_t entries)
{
    struct nat_config c = world_config(entries);
    n = nat_new(&c);
}

static void end(void)
{
    nat_free(n);
}

/* LAN host i, port ap, sends to remote r, port bp: the outside port. */
static uint16_t send_out(bool six, uint8_t protocol, unsigned i, uint16_t ap, unsigned r, uint16_t bp, uint8_t flags)
{
    packet_between(&p, six, protocol, LAN(i), ap, REMOTE(r), bp, flags, 50);
    CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
    return packet_port(&p, false);
}

static enum nat_verdict send_in(bool six, uint8_t protocol, unsigned r, uint16_t rp, uint16_t port, uint8_t flags)
{
    packet_between(&q, six, protocol, REMOTE(r), rp, TUNNEL, port, flags, 50);
    return world_in(n, now, &q);
}

/* 1 a flow goes out with its port, 2 and its answer comes back, 3 byte for byte but for the far end's view */
static void there_and_back(bool six, uint8_t protocol)
{
    begin(64);
    if (protocol == echo_of(six))
        echo_between(&p, six, LAN(1), REMOTE(1), 700, false);
    else
        packet_between(&p, six, protocol, LAN(1), 700, REMOTE(1), 53, TCP_SYN, 33);
    CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
    CHECK(packet_is(&p, false, TUNNEL) && packet_is(&p, true, REMOTE(1)));
    CHECK_EQ(packet_port(&p, false), 700);
    CHECK_VALID(&p);
    packet_answer(&q, &p, TCP_SYN | TCP_ACK);
    CHECK_VERDICT(world_in(n, now, &q), NAT_TRANSLATED);
    CHECK(packet_is(&q, true, LAN(1)) && packet_is(&q, false, REMOTE(1)));
    CHECK_EQ(packet_port(&q, true), 700);
    CHECK_VALID(&q);
    CHECK_EQ(nat_stats(n)->sessions, 1);
    end();
}

/* 1 two hosts with one port get two, 2 each gets its answer, 3 one port to two remotes stays one, 4 a stranger is not
 * let in, 5 the known remote is from another port, 6 but TCP only by SYN, 7 nobody's port is the gateway's */
static void mapping_and_filtering(bool six, uint8_t protocol)
{
    begin(64);
    uint16_t one = send_out(six, protocol, 1, 5000, 1, 80, TCP_SYN),
             two = send_out(six, protocol, 2, 5000, 1, 80, TCP_SYN);
    CHECK(one == 5000 && two != 5000 && two >= 1024);
    CHECK_VERDICT(send_in(six, protocol, 1, 80, two, TCP_SYN | TCP_ACK), NAT_TRANSLATED);
    CHECK(packet_is(&q, true, LAN(2)) && packet_port(&q, true) == 5000);
    CHECK_VERDICT(send_in(six, protocol, 1, 80, one, TCP_SYN | TCP_ACK), NAT_TRANSLATED);
    CHECK(packet_is(&q, true, LAN(1)));
    CHECK_EQ(send_out(six, protocol, 2, 5000, 7, 443, TCP_SYN), two);
    CHECK_VERDICT(send_in(six, protocol, 8, 80, two, TCP_SYN), NAT_DROP_FILTERED);
    CHECK_VERDICT(send_in(six, protocol, 7, 9999, two, TCP_SYN), NAT_TRANSLATED);
    CHECK(packet_is(&q, true, LAN(2)));
    CHECK_VALID(&q);
    CHECK_VERDICT(send_in(six, protocol, 7, 9999, two, TCP_ACK), protocol == 6 ? NAT_DROP_STATE : NAT_TRANSLATED);
    CHECK_VERDICT(send_in(six, protocol, 7, 9999, two, TCP_RST), protocol == 6 ? NAT_DROP_STATE : NAT_TRANSLATED);
    CHECK_VERDICT(send_in(six, protocol, 1, 80, 22, TCP_SYN), NAT_LOCAL);
    CHECK_EQ(nat_stats(n)->verdict[NAT_DROP_FILTERED], 1);
    CHECK_EQ(nat_stats(n)->mappings, 2);
    CHECK_EQ(nat_stats(n)->sessions, 3);
    end();
}

/* 1 the gateway's packet is not changed, 2 its port is not given away, 3 answers and strangers reach it, 4 where a LAN
 * host was first, the gateway's packet gets another port, 5 and its answer comes back to the right one */
static void gateway_itself(bool six)
{
    begin(64);
    packet_between(&p, six, 17, TUNNEL, 4000, REMOTE(1), 123, 0, 20);
    original = p;
    CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
    CHECK_MEM(p.bytes, original.bytes, p.length);
    CHECK(send_out(six, 17, 1, 4000, 1, 123, 0) != 4000);
    CHECK_VERDICT(send_in(six, 17, 1, 123, 4000, 0), NAT_LOCAL);
    CHECK_VERDICT(send_in(six, 17, 2, 1, 4000, 0), NAT_LOCAL);
    CHECK(packet_is(&q, true, TUNNEL));
    CHECK_EQ(send_out(six, 17, 1, 4001, 1, 123, 0), 4001);
    packet_between(&p, six, 17, TUNNEL, 4001, REMOTE(1), 123, 0, 20);
    CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
    uint16_t port = packet_port(&p, false);
    CHECK(port != 4001);
    CHECK_VALID(&p);
    CHECK_VERDICT(send_in(six, 17, 1, 123, port, 0), NAT_TRANSLATED);
    CHECK(packet_is(&q, true, TUNNEL) && packet_port(&q, true) == 4001);
    echo_between(&q, six, REMOTE(5), TUNNEL, 9, false); /* somebody pings the gateway */
    CHECK_VERDICT(world_in(n, now, &q), NAT_LOCAL);
    echo_between(&p, six, TUNNEL, REMOTE(5), 9, true);
    CHECK_VERDICT(world_out(n, now, &p), NAT_PASS);
    end();
}

static void not_ours(void)
{
    begin(64);
    packet_between(&p, false, 17, REMOTE(1), 1, REMOTE(2), 2, 0, 10); /* routed, not in lan= */
    CHECK_VERDICT(world_out(n, now, &p), NAT_PASS);
    CHECK_VERDICT(world_in(n, now, &p), NAT_PASS);
    p.bytes[0] = 0x15;
    CHECK_VERDICT(world_out(n, now, &p), NAT_DROP_MALFORMED);
    packet_between(&p, false, 6, LAN(1), 1, REMOTE(2), 2, TCP_SYN, 0);
    p.bytes[3] = 30; /* TCP cut after 10 bytes */
    CHECK_VERDICT(world_out(n, now, &p), NAT_DROP_MALFORMED);
    packet_between(&p, false, 1, LAN(1), 1, REMOTE(2), 2, 0, 20);
    p.bytes[20] = 13; /* timestamp */
    CHECK_VERDICT(world_out(n, now, &p), NAT_DROP_ICMP_TYPE);
    packet_between(&p, false, 6, LAN(1), 1, REMOTE(2), 2, TCP_RST, 0);
    CHECK_VERDICT(world_out(n, now, &p), NAT_DROP_STATE);
    CHECK_EQ(nat_stats(n)->sessions, 0);
    end();
    struct nat_config c = world_config(64);
    c.source6_set = false;
    n = nat_new(&c);
    packet_between(&p, true, 17, LAN(1), 1, REMOTE(2), 2, 0, 10);
    CHECK_VERDICT(world_out(n, now, &p), NAT_DROP_NO_SOURCE);
    end();
    c.source4_set = false;
    CHECK(!nat_new(&c));
    c = world_config(15);
    CHECK(!nat_new(&c));
}

/* What is idle for exactly its time is still there; a second more and it is gone. `seen`: is that what came in? */
static void idle(const char *what, bool six, uint8_t protocol, unsigned seconds, const uint8_t *script, size_t steps)
{
    for (unsigned more = 0; more < 4; more++) {
        begin(64);
        uint16_t port = 0;
        for (size_t i = 0; i < steps; i += 2) { /* direction, TCP flags */
            if (protocol == echo_of(six)) {
                echo_between(&p, six, LAN(1), REMOTE(1), 7, false);
                world_out(n, now, &p);
                port = packet_port(&p, false);
            } else if (script[i] == 'o') {
                port = send_out(six, protocol, 1, 6000, 1, 80, script[i + 1]);
            } else {
                CHECK_VERDICT(send_in(six, protocol, 1, 80, port, script[i + 1]), NAT_TRANSLATED);
            }
        }
        uint64_t then = now + (seconds + more % 2) * SECOND;
        if (more >= 2)
            nat_expire(n, then);
        if (protocol == echo_of(six))
            echo_between(&q, six, REMOTE(1), TUNNEL, port, true);
        else
            packet_between(&q, six, protocol, REMOTE(1), 80, TUNNEL, port, TCP_ACK, 9);
        enum nat_verdict v = world_in(n, then, &q);
        if (!CHECK((v == NAT_TRANSLATED) == !(more % 2)))
            fprintf(stderr, "    %s, %u + %u s: %s\n", what, seconds, more % 2, nat_verdict_name(v));
        CHECK_EQ(nat_stats(n)->expired, more % 2);
        CHECK_EQ(nat_stats(n)->sessions, !(more % 2));
        CHECK_EQ(nat_stats(n)->mappings, !(more % 2));
        end();
    }
}

static void timeouts(void)
{
#define SCRIPT(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})
    enum { S = TCP_SYN, A = TCP_ACK, SA = TCP_SYN | TCP_ACK, FA = TCP_FIN | TCP_ACK, R = TCP_RST };
    for (int six = 0; six < 2; six++) {
        idle("1 UDP without answer", six, 17, 120, SCRIPT('o', 0));
        idle("2 UDP with answer", six, 17, 300, SCRIPT('o', 0, 'i', 0));
        idle("3 SYN", six, 6, 240, SCRIPT('o', S));
        idle("4 SYN, SYN-ACK", six, 6, 240, SCRIPT('o', S, 'i', SA));
        idle("5 established", six, 6, 7440, SCRIPT('o', S, 'i', SA, 'o', A));
        idle("6 FIN one way", six, 6, 240, SCRIPT('o', S, 'i', SA, 'o', A, 'o', FA));
        idle("7 FIN both ways", six, 6, 240, SCRIPT('o', S, 'i', SA, 'o', A, 'i', FA, 'o', FA, 'i', A));
        idle("8 RST from outside", six, 6, 240, SCRIPT('o', S, 'i', SA, 'o', A, 'i', R));
        idle("9 data after a RST (a forged one)", six, 6, 7440, SCRIPT('o', S, 'i', SA, 'o', A, 'i', R, 'o', A));
        idle("10 found in mid-stream", six, 6, 7440, SCRIPT('o', A, 'i', A));
        idle("11 the port used again", six, 6, 240, SCRIPT('o', S, 'i', SA, 'o', A, 'o', FA, 'i', FA, 'o', S));
        idle("12 and established", six, 6, 7440, SCRIPT('o', S, 'i', SA, 'o', FA, 'i', FA, 'o', S, 'i', SA, 'o', A));
        idle("13 a late SYN of an established one", six, 6, 7440, SCRIPT('o', S, 'i', SA, 'o', A, 'o', S));
        idle("14 echo", six, echo_of(six), 60, SCRIPT('o', 0));
    }
}

static void checksums(void)
{
    for (int six = 0; six < 2; six++) {
        begin(64);
        if (!six) { /* none stays none */
            packet_between(&p, false, 17, LAN(1), 5, REMOTE(1), 6, 0, 10);
            store_be16(p.bytes + 26, 0);
            CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
            CHECK_EQ(load_be16(p.bytes + 26), 0);
            CHECK_VALID(&p);
        }
        for (int protocol = 6; protocol <= 17; protocol += 11) {
            /* out: a partial sum, then the split packet is right; the port changes too (host 2 has host 1's) */
            send_out(six, (uint8_t)protocol, 1, 999, 1, 80, TCP_ACK);
            packet_between(&p, six, (uint8_t)protocol, LAN(2), 999, REMOTE(1), 80, TCP_ACK, 3000);
            uint32_t l4 = packet_l4(&p), field = l4 + (protocol == 6 ? 16 : 6);
            store_be16(p.bytes + field, naive_pseudo(p.bytes, (uint8_t)protocol, p.length - l4));
            struct vnet_header h = {VNET_NEEDS_CSUM,
                                    protocol == 17 ? VNET_UDP_L4 : six ? VNET_TCP6 : VNET_TCP4,
                                    0,
                                    1000,
                                    (uint16_t)l4,
                                    (uint16_t)(field - l4)};
            vnet_write(p.vnet, &h);
            CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
            uint16_t port = packet_port(&p, false);
            CHECK(port != 999);
            struct vnet_split s;
            uint8_t segment[2000];
            CHECK_EQ(vnet_split_begin(&s, p.vnet, p.bytes, p.length), VNET_OK);
            CHECK_EQ(s.count, 3);
            for (size_t len; (len = vnet_split_next(&s, segment));)
                CHECK(naive_valid(segment, (uint32_t)len, l4));

            /* in: a joined packet of which only the first part is at hand */
            packet_between(&q, six, (uint8_t)protocol, REMOTE(1), 80, TUNNEL, port, TCP_ACK, 3000);
            store_be16(q.bytes + field, naive_pseudo(q.bytes, (uint8_t)protocol, q.length - l4));
            memcpy(q.vnet, p.vnet, sizeof q.vnet);
            CHECK_VERDICT(nat_in(n, now, q.vnet, q.bytes, l4 + 1000), NAT_TRANSLATED);
            CHECK(packet_is(&q, true, LAN(2)) && packet_port(&q, true) == 999);
            CHECK_EQ(load_be16(q.bytes + field) % 0xffff,
                     naive_pseudo(q.bytes, (uint8_t)protocol, q.length - l4) % 0xffff);
            CHECK_VERDICT(nat_in(n, now, q.vnet, q.bytes, l4 + 7), NAT_DROP_MALFORMED);
            CHECK_VERDICT(nat_in(n, now, NULL, q.bytes, l4 + 1000), NAT_DROP_MALFORMED);
        }
        packet_between(&p, six, 6, LAN(1), 5, REMOTE(1), 6, TCP_SYN, 10); /* corrupt stays corrupt */
        p.bytes[p.length - 1] ^= 1;
        CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
        CHECK(!naive_valid(p.bytes, p.length, packet_l4(&p)));
        end();
    }
}

/* 1 a full table ends what is closing, 2 then what was never answered, oldest first, 3 established TCP last */
static void full(void)
{
    begin(16);
    for (uint16_t i = 0; i < 8; i++) { /* oldest of all, but established */
        send_out(false, 6, 1, (uint16_t)(100 + i), 1, 80, TCP_SYN);
        send_in(false, 6, 1, 80, (uint16_t)(100 + i), TCP_SYN | TCP_ACK);
        send_out(false, 6, 1, (uint16_t)(100 + i), 1, 80, TCP_ACK);
    }
    for (uint16_t i = 0; i < 8; i++, now += SECOND)
        send_out(false, 17, 1, (uint16_t)(200 + i), 1, 53, 0);
    send_out(false, 6, 1, 100, 1, 80, TCP_FIN | TCP_ACK);
    CHECK_EQ(nat_stats(n)->sessions, 16);
    send_out(false, 17, 2, 300, 1, 53, 0);
    CHECK_EQ(nat_stats(n)->evicted, 1);
    CHECK_VERDICT(send_in(false, 6, 1, 80, 100, TCP_ACK), NAT_LOCAL);
    send_out(false, 17, 2, 301, 1, 53, 0);
    CHECK_VERDICT(send_in(false, 17, 1, 53, 200, 0), NAT_LOCAL);
    CHECK_VERDICT(send_in(false, 17, 1, 53, 201, 0), NAT_TRANSLATED);
    for (uint16_t i = 0; i < 100; i++)
        send_out(false, 17, 3, (uint16_t)(400 + i), 1, 53, 0);
    CHECK_EQ(nat_stats(n)->sessions, 16);
    for (uint16_t i = 1; i < 8; i++)
        CHECK_VERDICT(send_in(false, 6, 1, 80, (uint16_t)(100 + i), TCP_ACK), NAT_TRANSLATED);
    for (uint16_t i = 0; i < 100; i++) /* nothing but established */
        send_out(false, 6, 4, (uint16_t)(500 + i), 1, 80, TCP_ACK),
            send_in(false, 6, 1, 80, packet_port(&p, false), TCP_ACK);
    CHECK_EQ(nat_stats(n)->sessions, 16);
    end();
}

static void ports(void)
{
    struct nat_config c = world_config(1024);
    c.port_low = 20000;
    c.port_high = 20003;
    n = nat_new(&c);
    for (unsigned i = 0; i < 4; i++) {
        uint16_t port = send_out(false, 6, i, 7, 1, 80, TCP_SYN);
        CHECK(port >= 20000 && port <= 20003);
        send_in(false, 6, 1, 80, port, TCP_SYN | TCP_ACK);
        send_out(false, 6, i, 7, 1, 80, TCP_ACK);
    }
    packet_between(&p, false, 6, LAN(9), 7, REMOTE(1), 80, TCP_SYN, 0); /* all four are established */
    CHECK_VERDICT(world_out(n, now, &p), NAT_DROP_PORTS);
    for (unsigned i = 0; i < 9; i++) /* those never answered give theirs up */
        send_out(false, 17, i, 7, 1, 53, 0);
    CHECK_EQ(nat_stats(n)->evicted, 5);
    end();

    c = world_config(1024);
    c.parity = true;
    n = nat_new(&c);
    for (unsigned i = 0; i < 50; i++) {
        CHECK_EQ(send_out(false, 17, i, 5004, 1, 80, 0) & 1, 0);
        CHECK_EQ(send_out(false, 17, i, 5005, 1, 80, 0) & 1, 1);
    }
    CHECK(send_out(false, 17, 1, 500, 1, 80, 0) == 500);
    uint16_t port = send_out(false, 17, 2, 500, 1, 80, 0); /* a system port stays one */
    CHECK(port >= 512 && port < 1024);
    CHECK(send_out(false, 17, 2, 0, 1, 80, 0) != 0);
    end();
}

/* 1 by address alone, 2 one host per remote and protocol, 3 free again after ten minutes */
static void other_protocols(void)
{
    for (int six = 0; six < 2; six++) {
        begin(64);
        packet_between(&p, six, 47, LAN(1), 1, REMOTE(1), 1, 0, 30);
        CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
        CHECK(packet_is(&p, false, TUNNEL));
        CHECK_VALID(&p);
        packet_between(&p, six, 50, LAN(2), 1, REMOTE(1), 1, 0, 30);
        CHECK_VERDICT(world_out(n, now, &p), NAT_TRANSLATED);
        packet_between(&p, six, 47, LAN(2), 1, REMOTE(1), 1, 0, 30);
        CHECK_VERDICT(world_out(n, now, &p), NAT_DROP_TAKEN);
        packet_between(&q, six, 50, REMOTE(1), 1, TUNNEL, 1, 0, 30);
        CHECK_VERDICT(world_in(n, now, &q), NAT_TRANSLATED);
        CHECK(packet_is(&q, true, LAN(2)));
        packet_between(&q, six, 47, REMOTE(2), 1, TUNNEL, 1, 0, 30);
        CHECK_VERDICT(world_in(n, now, &q), NAT_LOCAL);
        packet_between(&p, six, 47, LAN(2), 1, REMOTE(1), 1, 0, 30);
        CHECK_VERDICT(world_out(n, now + 601 * SECOND, &p), NAT_TRANSLATED);
        end();
    }
}

static void clock_jumps(void)
{
    begin(64);
    uint16_t port = send_out(false, 17, 1, 5, 1, 53, 0);
    uint64_t kept = now;
    now -= 500 * SECOND; /* a step back is a standstill */
    CHECK_VERDICT(send_in(false, 17, 1, 53, port, 0), NAT_TRANSLATED);
    nat_expire(n, 0);
    CHECK_EQ(nat_stats(n)->sessions, 1);
    for (unsigned i = 0; i < 60; i++)
        send_out(false, 17, 2, (uint16_t)(100 + i), 1, 53, 0);
    now = kept + 3600ull * 24 * 365 * 50 * SECOND; /* fifty years on, everything has ended, a few at a time */
    CHECK_EQ(nat_expire(n, now), UINT64_MAX);
    CHECK_EQ(nat_stats(n)->sessions, 0);
    send_out(false, 17, 1, 5, 1, 53, 0);
    CHECK(nat_expire(n, now) > now && nat_expire(n, now) <= now + 122 * SECOND);
    now = kept;
    end();
    begin(1024);
    for (unsigned i = 0; i < 1000; i++)
        send_out(false, 17, 2, (uint16_t)(1 + i), 1, 53, 0);
    unsigned calls = 1;
    while (nat_expire(n, now + 1000 * SECOND) == now + 1000 * SECOND)
        calls++;
    CHECK_EQ(nat_stats(n)->sessions, 0);
    CHECK(calls > 10 && calls < 20);
    end();
}

static void configured_anew(void)
{
    begin(64);
    uint16_t four = send_out(false, 17, 1, 5, 1, 53, 0), six = send_out(true, 17, 1, 5, 1, 53, 0);
    struct nat_config c = world_config(64);
    c.seed = 1;
    CHECK(nat_configure(n, &c));
    CHECK_VERDICT(send_in(false, 17, 1, 53, four, 0), NAT_TRANSLATED);
    c.source4[3]++;
    CHECK(nat_configure(n, &c));
    CHECK_VERDICT(send_in(false, 17, 1, 53, four, 0), NAT_PASS);
    CHECK_VERDICT(send_in(true, 17, 1, 53, six, 0), NAT_TRANSLATED);
    c.entries = 65;
    CHECK(!nat_configure(n, &c));
    end();
}

/* Random flows of all kinds through a table that never has room for all: what leaves is right and unlike every other
 * flow that is alive; its answer, if it is let in, becomes exactly what the LAN host would have been sent without a NAT. */
static void random_flows(void)
{
    begin(200);
    unsigned back = 0, gone = 0;
    for (int i = 0; i < 60000; i++) {
        bool six = random_below(2);
        uint8_t protocol = (const uint8_t[]){6, 17, echo_of(six), 47}[random_below(4)];
        unsigned lan = random_below(6), remote = random_below(5);
        uint16_t ap = (uint16_t)(1 + random_below(60)), bp = (uint16_t)(1 + random_below(4));
        uint8_t flags = (const uint8_t[]){TCP_SYN, TCP_ACK, TCP_ACK | TCP_FIN, TCP_ACK | TCP_PSH}[random_below(4)];
        if (protocol == echo_of(six))
            echo_between(&p, six, LAN(lan), REMOTE(remote), ap, false);
        else
            packet_between(&p, six, protocol, LAN(lan), ap, REMOTE(remote), bp, flags, random_below(100));
        original = p;
        enum nat_verdict v = world_out(n, now, &p);
        if (protocol == 47 && v == NAT_DROP_TAKEN) {
            CHECK_MEM(p.bytes, original.bytes, p.length);
            gone++;
            continue;
        }
        CHECK_VERDICT(v, NAT_TRANSLATED);
        CHECK(packet_is(&p, false, TUNNEL) && packet_is(&p, true, REMOTE(remote)));
        CHECK_VALID(&p);
        packet_answer(&q, &p, TCP_ACK);
        struct packet want;
        packet_answer(&want, &original, TCP_ACK); /* the same answer to the LAN host itself */
        memcpy(want.bytes + packet_l4(&want) + 8, q.bytes + packet_l4(&q) + 8, q.length - packet_l4(&q) - 8);
        memcpy(want.bytes + packet_l4(&want) + 4, q.bytes + packet_l4(&q) + 4, protocol == 6 ? 4 : 0);
        want.bytes[5] = q.bytes[5];
        if (!six)
            want.bytes[4] = q.bytes[4];
        naive_finish(want.bytes, want.length, packet_l4(&want));
        v = world_in(n, now, &q);
        CHECK_VERDICT(v, NAT_TRANSLATED);
        CHECK_MEM(q.bytes, want.bytes, want.length);
        back++;
        now += random_below(3) ? 0 : random_below(1000) * SECOND / 100;
        if (i % 50 == 0)
            nat_expire(n, now);
        const struct nat_stats *s = nat_stats(n);
        CHECK(s->sessions <= 200 && s->mappings <= s->sessions);
        CHECK_EQ(s->created - s->expired - s->evicted, s->sessions);
    }
    CHECK(back > 40000 && gone > 100 && nat_stats(n)->evicted > 1000 && nat_stats(n)->expired > 100);
    end();
}

int main(void)
{
    for (int six = 0; six < 2; six++) {
        there_and_back(six, 6);
        there_and_back(six, 17);
        there_and_back(six, echo_of(six));
        mapping_and_filtering(six, 6);
        mapping_and_filtering(six, 17);
        gateway_itself(six);
    }
    not_ours();
    timeouts();
    checksums();
    full();
    ports();
    other_protocols();
    clock_jumps();
    configured_anew();
    random_flows();
    return check_done();
}
