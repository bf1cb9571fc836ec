#include "io/netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire/bytes.h"

#define NETLINK_BUFFER 32768 /* the kernel fills dumps up to the size that is asked for, 32 KiB at most */
#define NETLINK_PATIENCE 5000  /* ms; an answer that is not there by then does not come */

static int netlink_socket(uint32_t groups)
{
    struct sockaddr_nl local = {.nl_family = AF_NETLINK, .nl_groups = groups};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&local, sizeof local) < 0) {
        int error = -errno;
        close(fd);
        return error;
    }
    return fd;
}

int netlink_open(struct netlink *nl)
{
    struct sockaddr_nl local = {0};
    socklen_t n = sizeof local;
    const int on = 1;

    *nl = (struct netlink){.fd = -1};
    nl->buffer = malloc(NETLINK_BUFFER);
    if (!nl->buffer)
        return -ENOMEM;
    nl->fd = netlink_socket(0);
    int error = nl->fd < 0 ? nl->fd : 0;
    if (!error && getsockname(nl->fd, (struct sockaddr *)&local, &n) < 0)
        error = -errno;
    if (error) {
        snprintf(nl->error, sizeof nl->error, "netlink socket: %s", strerror(-error));
        netlink_close(nl);
        return error;
    }
    nl->port = local.nl_pid;
    /* All three are comforts: without them errors are numbers and dumps are longer. */
    (void)setsockopt(nl->fd, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
    (void)setsockopt(nl->fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
    (void)setsockopt(nl->fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on, sizeof on);
    return 0;
}

void netlink_close(struct netlink *nl)
{
    if (nl->fd >= 0)
        close(nl->fd);
    free(nl->buffer);
    nl->fd = -1;
    nl->buffer = NULL;
}

const char *netlink_error(const struct netlink *nl)
{
    return nl->error;
}

static int netlink_fail(struct netlink *nl, int error, const char *text)
{
    bool more = text && text[0];

    snprintf(nl->error, sizeof nl->error, "%s%s%s%s", strerror(-error), more ? " (" : "", more ? text : "",
             more ? ")" : "");
    return error;
}

/* One datagram of the kernel; from anybody else it is dropped. Bytes, or -errno. */
static ssize_t netlink_receive(int fd, uint8_t *buffer, size_t size)
{
    for (;;) {
        struct sockaddr_nl from = {0};
        struct iovec part = {.iov_base = buffer, .iov_len = size};
        struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1};
        ssize_t n = recvmsg(fd, &message, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (message.msg_namelen != sizeof from || from.nl_pid != 0)
            continue;
        return message.msg_flags & MSG_TRUNC ? -EMSGSIZE : n;
    }
}

static ssize_t netlink_await(struct netlink *nl)
{
    for (;;) {
        ssize_t n = netlink_receive(nl->fd, nl->buffer, NETLINK_BUFFER);
        if (n != -EAGAIN)
            return n;
        struct pollfd p = {.fd = nl->fd, .events = POLLIN};
        int ready = poll(&p, 1, NETLINK_PATIENCE);
        if (ready == 0)
            return -ETIMEDOUT;
        if (ready < 0 && errno != EINTR)
            return -errno;
    }
}

static int netlink_send(struct netlink *nl, const struct netlink_request *request)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    ssize_t n;

    if (request->overflow)
        return -EMSGSIZE;
    do
        n = sendto(nl->fd, request->bytes, request->length, 0, (const struct sockaddr *)&kernel, sizeof kernel);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* A message on its way to the callback: parsed by its type. -EPROTO: a type that is not looked at. */
static int netlink_event_parse(const struct netlink_message *m, struct netlink_event *event)
{
    switch (m->type) {
    case RTM_NEWLINK:
    case RTM_DELLINK:
        event->kind = NETLINK_EVENT_LINK;
        event->gone = m->type == RTM_DELLINK;
        return netlink_parse_link(m, &event->link);
    case RTM_NEWADDR:
    case RTM_DELADDR:
        event->kind = NETLINK_EVENT_ADDRESS;
        event->gone = m->type == RTM_DELADDR;
        return netlink_parse_address(m, &event->address);
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
        event->kind = NETLINK_EVENT_ROUTE;
        event->gone = m->type == RTM_DELROUTE;
        return netlink_parse_route(m, &event->route);
    case RTM_NEWRULE:
    case RTM_DELRULE:
        event->kind = NETLINK_EVENT_RULE;
        event->gone = m->type == RTM_DELRULE;
        return netlink_parse_rule(m, &event->rule);
    default:
        return -EPROTO;
    }
}

/* Sends, and reads until the acknowledgement or the end of the dump. */
static int netlink_transact(struct netlink *nl, const struct netlink_request *request, uint32_t sequence,
                            netlink_callback *callback, void *context)
{
    int stopped = 0;
    bool torn = false;
    int error = netlink_send(nl, request);

    if (error)
        return netlink_fail(nl, error, "netlink send");
    for (;;) {
        ssize_t n = netlink_await(nl);
        if (n < 0)
            return netlink_fail(nl, (int)n, "netlink answer");
        const uint8_t *data = nl->buffer;
        size_t length = (size_t)n;
        struct netlink_message m;
        int more;
        while ((more = netlink_next(&data, &length, &m)) == 1) {
            /* An answer to a request that timed out earlier may still come. */
            if (m.sequence != sequence || m.port != nl->port)
                continue;
            torn = torn || (m.flags & NLM_F_DUMP_INTR);
            if (m.type == NLMSG_ERROR || m.type == NLMSG_DONE) {
                struct netlink_reply reply;
                if ((error = netlink_parse_reply(&m, &reply)))
                    return netlink_fail(nl, error, "netlink answer");
                if (reply.error)
                    return netlink_fail(nl, reply.error, reply.text);
                return stopped ? stopped : torn ? netlink_fail(nl, -EAGAIN, "changed while it was read") : 0;
            }
            struct netlink_event event;
            error = netlink_event_parse(&m, &event);
            if (error && error != -EPROTO)
                return netlink_fail(nl, error, "netlink answer");
            /* The rest of a dump that was stopped is read, so that the socket is clean for the next request. */
            if (!error && callback && !stopped)
                stopped = callback(context, &event);
        }
        if (more < 0)
            return netlink_fail(nl, more, "netlink answer");
    }
}

struct link_answer {
    struct netlink_link *link;
    bool found;
};

static int link_take(void *context, const struct netlink_event *event)
{
    struct link_answer *answer = context;

    if (event->kind == NETLINK_EVENT_LINK) {
        *answer->link = event->link;
        answer->found = true;
    }
    return 0;
}

static int netlink_link_ask(struct netlink *nl, int index, const char *name, struct netlink_link *link)
{
    struct netlink_request request;
    struct link_answer answer = {.link = link};

    if (name && (!name[0] || strlen(name) >= IF_NAMESIZE))
        return netlink_fail(nl, -ENODEV, "not an interface name");
    netlink_build_link_get(&request, ++nl->sequence, index, name);
    int error = netlink_transact(nl, &request, nl->sequence, link_take, &answer);
    return error ? error : answer.found ? 0 : netlink_fail(nl, -ENODEV, NULL);
}

int netlink_link_get(struct netlink *nl, const char *name, struct netlink_link *link)
{
    return netlink_link_ask(nl, 0, name, link);
}

int netlink_link_by_index(struct netlink *nl, int index, struct netlink_link *link)
{
    return netlink_link_ask(nl, index, NULL, link);
}

int netlink_link_set(struct netlink *nl, int index, const struct netlink_link_change *change)
{
    struct netlink_request request;

    netlink_build_link_set(&request, ++nl->sequence, index, change);
    return netlink_transact(nl, &request, nl->sequence, NULL, NULL);
}

static int netlink_address_change(struct netlink *nl, uint16_t type, uint16_t flags, const struct netlink_address *a)
{
    struct netlink_request request;

    netlink_build_address(&request, ++nl->sequence, type, flags, a);
    return netlink_transact(nl, &request, nl->sequence, NULL, NULL);
}

int netlink_address_add(struct netlink *nl, const struct netlink_address *address)
{
    return netlink_address_change(nl, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, address);
}

int netlink_address_delete(struct netlink *nl, const struct netlink_address *address)
{
    return netlink_address_change(nl, RTM_DELADDR, 0, address);
}

int netlink_route_add(struct netlink *nl, const struct netlink_route *route, bool replace)
{
    struct netlink_request request;

    netlink_build_route(&request, ++nl->sequence, RTM_NEWROUTE, NLM_F_CREATE | (replace ? NLM_F_REPLACE : NLM_F_EXCL),
                        route);
    return netlink_transact(nl, &request, nl->sequence, NULL, NULL);
}

int netlink_route_delete(struct netlink *nl, const struct netlink_route *route)
{
    struct netlink_request request;
    struct netlink_route any_scope = *route;

    any_scope.scope = RT_SCOPE_NOWHERE;
    netlink_build_route(&request, ++nl->sequence, RTM_DELROUTE, 0, &any_scope);
    return netlink_transact(nl, &request, nl->sequence, NULL, NULL);
}

int netlink_rule_add(struct netlink *nl, const struct netlink_rule *rule)
{
    struct netlink_request request;

    netlink_build_rule(&request, ++nl->sequence, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, rule);
    return netlink_transact(nl, &request, nl->sequence, NULL, NULL);
}

int netlink_rule_delete(struct netlink *nl, const struct netlink_rule *rule)
{
    struct netlink_request request;

    netlink_build_rule(&request, ++nl->sequence, RTM_DELRULE, 0, rule);
    return netlink_transact(nl, &request, nl->sequence, NULL, NULL);
}

struct dump_filter {
    enum netlink_event_kind kind;
    const struct netlink_filter *filter;
    netlink_callback *callback;
    void *context;
};

/* The kernel filters where it can; this decides. */
static int dump_pass(void *context, const struct netlink_event *event)
{
    const struct dump_filter *d = context;
    const struct netlink_filter *f = d->filter;

    if (event->kind != d->kind)
        return 0;
    if (f && event->kind == NETLINK_EVENT_ADDRESS && f->family && event->address.local.family != f->family)
        return 0;
    if (event->kind == NETLINK_EVENT_ROUTE && event->route.cloned)
        return 0;
    if (f && event->kind == NETLINK_EVENT_ROUTE &&
        ((f->family && event->route.family != f->family) || (f->table && event->route.table != f->table) ||
         (f->protocol && event->route.protocol != f->protocol)))
        return 0;
    if (f && event->kind == NETLINK_EVENT_RULE &&
        ((f->family && event->rule.family != f->family) || (f->table && event->rule.table != f->table) ||
         (f->protocol && event->rule.protocol != f->protocol)))
        return 0;
    return d->callback(d->context, event);
}

int netlink_dump(struct netlink *nl, enum netlink_event_kind kind, const struct netlink_filter *filter,
                 netlink_callback *callback, void *context)
{
    static const uint16_t types[] = {[NETLINK_EVENT_LINK] = RTM_GETLINK,
                                     [NETLINK_EVENT_ADDRESS] = RTM_GETADDR,
                                     [NETLINK_EVENT_ROUTE] = RTM_GETROUTE,
                                     [NETLINK_EVENT_RULE] = RTM_GETRULE};
    struct dump_filter pass = {.kind = kind, .filter = filter, .callback = callback, .context = context};
    static const uint8_t families[] = {AF_INET, AF_INET6};

    if ((size_t)kind >= ARRAY_COUNT(types))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_COUNT(families); i++) {
        struct netlink_request request;
        uint8_t family = kind == NETLINK_EVENT_LINK ? AF_UNSPEC : families[i];
        if (kind == NETLINK_EVENT_LINK && i > 0)
            break;
        if (family && filter && filter->family && filter->family != family)
            continue;
        netlink_build_dump(&request, ++nl->sequence, types[kind], family, filter ? filter->table : 0,
                           filter ? filter->protocol : 0);
        int error = netlink_transact(nl, &request, nl->sequence, dump_pass, &pass);
        /* A table that nobody has put a route into yet is an empty one; a family that is not built in has nothing. */
        if (error == -ENOENT || error == -EAFNOSUPPORT || error == -EOPNOTSUPP)
            error = 0;
        if (error)
            return error;
    }
    return 0;
}

struct uplink_search {
    const int *except;
    size_t except_count;
    struct netlink_route *best;
    bool found;
};

static int uplink_consider(void *context, const struct netlink_event *event)
{
    struct uplink_search *s = context;
    const struct netlink_route *route = &event->route;

    if (route->destination.length != 0 || route->type != RTN_UNICAST || route->protocol == NETLINK_PROTOCOL_FV ||
        route->index == 0 || (route->state & (RTNH_F_DEAD | RTNH_F_LINKDOWN)))
        return 0;
    for (size_t i = 0; i < s->except_count; i++) {
        if (s->except[i] == route->index)
            return 0;
    }
    if (!s->found || route->metric < s->best->metric) {
        *s->best = *route;
        s->found = true;
    }
    return 0;
}

int netlink_uplink(struct netlink *nl, uint8_t family, const int *except, size_t except_count,
                   struct netlink_route *route)
{
    const struct netlink_filter filter = {.family = family, .table = RT_TABLE_MAIN};
    int error = -EAGAIN;

    for (int i = 0; i < 5 && error == -EAGAIN; i++) {
        struct uplink_search search = {.except = except, .except_count = except_count, .best = route};
        error = netlink_dump(nl, NETLINK_EVENT_ROUTE, &filter, uplink_consider, &search);
        if (!error)
            return search.found ? 0 : netlink_fail(nl, -ENETUNREACH, "no default route");
    }
    return error;
}

int netlink_watch_open(void)
{
    return netlink_socket(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_IPV4_ROUTE |
                          RTMGRP_IPV6_ROUTE | RTMGRP_IPV4_RULE);
}

int netlink_watch_read(int fd, netlink_callback *callback, void *context)
{
    uint8_t buffer[8192];

    for (;;) {
        ssize_t n = netlink_receive(fd, buffer, sizeof buffer);
        if (n == -EAGAIN)
            return 0;
        struct netlink_event event = {.kind = NETLINK_EVENT_LOST};
        int stopped = 0;
        if (n == -ENOBUFS || n == -EMSGSIZE) {
            stopped = callback(context, &event);
        } else if (n < 0) {
            return (int)n;
        }
        const uint8_t *data = buffer;
        size_t length = n < 0 ? 0 : (size_t)n;
        struct netlink_message m;
        int more = 0;
        while (!stopped && (more = netlink_next(&data, &length, &m)) == 1) {
            int error = netlink_event_parse(&m, &event);
            if (error == -EBADMSG)
                return error;
            if (!error)
                stopped = callback(context, &event);
        }
        if (more < 0)
            return more;
        if (stopped)
            return stopped;
    }
}
