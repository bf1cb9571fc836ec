#include "nat_world.h"

static struct nat *n;
static uint64_t now = 50 * SECOND;

/* An ICMP error of `from` to `to` about the first `quoted` bytes of a packet. */
static void error_about(struct packet *e, struct host from, struct host to, const struct packet *about, uint32_t quoted)
{
    bool six = about->six;
    quoted = MIN(quoted, about->length);
    packet_between(e, six, echo_of(six), from, 0, to, 0, 0, quoted);
    uint8_t *icmp = e->bytes + packet_l4(e);
    icmp[0] = six ? 1 : 3;
    icmp[1] = six ? 4 : 3;
    memset(icmp + 4, 0, 4);
    memcpy(icmp + 8, about->bytes, quoted);
    naive_finish(e->bytes, e->length, packet_l4(e));
}

static const uint8_t *embedded(const struct packet *e)
{
    return e->bytes + packet_l4(e) + 8;
}

/* What is quoted of a packet, checksums of cut packets as they were in the whole. */
static void compare(const struct packet *e, const struct packet *want, uint32_t quoted)
{
    CHECK_MEM(embedded(e), want->bytes, MIN(quoted, want->length));
    CHECK_VALID(e);
}

/* 1 an error about what left goes back to the sender and quotes its own packet, 2 an error about what came in leaves
 * from the tunnel address and quotes what the remote had sent; whole or cut after 8 transport bytes; with a changed port */
static void both_ways(bool six, uint8_t protocol, uint32_t quoted, bool checksum)
{
    struct nat_config c = world_config(64);
    n = nat_new(&c);
    for (unsigned lan = 1; lan < 3; lan++) {
        struct packet sent, out, in, received, e;
        if (protocol == echo_of(six))
            echo_between(&sent, six, LAN(lan), REMOTE(1), 77, false);
        else
            packet_between(&sent, six, protocol, LAN(lan), 77, REMOTE(lan), 53, TCP_SYN, 30);
        if (!checksum)
            store_be16(sent.bytes + packet_l4(&sent) + 6, 0);
        out = sent;
        CHECK_VERDICT(world_out(n, now, &out), NAT_TRANSLATED);
        error_about(&e, REMOTE(9), TUNNEL, &out, quoted);
        CHECK_VERDICT(world_in(n, now, &e), NAT_TRANSLATED);
        CHECK(packet_is(&e, true, LAN(lan)) && packet_is(&e, false, REMOTE(9)));
        compare(&e, &sent, quoted);

        packet_answer(&in, &out, TCP_SYN | TCP_ACK);
        received = in;
        CHECK_VERDICT(world_in(n, now, &received), NAT_TRANSLATED);
        error_about(&e, LAN(lan), REMOTE(lan), &received, quoted);
        CHECK_VERDICT(world_out(n, now, &e), NAT_TRANSLATED);
        CHECK(packet_is(&e, false, TUNNEL) && packet_is(&e, true, REMOTE(lan)));
        compare(&e, &in, quoted);

        error_about(&e, REMOTE(200), REMOTE(lan), &received,
                    quoted); /* a router of the LAN with another net's address */
        CHECK_VERDICT(world_out(n, now, &e), NAT_TRANSLATED);
        CHECK(packet_is(&e, false, TUNNEL));
        compare(&e, &in, quoted);
        CHECK_EQ(nat_stats(n)->sessions, lan);
    }
    nat_free(n);
}

static void refused(bool six)
{
    struct nat_config c = world_config(64);
    n = nat_new(&c);
    struct packet out, e, about;
    uint32_t l4 = six ? 40 : 20;
    packet_between(&out, six, 17, LAN(1), 77, REMOTE(1), 53, 0, 30);
    world_out(n, now, &out);

    error_about(&e, REMOTE(9), TUNNEL, &out, l4 + 7); /* 1 ports cut off */
    CHECK_VERDICT(world_in(n, now, &e), NAT_DROP_ICMP_INNER);
    error_about(&e, REMOTE(9), TUNNEL, &out, 19); /* 2 not even an IP header */
    CHECK_VERDICT(world_in(n, now, &e), NAT_DROP_ICMP_INNER);
    about = out;
    about.bytes[0] = six ? 0x45 : 0x65; /* 3 the other family inside */
    error_about(&e, REMOTE(9), TUNNEL, &about, 60);
    CHECK_VERDICT(world_in(n, now, &e), NAT_DROP_ICMP_INNER);
    packet_between(&about, six, 17, TUNNEL, 77, REMOTE(2), 53, 0, 30); /* 4 a remote that was not talked to */
    error_about(&e, REMOTE(9), TUNNEL, &about, 60);
    CHECK_VERDICT(world_in(n, now, &e), NAT_DROP_ICMP_UNKNOWN);
    packet_between(&about, six, 17, TUNNEL, 99, REMOTE(1), 53, 0, 30); /* 5 nobody's port: for the gateway */
    error_about(&e, REMOTE(9), TUNNEL, &about, 60);
    CHECK_VERDICT(world_in(n, now, &e), NAT_LOCAL);
    packet_between(&about, six, 17, REMOTE(5), 77, REMOTE(1), 53, 0, 30); /* 6 a packet that was never ours */
    error_about(&e, REMOTE(9), TUNNEL, &about, 60);
    CHECK_VERDICT(world_in(n, now, &e), NAT_DROP_ICMP_UNKNOWN);
    packet_between(&about, six, 17, REMOTE(3), 53, LAN(1), 77, 0, 30); /* 7 out: about a flow that is not */
    error_about(&e, LAN(1), REMOTE(3), &about, 60);
    CHECK_VERDICT(world_out(n, now, &e), NAT_DROP_ICMP_UNKNOWN);
    error_about(&about, REMOTE(9), TUNNEL, &out, 60); /* 8 an error about an error */
    error_about(&e, REMOTE(9), TUNNEL, &about, 200);
    CHECK_VERDICT(world_in(n, now, &e), NAT_DROP_ICMP_INNER);

    packet_between(&out, six, 17, TUNNEL, 500, REMOTE(1), 53, 0, 30); /* 9 about the gateway's own: as it is */
    world_out(n, now, &out);
    error_about(&e, REMOTE(9), TUNNEL, &out, 60);
    about = e;
    CHECK_VERDICT(world_in(n, now, &e), NAT_LOCAL);
    CHECK_MEM(e.bytes, about.bytes, e.length);
    packet_between(&about, six, 17, REMOTE(1), 5, TUNNEL, 9, 0, 30); /* 10 the gateway's port unreachable */
    error_about(&e, TUNNEL, REMOTE(1), &about, 60);
    CHECK_VERDICT(world_out(n, now, &e), NAT_PASS);
    nat_free(n);
}

int main(void)
{
    for (int six = 0; six < 2; six++) {
        uint32_t l4 = six ? 40 : 20;
        for (int cut = 0; cut < 3; cut++) {
            uint32_t quoted = cut == 0 ? 4000 : cut == 1 ? l4 + 8 : l4 + 19;
            both_ways(six, 6, quoted, true);
            both_ways(six, 17, quoted, true);
            both_ways(six, echo_of(six), quoted, true);
            both_ways(six, 17, quoted, six);
        }
        refused(six);
    }
    return check_done();
}
