/* Life of two peers on a virtual clock: every timer, limit and loss that the protocol names. */
#include "sim.h"

static struct sim s;
#define A (&s.host[0])
#define B (&s.host[1])
enum { INITIATION = 1, RESPONSE = 2, COOKIE = 3, DATA = 4, KEEPALIVE = 0 };

static bool lose_all(struct sim *sim, const struct sim_message *m)
{
    (void)sim, (void)m;
    return true;
}

static bool lose_from_b(struct sim *sim, const struct sim_message *m)
{
    (void)sim;
    return m->from == 1;
}

static bool lose_handshakes(struct sim *sim, const struct sim_message *m)
{
    (void)sim;
    return load_le32(m->bytes) != WG_TYPE_DATA;
}

static bool lose_responses(struct sim *sim, const struct sim_message *m)
{
    (void)sim;
    return load_le32(m->bytes) == WG_TYPE_RESPONSE;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

#define CHECK_BETWEEN(x, low, high) \
    do { \
        double check_x = (x); \
        if (!check_report(check_x >= (low) && check_x <= (high), __FILE__, __LINE__, #x " in [" #low ", " #high "]")) \
            fprintf(stderr, "    got %f\n", check_x); \
    } while (0)

static void test_handshake(void)
{
    sim_begin(&s);
    sim_send(&s, A, 3);
    CHECK_EQ(A->staged, 3);
    sim_run(&s, 1);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 1);
    CHECK_EQ(sim_count(&s, 1, RESPONSE, 0), 1);
    CHECK_EQ(sim_count(&s, 0, DATA, 0), 3);
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, 0), 0); /* the staged packets confirm the key */
    CHECK_EQ(B->received, 3);
    CHECK_EQ(sim_find(&s, 0, INITIATION, 0)->tos, 0x88);
    CHECK_EQ(sim_find(&s, 1, RESPONSE, 0)->tos, 0x88);
    CHECK_EQ(load_le64(sim_find(&s, 0, DATA, 0)->bytes + WG_DATA_COUNTER), 0);
    CHECK(A->peer->current && A->peer->current->initiator && !A->peer->previous && !A->peer->next);
    CHECK(B->peer->current && !B->peer->current->initiator && !B->peer->previous && !B->peer->next);
    CHECK(A->peer->handshake == NULL);
    CHECK_EQ(A->peer->handshake_sec, SIM_WALL + (int64_t)(s.time / WG_SECOND) - 1);
    CHECK_EQ(B->peer->handshake_sec, A->peer->handshake_sec);
    sim_send(&s, B, 2);
    sim_run(&s, 1);
    CHECK_EQ(A->received, 2);
    CHECK_EQ(A->peer->tx_bytes, 148 + 3 * (32 + 48));
    CHECK_EQ(A->peer->rx_bytes, 92 + 2 * (32 + 48));
    CHECK_EQ(B->peer->rx_bytes, A->peer->tx_bytes);
    CHECK_EQ(B->peer->tx_bytes, A->peer->rx_bytes);
    /* Nothing staged: an empty packet lets the responder begin. */
    sim_end(&s);
    sim_begin(&s);
    struct wg_now now = sim_now(&s, A);
    wg_peer_want_handshake(A->peer, &now);
    sim_run(&s, 1);
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, 0), 1);
    CHECK(B->peer->current && !B->peer->next);
    sim_end(&s);
}

/* The responder may not send before the initiator has. */
static void test_responder_waits(void)
{
    sim_begin(&s);
    s.lose = lose_responses;
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    CHECK(B->peer->next && !B->peer->current);
    sim_send(&s, B, 1);
    CHECK_EQ(B->staged, 1);
    sim_run(&s, 2);
    CHECK_EQ(sim_count(&s, 1, INITIATION, 0), 0); /* not within 5 s of its response */
    s.lose = NULL;
    sim_run(&s, 8);
    CHECK_EQ(A->received, 1);
    CHECK_EQ(B->received, 1);
    sim_end(&s);
}

static void test_keepalive(void)
{
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 60);
    const struct sim_message *k = sim_find(&s, 1, KEEPALIVE, 0);
    CHECK(k != NULL);
    CHECK_BETWEEN(seconds(k->at - sim_find(&s, 0, DATA, 0)->at), 10.0, 10.02);
    CHECK_EQ(sim_count(&s, 1, KEEPALIVE, 0), 1); /* and none for a keepalive */
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, 0), 0);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 1); /* answered: no new handshake */
    /* Data while the timer runs is answered with what it answers; an answer of another kind stops it. */
    unsigned since = s.log_count;
    sim_send(&s, A, 1);
    sim_run(&s, 5);
    sim_send(&s, A, 1);
    sim_run(&s, 20);
    CHECK_EQ(sim_count(&s, 1, KEEPALIVE, since), 1);
    sim_end(&s);
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 20);
    since = s.log_count;
    sim_send(&s, A, 1);
    sim_run(&s, 5);
    sim_send(&s, B, 1);
    sim_run(&s, 7); /* B's own timer was stopped by what it sent; A's runs until 15 s */
    CHECK_EQ(sim_count(&s, 1, KEEPALIVE, since), 0);
    sim_run(&s, 20);
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, since), 1);
    sim_end(&s);
}

static void test_unanswered(void)
{
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 30);
    s.lose = lose_from_b;
    uint64_t begin = s.time;
    unsigned since = s.log_count;
    sim_send(&s, A, 1);
    sim_run(&s, 40);
    CHECK(sim_count(&s, 0, INITIATION, since) >= 4);
    CHECK_BETWEEN(seconds(sim_find(&s, 0, INITIATION, 1)->at - begin), 15.0, 15.334);
    CHECK_BETWEEN(seconds(sim_find(&s, 0, INITIATION, 2)->at - sim_find(&s, 0, INITIATION, 1)->at), 5.0, 5.334);
    CHECK_BETWEEN(seconds(sim_find(&s, 0, INITIATION, 3)->at - sim_find(&s, 0, INITIATION, 2)->at), 5.0, 5.334);
    sim_end(&s);
}

static void test_gives_up(void)
{
    sim_begin(&s);
    s.lose = lose_all;
    uint64_t begin = s.time;
    sim_send(&s, A, 200);
    CHECK_EQ(A->staged, 128);
    CHECK_EQ(A->staged_dropped, 72);
    sim_run(&s, 400);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 20);
    CHECK_BETWEEN(seconds(sim_find(&s, 0, INITIATION, 19)->at - begin), 95.0, 19 * 5.334);
    CHECK_EQ(A->gave_up, 1);
    CHECK_EQ(A->staged, 0);
    for (unsigned i = 1; i < 20; i++) { /* each one new */
        const uint8_t *x = sim_find(&s, 0, INITIATION, i - 1)->bytes, *y = sim_find(&s, 0, INITIATION, i)->bytes;
        CHECK(memcmp(x + WG_INIT_EPHEMERAL, y + WG_INIT_EPHEMERAL, 32) != 0);
        CHECK(load_le32(x + 4) != load_le32(y + 4));
    }
    CHECK(A->peer->handshake != NULL);
    CHECK_EQ(A->dev->indices->used, 1);
    sim_run(&s, 300); /* wiped 540 s after giving up */
    CHECK(A->peer->handshake == NULL);
    CHECK_EQ(A->dev->indices->used, 0);
    CHECK_EQ(wg_device_next(A->dev), WG_NEVER);
    s.lose = NULL; /* and it begins anew when there is something to send */
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    CHECK_EQ(B->received, 1);
    sim_end(&s);
}

static void test_rekey_by_time(void)
{
    sim_begin(&s);
    for (unsigned i = 0; i < 1000; i++) {
        sim_send(&s, A, 1);
        sim_send(&s, B, 1);
        sim_run(&s, 1);
    }
    CHECK_EQ(A->received, 1000);
    CHECK_EQ(B->received, 1000);
    CHECK_EQ(A->doubles + B->doubles, 0);
    unsigned first = sim_count(&s, 0, INITIATION, 0), second = sim_count(&s, 1, INITIATION, 0);
    /* Both have begun at once; whoever is initiator of the current one renews it after 120 s. */
    CHECK_BETWEEN((double)first + second, 9, 18);
    CHECK(sim_count(&s, 0, RESPONSE, 0) + sim_count(&s, 1, RESPONSE, 0) == first + second);
    sim_end(&s);

    /* One initiator: exactly every 120 s, and the responder never. */
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    for (unsigned i = 1; i < 1000; i++) {
        sim_send(&s, B, 1);
        sim_send(&s, A, 1);
        sim_run(&s, 1);
    }
    CHECK_EQ(A->received, 999);
    CHECK_EQ(B->received, 1000);
    CHECK_EQ(sim_count(&s, 1, INITIATION, 0), 0);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 9);
    for (unsigned i = 1; i < 9; i++)
        CHECK_BETWEEN(seconds(sim_find(&s, 0, INITIATION, i)->at - sim_find(&s, 0, INITIATION, i - 1)->at), 120.0,
                      121.1);
    CHECK(A->peer->previous && B->peer->previous);
    sim_end(&s);
}

/* An initiator that only receives renews at 165 s. */
static void test_rekey_receiving(void)
{
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    wg_peer_set_persistent_keepalive(B->peer, 5);
    sim_run(&s, 160);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 1);
    CHECK(B->peer->current->birth + 150 * WG_SECOND < sim_now(&s, B).boot);
    sim_run(&s, 15);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 2);
    CHECK_BETWEEN(seconds(sim_find(&s, 0, INITIATION, 1)->at - sim_find(&s, 0, INITIATION, 0)->at), 165.0, 170.1);
    CHECK_EQ(A->peer->current->asked_rekey, 0);
    sim_end(&s);
    /* Once a keypair, even if the new handshake is lost. */
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    wg_peer_set_persistent_keepalive(B->peer, 1);
    s.lose = lose_handshakes;
    sim_run(&s, 174);
    CHECK(A->peer->current->asked_rekey);
    CHECK_EQ(A->peer->handshake_attempts, 1); /* not set back by what came in since */
    sim_end(&s);
}

static void test_reject_by_time(void)
{
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    s.lose = lose_handshakes;
    sim_run(&s, 178);
    sim_send(&s, B, 1); /* 179 s: the responder has not renewed, and still may send */
    sim_run_ns(&s, 100 * WG_MS);
    CHECK_EQ(A->received, 1);
    CHECK_EQ(sim_count(&s, 1, INITIATION, 0), 0);
    sim_run(&s, 2);
    sim_send(&s, B, 1); /* 181 s */
    sim_run_ns(&s, 100 * WG_MS);
    CHECK_EQ(A->received, 1);
    CHECK_EQ(B->staged, 1);
    CHECK_EQ(sim_count(&s, 1, INITIATION, 0), 1);
    /* What was sealed just in time and comes late is refused. */
    struct wg_keypair *kp = A->peer->current;
    struct wg_now now = sim_now(&s, A);
    now.boot = kp->birth + WG_REJECT_AFTER_TIME - 1;
    CHECK(wg_keypair_usable(kp, &now));
    now.boot++;
    CHECK(!wg_keypair_usable(kp, &now));
    s.lose = NULL;
    sim_run(&s, 8);
    CHECK_EQ(A->received, 2);
    sim_end(&s);
}

static void test_by_count(void)
{
    sim_begin(&s);
    sim_send(&s, B, 1);
    sim_run(&s, 10);
    struct wg_keypair *kp = A->peer->current; /* A is responder: the count binds it too */
    CHECK(!kp->initiator);
    kp->send_counter = WG_REKEY_AFTER_MESSAGES - 1;
    sim_send(&s, A, 1); /* counter 2^60 - 1 goes out, 2^60 is next: not yet greater */
    CHECK(!(A->peer->pending & WG_PENDING_INITIATION));
    sim_send(&s, A, 1);
    CHECK(A->peer->pending & WG_PENDING_INITIATION);
    sim_run(&s, 1);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 1);
    CHECK(A->peer->current != kp && A->peer->current->initiator);
    CHECK_EQ(B->received, 2);

    /* The reject limit: nothing goes out under that key any more. */
    sim_run(&s, 10);
    kp = A->peer->current;
    s.lose = lose_handshakes;
    kp->send_counter = WG_REJECT_AFTER_MESSAGES - 2;
    sim_send(&s, A, 4);
    sim_run(&s, 1);
    CHECK_EQ(B->received, 4);
    CHECK_EQ(A->staged, 2);
    CHECK_EQ(kp->send_counter, WG_REJECT_AFTER_MESSAGES);
    s.lose = NULL;
    sim_run(&s, 8);
    CHECK_EQ(B->received, 6);
    sim_end(&s);
}

static void test_zeroing(void)
{
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 539);
    CHECK(A->peer->current && B->peer->current);
    sim_run(&s, 2);
    CHECK(!A->peer->current && !A->peer->previous && !A->peer->next);
    CHECK(!B->peer->current && !B->peer->previous && !B->peer->next);
    CHECK_EQ(A->dev->indices->used + B->dev->indices->used, 0);
    CHECK_EQ(wg_device_next(A->dev), WG_NEVER);
    CHECK_EQ(wg_device_next(B->dev), WG_NEVER);
    CHECK(!wg_device_retire(A->dev)); /* freed, too */
    sim_end(&s);
}

static void test_simultaneous(void)
{
    for (unsigned lag = 0; lag <= 12; lag += 3) { /* ms; the wire takes 10 */
        sim_begin(&s);
        sim_send(&s, A, 2);
        sim_run_ns(&s, lag * WG_MS);
        sim_send(&s, B, 2);
        sim_run(&s, 1);
        CHECK_EQ(A->received, 2);
        CHECK_EQ(B->received, 2);
        for (unsigned i = 0; i < 300; i++) {
            sim_send(&s, A, 1);
            sim_send(&s, B, 1);
            sim_run(&s, 1);
        }
        CHECK_EQ(A->received, 302);
        CHECK_EQ(B->received, 302);
        sim_end(&s);
    }
}

static void test_loss(void)
{
    for (unsigned percent = 10; percent <= 70; percent += 20) {
        sim_begin(&s);
        s.loss_percent = percent;
        for (unsigned i = 0; i < 1500; i++) {
            if (i % 7)
                sim_send(&s, A, 1);
            if (i % 3)
                sim_send(&s, B, 1);
            sim_run_ns(&s, 700 * WG_MS);
        }
        /* Of what was sealed, about what the wire let through has arrived, and nothing twice. */
        CHECK_BETWEEN((double)B->received / (double)A->sent, (100 - percent) / 100.0 - 0.1,
                      (100 - percent) / 100.0 + 0.1);
        CHECK_BETWEEN((double)A->received / (double)B->sent, (100 - percent) / 100.0 - 0.1,
                      (100 - percent) / 100.0 + 0.1);
        CHECK_EQ(A->doubles + B->doubles, 0);
        CHECK(A->peer->dev->indices->used <= 4 && B->peer->dev->indices->used <= 4);
        s.loss_percent = 0;
        sim_run(&s, 20);
        uint64_t a = A->received, b = B->received;
        sim_send(&s, A, 5);
        sim_send(&s, B, 5);
        sim_run(&s, 10);
        CHECK(A->received >= a + 5 && B->received >= b + 5);
        sim_end(&s);
    }
}

static void test_roaming(void)
{
    struct wg_endpoint e;
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    CHECK(wg_peer_endpoint(B->peer, &e));
    CHECK_EQ(e.local_family, WG_FAMILY_V4);
    CHECK_MEM(e.local, B->address.address, 4); /* answers leave from the address that was addressed */
    CHECK_EQ(e.local_ifindex, 3);
    A->address = sim_address(99, 4000);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    CHECK(wg_peer_endpoint(B->peer, &e));
    CHECK_MEM(e.address, A->address.address, 4);
    CHECK_EQ(e.port, 4000);
    sim_send(&s, B, 1);
    sim_run(&s, 1);
    CHECK_EQ(A->received, 1);
    /* Old packets replayed from elsewhere move nothing, nor do forged ones. */
    struct wg_endpoint elsewhere = sim_address(66, 6);
    struct sim_message m = *sim_find(&s, 0, DATA, 0);
    sim_receive(&s, B, &elsewhere, m.bytes, m.n);
    m.bytes[WG_DATA_COUNTER] = 200;
    sim_receive(&s, B, &elsewhere, m.bytes, m.n);
    struct wg_endpoint after;
    wg_peer_endpoint(B->peer, &after);
    CHECK_MEM(&after, &e, sizeof e);
    /* A refused source address is forgotten, the peer's is not. */
    wg_peer_forget_source(B->peer);
    wg_peer_endpoint(B->peer, &after);
    CHECK_EQ(after.local_family, WG_FAMILY_NONE);
    CHECK_EQ(after.port, 4000);
    sim_end(&s);
}

static void test_wall_clock(void)
{
    static const int64_t jumps[] = {0, 31536000, 0, -31536000, -SIM_WALL - 6000, 1000000, 0};
    sim_begin(&s);
    for (unsigned i = 0; i < ARRAY_COUNT(jumps); i++) {
        A->wall_offset = jumps[i];
        B->wall_offset = -jumps[i];
        for (unsigned j = 0; j < 130; j++) {
            sim_send(&s, A, 1);
            sim_run(&s, 1);
        }
        for (unsigned j = 0; j < 130; j++) {
            sim_send(&s, B, 1);
            sim_run(&s, 1);
        }
    }
    CHECK_EQ(A->received, 130 * ARRAY_COUNT(jumps));
    CHECK_EQ(B->received, 130 * ARRAY_COUNT(jumps));
    CHECK_EQ(A->dev->drops[WG_DROP_HANDSHAKE_STAMP] + B->dev->drops[WG_DROP_HANDSHAKE_STAMP], 0);
    CHECK(A->persists < 10);
    sim_end(&s);
}

static void test_reboot_in_1970(void)
{
    for (unsigned kept = 0; kept < 2; kept++) {
        sim_begin(&s);
        sim_send(&s, A, 1);
        sim_run(&s, 1);
        CHECK_EQ(A->persists, 1);
        const struct sim_message *first = sim_find(&s, 0, INITIATION, 0);
        CHECK(first != NULL); /* the bound was written before the message went: persists was counted by then */
        uint8_t floor[WG_STAMP_SIZE];
        memcpy(floor, A->persisted, sizeof floor);
        wg_device_free(A->dev);
        sim_host_begin(&s, 0);
        A->wall_offset = -SIM_WALL;
        if (kept)
            wg_device_stamp_floor(A->dev, floor);
        sim_introduce(&s, 0);
        sim_send(&s, A, 1);
        sim_run(&s, 3);
        CHECK_EQ(B->received, 1 + kept);
        CHECK_EQ(B->dev->drops[WG_DROP_HANDSHAKE_STAMP], !kept);
        sim_end(&s);
    }
}

static void test_under_load(void)
{
    sim_begin(&s);
    B->load = 4096;
    sim_send(&s, A, 1);
    sim_run(&s, 4);
    CHECK_EQ(sim_count(&s, 1, COOKIE, 0), 1);
    CHECK_EQ(sim_find(&s, 1, COOKIE, 0)->tos, 0);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 1); /* not at once */
    CHECK_EQ(B->received, 0);
    sim_run(&s, 3);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 2);
    CHECK_EQ(sim_count(&s, 1, RESPONSE, 0), 1);
    CHECK_EQ(B->received, 1);

    /* 20,000 initiations of strangers, good mac1: cookies, no responses, no memory, and A gets through. */
    const struct sim_message *own = sim_find(&s, 0, INITIATION, 0);
    struct wg_cookie_jar jar = {0};
    uint8_t key[32], msg[WG_INIT_SIZE];
    wg_device_public_key(B->dev, key);
    memcpy(msg, own->bytes, sizeof msg);
    unsigned replies = 0, work = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        struct wg_endpoint from = sim_address(0, 9);
        struct wg_now now = sim_now(&s, B);
        struct wg_output out;
        store_be32(from.address, 0x0a000000 + i % 5000);
        store_le32(msg + 4, i);
        msg[WG_INIT_EPHEMERAL + i % 32]++;
        wg_cookie_sign(&jar, key, &now, msg, WG_INIT_MAC1);
        wg_device_load(B->dev, &now, 4096);
        wg_receive_handshake(B->dev, &now, &from, msg, sizeof msg, &out);
        replies += out.action == WG_ACTION_SEND && out.length == WG_COOKIE_REPLY_SIZE;
        work += out.public_key_work;
        if (i % 2000 == 0)
            sim_run_ns(&s, 100 * WG_MS);
    }
    CHECK_EQ(replies, 20000);
    CHECK_EQ(work, 0);
    CHECK_EQ(B->dev->drops[WG_DROP_HANDSHAKE_COOKIE_SENT], 20001);
    CHECK(B->dev->indices->used <= 3);
    CHECK(B->dev->rate.entries != NULL);

    /* One that can receive at its address is limited to 20 a second. */
    struct wg_output out;
    struct wg_endpoint from = A->address;
    struct wg_now now = sim_now(&s, B);
    unsigned passed = 0;
    for (uint32_t i = 0; i < 50; i++) {
        store_le32(msg + 4, i);
        wg_cookie_sign(&jar, key, &now, msg, WG_INIT_MAC1);
        wg_receive_handshake(B->dev, &now, &from, msg, sizeof msg, &out);
        if (out.action == WG_ACTION_SEND)
            wg_cookie_consume(&jar, key, &now, out.message);
        else
            passed += out.drop == WG_DROP_HANDSHAKE_DECRYPT;
    }
    CHECK_EQ(passed, 5);
    CHECK_EQ(B->dev->drops[WG_DROP_HANDSHAKE_RATE], 44);

    /* A second after, the load is over and the table is given back. */
    B->load = 0;
    sim_run(&s, 2);
    now = sim_now(&s, B);
    wg_device_load(B->dev, &now, 511);
    CHECK(B->dev->rate.entries == NULL);
    wg_receive_handshake(B->dev, &now, &from, own->bytes, own->n, &out);
    CHECK_EQ(out.drop, WG_DROP_HANDSHAKE_STAMP);
    sim_end(&s);
}

static void test_persistent_keepalive(void)
{
    sim_begin(&s);
    wg_peer_set_persistent_keepalive(A->peer, 25); /* at once, with a handshake */
    sim_run(&s, 1);
    CHECK_EQ(sim_count(&s, 0, INITIATION, 0), 1);
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, 0), 1);
    sim_run(&s, 100);
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, 0), 5);
    CHECK_EQ(sim_count(&s, 1, KEEPALIVE, 0), 0);
    CHECK_BETWEEN(seconds(sim_find(&s, 0, KEEPALIVE, 2)->at - sim_find(&s, 0, KEEPALIVE, 1)->at), 25.0, 25.0);
    sim_send(&s, B, 1); /* whatever comes or goes sets it back */
    sim_run(&s, 9);
    unsigned since = s.log_count;
    sim_run(&s, 17); /* only the answer to data, 10 s after it */
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, since), 1);
    wg_peer_set_persistent_keepalive(A->peer, 0);
    since = s.log_count;
    sim_run(&s, 100);
    CHECK_EQ(s.log_count, since);
    /* It brings a dead tunnel back for as long as it takes. */
    wg_peer_set_persistent_keepalive(A->peer, 25);
    s.lose = lose_all;
    sim_run(&s, 3000);
    since = s.log_count;
    s.lose = NULL;
    sim_run(&s, 30);
    CHECK(sim_count(&s, 0, KEEPALIVE, since) >= 1);
    CHECK(B->peer->current && A->peer->current);
    sim_end(&s);
}

static void test_endpoint_unknown(void)
{
    sim_begin(&s);
    struct wg_now now = sim_now(&s, B);
    uint8_t key[32];
    wg_device_public_key(A->dev, key);
    wg_peer_remove(B->peer);
    B->peer = wg_peer_new(B->dev, key);
    sim_send(&s, B, 1);
    CHECK_EQ(B->no_endpoint, 1);
    sim_run(&s, 1);
    CHECK_EQ(s.log_count, 0);
    B->staged = 0;
    sim_send(&s, A, 1); /* it learns it from the initiation */
    sim_run(&s, 1);
    sim_send(&s, B, 1);
    sim_run(&s, 1);
    CHECK_EQ(A->received, 1);
    sim_end(&s);

    /* A name: asked for at once, staged meanwhile, asked again when handshakes fail. */
    sim_begin(&s);
    now = sim_now(&s, A);
    wg_device_public_key(B->dev, key);
    wg_peer_remove(A->peer);
    A->peer = wg_peer_new(A->dev, key);
    CHECK_EQ(wg_peer_set_host(A->peer, "vpn.example:51821", 17), 0);
    sim_run(&s, 0);
    CHECK_EQ(A->resolves, 1);
    sim_send(&s, A, 1);
    CHECK_EQ(A->staged, 1);
    sim_run(&s, 12);
    CHECK_EQ(A->resolves, 2);
    CHECK_EQ(s.log_count, 0);
    now = sim_now(&s, A);
    wg_peer_set_endpoint(A->peer, &B->address, &now);
    sim_run(&s, 1); /* no waiting for the timer */
    CHECK_EQ(B->received, 1);
    /* The server moves: its name leads to the new address. */
    B->address = sim_address(77, 7);
    s.lose = lose_from_b; /* or A would learn it from B's keepalive */
    sim_send(&s, A, 1);
    sim_run(&s, 22);
    CHECK_EQ(A->resolves, 3);
    s.lose = NULL;
    now = sim_now(&s, A);
    wg_peer_set_endpoint(A->peer, &B->address, &now);
    sim_run(&s, 7);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    CHECK_EQ(B->received, 2);
    sim_end(&s);
}

static void test_psk(void)
{
    static const uint8_t one[32] = {1}, two[32] = {2};
    sim_begin(&s);
    wg_peer_set_preshared_key(A->peer, one);
    wg_peer_set_preshared_key(B->peer, two);
    sim_send(&s, A, 1);
    sim_run(&s, 7);
    CHECK_EQ(B->received, 0);
    CHECK_EQ(A->dev->drops[WG_DROP_HANDSHAKE_DECRYPT], 2);
    wg_peer_set_preshared_key(B->peer, one);
    sim_run(&s, 7);
    CHECK_EQ(B->received, 1);
    sim_end(&s);
}

static void test_down_up(void)
{
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    wg_device_down(A->dev);
    sim_run(&s, 1);
    CHECK_EQ(A->gave_up, 1);
    CHECK(!A->peer->current);
    CHECK_EQ(A->dev->indices->used, 0);
    CHECK_EQ(wg_device_next(A->dev), WG_NEVER);
    sim_send(&s, B, 1); /* falls on deaf ears */
    struct wg_keypair *kp;
    struct wg_now now = sim_now(&s, A);
    CHECK_EQ(wg_peer_send_key(A->peer, &now, &kp), WG_SEND_DOWN);
    sim_run(&s, 1);
    CHECK_EQ(A->received, 0);
    now = sim_now(&s, A);
    wg_peer_set_persistent_keepalive(A->peer, 25);
    CHECK_EQ(wg_device_next(A->dev), WG_NEVER);
    wg_device_up(A->dev, &now);
    sim_run(&s, 1);
    CHECK(A->peer->current && B->peer->current); /* by the persistent keepalive */
    sim_send(&s, B, 1);
    sim_run(&s, 1);
    CHECK_EQ(A->received, 1);
    sim_end(&s);
}

static void test_private_key_change(void)
{
    uint8_t key[32], pub[32];
    sim_begin(&s);
    sim_send(&s, A, 1);
    sim_run(&s, 1);
    sim_key(0, key);
    CHECK_EQ(wg_device_set_private_key(A->dev, key), 0); /* the same: nothing happens */
    CHECK(A->peer->current != NULL);
    sim_key(5, key);
    CHECK_EQ(wg_device_set_private_key(A->dev, key), 0);
    CHECK(!A->peer->current && A->dev->indices->used == 0);
    sim_send(&s, A, 1);
    sim_run(&s, 2);
    CHECK_EQ(B->received, 1);
    CHECK_EQ(B->dev->drops[WG_DROP_HANDSHAKE_UNKNOWN_PEER], 1);
    /* B learns A's new key: it works without waiting for anything to expire. */
    wg_device_public_key(A->dev, pub);
    wg_peer_remove(B->peer);
    B->peer = wg_peer_new(B->dev, pub);
    sim_run(&s, 6);
    CHECK_EQ(B->received, 2);
    /* A device that takes its peer's identity loses that peer. */
    sim_key(1, key);
    unsigned before = wg_device_peers(A->dev);
    CHECK_EQ(wg_device_set_private_key(A->dev, key), 0);
    CHECK_EQ(wg_device_peers(A->dev), before - 1);
    CHECK_EQ(wg_device_set_private_key(A->dev, NULL), 0);
    CHECK(!wg_device_public_key(A->dev, pub));
    sim_end(&s);

    /* Peers first, key later: the persistent keepalive begins when it can. */
    sim_begin(&s);
    CHECK_EQ(wg_device_set_private_key(A->dev, NULL), 0);
    wg_peer_set_persistent_keepalive(A->peer, 25);
    sim_run(&s, 60);
    CHECK_EQ(s.log_count, 0);
    sim_key(0, key);
    CHECK_EQ(wg_device_set_private_key(A->dev, key), 0);
    sim_run(&s, 1);
    CHECK_EQ(sim_count(&s, 0, KEEPALIVE, 0), 1);
    sim_end(&s);
}

int main(void)
{
    test_handshake();
    test_responder_waits();
    test_keepalive();
    test_unanswered();
    test_gives_up();
    test_rekey_by_time();
    test_rekey_receiving();
    test_reject_by_time();
    test_by_count();
    test_zeroing();
    test_simultaneous();
    test_loss();
    test_roaming();
    test_wall_clock();
    test_reboot_in_1970();
    test_under_load();
    test_persistent_keepalive();
    test_endpoint_unknown();
    test_psk();
    test_down_up();
    test_private_key_change();
    return check_done();
}
