/* ip_parse on any bytes: every offset that it returns lies inside the packet, in order. */
#include "wire/ip.h"

#include <stdlib.h>

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_view(const struct ip_view *v, size_t n)
{
    check(v->length <= n && v->l4 <= v->length && v->payload <= v->length && v->l4 <= v->payload);
    check(v->l4_kind < IP_L4_COUNT && (v->version == 4 || v->version == 6));
    check(v->l4 >= (v->version == 4 ? 20u : 40u));
    if (v->l4_kind == IP_L4_ICMP_ERROR)
        check(v->inner <= v->length);
    if (v->fragment_header)
        check(v->fragment_header + 8u <= v->l4);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ip_view v, inner;
    if (ip_parse(&v, data, n) == IP_OK) {
        check_view(&v, n);
        ip_flow_hash(&v, data);
        if (v.l4_kind == IP_L4_ICMP_ERROR && ip_parse_inner(&inner, data + v.inner, v.length - v.inner) == IP_OK)
            check_view(&inner, v.length - v.inner);
    }
    if (ip_parse_inner(&v, data, n) == IP_OK)
        check_view(&v, n);
    return 0;
}
