/* Any text as a configuration: dry run, set, sync. What the dry run takes, sync takes; what a get says, put into an empty
 * device, makes a get say the same. Input: a flags byte, then the text. */
#include <stdlib.h>
#include <string.h>

#include "wg/wg.h"

static size_t get_all(struct wg_device *dev, char *out, size_t size)
{
    struct wg_uapi_get get;
    size_t n = 0, m;
    wg_uapi_get_begin(&get, dev);
    while (size - n >= WG_UAPI_GET_MIN && (m = wg_uapi_get_read(&get, out + n, WG_UAPI_GET_MIN)) > 0)
        n += m;
    wg_uapi_get_end(&get);
    return size - n >= WG_UAPI_GET_MIN ? n : 0;
}

/* Drops what only a get says: times and counters. */
static size_t only_settings(char *text, size_t n)
{
    static const char *const facts[] = {"last_handshake_time", "tx_bytes", "rx_bytes"};
    size_t kept = 0;
    for (size_t at = 0; at < n;) {
        size_t length = (size_t)((char *)memchr(text + at, '\n', n - at) - text) + 1 - at;
        bool fact = false;
        for (unsigned i = 0; i < 3; i++)
            fact |= strncmp(text + at, facts[i], strlen(facts[i])) == 0;
        if (!fact) {
            memmove(text + kept, text + at, length);
            kept += length;
        }
        at += length;
    }
    return kept;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t seed[32] = {1};
    static char first[1 << 18], second[1 << 18];
    struct wg_now now = {.mono = 1, .boot = 2, .wall_sec = 3};
    struct wg_output out;
    if (n < 1)
        return 0;
    unsigned flags = data[0] & 1 ? WG_UAPI_HOSTS : 0;
    const char *text = (const char *)data + 1;
    struct wg_device *dev = wg_device_new(seed, NULL), *copy = wg_device_new(seed, NULL);
    if (data[0] & 2)
        wg_device_up(dev, &now);

    const char *error;
    int checked = wg_uapi_set_text(dev, &now, WG_UAPI_CHECK, flags, text, n - 1, NULL, &error);
    if (wg_device_peers(dev) != 0 || (checked != 0) != (error != NULL))
        abort();
    wg_uapi_set_text(dev, &now, WG_UAPI_SET, flags, text, (n - 1) / 2, NULL, NULL);
    int synced = wg_uapi_set_text(dev, &now, WG_UAPI_SYNC, flags, text, n - 1, NULL, NULL);
    if (synced != checked)
        abort();
    while (wg_device_poll(dev, &now, &out))
        ;
    size_t size = get_all(dev, first, sizeof first);
    if (size > 0) {
        size = only_settings(first, size);
        if (wg_uapi_set_text(copy, &now, WG_UAPI_SET, 0, first, size, NULL, NULL) != 0)
            abort();
        size_t again = only_settings(second, get_all(copy, second, sizeof second));
        if (again != size || memcmp(first, second, size) != 0)
            abort();
    }
    wg_uapi_set_text(dev, &now, WG_UAPI_SET, 0, "replace_peers=true\n", 19, NULL, NULL);
    if (wg_device_peers(dev) != 0)
        abort();
    wg_device_free(dev);
    wg_device_free(copy);
    return 0;
}
