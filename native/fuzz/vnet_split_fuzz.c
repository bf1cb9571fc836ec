/* Any virtio header and packet: the segments fit where they are written, and carry the payload's bytes in order. */
#include "wire/vnet.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < VNET_HEADER_LEN)
        return 0;
    size_t len = n - VNET_HEADER_LEN;
    uint8_t *packet = malloc(len ? len : 1), *segment;
    memcpy(packet, data + VNET_HEADER_LEN, len);
    struct vnet_split s;
    if (vnet_split_begin(&s, data, packet, len) == VNET_OK) {
        if (s.segment_max > len || s.segment_max < 20)
            abort();
        segment = malloc(s.segment_max);
        size_t payload = 0, one;
        unsigned count = 0;
        while ((one = vnet_split_next(&s, segment))) {
            struct ip_view v;
            if (one > s.segment_max || ++count > s.count)
                abort();
            if (s.super) {
                if (ip_parse(&v, segment, one) != IP_OK || v.length != one ||
                    memcmp(segment + s.head, packet + s.head + payload, one - s.head) != 0)
                    abort();
                payload += one - s.head;
            }
        }
        if (count != s.count || (s.super && payload != s.ip.length - s.head))
            abort();
        free(segment);
        if (!s.super)
            vnet_split_in_place(&s);
    }
    free(packet);
    return 0;
}
