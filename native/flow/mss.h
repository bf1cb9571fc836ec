/* MSS clamping (RFC 879, RFC 6691): the option of a SYN or SYN-ACK is lowered to what the tunnel's MTU leaves. */
#ifndef FV_FLOW_MSS_H
#define FV_FLOW_MSS_H

#include "wire/ip.h"

/* The largest MSS for an MTU: IP and TCP headers without options are counted. 0: the MTU is too small for any. */
uint16_t mss_of_mtu(uint8_t version, unsigned mtu);
/* Lowers the option to `max` where it is larger; false: nothing was changed. `partial`: the TCP checksum is the
 * pseudo-header's sum, which the option is no part of. */
bool mss_clamp(uint8_t *packet, const struct ip_view *v, bool partial, uint16_t max);

#endif
