/* ICMP errors through the NAT (RFC 5508 4): the packet that the error is about is the translated flow's, so both it and
 * the error's own address are translated. The error itself may come from any router. It refreshes nothing and ends
 * nothing (RFC 5508 REQ-3, RFC 5382 REQ-10). What RFC 4884 appends behind the embedded packet passes as it is. */
#include "flow/nat_table.h"
#include "wire/checksum.h"

/* dst: which address of the error and which end of the embedded packet's opposite: an error that goes in has its dst
 * and the embedded src replaced, one that goes out its src and the embedded dst. */
static void translate(uint8_t *p, const struct ip_view *v, const struct ip_view *inner, bool in, const uint8_t *address,
                      uint16_t port)
{
    uint8_t *embedded = p + v->inner, *field = p + v->l4 + 2;
    size_t embedded_len = v->length - v->inner, len = ip_addr_len(v->version);
    uint64_t before = checksum_add(0, embedded, embedded_len);
    nat_rewrite(embedded, inner, !in, address, port, false);
    uint64_t after = checksum_add(0, embedded, embedded_len);
    if (v->version == 6) { /* the pseudo-header's address */
        before += checksum_add(0, in ? ip_dst(6, p) : ip_src(6, p), len);
        after += checksum_add(0, address, len);
    }
    checksum_replace(field, before, after, false, false);
    nat_rewrite_address(p, v->version, in, address);
}

/* The embedded packet, if its flow can be told. */
static bool parse_inner(struct ip_view *inner, const uint8_t *p, const struct ip_view *v)
{
    if (v->fragment || ip_parse_inner(inner, p + v->inner, v->length - v->inner) != IP_OK)
        return false;
    if (inner->version != v->version || inner->fragment_offset)
        return false;
    switch (inner->l4_kind) {
    case IP_L4_TCP:
    case IP_L4_UDP:
    case IP_L4_ICMP_ECHO:
        return true;
    case IP_L4_NONE: /* a protocol without ports; not one whose ports are cut off */
        return inner->protocol != IP_PROTO_TCP && inner->protocol != IP_PROTO_UDP && inner->protocol != IP_PROTO_ICMP &&
               inner->protocol != IP_PROTO_ICMP6;
    default:
        return false;
    }
}

enum nat_verdict nat_icmp_in(struct nat *n, uint8_t *p, const struct ip_view *v)
{
    struct ip_view inner;
    if (!parse_inner(&inner, p, v))
        return NAT_DROP_ICMP_INNER;
    const uint8_t *embedded = p + v->inner, *remote = ip_dst(v->version, embedded);
    if (!nat_is_own(n, v->version, ip_src(v->version, embedded)))
        return NAT_DROP_ICMP_UNKNOWN;
    uint32_t m = 0, s;
    if (inner.l4_kind == IP_L4_NONE) {
        s = nat_session_find(n, 0, v->version, remote, inner.protocol);
    } else {
        m = nat_mapping_outside(n, v->version, inner.protocol, inner.sport);
        if (!m)
            return NAT_LOCAL;
        s = nat_session_find(n, m, v->version, remote, inner.l4_kind == IP_L4_ICMP_ECHO ? 0 : inner.dport);
    }
    if (!s)
        return m ? NAT_DROP_ICMP_UNKNOWN : NAT_LOCAL;
    const struct nat_mapping *mapping = &n->mapping[n->session[s].mapping];
    if (nat_is_own(n, v->version, mapping->inside) && mapping->inside_port == mapping->outside_port)
        return NAT_LOCAL;
    translate(p, v, &inner, true, mapping->inside, mapping->inside_port);
    return NAT_TRANSLATED;
}

enum nat_verdict nat_icmp_out(struct nat *n, uint8_t *p, const struct ip_view *v, bool own)
{
    struct ip_view inner;
    if (!parse_inner(&inner, p, v))
        return own ? NAT_PASS : NAT_DROP_ICMP_INNER;
    const uint8_t *embedded = p + v->inner;
    const uint8_t *remote = ip_src(v->version, embedded), *inside = ip_dst(v->version, embedded);
    uint32_t s = 0;
    if (inner.l4_kind == IP_L4_NONE) {
        s = nat_session_find(n, 0, v->version, remote, inner.protocol);
        if (s && memcmp(n->mapping[n->session[s].mapping].inside, inside, ip_addr_len(v->version)) != 0)
            s = 0;
    } else {
        uint32_t m = nat_mapping_inside(n, v->version, inner.protocol, inside, inner.dport);
        if (m)
            s = nat_session_find(n, m, v->version, remote, inner.l4_kind == IP_L4_ICMP_ECHO ? 0 : inner.sport);
    }
    if (!s)
        return own ? NAT_PASS : NAT_DROP_ICMP_UNKNOWN;
    const struct nat_mapping *mapping = &n->mapping[n->session[s].mapping];
    translate(p, v, &inner, false, nat_source(n, v->version), mapping->outside_port);
    return NAT_TRANSLATED;
}
