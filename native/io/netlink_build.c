#include "io/netlink_wire.h"

#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "wire/bytes.h"

/* linux/if.h and net/if.h cannot both be included; this is the only name needed of the former. */
#define NETLINK_IFF_UP 1u

size_t netlink_address_size(uint8_t family)
{
    return family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0;
}

bool netlink_prefix_equal(const struct netlink_prefix *a, const struct netlink_prefix *b)
{
    return a->family == b->family &&
           (a->family == 0 ||
            (a->length == b->length && memcmp(a->address, b->address, netlink_address_size(a->family)) == 0));
}

/* Appends n bytes and the padding to 4. NULL: no room. */
static uint8_t *request_grow(struct netlink_request *r, size_t n)
{
    size_t padded = ROUND_UP(n, (size_t)4);

    if (r->overflow || padded > sizeof r->bytes - r->length) {
        r->overflow = true;
        return NULL;
    }
    uint8_t *at = r->bytes + r->length;
    memset(at, 0, padded);
    r->length += padded;
    return at;
}

static void request_begin(struct netlink_request *r, uint32_t sequence, uint16_t type, uint16_t flags, const void *body,
                          size_t body_length)
{
    struct nlmsghdr header = {.nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = sequence};

    r->length = 0;
    r->overflow = false;
    memcpy(request_grow(r, sizeof header), &header, sizeof header);
    memcpy(request_grow(r, body_length), body, body_length);
}

static void request_put(struct netlink_request *r, uint16_t type, const void *data, size_t n)
{
    struct nlattr attribute = {.nla_len = (uint16_t)(sizeof attribute + n), .nla_type = type};
    uint8_t *at = request_grow(r, sizeof attribute + n);

    if (!at)
        return;
    memcpy(at, &attribute, sizeof attribute);
    memcpy(at + sizeof attribute, data, n);
}

static void request_put_u32(struct netlink_request *r, uint16_t type, uint32_t value)
{
    request_put(r, type, &value, sizeof value);
}

static void request_put_prefix(struct netlink_request *r, uint16_t type, const struct netlink_prefix *prefix)
{
    if (prefix->family)
        request_put(r, type, prefix->address, netlink_address_size(prefix->family));
}

/* Interface names are NUL-terminated on the wire. */
static void request_put_name(struct netlink_request *r, uint16_t type, const char *name)
{
    size_t n = strnlen(name, IF_NAMESIZE - 1);
    char text[IF_NAMESIZE] = {0};

    memcpy(text, name, n);
    if (n)
        request_put(r, type, text, n + 1);
}

/* Writes the length into the header. */
static bool request_end(struct netlink_request *r)
{
    uint32_t length = (uint32_t)r->length;

    memcpy(r->bytes + offsetof(struct nlmsghdr, nlmsg_len), &length, sizeof length);
    return !r->overflow;
}

bool netlink_build_link_get(struct netlink_request *r, uint32_t sequence, int index, const char *name)
{
    struct ifinfomsg body = {.ifi_family = AF_UNSPEC, .ifi_index = index};

    request_begin(r, sequence, RTM_GETLINK, NLM_F_ACK, &body, sizeof body);
    if (name)
        request_put_name(r, IFLA_IFNAME, name);
    return request_end(r);
}

bool netlink_build_link_set(struct netlink_request *r, uint32_t sequence, int index,
                            const struct netlink_link_change *change)
{
    struct ifinfomsg body = {.ifi_family = AF_UNSPEC, .ifi_index = index};

    if (change->up >= 0) {
        body.ifi_change = NETLINK_IFF_UP;
        body.ifi_flags = change->up ? NETLINK_IFF_UP : 0;
    }
    request_begin(r, sequence, RTM_NEWLINK, NLM_F_ACK, &body, sizeof body);
    if (change->mtu)
        request_put_u32(r, IFLA_MTU, change->mtu);
    if (change->txqueuelen)
        request_put_u32(r, IFLA_TXQLEN, change->txqueuelen);
    return request_end(r);
}

bool netlink_build_address(struct netlink_request *r, uint32_t sequence, uint16_t type, uint16_t flags,
                           const struct netlink_address *a)
{
    struct ifaddrmsg body = {
        .ifa_family = a->local.family,
        .ifa_prefixlen = a->peer.family ? a->peer.length : a->local.length,
        .ifa_flags = (uint8_t)a->flags,
        .ifa_scope = a->scope,
        .ifa_index = (uint32_t)a->index,
    };

    request_begin(r, sequence, type, NLM_F_ACK | flags, &body, sizeof body);
    request_put_prefix(r, IFA_LOCAL, &a->local);
    /* IFA_ADDRESS is the far end; where there is none it repeats the own address. */
    request_put_prefix(r, IFA_ADDRESS, a->peer.family ? &a->peer : &a->local);
    request_put_prefix(r, IFA_BROADCAST, &a->broadcast);
    if (a->flags > 0xff)
        request_put_u32(r, IFA_FLAGS, a->flags);
    return request_end(r);
}

static void request_put_via(struct netlink_request *r, const struct netlink_route *route)
{
    uint8_t via[2 + 16]; /* struct rtvia: family and address, for a next hop of the other family */
    uint16_t family = route->via.family;
    size_t n = netlink_address_size(route->via.family);

    if (route->via.family == route->family || !n) {
        request_put_prefix(r, RTA_GATEWAY, &route->via);
        return;
    }
    memcpy(via, &family, sizeof family);
    memcpy(via + 2, route->via.address, n);
    request_put(r, RTA_VIA, via, 2 + n);
}

static void request_put_metrics(struct netlink_request *r, const struct netlink_route *route)
{
    uint8_t metrics[16];
    struct nlattr attribute = {.nla_len = 8};
    size_t n = 0;
    const struct {
        uint16_t type;
        uint32_t value;
    } each[] = {{RTAX_MTU, route->mtu}, {RTAX_ADVMSS, route->advmss}};

    for (size_t i = 0; i < ARRAY_COUNT(each); i++) {
        if (!each[i].value)
            continue;
        attribute.nla_type = each[i].type;
        memcpy(metrics + n, &attribute, 4);
        memcpy(metrics + n + 4, &each[i].value, 4);
        n += 8;
    }
    if (n)
        request_put(r, RTA_METRICS, metrics, n);
}

bool netlink_build_route(struct netlink_request *r, uint32_t sequence, uint16_t type, uint16_t flags,
                         const struct netlink_route *route)
{
    struct rtmsg body = {
        .rtm_family = route->family,
        .rtm_dst_len = route->destination.length,
        .rtm_table = route->table < 256 ? (uint8_t)route->table : RT_TABLE_COMPAT,
        .rtm_protocol = route->protocol,
        .rtm_scope = route->scope,
        .rtm_type = route->type,
        .rtm_flags = route->flags_onlink ? RTNH_F_ONLINK : 0,
    };

    request_begin(r, sequence, type, NLM_F_ACK | flags, &body, sizeof body);
    if (route->destination.length)
        request_put_prefix(r, RTA_DST, &route->destination);
    request_put_via(r, route);
    request_put_prefix(r, RTA_PREFSRC, &route->source);
    if (route->index)
        request_put_u32(r, RTA_OIF, (uint32_t)route->index);
    if (route->metric)
        request_put_u32(r, RTA_PRIORITY, route->metric);
    request_put_metrics(r, route);
    request_put_u32(r, RTA_TABLE, route->table);
    return request_end(r);
}

bool netlink_build_rule(struct netlink_request *r, uint32_t sequence, uint16_t type, uint16_t flags,
                        const struct netlink_rule *rule)
{
    struct fib_rule_hdr body = {
        .family = rule->family,
        .dst_len = rule->to.family ? rule->to.length : 0,
        .src_len = rule->from.family ? rule->from.length : 0,
        .table = rule->table < 256 ? (uint8_t)rule->table : RT_TABLE_COMPAT,
        .action = rule->action,
        .flags = rule->invert ? FIB_RULE_INVERT : 0,
    };

    request_begin(r, sequence, type, NLM_F_ACK | flags, &body, sizeof body);
    if (body.dst_len)
        request_put_prefix(r, FRA_DST, &rule->to);
    if (body.src_len)
        request_put_prefix(r, FRA_SRC, &rule->from);
    request_put_name(r, FRA_IIFNAME, rule->iif);
    request_put_name(r, FRA_OIFNAME, rule->oif);
    request_put_u32(r, FRA_PRIORITY, rule->priority);
    if (rule->has_mark) {
        request_put_u32(r, FRA_FWMARK, rule->mark);
        request_put_u32(r, FRA_FWMASK, rule->mask);
    }
    if (rule->action == FR_ACT_TO_TBL)
        request_put_u32(r, FRA_TABLE, rule->table);
    if (rule->suppress_prefixlength >= 0)
        request_put_u32(r, FRA_SUPPRESS_PREFIXLEN, (uint32_t)rule->suppress_prefixlength);
    request_put(r, FRA_PROTOCOL, &rule->protocol, 1);
    return request_end(r);
}

/* The strict check of dumps (NETLINK_GET_STRICT_CHK, 4.20) wants each type's own body, all zero but what filters. */
bool netlink_build_dump(struct netlink_request *r, uint32_t sequence, uint16_t type, uint8_t family, uint32_t table,
                        uint8_t protocol)
{
    struct ifinfomsg link = {.ifi_family = family};
    struct ifaddrmsg address = {.ifa_family = family};
    struct fib_rule_hdr rule = {.family = family};
    struct rtmsg route = {.rtm_family = family, .rtm_protocol = protocol};

    switch (type) {
    case RTM_GETLINK:
        request_begin(r, sequence, type, NLM_F_DUMP, &link, sizeof link);
        break;
    case RTM_GETADDR:
        request_begin(r, sequence, type, NLM_F_DUMP, &address, sizeof address);
        break;
    case RTM_GETRULE:
        request_begin(r, sequence, type, NLM_F_DUMP, &rule, sizeof rule);
        break;
    case RTM_GETROUTE:
        request_begin(r, sequence, type, NLM_F_DUMP, &route, sizeof route);
        if (table)
            request_put_u32(r, RTA_TABLE, table);
        break;
    default:
        return false;
    }
    return request_end(r);
}
