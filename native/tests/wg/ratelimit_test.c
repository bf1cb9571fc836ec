/* 20 a second, 5 at once, by address or /64, in bounded memory. */
#include "wg/ratelimit.c"

#include "tests/check.h"

static struct random entropy;

static struct wg_endpoint v4(uint32_t address)
{
    struct wg_endpoint e = {.family = WG_FAMILY_V4, .port = 1};
    store_be32(e.address, address);
    return e;
}

static struct wg_endpoint v6(uint64_t network, uint64_t host)
{
    struct wg_endpoint e = {.family = WG_FAMILY_V6, .port = 1};
    store_be64(e.address, network);
    store_be64(e.address + 8, host);
    return e;
}

static unsigned burst(struct wg_ratelimit *r, uint64_t at, struct wg_endpoint e, unsigned n)
{
    unsigned taken = 0;
    while (n--) {
        e.port++; /* the port does not matter */
        taken += wg_ratelimit_allow(r, at, &entropy, &e);
    }
    return taken;
}

/* A case is a line. */
/* clang-format off */
int main(void)
{
    uint8_t seed[32] = { 2 };
    random_seed(&entropy, seed);
    struct wg_ratelimit r = { 0 };
    uint64_t t = 1000 * WG_SECOND;
    /*  1: five at once, then none */          CHECK_EQ(burst(&r, t, v4(1), 100), 5);
    /*  2: just before the next token */       CHECK_EQ(burst(&r, t + 50 * WG_MS - 1, v4(1), 3), 0);
    /*  3: one each 50 ms */                   CHECK_EQ(burst(&r, t + 50 * WG_MS, v4(1), 3), 1);
    /*  4: another address has its own */      CHECK_EQ(burst(&r, t + 50 * WG_MS, v4(2), 100), 5);
    /*  5: full again after 250 ms, no more */ CHECK_EQ(burst(&r, t + 10 * WG_SECOND, v4(1), 100), 5);
    /*  6: a /64 is one */                     CHECK_EQ(burst(&r, t, v6(7, 1), 100), 5);
    /*  7: whatever its host */                CHECK_EQ(burst(&r, t, v6(7, 2), 100), 0);
    /*  8: the next /64 is another */          CHECK_EQ(burst(&r, t, v6(8, 1), 100), 5);
    /*  9: the same number in v4 is another */ CHECK_EQ(burst(&r, t, v4(7), 100), 5);
    unsigned second = 0;
    for (unsigned ms = 1; ms <= 1000; ms++)
        second += burst(&r, t + 20 * WG_SECOND + ms * WG_MS, v4(3), 10);
    /* 10: 20 a second after the burst */      CHECK(second >= 24 && second <= 25);
    unsigned taken = 0;
    for (uint32_t i = 0; i < 1000000; i++)
        taken += burst(&r, t + 30 * WG_SECOND, v4(0x0a000000 + i), 1);
    /* 11: a million addresses, one table */   CHECK_EQ(taken, 1000000);
    CHECK_EQ(sizeof(struct wg_ratelimit_entry) * SETS * WAYS, 96 * 1024);
    wg_ratelimit_free(&r);
    CHECK(r.entries == NULL);
    /* 12: and again from nothing */           CHECK_EQ(burst(&r, t, v4(1), 100), 5);
    wg_ratelimit_free(&r);
    return check_done();
}
