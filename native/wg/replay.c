#include "wg/replay.h"

#include <string.h>

#define WORDS (WG_WINDOW_BITS / 64)

bool wg_replay_accept(struct wg_replay *replay, uint64_t counter)
{
    if (counter >= WG_REJECT_AFTER_MESSAGES)
        return false;
    uint64_t seen = counter + 1; /* so that 0 in `next` can mean: none */
    if (seen + WG_WINDOW < replay->next)
        return false;

    uint64_t word = seen / 64;
    if (seen > replay->next) {
        uint64_t entered = word - replay->next / 64;
        if (entered >= WORDS)
            memset(replay->bits, 0, sizeof replay->bits);
        else
            for (uint64_t i = 1; i <= entered; i++)
                replay->bits[(replay->next / 64 + i) % WORDS] = 0;
        replay->next = seen;
    }
    uint64_t *bits = &replay->bits[word % WORDS], mask = 1ull << (seen % 64);
    if (*bits & mask)
        return false;
    *bits |= mask;
    return true;
}
