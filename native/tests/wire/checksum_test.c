#include "../check.h"
#include "packets.h"
#include "wire/checksum.h"

static uint8_t buffer[70000], copy[70000];

static uint16_t as_be(uint64_t sum) /* a folded sum as the number its bytes spell */
{
    uint8_t b[2];
    checksum_store(b, checksum_fold(sum));
    return load_be16(b);
}

static void sums_and_copies(void)
{
    random_fill(buffer, sizeof buffer);
    for (int round = 0; round < 3000; round++) {
        size_t at = random_below(70), n = round < 600 ? (size_t)round : random_below(65536);
        if (round % 50 == 0)
            memset(buffer + at, 0xff, MIN(n, (size_t)5000)); /* carries everywhere */
        uint16_t want = naive_sum(0, buffer + at, n);
        CHECK_EQ(as_be(checksum_add(0, buffer + at, n)), want);
        size_t to = random_below(70);
        memset(copy + to, 0x5a, n + 1);
        CHECK_EQ(as_be(checksum_copy(copy + to, buffer + at, n, 0)), want);
        CHECK(memcmp(copy + to, buffer + at, n) == 0);
        CHECK_EQ(copy[to + n], 0x5a);
        size_t cut = n / 2 & ~(size_t)1; /* pieces of even length join */
        CHECK_EQ(as_be(checksum_add(checksum_add(0, buffer + at, cut), buffer + at + cut, n - cut)), want);
    }
    static uint8_t big[1 << 22];
    memset(big, 0xff, sizeof big);
    CHECK_EQ(as_be(checksum_add(0, big, sizeof big)), 0xffff);
}

static void pseudo_headers(void)
{
    for (int i = 0; i < 200; i++) {
        uint8_t p[40] = {0};
        random_fill(p + 8, 32);
        uint32_t n = random_below(65536);
        p[0] = 0x45;
        CHECK_EQ(as_be(checksum_pseudo4(p + 12, p + 16, 17, n)), naive_pseudo(p, 17, n));
        p[0] = 0x60;
        CHECK_EQ(as_be(checksum_pseudo6(p + 8, p + 24, 6, n)), naive_pseudo(p, 6, n));
    }
}

/* A field over 40 bytes stays right (or partial) however its covered words change. */
static void updates(void)
{
    for (int i = 0; i < 20000; i++) {
        uint8_t p[40];
        random_fill(p, sizeof p);
        if (i % 3 == 0)
            memset(p, i % 2 ? 0xff : 0, sizeof p);
        store_be16(p + 10, 0);
        store_be16(p + 10, (uint16_t)~naive_sum(0, p, 40));
        size_t at = 12 + 2 * random_below(12);
        switch (i % 4) {
        case 0:
            checksum_set16(p + 10, p + at, (uint16_t)random_u32());
            break;
        case 1:
            checksum_set32(p + 10, p + at, i & 8 ? random_u32() : 0);
            break;
        default: {
            uint8_t fresh[16];
            random_fill(fresh, 16);
            checksum_replace(p + 10, checksum_add(0, p + 16, 16), checksum_add(0, fresh, 16), false, i % 4 == 3);
            memcpy(p + 16, fresh, 16);
            if (i % 4 == 3)
                CHECK(load_be16(p + 10) != 0);
        }
        }
        CHECK_EQ(naive_sum(0, p, 40), 0xffff);

        uint8_t before[16], after[16], partial[2];
        random_fill(before, 16);
        random_fill(after, 16);
        store_be16(partial, naive_sum(1234, before, 16));
        checksum_replace(partial, checksum_add(0, before, 16), checksum_add(0, after, 16), true, false);
        CHECK_EQ(load_be16(partial) % 0xffff, naive_sum(1234, after, 16) % 0xffff);
    }
}

int main(void)
{
    sums_and_copies();
    pseudo_headers();
    updates();
    uint8_t zero[2] = {1, 1};
    checksum_finish_udp(zero, 0xffff);
    CHECK_EQ(load_be16(zero), 0xffff);
    checksum_finish(zero, 0xffff);
    CHECK_EQ(load_be16(zero), 0);
    return check_done();
}
