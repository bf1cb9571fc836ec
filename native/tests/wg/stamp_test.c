/* TAI64N: the vectors, and that stamps grow whatever the clock does. */
#include "wg/stamp.h"

#include "tests/check.h"
#include "vectors_wireguard.h"
#include "wire/bytes.h"

static void test_vectors(void)
{
    const struct vector *v = vector_at(&vectors_wireguard, "tai64n");
    uint8_t stamp[WG_STAMP_SIZE];
    CHECK(v->count >= 5);
    for (size_t i = 0; i < v->count; i++) {
        wg_stamp_from_clock(stamp, (int64_t)vector_number(&v->children[i], "sec"),
                            (uint32_t)vector_number(&v->children[i], "nsec"));
        CHECK_MEM(stamp, vector_bytes(&v->children[i], "tai64n"), WG_STAMP_SIZE);
    }
}

/* Takes the next stamp as the device does; true: a bound had to be written first. */
static bool stamp_send(struct wg_stamp *s, int64_t sec, uint32_t nsec, uint8_t stamp[WG_STAMP_SIZE])
{
    bool written = !wg_stamp_peek(s, sec, nsec, stamp);
    if (written) {
        wg_stamp_reserve(s, stamp);
        CHECK(wg_stamp_peek(s, sec, nsec, stamp));
    }
    wg_stamp_take(s, stamp);
    return written;
}

static void test_grows(void)
{
    struct wg_stamp s = {0};
    uint8_t before[WG_STAMP_SIZE] = {0}, now[WG_STAMP_SIZE];
    static const int64_t clocks[] = {1700000000, 1700000000, 1700000000, 0, 1, 1731536000, 1700000001, -1, 1731536001};
    for (size_t i = 0; i < ARRAY_COUNT(clocks) * 200; i++) {
        stamp_send(&s, clocks[i / 200], 999999999, now);
        CHECK(memcmp(now, before, sizeof now) > 0);
        CHECK(memcmp(now, s.reserved, sizeof now) <= 0);
        CHECK(load_be32(now + 8) < WG_SECOND);
        memcpy(before, now, sizeof now);
    }
}

/* Dead after every stamp and started again with a clock of 1970: what was written is enough to go on. */
static void test_reboots(void)
{
    uint8_t written[WG_STAMP_SIZE] = {0}, before[WG_STAMP_SIZE] = {0}, now[WG_STAMP_SIZE];
    for (unsigned boot = 0; boot < 20; boot++) {
        struct wg_stamp s = {0};
        wg_stamp_floor(&s, written);
        for (unsigned i = 0; i < 5; i++) {
            stamp_send(&s, boot == 0 ? 1700000000 : i, 0, now);
            CHECK(memcmp(now, before, sizeof now) > 0);
            memcpy(before, now, sizeof now);
        }
        memcpy(written, s.reserved, sizeof written);
    }
    CHECK(load_be64(written) - WG_TAI64_BASE < 1700000000u + 21 * WG_STAMP_AHEAD);
}

/* A day of handshakes every two minutes: a write an hour. */
static void test_writes(void)
{
    struct wg_stamp s = {0};
    uint8_t now[WG_STAMP_SIZE];
    unsigned writes = 0;
    for (int64_t t = 0; t < 86400; t += 120)
        writes += stamp_send(&s, 1700000000 + t, 0, now);
    CHECK(writes >= 20 && writes <= 25);
}

int main(void)
{
    test_vectors();
    test_grows();
    test_reboots();
    test_writes();
    return check_done();
}
