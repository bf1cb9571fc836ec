/* Which counters have been seen: a bitmap that slides (RFC 6479), 8192 bits, of which the last 8128 can be asked.
 * The word that the greatest counter falls into is cleared as a whole when it is entered, hence the missing 64. */
#ifndef FV_WG_REPLAY_H
#define FV_WG_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "wg/messages.h"

struct wg_replay {
    uint64_t next; /* greatest counter accepted, plus one; 0: none yet */
    uint64_t bits[WG_WINDOW_BITS / 64];
};

/* True once per counter: greater than all before, or within 8128 of the greatest and not seen. */
bool wg_replay_accept(struct wg_replay *replay, uint64_t counter);

#endif
