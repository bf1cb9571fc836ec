#include "flow/resolver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flow/resolver_names.h"
#include "wire/bytes.h"

enum { ROUNDS = 3 };
static const uint64_t second = 1000000000u;
static const uint64_t grace = 300000000u;    /* for the second family */
static const uint32_t positive_max = 86400;  /* s */
static const uint32_t negative_max = 300;    /* s */

/* A query's life: IDLE -> WAITING (an attempt is out, by UDP or TCP) -> IDLE. `send` says that the attempt's packet has
 * yet to be taken by resolver_next, `close` that the attempt before it still has a socket. */
struct query {
    bool active, tcp, send, close, open;
    uint8_t attempt, hops;
    uint8_t server;
    uint16_t id;
    uint16_t type;
    uint64_t deadline;
    int error; /* what to say when all attempts are used up */
    struct dns_name name; /* as asked now, after aliases */
    uint8_t *stream; /* TCP answer so far, RESOLVER_TCP_SIZE bytes while it is read */
    size_t stream_length;
};

struct lookup {
    bool active, done;
    uint8_t flags;
    unsigned waiting; /* queries under way */
    uint16_t port;
    void *context;
    struct dns_name name;
    struct addr found[2][DNS_ADDRESSES]; /* of A and AAAA */
    unsigned count[2];
    int error[2];
    uint64_t expires, negative; /* when what was found, and what was not, has to be asked for again */
};

struct cached {
    uint16_t type;
    uint8_t count;
    int error; /* -ENOENT, -ENODATA, 0 */
    uint64_t expires;
    struct dns_name name;
    struct addr addresses[DNS_ADDRESSES];
};

struct resolver {
    void (*random)(void *context, void *bytes, size_t n);
    void *context;
    struct addr servers[RESOLVER_SERVERS];
    unsigned server_count;
    unsigned preferred; /* the one that answered last */
    struct resolver_names names;
    struct lookup lookups[RESOLVER_LOOKUPS];
    struct query queries[RESOLVER_SLOTS]; /* 2 i: A of lookup i, 2 i + 1: AAAA */
    struct cached cache[RESOLVER_CACHE];
    unsigned cache_used; /* those behind have never been touched: no memory stands behind them */
    uint8_t packet[2 + DNS_QUERY_SIZE];
    struct resolver_stats stats;
};

struct resolver *resolver_new(void (*random)(void *context, void *bytes, size_t n), void *context)
{
    struct resolver *r = calloc(1, sizeof *r);

    if (r) {
        r->random = random;
        r->context = context;
    }
    return r;
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    for (unsigned i = 0; i < RESOLVER_SLOTS; i++)
        free(r->queries[i].stream);
    resolver_names_free(&r->names);
    free(r);
}

void resolver_reset(struct resolver *r)
{
    resolver_names_free(&r->names);
    r->server_count = r->preferred = 0;
    r->cache_used = 0;
}

int resolver_add_server(struct resolver *r, const struct addr *server)
{
    if (r->server_count == RESOLVER_SERVERS)
        return -ENOSPC;
    r->servers[r->server_count] = *server;
    if (!server->port)
        r->servers[r->server_count].port = DNS_PORT;
    r->server_count++;
    return 0;
}

unsigned resolver_add_resolv_conf(struct resolver *r, const char *text, size_t n)
{
    unsigned before = r->server_count;
    struct addr server;

    while (resolver_names_server(&text, &n, &server)) {
        if (resolver_add_server(r, &server))
            break;
    }
    return r->server_count - before;
}

int resolver_add_host(struct resolver *r, const char *name, size_t n, const struct addr *address)
{
    return resolver_names_add(&r->names, name, n, address);
}

int resolver_add_hosts(struct resolver *r, const char *text, size_t n)
{
    return resolver_names_file(&r->names, text, n);
}

const struct resolver_stats *resolver_stats(const struct resolver *r)
{
    return &r->stats;
}

/* --- Cache --- */

static const struct cached *cache_find(const struct resolver *r, const struct dns_name *name, uint16_t type,
                                       uint64_t now)
{
    for (unsigned i = 0; i < r->cache_used; i++) {
        const struct cached *c = &r->cache[i];
        if (c->type == type && c->expires > now && dns_name_equal(&c->name, name))
            return c;
    }
    return NULL;
}

/* Its own old entry, else one that has expired, else a new one, else the one that expires first. */
static struct cached *cache_place(struct resolver *r, const struct dns_name *name, uint16_t type, uint64_t now)
{
    struct cached *first = &r->cache[0];

    for (unsigned i = 0; i < r->cache_used; i++) {
        struct cached *c = &r->cache[i];
        if (c->type == type && dns_name_equal(&c->name, name))
            return c;
        if (c->expires < first->expires)
            first = c;
    }
    if (r->cache_used < RESOLVER_CACHE && (r->cache_used == 0 || first->expires > now))
        return &r->cache[r->cache_used++];
    return first;
}

static void cache_put(struct resolver *r, const struct dns_name *name, uint16_t type, const struct addr *addresses,
                      unsigned count, int error, uint64_t expires, uint64_t now)
{
    struct cached *place = cache_place(r, name, type, now);

    *place = (struct cached){.type = type, .count = (uint8_t)count, .error = error, .expires = expires, .name = *name};
    if (count)
        memcpy(place->addresses, addresses, count * sizeof *addresses);
}

/* --- Attempts --- */

static unsigned family_of(uint16_t type)
{
    return type == DNS_AAAA;
}

static struct lookup *lookup_of(struct resolver *r, const struct query *q)
{
    return &r->lookups[(q - r->queries) / 2];
}

static void query_end(struct query *q)
{
    q->active = q->send = false;
    q->close = q->close || q->open;
    q->open = false;
    free(q->stream);
    q->stream = NULL;
    q->stream_length = 0;
}

/* How long a result holds is said by what was found, or when nothing was, by what said so. */
static void lookup_expires(struct lookup *l, int error, uint64_t expires)
{
    if (error)
        l->negative = MIN(l->negative, expires);
    else
        l->expires = MIN(l->expires, expires);
}

/* The query's answer is known: the lookup gets it, and is done when it was the last one. */
static void query_done(struct resolver *r, struct query *q, int error, uint64_t expires, uint64_t now)
{
    struct lookup *l = lookup_of(r, q);

    query_end(q);
    l->error[family_of(q->type)] = error;
    lookup_expires(l, error, expires);
    if (--l->waiting == 0) {
        l->done = true;
        return;
    }
    /* The other family has a moment left. */
    struct query *other = &r->queries[(q - r->queries) ^ 1];
    if (l->count[family_of(q->type)] && other->active)
        other->deadline = MIN(other->deadline, now + grace);
}

static bool has_addresses(const struct resolver *r, const struct query *q)
{
    const struct lookup *l = &r->lookups[(q - r->queries) / 2];

    return l->count[!family_of(q->type)] != 0;
}

/* Begins an attempt: a fresh id and a fresh socket. */
static void query_send(struct resolver *r, struct query *q, bool tcp, uint64_t now)
{
    unsigned round = q->attempt / MAX(r->server_count, 1u);

    q->close = q->close || q->open;
    q->open = false;
    q->tcp = tcp;
    q->send = true;
    q->stream_length = 0;
    q->deadline = now + (second << round);
    /* What has a rival with addresses does not hold the result up. */
    if (has_addresses(r, q))
        q->deadline = MIN(q->deadline, now + grace);
    r->random(r->context, &q->id, sizeof q->id);
}

/* The attempt has failed: the next server, or the end. */
static void query_retry(struct resolver *r, struct query *q, int error, uint64_t now)
{
    /* A server that said something is better to report than one that did not. */
    if (!q->error || q->error == -ETIMEDOUT || q->error == -EHOSTUNREACH)
        q->error = error;
    if (r->server_count == 0 || ++q->attempt >= ROUNDS * r->server_count || has_addresses(r, q)) {
        r->stats.failures++;
        query_done(r, q, r->server_count ? q->error : -EDESTADDRREQ, now, now);
        return;
    }
    q->server = (uint8_t)((q->server + 1) % r->server_count);
    query_send(r, q, false, now);
}

static void query_begin(struct resolver *r, struct query *q, const struct dns_name *name, uint64_t now)
{
    q->active = true;
    q->attempt = 0;
    q->error = 0;
    q->name = *name;
    q->server = (uint8_t)r->preferred;
    if (r->server_count)
        query_send(r, q, false, now);
    else
        query_retry(r, q, -EDESTADDRREQ, now);
}

/* A whole answer, by UDP or TCP. */
static void query_answer(struct resolver *r, struct query *q, const uint8_t *bytes, size_t n, uint64_t now)
{
    struct dns_answer answer;
    struct lookup *l = lookup_of(r, q);
    enum dns_result result = dns_answer_parse(&answer, bytes, n, q->id, &q->name, (enum dns_type)q->type);
    unsigned family = family_of(q->type);
    int error = 0;

    switch (result) {
    case DNS_MISMATCH:
        r->stats.mismatches++;
        if (q->tcp)
            query_retry(r, q, -EREMOTEIO, now);
        return;
    case DNS_TRUNCATED:
        if (q->tcp)
            query_retry(r, q, -EREMOTEIO, now);
        else
            query_send(r, q, true, now);
        return;
    case DNS_ALIAS:
        if (++q->hops > DNS_CHAIN) {
            query_done(r, q, -EREMOTEIO, now, now);
            return;
        }
        l->expires = MIN(l->expires, now + MIN(answer.ttl, positive_max) * second);
        q->name = answer.target;
        r->preferred = q->server;
        query_send(r, q, false, now);
        return;
    case DNS_FOUND:
        break;
    case DNS_NO_NAME:
        error = -ENOENT;
        break;
    case DNS_NO_DATA:
        error = -ENODATA;
        break;
    default:
        query_retry(r, q, -EREMOTEIO, now);
        return;
    }
    r->preferred = q->server;
    uint64_t expires = now + MIN(answer.ttl, error ? negative_max : positive_max) * second;
    l->count[family] = answer.count;
    memcpy(l->found[family], answer.addresses, answer.count * sizeof *answer.addresses);
    /* Kept under the name that was looked up, for as long as the shortest link of the chain holds. */
    if (q->hops)
        expires = MIN(expires, l->expires);
    if (expires > now)
        cache_put(r, &l->name, q->type, answer.addresses, answer.count, error, expires, now);
    query_done(r, q, error, expires, now);
}

/* --- What comes in --- */

static struct query *slot_query(struct resolver *r, unsigned slot, bool tcp)
{
    struct query *q = slot < RESOLVER_SLOTS ? &r->queries[slot] : NULL;

    return q && q->active && q->open && q->tcp == tcp ? q : NULL;
}

void resolver_datagram(struct resolver *r, unsigned slot, const struct addr *from, const uint8_t *bytes, size_t n,
                       uint64_t now)
{
    struct query *q = slot_query(r, slot, false);

    if (!q)
        return;
    if (!addr_equal(from, &r->servers[q->server])) {
        r->stats.mismatches++;
        return;
    }
    query_answer(r, q, bytes, n, now);
}

void resolver_stream(struct resolver *r, unsigned slot, const uint8_t *bytes, size_t n, uint64_t now)
{
    struct query *q = slot_query(r, slot, true);

    if (!q)
        return;
    if (!q->stream)
        q->stream = malloc(RESOLVER_TCP_SIZE);
    if (!q->stream || n == 0 || n > RESOLVER_TCP_SIZE - q->stream_length) {
        query_retry(r, q, -EREMOTEIO, now);
        return;
    }
    memcpy(q->stream + q->stream_length, bytes, n);
    q->stream_length += n;
    if (q->stream_length < 2 || q->stream_length - 2 < load_be16(q->stream))
        return;
    /* The buffer goes with the query, which the answer may end. */
    uint8_t *stream = q->stream;
    q->stream = NULL;
    query_answer(r, q, stream + 2, load_be16(stream), now);
    free(stream);
}

void resolver_broken(struct resolver *r, unsigned slot, uint64_t now)
{
    struct query *q = slot < RESOLVER_SLOTS ? &r->queries[slot] : NULL;

    if (q && q->active && q->open)
        query_retry(r, q, -EHOSTUNREACH, now);
}

void resolver_poll(struct resolver *r, uint64_t now)
{
    for (unsigned i = 0; i < RESOLVER_SLOTS; i++) {
        struct query *q = &r->queries[i];
        if (!q->active || q->deadline > now)
            continue;
        r->stats.timeouts++;
        query_retry(r, q, -ETIMEDOUT, now);
    }
}

uint64_t resolver_deadline(const struct resolver *r)
{
    uint64_t first = UINT64_MAX;

    for (unsigned i = 0; i < RESOLVER_SLOTS; i++) {
        if (r->queries[i].active)
            first = MIN(first, r->queries[i].deadline);
    }
    return first;
}

/* --- Lookups --- */

static void lookup_known(struct lookup *l, unsigned family, const struct addr *addresses, unsigned count, int error)
{
    l->count[family] = count;
    l->error[family] = error;
    if (count)
        memcpy(l->found[family], addresses, count * sizeof *addresses);
}

int resolver_lookup(struct resolver *r, const char *text, size_t n, uint16_t port, unsigned flags, void *context,
                    uint64_t now)
{
    static const uint16_t types[] = {DNS_A, DNS_AAAA};
    struct addr literal, hosts[DNS_ADDRESSES];
    struct dns_name name = {0};
    unsigned number = 0;

    bool is_literal = addr_parse_ip(&literal, text, n) == TEXT_OK;
    if (!(flags & RESOLVER_BOTH) || (!is_literal && dns_name_parse(&name, text, n)))
        return -EINVAL;
    while (number < RESOLVER_LOOKUPS && r->lookups[number].active)
        number++;
    if (number == RESOLVER_LOOKUPS)
        return -EBUSY;
    struct lookup *l = &r->lookups[number];
    *l = (struct lookup){.active = true,
                         .flags = (uint8_t)flags,
                         .port = port,
                         .context = context,
                         .name = name,
                         .expires = UINT64_MAX,
                         .negative = UINT64_MAX};
    r->stats.lookups++;
    bool known_host = !is_literal && resolver_names_has(&r->names, &name);
    bool asked[2] = {false, false};
    for (unsigned family = 0; family < 2; family++) {
        l->error[family] = -ENODATA;
        if (!(flags & (family ? RESOLVER_IPV6 : RESOLVER_IPV4)))
            continue;
        if (is_literal) {
            bool mine = (literal.family == 6) == family;
            lookup_known(l, family, &literal, mine, mine ? 0 : -ENODATA);
        } else if (known_host) {
            unsigned count = resolver_names_find(&r->names, &name, family ? 6 : 4, hosts, DNS_ADDRESSES);
            lookup_known(l, family, hosts, count, count ? 0 : -ENODATA);
        } else {
            const struct cached *c = flags & RESOLVER_FRESH ? NULL : cache_find(r, &name, types[family], now);
            asked[family] = !c;
            if (c) {
                r->stats.cache_hits++;
                lookup_known(l, family, c->addresses, c->count, c->error);
                lookup_expires(l, c->error, c->expires);
            }
        }
    }
    l->waiting = (unsigned)asked[0] + (unsigned)asked[1];
    l->done = l->waiting == 0;
    for (unsigned family = 0; family < 2; family++) {
        struct query *q = &r->queries[2 * number + family];
        q->hops = 0;
        q->type = types[family];
        if (asked[family])
            query_begin(r, q, &name, now);
    }
    return (int)number;
}

void resolver_cancel(struct resolver *r, int lookup)
{
    if (lookup < 0 || lookup >= RESOLVER_LOOKUPS)
        return;
    query_end(&r->queries[2 * lookup]);
    query_end(&r->queries[2 * lookup + 1]);
    r->lookups[lookup].active = false;
}

static void lookup_result(struct lookup *l, struct resolver_result *result)
{
    *result = (struct resolver_result){.context = l->context, .expires = l->expires};
    for (unsigned i = 0; i < 2; i++) {
        unsigned family = 1 - i;
        for (unsigned j = 0; j < l->count[family]; j++) {
            result->addresses[result->count] = l->found[family][j];
            result->addresses[result->count++].port = l->port;
        }
    }
    if (result->count)
        return;
    result->expires = l->negative;
    /* No such name is no such name for both; a server that could not say outweighs one that said "no". */
    int a = l->flags & RESOLVER_IPV4 ? l->error[0] : l->error[1];
    int b = l->flags & RESOLVER_IPV6 ? l->error[1] : l->error[0];
    bool a_final = a == -ENODATA || a == -ENOENT;
    result->error = a == -ENOENT || b == -ENOENT ? -ENOENT : a_final ? b : a;
}

static bool next_send(struct resolver *r, struct query *q, struct resolver_action *action)
{
    size_t n = dns_query_build(r->packet + 2, q->id, &q->name, (enum dns_type)q->type);

    store_be16(r->packet, (uint16_t)n);
    q->send = false;
    q->open = true;
    action->kind = q->tcp ? RESOLVER_SEND_TCP : RESOLVER_SEND_UDP;
    action->server = r->servers[q->server];
    action->bytes = q->tcp ? r->packet : r->packet + 2;
    action->length = q->tcp ? n + 2 : n;
    if (q->tcp)
        r->stats.sent_tcp++;
    else
        r->stats.sent_udp++;
    return true;
}

bool resolver_next(struct resolver *r, struct resolver_action *action)
{
    for (unsigned slot = 0; slot < RESOLVER_SLOTS; slot++) {
        struct query *q = &r->queries[slot];
        action->slot = slot;
        if (q->close) {
            q->close = false;
            action->kind = RESOLVER_CLOSE;
            return true;
        }
        if (q->active && q->send)
            return next_send(r, q, action);
    }
    for (unsigned i = 0; i < RESOLVER_LOOKUPS; i++) {
        struct lookup *l = &r->lookups[i];
        if (!l->active || !l->done)
            continue;
        l->active = false;
        action->kind = RESOLVER_DONE;
        lookup_result(l, &action->result);
        return true;
    }
    return false;
}
