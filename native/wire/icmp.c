#include "wire/icmp.h"
#include "wire/checksum.h"
#include "wire/ip.h"

static const struct {
    uint8_t type4, code4, type6, code6;
} codes[] = {
    [ICMP_TOO_BIG] = {3, 4, 2, 0},     [ICMP_NO_ROUTE] = {3, 1, 1, 0}, [ICMP_ADDRESS] = {3, 1, 1, 3},
    [ICMP_PROHIBITED] = {3, 13, 1, 1}, [ICMP_TIME] = {11, 0, 3, 0},
};

/* One host, that can be answered: not unspecified, multicast, broadcast; for IPv4 not loopback either. */
static bool one_host(uint8_t version, const uint8_t *a)
{
    static const uint8_t zero[16];
    if (version == 6)
        return a[0] != 0xff && memcmp(a, zero, 16) != 0;
    return a[0] != 0 && a[0] != 127 && a[0] < 224;
}

/* RFC 1122 3.2.2, RFC 4443 2.4 e. Packet too big may answer a multicast (e.3). */
static bool may_answer(const struct ip_view *v, const uint8_t *packet, enum icmp_kind kind)
{
    if (v->fragment_offset || v->l4_kind == IP_L4_ICMP_ERROR)
        return false;
    if (v->version == 6 && v->l4_kind == IP_L4_ICMP && v->icmp_type == 137) /* redirect */
        return false;
    if (!one_host(v->version, ip_src(v->version, packet)))
        return false;
    return one_host(v->version, ip_dst(v->version, packet)) || (v->version == 6 && kind == ICMP_TOO_BIG);
}

size_t icmp_error(uint8_t *out, size_t size, enum icmp_kind kind, unsigned mtu, const uint8_t *source,
                  const uint8_t *packet, size_t n)
{
    struct ip_view v;
    if (ip_parse_inner(&v, packet, n) != IP_OK || !may_answer(&v, packet, kind))
        return 0;
    bool six = v.version == 6;
    uint32_t l4 = six ? 40 : 20, most = six ? ICMP_MAX6 : ICMP_MAX4;
    uint32_t quoted = MIN(v.length, most - l4 - 8), body = 8 + quoted;
    if (size < l4 + body)
        return 0;
    uint8_t *icmp = out + l4;
    memset(out, 0, l4 + 8);
    memcpy(icmp + 8, packet, quoted);
    icmp[0] = six ? codes[kind].type6 : codes[kind].type4;
    icmp[1] = six ? codes[kind].code6 : codes[kind].code4;
    if (kind == ICMP_TOO_BIG) {
        if (six)
            store_be32(icmp + 4, mtu);
        else
            store_be16(icmp + 6, (uint16_t)MIN(mtu, 65535u)); /* RFC 1191 4 */
    }
    uint64_t sum = 0;
    if (six) {
        out[0] = 0x60;
        store_be16(out + 4, (uint16_t)body);
        out[6] = IP_PROTO_ICMP6;
        out[7] = 64;
        memcpy(out + 8, source, 16);
        memcpy(out + 24, ip_src(6, packet), 16);
        sum = checksum_pseudo6(out + 8, out + 24, IP_PROTO_ICMP6, body);
    } else {
        out[0] = 0x45;
        out[1] = 0xc0; /* internetwork control (RFC 1812 4.3.2.5) */
        store_be16(out + 2, (uint16_t)(l4 + body));
        out[8] = 64;
        out[9] = IP_PROTO_ICMP;
        memcpy(out + 12, source, 4);
        memcpy(out + 16, ip_src(4, packet), 4);
        checksum_finish(out + 10, checksum_add(0, out, 20));
    }
    checksum_finish(icmp + 2, checksum_add(sum, icmp, body));
    return l4 + body;
}
