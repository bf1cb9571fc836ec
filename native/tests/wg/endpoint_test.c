/* Endpoints as text, and the snapshot under a writer. */
#include "wg/wg.h"

#include <errno.h>
#include <pthread.h>

#include "tests/check.h"
#include "wg/peer.h"

static void test_text(void)
{
    static const char *const good[] = {
        "192.0.2.1:51820",
        "0.0.0.0:1",
        "255.255.255.255:65535",
        "[2001:db8::1]:51820",
        "[::]:1",
        "[fe80::1%3]:5",
        "[fe80:1111:2222:3333:4444:5555:6666:7777%4294967295]:65535",
    };
    static const char *const bad[] = {
        "",
        ":",
        "192.0.2.1",
        "192.0.2.1:",
        "192.0.2.1:0",
        "192.0.2.1:65536",
        "192.0.2.256:1",
        "192.0.2:1",
        "2001:db8::1:1",
        "[2001:db8::1]",
        "[2001:db8::1]:",
        "[2001:db8::1:5",
        "[192.0.2.1]:5",
        "vpn.example:51820",
        " 192.0.2.1:1",
        "[]:1",
        "192.0.2.1:51820 ",
        "[fe80::1%]:5",
        "[fe80::1%eth0]:5",
    };
    struct wg_endpoint e;
    char text[WG_ENDPOINT_TEXT];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_EQ(wg_endpoint_parse(&e, good[i], strlen(good[i])), 0);
        CHECK_EQ(wg_endpoint_format(&e, text), strlen(good[i]));
        CHECK_STR(text, good[i]);
        CHECK_EQ(e.local_family, WG_FAMILY_NONE);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!CHECK(wg_endpoint_parse(&e, bad[i], strlen(bad[i])) == -EINVAL))
            fprintf(stderr, "    '%s'\n", bad[i]);
    /* A mapped address is IPv4. */
    CHECK_EQ(wg_endpoint_parse(&e, "[::ffff:192.0.2.1]:7", 20), 0);
    CHECK_EQ(e.family, WG_FAMILY_V4);
    wg_endpoint_format(&e, text);
    CHECK_STR(text, "192.0.2.1:7");
    e.family = WG_FAMILY_NONE;
    CHECK_EQ(wg_endpoint_format(&e, text), 0);
}

static struct wg_endpoint_lock lock;
static bool stop;
static unsigned torn, reads;

static void *reader(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        struct wg_endpoint e;
        if (!wg_endpoint_get(&lock, &e))
            continue;
        __atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED);
        for (unsigned i = 0; i < 16; i++)
            torn += e.address[i] != e.address[0] || e.local[i] != e.address[0];
        torn += (e.port & 0xff) != e.address[0];
    }
    return NULL;
}

static void test_snapshot(void)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, reader, NULL), 0);
    for (unsigned i = 0; i < 100000 || (__atomic_load_n(&reads, __ATOMIC_RELAXED) == 0 && i < 100000000); i++) {
        struct wg_endpoint e = {.family = WG_FAMILY_V6, .port = (uint16_t)(0xff00 | (i & 0xff))};
        memset(e.address, (int)(i & 0xff), 16);
        memset(e.local, (int)(i & 0xff), 16);
        wg_endpoint_put(&lock, &e);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK_EQ(torn, 0);
    CHECK(reads > 0);
}

int main(void)
{
    test_text();
    test_snapshot();
    return check_done();
}
