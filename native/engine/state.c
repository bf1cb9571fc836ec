#include "engine/state.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "io/file.h"
#include "io/log.h"
#include "wire/text.h"

static void stamp_path(char path[PATH_MAX], const char *folder, const struct tunnel *tunnel)
{
    snprintf(path, PATH_MAX, "%s/stamp-%s", folder, tunnel->config.name);
}

void state_write_stamp(const char *folder, const struct tunnel *tunnel, const uint8_t stamp[WG_STAMP_SIZE])
{
    char path[PATH_MAX], text[160], key_text[2 * WG_KEY_SIZE + 1], stamp_text[2 * WG_STAMP_SIZE + 1];
    static const uint8_t never[WG_STAMP_SIZE];
    uint8_t key[WG_KEY_SIZE];
    if (!folder || !*folder || !wg_device_public_key(tunnel->core, key) || memcmp(stamp, never, sizeof never) == 0)
        return;
    text_hex_encode(key_text, key, sizeof key);
    text_hex_encode(stamp_text, stamp, WG_STAMP_SIZE);
    int n = snprintf(text, sizeof text, "public_key=%s\nstamp=%s\n", key_text, stamp_text);
    stamp_path(path, folder, tunnel);
    int error = file_make_folder(folder);
    if (!error)
        error = file_write(path, text, (size_t)n, 0600);
    if (error)
        log_warning("%s: %s: the last handshake stamp is not kept", path, strerror(-error));
}

void state_read_stamp(const char *folder, struct tunnel *tunnel)
{
    char path[PATH_MAX], text[160];
    uint8_t key[WG_KEY_SIZE], own[WG_KEY_SIZE], stamp[WG_STAMP_SIZE];
    const size_t key_at = sizeof "public_key=" - 1, stamp_at = key_at + 2 * WG_KEY_SIZE + 1 + sizeof "stamp=" - 1;
    if (!folder || !*folder)
        return;
    stamp_path(path, folder, tunnel);
    ssize_t n = file_read(path, text, sizeof text);
    if (n < (ssize_t)(stamp_at + 2 * WG_STAMP_SIZE) ||
        text_hex_decode(text + key_at, 2 * WG_KEY_SIZE, key, sizeof key) != TEXT_OK ||
        text_hex_decode(text + stamp_at, 2 * WG_STAMP_SIZE, stamp, sizeof stamp) != TEXT_OK)
        return;
    if (wg_device_public_key(tunnel->core, own) && memcmp(own, key, sizeof own) == 0)
        wg_device_stamp_floor(tunnel->core, stamp);
}
