/* Pure functions of the data path, declared in wg.h: padding, ECN across the tunnel, the inner packet's length. */
#include "wg/wg.h"

#include "wire/bytes.h"

size_t wg_padded_length(size_t length, size_t mtu)
{
    if (mtu == 0)
        return ROUND_UP(length, 16);
    /* A packet longer than the MTU is a super-packet to be cut: only its last piece is padded. */
    size_t last = length > mtu ? length % mtu : length;
    return length - last + MIN(mtu, ROUND_UP(last, 16));
}

enum { ECN_NOT = 0, ECN_ECT1 = 1, ECN_ECT0 = 2, ECN_CE = 3 };

/* The limited form of RFC 6040 section 4.1 as the kernel does it: congestion before the tunnel is not blamed on it. */
uint8_t wg_ecn_encapsulate(uint8_t inner)
{
    return (inner & 3) == ECN_CE ? ECN_ECT0 : inner & 3;
}

/* RFC 6040 section 4.2, figure 4. CE over a packet that is not ECN-capable should be a drop there; the kernel lets it
 * through unchanged, and so do we. */
uint8_t wg_ecn_decapsulate(uint8_t outer, uint8_t inner)
{
    static const uint8_t merged[4][4] = {
        /* outer \ inner    not       ECT(1)    ECT(0)    CE */
        [ECN_NOT] = {ECN_NOT, ECN_ECT1, ECN_ECT0, ECN_CE},
        [ECN_ECT1] = {ECN_NOT, ECN_ECT1, ECN_ECT1, ECN_CE},
        [ECN_ECT0] = {ECN_NOT, ECN_ECT1, ECN_ECT0, ECN_CE},
        [ECN_CE] = {ECN_NOT, ECN_CE, ECN_CE, ECN_CE},
    };
    return merged[outer & 3][inner & 3];
}

size_t wg_inner_length(const uint8_t *packet, size_t n)
{
    size_t length = 0;
    if (n >= 20 && packet[0] >> 4 == 4) {
        length = load_be16(packet + 2);
        if (length < 20)
            return 0;
    } else if (n >= 40 && packet[0] >> 4 == 6) {
        length = 40u + load_be16(packet + 4);
    }
    return length <= n ? length : 0;
}
