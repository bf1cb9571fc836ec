/* Objects of [network]: compared, checked against each other, and written as the lines they came from. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/network.h"
#include "wire/bytes.h"

/* IPv6 has no metric 0: the kernel takes it for this one. */
#define IPV6_DEFAULT_METRIC 1024

static uint32_t route_metric(const struct netlink_route *route)
{
    return route->family == AF_INET6 && !route->metric ? IPV6_DEFAULT_METRIC : route->metric;
}

static bool rule_equal(const struct netlink_rule *a, const struct netlink_rule *b)
{
    return a->family == b->family && a->action == b->action && a->invert == b->invert &&
           netlink_prefix_equal(&a->from, &b->from) && netlink_prefix_equal(&a->to, &b->to) &&
           strcmp(a->iif, b->iif) == 0 && strcmp(a->oif, b->oif) == 0 && a->priority == b->priority &&
           (a->action != FR_ACT_TO_TBL || a->table == b->table) && a->has_mark == b->has_mark &&
           (!a->has_mark || (a->mark == b->mark && a->mask == b->mask)) &&
           a->suppress_prefixlength == b->suppress_prefixlength;
}

bool network_item_same(const struct network_item *a, const struct network_item *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case NETWORK_SYSCTL:
        return strcmp(a->sysctl.key, b->sysctl.key) == 0;
    case NETWORK_LINK:
        return strcmp(a->device, b->device) == 0;
    case NETWORK_ADDRESS:
        return strcmp(a->device, b->device) == 0 && netlink_prefix_equal(&a->address.local, &b->address.local) &&
               netlink_prefix_equal(&a->address.peer, &b->address.peer);
    case NETWORK_ROUTE: /* the kernel's key of a route, for IPv4 and IPv6 */
        return netlink_prefix_equal(&a->route.destination, &b->route.destination) && a->route.table == b->route.table &&
               route_metric(&a->route) == route_metric(&b->route);
    case NETWORK_RULE:
        return rule_equal(&a->rule, &b->rule);
    case NETWORK_KIND_COUNT:
        break;
    }
    return false;
}

bool network_item_equal(const struct network_item *a, const struct network_item *b)
{
    if (!network_item_same(a, b))
        return false;
    switch (a->kind) {
    case NETWORK_SYSCTL:
        return strcmp(a->sysctl.value, b->sysctl.value) == 0;
    case NETWORK_LINK:
        return a->link.up == b->link.up && a->link.mtu == b->link.mtu && a->link.txqueuelen == b->link.txqueuelen;
    case NETWORK_ADDRESS:
        return true; /* what may differ (scope, flags, broadcast) does not matter to anybody */
    case NETWORK_ROUTE:
        return a->route.type == b->route.type && strcmp(a->device, b->device) == 0 &&
               netlink_prefix_equal(&a->route.via, &b->route.via) &&
               netlink_prefix_equal(&a->route.source, &b->route.source) && a->route.mtu == b->route.mtu &&
               a->route.advmss == b->route.advmss && a->route.flags_onlink == b->route.flags_onlink;
    case NETWORK_RULE:
        return true;
    case NETWORK_KIND_COUNT:
        break;
    }
    return false;
}

bool network_item_guards(const struct network_item *item)
{
    return item->kind == NETWORK_ROUTE && item->route.type != RTN_UNICAST;
}

/* The kernel deletes the first rule that has all that is named in the request: a rule that says less than another of
 * its priority would take the other one with it. */
static bool rule_covers(const struct netlink_rule *less, const struct netlink_rule *more)
{
    return less->family == more->family && less->priority == more->priority && less->action == more->action &&
           (less->action != FR_ACT_TO_TBL || less->table == more->table) &&
           (!less->from.family || netlink_prefix_equal(&less->from, &more->from)) &&
           (!less->to.family || netlink_prefix_equal(&less->to, &more->to)) &&
           (!less->iif[0] || strcmp(less->iif, more->iif) == 0) &&
           (!less->oif[0] || strcmp(less->oif, more->oif) == 0) &&
           (!less->has_mark || (more->has_mark && less->mark == more->mark && less->mask == more->mask)) &&
           (less->suppress_prefixlength < 0 || less->suppress_prefixlength == more->suppress_prefixlength);
}

int network_plan_check(const struct network_plan *plan, char *error, size_t size)
{
    char one[256], other[256];

    for (size_t i = 0; i < plan->count; i++) {
        for (size_t j = 0; j < i; j++) {
            const struct network_item *a = &plan->items[i], *b = &plan->items[j];
            bool same = network_item_same(a, b);
            if (!same && (a->kind != NETWORK_RULE || b->kind != NETWORK_RULE ||
                          (!rule_covers(&a->rule, &b->rule) && !rule_covers(&b->rule, &a->rule))))
                continue;
            network_format(b, one, sizeof one);
            network_format(a, other, sizeof other);
            snprintf(error, size, "%s=%s and %s=%s: %s", network_kind_name(b->kind), one, network_kind_name(a->kind),
                     other, same ? "the same object twice" : "one covers the other, give each its own priority");
            return -EINVAL;
        }
    }
    return 0;
}

struct line {
    char *text;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *line, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int n = vsnprintf(line->text + line->length, line->size - line->length, format, arguments);
    va_end(arguments);
    if (n > 0)
        line->length = MIN(line->length + (size_t)n, line->size - 1);
}

static void line_add_prefix(struct line *line, const char *before, const struct netlink_prefix *prefix, bool length)
{
    char text[INET6_ADDRSTRLEN] = "?";

    if (!prefix->family)
        return;
    inet_ntop(prefix->family, prefix->address, text, sizeof text);
    line_add(line, "%s%s", before, text);
    if (length)
        line_add(line, "/%u", prefix->length);
}

static void line_add_table(struct line *line, uint32_t table)
{
    if (table == RT_TABLE_MAIN)
        line_add(line, " table main");
    else
        line_add(line, " table %u", table);
}

static void format_address(struct line *line, const struct network_item *item)
{
    const struct netlink_address *a = &item->address;

    line_add_prefix(line, "", &a->local, !a->peer.family);
    line_add_prefix(line, " peer ", &a->peer, true);
    line_add_prefix(line, " broadcast ", &a->broadcast, false);
    line_add(line, " dev %s", item->device);
    if (a->scope)
        line_add(line, " scope %u", a->scope);
    if (a->flags & IFA_F_NODAD)
        line_add(line, " nodad");
    if (a->flags & IFA_F_NOPREFIXROUTE)
        line_add(line, " noprefixroute");
}

static void format_route(struct line *line, const struct network_item *item)
{
    const struct netlink_route *route = &item->route;

    line_add(line, "%s",
             route->type == RTN_UNREACHABLE ? "unreachable "
             : route->type == RTN_BLACKHOLE ? "blackhole "
             : route->type == RTN_PROHIBIT  ? "prohibit "
                                            : "");
    line_add_prefix(line, "", &route->destination, true);
    line_add_prefix(line,
                    route->via.family == route->family ? " via "
                    : route->via.family == AF_INET6    ? " via inet6 "
                                                       : " via inet ",
                    &route->via, false);
    if (item->device[0])
        line_add(line, " dev %s", item->device);
    line_add_table(line, route->table);
    if (route->metric)
        line_add(line, " metric %u", route->metric);
    line_add_prefix(line, " src ", &route->source, false);
    if (route->mtu)
        line_add(line, " mtu %u", route->mtu);
    if (route->advmss)
        line_add(line, " advmss %u", route->advmss);
    if (route->flags_onlink)
        line_add(line, " onlink");
    uint8_t usual = route->type == RTN_UNICAST && !route->via.family ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
    if (route->family == AF_INET && route->scope != usual)
        line_add(line, " scope %u", route->scope);
}

static void format_rule(struct line *line, const struct netlink_rule *rule)
{
    line_add(line, "%s priority %u", rule->family == AF_INET ? "-4" : "-6", rule->priority);
    if (rule->invert)
        line_add(line, " not");
    line_add_prefix(line, " from ", &rule->from, true);
    line_add_prefix(line, " to ", &rule->to, true);
    if (rule->iif[0])
        line_add(line, " iif %s", rule->iif);
    if (rule->oif[0])
        line_add(line, " oif %s", rule->oif);
    if (rule->has_mark && rule->mask == UINT32_MAX)
        line_add(line, " fwmark 0x%x", rule->mark);
    else if (rule->has_mark)
        line_add(line, " fwmark 0x%x/0x%x", rule->mark, rule->mask);
    if (rule->action == FR_ACT_TO_TBL)
        line_add_table(line, rule->table);
    else
        line_add(line, " %s",
                 rule->action == FR_ACT_BLACKHOLE  ? "blackhole"
                 : rule->action == FR_ACT_PROHIBIT ? "prohibit"
                                                   : "unreachable");
    if (rule->suppress_prefixlength >= 0)
        line_add(line, " suppress_prefixlength %d", rule->suppress_prefixlength);
}

void network_format(const struct network_item *item, char *text, size_t size)
{
    struct line line = {.text = text, .size = size};

    text[0] = '\0';
    switch (item->kind) {
    case NETWORK_SYSCTL:
        line_add(&line, "%s=%s", item->sysctl.key, item->sysctl.value);
        break;
    case NETWORK_LINK:
        line_add(&line, "%s", item->device);
        if (item->link.mtu)
            line_add(&line, " mtu %u", item->link.mtu);
        if (item->link.txqueuelen)
            line_add(&line, " txqueuelen %u", item->link.txqueuelen);
        if (item->link.up >= 0)
            line_add(&line, " %s", item->link.up ? "up" : "down");
        break;
    case NETWORK_ADDRESS:
        format_address(&line, item);
        break;
    case NETWORK_ROUTE:
        format_route(&line, item);
        break;
    case NETWORK_RULE:
        format_rule(&line, &item->rule);
        break;
    case NETWORK_KIND_COUNT:
        break;
    }
}
