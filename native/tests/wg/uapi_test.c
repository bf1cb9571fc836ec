/* The configuration protocol: the vectors, every key, every error, dry run, sync, and gets in pieces. */
#include <errno.h>
#include <stdlib.h>

#include "tests/check.h"
#include "vectors_wireguard.h"
#include "wg/device.h"
#include "wire/bytes.h"

#define K1 "1111111111111111111111111111111111111111111111111111111111111111"
#define K2 "2222222222222222222222222222222222222222222222222222222222222222"
#define K3 "3333333333333333333333333333333333333333333333333333333333333333"
#define K4 "4444444444444444444444444444444444444444444444444444444444444444"
#define ZERO "0000000000000000000000000000000000000000000000000000000000000000"
/* K1 clamped, as it is given back. */
#define K1C "1011111111111111111111111111111111111111111111111111111111111151"

static struct wg_device *dev;
static struct wg_now now = {.mono = 1000 * WG_SECOND, .boot = 1000 * WG_SECOND, .wall_sec = 1700000000};
static unsigned port_calls, mark_calls, removed_calls;
static int port_error;

static int hook_port(void *user, struct wg_device *d, uint16_t port)
{
    CHECK(user == &port_calls);
    port_calls++;
    if (port_error)
        return port_error;
    wg_device_set_port(d, port ? port : 40000);
    return 0;
}

static int hook_mark(void *user, struct wg_device *d, uint32_t mark)
{
    (void)user, (void)d, (void)mark;
    mark_calls++;
    return 0;
}

static void hook_removed(void *user, struct wg_peer *peer)
{
    (void)user;
    CHECK(peer != NULL && *wg_peer_user(peer) == NULL);
    removed_calls++;
}

static void setup(void)
{
    uint8_t seed[32] = {4};
    struct wg_hooks hooks = {&port_calls, hook_port, hook_mark, hook_removed};
    port_calls = mark_calls = removed_calls = 0;
    port_error = 0;
    dev = wg_device_new(seed, &hooks);
}

static void teardown(void)
{
    wg_device_free(dev);
}

static unsigned bad_line;

static int apply(enum wg_uapi_mode mode, unsigned flags, const char *text)
{
    const char *error;
    int r = wg_uapi_set_text(dev, &now, mode, flags, text, strlen(text), &bad_line, &error);
    CHECK((r != 0) == (error != NULL));
    return r;
}

/* What the socket gets: "set=1\n" ... "\n\n". */
static int set_request(const char *request)
{
    size_t n = strlen(request);
    CHECK(strncmp(request, "set=1\n", 6) == 0 && strcmp(request + n - 2, "\n\n") == 0);
    char *text = strndup(request + 6, n - 7);
    int r = apply(WG_UAPI_SET, 0, text);
    free(text);
    return r;
}

static char got[1 << 16];

static const char *get(size_t piece)
{
    struct wg_uapi_get g;
    size_t n = 0, m;
    wg_uapi_get_begin(&g, dev);
    while ((m = wg_uapi_get_read(&g, got + n, piece)) > 0) {
        CHECK(m <= piece && got[n + m - 1] == '\n');
        n += m;
    }
    wg_uapi_get_end(&g);
    CHECK(dev->gets == NULL);
    got[n] = '\0';
    return got;
}

static void test_vectors(void)
{
    const struct vector *v = vector_at(&vectors_wireguard, "uapi"), *errors = vector_at(v, "errors");
    CHECK(errors->count >= 8);
    for (size_t i = 0; i < errors->count; i++) {
        setup();
        if (!CHECK(set_request(vector_text(&errors->children[i], "send")) ==
                   (int)(int64_t)errors->children[i].children[1].number))
            fprintf(stderr, "    %s", vector_text(&errors->children[i], "send"));
        CHECK_EQ(wg_device_peers(dev), i == 4 ? 1 : 0); /* what was before the error stays */
        teardown();
    }

    setup();
    CHECK_EQ(set_request("set=1\npublic_key=" K2 "\nallowed_ip=10.0.0.0/8\npublic_key=" K3 "\n\n"), 0);
    CHECK_EQ(set_request(vector_text(v, "syncconf_sent")), 0);
    CHECK_STR(get(4096),
              "private_key=" K1C "\nlisten_port=51821\npublic_key=" K3 "\npreshared_key=" ZERO
              "\nprotocol_version=1\nlast_handshake_time_sec=0\nlast_handshake_time_nsec=0\ntx_bytes=0\nrx_bytes=0\n"
              "persistent_keepalive_interval=0\npublic_key=" K4 "\npreshared_key=" ZERO
              "\nprotocol_version=1\nendpoint=192.0.2.1:51820\nlast_handshake_time_sec=0\nlast_handshake_time_nsec=0\n"
              "tx_bytes=0\nrx_bytes=0\npersistent_keepalive_interval=0\nallowed_ip=10.1.0.0/16\nallowed_ip=::/0\n");
    CHECK_EQ(removed_calls, 1);
    CHECK_EQ(set_request(vector_text(v, "setconf_sent")), 0); /* replaces K3 too */
    CHECK_EQ(wg_device_peers(dev), 1);
    CHECK_EQ(removed_calls, 3);
    CHECK_EQ(port_calls, 1); /* the same port again is not opened again */
    teardown();

    /* The reply, with the key in the clamped form in which a device keeps it. */
    setup();
    CHECK_EQ(set_request("set=1\nprivate_key=" K1 "\nlisten_port=51820\nfwmark=51820\npublic_key=" K2
                         "\npreshared_key=" K3
                         "\nendpoint=[2001:db8::1]:51820\npersistent_keepalive_interval=25\nallowed_ip=10.0.0.0/8\n"
                         "allowed_ip=fd00::/8\n\n"),
             0);
    dev->first->handshake_sec = 1700000000;
    dev->first->handshake_nsec = 5;
    dev->first->tx_bytes = 10;
    dev->first->rx_bytes = 20;
    const char *reply = vector_text(v, "get_reply"), *after = strchr(reply, '\n') + 1;
    char want[4096];
    snprintf(want, sizeof want, "private_key=" K1C "\n%.*s", (int)(strlen(after) - strlen("errno=0\n\n")), after);
    CHECK_STR(get(4096), want);
    CHECK_STR(get(WG_UAPI_GET_MIN), want);
    teardown();
}

static void test_errors(void)
{
    static const struct {
        const char *text;
        int error;
        unsigned line;
    } cases[] = {
        {"", 0, 0},
        {"listen_port=0\nfwmark=0\nprivate_key=" ZERO, 0, 3},
        {"nonsense", -EPROTO, 1},
        {"=1", -EINVAL, 1},
        {"private_key=" K1 "1", -EINVAL, 1},
        {"private_key=", -EINVAL, 1},
        {"listen_port=-1", -EINVAL, 1},
        {"listen_port=", -EINVAL, 1},
        {"listen_port= 1", -EINVAL, 1},
        {"fwmark=4294967296", -EINVAL, 1},
        {"replace_peers=1", -EINVAL, 1},
        {"protocol_version=1", -EINVAL, 1},         /* needs a peer */
        {"public_key=" K2 "\nlisten_port=1", -EINVAL, 2},
        {"public_key=" K2 "\nremove=false", -EINVAL, 2},
        {"public_key=" K2 "\nupdate_only=yes", -EINVAL, 2},
        {"public_key=" K2 "\nreplace_allowed_ips=false", -EINVAL, 2},
        {"public_key=" K2 "\npreshared_key=12", -EINVAL, 2},
        {"public_key=" K2 "\nendpoint=vpn.example:1", -EINVAL, 2},
        {"public_key=" K2 "\nendpoint=192.0.2.1", -EINVAL, 2},
        {"public_key=" K2 "\npersistent_keepalive_interval=65536", -EINVAL, 2},
        {"public_key=" K2 "\npersistent_keepalive_interval=off", -EINVAL, 2},
        {"public_key=" K2 "\nallowed_ip=10.0.0.0/33", -EINVAL, 2},
        {"public_key=" K2 "\nallowed_ip=10.0.0.0", -EINVAL, 2},
        {"public_key=" K2 "\nallowed_ip=fd00::/129", -EINVAL, 2},
        {"public_key=" K2 "\nallowed_ip=", -EINVAL, 2},
        {"public_key=" K2 "\nallowed_ip=-", -EINVAL, 2},
        {"public_key=" K2 "\nallowed_ip=--10.0.0.0/8", -EINVAL, 2},
        {"public_key=" K2 "\nremove=true\nallowed_ip=bad", -EINVAL, 3}, /* checked though ignored */
        {"public_key=" K2 "\n\nprotocol_version=1\n", 0, 3},
        {"public_key=zz", -EINVAL, 1},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        for (unsigned mode = 0; mode < 3; mode++) {
            setup();
            if (!CHECK(apply((enum wg_uapi_mode)mode, 0, cases[i].text) == cases[i].error))
                fprintf(stderr, "    case %zu, mode %u\n", i, mode);
            CHECK_EQ(bad_line, cases[i].line);
            if (mode == WG_UAPI_CHECK)
                CHECK(wg_device_peers(dev) == 0 && port_calls == 0 && !dev->has_key);
            teardown();
        }
    setup();
    port_error = -EADDRINUSE;
    CHECK_EQ(apply(WG_UAPI_SET, 0, "listen_port=5"), -EADDRINUSE);
    CHECK_EQ(wg_device_port(dev), 0);
    port_error = 0;
    CHECK_EQ(apply(WG_UAPI_SET, 0, "listen_port=0"), 0); /* the hook picks one */
    CHECK_EQ(wg_device_port(dev), 40000);
    teardown();
}

static bool owns(const char *key_digit, uint8_t a, uint8_t b)
{
    uint8_t address[4] = {a, b, 0, 1}, key[32];
    memset(key, key_digit[0] - '0' + 16 * (key_digit[0] - '0'), 32);
    struct wg_peer *peer = wg_allowedips_lookup4(dev, address);
    return peer && memcmp(peer->public_key, key, 32) == 0;
}

static void test_peers(void)
{
    setup();
    uint8_t own[32];
    char text[512], hex[65] = "";
    CHECK_EQ(apply(WG_UAPI_SET, 0, "private_key=" K1), 0);
    wg_device_public_key(dev, own);
    for (unsigned i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", own[i]);
    snprintf(text, sizeof text, "public_key=%s\nallowed_ip=10.0.0.0/8\npublic_key=" K2, hex);
    CHECK_EQ(apply(WG_UAPI_SET, 0, text), 0); /* our own key: ignored, the next is not */
    CHECK_EQ(wg_device_peers(dev), 1);
    CHECK(!owns("2", 10, 0));
    CHECK_EQ(apply(WG_UAPI_SET, 0,
                   "public_key=" K3 "\nremove=true\npublic_key=" K4 "\nupdate_only=true\nallowed_ip=1.0.0.0/8"),
             0);
    CHECK_EQ(wg_device_peers(dev), 1);
    CHECK_EQ(removed_calls, 0);
    CHECK_EQ(apply(WG_UAPI_SET, 0, "public_key=" K2 "\nupdate_only=true\nallowed_ip=10.0.0.0/8\nallowed_ip=11.0.0.0/8"),
             0);
    CHECK(owns("2", 10, 1) && owns("2", 11, 1));
    CHECK_EQ(apply(WG_UAPI_SET, 0, "public_key=" K2 "\nallowed_ip=-10.0.0.0/8\nallowed_ip=-12.0.0.0/8"), 0);
    CHECK(!owns("2", 10, 1) && owns("2", 11, 1));
    CHECK_EQ(apply(WG_UAPI_SET, 0, "public_key=" K2 "\nreplace_allowed_ips=true\nallowed_ip=12.0.0.0/8"), 0);
    CHECK(!owns("2", 11, 1) && owns("2", 12, 1));
    CHECK_EQ(apply(WG_UAPI_SET, 0, "public_key=" K3 "\nallowed_ip=12.0.0.0/8"), 0); /* moves */
    CHECK(owns("3", 12, 1));
    /* An error after the replacing: what the lines before it said is in force. */
    CHECK_EQ(apply(WG_UAPI_SET, 0,
                   "public_key=" K3 "\nallowed_ip=13.0.0.0/8\nreplace_allowed_ips=true\nallowed_ip=14.0.0.0/8\nx=1"),
             -EINVAL);
    CHECK(!owns("3", 12, 1) && !owns("3", 13, 1) && owns("3", 14, 1));
    CHECK_EQ(apply(WG_UAPI_SET, 0, "public_key=" K3 "\nreplace_allowed_ips=true"), 0);
    CHECK(!owns("3", 14, 1));
    CHECK_EQ(apply(WG_UAPI_SET, 0,
                   "public_key=" K3
                   "\npersistent_keepalive_interval=7\nupdate_only=true\npersistent_keepalive_interval=8"),
             0);
    CHECK_EQ(dev->last->persistent_keepalive, 8);
    CHECK_EQ(apply(WG_UAPI_SET, 0, "replace_peers=true"), 0);
    CHECK_EQ(wg_device_peers(dev), 0);
    teardown();
}

static void test_hosts(void)
{
    static const char *const good[] = {"vpn.example:51820", "a:1", "x-1.vpn_2.example.:65535", "9.example:1", "1a:1"};
    static const char *const bad[] = {
        ":1",
        "vpn.example",
        "vpn.example:0",
        "vpn.example:65536",
        "vpn..example:1",
        ".example:1",
        "vpn example:1",
        "300.1.1.1:1",
        "1.2.3:1",
        "vpn.example:1:2",
        "[vpn.example]:1",
        "vpn.123:5",
        "v%70n.example:1",
    };
    char text[256];
    struct wg_endpoint e;
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        setup();
        snprintf(text, sizeof text, "public_key=" K2 "\nendpoint=%s", good[i]);
        CHECK_EQ(apply(WG_UAPI_CHECK, WG_UAPI_HOSTS, text), 0);
        CHECK_EQ(apply(WG_UAPI_SET, 0, text), -EINVAL);
        CHECK_EQ(apply(WG_UAPI_SET, WG_UAPI_HOSTS, text), 0);
        CHECK_STR(wg_peer_host(dev->first), good[i]);
        CHECK(!wg_peer_endpoint(dev->first, &e));
        CHECK_EQ(wg_device_next(dev), 0);
        struct wg_output out;
        CHECK(wg_device_poll(dev, &now, &out) && out.action == WG_ACTION_RESOLVE && out.peer == dev->first);
        CHECK_EQ(apply(WG_UAPI_SET, 0, "public_key=" K2 "\nendpoint=192.0.2.1:9"), 0);
        CHECK(wg_peer_host(dev->first) == NULL && wg_peer_endpoint(dev->first, &e));
        teardown();
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        setup();
        snprintf(text, sizeof text, "public_key=" K2 "\nendpoint=%s", bad[i]);
        if (!CHECK(apply(WG_UAPI_CHECK, WG_UAPI_HOSTS, text) == -EINVAL))
            fprintf(stderr, "    %s\n", bad[i]);
        teardown();
    }
}

static void test_sync(void)
{
    static const char *const plan =
        "private_key=" K1 "\nlisten_port=5\nfwmark=7\npublic_key=" K2 "\npreshared_key=" K3 "\nendpoint=192.0.2.1:9\n"
        "persistent_keepalive_interval=25\nallowed_ip=10.0.0.0/8\nallowed_ip=11.0.0.0/8\npublic_key=" K3
        "\nallowed_ip=12.0.0.0/8\n";
    static const char *const changed =
        "private_key=" K1 "\nlisten_port=5\npublic_key=" K2
        "\nendpoint=192.0.2.1:9\nallowed_ip=11.0.0.0/8\npublic_key=" K4 "\nallowed_ip=12.0.0.0/8\n";
    struct wg_session_keys keys = {{1}, {2}};
    struct wg_endpoint e, roamed = {.family = WG_FAMILY_V4, .port = 77, .address = {198, 51, 100, 1}};
    uint32_t index;
    char first[4096];
    setup();
    CHECK_EQ(apply(WG_UAPI_CHECK, 0, plan), 0);
    CHECK_EQ(wg_device_peers(dev), 0);
    CHECK_EQ(apply(WG_UAPI_SYNC, 0, plan), 0);
    snprintf(first, sizeof first, "%s", get(4096));
    struct wg_peer *kept = dev->first;
    CHECK(wg_index_new(dev, kept, &index));
    CHECK(wg_keypair_begin(kept, &now, &keys, index, 9, true) != NULL);
    wg_peer_learn(kept, &roamed);

    /* The same again: nothing is touched, what was learnt stays. */
    CHECK_EQ(apply(WG_UAPI_SYNC, 0, plan), 0);
    CHECK(dev->first == kept && kept->current && wg_device_peers(dev) == 2);
    CHECK(wg_peer_endpoint(kept, &e) && e.port == 77);
    CHECK_EQ(port_calls, 1);
    CHECK_EQ(mark_calls, 1);
    CHECK_EQ(removed_calls, 0);
    CHECK(!wg_device_retire(dev)); /* not even a node of the trie */

    /* A faulty text: what is not named is not removed. */
    CHECK_EQ(apply(WG_UAPI_SYNC, 0, "private_key=" K1 "\npublic_key=" K4 "\nbad"), -EPROTO);
    CHECK_EQ(wg_device_peers(dev), 3);
    CHECK(kept->current && !kept->stale && owns("2", 10, 1));

    CHECK_EQ(apply(WG_UAPI_SYNC, 0, changed), 0);
    CHECK(dev->first == kept && kept->current); /* its session lives on */
    CHECK_EQ(wg_device_peers(dev), 2);
    CHECK(!owns("2", 10, 1) && owns("2", 11, 1) && owns("4", 12, 1));
    CHECK_EQ(kept->persistent_keepalive, 0);
    CHECK(kept->preshared_key[0] == 0);
    CHECK_EQ(wg_device_fwmark(dev), 0);
    CHECK_EQ(removed_calls, 1);
    CHECK(wg_peer_endpoint(kept, &e) && e.port == 77);
    CHECK_EQ(apply(WG_UAPI_SYNC, 0, "private_key=" K1 "\npublic_key=" K2 "\nendpoint=192.0.2.1:10"), 0);
    CHECK(wg_peer_endpoint(kept, &e) && e.port == 10);
    CHECK_EQ(apply(WG_UAPI_SYNC, 0, ""), 0);
    CHECK(!dev->has_key && wg_device_peers(dev) == 0);
    /* And from there back to the first: the same text as at first. */
    CHECK_EQ(apply(WG_UAPI_SYNC, 0, plan), 0);
    CHECK_STR(get(4096), first);
    teardown();
}

/* Gets in pieces while the device changes under them: every line whole, nothing freed is touched. */
static void test_get_in_pieces(void)
{
    setup();
    char text[256], buffer[WG_UAPI_GET_MIN];
    for (unsigned i = 0; i < 200; i++) {
        snprintf(text, sizeof text, "public_key=%064x\nallowed_ip=10.0.%u.0/24\nallowed_ip=10.1.%u.0/24\n", i + 1, i,
                 i);
        CHECK_EQ(apply(WG_UAPI_SET, 0, text), 0);
    }
    uint64_t x = 5;
    for (unsigned round = 0; round < 50; round++) {
        struct wg_uapi_get g[2];
        wg_uapi_get_begin(&g[0], dev);
        wg_uapi_get_begin(&g[1], dev);
        unsigned peers[2] = {0, 0};
        bool more = true;
        while (more) {
            more = false;
            for (unsigned i = 0; i < 2; i++) {
                size_t n = wg_uapi_get_read(&g[i], buffer, sizeof buffer);
                more |= n > 0;
                for (size_t j = 0; j + 11 < n; j++)
                    peers[i] += memcmp(buffer + j, "public_key=", 11) == 0;
            }
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            unsigned who = (unsigned)(x % 200);
            if (x >> 62 == 0)
                snprintf(text, sizeof text, "public_key=%064x\nremove=true\n", who + 1);
            else if (x >> 62 == 1)
                snprintf(text, sizeof text, "public_key=%064x\nreplace_allowed_ips=true\n", who + 1);
            else
                snprintf(text, sizeof text, "public_key=%064x\nallowed_ip=10.2.%u.0/24\nallowed_ip=10.1.%u.0/24\n",
                         who + 1, who, who);
            CHECK_EQ(apply(WG_UAPI_SET, 0, text), 0);
            wg_device_retire(dev);
            wg_device_reclaim(dev);
        }
        CHECK(peers[0] > 0 && peers[0] <= 400);
        wg_uapi_get_end(&g[0]);
        wg_uapi_get_end(&g[1]);
    }
    /* A set in progress whose peer another connection removes. */
    struct wg_uapi_set set;
    wg_uapi_set_begin(&set, dev, &now, WG_UAPI_SET, 0);
    CHECK_EQ(wg_uapi_set_line(&set, "public_key=" K2, 11 + 64), 0);
    CHECK_EQ(wg_uapi_set_line(&set, "replace_allowed_ips=true", 24), 0);
    CHECK_EQ(apply(WG_UAPI_SET, 0, "replace_peers=true"), 0);
    wg_device_retire(dev);
    wg_device_reclaim(dev);
    CHECK_EQ(wg_uapi_set_line(&set, "allowed_ip=10.0.0.0/8", 21), 0);
    CHECK_EQ(wg_uapi_set_end(&set, true), 0);
    CHECK_EQ(wg_device_peers(dev), 0);
    teardown();
}

int main(void)
{
    test_vectors();
    test_errors();
    test_peers();
    test_hosts();
    test_sync();
    test_get_in_pieces();
    return check_done();
}
