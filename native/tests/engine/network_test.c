/* Lines of [network]: what is taken, what is refused and with which words, and that what is written reads back. */
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "engine/network.h"
#include "tests/check.h"
#include "wire/bytes.h"

/* key, value, and the objects it stands for as they are written back (two where no family is named). */
static const struct {
    const char *key, *value, *first, *second;
} good[] = {
    /* 1: the plan's own examples */
    {"address", "10.7.0.2/32 dev wg0", "10.7.0.2/32 dev wg0", NULL},
    {"link", "wg0 mtu 1420 up", "wg0 mtu 1420 up", NULL},
    {"route", "default dev wg0 table 51820 metric 10", "0.0.0.0/0 dev wg0 table 51820 metric 10",
     "::/0 dev wg0 table 51820 metric 10"},
    {"route", "unreachable default table 51820 metric 4096", "unreachable 0.0.0.0/0 table 51820 metric 4096",
     "unreachable ::/0 table 51820 metric 4096"},
    {"rule", "priority 5210 iif eth1 table 51820", "-4 priority 5210 iif eth1 table 51820",
     "-6 priority 5210 iif eth1 table 51820"},
    {"rule", "priority 5200 fwmark 0xca6c table main", "-4 priority 5200 fwmark 0xca6c table main",
     "-6 priority 5200 fwmark 0xca6c table main"},
    {"sysctl", "net.ipv4.ip_forward=1", "net/ipv4/ip_forward=1", NULL},
    /* 8: addresses */
    {"address", "fd00::2/64 dev wg0 nodad noprefixroute", "fd00::2/64 dev wg0 nodad noprefixroute", NULL},
    {"address", "10.0.0.1 peer 10.0.0.2/30 dev wg0", "10.0.0.1 peer 10.0.0.2/30 dev wg0", NULL},
    {"address", "10.0.0.1 dev wg0", "10.0.0.1/32 dev wg0", NULL},
    {"address", "10.0.0.1/24 brd 10.0.0.255 dev e scope link", "10.0.0.1/24 broadcast 10.0.0.255 dev e scope 253",
     NULL},
    /* 12: links */
    {"link", "dev eth1 down", "eth1 down", NULL},
    {"link", "eth1 txqueuelen 500", "eth1 txqueuelen 500", NULL},
    /* 14: routes */
    {"route", "10.0.0.0/8 via 192.0.2.1", "10.0.0.0/8 via 192.0.2.1 table main", NULL},
    {"route", "default via fe80::1 dev eth0", "::/0 via fe80::1 dev eth0 table main", NULL},
    {"route", "-4 default via inet6 fe80::1 dev eth0", "0.0.0.0/0 via inet6 fe80::1 dev eth0 table main", NULL},
    {"route", "-6 unreachable default table 7", "unreachable ::/0 table 7", NULL},
    {"route", "blackhole 198.51.100.0/24", "blackhole 198.51.100.0/24 table main", NULL},
    {"route", "prohibit 2001:db8::/32 priority 3", "prohibit 2001:db8::/32 table main metric 3", NULL},
    {"route", "unicast 192.0.2.9 dev eth0 src 192.0.2.2 mtu 1400 advmss 1360 onlink",
     "192.0.2.9/32 dev eth0 table main src 192.0.2.2 mtu 1400 advmss 1360 onlink", NULL},
    {"route", "192.0.2.0/24 dev eth0 scope global table 4294967295", "192.0.2.0/24 dev eth0 table 4294967295 scope 0",
     NULL},
    /* 22: rules */
    {"rule", "not from 10.0.0.0/8 fwmark 0x1/0xff lookup 51820 pref 100",
     "-4 priority 100 not from 10.0.0.0/8 fwmark 0x1/0xff table 51820", NULL},
    {"rule", "from all to fd00::/8 table main suppress_prefixlength 0 priority 7",
     "-6 priority 7 to fd00::/8 table main suppress_prefixlength 0", NULL},
    {"rule", "-4 iif lan0 oif wan0 unreachable priority 9", "-4 priority 9 iif lan0 oif wan0 unreachable", NULL},
    /* 25: sysctls, as sysctl(8) writes interface names with dots */
    {"sysctl", "net.ipv4.conf.eth0/1.rp_filter=2", "net/ipv4/conf/eth0.1/rp_filter=2", NULL},
    {"sysctl", "net/ipv4/conf/eth0.1/rp_filter = 2", "net/ipv4/conf/eth0.1/rp_filter=2", NULL},
    {"sysctl", "net.ipv4.tcp_rmem=4096  131072\t6291456", "net/ipv4/tcp_rmem=4096 131072 6291456", NULL},
};

/* key, value, words that the error must have. */
static const struct {
    const char *key, *value, *error;
} bad[] = {
    {"address", "", "is empty"},
    {"address", "10.0.0.1/33 dev wg0", "from 0 to 32"},
    {"address", "fe80::1/129 dev wg0", "from 0 to 128"},
    {"address", "10.0.0.1/ dev wg0", "prefix length"},
    {"address", "10.0.0.256/8 dev wg0", "'10.0.0.256/8' is not an address"},
    {"address", "wg0 dev 10.0.0.1", "'wg0' is not an address"},
    {"address", "10.0.0.1/24", "lacks 'dev NAME'"},
    {"address", "10.0.0.1/24 dev", "interface name"},
    {"address", "10.0.0.1/24 dev name-of-16-chars", "not an interface name"},
    {"address", "10.0.0.1/24 dev ../x", "not an interface name"},
    {"address", "10.0.0.1/24 dev wg0 peer fd00::1", "the peer is IPv6"},
    {"address", "10.0.0.1/24 dev wg0 label x", "'label' is not one of"},
    {"link", "wg0", "sets nothing"},
    {"link", "wg0 mtu", "wants a number"},
    {"link", "wg0 mtu 67", "from 68 to 65535"},
    {"link", "wg0 mtu 1e3", "not a number"},
    {"link", "wg0 sideways", "'sideways' is not one of"},
    {"route", "default", "lacks 'dev NAME' or 'via ADDRESS'"},
    {"route", "unreachable", "lacks its destination"},
    {"route", "10.0.0.1/24 dev wg0", "beyond its prefix length"},
    {"route", "10.0.0.0/24 via fd00::1", "the next hop is IPv6"},
    {"route", "10.0.0.0/24 via 10.0.0.0/24", "without a prefix length"},
    {"route", "-6 10.0.0.0/24 dev wg0", "the destination is IPv4"},
    {"route", "unreachable default dev wg0", "no 'dev'"},
    {"route", "default dev wg0 table 0", "from 1 to"},
    {"route", "default dev wg0 metrix 5", "'metrix' is not one of"},
    {"rule", "iif eth1 table 7", "lacks 'priority"},
    {"rule", "priority 0 table 7", "from 1 to 32765"},
    {"rule", "priority 5", "lacks 'table"},
    {"rule", "priority 5 table 7 fwmark 0x1ffffffff", "not MARK"},
    {"rule", "priority 5 table 7 fwmark -1", "not MARK"},
    {"rule", "priority 5 table 7 fwmark 1/", "not MARK"},
    {"rule", "priority 5 table 7 from 10.0.0.0/8 to fd00::/8", "to is IPv6"},
    {"rule", "priority 5 blackhole table 7", "a rule that refuses"},
    {"rule", "priority 5 table 7 ipproto tcp", "'ipproto' is not one of"},
    {"sysctl", "net.ipv4.ip_forward", "lacks '=VALUE'"},
    {"sysctl", "net.ipv4.ip_forward=", "is empty"},
    {"sysctl", "kernel.core_pattern=x", "not a key below net."},
    {"sysctl", "net/../kernel/core_pattern=x", "not a key below net."},
    {"sysctl", "net/ipv4/..=x", "not a key below net."},
    {"sysctl", "net..ipv4=x", "not a key below net."},
    {"colour", "blue", "is not a key of [network]"},
};

static void parse(void)
{
    char error[NETWORK_ERROR_SIZE], text[400];

    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        struct network_plan plan = {0}, again = {0};
        if (!CHECK(network_parse_line(&plan, good[i].key, good[i].value, error, sizeof error) == 0))
            fprintf(stderr, "    %s=%s: %s\n", good[i].key, good[i].value, error);
        CHECK_EQ(plan.count, good[i].second ? 2 : 1);
        for (size_t j = 0; j < plan.count; j++) {
            network_format(&plan.items[j], text, sizeof text);
            CHECK_STR(text, j ? good[i].second : good[i].first);
            CHECK_EQ(network_parse_line(&again, good[i].key, text, error, sizeof error), 0);
            CHECK_EQ(again.count, j + 1);
            CHECK(again.count && network_item_equal(&plan.items[j], &again.items[again.count - 1]));
            CHECK_EQ(plan.items[j].optional, j == 1);
        }
        network_plan_free(&plan);
        network_plan_free(&again);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        struct network_plan plan = {0};
        CHECK_EQ(network_parse_line(&plan, bad[i].key, bad[i].value, error, sizeof error), -EINVAL);
        if (!CHECK(strstr(error, bad[i].error) != NULL))
            fprintf(stderr, "    %s=%s: %s\n", bad[i].key, bad[i].value, error);
        CHECK_EQ(plan.count, 0);
        network_plan_free(&plan);
    }
}

static void fields(void)
{
    struct network_plan plan = {0};
    char error[NETWORK_ERROR_SIZE];

    network_parse_line(&plan, "route", "default dev wg0 table 51820", error, sizeof error);
    CHECK_EQ(plan.items[0].route.scope, RT_SCOPE_LINK);
    CHECK_EQ(plan.items[0].route.protocol, NETLINK_PROTOCOL_FV);
    CHECK_EQ(plan.items[1].route.family, AF_INET6);
    CHECK(!network_item_guards(&plan.items[0]));
    network_parse_line(&plan, "route", "-4 unreachable default table 51820", error, sizeof error);
    CHECK_EQ(plan.items[2].route.type, RTN_UNREACHABLE);
    CHECK(network_item_guards(&plan.items[2]));
    CHECK(network_item_same(&plan.items[0], &plan.items[2]));
    CHECK(!network_item_equal(&plan.items[0], &plan.items[2]));
    network_plan_free(&plan);
}

static void check_pairs(void)
{
    static const struct {
        const char *one, *other, *error; /* NULL: they stand together */
    } pairs[] = {
        {"-4 priority 5 iif a table 7", "-4 priority 5 iif b table 7", NULL},
        {"-4 priority 5 iif a table 7", "-6 priority 5 iif a table 7", NULL},
        {"-4 priority 5 iif a table 7", "-4 priority 5 iif a table 7", "the same object twice"},
        {"-4 priority 5 iif a table 7", "-4 priority 5 table 7", "one covers the other"},
        {"-4 priority 5 iif a table 7", "-4 priority 6 table 7", NULL},
        {"-4 priority 5 fwmark 1 table 7", "-4 priority 5 fwmark 1 from 10.0.0.0/8 table 7", "one covers the other"},
    };
    char error[NETWORK_ERROR_SIZE];

    for (size_t i = 0; i < ARRAY_COUNT(pairs); i++) {
        struct network_plan plan = {0};
        CHECK_EQ(network_parse_line(&plan, "rule", pairs[i].one, error, sizeof error), 0);
        CHECK_EQ(network_parse_line(&plan, "rule", pairs[i].other, error, sizeof error), 0);
        CHECK_EQ(network_plan_check(&plan, error, sizeof error), pairs[i].error ? -EINVAL : 0);
        if (pairs[i].error)
            CHECK(strstr(error, pairs[i].error) != NULL);
        network_plan_free(&plan);
    }
    /* An IPv6 route without a metric has 1024. */
    struct network_plan plan = {0};
    network_parse_line(&plan, "route", "::/0 dev a table 7", error, sizeof error);
    network_parse_line(&plan, "route", "::/0 dev b table 7 metric 1024", error, sizeof error);
    CHECK_EQ(network_plan_check(&plan, error, sizeof error), -EINVAL);
    network_plan_free(&plan);
}

int main(void)
{
    parse();
    fields();
    check_pairs();
    return check_done();
}
