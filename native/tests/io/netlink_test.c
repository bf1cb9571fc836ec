/* rtnetlink messages byte by byte, and the parser against what is cut, stretched or of the wrong size. The bytes are
 * worked out from linux/rtnetlink.h for a little-endian machine, which all of fv's are. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "io/netlink.h"
#include "tests/check.h"
#include "wire/bytes.h"

static struct netlink_prefix prefix(const char *text, uint8_t length)
{
    struct netlink_prefix p = {.family = strchr(text, ':') ? AF_INET6 : AF_INET, .length = length};

    CHECK_EQ(inet_pton(p.family, text, p.address), 1);
    return p;
}

static void check_request(const struct netlink_request *r, const uint8_t *want, size_t n)
{
    CHECK_EQ(r->length, n);
    if (r->length == n)
        CHECK_MEM(r->bytes, want, n);
}

static void build_link(void)
{
    struct netlink_request r;
    static const uint8_t get[] = {
        40, 0, 0, 0, 18,  0,   5,   0, 7, 0, 0, 0, 0, 0, 0, 0,          /* RTM_GETLINK, REQUEST|ACK, sequence 7 */
        0,  0, 0, 0, 0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 0,            /* ifinfomsg */
        8,  0, 3, 0, 'w', 'g', '0', 0,                              /* IFLA_IFNAME */
    };
    static const uint8_t set[] = {
        40, 0, 0, 0, 16,   0, 5, 0, 8, 0, 0, 0, 0, 0, 0, 0,
        0,  0, 0, 0, 5,    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0,            /* index 5, flags UP, change UP */
        8,  0, 4, 0, 0x8c, 5, 0, 0,                                 /* IFLA_MTU 1420 */
    };

    CHECK(netlink_build_link_get(&r, 7, 0, "wg0"));
    check_request(&r, get, sizeof get);
    CHECK(netlink_build_link_set(&r, 8, 5, &(struct netlink_link_change){.mtu = 1420, .up = 1}));
    check_request(&r, set, sizeof set);
}

static void build_address(void)
{
    struct netlink_request r;
    struct netlink_address a = {.index = 5, .local = prefix("10.7.0.2", 32), .flags = IFA_F_NODAD};
    static const uint8_t plain[] = {
        40, 0,  0, 0, 20, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0,          /* RTM_NEWADDR, CREATE|EXCL */
        2,  32, 2, 0, 5,  0, 0, 0,                                   /* AF_INET /32 NODAD */
        8,  0,  2, 0, 10, 7, 0, 2,                                   /* IFA_LOCAL */
        8,  0,  1, 0, 10, 7, 0, 2,                                   /* IFA_ADDRESS */
    };
    static const uint8_t peer[] = {
        48, 0, 0, 0,  21, 0, 5, 0, 1, 0, 0, 0,  0, 0, 0, 0, 2, 30, 2, 0, 5, 0, 0, 0, 8,
        0,  2, 0, 10, 7,  0, 2, 8, 0, 1, 0, 10, 7, 0, 1, 8, 0, 8,  0, 2, 2, 0, 0, /* IFA_FLAGS: NOPREFIXROUTE does not fit the byte */
    };

    CHECK(netlink_build_address(&r, 1, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &a));
    check_request(&r, plain, sizeof plain);
    a.peer = prefix("10.7.0.1", 30);
    a.flags |= IFA_F_NOPREFIXROUTE;
    CHECK(netlink_build_address(&r, 1, RTM_DELADDR, 0, &a));
    check_request(&r, peer, sizeof peer);
}

static void build_route(void)
{
    struct netlink_request r;
    struct netlink_route route = {.family = AF_INET6,
                                  .type = RTN_UNREACHABLE,
                                  .protocol = NETLINK_PROTOCOL_FV,
                                  .destination = {.family = AF_INET6},
                                  .table = 51820,
                                  .metric = 4096};
    static const uint8_t guard[] = {
        44, 0, 0,  0, 24,   0,    5,   6,   1, 0, 0, 0, 0, 0,
        0,  0, 10, 0, 0,    0,    252, 157, 0, 7, 0, 0, 0, 0, /* ::/0, RT_TABLE_COMPAT, fv, unreachable */
        8,  0, 6,  0, 0,    16,   0,   0, /* RTA_PRIORITY */
        8,  0, 15, 0, 0x6c, 0xca, 0,   0, /* RTA_TABLE */
    };
    static const uint8_t full[] = {
        80, 0, 0,  0, 24,  0,   5, 5, 2, 0, 0, 0, 0, 0, 0, 0, /* CREATE|REPLACE */
        2,  8, 0,  0, 254, 157, 0, 1, 4, 0, 0, 0, /* /8, main, unicast, onlink */
        8,  0, 1,  0, 10,  0,   0, 0, /* RTA_DST */
        8,  0, 5,  0, 192, 0,   2, 1, /* RTA_GATEWAY */
        8,  0, 7,  0, 192, 0,   2, 9, /* RTA_PREFSRC */
        8,  0, 4,  0, 3,   0,   0, 0, /* RTA_OIF */
        12, 0, 8,  0, 8,   0,   2, 0, 0, 5, 0, 0, /* RTA_METRICS { RTAX_MTU 1280 } */
        8,  0, 15, 0, 254, 0,   0, 0,
    };
    /* a next hop of the other family goes in RTA_VIA */
    static const uint8_t via6[] = {22, 0, 18, 0, 10, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0};

    CHECK(netlink_build_route(&r, 1, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &route));
    check_request(&r, guard, sizeof guard);
    route = (struct netlink_route){.family = AF_INET,
                                   .type = RTN_UNICAST,
                                   .protocol = NETLINK_PROTOCOL_FV,
                                   .flags_onlink = 1,
                                   .destination = prefix("10.0.0.0", 8),
                                   .via = prefix("192.0.2.1", 32),
                                   .source = prefix("192.0.2.9", 32),
                                   .index = 3,
                                   .table = RT_TABLE_MAIN,
                                   .mtu = 1280};
    CHECK(netlink_build_route(&r, 2, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route));
    check_request(&r, full, sizeof full);
    route.via = prefix("fe80::1", 128);
    CHECK(netlink_build_route(&r, 2, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &route));
    CHECK_MEM(r.bytes + 36, via6, sizeof via6);
}

static void build_rule(void)
{
    struct netlink_request r;
    struct netlink_rule rule = {.family = AF_INET,
                                .action = FR_ACT_TO_TBL,
                                .protocol = NETLINK_PROTOCOL_FV,
                                .invert = true,
                                .from = prefix("192.168.88.0", 24),
                                .iif = "eth1",
                                .priority = 5210,
                                .table = 51820,
                                .has_mark = true,
                                .mark = 0xca6c,
                                .mask = 0xffffffff,
                                .suppress_prefixlength = 0};
    static const uint8_t
        want
            [] =
                {
                    96,  0,   0,  0, 32,   0,    5,    6,    1, 0, 0,  0, 0,   0,
                    0,   0,   2,  0, 24,   0,    252,  0,    0, 1, 2,  0, 0,   0, /* /24 source, to a table, inverted */
                    8,   0,   2,  0, 192,  168,  88,   0, /* FRA_SRC */
                    9,   0,   3,  0, 'e',  't',  'h',  '1',  0, 0, 0,  0, /* FRA_IIFNAME */
                    8,   0,   6,  0, 0x5a, 0x14, 0,    0, /* FRA_PRIORITY */
                    8,   0,   10, 0, 0x6c, 0xca, 0,    0,    8, 0, 16, 0, 255, 255,
                    255, 255, 8,  0, 15,   0,    0x6c, 0xca, 0, 0, /* FRA_TABLE */
                    8,   0,   14, 0, 0,    0,    0,    0, /* FRA_SUPPRESS_PREFIXLEN 0 */
                    5,   0,   21, 0, 157,  0,    0,    0, /* FRA_PROTOCOL */
    };

    CHECK(netlink_build_rule(&r, 1, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, &rule));
    check_request(&r, want, sizeof want);
}

/* Whatever is built can be read back: a built NEW message is what the kernel sends in a dump. */
static void parse_back(void)
{
    struct netlink_request r;
    struct netlink_message m;
    struct netlink_route route = {.family = AF_INET6,
                                  .type = RTN_UNICAST,
                                  .protocol = 4,
                                  .destination = prefix("2001:db8::", 32),
                                  .via = prefix("fe80::1", 128),
                                  .source = prefix("2001:db8::9", 128),
                                  .index = 4,
                                  .table = 700,
                                  .metric = 9,
                                  .mtu = 1400,
                                  .advmss = 1340},
                         route2;
    struct netlink_rule rule = {.family = AF_INET6,
                                .action = FR_ACT_TO_TBL,
                                .protocol = 157,
                                .to = prefix("fd00::", 8),
                                .oif = "wg0",
                                .priority = 1,
                                .table = 70000,
                                .has_mark = true,
                                .mark = 5,
                                .mask = 7,
                                .suppress_prefixlength = -1},
                        rule2;
    struct netlink_address a = {.index = 9,
                                .local = prefix("10.0.0.1", 24),
                                .peer = prefix("10.0.0.2", 24),
                                .flags = 0x202,
                                .scope = 253},
                           a2;
    const uint8_t *data = r.bytes;
    size_t n;

    netlink_build_route(&r, 3, RTM_NEWROUTE, 0, &route);
    n = r.length;
    CHECK_EQ(netlink_next(&data, &n, &m), 1);
    CHECK_EQ(n, 0);
    CHECK_EQ(m.sequence, 3);
    CHECK_EQ(netlink_parse_route(&m, &route2), 0);
    CHECK(netlink_prefix_equal(&route.destination, &route2.destination));
    CHECK(netlink_prefix_equal(&route.via, &route2.via));
    CHECK(netlink_prefix_equal(&route.source, &route2.source));
    CHECK_EQ(route2.table, 700);
    CHECK_EQ(route2.metric, 9);
    CHECK_EQ(route2.index, 4);
    CHECK_EQ(route2.mtu, 1400);
    CHECK_EQ(route2.advmss, 1340);
    CHECK_EQ(netlink_parse_rule(&m, &rule2), -EPROTO);

    data = r.bytes;
    netlink_build_rule(&r, 3, RTM_NEWRULE, 0, &rule);
    n = r.length;
    CHECK_EQ(netlink_next(&data, &n, &m), 1);
    CHECK_EQ(netlink_parse_rule(&m, &rule2), 0);
    CHECK(netlink_prefix_equal(&rule.to, &rule2.to));
    CHECK_STR(rule2.oif, "wg0");
    CHECK_EQ(rule2.table, 70000);
    CHECK_EQ(rule2.mask, 7);
    CHECK_EQ(rule2.suppress_prefixlength, -1);
    CHECK_EQ(rule2.protocol, 157);

    data = r.bytes;
    netlink_build_address(&r, 3, RTM_NEWADDR, 0, &a);
    n = r.length;
    CHECK_EQ(netlink_next(&data, &n, &m), 1);
    CHECK_EQ(netlink_parse_address(&m, &a2), 0);
    CHECK(netlink_prefix_equal(&a.local, &a2.local));
    CHECK(netlink_prefix_equal(&a.peer, &a2.peer));
    CHECK_EQ(a2.flags, 0x202);
    CHECK_EQ(a2.scope, 253);

    /* Every shortening inside the attributes is either refused or a message with fewer whole attributes. */
    netlink_build_route(&r, 3, RTM_NEWROUTE, 0, &route);
    for (size_t cut = 0; cut < r.length; cut++) {
        uint32_t length = (uint32_t)cut;
        memcpy(r.bytes, &length, 4);
        data = r.bytes;
        n = cut;
        int next = netlink_next(&data, &n, &m);
        CHECK_EQ(next, cut == 0 ? 0 : cut < 16 ? -EBADMSG : 1);
        if (next == 1) {
            int parsed = netlink_parse_route(&m, &route2);
            CHECK(parsed == -EBADMSG || (parsed == 0 && cut % 4 == 0) || (parsed == 0 && cut >= 28));
        }
    }
    /* A message longer than the datagram, an attribute shorter than its header, a table of two bytes. */
    static const uint8_t lies[] = {200, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t short_attribute[] = {32, 0, 0, 0, 24,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,
                                              2,  0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0, 3, 0, 15, 0};
    static const uint8_t short_table[] = {36, 0, 0,   0, 24, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 2, 0,
                                          0,  0, 254, 0, 0,  1, 0, 0, 0, 0, 6, 0, 15, 0, 1, 0, 0, 0};
    static const uint8_t no_destination[] = {28, 0, 0, 0, 24, 0, 0,   0, 0, 0, 0, 0, 0, 0,
                                             0,  0, 2, 8, 0,  0, 254, 0, 0, 1, 0, 0, 0, 0};
    static const uint8_t long_prefix[] = {36, 0, 0,   0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 33,
                                          0,  0, 254, 0, 0,  1, 0, 0, 0, 0, 8, 0, 1, 0, 1, 2, 3, 4};
    data = lies;
    n = sizeof lies;
    CHECK_EQ(netlink_next(&data, &n, &m), -EBADMSG);
    const struct {
        const uint8_t *bytes;
        size_t n;
    } bad[] = {{short_attribute, sizeof short_attribute},
               {short_table, sizeof short_table},
               {no_destination, sizeof no_destination},
               {long_prefix, sizeof long_prefix}};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        data = bad[i].bytes;
        n = bad[i].n;
        CHECK_EQ(netlink_next(&data, &n, &m), 1);
        CHECK_EQ(netlink_parse_route(&m, &route2), -EBADMSG);
    }
}

static void parse_reply(void)
{
    struct netlink_message m;
    struct netlink_reply reply;
    static const uint8_t refused[] = {
        60,   0,    0,    0,    2,   0,   0,   3,   5,   0, 0, 0, 9, 0, 0, 0, /* NLMSG_ERROR, CAPPED|ACK_TLVS */
        0xef, 0xff, 0xff, 0xff, /* -17 */
        44,   0,    0,    0,    24,  0,   5,   6,   5,   0, 0, 0, 0, 0, 0, 0, /* the refused header */
        9,    0,    1,    0,    'T', 'h', 'e', 'r', 'e', 0, 0, 0, /* NLMSGERR_ATTR_MSG, not NUL-terminated */
        8,    0,    2,    0,    28,  0,   0,   0, /* NLMSGERR_ATTR_OFFS */
        0,    0,    0,    0,
    };
    static const uint8_t done[] = {20, 0, 0, 0, 3, 0, 2, 0, 5, 0, 0, 0, 9, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff};
    static const uint8_t positive[] = {20, 0, 0, 0, 3, 0, 2, 0, 5, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0};
    const uint8_t *data = refused;
    size_t n = sizeof refused - 4;
    uint8_t copy[sizeof refused];

    /* the length is 56; the test's array has four bytes more to be cut wrongly below */
    memcpy(copy, refused, sizeof copy);
    copy[0] = 56;
    data = copy;
    CHECK_EQ(netlink_next(&data, &n, &m), 1);
    CHECK_EQ(netlink_parse_reply(&m, &reply), 0);
    CHECK_EQ(reply.error, -EEXIST);
    CHECK_STR(reply.text, "There");
    CHECK_EQ(reply.offset, 28);
    data = refused;
    n = sizeof refused;
    CHECK_EQ(netlink_next(&data, &n, &m), 1);
    CHECK_EQ(netlink_parse_reply(&m, &reply), -EBADMSG); /* an attribute of length 0 */
    data = done;
    n = sizeof done;
    CHECK_EQ(netlink_next(&data, &n, &m), 1);
    CHECK_EQ(netlink_parse_reply(&m, &reply), 0);
    CHECK_EQ(reply.error, -ENOENT);
    data = positive;
    n = sizeof positive;
    CHECK_EQ(netlink_next(&data, &n, &m), 1);
    CHECK_EQ(netlink_parse_reply(&m, &reply), -EBADMSG);
}

/* The socket, as far as no privilege is needed: the loopback link, errors with the kernel's words. */
static void ask(void)
{
    struct netlink nl;
    struct netlink_link link;

    CHECK_EQ(netlink_open(&nl), 0);
    CHECK_EQ(netlink_link_get(&nl, "lo", &link), 0);
    CHECK_STR(link.name, "lo");
    CHECK_EQ(link.index, 1);
    CHECK(link.mtu > 0);
    CHECK_EQ(netlink_link_by_index(&nl, 1, &link), 0);
    CHECK_EQ(netlink_link_get(&nl, "no-such-link0", &link), -ENODEV);
    CHECK(strstr(netlink_error(&nl), "No such device") != NULL);
    CHECK_EQ(netlink_link_get(&nl, "a-name-beyond-sixteen", &link), -ENODEV);
    netlink_close(&nl);
}

int main(void)
{
    build_link();
    build_address();
    build_route();
    build_rule();
    parse_back();
    parse_reply();
    ask();
    return check_done();
}
