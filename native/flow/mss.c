#include "flow/mss.h"
#include "wire/checksum.h"

enum { OPTION_END = 0, OPTION_NOP = 1, OPTION_MSS = 2 };

uint16_t mss_of_mtu(uint8_t version, unsigned mtu)
{
    unsigned headers = version == 4 ? 40 : 60;
    return mtu > headers ? (uint16_t)MIN(mtu - headers, 65535u) : 0;
}

bool mss_clamp(uint8_t *packet, const struct ip_view *v, bool partial, uint16_t max)
{
    if (v->l4_kind != IP_L4_TCP || !(v->tcp_flags & TCP_SYN))
        return false;
    uint8_t *tcp = packet + v->l4;
    for (uint32_t at = 20, end = v->payload - v->l4; at < end;) {
        if (tcp[at] == OPTION_END)
            return false;
        if (tcp[at] == OPTION_NOP) {
            at++;
            continue;
        }
        if (end - at < 2 || tcp[at + 1] < 2 || tcp[at + 1] > end - at)
            return false;
        if (tcp[at] != OPTION_MSS || tcp[at + 1] != 4) {
            at += tcp[at + 1];
            continue;
        }
        uint8_t *mss = tcp + at + 2;
        if (load_be16(mss) <= max)
            return false;
        if (partial) {
            store_be16(mss, max);
        } else if (at & 1) { /* the number lies across two words of the sum */
            uint64_t before = checksum_add(0, mss - 1, 4);
            store_be16(mss, max);
            checksum_replace(tcp + 16, before, checksum_add(0, mss - 1, 4), false, false);
        } else {
            checksum_set16(tcp + 16, mss, max);
        }
        return true;
    }
    return false;
}
