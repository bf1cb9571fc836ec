#include "flow/nat.h"
#include "flow/mss.h"
#include "flow/nat_table.h"
#include "wire/checksum.h"

#include <stdlib.h>

static const char *const verdict_names[] = {
#define X(name, text) [name] = text,
    NAT_VERDICTS(X)
#undef X
};
_Static_assert(ARRAY_COUNT(verdict_names) == NAT_VERDICT_COUNT, "a name for every verdict");

const char *nat_verdict_name(enum nat_verdict v)
{
    return verdict_names[v];
}

static bool config_valid(const struct nat_config *c)
{
    return (c->source4_set || c->source6_set) && c->lan_count <= NAT_LANS && c->entries >= 16 &&
           c->entries <= 1u << 22 && c->port_low <= c->port_high;
}

struct nat *nat_new(const struct nat_config *config)
{
    if (!config_valid(config))
        return NULL;
    struct nat *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->config = *config;
    if (!nat_table_init(n, config->entries)) {
        nat_free(n);
        return NULL;
    }
    return n;
}

void nat_free(struct nat *n)
{
    if (!n)
        return;
    nat_table_free(n);
    free(n);
}

static void end_family(struct nat *n, uint8_t family)
{
    for (unsigned class = 0; class < NAT_CLASS_COUNT; class++)
        for (uint32_t i = n->oldest[class], next; i; i = next) {
            next = n->session[i].newer;
            if (n->mapping[n->session[i].mapping].family == family)
                nat_session_end(n, i);
        }
}

bool nat_configure(struct nat *n, const struct nat_config *config)
{
    if (!config_valid(config) || config->entries != n->config.entries)
        return false;
    if (config->source4_set != n->config.source4_set || memcmp(config->source4, n->config.source4, 4) != 0)
        end_family(n, 4);
    if (config->source6_set != n->config.source6_set || memcmp(config->source6, n->config.source6, 16) != 0)
        end_family(n, 6);
    uint64_t seed = n->config.seed; /* the tables are hashed with it */
    n->config = *config;
    n->config.seed = seed;
    return true;
}

bool nat_is_own(const struct nat *n, uint8_t family, const uint8_t *address)
{
    return (family == 4 ? n->config.source4_set : n->config.source6_set) &&
           memcmp(address, nat_source(n, family), ip_addr_len(family)) == 0;
}

static bool in_lan(const struct nat *n, uint8_t family, const uint8_t *address)
{
    for (unsigned i = 0; i < n->config.lan_count; i++)
        if (prefix_contains(&n->config.lan[i], family, address))
            return true;
    return false;
}

/* --- rewriting --- */

void nat_rewrite_address(uint8_t *packet, uint8_t version, bool dst, const uint8_t *address)
{
    uint8_t *a = dst ? ip_dst_edit(version, packet) : ip_src_edit(version, packet);
    size_t len = ip_addr_len(version);
    if (version == 4)
        checksum_replace(packet + 10, checksum_add(0, a, len), checksum_add(0, address, len), false, false);
    memcpy(a, address, len);
}

void nat_rewrite(uint8_t *packet, const struct ip_view *v, bool dst, const uint8_t *address, uint16_t port,
                 bool partial)
{
    size_t len = ip_addr_len(v->version);
    const uint8_t *old = dst ? ip_dst(v->version, packet) : ip_src(v->version, packet);
    uint64_t before = checksum_add(0, old, len), after = checksum_add(0, address, len);
    nat_rewrite_address(packet, v->version, dst, address);

    uint8_t *l4 = packet + v->l4, *field, *port_at;
    uint32_t left = v->length - v->l4;
    bool udp = false;
    switch (v->l4_kind) {
    case IP_L4_TCP:
        field = left >= 18 ? l4 + 16 : NULL;
        port_at = l4 + (dst ? 2 : 0);
        break;
    case IP_L4_UDP:
        udp = true;
        field = partial || load_be16(l4 + 6) ? l4 + 6 : NULL; /* 0: none (RFC 768), and it stays none */
        port_at = l4 + (dst ? 2 : 0);
        break;
    case IP_L4_ICMP_ECHO:
        field = l4 + 2;
        port_at = l4 + 4;
        if (v->version == 4) /* no pseudo-header */
            before = after = 0;
        break;
    default:
        return;
    }
    if (!partial) { /* ports are no part of a partial sum: whoever finishes it adds them */
        before += checksum_load(port_at);
        after += checksum_word(port);
    }
    store_be16(port_at, port);
    if (field)
        checksum_replace(field, before, after, partial, udp);
}

/* Of all that passes, translated or not. */
static void clamp(struct nat *n, uint8_t *packet, const struct ip_view *v, bool partial)
{
    uint16_t max = v->version == 4 ? n->config.mss4 : n->config.mss6;
    if (max && v->tcp_flags & TCP_SYN && mss_clamp(packet, v, partial, max))
        n->stats.mss_clamped++;
}

/* --- out --- */

static enum nat_verdict flow_out(struct nat *n, uint8_t *p, const struct ip_view *v, bool own, bool partial)
{
    const uint8_t *src = ip_src(v->version, p), *dst = ip_dst(v->version, p);
    bool echo = v->l4_kind == IP_L4_ICMP_ECHO;
    if (echo && v->icmp_type != (v->version == 4 ? 8 : 128))
        return own ? NAT_PASS : NAT_DROP_ICMP_TYPE; /* an answer: to a request that never came in */
    uint16_t remote_port = echo ? 0 : v->dport;
    uint32_t m = nat_mapping_inside(n, v->version, v->protocol, src, v->sport);
    uint32_t s = m ? nat_session_find(n, m, v->version, dst, remote_port) : 0;
    if (!s) {
        enum nat_verdict why;
        if (v->l4_kind == IP_L4_TCP && v->tcp_flags & TCP_RST)
            return own ? NAT_PASS : NAT_DROP_STATE;
        s = nat_session_open(n, v->version, v->protocol, src, v->sport, dst, remote_port, own, &why);
        if (!s)
            return why;
        m = n->session[s].mapping;
    }
    nat_session_touch(n, s, true, v->l4_kind == IP_L4_TCP ? v->tcp_flags : 0);
    uint16_t port = n->mapping[m].outside_port;
    if (!own || port != v->sport)
        nat_rewrite(p, v, false, nat_source(n, v->version), port, partial);
    return NAT_TRANSLATED;
}

static enum nat_verdict other_out(struct nat *n, uint8_t *p, const struct ip_view *v)
{
    const uint8_t *src = ip_src(v->version, p), *dst = ip_dst(v->version, p);
    uint32_t s = nat_session_find(n, 0, v->version, dst, v->protocol);
    if (!s)
        s = nat_session_other(n, v->version, v->protocol, src, dst);
    else if (memcmp(n->mapping[n->session[s].mapping].inside, src, ip_addr_len(v->version)) != 0)
        return NAT_DROP_TAKEN;
    nat_session_touch(n, s, true, 0);
    nat_rewrite_address(p, v->version, false, nat_source(n, v->version));
    return NAT_TRANSLATED;
}

/* Protocols of which the ports are needed, and could not be read. */
static bool lacks_ports(const struct ip_view *v)
{
    return v->protocol == IP_PROTO_TCP || v->protocol == IP_PROTO_UDP ||
           v->protocol == (v->version == 4 ? IP_PROTO_ICMP : IP_PROTO_ICMP6);
}

static enum nat_verdict route_out(struct nat *n, uint8_t *p, const struct ip_view *v, bool own, bool partial)
{
    switch (v->l4_kind) {
    case IP_L4_TCP:
    case IP_L4_UDP:
    case IP_L4_ICMP_ECHO:
        return flow_out(n, p, v, own, partial);
    case IP_L4_ICMP_ERROR:
        return nat_icmp_out(n, p, v, own);
    case IP_L4_ICMP:
        return own ? NAT_PASS : NAT_DROP_ICMP_TYPE;
    default:
        return lacks_ports(v) ? NAT_DROP_MALFORMED : other_out(n, p, v);
    }
}

/* Of a super-packet the bytes may end after the headers, which must all be there. */
static bool parse(struct ip_view *v, const uint8_t *vnet, const uint8_t *p, size_t len, bool *partial)
{
    struct vnet_header h = {0};
    if (vnet)
        vnet_read(&h, vnet);
    bool super = h.gso_type != VNET_NONE;
    if ((super ? ip_parse_inner(v, p, len) : ip_parse(v, p, len)) != IP_OK)
        return false;
    if (super && (v->fragment || (v->l4_kind == IP_L4_TCP ? v->length - v->l4 < 20 : v->l4_kind != IP_L4_UDP)))
        return false;
    *partial = h.flags & VNET_NEEDS_CSUM && h.csum_start == v->l4;
    return true;
}

static enum nat_verdict count(struct nat *n, enum nat_verdict verdict)
{
    n->stats.verdict[verdict]++;
    return verdict;
}

enum nat_verdict nat_out(struct nat *n, uint64_t now, const uint8_t vnet[VNET_HEADER_LEN], uint8_t *packet, size_t len)
{
    struct ip_view v;
    bool partial;
    nat_table_time(n, now);
    if (!parse(&v, vnet, packet, len, &partial))
        return count(n, NAT_DROP_MALFORMED);
    clamp(n, packet, &v, partial);
    const uint8_t *src = ip_src(v.version, packet);
    bool own = nat_is_own(n, v.version, src);
    if (!own && !in_lan(n, v.version, src)) { /* a router's ICMP error about a translated flow, or nothing for us */
        if (v.l4_kind == IP_L4_ICMP_ERROR && (v.version == 4 ? n->config.source4_set : n->config.source6_set)) {
            enum nat_verdict verdict = nat_icmp_out(n, packet, &v, true);
            return count(n, verdict == NAT_TRANSLATED ? verdict : NAT_PASS);
        }
        return count(n, NAT_PASS);
    }
    if (!(v.version == 4 ? n->config.source4_set : n->config.source6_set))
        return count(n, NAT_DROP_NO_SOURCE);
    if (v.fragment_offset)
        return count(n, nat_fragment_next(n, packet, &v, true));
    struct nat_fragment_key key;
    if (v.fragment)
        nat_fragment_key(&key, packet, &v, true);
    enum nat_verdict verdict = route_out(n, packet, &v, own, partial);
    if (v.fragment)
        nat_fragment_first(n, &key, packet, &v, verdict);
    return count(n, verdict);
}

/* --- in --- */

static enum nat_verdict flow_in(struct nat *n, uint8_t *p, const struct ip_view *v, bool partial)
{
    const uint8_t *src = ip_src(v->version, p);
    bool echo = v->l4_kind == IP_L4_ICMP_ECHO, tcp = v->l4_kind == IP_L4_TCP;
    if (echo && v->icmp_type == (v->version == 4 ? 8 : 128))
        return NAT_LOCAL; /* a request: the gateway answers it */
    uint32_t m = nat_mapping_outside(n, v->version, v->protocol, v->dport);
    if (!m)
        return NAT_LOCAL;
    const struct nat_mapping *mapping = &n->mapping[m];
    bool own = nat_is_own(n, v->version, mapping->inside) && mapping->inside_port == v->dport;
    uint16_t remote_port = echo ? 0 : v->sport;
    uint8_t inside[16];
    uint16_t inside_port = mapping->inside_port;
    memcpy(inside, mapping->inside, sizeof inside);
    uint32_t s = nat_session_find(n, m, v->version, src, remote_port);
    if (!s && own)
        return NAT_LOCAL; /* to a server on the gateway from whomever: not ours to filter */
    if (s) {
        nat_session_touch(n, s, false, tcp ? v->tcp_flags : 0);
    } else { /* no session is made from outside: the inside host's answer will */
        if (nat_mapping_outside(n, v->version, v->protocol, v->dport) != m)
            return NAT_LOCAL; /* its last session has just expired */
        if (!nat_mapping_knows(n, m, src))
            return NAT_DROP_FILTERED;
        if (tcp && (v->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) != TCP_SYN)
            return NAT_DROP_STATE;
    }
    if (own)
        return NAT_LOCAL;
    nat_rewrite(p, v, true, inside, inside_port, partial);
    return NAT_TRANSLATED;
}

static enum nat_verdict other_in(struct nat *n, uint8_t *p, const struct ip_view *v)
{
    uint32_t s = nat_session_find(n, 0, v->version, ip_src(v->version, p), v->protocol);
    if (!s)
        return NAT_LOCAL;
    nat_session_touch(n, s, false, 0);
    const uint8_t *inside = n->mapping[n->session[s].mapping].inside;
    if (nat_is_own(n, v->version, inside))
        return NAT_LOCAL;
    nat_rewrite_address(p, v->version, true, inside);
    return NAT_TRANSLATED;
}

static enum nat_verdict route_in(struct nat *n, uint8_t *p, const struct ip_view *v, bool partial)
{
    switch (v->l4_kind) {
    case IP_L4_TCP:
    case IP_L4_UDP:
    case IP_L4_ICMP_ECHO:
        return flow_in(n, p, v, partial);
    case IP_L4_ICMP_ERROR:
        return nat_icmp_in(n, p, v);
    case IP_L4_ICMP:
        return NAT_LOCAL;
    default:
        return lacks_ports(v) ? NAT_DROP_MALFORMED : other_in(n, p, v);
    }
}

enum nat_verdict nat_in(struct nat *n, uint64_t now, const uint8_t vnet[VNET_HEADER_LEN], uint8_t *packet, size_t len)
{
    struct ip_view v;
    bool partial;
    nat_table_time(n, now);
    if (!parse(&v, vnet, packet, len, &partial))
        return count(n, NAT_DROP_MALFORMED);
    clamp(n, packet, &v, partial);
    if (!nat_is_own(n, v.version, ip_dst(v.version, packet)))
        return count(n, NAT_PASS);
    if (v.fragment_offset)
        return count(n, nat_fragment_next(n, packet, &v, false));
    struct nat_fragment_key key;
    if (v.fragment)
        nat_fragment_key(&key, packet, &v, false);
    enum nat_verdict verdict = route_in(n, packet, &v, partial);
    if (v.fragment)
        nat_fragment_first(n, &key, packet, &v, verdict);
    return count(n, verdict);
}

/* --- time, numbers --- */

#define EXPIRE_AT_ONCE 64

uint64_t nat_expire(struct nat *n, uint64_t now)
{
    nat_table_time(n, now);
    nat_fragment_expire(n);
    if (nat_table_expire(n, EXPIRE_AT_ONCE))
        return now;
    uint64_t next = nat_table_next(n);
    return n->held_waiting ? MIN(next, now + NAT_HELD_SECONDS * 1000000000ull) : next;
}

const struct nat_stats *nat_stats(const struct nat *n)
{
    return &n->stats;
}
