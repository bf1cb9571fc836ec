/* The replay window: the vectors' cases, and numbered one-line cases around every edge of the bitmap. */
#include "wg/replay.c"

#include "tests/check.h"
#include "vectors_wireguard.h"
#include "wire/bytes.h"

static bool check_same(bool got, bool want)
{
    return CHECK(got == want);
}

static void test_vectors(void)
{
    const struct vector *v = vector_at(&vectors_wireguard, "replay_window");
    CHECK_EQ(vector_number(v, "bits_total"), WG_WINDOW_BITS);
    CHECK_EQ(vector_number(v, "word_bits"), 64);
    const struct vector *cases = vector_at(v, "cases");
    CHECK(cases->count >= 5);
    for (size_t i = 0; i < cases->count; i++) {
        struct wg_replay replay = {0};
        const struct vector *counters = vector_at(&cases->children[i], "counters");
        const struct vector *accept = vector_at(&cases->children[i], "accept");
        CHECK_EQ(counters->count, accept->count);
        for (size_t j = 0; j < counters->count; j++)
            if (!check_same(wg_replay_accept(&replay, strtoull(counters->children[j].text, NULL, 10)),
                            accept->children[j].number))
                fprintf(stderr, "    case %s, counter %s\n", vector_text(&cases->children[i], "name"),
                        counters->children[j].text);
    }
}

/* One window, asked in this order. */
static const struct {
    int number;
    uint64_t counter;
    bool accept;
} cases[] = {
    {1, 0, true},                                /* the first counter is 0 */
    {2, 0, false},                               /* once only */
    {3, 1, true},
    {4, 63, true},                               /* last bit of the first word but one: bits are counter + 1 */
    {5, 62, true},
    {6, 64, true},                               /* across the word */
    {7, 63, false},
    {8, 61, true},                               /* behind, unseen */
    {9, 8128, true},                             /* 0 is at the window's edge, and was seen */
    {10, 0, false},
    {11, 2, true},                               /* edge + 2, unseen */
    {12, 8191, true},                            /* the last bit that fits before the bitmap wraps */
    {13, 8192, true},                            /* enters the word in which 0 was */
    {14, 63, false},                             /* 8192 - 8129: one too old */
    {15, 64, false},                             /* 8192 - 8128: in the window, seen */
    {16, 65, true},                              /* in the window, unseen */
    {17, 8191, false},
    {18, 16384, true},                           /* a jump of a whole bitmap */
    {19, 8192, false},                           /* too old */
    {20, 16384 - 8128, true},                    /* the edge */
    {21, 16384 - 8129, false},
    {22, 16383, true},                           /* cleared by the jump */
    {23, 1ull << 40, true},                      /* a jump of very many bitmaps */
    {24, (1ull << 40) - 1, true},
    {25, (1ull << 40) - 8128, true},
    {26, (1ull << 40) - 8129, false},
    {27, 16384, false},
    {28, WG_REJECT_AFTER_MESSAGES, false},       /* over the limit: changes nothing */
    {29, UINT64_MAX, false},
    {30, (1ull << 40) + 1, true},
    {31, WG_REJECT_AFTER_MESSAGES - 1, true},    /* the greatest there is */
    {32, WG_REJECT_AFTER_MESSAGES - 1, false},
    {33, WG_REJECT_AFTER_MESSAGES - 2, true},
    {34, WG_REJECT_AFTER_MESSAGES - 1 - 8128, true},
    {35, WG_REJECT_AFTER_MESSAGES - 2 - 8128, false},
    {36, 0, false},
};

static void test_cases(void)
{
    struct wg_replay replay = {0};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        if (!check_same(wg_replay_accept(&replay, cases[i].counter), cases[i].accept))
            fprintf(stderr, "    case %d\n", cases[i].number);
}

/* Against the definition, kept in a plain list: random walks of several shapes. */
static void test_model(void)
{
    enum { SPAN = 40000 };
    static uint8_t seen[SPAN];
    uint64_t x = 88172645463325252ull;
    for (unsigned reach = 1; reach <= 16384; reach *= 4) {
        struct wg_replay replay = {0};
        memset(seen, 0, sizeof seen);
        int64_t top = -1;
        unsigned wrong = 0;
        for (unsigned i = 0; i < 200000; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            int64_t counter = top + 1 + (int64_t)(x % (2 * reach)) - (int64_t)reach + (int64_t)(x >> 60 == 0);
            if (counter < 0 || counter >= SPAN)
                counter = (int64_t)(x % SPAN);
            bool want = !seen[counter] && counter >= top - (int64_t)WG_WINDOW;
            wrong += wg_replay_accept(&replay, (uint64_t)counter) != want;
            if (want)
                seen[counter] = 1;
            top = MAX(top, counter);
        }
        CHECK_EQ(wrong, 0);
    }
}

int main(void)
{
    test_vectors();
    test_cases();
    test_model();
    return check_done();
}
