/* The NAT tests' world: LAN hosts, remotes, the tunnel address, and packets between them, for both families. */
#ifndef FV_TESTS_FLOW_NAT_WORLD_H
#define FV_TESTS_FLOW_NAT_WORLD_H

#include "../check.h"
#include "../wire/packets.h"
#include "flow/nat.h"

#define SECOND 1000000000ull

struct host {
    uint8_t v4[4], v6[16];
};

static inline struct host host_make(uint8_t net, uint16_t number)
{
    struct host h = {{10, net, (uint8_t)(number >> 8), (uint8_t)number}, {0xfd, net}};
    h.v6[14] = (uint8_t)(number >> 8);
    h.v6[15] = (uint8_t)number;
    return h;
}
#define LAN(i) host_make(1, (uint16_t)(i))
#define REMOTE(i) host_make(2, (uint16_t)(i))
#define TUNNEL host_make(9, 2)

static inline const uint8_t *host_address(const struct host *h, bool six)
{
    return six ? h->v6 : h->v4;
}

static inline struct nat_config world_config(uint32_t entries)
{
    struct nat_config c = {.source4_set = true, .source6_set = true, .lan_count = 2, .entries = entries, .seed = 12345};
    struct host t = TUNNEL;
    memcpy(c.source4, t.v4, 4);
    memcpy(c.source6, t.v6, 16);
    prefix_parse(&c.lan[0], "10.1.0.0/16", 11);
    prefix_parse(&c.lan[1], "fd01::/16", 9);
    return c;
}

struct packet {
    uint8_t vnet[VNET_HEADER_LEN];
    bool six;
    uint8_t protocol;
    uint32_t length;
    uint8_t bytes[4096];
};

static inline uint32_t packet_l4(const struct packet *p)
{
    return p->six ? 40 : 20;
}

/* From host a, port ap, to host b, port bp; an echo has identifier ap (or bp, when it is a reply). */
static inline void packet_between(struct packet *p, bool six, uint8_t protocol, struct host a, uint16_t ap,
                                  struct host b, uint16_t bp, uint8_t flags, uint32_t n)
{
    struct packet_spec s = {.six = six,
                            .protocol = protocol,
                            .ttl = 60,
                            .flags = flags,
                            .sport = ap,
                            .dport = bp,
                            .id = (uint16_t)random_u32(),
                            .seq = random_u32(),
                            .options = protocol == 6 ? 12 : 0};
    memset(p, 0, sizeof *p);
    p->six = six;
    p->protocol = protocol;
    p->length = packet_make(p->bytes, &s, NULL, n);
    memcpy(ip_src_edit(six ? 6 : 4, p->bytes), host_address(&a, six), six ? 16 : 4);
    memcpy(ip_dst_edit(six ? 6 : 4, p->bytes), host_address(&b, six), six ? 16 : 4);
    naive_finish(p->bytes, p->length, packet_l4(p));
}

static inline uint8_t echo_of(bool six)
{
    return six ? IP_PROTO_ICMP6 : IP_PROTO_ICMP;
}

static inline void echo_between(struct packet *p, bool six, struct host a, struct host b, uint16_t id, bool reply)
{
    packet_between(p, six, echo_of(six), a, id, b, 1, 0, 48);
    if (reply)
        p->bytes[packet_l4(p)] = six ? 129 : 0;
    naive_finish(p->bytes, p->length, packet_l4(p));
}

static inline uint16_t packet_port(const struct packet *p, bool dst)
{
    if (p->protocol == echo_of(p->six))
        return load_be16(p->bytes + packet_l4(p) + 4);
    return load_be16(p->bytes + packet_l4(p) + (dst ? 2 : 0));
}

static inline bool packet_is(const struct packet *p, bool dst, struct host h)
{
    return memcmp(dst ? ip_dst(p->six ? 6 : 4, p->bytes) : ip_src(p->six ? 6 : 4, p->bytes), host_address(&h, p->six),
                  p->six ? 16 : 4) == 0;
}

static inline enum nat_verdict world_out(struct nat *n, uint64_t now, struct packet *p)
{
    return nat_out(n, now, p->vnet, p->bytes, p->length);
}

static inline enum nat_verdict world_in(struct nat *n, uint64_t now, struct packet *p)
{
    return nat_in(n, now, p->vnet, p->bytes, p->length);
}

/* The answer to a packet that left: ends swapped, fresh payload. */
static inline void packet_answer(struct packet *q, const struct packet *p, uint8_t flags)
{
    struct host a = {{0}, {0}}, b = a;
    memcpy(p->six ? a.v6 : a.v4, ip_dst(p->six ? 6 : 4, p->bytes), p->six ? 16 : 4);
    memcpy(p->six ? b.v6 : b.v4, ip_src(p->six ? 6 : 4, p->bytes), p->six ? 16 : 4);
    if (p->protocol == echo_of(p->six))
        echo_between(q, p->six, a, b, packet_port(p, false), true);
    else
        packet_between(q, p->six, p->protocol, a, packet_port(p, true), b, packet_port(p, false), flags, 80);
}

#define CHECK_VERDICT(got, want) \
    do { \
        enum nat_verdict verdict_g = (got), verdict_w = (want); \
        if (!check_report(verdict_g == verdict_w, __FILE__, __LINE__, #got " == " #want)) \
            fprintf(stderr, "    got %s, want %s\n", nat_verdict_name(verdict_g), nat_verdict_name(verdict_w)); \
    } while (0)

#define CHECK_VALID(p) CHECK(naive_valid((p)->bytes, (p)->length, packet_l4(p)))

#endif
