/* TAI64N stamps that only grow.
 *
 * A responder drops an initiation whose stamp is not greater than the last, in silence. A router without a battery
 * clock starts in 1970, or a restored one a day back, and would be locked out until its clock has caught up, with NTP
 * behind the tunnel. So the clock is only a lower bound: a stamp is max(clock, last one + 1 tick). The last one must
 * outlive a reboot; not to write a flash at every handshake, a bound an hour ahead is written, and the next write is
 * due only when a stamp would pass it. After a crash stamps go on from that bound (at most an hour ahead of the
 * clock, which harms nobody: receivers only compare). */
#ifndef FV_WG_STAMP_H
#define FV_WG_STAMP_H

#include <stdbool.h>
#include <stdint.h>

#include "wg/messages.h"

#define WG_STAMP_AHEAD 3600u /* seconds reserved by one write */

struct wg_stamp {
    uint8_t last[WG_STAMP_SIZE];     /* the last one sent, all zero: none */
    uint8_t reserved[WG_STAMP_SIZE]; /* what has been written: all sent ones are at or below */
};

/* The clock as a stamp, low 24 bits of the nanoseconds zero so that it tells nobody the exact time. */
void wg_stamp_from_clock(uint8_t stamp[WG_STAMP_SIZE], int64_t sec, uint32_t nsec);
void wg_stamp_floor(struct wg_stamp *s, const uint8_t stamp[WG_STAMP_SIZE]);
/* The next stamp for this clock, not yet taken. True: it is within the reserved range. */
bool wg_stamp_peek(const struct wg_stamp *s, int64_t sec, uint32_t nsec, uint8_t stamp[WG_STAMP_SIZE]);
/* Moves the reserved bound ahead of `stamp`. */
void wg_stamp_reserve(struct wg_stamp *s, const uint8_t stamp[WG_STAMP_SIZE]);
void wg_stamp_take(struct wg_stamp *s, const uint8_t stamp[WG_STAMP_SIZE]);

#endif
