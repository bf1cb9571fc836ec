/* Host names of endpoints. The core asks for an address when a peer has a name and no endpoint yet, and again when its
 * handshakes go unanswered; then the name's next address is taken, after a fresh look-up. A look-up that fails is
 * repeated after 1 s, 2 s, 4 s ... 60 s. A peer may be gone when its answer comes, so it is found again by its key. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "flow/resolver_io.h"
#include "io/clock.h"
#include "io/log.h"
#include "io/process.h"
#include "wire/bytes.h"

struct name {
    struct name *next;
    struct engine *engine;
    struct tunnel *tunnel;
    uint8_t key[WG_KEY_SIZE]; /* of the peer */
    int lookup;               /* under way, or -1 */
    unsigned asked;           /* how often an address was wanted: chooses among several */
    unsigned failures;        /* in a row */
    struct timer retry;       /* WAKE_NAMES_TIMER */
};

struct names {
    struct resolver_io *io;
    struct name *first;
};

static void name_done(void *context, const struct resolver_result *result);

/* --- configuration --- */

/* Reads the section; io NULL only checks. */
static int read_section(struct resolver_io *io, const struct plan *plan, struct plan_error *error)
{
    const struct plan_section *section = plan_find(plan, PLAN_RESOLVER, "");
    unsigned servers = 0;
    for (unsigned i = 0; section && i < section->count; i++) {
        const struct plan_line *line = &section->lines[i];
        struct addr a;
        int result = 0;
        if (strcmp(line->key, "server") == 0) {
            size_t n = strlen(line->value);
            if (!n)
                continue;
            if (addr_parse_ip(&a, line->value, n) != TEXT_OK && addr_parse(&a, line->value, n) != TEXT_OK)
                return plan_fail(error, -EINVAL, line->line, "'server' is an address, or ADDRESS:PORT");
            if (++servers > RESOLVER_SERVERS)
                return plan_fail(error, -EINVAL, line->line, "%d servers are the most", RESOLVER_SERVERS);
            if (io)
                result = resolver_add_server(resolver_io_core(io), &a);
        } else {
            const char *space = strchr(line->value, ' ');
            if (!space || addr_parse_ip(&a, space + 1, strlen(space + 1)) != TEXT_OK)
                return plan_fail(error, -EINVAL, line->line, "'host' is NAME ADDRESS");
            if (io)
                result = resolver_add_host(resolver_io_core(io), line->value, (size_t)(space - line->value), &a);
        }
        if (result)
            return plan_fail(error, result, line->line, "'%s': %s", line->key, strerror(-result));
    }
    if (!io)
        return 0;
    int result = resolver_io_load(io, "/etc/hosts", servers ? NULL : "/etc/resolv.conf", true);
    if (result)
        log_warning("reading /etc/hosts and /etc/resolv.conf: %s", strerror(-result));
    return 0;
}

int engine_names_check(const struct plan *plan, struct plan_error *error)
{
    return read_section(NULL, plan, error);
}

int engine_names_configure(struct engine *engine, const struct plan *plan, struct plan_error *error)
{
    resolver_reset(resolver_io_core(engine->names->io));
    return read_section(engine->names->io, plan, error);
}

/* The mark that keeps the engine's own packets out of its tunnels: the first device's. */
static uint32_t plan_mark(const struct plan *plan)
{
    const struct plan_section *section =
        plan_find(plan, PLAN_WIREGUARD, plan->wireguard_count ? plan->wireguard[0].name : "");
    for (unsigned i = 0; section && i < section->count; i++)
        if (strcmp(section->lines[i].key, "fwmark") == 0)
            return (uint32_t)strtoul(section->lines[i].value, NULL, 0);
    return 0;
}

int engine_names_init(struct engine *engine, const struct plan *plan, struct plan_error *error)
{
    struct socket_options options = {.mark = plan_mark(plan)};
    engine->names = calloc(1, sizeof *engine->names);
    if (engine->names)
        engine->names->io = resolver_io_new(&engine->workers.worker[0].loop, &options, name_done, engine);
    if (!engine->names || !engine->names->io)
        return plan_fail(error, -ENOMEM, 0, "out of memory for the resolver");
    return engine_names_configure(engine, plan, error);
}

/* --- look-ups --- */

static struct wg_peer *name_peer(const struct name *name)
{
    return wg_device_peer(name->tunnel->core, name->key);
}

static void name_free(struct engine *engine, struct name *name)
{
    struct name **link = &engine->names->first;
    while (*link != name)
        link = &(*link)->next;
    *link = name->next;
    if (name->lookup >= 0)
        resolver_io_cancel(engine->names->io, name->lookup);
    timer_cancel(&engine->workers.worker[0].loop, &name->retry);
    free(name);
}

void engine_names_free(struct engine *engine)
{
    if (!engine->names)
        return;
    while (engine->names->first)
        name_free(engine, engine->names->first);
    if (engine->names->io)
        resolver_io_free(engine->names->io);
    free(engine->names);
    engine->names = NULL;
}

void engine_resolve_forget(struct engine *engine, const struct tunnel *tunnel)
{
    for (struct name *name = engine->names ? engine->names->first : NULL, *next; name; name = next) {
        next = name->next;
        if (name->tunnel == tunnel)
            name_free(engine, name);
    }
}

static void name_retry(struct name *name)
{
    unsigned seconds = name->failures < 6 ? 1u << name->failures : 60;
    struct loop *loop = &name->engine->workers.worker[0].loop;
    name->failures++;
    timer_arm(loop, &name->retry, WAKE_NAMES_TIMER, loop->now + (uint64_t)seconds * NS_PER_S);
}

static void name_ask(struct name *name)
{
    struct engine *engine = name->engine;
    struct wg_peer *peer = name_peer(name);
    const char *host = peer ? wg_peer_host(peer) : NULL, *colon = host ? strrchr(host, ':') : NULL;
    if (!colon) { /* the peer is gone, or has got a numeric endpoint */
        name_free(engine, name);
        return;
    }
    size_t n = (size_t)(colon - host);
    unsigned flags = RESOLVER_BOTH | (name->asked > 1 ? RESOLVER_FRESH : 0u);
    uint64_t port = 0; /* the core has checked it */
    text_decimal(colon + 1, strlen(colon + 1), 0, UINT16_MAX, &port);
    int lookup = resolver_io_lookup(engine->names->io, host, n, (uint16_t)port, flags, name);
    if (lookup >= 0) {
        if (name->lookup == -2) /* answered before the call came back */
            name->lookup = -1;
        else
            name->lookup = lookup;
        return;
    }
    if (lookup == -EINVAL)
        log_error("%s: '%.*s' cannot be a host's name", name->tunnel->config.name, (int)n, host);
    name_retry(name);
}

/* IPv6 first where the host has a way out by IPv6, as RFC 6724 would; the others follow on later tries. */
static const struct addr *name_choose(const struct name *name, const struct resolver_result *result)
{
    struct netlink_route route;
    bool v6 = name->engine->network_open && netlink_uplink(&name->engine->netlink, AF_INET6, NULL, 0, &route) == 0;
    unsigned first = 0;
    while (!v6 && first < result->count && result->addresses[first].family == 6)
        first++;
    return &result->addresses[(first + name->asked - 1) % result->count];
}

static void name_done(void *context, const struct resolver_result *result)
{
    struct engine *engine = context;
    struct name *name = result->context;
    struct wg_peer *peer = name_peer(name);
    name->lookup = -2;
    if (!peer || !wg_peer_host(peer))
        return; /* name_ask, asked again, or the device's end frees it */
    if (result->error || !result->count) {
        log_warning("%s: %s: %s", name->tunnel->config.name, wg_peer_host(peer), strerror(-result->error));
        name_retry(name);
        return;
    }
    const struct addr *a = name_choose(name, result);
    struct wg_endpoint e = {.family = a->family, .port = a->port, .scope = a->scope};
    char text[WG_ENDPOINT_TEXT];
    memcpy(e.address, a->ip, sizeof e.address);
    wg_endpoint_format(&e, text);
    log_info("%s: %s is %s", name->tunnel->config.name, wg_peer_host(peer), text);
    name->failures = 0;
    wg_peer_set_endpoint(peer, &e, tunnel_now(&engine->workers.worker[0]));
}

void engine_resolve(struct engine *engine, struct tunnel *tunnel, struct wg_peer *peer)
{
    struct wg_peer_info info;
    wg_peer_info(peer, &info);
    if (!engine->names || !wg_peer_host(peer))
        return;
    struct name *name = engine->names->first;
    while (name && (name->tunnel != tunnel || memcmp(name->key, info.public_key, sizeof name->key) != 0))
        name = name->next;
    if (!name) {
        name = calloc(1, sizeof *name);
        if (!name)
            return;
        name->engine = engine;
        name->tunnel = tunnel;
        name->lookup = -1;
        memcpy(name->key, info.public_key, sizeof name->key);
        name->next = engine->names->first;
        engine->names->first = name;
    }
    if (name->lookup >= 0 || timer_armed(&name->retry))
        return;
    name->asked++;
    name->lookup = -1;
    name_ask(name);
}

void engine_names_ready(struct engine *engine, struct wake *wake)
{
    resolver_io_ready(engine->names->io, wake);
}

void engine_names_timer(struct engine *engine, struct timer *timer)
{
    if (timer->kind == WAKE_RESOLVER_TIMER) {
        resolver_io_expired(engine->names->io);
        return;
    }
    struct name *name = engine->names->first;
    while (&name->retry != timer)
        name = name->next;
    name->lookup = -1;
    name_ask(name);
}
