#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>

#include "io/netlink_wire.h"
#include "wire/bytes.h"

int netlink_next(const uint8_t **data, size_t *length, struct netlink_message *message)
{
    struct nlmsghdr header;

    if (*length == 0)
        return 0;
    if (*length < sizeof header)
        return -EBADMSG;
    memcpy(&header, *data, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > *length)
        return -EBADMSG;
    *message = (struct netlink_message){
        .type = header.nlmsg_type,
        .flags = header.nlmsg_flags,
        .sequence = header.nlmsg_seq,
        .port = header.nlmsg_pid,
        .body = *data + sizeof header,
        .length = header.nlmsg_len - sizeof header,
    };
    size_t step = MIN(ROUND_UP((size_t)header.nlmsg_len, (size_t)4), *length);
    *data += step;
    *length -= step;
    return 1;
}

struct attribute {
    uint16_t type;
    const uint8_t *data;
    size_t length;
};

/* Takes the next attribute off: 1, 0 at the end, -EBADMSG. The last one's padding may be missing. */
static int attribute_next(const uint8_t **data, size_t *length, struct attribute *a)
{
    struct nlattr header;

    if (*length == 0)
        return 0;
    if (*length < sizeof header)
        return -EBADMSG;
    memcpy(&header, *data, sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > *length)
        return -EBADMSG;
    a->type = header.nla_type & NLA_TYPE_MASK;
    a->data = *data + sizeof header;
    a->length = header.nla_len - sizeof header;
    size_t step = MIN(ROUND_UP((size_t)header.nla_len, (size_t)4), *length);
    *data += step;
    *length -= step;
    return 1;
}

static int attribute_u32(const struct attribute *a, uint32_t *value)
{
    if (a->length != 4)
        return -EBADMSG;
    memcpy(value, a->data, 4);
    return 0;
}

static int attribute_u8(const struct attribute *a, uint8_t *value)
{
    if (a->length != 1)
        return -EBADMSG;
    *value = a->data[0];
    return 0;
}

static int attribute_prefix(const struct attribute *a, uint8_t family, uint8_t length, struct netlink_prefix *prefix)
{
    size_t n = netlink_address_size(family);

    if (n == 0 || a->length != n || length > n * 8)
        return -EBADMSG;
    *prefix = (struct netlink_prefix){.family = family, .length = length};
    memcpy(prefix->address, a->data, n);
    return 0;
}

static int attribute_name(const struct attribute *a, char name[IF_NAMESIZE])
{
    if (a->length == 0 || a->length > IF_NAMESIZE || a->data[a->length - 1] != '\0')
        return -EBADMSG;
    memset(name, 0, IF_NAMESIZE);
    memcpy(name, a->data, a->length);
    return 0;
}

/* The fixed body, and data/length set to the attributes behind it. */
static int message_body(const struct netlink_message *m, void *body, size_t n, const uint8_t **data, size_t *length)
{
    size_t padded = ROUND_UP(n, (size_t)4);

    if (m->length < padded)
        return -EBADMSG;
    memcpy(body, m->body, n);
    *data = m->body + padded;
    *length = m->length - padded;
    return 0;
}

int netlink_parse_link(const struct netlink_message *m, struct netlink_link *link)
{
    struct ifinfomsg body;
    const uint8_t *data;
    size_t length;
    struct attribute a;
    int error, more;

    if (m->type != RTM_NEWLINK && m->type != RTM_DELLINK)
        return -EPROTO;
    if ((error = message_body(m, &body, sizeof body, &data, &length)))
        return error;
    *link = (struct netlink_link){.index = body.ifi_index, .flags = body.ifi_flags, .type = body.ifi_type};
    while ((more = attribute_next(&data, &length, &a)) == 1) {
        error = a.type == IFLA_IFNAME   ? attribute_name(&a, link->name)
                : a.type == IFLA_MTU    ? attribute_u32(&a, &link->mtu)
                : a.type == IFLA_TXQLEN ? attribute_u32(&a, &link->txqueuelen)
                                        : 0;
        if (error)
            return error;
    }
    return more;
}

int netlink_parse_address(const struct netlink_message *m, struct netlink_address *address)
{
    struct ifaddrmsg body;
    struct netlink_prefix local = {0}, far = {0};
    const uint8_t *data;
    size_t length;
    struct attribute a;
    int error, more;

    if (m->type != RTM_NEWADDR && m->type != RTM_DELADDR)
        return -EPROTO;
    if ((error = message_body(m, &body, sizeof body, &data, &length)))
        return error;
    *address = (struct netlink_address){.index = (int)body.ifa_index, .scope = body.ifa_scope, .flags = body.ifa_flags};
    while ((more = attribute_next(&data, &length, &a)) == 1) {
        switch (a.type) {
        case IFA_LOCAL:
            error = attribute_prefix(&a, body.ifa_family, body.ifa_prefixlen, &local);
            break;
        case IFA_ADDRESS:
            error = attribute_prefix(&a, body.ifa_family, body.ifa_prefixlen, &far);
            break;
        case IFA_BROADCAST:
            error = attribute_prefix(&a, body.ifa_family, (uint8_t)(netlink_address_size(body.ifa_family) * 8),
                                     &address->broadcast);
            break;
        case IFA_FLAGS:
            error = attribute_u32(&a, &address->flags);
            break;
        }
        if (error)
            return error;
    }
    if (more < 0)
        return more;
    /* IPv6 without a peer has IFA_ADDRESS alone; IPv4 has both, equal where there is no peer. */
    address->local = local.family ? local : far;
    if (local.family && far.family && !netlink_prefix_equal(&local, &far))
        address->peer = far;
    return address->local.family ? 0 : -EBADMSG;
}

static int parse_via(const struct attribute *a, struct netlink_prefix *via)
{
    uint16_t family;
    struct attribute rest = {.type = a->type, .data = a->data + 2, .length = a->length - 2};

    if (a->length < 2)
        return -EBADMSG;
    memcpy(&family, a->data, 2);
    if (family != AF_INET && family != AF_INET6)
        return -EBADMSG;
    return attribute_prefix(&rest, (uint8_t)family, (uint8_t)(netlink_address_size((uint8_t)family) * 8), via);
}

/* The first next hop of several (struct rtnexthop: 8 bytes, then its own attributes) stands for the route. */
static int parse_multipath(const struct attribute *a, struct netlink_route *route)
{
    struct rtnexthop hop;
    struct attribute inner;
    const uint8_t *data;
    size_t length;
    int error = 0, more;

    if (a->length < sizeof hop)
        return -EBADMSG;
    memcpy(&hop, a->data, sizeof hop);
    if (hop.rtnh_len < sizeof hop || hop.rtnh_len > a->length)
        return -EBADMSG;
    route->index = hop.rtnh_ifindex;
    route->state = hop.rtnh_flags;
    data = a->data + sizeof hop;
    length = hop.rtnh_len - sizeof hop;
    while ((more = attribute_next(&data, &length, &inner)) == 1) {
        if (inner.type == RTA_GATEWAY)
            error = attribute_prefix(&inner, route->family, (uint8_t)(netlink_address_size(route->family) * 8),
                                     &route->via);
        else if (inner.type == RTA_VIA)
            error = parse_via(&inner, &route->via);
        if (error)
            return error;
    }
    return more;
}

static int parse_metrics(const struct attribute *a, struct netlink_route *route)
{
    const uint8_t *data = a->data;
    size_t length = a->length;
    struct attribute inner;
    int error, more;

    while ((more = attribute_next(&data, &length, &inner)) == 1) {
        error = inner.type == RTAX_MTU      ? attribute_u32(&inner, &route->mtu)
                : inner.type == RTAX_ADVMSS ? attribute_u32(&inner, &route->advmss)
                                            : 0;
        if (error)
            return error;
    }
    return more;
}

int netlink_parse_route(const struct netlink_message *m, struct netlink_route *route)
{
    struct rtmsg body;
    const uint8_t *data;
    size_t length;
    struct attribute a;
    uint32_t index = 0;
    int error, more;

    if (m->type != RTM_NEWROUTE && m->type != RTM_DELROUTE)
        return -EPROTO;
    if ((error = message_body(m, &body, sizeof body, &data, &length)))
        return error;
    /* Multicast routing tables come with families of their own; they are nobody's route here. */
    if (netlink_address_size(body.rtm_family) == 0)
        return -EPROTO;
    *route = (struct netlink_route){
        .family = body.rtm_family,
        .type = body.rtm_type,
        .protocol = body.rtm_protocol,
        .scope = body.rtm_scope,
        .flags_onlink = (body.rtm_flags & RTNH_F_ONLINK) != 0,
        .destination = {.family = body.rtm_family, .length = body.rtm_dst_len},
        .table = body.rtm_table,
        .state = body.rtm_flags & 0xff,
        .cloned = body.rtm_flags & RTM_F_CLONED,
    };
    uint8_t full = (uint8_t)(netlink_address_size(body.rtm_family) * 8);
    if (body.rtm_dst_len > full)
        return -EBADMSG;
    bool has_destination = false;
    while ((more = attribute_next(&data, &length, &a)) == 1) {
        switch (a.type) {
        case RTA_DST:
            error = attribute_prefix(&a, body.rtm_family, body.rtm_dst_len, &route->destination);
            has_destination = true;
            break;
        case RTA_GATEWAY:
            error = attribute_prefix(&a, body.rtm_family, full, &route->via);
            break;
        case RTA_VIA:
            error = parse_via(&a, &route->via);
            break;
        case RTA_PREFSRC:
            error = attribute_prefix(&a, body.rtm_family, full, &route->source);
            break;
        case RTA_OIF:
            error = attribute_u32(&a, &index);
            route->index = (int)index;
            break;
        case RTA_PRIORITY:
            error = attribute_u32(&a, &route->metric);
            break;
        case RTA_TABLE:
            error = attribute_u32(&a, &route->table);
            break;
        case RTA_MULTIPATH:
            error = parse_multipath(&a, route);
            break;
        case RTA_METRICS:
            error = parse_metrics(&a, route);
            break;
        }
        if (error)
            return error;
    }
    if (more < 0)
        return more;
    return body.rtm_dst_len && !has_destination ? -EBADMSG : 0;
}

int netlink_parse_rule(const struct netlink_message *m, struct netlink_rule *rule)
{
    struct fib_rule_hdr body;
    const uint8_t *data;
    size_t length;
    struct attribute a;
    uint32_t suppress = UINT32_MAX;
    int error, more;

    if (m->type != RTM_NEWRULE && m->type != RTM_DELRULE)
        return -EPROTO;
    if ((error = message_body(m, &body, sizeof body, &data, &length)))
        return error;
    if (netlink_address_size(body.family) == 0)
        return -EPROTO;
    *rule = (struct netlink_rule){
        .family = body.family,
        .action = body.action,
        .invert = (body.flags & FIB_RULE_INVERT) != 0,
        .table = body.table,
    };
    while ((more = attribute_next(&data, &length, &a)) == 1) {
        switch (a.type) {
        case FRA_DST:
            error = attribute_prefix(&a, body.family, body.dst_len, &rule->to);
            break;
        case FRA_SRC:
            error = attribute_prefix(&a, body.family, body.src_len, &rule->from);
            break;
        case FRA_IIFNAME:
            error = attribute_name(&a, rule->iif);
            break;
        case FRA_OIFNAME:
            error = attribute_name(&a, rule->oif);
            break;
        case FRA_PRIORITY:
            error = attribute_u32(&a, &rule->priority);
            break;
        case FRA_FWMARK:
            error = attribute_u32(&a, &rule->mark);
            rule->has_mark = true;
            break;
        case FRA_FWMASK:
            error = attribute_u32(&a, &rule->mask);
            rule->has_mark = true;
            break;
        case FRA_TABLE:
            error = attribute_u32(&a, &rule->table);
            break;
        case FRA_SUPPRESS_PREFIXLEN:
            error = attribute_u32(&a, &suppress);
            break;
        case FRA_PROTOCOL:
            error = attribute_u8(&a, &rule->protocol);
            break;
        }
        if (error)
            return error;
    }
    rule->suppress_prefixlength = (int32_t)suppress;
    return more;
}

int netlink_parse_reply(const struct netlink_message *m, struct netlink_reply *reply)
{
    int32_t code;
    struct attribute a;
    int more;

    if (m->type != NLMSG_ERROR && m->type != NLMSG_DONE)
        return -EPROTO;
    *reply = (struct netlink_reply){0};
    if (m->length < sizeof code)
        return m->type == NLMSG_DONE ? 0 : -EBADMSG;
    memcpy(&code, m->body, sizeof code);
    if (code > 0 || code < -4095)
        return -EBADMSG;
    reply->error = code;
    if (!(m->flags & NLM_F_ACK_TLVS))
        return 0;
    /* An error carries the refused message's header (NETLINK_CAP_ACK leaves the rest away), a dump's end does not. */
    size_t skip = sizeof code + (m->type == NLMSG_ERROR ? sizeof(struct nlmsghdr) : 0);
    if (m->type == NLMSG_ERROR && !(m->flags & NLM_F_CAPPED) && m->length >= skip) {
        struct nlmsghdr refused;
        memcpy(&refused, m->body + sizeof code, sizeof refused);
        if (refused.nlmsg_len < sizeof refused || refused.nlmsg_len > m->length - sizeof code)
            return -EBADMSG;
        skip = sizeof code + ROUND_UP((size_t)refused.nlmsg_len, (size_t)4);
    }
    if (m->length < skip)
        return -EBADMSG;
    const uint8_t *data = m->body + skip;
    size_t length = m->length - skip;
    while ((more = attribute_next(&data, &length, &a)) == 1) {
        if (a.type == NLMSGERR_ATTR_MSG) {
            size_t n = MIN(strnlen((const char *)a.data, a.length), sizeof reply->text - 1);
            memcpy(reply->text, a.data, n);
            reply->text[n] = '\0';
        } else if (a.type == NLMSGERR_ATTR_OFFS && attribute_u32(&a, &reply->offset)) {
            return -EBADMSG;
        }
    }
    return more;
}
