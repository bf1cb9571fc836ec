#include "engine/network_kernel.h"

#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/file.h"
#include "wire/bytes.h"

/* --- What is there --- */

/* Makes room for one more in a list that doubles. */
static int list_room(void **list, size_t count, size_t size)
{
    if (count & (count - 1) || (count && count < 8))
        return 0;
    void *grown = realloc(*list, (count ? count * 2 : 8) * size);
    if (!grown)
        return -ENOMEM;
    *list = grown;
    return 0;
}

static int collect(void *context, const struct netlink_event *event)
{
    struct network_seen *seen = context;
    void *list;
    int error;

    switch (event->kind) {
    case NETLINK_EVENT_ROUTE:
        list = seen->routes;
        error = list_room(&list, seen->route_count, sizeof *seen->routes);
        seen->routes = list;
        if (!error)
            seen->routes[seen->route_count++] = event->route;
        return error;
    case NETLINK_EVENT_RULE:
        list = seen->rules;
        error = list_room(&list, seen->rule_count, sizeof *seen->rules);
        seen->rules = list;
        if (!error)
            seen->rules[seen->rule_count++] = event->rule;
        return error;
    case NETLINK_EVENT_ADDRESS:
        list = seen->addresses;
        error = list_room(&list, seen->address_count, sizeof *seen->addresses);
        seen->addresses = list;
        if (!error)
            seen->addresses[seen->address_count++] = event->address;
        return error;
    default:
        return 0;
    }
}

void network_seen_free(struct network_seen *seen)
{
    free(seen->routes);
    free(seen->rules);
    free(seen->addresses);
    *seen = (struct network_seen){0};
}

int network_seen_read(struct netlink *nl, struct network_seen *seen)
{
    static const enum netlink_event_kind kinds[] = {NETLINK_EVENT_ROUTE, NETLINK_EVENT_RULE, NETLINK_EVENT_ADDRESS};
    const struct netlink_filter ours = {.protocol = NETLINK_PROTOCOL_FV};
    int error = -EAGAIN;

    /* A dump that was torn by a change is read again. */
    for (int tries = 0; tries < 5 && error == -EAGAIN; tries++) {
        *seen = (struct network_seen){0};
        error = 0;
        for (size_t i = 0; i < ARRAY_COUNT(kinds) && !error; i++)
            error = netlink_dump(nl, kinds[i], &ours, collect, seen);
        if (error)
            network_seen_free(seen);
    }
    return error;
}

static bool route_same(const struct network_item *item, const struct netlink_route *route)
{
    const struct network_item other = {.kind = NETWORK_ROUTE, .route = *route};

    return network_item_same(item, &other);
}

const struct netlink_route *network_seen_route(const struct network_seen *seen, const struct network_item *item)
{
    for (size_t i = 0; i < seen->route_count; i++) {
        if (route_same(item, &seen->routes[i]))
            return &seen->routes[i];
    }
    return NULL;
}

bool network_seen_rule(const struct network_seen *seen, const struct network_item *item)
{
    for (size_t i = 0; i < seen->rule_count; i++) {
        const struct network_item other = {.kind = NETWORK_RULE, .rule = seen->rules[i]};
        if (network_item_same(item, &other))
            return true;
    }
    return false;
}

bool network_seen_address(const struct network_seen *seen, const struct network_item *item)
{
    for (size_t i = 0; i < seen->address_count; i++) {
        const struct netlink_address *a = &seen->addresses[i];
        if (a->index == item->address.index && netlink_prefix_equal(&a->local, &item->address.local) &&
            netlink_prefix_equal(&a->peer, &item->address.peer))
            return true;
    }
    return false;
}

bool network_route_matches(const struct network_item *item, const struct netlink_route *route)
{
    const struct netlink_route *want = &item->route;

    return want->type == route->type && netlink_prefix_equal(&want->via, &route->via) &&
           (!item->device[0] || want->index == route->index) && netlink_prefix_equal(&want->source, &route->source) &&
           want->mtu == route->mtu && want->advmss == route->advmss;
}

struct foreign_search {
    const struct network_item *item;
    struct netlink_route *found;
    bool any;
};

static int foreign_consider(void *context, const struct netlink_event *event)
{
    struct foreign_search *s = context;

    if (!s->any && event->route.protocol != NETLINK_PROTOCOL_FV && route_same(s->item, &event->route)) {
        *s->found = event->route;
        s->any = true;
    }
    return 0;
}

int network_route_foreign(struct netlink *nl, const struct network_item *item, struct netlink_route *found)
{
    const struct netlink_filter filter = {.family = item->route.family, .table = item->route.table};
    struct foreign_search search = {.item = item, .found = found};
    int error = -EAGAIN;

    for (int tries = 0; tries < 5 && error == -EAGAIN; tries++)
        error = netlink_dump(nl, NETLINK_EVENT_ROUTE, &filter, foreign_consider, &search);
    return error ? error : search.any;
}

int network_route_item(struct netlink *nl, const struct netlink_route *route, struct network_item *item)
{
    struct netlink_link link;

    *item = (struct network_item){.kind = NETWORK_ROUTE, .route = *route};
    /* IPv6 says that a route which refuses goes through lo. */
    if (route->type != RTN_UNICAST)
        item->route.index = 0;
    if (!item->route.index)
        return 0;
    int error = netlink_link_by_index(nl, route->index, &link);
    if (!error)
        memcpy(item->device, link.name, sizeof item->device);
    return error;
}

/* --- Putting and removing --- */

int network_resolve(struct netlink *nl, struct network_item *item)
{
    struct netlink_link link;

    if (!item->device[0] || item->kind == NETWORK_LINK)
        return 0;
    int error = netlink_link_get(nl, item->device, &link);
    if (error)
        return error;
    if (item->kind == NETWORK_ADDRESS)
        item->address.index = link.index;
    else
        item->route.index = link.index;
    return 0;
}

static void sysctl_path(const char *key, char *path, size_t size)
{
    snprintf(path, size, "/proc/sys/%s", key);
}

int network_sysctl_read(const char *key, char *value, size_t size)
{
    char path[128], text[256];
    size_t n = 0;

    sysctl_path(key, path, sizeof path);
    ssize_t got = file_read(path, text, sizeof text);
    if (got < 0)
        return (int)got;
    for (const char *at = text; *at; at++) {
        bool space = *at == ' ' || *at == '\t' || *at == '\n';
        if (space && (n == 0 || value[n - 1] == ' '))
            continue;
        if (n + 1 >= size)
            return -EFBIG;
        value[n++] = space ? ' ' : *at;
    }
    if (n && value[n - 1] == ' ')
        n--;
    value[n] = '\0';
    return 0;
}

bool network_lacks_ipv6(const char *device)
{
    char key[96], value[8];

    /* A device whose MTU is below 1280 has no folder there either. */
    snprintf(key, sizeof key, "net/ipv6/conf/%s/disable_ipv6", device[0] ? device : "all");
    int error = network_sysctl_read(key, value, sizeof value);
    return error == -ENOENT || (!error && device[0] && strcmp(value, "0") != 0);
}

int network_put(struct netlink *nl, const struct network_item *wanted, bool replace)
{
    struct network_item item = *wanted;
    struct netlink_link link;
    char path[128];
    int error;

    switch (item.kind) {
    case NETWORK_SYSCTL:
        sysctl_path(item.sysctl.key, path, sizeof path);
        return file_poke(path, item.sysctl.value, strlen(item.sysctl.value));
    case NETWORK_LINK:
        error = netlink_link_get(nl, item.device, &link);
        return error ? error : netlink_link_set(nl, link.index, &item.link);
    case NETWORK_ADDRESS:
        error = network_resolve(nl, &item);
        return error ? error : netlink_address_add(nl, &item.address);
    case NETWORK_ROUTE:
        error = network_resolve(nl, &item);
        return error ? error : netlink_route_add(nl, &item.route, replace);
    case NETWORK_RULE:
        return netlink_rule_add(nl, &item.rule);
    case NETWORK_KIND_COUNT:
        break;
    }
    return -EINVAL;
}

int network_remove(struct netlink *nl, const struct network_item *there)
{
    struct network_item item = *there;
    int error = network_resolve(nl, &item);

    if (!error && item.kind == NETWORK_ADDRESS)
        error = netlink_address_delete(nl, &item.address);
    else if (!error && item.kind == NETWORK_ROUTE)
        error = netlink_route_delete(nl, &item.route);
    else if (!error && item.kind == NETWORK_RULE)
        error = netlink_rule_delete(nl, &item.rule);
    return error == -ENODEV || error == -ENOENT || error == -ESRCH || error == -EADDRNOTAVAIL ? 0 : error;
}
