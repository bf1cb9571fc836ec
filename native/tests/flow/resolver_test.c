/* The resolver without a socket: a script of servers' answers, and a clock that the test turns. */
#include <errno.h>

#include "flow/resolver.h"
#include "tests/check.h"
#include "wire/bytes.h"

#define MS 1000000ull
#define S 1000000000ull

static struct resolver *r;
static uint64_t now;
static uint32_t seed;

/* Not random: the test must be able to tell one attempt's id from the next. */
static void numbers(void *context, void *bytes, size_t n)
{
    (void)context;
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)((seed = seed * 1103515245 + 12345) >> 16);
}

static struct addr address(const char *text)
{
    struct addr a;

    CHECK_EQ(addr_parse_ip(&a, text, strlen(text)), TEXT_OK);
    return a;
}

static void start(unsigned servers)
{
    static const char *const all[] = {"192.0.2.1", "192.0.2.2", "2001:db8::53"};

    resolver_free(r);
    r = resolver_new(numbers, NULL);
    CHECK(r != NULL);
    now = 1000 * S;
    for (unsigned i = 0; i < servers; i++) {
        struct addr a = address(all[i]);
        CHECK_EQ(resolver_add_server(r, &a), 0);
    }
}

/* What the resolver has asked the edge for since the last look. */
struct sent {
    bool tcp;
    unsigned slot;
    uint16_t id, type;
    struct addr server;
    uint8_t question[300];
    size_t length;
};
static struct sent sent[RESOLVER_SLOTS];
static unsigned sent_count, closed_count, done_count;
static struct resolver_result done[RESOLVER_LOOKUPS];

static void look(void)
{
    struct resolver_action a;

    sent_count = closed_count = done_count = 0;
    while (resolver_next(r, &a)) {
        if (a.kind == RESOLVER_DONE) {
            done[done_count++] = a.result;
        } else if (a.kind == RESOLVER_CLOSE) {
            closed_count++;
        } else {
            struct sent *s = &sent[sent_count++];
            const uint8_t *q = a.bytes + (a.kind == RESOLVER_SEND_TCP ? 2 : 0);
            *s = (struct sent){.tcp = a.kind == RESOLVER_SEND_TCP, .slot = a.slot, .server = a.server};
            s->length = a.length - (s->tcp ? 2 : 0);
            if (s->tcp)
                CHECK_EQ(load_be16(a.bytes), s->length);
            memcpy(s->question, q, s->length);
            s->id = load_be16(q);
            s->type = load_be16(q + s->length - 4);
        }
    }
}

/* An answer to what was sent: rcode, or an address, or an alias to the name given in wire form. */
static uint8_t reply_bytes[600];

static size_t reply(const struct sent *s, unsigned rcode, const char *ip, uint32_t ttl, const char *alias)
{
    size_t n = s->length;
    struct addr a = {0};

    memcpy(reply_bytes, s->question, n);
    store_be16(reply_bytes + 2, (uint16_t)(0x8180 | rcode));
    if (alias) {
        store_be16(reply_bytes + 6, 1);
        store_be16(reply_bytes + n, 0xc00c);
        store_be16(reply_bytes + n + 2, DNS_CNAME);
        store_be16(reply_bytes + n + 4, 1);
        store_be32(reply_bytes + n + 6, ttl);
        store_be16(reply_bytes + n + 10, (uint16_t)(strlen(alias) + 1));
        memcpy(reply_bytes + n + 12, alias, strlen(alias) + 1);
        return n + 12 + strlen(alias) + 1;
    }
    if (!ip)
        return n;
    a = address(ip);
    store_be16(reply_bytes + 6, 1);
    store_be16(reply_bytes + n, 0xc00c);
    store_be16(reply_bytes + n + 2, a.family == 4 ? DNS_A : DNS_AAAA);
    store_be16(reply_bytes + n + 4, 1);
    store_be32(reply_bytes + n + 6, ttl);
    store_be16(reply_bytes + n + 10, (uint16_t)addr_len(a.family));
    memcpy(reply_bytes + n + 12, a.ip, addr_len(a.family));
    return n + 12 + addr_len(a.family);
}

static void answer(const struct sent *s, unsigned rcode, const char *ip, uint32_t ttl, const char *alias)
{
    size_t n = reply(s, rcode, ip, ttl, alias);

    resolver_datagram(r, s->slot, &s->server, reply_bytes, n, now);
}

static void lookup(const char *name, unsigned flags)
{
    CHECK(resolver_lookup(r, name, strlen(name), 51820, flags, &now, now) >= 0);
    look();
}

static void plain(void)
{
    start(2);
    lookup("vpn.example", RESOLVER_BOTH);
    /* 1: two questions, different ids, the first server, port 53 */
    CHECK_EQ(sent_count, 2);
    CHECK_EQ(sent[0].type, DNS_A);
    CHECK_EQ(sent[1].type, DNS_AAAA);
    CHECK(sent[0].id != sent[1].id);
    CHECK_EQ(sent[0].server.port, 53);
    CHECK_EQ(resolver_deadline(r), now + S);
    /* 2: both answered: IPv6 first, the port set, the lesser TTL */
    struct sent first = sent[0], second = sent[1];
    answer(&first, 0, "198.51.100.1", 300, NULL);
    answer(&second, 0, "2001:db8::1", 60, NULL);
    look();
    CHECK_EQ(done_count, 1);
    CHECK_EQ(closed_count, 2);
    CHECK_EQ(done[0].error, 0);
    CHECK_EQ(done[0].count, 2);
    CHECK_EQ(done[0].addresses[0].family, 6);
    CHECK_EQ(done[0].addresses[1].family, 4);
    CHECK_EQ(done[0].addresses[1].port, 51820);
    CHECK(done[0].context == &now);
    CHECK_EQ(done[0].expires, now + 60 * S);
    CHECK_EQ(resolver_deadline(r), UINT64_MAX);
    /* 3: from the cache for 60 s, then AAAA is asked again */
    lookup("VPN.example.", RESOLVER_BOTH);
    CHECK_EQ(sent_count, 0);
    CHECK_EQ(done_count, 1);
    CHECK_EQ(done[0].count, 2);
    now += 61 * S;
    lookup("vpn.example", RESOLVER_BOTH);
    CHECK_EQ(sent_count, 1);
    CHECK_EQ(sent[0].type, DNS_AAAA);
    answer(&sent[0], 0, "2001:db8::2", 60, NULL);
    look();
    CHECK_EQ(done_count, 1);
    /* 4: fresh: the cache is not asked */
    lookup("vpn.example", RESOLVER_BOTH | RESOLVER_FRESH);
    CHECK_EQ(sent_count, 2);
}

static void strict(void)
{
    start(1);
    lookup("vpn.example", RESOLVER_IPV4);
    CHECK_EQ(sent_count, 1);
    struct sent s = sent[0], other = s;
    size_t n = reply(&s, 0, "198.51.100.1", 300, NULL);
    struct addr stranger = address("192.0.2.9"), port = s.server;
    stranger.port = 53;
    port.port = 54;
    /* 1: another address, another port, another id, another slot, another question */
    resolver_datagram(r, s.slot, &stranger, reply_bytes, n, now);
    resolver_datagram(r, s.slot, &port, reply_bytes, n, now);
    reply_bytes[0] ^= 1;
    resolver_datagram(r, s.slot, &s.server, reply_bytes, n, now);
    reply_bytes[0] ^= 1;
    resolver_datagram(r, s.slot + 1, &s.server, reply_bytes, n, now);
    resolver_datagram(r, 9999, &s.server, reply_bytes, n, now);
    reply_bytes[13] ^= 1;
    resolver_datagram(r, s.slot, &s.server, reply_bytes, n, now);
    look();
    CHECK_EQ(done_count, 0);
    CHECK_EQ(resolver_stats(r)->mismatches, 4);
    /* 2: after the time-out the id is another one, and the late answer to the first does not count */
    now += S;
    resolver_poll(r, now);
    look();
    CHECK_EQ(closed_count, 1);
    CHECK_EQ(sent_count, 1);
    CHECK(sent[0].id != s.id);
    answer(&other, 0, "198.51.100.1", 300, NULL);
    look();
    CHECK_EQ(done_count, 0);
    answer(&sent[0], 0, "198.51.100.2", 300, NULL);
    CHECK_EQ(sent_count, 0);
}

static void retries(void)
{
    static const unsigned seconds[] = {1, 1, 2, 2, 4, 4};

    /* 1: nobody answers: each server three times, then a time-out */
    start(2);
    lookup("vpn.example", RESOLVER_IPV4);
    for (unsigned i = 0; i < ARRAY_COUNT(seconds); i++) {
        CHECK_EQ(sent_count, 1);
        CHECK_EQ(sent[0].server.ip[3], 1 + i % 2);
        CHECK_EQ(resolver_deadline(r), now + seconds[i] * S);
        resolver_poll(r, now + seconds[i] * S - 1);
        now += seconds[i] * S;
        resolver_poll(r, now);
        look();
    }
    CHECK_EQ(sent_count, 0);
    CHECK_EQ(done_count, 1);
    CHECK_EQ(done[0].error, -ETIMEDOUT);
    /* 2: refused at once, then unreachable, then found; that server is asked first from then on */
    start(3);
    lookup("vpn.example", RESOLVER_IPV4);
    answer(&sent[0], 5, NULL, 0, NULL);
    look();
    CHECK_EQ(sent[0].server.ip[3], 2);
    resolver_broken(r, sent[0].slot, now);
    look();
    CHECK_EQ(sent[0].server.family, 6);
    answer(&sent[0], 0, "198.51.100.1", 0, NULL);
    look();
    CHECK_EQ(done[0].count, 1);
    CHECK_EQ(done[0].expires, now);
    lookup("other.example", RESOLVER_IPV4);
    CHECK_EQ(sent_count, 1);
    CHECK_EQ(sent[0].server.family, 6);
    /* 3: all fail: what a server said is reported, not that another was silent */
    start(1);
    lookup("vpn.example", RESOLVER_BOTH);
    for (unsigned i = 0; i < 3; i++) {
        struct sent a = sent[0], b = sent[1];
        CHECK_EQ(sent_count, 2);
        answer(&a, 2, NULL, 0, NULL);
        answer(&b, 2, NULL, 0, NULL);
        look();
    }
    CHECK_EQ(done_count, 1);
    CHECK_EQ(done[0].error, -EREMOTEIO);
    /* 4: no server at all */
    start(0);
    lookup("vpn.example", RESOLVER_BOTH);
    CHECK_EQ(done_count, 1);
    CHECK_EQ(done[0].error, -EDESTADDRREQ);
    /* 5: one family found, the other silent: 300 ms */
    start(1);
    lookup("vpn.example", RESOLVER_BOTH);
    now += 10 * MS;
    answer(&sent[0], 0, "198.51.100.1", 300, NULL);
    look();
    CHECK_EQ(done_count, 0);
    CHECK_EQ(resolver_deadline(r), now + 300 * MS);
    now += 300 * MS;
    resolver_poll(r, now);
    look();
    CHECK_EQ(done_count, 1);
    CHECK_EQ(done[0].count, 1);
    CHECK_EQ(done[0].expires, now - 300 * MS + 300 * S);
}

static void negative(void)
{
    /* 1: no such name; without an SOA it is not kept */
    start(1);
    lookup("no.example", RESOLVER_BOTH);
    struct sent a = sent[0], b = sent[1];
    answer(&a, 3, NULL, 0, NULL);
    answer(&b, 3, NULL, 0, NULL);
    look();
    CHECK_EQ(done[0].error, -ENOENT);
    lookup("no.example", RESOLVER_BOTH);
    CHECK_EQ(sent_count, 2);
    /* 2: the name is there, without addresses */
    a = sent[0];
    b = sent[1];
    answer(&a, 0, NULL, 0, NULL);
    answer(&b, 0, NULL, 0, NULL);
    look();
    CHECK_EQ(done[0].error, -ENODATA);
    /* 3: with an SOA of 60 s it is kept so long */
    lookup("soa.example", RESOLVER_IPV4);
    size_t n = reply(&sent[0], 3, NULL, 0, NULL);
    static const uint8_t soa[] = {0, 0, 6, 0, 1, 0, 0, 0, 99, 0, 22, 0, 0, 0, 0, 0, 0,
                                  0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0,  0, 0, 0, 0, 60};
    memcpy(reply_bytes + n, soa, sizeof soa);
    store_be16(reply_bytes + 8, 1);
    resolver_datagram(r, sent[0].slot, &sent[0].server, reply_bytes, n + sizeof soa, now);
    look();
    CHECK_EQ(done[0].error, -ENOENT);
    CHECK_EQ(done[0].expires, now + 60 * S);
    now += 59 * S;
    lookup("soa.example", RESOLVER_IPV4);
    CHECK_EQ(sent_count, 0);
    CHECK_EQ(done[0].error, -ENOENT);
    now += 2 * S;
    lookup("soa.example", RESOLVER_IPV4);
    CHECK_EQ(sent_count, 1);
}

static void aliases(void)
{
    /* 1: an open alias is followed; kept under the first name for the lesser TTL */
    start(1);
    lookup("vpn.example", RESOLVER_IPV4);
    answer(&sent[0], 0, NULL, 30,
           "\x01"
           "b\x07"
           "example");
    look();
    CHECK_EQ(sent_count, 1);
    CHECK_MEM(sent[0].question + 12,
              "\x01"
              "b\x07"
              "example",
              11);
    answer(&sent[0], 0, "198.51.100.7", 300, NULL);
    look();
    CHECK_EQ(done[0].count, 1);
    CHECK_EQ(done[0].expires, now + 30 * S);
    lookup("vpn.example", RESOLVER_IPV4);
    CHECK_EQ(done_count, 1);
    /* 2: for ever: 12 deep, then it fails */
    lookup("ring.example", RESOLVER_IPV4);
    unsigned steps = 0;
    for (; sent_count && steps < 100; steps++) {
        answer(&sent[0], 0, NULL, 30,
               "\x04ring\x07"
               "example");
        look();
    }
    CHECK(steps < 100);
    CHECK_EQ(done_count, 1);
    CHECK(done[0].error != 0);
}

static void by_tcp(void)
{
    uint8_t stream[700];

    start(2);
    lookup("big.example", RESOLVER_IPV4);
    struct sent udp = sent[0];
    size_t n = reply(&udp, 0, NULL, 0, NULL);
    reply_bytes[2] |= 2; /* TC */
    resolver_datagram(r, udp.slot, &udp.server, reply_bytes, n, now);
    look();
    /* 1: the same server, by TCP, after the UDP socket is closed */
    CHECK_EQ(closed_count, 1);
    CHECK_EQ(sent_count, 1);
    CHECK(sent[0].tcp);
    CHECK(addr_equal(&sent[0].server, &udp.server));
    /* 2: byte by byte */
    struct sent tcp = sent[0];
    n = reply(&tcp, 0, "198.51.100.1", 300, NULL);
    store_be16(stream, (uint16_t)n);
    memcpy(stream + 2, reply_bytes, n);
    for (size_t i = 0; i < n + 2; i++) {
        look();
        CHECK_EQ(done_count, 0);
        resolver_stream(r, tcp.slot, stream + i, 1, now);
    }
    look();
    CHECK_EQ(done_count, 1);
    CHECK_EQ(done[0].count, 1);
    CHECK_EQ(closed_count, 1);
    /* 3: closed in the middle: the next server, by UDP */
    lookup("big2.example", RESOLVER_IPV4);
    udp = sent[0];
    n = reply(&udp, 0, NULL, 0, NULL);
    reply_bytes[2] |= 2;
    resolver_datagram(r, udp.slot, &udp.server, reply_bytes, n, now);
    look();
    tcp = sent[0];
    resolver_stream(r, tcp.slot, (const uint8_t *)"\x01", 1, now);
    resolver_stream(r, tcp.slot, NULL, 0, now);
    look();
    CHECK_EQ(sent_count, 1);
    CHECK(!sent[0].tcp);
    CHECK(!addr_equal(&sent[0].server, &udp.server));
}

static void known(void)
{
    static const char hosts[] = "# comment\n127.0.0.1 localhost\n192.0.2.7\tvpn.example  alias.example # x\r\n"
                                "2001:db8::7 vpn.example\nnonsense line\n192.0.2.8";
    static const char conf[] = "search lan\nnameserver 192.0.2.53 # first\r\n nameserver\t2001:db8::1\nnameserver x\n"
                               "nameserver 192.0.2.54\noptions ndots:1\nnameserver 192.0.2.55\nnameserver 192.0.2.56";

    start(0);
    /* 1: hosts and resolv.conf */
    CHECK_EQ(resolver_add_hosts(r, hosts, sizeof hosts - 1), 4);
    CHECK_EQ(resolver_add_resolv_conf(r, conf, sizeof conf - 1), RESOLVER_SERVERS);
    lookup("vpn.example", RESOLVER_BOTH);
    CHECK_EQ(done_count, 1);
    CHECK_EQ(done[0].count, 2);
    CHECK_EQ(done[0].expires, UINT64_MAX);
    lookup("alias.example", RESOLVER_IPV6);
    CHECK_EQ(done[0].error, -ENODATA);
    /* 2: literals and localhost */
    lookup("192.0.2.9", RESOLVER_BOTH);
    CHECK_EQ(done[0].count, 1);
    CHECK_EQ(done[0].addresses[0].port, 51820);
    lookup("2001:db8::9", RESOLVER_IPV4);
    CHECK_EQ(done[0].error, -ENODATA);
    lookup("printer.localhost", RESOLVER_BOTH);
    CHECK_EQ(done[0].count, 2);
    lookup("notlocalhost", RESOLVER_IPV4);
    CHECK_EQ(sent_count, 1);
    CHECK_EQ(sent[0].server.ip[3], 53);
    /* 3: what is no name */
    CHECK_EQ(resolver_lookup(r, "a..b", 4, 1, RESOLVER_BOTH, NULL, now), -EINVAL);
    CHECK_EQ(resolver_lookup(r, "a.b", 3, 1, 0, NULL, now), -EINVAL);
}

static void bounds(void)
{
    char text[32];
    int number = -1;

    /* 1: lookups under way */
    start(1);
    for (int i = 0; i < RESOLVER_LOOKUPS; i++) {
        snprintf(text, sizeof text, "h%d.example", i);
        number = resolver_lookup(r, text, strlen(text), 1, RESOLVER_BOTH, NULL, now);
        CHECK_EQ(number, i);
    }
    CHECK_EQ(resolver_lookup(r, "more.example", 12, 1, RESOLVER_BOTH, NULL, now), -EBUSY);
    look();
    CHECK_EQ(sent_count, RESOLVER_SLOTS);
    /* 2: cancelled: its sockets are closed, its place is free, and nothing comes of it */
    resolver_cancel(r, number);
    look();
    CHECK_EQ(closed_count, 2);
    CHECK_EQ(done_count, 0);
    CHECK_EQ(resolver_lookup(r, "more.example", 12, 1, RESOLVER_BOTH, NULL, now), number);
    /* 3: the cache: the one that expires first makes room */
    start(1);
    for (unsigned i = 0; i < RESOLVER_CACHE + 1; i++) {
        snprintf(text, sizeof text, "h%u.example", i);
        lookup(text, RESOLVER_IPV4);
        CHECK_EQ(sent_count, 1);
        answer(&sent[0], 0, "198.51.100.1", 1000 - i % RESOLVER_CACHE, NULL);
        look();
        CHECK_EQ(done_count, 1);
    }
    lookup("h0.example", RESOLVER_IPV4);
    CHECK_EQ(sent_count, 0);
    lookup("h127.example", RESOLVER_IPV4);
    CHECK_EQ(sent_count, 1);
    /* 4: a reset forgets all that was known */
    start(1);
    resolver_reset(r);
    lookup("h0.example", RESOLVER_IPV4);
    CHECK_EQ(done[0].error, -EDESTADDRREQ);
}

int main(void)
{
    plain();
    strict();
    retries();
    negative();
    aliases();
    by_tcp();
    known();
    bounds();
    resolver_free(r);
    return check_done();
}
