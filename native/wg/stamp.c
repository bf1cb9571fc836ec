#include "wg/stamp.h"

#include <string.h>

#include "wire/bytes.h"

void wg_stamp_from_clock(uint8_t stamp[WG_STAMP_SIZE], int64_t sec, uint32_t nsec)
{
    store_be64(stamp, WG_TAI64_BASE + (uint64_t)sec);
    store_be32(stamp + 8, nsec & ~(WG_STAMP_TICK - 1));
}

void wg_stamp_floor(struct wg_stamp *s, const uint8_t stamp[WG_STAMP_SIZE])
{
    if (memcmp(stamp, s->last, WG_STAMP_SIZE) > 0)
        memcpy(s->last, stamp, WG_STAMP_SIZE);
    if (memcmp(stamp, s->reserved, WG_STAMP_SIZE) > 0)
        memcpy(s->reserved, stamp, WG_STAMP_SIZE);
}

bool wg_stamp_peek(const struct wg_stamp *s, int64_t sec, uint32_t nsec, uint8_t stamp[WG_STAMP_SIZE])
{
    wg_stamp_from_clock(stamp, sec, nsec);
    if (memcmp(stamp, s->last, WG_STAMP_SIZE) <= 0) {
        uint64_t whole = load_be64(s->last);
        uint32_t part = (load_be32(s->last + 8) & ~(WG_STAMP_TICK - 1)) + WG_STAMP_TICK;
        if (part >= WG_SECOND) {
            part = 0;
            whole++;
        }
        store_be64(stamp, whole);
        store_be32(stamp + 8, part);
    }
    return memcmp(stamp, s->reserved, WG_STAMP_SIZE) <= 0;
}

void wg_stamp_reserve(struct wg_stamp *s, const uint8_t stamp[WG_STAMP_SIZE])
{
    store_be64(s->reserved, load_be64(stamp) + WG_STAMP_AHEAD);
    store_be32(s->reserved + 8, load_be32(stamp + 8));
}

void wg_stamp_take(struct wg_stamp *s, const uint8_t stamp[WG_STAMP_SIZE])
{
    memcpy(s->last, stamp, WG_STAMP_SIZE);
}
