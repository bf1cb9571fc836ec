/* ICMP errors in answer to a packet that cannot be sent on (RFC 792, 1122, 1191, 4443).
 *
 * None is made about an ICMP error, a fragment that is not the first, or a packet from or to something that is not one
 * host (RFC 1122 3.2.2, RFC 4443 2.4 e). How often they are sent is the caller's to limit. */
#ifndef FV_WIRE_ICMP_H
#define FV_WIRE_ICMP_H

#include "wire/bytes.h"

enum icmp_kind {
    ICMP_TOO_BIG,           /* v4: fragmentation needed (3, 4); v6: packet too big (2, 0) */
    ICMP_NO_ROUTE,          /* v4: host unreachable (3, 1); v6: no route (1, 0) */
    ICMP_ADDRESS,           /* v4: host unreachable (3, 1); v6: address unreachable (1, 3) */
    ICMP_PROHIBITED,        /* v4: administratively prohibited (3, 13); v6: (1, 1) */
    ICMP_TIME,              /* time exceeded in transit (11, 0); v6: (3, 0) */
};

#define ICMP_MAX4 576  /* RFC 1812 4.3.2.3 */
#define ICMP_MAX6 1280 /* RFC 4443 2.4 c */

/* Writes the whole answer to out (ICMP_MAX6 bytes suffice) and returns its length; 0: none may be sent, or `size` is
 * too small. source: 4 or 16 bytes, the packet's family; packet, n: the offender (a super-packet will do). */
size_t icmp_error(uint8_t *out, size_t size, enum icmp_kind kind, unsigned mtu, const uint8_t *source,
                  const uint8_t *packet, size_t n);

#endif
