/* mac1, mac2 and cookies by the vectors, from both ends, and their times. */
#include "wg/cookie.c"

#include "crypto/x25519.h"
#include "tests/check.h"
#include "vectors_wireguard.h"
#include "wg/noise.h"
#include "wire/addr.h"

static struct random entropy;

static struct wg_endpoint endpoint_of(const char *address, uint16_t port)
{
    struct addr a;
    CHECK_EQ(addr_parse_ip(&a, address, strlen(address)), TEXT_OK);
    struct wg_endpoint e = {.family = a.family, .port = port};
    memcpy(e.address, a.ip, 16);
    return e;
}

static void test_mac1(void)
{
    const struct vector *list = vector_at(&vectors_wireguard, "handshakes");
    for (size_t i = 0; i < list->count; i++) {
        const struct vector *v = &list->children[i];
        struct wg_cookie_checker responder, initiator;
        struct wg_cookie_jar jar = {0};
        struct wg_now now = {0};
        struct wg_endpoint from = endpoint_of("192.0.2.7", 1);
        uint8_t msg[WG_INIT_SIZE];
        wg_cookie_checker_init(&responder, vector_bytes(v, "responder.static_public"));
        wg_cookie_checker_init(&initiator, vector_bytes(v, "initiator.static_public"));
        CHECK_MEM(responder.mac1_key, vector_bytes(v, "mac1_key_responder"), 32);
        CHECK_MEM(initiator.mac1_key, vector_bytes(v, "mac1_key_initiator"), 32);

        memcpy(msg, vector_bytes(v, "initiation"), sizeof msg);
        CHECK_EQ(wg_cookie_check(&responder, &now, &entropy, &from, msg, WG_INIT_MAC1, false), WG_MAC_FIRST);
        CHECK_EQ(wg_cookie_check(&initiator, &now, &entropy, &from, msg, WG_INIT_MAC1, false), WG_MAC_BAD);
        memset(msg + WG_INIT_MAC1, 0xee, 32);
        wg_cookie_sign(&jar, vector_bytes(v, "responder.static_public"), &now, msg, WG_INIT_MAC1);
        CHECK_MEM(msg, vector_bytes(v, "initiation"), WG_INIT_SIZE);
        msg[WG_INIT_MAC1 + 15] ^= 1;
        CHECK_EQ(wg_cookie_check(&responder, &now, &entropy, &from, msg, WG_INIT_MAC1, false), WG_MAC_BAD);

        memcpy(msg, vector_bytes(v, "response"), WG_RESP_SIZE);
        CHECK_EQ(wg_cookie_check(&initiator, &now, &entropy, &from, msg, WG_RESP_MAC1, false), WG_MAC_FIRST);
        memset(msg + WG_RESP_MAC1, 0xee, 32);
        wg_cookie_sign(&jar, vector_bytes(v, "initiator.static_public"), &now, msg, WG_RESP_MAC1);
        CHECK_MEM(msg, vector_bytes(v, "response"), WG_RESP_SIZE);
    }
}

static void test_case(const struct vector *v, const struct vector *handshake, const struct vector *cookie)
{
    const uint8_t *responder = vector_bytes(handshake, "responder.static_public");
    struct wg_endpoint from = endpoint_of(vector_text(v, "source_address"), (uint16_t)vector_number(v, "source_port"));
    struct wg_now now = {.mono = 7 * WG_SECOND, .boot = 9 * WG_SECOND};
    struct wg_cookie_checker checker;
    uint8_t got[WG_COOKIE_SIZE], init[WG_INIT_SIZE];
    wg_cookie_checker_init(&checker, responder);
    CHECK_MEM(checker.cookie_key, vector_bytes(cookie, "cookie_encryption_key"), 32);
    memcpy(checker.secret, vector_bytes(cookie, "responder_secret"), 32);
    checker.secret_until = now.mono + WG_COOKIE_SECRET_TIME;
    cookie_make(&checker, &now, &entropy, &from, got);
    CHECK_MEM(got, vector_bytes(v, "cookie"), sizeof got);

    /* The sender of the handshake's initiation is answered by this cookie. */
    struct wg_cookie_jar jar = {0};
    memcpy(init, vector_bytes(handshake, "initiation"), sizeof init);
    wg_cookie_sign(&jar, responder, &now, init, WG_INIT_MAC1);
    CHECK_MEM(jar.sent_mac1, vector_bytes(v, "answers_mac1"), WG_MAC_SIZE);
    uint8_t reply[WG_COOKIE_REPLY_SIZE];
    memcpy(reply, vector_bytes(v, "reply_message"), sizeof reply);
    reply[63] ^= 1;
    CHECK_EQ(wg_cookie_consume(&jar, responder, &now, reply), WG_DROP_COOKIE_DECRYPT);
    CHECK(jar.waiting && jar.until == 0);
    reply[63] ^= 1;
    CHECK_EQ(wg_cookie_consume(&jar, responder, &now, reply), WG_DROP_NONE);
    CHECK_MEM(jar.cookie, vector_bytes(v, "cookie"), WG_COOKIE_SIZE);
    CHECK_EQ(wg_cookie_consume(&jar, responder, &now, reply), WG_DROP_COOKIE_UNASKED);

    /* Our own reply, made with the vector's nonce, is the same message. */
    uint8_t sealed[32];
    xchacha_seal(sealed, got, sizeof got, init + WG_INIT_MAC1, WG_MAC_SIZE, vector_bytes(v, "reply_nonce"),
                 checker.cookie_key);
    CHECK_MEM(sealed, vector_bytes(v, "reply_message") + WG_COOKIE_SEALED, 32);

    /* The retry carries mac2. */
    struct wg_identity us;
    struct wg_handshake hs;
    uint8_t ss[32];
    memcpy(us.private_key, vector_bytes(handshake, "initiator.static_private"), 32);
    memcpy(us.public_key, vector_bytes(handshake, "initiator.static_public"), 32);
    CHECK(x25519(ss, us.private_key, responder));
    CHECK_EQ(wg_noise_initiate(&hs, init, &us, responder, ss, vector_bytes(v, "retry.ephemeral_private"),
                               vector_bytes(v, "retry.tai64n"), (uint32_t)vector_number(v, "retry.sender_index")),
             WG_NOISE_OK);
    wg_cookie_sign(&jar, responder, &now, init, WG_INIT_MAC1);
    CHECK_MEM(init, vector_bytes(v, "retry.initiation"), WG_INIT_SIZE);
    CHECK_MEM(init + WG_INIT_MAC2, vector_bytes(v, "retry.mac2"), WG_MAC_SIZE);
    CHECK_EQ(wg_cookie_check(&checker, &now, &entropy, &from, init, WG_INIT_MAC1, true), WG_MAC_BOTH);
    CHECK_EQ(wg_cookie_check(&checker, &now, &entropy, &from, init, WG_INIT_MAC1, false), WG_MAC_FIRST);
    struct wg_endpoint other = from;
    other.port++;
    CHECK_EQ(wg_cookie_check(&checker, &now, &entropy, &other, init, WG_INIT_MAC1, true), WG_MAC_FIRST);
    other = from;
    other.address[3] ^= 1;
    CHECK_EQ(wg_cookie_check(&checker, &now, &entropy, &other, init, WG_INIT_MAC1, true), WG_MAC_FIRST);

    /* A cookie is used for 115 s, its secret lives for 120 s. */
    struct wg_now later = now;
    later.boot = now.boot + 115 * WG_SECOND - 1;
    wg_cookie_sign(&jar, responder, &later, init, WG_INIT_MAC1);
    CHECK(!secret_is_zero(init + WG_INIT_MAC2, WG_MAC_SIZE));
    later.boot++;
    wg_cookie_sign(&jar, responder, &later, init, WG_INIT_MAC1);
    CHECK(secret_is_zero(init + WG_INIT_MAC2, WG_MAC_SIZE));
    later.mono = checker.secret_until - 1;
    cookie_make(&checker, &later, &entropy, &from, got);
    CHECK_MEM(got, vector_bytes(v, "cookie"), sizeof got);
    later.mono++;
    cookie_make(&checker, &later, &entropy, &from, got);
    CHECK(memcmp(got, vector_bytes(v, "cookie"), sizeof got) != 0);
}

/* Replies made and consumed by ourselves, for a response too. */
static void test_round_trip(void)
{
    uint8_t pub[32] = {9}, msg[WG_RESP_SIZE] = {2, 0, 0, 0, 0x44, 0x33, 0x22, 0x11}, reply[WG_COOKIE_REPLY_SIZE];
    struct wg_cookie_checker checker;
    struct wg_cookie_jar jar = {0};
    struct wg_now now = {.mono = 1, .boot = 1};
    struct wg_endpoint from = endpoint_of("2001:db8::1", 9);
    wg_cookie_checker_init(&checker, pub);
    wg_cookie_sign(&jar, pub, &now, msg, WG_RESP_MAC1);
    CHECK_EQ(wg_cookie_check(&checker, &now, &entropy, &from, msg, WG_RESP_MAC1, true), WG_MAC_FIRST);
    wg_cookie_reply(&checker, &now, &entropy, &from, msg, WG_RESP_MAC1, reply);
    CHECK_EQ(load_le32(reply), 3);
    CHECK_EQ(load_le32(reply + 4), 0x11223344);
    CHECK_EQ(wg_cookie_consume(&jar, pub, &now, reply), WG_DROP_NONE);
    wg_cookie_sign(&jar, pub, &now, msg, WG_RESP_MAC1);
    CHECK_EQ(wg_cookie_check(&checker, &now, &entropy, &from, msg, WG_RESP_MAC1, true), WG_MAC_BOTH);
}

int main(void)
{
    uint8_t seed[32] = {1};
    random_seed(&entropy, seed);
    const struct vector *v = vector_at(&vectors_wireguard, "cookie"), *cases = vector_at(v, "cases");
    test_mac1();
    CHECK(cases->count >= 2);
    for (size_t i = 0; i < cases->count; i++)
        test_case(&cases->children[i], vector_at(&vectors_wireguard, "handshakes.0"), v);
    test_round_trip();
    return check_done();
}
