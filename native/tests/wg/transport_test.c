/* Padding and ECN by the vectors; inner lengths by cases. */
#include "wg/wg.h"

#include "tests/check.h"
#include "vectors_wireguard.h"
#include "wire/bytes.h"

static void test_padding(void)
{
    const struct vector *v = vector_at(&vectors_wireguard, "padding");
    CHECK(v->count >= 18);
    for (size_t i = 0; i < v->count; i++)
        CHECK_EQ(wg_padded_length(vector_number(&v->children[i], "len"), vector_number(&v->children[i], "mtu")),
                 vector_number(&v->children[i], "padded"));
    for (size_t mtu = 1280; mtu <= 8920; mtu += 7)
        for (size_t n = 0; n <= mtu; n += 3) {
            size_t padded = wg_padded_length(n, mtu);
            if (padded < n || padded > mtu || padded - n > 15)
                CHECK(!"padding within the MTU and less than a block");
        }
}

static void test_ecn(void)
{
    const struct vector *in = vector_at(&vectors_wireguard, "ecn_encapsulation");
    const struct vector *out = vector_at(&vectors_wireguard, "ecn_decapsulation");
    CHECK_EQ(in->count, 4);
    CHECK_EQ(out->count, 16);
    for (size_t i = 0; i < in->count; i++)
        CHECK_EQ(wg_ecn_encapsulate((uint8_t)vector_number(&in->children[i], "inner")),
                 vector_number(&in->children[i], "outer"));
    for (size_t i = 0; i < out->count; i++)
        CHECK_EQ(wg_ecn_decapsulate((uint8_t)vector_number(&out->children[i], "outer"),
                                    (uint8_t)vector_number(&out->children[i], "inner")),
                 vector_number(&out->children[i], "result"));
    CHECK_EQ(wg_ecn_encapsulate(0xb8 | 3), 2); /* DSCP does not matter */
}

static void test_inner_length(void)
{
    uint8_t p[64] = {0x45, 0, 0, 40};
    CHECK_EQ(wg_inner_length(p, 64), 40);
    CHECK_EQ(wg_inner_length(p, 40), 40);
    CHECK_EQ(wg_inner_length(p, 39), 0);
    CHECK_EQ(wg_inner_length(p, 19), 0);
    CHECK_EQ(wg_inner_length(p, 0), 0);
    store_be16(p + 2, 19); /* shorter than its own header */
    CHECK_EQ(wg_inner_length(p, 64), 0);
    store_be16(p + 2, 20);
    CHECK_EQ(wg_inner_length(p, 64), 20);
    p[0] = 0x60;
    store_be16(p + 4, 0);
    CHECK_EQ(wg_inner_length(p, 64), 40);
    store_be16(p + 4, 24);
    CHECK_EQ(wg_inner_length(p, 64), 64);
    CHECK_EQ(wg_inner_length(p, 63), 0);
    CHECK_EQ(wg_inner_length(p, 39), 0);
    p[0] = 0x50;
    CHECK_EQ(wg_inner_length(p, 64), 0);
    p[0] = 0;
    CHECK_EQ(wg_inner_length(p, 64), 0);
}

static void test_names(void)
{
    for (unsigned i = 0; i < WG_DROP_COUNT; i++)
        for (unsigned j = 0; j < i; j++)
            CHECK(strcmp(wg_drop_name((enum wg_drop)i), wg_drop_name((enum wg_drop)j)) != 0);
    for (unsigned i = 0; i < WG_ACTION_COUNT; i++)
        CHECK(wg_action_name((enum wg_action)i) != NULL);
    CHECK_STR(wg_drop_name(WG_DROP_DATA_REPLAY), "data_replayed");
}

int main(void)
{
    test_padding();
    test_ecn();
    test_inner_length();
    test_names();
    return check_done();
}
