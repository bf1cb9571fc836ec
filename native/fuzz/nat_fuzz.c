/* Any packets, out and in, over time: nothing is read or written outside a packet (each lies in memory of its own
 * size), the table's numbers add up, a translated packet still parses, and what is not translated has its addresses as
 * before. Input: records of a byte of kind (bit 0 in, bit 1 super, bits 2-3 seconds to wait, bit 4 send the last
 * translated packet back, bit 5 with a partial checksum), u8 length in units of two bytes, bytes. */
#include "flow/nat.h"

#include <stdlib.h>

static void check(bool ok)
{
    if (!ok)
        abort();
}

/* An answer to p, in place: addresses and ports swapped. */
static void turn_round(uint8_t *p, size_t n)
{
    struct ip_view v;
    uint8_t keep[16];
    if (ip_parse(&v, p, n) != IP_OK)
        return;
    size_t len = ip_addr_len(v.version);
    memcpy(keep, ip_src(v.version, p), len);
    memcpy(ip_src_edit(v.version, p), ip_dst(v.version, p), len);
    memcpy(ip_dst_edit(v.version, p), keep, len);
    if (v.l4_kind == IP_L4_TCP || v.l4_kind == IP_L4_UDP) {
        memcpy(keep, p + v.l4, 2);
        memcpy(p + v.l4, p + v.l4 + 2, 2);
        memcpy(p + v.l4 + 2, keep, 2);
    } else if (v.l4_kind == IP_L4_ICMP_ECHO) {
        p[v.l4] = p[v.l4] == 8 ? 0 : p[v.l4] == 128 ? 129 : p[v.l4];
    }
}

static void step(struct nat *n, uint64_t now, uint8_t kind, uint8_t *p, size_t len)
{
    uint8_t vnet[VNET_HEADER_LEN] = {0}, before[40] = {0};
    struct ip_view v;
    bool parsed = ip_parse(&v, p, len) == IP_OK;
    struct vnet_header h = {.gso_type = kind & 2 ? (len && p[0] >> 4 == 6 ? VNET_TCP6 : VNET_TCP4) : VNET_NONE};
    if (kind & 32 && parsed) {
        h.flags = VNET_NEEDS_CSUM;
        h.csum_start = (uint16_t)v.l4;
        h.csum_offset = v.l4_kind == IP_L4_UDP ? 6 : 16;
    }
    vnet_write(vnet, &h);
    memcpy(before, p, MIN(len, sizeof before));
    enum nat_verdict verdict = kind & 1 ? nat_in(n, now, vnet, p, len) : nat_out(n, now, vnet, p, len);
    check(verdict < NAT_VERDICT_COUNT);
    if (parsed && verdict != NAT_TRANSLATED)
        check(memcmp(ip_src(v.version, before), ip_src(v.version, p), 2 * ip_addr_len(v.version)) == 0);
    if (parsed && verdict == NAT_TRANSLATED && !(kind & 2)) {
        struct ip_view after;
        check(ip_parse(&after, p, len) == IP_OK && after.l4 == v.l4 && after.length == v.length &&
              after.l4_kind == v.l4_kind);
    }
    uint8_t *held;
    bool out;
    for (size_t size; (size = nat_take(n, &held, &out));)
        check(ip_parse(&v, held, size) == IP_OK);
    const struct nat_stats *s = nat_stats(n);
    check(s->sessions <= 16 && s->mappings <= s->sessions && s->created - s->expired - s->evicted == s->sessions);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct nat_config c = {.source4_set = true,
                           .source6_set = true,
                           .source4 = {10, 9, 0, 2},
                           .source6 = {0xfd, 9, [15] = 2},
                           .lan_count = 2,
                           .entries = 16,
                           .mss4 = 1300,
                           .mss6 = 1280,
                           .seed = 7};
    prefix_parse(&c.lan[0], "10.1.0.0/16", 11);
    prefix_parse(&c.lan[1], "fd01::/16", 9);
    struct nat *nat = nat_new(&c);
    uint64_t now = 1000000000;
    uint8_t *last = NULL;
    size_t last_len = 0;
    for (size_t at = 0; n - at >= 2;) {
        uint8_t kind = data[at];
        size_t len = MIN(data[at + 1] * 2u, n - at - 2);
        at += 2;
        now += (uint64_t)(kind >> 2 & 3) * 50000000000;
        uint8_t *p;
        if (kind & 16 && last) {
            len = last_len;
            p = malloc(len ? len : 1);
            memcpy(p, last, len);
            turn_round(p, len);
        } else {
            p = malloc(len ? len : 1);
            memcpy(p, data + at, len);
            at += len;
        }
        step(nat, now, kind, p, len);
        free(last);
        last = p;
        last_len = len;
        if (kind & 64)
            check(nat_expire(nat, now) >= now);
    }
    free(last);
    nat_free(nat);
    return 0;
}
