#include "wire/ip.h"
#include "wire/checksum.h"

/* RFC 8200 sets no limit; nobody sends more than a few, and a walk must end. */
#define EXTENSIONS_MAX 8

static const char *const error_names[] = {
    [IP_OK] = "ok",
    [IP_SHORT] = "ip_short",
    [IP_VERSION] = "ip_version",
    [IP_HEADER] = "ip_header",
    [IP_LENGTH] = "ip_length",
    [IP_EXTENSION] = "ip_extension",
    [IP_FRAGMENT] = "ip_fragment",
};
_Static_assert(ARRAY_COUNT(error_names) == IP_ERROR_COUNT, "a name for every error");

const char *ip_error_name(enum ip_error e)
{
    return error_names[e];
}

static bool is_icmp4_error(uint8_t type)
{
    return type == 3 || type == 4 || type == 5 || type == 11 || type == 12;
}

/* Destination unreachable, packet too big, time exceeded, parameter problem. */
static bool is_icmp6_error(uint8_t type)
{
    return type >= 1 && type <= 4;
}

static void parse_icmp(struct ip_view *v, const uint8_t *p, uint32_t left)
{
    if (left < 8)
        return;
    bool six = v->version == 6;
    v->icmp_type = p[0];
    v->icmp_code = p[1];
    v->payload = v->l4 + 8;
    v->l4_kind = IP_L4_ICMP;
    if (six ? p[0] == 128 || p[0] == 129 : p[0] == 8 || p[0] == 0) {
        v->l4_kind = IP_L4_ICMP_ECHO;
        v->sport = v->dport = load_be16(p + 4);
    } else if (six ? is_icmp6_error(p[0]) : is_icmp4_error(p[0])) {
        v->l4_kind = IP_L4_ICMP_ERROR;
        v->inner = v->l4 + 8;
    }
}

/* `cut`: the packet inside an ICMP error, of which 8 transport bytes suffice. */
static void parse_l4(struct ip_view *v, const uint8_t *packet, bool cut)
{
    const uint8_t *p = packet + v->l4;
    uint32_t left = v->length - v->l4;
    v->payload = v->l4;
    if (v->fragment_offset)
        return;
    if (v->protocol == IP_PROTO_TCP) {
        if (left < (cut ? 8 : 20))
            return;
        if (left >= 20) {
            uint32_t header = (uint32_t)(p[12] >> 4) * 4;
            if (!cut && (header < 20 || header > left))
                return;
            v->tcp_flags = p[13];
            v->payload = v->l4 + MIN(header, left);
        }
        v->l4_kind = IP_L4_TCP;
    } else if (v->protocol == IP_PROTO_UDP) {
        if (left < 8)
            return;
        v->payload = v->l4 + 8;
        v->l4_kind = IP_L4_UDP;
    } else {
        if (v->protocol == (v->version == 4 ? IP_PROTO_ICMP : IP_PROTO_ICMP6))
            parse_icmp(v, p, left);
        return;
    }
    v->sport = load_be16(p);
    v->dport = load_be16(p + 2);
}

static enum ip_error parse4(struct ip_view *v, const uint8_t *p, size_t n, bool cut)
{
    if (n < 20)
        return IP_SHORT;
    uint32_t header = (uint32_t)(p[0] & 15) * 4, total = load_be16(p + 2), field = load_be16(p + 6);
    if (header < 20 || header > n)
        return IP_HEADER;
    if (total < header || (total > n && !cut))
        return IP_LENGTH;
    v->length = MIN(total, (uint32_t)n);
    v->tos = p[1];
    v->ttl = p[8];
    v->protocol = p[9];
    v->l4 = header;
    v->options = header > 20;
    v->dont_fragment = field & 0x4000;
    v->more = field & 0x2000;
    v->fragment_offset = (uint16_t)((field & 0x1fff) * 8);
    v->fragment = v->more || v->fragment_offset;
    v->fragment_id = load_be16(p + 4);
    if (v->fragment && !cut && (total == header || (uint32_t)v->fragment_offset + total - header > 65535))
        return IP_FRAGMENT;
    return IP_OK;
}

static enum ip_error walk_extensions(struct ip_view *v, const uint8_t *p, uint8_t next)
{
    uint32_t at = 40;
    for (int i = 0;; i++) {
        uint32_t size;
        if (next != IP_PROTO_HOPOPTS && next != IP_PROTO_ROUTING && next != IP_PROTO_DSTOPTS &&
            next != IP_PROTO_MOBILITY && next != IP_PROTO_AH && next != IP_PROTO_FRAGMENT)
            break;
        if (i == EXTENSIONS_MAX || v->length - at < 8)
            return IP_EXTENSION;
        v->options = true;
        if (next == IP_PROTO_FRAGMENT) {
            uint16_t field = load_be16(p + at + 2);
            if (v->fragment_header)
                return IP_EXTENSION;
            v->fragment_header = (uint16_t)at;
            v->fragment_offset = field & 0xfff8;
            v->more = field & 1;
            v->fragment = v->more || v->fragment_offset; /* neither: an atomic fragment, RFC 6946 */
            v->fragment_id = load_be32(p + at + 4);
            size = 8;
        } else {
            size = next == IP_PROTO_AH ? (p[at + 1] + 2u) * 4 : (p[at + 1] + 1u) * 8;
        }
        if (size > v->length - at)
            return IP_EXTENSION;
        next = p[at];
        at += size;
        if (v->fragment_offset) /* what follows is data, whatever `next` calls it */
            break;
    }
    v->protocol = next;
    v->l4 = at;
    return IP_OK;
}

static enum ip_error parse6(struct ip_view *v, const uint8_t *p, size_t n, bool cut)
{
    if (n < 40)
        return IP_SHORT;
    uint32_t total = 40u + load_be16(p + 4);
    if (total > n && !cut)
        return IP_LENGTH;
    v->length = MIN(total, (uint32_t)n);
    v->tos = ip_tos(p);
    v->ttl = p[7];
    v->dont_fragment = true;
    enum ip_error e = walk_extensions(v, p, p[6]);
    if (e)
        return e;
    if (v->fragment && !cut && (v->length == v->l4 || v->fragment_offset + v->length - v->l4 > 65535))
        return IP_FRAGMENT;
    return IP_OK;
}

static enum ip_error parse(struct ip_view *v, const uint8_t *packet, size_t n, bool cut)
{
    memset(v, 0, sizeof *v);
    if (n < 20)
        return IP_SHORT;
    v->version = packet[0] >> 4;
    enum ip_error e = v->version == 4   ? parse4(v, packet, n, cut)
                      : v->version == 6 ? parse6(v, packet, n, cut)
                                        : IP_VERSION;
    if (e == IP_OK)
        parse_l4(v, packet, cut);
    return e;
}

enum ip_error ip_parse(struct ip_view *v, const uint8_t *packet, size_t n)
{
    return parse(v, packet, n, false);
}

enum ip_error ip_parse_inner(struct ip_view *v, const uint8_t *packet, size_t n)
{
    return parse(v, packet, n, true);
}

void ip_set_ecn(uint8_t *packet, uint8_t ecn)
{
    if (packet[0] >> 4 == 6) {
        packet[1] = (uint8_t)((packet[1] & 0xcf) | (ecn & 3) << 4);
        return;
    }
    uint64_t before = checksum_load(packet);
    packet[1] = (uint8_t)((packet[1] & 0xfc) | (ecn & 3));
    checksum_replace(packet + 10, before, checksum_load(packet), false, false);
}

static uint32_t mix(uint32_t h)
{
    h ^= h >> 16;
    h *= 0x85ebca6b;
    h ^= h >> 13;
    h *= 0xc2b2ae35;
    return h ^ h >> 16;
}

static uint32_t fold_addr(const uint8_t *p, size_t n)
{
    uint32_t h = 0;
    for (size_t i = 0; i < n; i += 4)
        h = (h ^ load_be32(p + i)) * 0x9e3779b1;
    return mix(h);
}

uint32_t ip_flow_hash(const struct ip_view *v, const uint8_t *packet)
{
    size_t n = ip_addr_len(v->version);
    uint32_t ends = fold_addr(ip_src(v->version, packet), n) + fold_addr(ip_dst(v->version, packet), n);
    uint32_t ports = v->fragment ? 0 : mix(v->sport) + mix(v->dport);
    return mix(ends ^ mix(ports + v->protocol));
}
