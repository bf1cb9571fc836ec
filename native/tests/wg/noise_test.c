/* The handshake by the vectors, both roles, byte by byte with every intermediate value; then what must fail. */
#include <stdint.h>
#include <string.h>

static void trace(const char *name, const uint8_t bytes[32]);
#define NOISE_TRACE(name, bytes) trace(name, bytes)
#include "wg/noise.c"

#include "tests/check.h"
#include "vectors_wireguard.h"

/* What a traced value is compared with: the traces of the side whose values these are. */
static const struct vector *expected[2];
static unsigned traced;

static void trace(const char *name, const uint8_t bytes[32])
{
    for (unsigned i = 0; i < 2; i++) {
        const struct vector *want = expected[i] ? vector_find(expected[i], name) : NULL;
        if (want) {
            traced++;
            if (!CHECK(memcmp(bytes, want->bytes, 32) == 0))
                fprintf(stderr, "    %s\n", name);
            return;
        }
    }
}

static void test_constants(void)
{
    struct wg_noise n;
    const struct vector *v = vector_at(&vectors_wireguard, "constants");
    CHECK_STR(WG_CONSTRUCTION, vector_text(v, "construction"));
    CHECK_STR(WG_IDENTIFIER, vector_text(v, "identifier"));
    CHECK_STR(WG_LABEL_MAC1, vector_text(v, "label_mac1"));
    CHECK_STR(WG_LABEL_COOKIE, vector_text(v, "label_cookie"));
    blake2s(n.ck, 32, NULL, 0, WG_CONSTRUCTION, strlen(WG_CONSTRUCTION));
    CHECK_MEM(n.ck, vector_bytes(v, "initial_chaining_key"), 32);
    memcpy(n.h, n.ck, 32);
    noise_mix_hash(&n, WG_IDENTIFIER, strlen(WG_IDENTIFIER));
    CHECK_MEM(n.h, vector_bytes(v, "initial_hash"), 32);
}

static void test_kdf(void)
{
    const struct vector *v = vector_at(&vectors_wireguard, "kdf");
    CHECK(v->count >= 4);
    for (size_t i = 0; i < v->count; i++) {
        const struct vector *c = &v->children[i], *in = vector_at(c, "input"), *out = vector_at(c, "outputs");
        uint8_t t[3][32];
        blake2s_kdf((unsigned)vector_number(c, "n"), t[0], t[1], t[2], vector_bytes(c, "key"), in->bytes, in->length);
        CHECK_EQ(out->count, vector_number(c, "n"));
        for (size_t j = 0; j < out->count; j++)
            CHECK_MEM(t[j], out->children[j].bytes, 32);
    }
}

static void identity_from(struct wg_identity *id, const struct vector *v)
{
    memcpy(id->private_key, vector_bytes(v, "static_private"), 32);
    CHECK(x25519_base(id->public_key, id->private_key));
    CHECK_MEM(id->public_key, vector_bytes(v, "static_public"), 32);
}

static void test_transport(const struct vector *v, const struct wg_session_keys *i, const struct wg_session_keys *r)
{
    for (size_t j = 0; j < v->count; j++) {
        const struct vector *c = &v->children[j];
        bool initiator = strcmp(vector_text(c, "sender"), "initiator") == 0;
        const struct vector *plain = vector_at(c, "plaintext"), *msg = vector_at(c, "message");
        size_t padded = vector_number(c, "padded_len");
        uint8_t in[2048] = {0}, out[2048], nonce[12] = {0};
        uint64_t counter = strtoull(vector_text(c, "counter"), NULL, 10);
        store_le64(nonce + 4, counter);
        CHECK_MEM(nonce, vector_bytes(c, "nonce"), 12);
        memcpy(in, plain->bytes, plain->length);
        store_le32(out, WG_TYPE_DATA);
        store_le32(out + WG_DATA_RECEIVER, (uint32_t)vector_number(c, "receiver_index"));
        store_le64(out + WG_DATA_COUNTER, counter);
        struct chacha_job job = {out + WG_DATA_SEALED, in, (uint32_t)padded, false, counter};
        chacha_seal_batch(initiator ? i->send : r->send, &job, 1);
        CHECK_EQ(msg->length, padded + WG_DATA_OVERHEAD);
        CHECK_MEM(out, msg->bytes, msg->length);
        struct chacha_job back = {in, out + WG_DATA_SEALED, (uint32_t)padded + 16, false, counter};
        CHECK_EQ(chacha_open_batch(initiator ? r->receive : i->receive, &back, 1), 0);
        CHECK_MEM(in, plain->bytes, plain->length);
    }
}

static void test_handshake(const struct vector *v)
{
    struct wg_identity us_i, us_r;
    struct wg_handshake hs;
    struct wg_incoming in;
    struct wg_session_keys ki, kr;
    uint8_t init[WG_INIT_SIZE], resp[WG_RESP_SIZE], ss[32], ss_r[32];
    const struct vector *vi = vector_at(v, "initiator"), *vr = vector_at(v, "responder");
    const uint8_t *psk = vector_bytes(v, "preshared_key");
    identity_from(&us_i, vi);
    identity_from(&us_r, vr);
    CHECK(x25519(ss, us_i.private_key, us_r.public_key));
    CHECK(x25519(ss_r, us_r.private_key, us_i.public_key));
    CHECK_MEM(ss, vector_bytes(v, "dh.ss"), 32);
    CHECK_MEM(ss_r, ss, 32);

    expected[0] = vector_at(vi, "trace");
    CHECK_EQ(wg_noise_initiate(&hs, init, &us_i, us_r.public_key, ss, vector_bytes(vi, "ephemeral_private"),
                               vector_bytes(v, "timestamp.tai64n"), (uint32_t)vector_number(vi, "sender_index")),
             WG_NOISE_OK);
    CHECK_MEM(init, vector_bytes(v, "initiation"), WG_INIT_MAC1);

    memset(init + WG_INIT_MAC1, 0, 32);
    CHECK_EQ(wg_noise_read_static(&in, init, &us_r), WG_NOISE_OK);
    CHECK_MEM(in.static_key, us_i.public_key, 32);
    CHECK_EQ(in.index, vector_number(vi, "sender_index"));
    CHECK_EQ(wg_noise_read_stamp(&in, init, ss_r), WG_NOISE_OK);
    CHECK_MEM(in.stamp, vector_bytes(v, "timestamp.tai64n"), WG_STAMP_SIZE);

    expected[0] = vector_at(vr, "trace");
    CHECK_EQ(wg_noise_respond(&in, resp, psk, vector_bytes(vr, "ephemeral_private"),
                              (uint32_t)vector_number(vr, "sender_index"), &kr),
             WG_NOISE_OK);
    CHECK_MEM(resp, vector_bytes(v, "response"), WG_RESP_MAC1);
    CHECK(secret_is_zero(&in.noise, sizeof in.noise));

    struct wg_handshake before = hs;
    for (unsigned bit = 8 * WG_RESP_EPHEMERAL; bit < 8 * WG_RESP_MAC1; bit += 37) {
        uint8_t bad[WG_RESP_SIZE];
        expected[0] = NULL;
        memcpy(bad, resp, sizeof bad);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (bit != 8 * WG_RESP_EPHEMERAL + 255) /* X25519 ignores that bit, the hash does not */
            CHECK_EQ(wg_noise_finish(&hs, bad, &us_i, psk, &ki), WG_NOISE_NOT_AUTHENTIC);
        CHECK_MEM(&hs, &before, sizeof hs);
    }
    expected[0] = vector_at(vr, "trace");
    CHECK_EQ(wg_noise_finish(&hs, resp, &us_i, psk, &ki), WG_NOISE_OK);
    expected[0] = NULL;
    CHECK_MEM(ki.send, vector_bytes(v, "initiator_sending_key"), 32);
    CHECK_MEM(ki.receive, vector_bytes(v, "initiator_receiving_key"), 32);
    CHECK_MEM(kr.send, ki.receive, 32);
    CHECK_MEM(kr.receive, ki.send, 32);
    test_transport(vector_at(v, "transport"), &ki, &kr);

    for (unsigned bit = 8 * WG_INIT_EPHEMERAL; bit < 8 * WG_INIT_MAC1; bit += 41) {
        uint8_t bad[WG_INIT_SIZE];
        memcpy(bad, init, sizeof bad);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum wg_noise_result result = wg_noise_read_static(&in, bad, &us_r);
        CHECK_EQ(result, bit < 8 * WG_INIT_STAMP ? WG_NOISE_NOT_AUTHENTIC : WG_NOISE_OK);
        if (result == WG_NOISE_OK)
            CHECK_EQ(wg_noise_read_stamp(&in, bad, ss_r), WG_NOISE_NOT_AUTHENTIC);
    }
}

/* Ephemerals of small order: the DH is zero, whatever the private key. */
static void test_small_order(const struct vector *v)
{
    static const uint8_t one[32] = {1}, zero[32];
    struct wg_identity us;
    struct wg_handshake hs = {0};
    struct wg_incoming in;
    struct wg_session_keys keys;
    uint8_t init[WG_INIT_SIZE], resp[WG_RESP_SIZE];
    identity_from(&us, vector_at(v, "responder"));
    memcpy(init, vector_bytes(v, "initiation"), sizeof init);
    memcpy(resp, vector_bytes(v, "response"), sizeof resp);
    memcpy(hs.ephemeral, vector_bytes(v, "initiator.ephemeral_private"), 32);
    for (unsigned i = 0; i < 2; i++) {
        memcpy(init + WG_INIT_EPHEMERAL, i ? one : zero, 32);
        CHECK_EQ(wg_noise_read_static(&in, init, &us), WG_NOISE_BAD_KEY);
        memcpy(resp + WG_RESP_EPHEMERAL, i ? one : zero, 32);
        CHECK_EQ(wg_noise_finish(&hs, resp, &us, zero, &keys), WG_NOISE_BAD_KEY);
        CHECK_EQ(wg_noise_initiate(&hs, init, &us, i ? one : zero, zero, hs.ephemeral, init, 1), WG_NOISE_BAD_KEY);
        memcpy(hs.ephemeral, vector_bytes(v, "initiator.ephemeral_private"), 32);
    }
}

int main(void)
{
    const struct vector *v = vector_at(&vectors_wireguard, "handshakes");
    test_constants();
    test_kdf();
    CHECK(v->count >= 2);
    for (size_t i = 0; i < v->count; i++) {
        traced = 0;
        test_handshake(&v->children[i]);
        CHECK_EQ(traced, 2 * 9 + 2 * 9); /* every value of the traces, from both sides */
        expected[0] = NULL;
        test_small_order(&v->children[i]);
    }
    return check_done();
}
