#include "flow/nat_table.h"

#include <stdlib.h>

static const uint16_t timeouts[] = {
#define X(name, seconds) [NAT_CLASS_##name] = seconds,
    NAT_CLASSES(X)
#undef X
};
_Static_assert(ARRAY_COUNT(timeouts) == NAT_CLASS_COUNT, "a timeout for every class");

#define NS 1000000000ull
#define PORT_TRIES 128  /* at random, then */
#define PORT_STEPS 1024 /* one after the other, then */
#define PORT_OLDEST 8   /* oldest sessions that may give up theirs */

/* --- hashing: remote hosts choose what is hashed, so a secret goes in and every word is mixed --- */

static uint64_t mix(uint64_t h)
{
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9;
    h = (h ^ h >> 27) * 0x94d049bb133111eb;
    return h ^ h >> 31;
}

static uint64_t hash_address(uint64_t h, uint8_t family, const uint8_t *a)
{
    if (family == 4)
        return mix(h ^ load_be32(a));
    return mix(mix(h ^ load_be64(a)) ^ load_be64(a + 8));
}

static uint32_t inside_slot(const struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *a, uint16_t port)
{
    uint64_t h = n->config.seed ^ ((uint64_t)family << 40 | (uint64_t)protocol << 32 | port);
    return (uint32_t)hash_address(mix(h), family, a) & n->mask;
}

static uint32_t outside_slot(const struct nat *n, uint8_t family, uint8_t protocol, uint16_t port)
{
    return (uint32_t)mix(n->config.seed ^ ((uint64_t)family << 40 | (uint64_t)protocol << 32 | port)) & n->mask;
}

/* Not by port: all sessions of a mapping with one remote host are in one chain, so that filtering by address is one
 * look-up too. Only inside hosts make sessions, so nobody outside can make a chain long. */
static uint32_t remote_slot(const struct nat *n, uint32_t mapping, uint8_t family, const uint8_t *a)
{
    uint64_t h = n->config.seed ^ ((uint64_t)family << 40 | mapping);
    return (uint32_t)hash_address(mix(h), family, a) & n->mask;
}

uint64_t nat_table_random(struct nat *n)
{
    n->random += 0x9e3779b97f4a7c15;
    return mix(n->random);
}

/* --- life --- */

static uint32_t slots_of(uint32_t entries)
{
    uint32_t slots = 16;
    while (slots < entries)
        slots *= 2;
    return slots;
}

size_t nat_memory(uint32_t entries)
{
    return sizeof(struct nat) + NAT_HELD_SLOTS * sizeof(struct nat_held) + 3 * sizeof(uint32_t) * slots_of(entries) +
           ((size_t)entries + 1) * (sizeof(struct nat_mapping) + sizeof(struct nat_session));
}

bool nat_table_init(struct nat *n, uint32_t entries)
{
    uint32_t slots = slots_of(entries);
    n->mask = slots - 1;
    n->random = n->config.seed;
    n->mapping_top = n->session_top = 1;
    n->inside = calloc(slots, sizeof *n->inside);
    n->outside = calloc(slots, sizeof *n->outside);
    n->remote = calloc(slots, sizeof *n->remote);
    n->mapping = calloc((size_t)entries + 1, sizeof *n->mapping);
    n->session = calloc((size_t)entries + 1, sizeof *n->session);
    n->held = calloc(NAT_HELD_SLOTS, sizeof *n->held);
    return n->inside && n->outside && n->remote && n->mapping && n->session && n->held;
}

void nat_table_free(struct nat *n)
{
    free(n->inside);
    free(n->outside);
    free(n->remote);
    free(n->mapping);
    free(n->session);
    free(n->held);
}

void nat_table_time(struct nat *n, uint64_t now)
{
    uint64_t seconds = now / NS;
    if (seconds > n->now)
        n->now = (uint32_t)MIN(seconds, (uint64_t)UINT32_MAX);
}

/* --- look-up --- */

uint32_t nat_mapping_inside(struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *inside, uint16_t port)
{
    uint32_t i = n->inside[inside_slot(n, family, protocol, inside, port)];
    for (const struct nat_mapping *m; i; i = m->next_inside) {
        m = &n->mapping[i];
        if (m->inside_port == port && m->protocol == protocol && m->family == family &&
            memcmp(m->inside, inside, ip_addr_len(family)) == 0)
            break;
    }
    return i;
}

uint32_t nat_mapping_outside(struct nat *n, uint8_t family, uint8_t protocol, uint16_t port)
{
    uint32_t i = n->outside[outside_slot(n, family, protocol, port)];
    for (const struct nat_mapping *m; i; i = m->next_outside) {
        m = &n->mapping[i];
        if (m->outside_port == port && m->protocol == protocol && m->family == family)
            break;
    }
    return i;
}

/* What a session is found by: its mapping, or 0 for a protocol without ports. */
static uint32_t key_of(const struct nat *n, const struct nat_session *s)
{
    return n->mapping[s->mapping].other ? 0 : s->mapping;
}

uint32_t nat_session_find(struct nat *n, uint32_t mapping, uint8_t family, const uint8_t *remote, uint16_t port)
{
    uint32_t i = n->remote[remote_slot(n, mapping, family, remote)];
    for (const struct nat_session *s; i; i = s->next) {
        s = &n->session[i];
        if (s->remote_port == port && key_of(n, s) == mapping && n->mapping[s->mapping].family == family &&
            memcmp(s->remote, remote, ip_addr_len(family)) == 0) {
            if (n->now - s->seen <= timeouts[s->class])
                return i;
            n->stats.expired++;
            nat_session_end(n, i);
            return 0;
        }
    }
    return 0;
}

bool nat_mapping_knows(const struct nat *n, uint32_t mapping, const uint8_t *remote)
{
    uint8_t family = n->mapping[mapping].family;
    uint32_t i = n->remote[remote_slot(n, mapping, family, remote)];
    for (const struct nat_session *s; i; i = s->next) {
        s = &n->session[i];
        if (s->mapping == mapping && n->now - s->seen <= timeouts[s->class] &&
            memcmp(s->remote, remote, ip_addr_len(family)) == 0)
            return true;
    }
    return false;
}

/* --- lists by class, oldest first --- */

static void class_remove(struct nat *n, uint32_t i)
{
    struct nat_session *s = &n->session[i];
    *(s->older ? &n->session[s->older].newer : &n->oldest[s->class]) = s->newer;
    *(s->newer ? &n->session[s->newer].older : &n->newest[s->class]) = s->older;
}

static void class_append(struct nat *n, uint32_t i)
{
    struct nat_session *s = &n->session[i];
    s->older = n->newest[s->class];
    s->newer = 0;
    *(s->older ? &n->session[s->older].newer : &n->oldest[s->class]) = i;
    n->newest[s->class] = i;
}

/* --- ends --- */

static void mapping_end(struct nat *n, uint32_t i)
{
    struct nat_mapping *m = &n->mapping[i];
    if (!m->other) {
        uint32_t *at = &n->inside[inside_slot(n, m->family, m->protocol, m->inside, m->inside_port)];
        while (*at != i)
            at = &n->mapping[*at].next_inside;
        *at = m->next_inside;
        at = &n->outside[outside_slot(n, m->family, m->protocol, m->outside_port)];
        while (*at != i)
            at = &n->mapping[*at].next_outside;
        *at = m->next_outside;
    }
    m->next_inside = n->mapping_free;
    n->mapping_free = i;
    n->stats.mappings--;
}

void nat_session_end(struct nat *n, uint32_t session)
{
    uint32_t i = session;
    struct nat_session *s = &n->session[i];
    struct nat_mapping *m = &n->mapping[s->mapping];
    uint32_t *at = &n->remote[remote_slot(n, key_of(n, s), m->family, s->remote)];
    while (*at != i)
        at = &n->session[*at].next;
    *at = s->next;
    class_remove(n, i);
    *(s->before ? &n->session[s->before].after : &m->first) = s->after;
    if (s->after)
        n->session[s->after].before = s->before;
    if (!m->first)
        mapping_end(n, s->mapping);
    s->next = n->session_free;
    n->session_free = i;
    n->stats.sessions--;
}

bool nat_table_expire(struct nat *n, unsigned limit)
{
    for (unsigned class = 0; class < NAT_CLASS_COUNT; class++)
        for (uint32_t i; (i = n->oldest[class]) && n->now - n->session[i].seen > timeouts[class];) {
            if (!limit--)
                return true;
            n->stats.expired++;
            nat_session_end(n, i);
        }
    return false;
}

uint64_t nat_table_next(const struct nat *n)
{
    uint64_t next = UINT64_MAX;
    for (unsigned class = 0; class < NAT_CLASS_COUNT; class++)
        if (n->oldest[class])
            next = MIN(next, ((uint64_t)n->session[n->oldest[class]].seen + timeouts[class] + 1) * NS);
    return next;
}

/* A free session, if need be that of the least missed. */
static void make_room(struct nat *n)
{
    if (n->session_free || n->session_top <= n->config.entries)
        return;
    for (unsigned class = 0; class < NAT_CLASS_COUNT; class++)
        if (n->oldest[class]) {
            n->stats.evicted++;
            nat_session_end(n, n->oldest[class]);
            return;
        }
}

/* --- beginnings --- */

static uint32_t session_begin(struct nat *n, uint32_t mapping, const uint8_t *remote, uint16_t port, uint8_t class)
{
    uint32_t i = n->session_free;
    if (i)
        n->session_free = n->session[i].next;
    else
        i = n->session_top++;
    struct nat_session *s = &n->session[i];
    struct nat_mapping *m = &n->mapping[mapping];
    *s = (struct nat_session){.mapping = mapping, .remote_port = port, .seen = n->now, .class = class};
    memcpy(s->remote, remote, ip_addr_len(m->family));
    uint32_t *head = &n->remote[remote_slot(n, key_of(n, s), m->family, remote)];
    s->next = *head;
    *head = i;
    s->after = m->first;
    if (s->after)
        n->session[s->after].before = i;
    m->first = i;
    class_append(n, i);
    n->stats.sessions++;
    n->stats.created++;
    return i;
}

static bool port_free(struct nat *n, uint8_t family, uint8_t protocol, uint32_t port)
{
    return !nat_mapping_outside(n, family, protocol, (uint16_t)port);
}

/* The inside port itself where it is free, else one at random (RFC 6056) of its kind: system ports stay system ports
 * (RFC 4787 REQ-3), parity where it is wanted. An echo's identifier can be any number. -1: none is free. */
static int32_t choose_port(struct nat *n, uint8_t family, uint8_t protocol, uint16_t want, bool own)
{
    bool ports = protocol == IP_PROTO_TCP || protocol == IP_PROTO_UDP;
    bool ranged = n->config.port_high != 0;
    uint32_t low = ranged ? n->config.port_low : ports ? 1024 : 0, high = ranged ? n->config.port_high : 65535;
    bool keep = own || !ranged || (want >= low && want <= high);
    if (ports && !ranged && want && want < 1024) {
        low = 512;
        high = 1023;
    }
    if (keep && (want || !ports) && port_free(n, family, protocol, want))
        return want;
    uint32_t step = n->config.parity && ports ? 2 : 1, count = high - low + 1, port = 0;
    for (int i = 0; i < PORT_TRIES + PORT_STEPS; i++) {
        if (i <= PORT_TRIES)
            port = low + (uint32_t)((nat_table_random(n) >> 32) * count >> 32);
        else
            port = port + step > high ? low : port + step;
        if (step == 2 && (port & 1) != (want & 1u))
            port = port == high ? port - 1 : port + 1;
        if (port >= low && port && port_free(n, family, protocol, port))
            return (int32_t)port;
    }
    return -1;
}

/* The port of an idle flow that matters least, which ends. -1: there is none such. */
static int32_t take_port(struct nat *n, uint8_t family, uint8_t protocol)
{
    static const uint8_t tcp[] = {NAT_CLASS_CLOSING, NAT_CLASS_TCP_NEW}, udp[] = {NAT_CLASS_UDP_NEW, NAT_CLASS_UDP},
                         echo[] = {NAT_CLASS_ECHO, NAT_CLASS_ECHO};
    const uint8_t *classes = protocol == IP_PROTO_TCP ? tcp : protocol == IP_PROTO_UDP ? udp : echo;
    for (int k = 0; k < 2; k++) {
        uint32_t i = n->oldest[classes[k]];
        for (int tries = 0; i && tries < PORT_OLDEST; tries++, i = n->session[i].newer) {
            const struct nat_mapping *m = &n->mapping[n->session[i].mapping];
            if (m->family != family || m->protocol != protocol || n->session[m->first].after)
                continue;
            uint16_t port = m->outside_port;
            n->stats.evicted++;
            nat_session_end(n, i);
            return port;
        }
    }
    return -1;
}

static uint32_t mapping_begin(struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *inside, uint16_t port)
{
    uint32_t i = n->mapping_free;
    if (i)
        n->mapping_free = n->mapping[i].next_inside;
    else
        i = n->mapping_top++;
    n->mapping[i] = (struct nat_mapping){.family = family, .protocol = protocol, .inside_port = port};
    memcpy(n->mapping[i].inside, inside, ip_addr_len(family));
    n->stats.mappings++;
    return i;
}

static uint8_t first_class(uint8_t protocol)
{
    return protocol == IP_PROTO_TCP ? NAT_CLASS_TCP_NEW : protocol == IP_PROTO_UDP ? NAT_CLASS_UDP_NEW : NAT_CLASS_ECHO;
}

uint32_t nat_session_open(struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *inside, uint16_t inside_port,
                          const uint8_t *remote, uint16_t remote_port, bool own, enum nat_verdict *why)
{
    make_room(n); /* first: it may end the very mapping that is looked for */
    uint32_t i = nat_mapping_inside(n, family, protocol, inside, inside_port);
    if (!i) {
        int32_t port = choose_port(n, family, protocol, inside_port, own);
        if (port < 0)
            port = take_port(n, family, protocol);
        if (port < 0) {
            *why = NAT_DROP_PORTS;
            return 0;
        }
        i = mapping_begin(n, family, protocol, inside, inside_port);
        struct nat_mapping *m = &n->mapping[i];
        m->outside_port = (uint16_t)port;
        uint32_t *head = &n->inside[inside_slot(n, family, protocol, inside, inside_port)];
        m->next_inside = *head;
        *head = i;
        head = &n->outside[outside_slot(n, family, protocol, m->outside_port)];
        m->next_outside = *head;
        *head = i;
    }
    return session_begin(n, i, remote, remote_port, first_class(protocol));
}

uint32_t nat_session_other(struct nat *n, uint8_t family, uint8_t protocol, const uint8_t *inside,
                           const uint8_t *remote)
{
    make_room(n);
    uint32_t i = mapping_begin(n, family, protocol, inside, 0);
    n->mapping[i].other = true;
    return session_begin(n, i, remote, protocol, NAT_CLASS_OTHER);
}

/* --- a packet has passed --- */

/* RFC 5382 5 and RFC 7857 2: handshake -> established -> closing; a SYN begins anew, data after a RST takes it back. */
static uint8_t tcp_class(struct nat_session *s, bool out, uint8_t flags)
{
    if ((flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_SYN && s->class == NAT_CLASS_CLOSING)
        s->state = 0;
    s->state |= out ? NAT_SEEN_OUT : NAT_SEEN_IN;
    if (flags & TCP_RST)
        s->state |= NAT_RST;
    else
        s->state &= (uint8_t)~NAT_RST;
    if (flags & TCP_FIN)
        s->state |= out ? NAT_FIN_OUT : NAT_FIN_IN;
    if (s->state & (NAT_RST | NAT_FIN_OUT | NAT_FIN_IN))
        return NAT_CLASS_CLOSING;
    bool both = (s->state & (NAT_SEEN_OUT | NAT_SEEN_IN)) == (NAT_SEEN_OUT | NAT_SEEN_IN);
    return s->class == NAT_CLASS_TCP || (both && !(flags & TCP_SYN)) ? NAT_CLASS_TCP : NAT_CLASS_TCP_NEW;
}

void nat_session_touch(struct nat *n, uint32_t session, bool out, uint8_t tcp_flags)
{
    struct nat_session *s = &n->session[session];
    uint8_t class = s->class;
    switch (class) {
    case NAT_CLASS_CLOSING:
    case NAT_CLASS_TCP_NEW:
    case NAT_CLASS_TCP:
        class = tcp_class(s, out, tcp_flags);
        break;
    case NAT_CLASS_UDP_NEW:
        s->state |= out ? NAT_SEEN_OUT : NAT_SEEN_IN;
        if (s->state == (NAT_SEEN_OUT | NAT_SEEN_IN))
            class = NAT_CLASS_UDP;
        break;
    default:
        break;
    }
    if (class == s->class && s->seen == n->now)
        return;
    class_remove(n, session);
    s->class = class;
    s->seen = n->now;
    class_append(n, session);
}
