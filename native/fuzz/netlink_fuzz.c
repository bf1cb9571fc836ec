/* Netlink datagrams of any shape: every message goes through every parser that takes its type. */
#include <linux/netlink.h>

#include "io/netlink_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct netlink_message m;

    while (netlink_next(&data, &size, &m) == 1) {
        struct netlink_link link;
        struct netlink_address address;
        struct netlink_route route;
        struct netlink_rule rule;
        struct netlink_reply reply;
        struct netlink_request back;

        (void)netlink_parse_link(&m, &link);
        if (netlink_parse_address(&m, &address) == 0)
            (void)netlink_build_address(&back, 1, m.type, 0, &address);
        if (netlink_parse_route(&m, &route) == 0)
            (void)netlink_build_route(&back, 1, m.type, 0, &route);
        if (netlink_parse_rule(&m, &rule) == 0)
            (void)netlink_build_rule(&back, 1, m.type, 0, &rule);
        (void)netlink_parse_reply(&m, &reply);
    }
    return 0;
}
