/* Handshake messages that are malformed, forged, replayed, late or not asked for: each is counted under its name and
 * changes nothing. The state of device and peer is compared byte by byte (drop counters and the generator apart). */
#include "sim.h"

static struct sim s;
#define A (&s.host[0])
#define B (&s.host[1])

struct snapshot {
    struct wg_device dev;
    struct wg_peer peer;
    struct wg_keypair keypairs[3];
    struct wg_handshake handshake;
};

static struct snapshot snapshot(const struct sim_host *h)
{
    static struct snapshot t;
    memset(&t, 0, sizeof t);
    const struct wg_keypair *kp[3] = {h->peer->current, h->peer->previous, h->peer->next};
    memcpy(&t.dev, h->dev, sizeof t.dev);
    memset(t.dev.drops, 0, sizeof t.dev.drops);
    memset(&t.dev.random, 0, sizeof t.dev.random);
    memcpy(&t.peer, h->peer, sizeof t.peer);
    for (unsigned i = 0; i < 3; i++)
        if (kp[i])
            memcpy(&t.keypairs[i], kp[i], sizeof t.keypairs[i]);
    if (h->peer->handshake)
        memcpy(&t.handshake, h->peer->handshake, sizeof t.handshake);
    return t;
}

static struct wg_output out;

/* Gives the message to the host; true: dropped under this name, answered by nothing, state as it was. */
static bool refused(struct sim_host *h, const uint8_t *msg, size_t n, enum wg_drop drop)
{
    static struct snapshot before, after;
    struct wg_endpoint from = sim_address(200, 200);
    struct wg_now now = sim_now(&s, h);
    uint64_t counted = h->dev->drops[drop];
    before = snapshot(h);
    wg_receive_handshake(h->dev, &now, &from, msg, n, &out);
    after = snapshot(h);
    bool same = memcmp(&before, &after, sizeof before) == 0;
    bool ok = out.drop == drop && out.action == WG_ACTION_NONE && h->dev->drops[drop] == counted + 1 && same;
    if (!ok)
        fprintf(stderr, "    %s, wanted %s; %s; state %s\n", wg_drop_name(out.drop), wg_drop_name(drop),
                wg_action_name(out.action), same ? "same" : "changed");
    return ok;
}

static void sign(struct sim_host *to, uint8_t *msg, size_t mac1_at)
{
    struct wg_cookie_jar jar = {0};
    struct wg_now now = {0};
    uint8_t key[32];
    wg_device_public_key(to->dev, key);
    wg_cookie_sign(&jar, key, &now, msg, mac1_at);
}

/* An initiation of A's for B and its answer, caught on the wire; A still waits. */
static struct sim_message init, resp;

static bool catch_response(struct sim *sim, const struct sim_message *m)
{
    (void)sim;
    return load_le32(m->bytes) == WG_TYPE_RESPONSE;
}

static bool catch_all(struct sim *sim, const struct sim_message *m)
{
    (void)sim, (void)m;
    return true;
}

static void begin(bool answered)
{
    sim_begin(&s);
    s.lose = answered ? catch_response : catch_all;
    sim_send(&s, A, 1);
    sim_run_ns(&s, 100 * WG_MS);
    CHECK(wg_peer_static_dh(B->peer)); /* computed once when first needed: not a state that a forgery changes */
    init = *sim_find(&s, 0, WG_TYPE_INITIATION, 0);
    if (answered)
        resp = *sim_find(&s, 1, WG_TYPE_RESPONSE, 0);
}

static void test_shapes(void)
{
    uint8_t msg[200] = {0};
    begin(false);
    for (unsigned n = 0; n < 4; n++)
        CHECK(refused(B, msg, n, WG_DROP_HANDSHAKE_TYPE));
    for (uint32_t type = 0; type < 600; type++) {
        store_le32(msg, type);
        if (type < 1 || type > 3)
            CHECK(refused(B, msg, 148, WG_DROP_HANDSHAKE_TYPE));
    }
    for (unsigned byte = 1; byte < 4; byte++) { /* the whole word is the type */
        memcpy(msg, init.bytes, WG_INIT_SIZE);
        msg[byte] = 1;
        CHECK(refused(B, msg, WG_INIT_SIZE, WG_DROP_HANDSHAKE_TYPE));
    }
    static const size_t sizes[] = {0, WG_INIT_SIZE, WG_RESP_SIZE, WG_COOKIE_REPLY_SIZE};
    for (uint32_t type = 1; type <= 3; type++)
        for (size_t n = 4; n < sizeof msg; n++) {
            store_le32(msg, type);
            if (n != sizes[type])
                CHECK(refused(B, msg, n, WG_DROP_HANDSHAKE_SIZE));
        }
    wg_device_down(B->dev);
    sim_poll(&s, B);
    CHECK(refused(B, init.bytes, init.n, WG_DROP_HANDSHAKE_DOWN));
    struct wg_now now = sim_now(&s, B);
    wg_device_set_private_key(B->dev, NULL);
    wg_device_up(B->dev, &now);
    sim_poll(&s, B);
    CHECK(refused(B, init.bytes, init.n, WG_DROP_HANDSHAKE_NO_KEY));
    sim_end(&s);
}

static void test_forged_initiation(void)
{
    uint8_t msg[WG_INIT_SIZE];
    begin(false);
    for (unsigned bit = 32; bit < 8 * WG_INIT_MAC2; bit++) { /* without knowing our public key */
        memcpy(msg, init.bytes, sizeof msg);
        msg[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(refused(B, msg, sizeof msg, WG_DROP_HANDSHAKE_MAC1));
        CHECK(!out.public_key_work);
    }
    for (unsigned bit = 8 * WG_INIT_EPHEMERAL; bit < 8 * WG_INIT_MAC1; bit += 5) { /* knowing it */
        memcpy(msg, init.bytes, sizeof msg);
        msg[bit / 8] ^= (uint8_t)(1 << bit % 8);
        sign(B, msg, WG_INIT_MAC1);
        CHECK(refused(B, msg, sizeof msg, WG_DROP_HANDSHAKE_DECRYPT));
        CHECK(out.public_key_work);
    }
    memcpy(msg, init.bytes, sizeof msg);
    memset(msg + WG_INIT_EPHEMERAL, 0, 32);
    sign(B, msg, WG_INIT_MAC1);
    CHECK(refused(B, msg, sizeof msg, WG_DROP_HANDSHAKE_DH));

    /* Of somebody whom B does not know: C, who knows B. */
    struct sim other;
    sim_begin(&other);
    uint8_t key[32];
    sim_key(9, key);
    wg_device_set_private_key(other.host[0].dev, key);
    other.lose = catch_all;
    sim_send(&other, &other.host[0], 1);
    sim_run_ns(&other, WG_MS);
    const struct sim_message *stranger = sim_find(&other, 0, WG_TYPE_INITIATION, 0);
    CHECK(refused(B, stranger->bytes, stranger->n, WG_DROP_HANDSHAKE_UNKNOWN_PEER));
    sim_end(&other);

    /* The true one is taken after all that; not twice, and not within 20 ms of another. */
    struct wg_now now = sim_now(&s, B);
    wg_receive_handshake(B->dev, &now, &init.source, init.bytes, init.n, &out);
    CHECK(out.action == WG_ACTION_SEND && out.length == WG_RESP_SIZE && out.peer == B->peer && out.tos == 0x88);
    CHECK(refused(B, init.bytes, init.n, WG_DROP_HANDSHAKE_STAMP));
    sim_run(&s, 6);
    struct sim_message second = *sim_find(&s, 0, WG_TYPE_INITIATION, 1);
    sim_run(&s, 6);
    struct sim_message third = *sim_find(&s, 0, WG_TYPE_INITIATION, 2);
    now = sim_now(&s, B);
    wg_receive_handshake(B->dev, &now, &second.source, second.bytes, second.n, &out);
    CHECK_EQ(out.action, WG_ACTION_SEND);
    s.time += 20 * WG_MS - 1;
    CHECK(refused(B, third.bytes, third.n, WG_DROP_HANDSHAKE_FLOOD));
    s.time++;
    now = sim_now(&s, B);
    wg_receive_handshake(B->dev, &now, &third.source, third.bytes, third.n, &out);
    CHECK_EQ(out.action, WG_ACTION_SEND);
    CHECK(refused(B, second.bytes, second.n, WG_DROP_HANDSHAKE_STAMP)); /* reordered: older than the last */
    sim_end(&s);
}

static void test_forged_response(void)
{
    uint8_t msg[WG_RESP_SIZE];
    begin(true);
    for (unsigned bit = 32; bit < 8 * WG_RESP_MAC2; bit++) {
        memcpy(msg, resp.bytes, sizeof msg);
        msg[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(refused(A, msg, sizeof msg, WG_DROP_HANDSHAKE_MAC1));
    }
    for (unsigned bit = 8 * WG_RESP_EPHEMERAL; bit < 8 * WG_RESP_MAC1; bit += 3) {
        memcpy(msg, resp.bytes, sizeof msg);
        msg[bit / 8] ^= (uint8_t)(1 << bit % 8);
        sign(A, msg, WG_RESP_MAC1);
        CHECK(refused(A, msg, sizeof msg, WG_DROP_HANDSHAKE_DECRYPT));
    }
    for (unsigned bit = 0; bit < 32; bit++) {
        memcpy(msg, resp.bytes, sizeof msg);
        msg[WG_RESP_RECEIVER + bit / 8] ^= (uint8_t)(1 << bit % 8);
        sign(A, msg, WG_RESP_MAC1);
        CHECK(refused(A, msg, sizeof msg, WG_DROP_HANDSHAKE_INDEX));
    }
    memcpy(msg, resp.bytes, sizeof msg);
    memset(msg + WG_RESP_EPHEMERAL, 0, 32);
    sign(A, msg, WG_RESP_MAC1);
    CHECK(refused(A, msg, sizeof msg, WG_DROP_HANDSHAKE_DH));

    struct wg_now now = sim_now(&s, A);
    wg_receive_handshake(A->dev, &now, &resp.source, resp.bytes, resp.n, &out);
    CHECK(out.action == WG_ACTION_KEEPALIVE && out.peer == A->peer && out.drop == WG_DROP_NONE);
    CHECK(refused(A, resp.bytes, resp.n, WG_DROP_HANDSHAKE_STATE)); /* again: its index is a keypair's now */
    sim_end(&s);

    /* Late: the initiator has sent another initiation since. */
    begin(true);
    sim_run(&s, 6);
    CHECK(refused(A, resp.bytes, resp.n, WG_DROP_HANDSHAKE_INDEX));
    sim_end(&s);
}

static void test_cookies(void)
{
    uint8_t msg[WG_COOKIE_REPLY_SIZE] = {WG_TYPE_COOKIE};
    begin(false);
    struct wg_now now = sim_now(&s, B);
    CHECK(refused(A, msg, sizeof msg, WG_DROP_COOKIE_INDEX));
    memcpy(msg + WG_COOKIE_RECEIVER, init.bytes + 4, 4);
    CHECK(refused(A, msg, sizeof msg, WG_DROP_COOKIE_DECRYPT));
    wg_device_load(B->dev, &now, WG_QUEUE_LOADED - 1);
    CHECK(!(now.mono < B->dev->loaded_until));
    wg_device_load(B->dev, &now, WG_QUEUE_LOADED);
    wg_receive_handshake(B->dev, &now, &init.source, init.bytes, init.n, &out);
    CHECK(out.drop == WG_DROP_HANDSHAKE_COOKIE_SENT && out.length == WG_COOKIE_REPLY_SIZE && out.tos == 0);
    CHECK(!out.public_key_work && out.peer == NULL);
    CHECK_MEM(&out.to, &init.source, sizeof out.to);
    memcpy(msg, out.message, sizeof msg);
    for (unsigned byte = WG_COOKIE_NONCE; byte < sizeof msg; byte++) {
        msg[byte] ^= 1;
        CHECK(refused(A, msg, sizeof msg, WG_DROP_COOKIE_DECRYPT));
        msg[byte] ^= 1;
    }
    wg_receive_handshake(A->dev, &now, &init.source, msg, sizeof msg, &out);
    CHECK(out.drop == WG_DROP_NONE && out.action == WG_ACTION_NONE);
    CHECK(refused(A, msg, sizeof msg, WG_DROP_COOKIE_UNASKED)); /* one message, one cookie */
    now.mono += WG_LOADED_TIME; /* over */
    wg_receive_handshake(B->dev, &now, &init.source, init.bytes, init.n, &out);
    CHECK_EQ(out.length, WG_RESP_SIZE);
    sim_end(&s);
}

int main(void)
{
    test_shapes();
    test_forged_initiation();
    test_forged_response();
    test_cookies();
    return check_done();
}
