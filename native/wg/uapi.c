/* The configuration protocol, set: key=value lines, device keys first, then a section a peer that `public_key` begins.
 *
 * A section's peer is made by the first line that needs it, so that `remove` and `update_only` of an unknown one leave
 * no trace; lines of a section without a peer (our own key, a removed one, a dry run) are checked and then ignored.
 * `replace_allowed_ips` marks what is there and sweeps at the section's end, so that packets find no gap where a
 * prefix stays. Errors are those of wireguard-go: -EINVAL for anything that cannot be read, -EPROTO without "=". */
#include "wg/wg.h"

#include <errno.h>

#include "crypto/secret.h"
#include "wg/device.h"
#include "wire/addr.h"
#include "wire/bytes.h"

enum section {
    SECTION_DEVICE,
    SECTION_NEW,     /* public_key of a peer that is not there yet */
    SECTION_PEER,
    SECTION_IGNORED,
};

struct value {
    const char *s;
    size_t n;
};

static int uapi_fail(struct wg_uapi_set *set, int error, const char *text)
{
    set->error = text;
    return error;
}

static bool value_is(struct value v, const char *text)
{
    return v.n == strlen(text) && memcmp(v.s, text, v.n) == 0;
}

static int value_true(struct wg_uapi_set *set, struct value v)
{
    return value_is(v, "true") ? 0 : uapi_fail(set, -EINVAL, "only the value true is known");
}

static int value_key(struct wg_uapi_set *set, struct value v, uint8_t key[32])
{
    return text_hex_decode(v.s, v.n, key, 32) == TEXT_OK ? 0 : uapi_fail(set, -EINVAL, "a key is 64 hex digits");
}

/* FNV-1a; never 0, which means: not configured. */
static uint64_t value_fingerprint(struct value v)
{
    uint64_t h = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < v.n; i++)
        h = (h ^ (uint8_t)v.s[i]) * 0x100000001b3ull;
    return h ? h : 1;
}

/* ---- device ---- */

static int set_private_key(struct wg_uapi_set *set, struct value v)
{
    uint8_t key[32];
    int r = value_key(set, v, key);
    if (r == 0 && set->mode != WG_UAPI_CHECK) {
        r = wg_device_set_private_key(set->dev, key);
        set->seen_key = true;
    }
    secret_wipe(key, sizeof key);
    return r;
}

static int set_listen_port(struct wg_uapi_set *set, struct value v)
{
    struct wg_device *dev = set->dev;
    uint64_t port;
    if (text_decimal(v.s, v.n, 0, 65535, &port) != TEXT_OK)
        return uapi_fail(set, -EINVAL, "a port is 0 to 65535");
    if (set->mode == WG_UAPI_CHECK || (port == dev->port && port != 0))
        return 0;
    if (set->mode == WG_UAPI_SYNC && port == 0 && dev->port != 0) /* any port, and we have one */
        return 0;
    uint16_t before = dev->port;
    dev->port = (uint16_t)port;
    int r = dev->hooks.listen_port ? dev->hooks.listen_port(dev->hooks.user, dev, (uint16_t)port) : 0;
    if (r < 0) {
        dev->port = before;
        set->error = "the port cannot be opened";
    }
    return r;
}

static int change_fwmark(struct wg_uapi_set *set, uint32_t mark)
{
    struct wg_device *dev = set->dev;
    if (mark == dev->fwmark)
        return 0;
    int r = dev->hooks.fwmark ? dev->hooks.fwmark(dev->hooks.user, dev, mark) : 0;
    if (r < 0)
        return uapi_fail(set, r, "the mark cannot be set");
    dev->fwmark = mark;
    return 0;
}

static int set_fwmark(struct wg_uapi_set *set, struct value v)
{
    uint64_t mark;
    if (text_number(v.s, v.n, 0, UINT32_MAX, &mark) != TEXT_OK)
        return uapi_fail(set, -EINVAL, "a mark is a number of 32 bits");
    if (set->mode == WG_UAPI_CHECK)
        return 0;
    set->seen_mark = true;
    return change_fwmark(set, (uint32_t)mark);
}

static int set_replace_peers(struct wg_uapi_set *set, struct value v)
{
    int r = value_true(set, v);
    if (r == 0 && set->mode == WG_UAPI_SET)
        while (set->dev->first)
            wg_peer_remove(set->dev->first);
    return r;
}

/* ---- a peer's section ---- */

static int section_need_peer(struct wg_uapi_set *set)
{
    if (set->section != SECTION_NEW)
        return 0;
    set->peer = wg_peer_new(set->dev, set->key);
    if (!set->peer)
        return uapi_fail(set, -ENOMEM, "no memory for another peer");
    set->section = SECTION_PEER;
    set->created = true;
    return 0;
}

static int section_end(struct wg_uapi_set *set, bool ok)
{
    int r = section_need_peer(set); /* after an error too: the line public_key= was in force */
    if (set->section == SECTION_PEER) {
        static const uint8_t none[32];
        if (set->sweep && (ok || set->mode != WG_UAPI_SYNC))
            wg_allowedips_sweep(set->peer);
        if (ok && set->mode == WG_UAPI_SYNC && !set->seen_psk)
            wg_peer_set_preshared_key(set->peer, none);
        if (ok && set->mode == WG_UAPI_SYNC && !set->seen_keepalive)
            wg_peer_set_persistent_keepalive(set->peer, 0);
    }
    set->section = SECTION_IGNORED;
    set->peer = NULL;
    return r;
}

static int set_public_key(struct wg_uapi_set *set, struct value v)
{
    uint8_t key[32];
    int r = value_key(set, v, key);
    if (r == 0 && set->section != SECTION_DEVICE)
        r = section_end(set, true);
    if (r < 0)
        return r;
    memcpy(set->key, key, sizeof key);
    set->created = set->sweep = set->seen_psk = set->seen_keepalive = false;
    struct wg_device *dev = set->dev;
    if (set->mode == WG_UAPI_CHECK || (dev->has_key && memcmp(set->key, dev->identity.public_key, 32) == 0)) {
        set->section = SECTION_IGNORED;
        return 0;
    }
    set->peer = wg_device_peer(dev, set->key);
    set->section = set->peer ? SECTION_PEER : SECTION_NEW;
    if (set->peer && set->mode == WG_UAPI_SYNC) {
        if (set->peer->stale) {
            wg_allowedips_mark(set->peer);
            set->sweep = true;
        } else {
            set->seen_psk = set->seen_keepalive = true; /* a second section of the same peer only adds */
        }
        set->peer->stale = false;
    }
    return 0;
}

static int set_update_only(struct wg_uapi_set *set, struct value v)
{
    int r = value_true(set, v);
    if (r < 0)
        return r;
    if (set->section == SECTION_PEER && set->created)
        wg_peer_remove(set->peer);
    if (set->section == SECTION_NEW || set->created)
        set->section = SECTION_IGNORED;
    return 0;
}

static int set_remove(struct wg_uapi_set *set, struct value v)
{
    int r = value_true(set, v);
    if (r < 0)
        return r;
    if (set->section == SECTION_PEER)
        wg_peer_remove(set->peer);
    set->section = SECTION_IGNORED;
    return 0;
}

static int set_preshared_key(struct wg_uapi_set *set, struct value v)
{
    uint8_t key[32];
    int r = value_key(set, v, key);
    if (r == 0)
        r = section_need_peer(set);
    if (r == 0 && set->section == SECTION_PEER) {
        wg_peer_set_preshared_key(set->peer, key);
        set->seen_psk = true;
    }
    secret_wipe(key, sizeof key);
    return r;
}

/* "name:port": letters, digits, '-', '_', single dots; the last label is not all digits, which would be an address that
 * was mistyped. */
static bool value_is_host(struct value v)
{
    const char *colon = memchr(v.s, ':', v.n);
    size_t name = colon ? (size_t)(colon - v.s) : 0;
    uint64_t port;
    bool letter = false; /* in this label */
    if (name == 0 || name > 253 || text_decimal(colon + 1, v.n - name - 1, 1, 65535, &port) != TEXT_OK)
        return false;
    for (size_t i = 0; i < name; i++) {
        char c = v.s[i];
        if (c == '.') {
            if (i == 0 || v.s[i - 1] == '.')
                return false;
            if (i + 1 < name)
                letter = false;
        } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_') {
            letter = true;
        } else if (c < '0' || c > '9') {
            return false;
        }
    }
    return letter;
}

static int set_endpoint(struct wg_uapi_set *set, struct value v)
{
    struct wg_endpoint e;
    bool numeric = wg_endpoint_parse(&e, v.s, v.n) == 0;
    if (!numeric && !(set->flags & WG_UAPI_HOSTS))
        return uapi_fail(set, -EINVAL, "an endpoint is 192.0.2.1:51820 or [2001:db8::1]:51820");
    if (!numeric && !value_is_host(v))
        return uapi_fail(set, -EINVAL, "an endpoint is 192.0.2.1:51820, [2001:db8::1]:51820 or name:51820");
    int r = section_need_peer(set);
    if (r < 0 || set->section != SECTION_PEER)
        return r;
    uint64_t fingerprint = value_fingerprint(v);
    if (set->mode == WG_UAPI_SYNC && fingerprint == set->peer->configured)
        return 0; /* what was learnt since is better */
    r = wg_peer_set_host(set->peer, numeric ? NULL : v.s, v.n);
    if (r < 0)
        return uapi_fail(set, r, "no memory for a name");
    if (numeric)
        wg_peer_set_endpoint(set->peer, &e, set->now);
    set->peer->configured = fingerprint;
    return 0;
}

static int set_keepalive(struct wg_uapi_set *set, struct value v)
{
    uint64_t seconds;
    if (text_decimal(v.s, v.n, 0, 65535, &seconds) != TEXT_OK)
        return uapi_fail(set, -EINVAL, "an interval is 0 to 65535 seconds");
    int r = section_need_peer(set);
    if (r < 0 || set->section != SECTION_PEER)
        return r;
    wg_peer_set_persistent_keepalive(set->peer, (uint16_t)seconds);
    set->seen_keepalive = true;
    return 0;
}

static int set_replace_allowed(struct wg_uapi_set *set, struct value v)
{
    int r = value_true(set, v);
    if (r == 0)
        r = section_need_peer(set);
    if (r < 0 || set->section != SECTION_PEER || set->mode == WG_UAPI_SYNC)
        return r;
    wg_allowedips_mark(set->peer);
    set->sweep = true;
    return 0;
}

static int set_allowed_ip(struct wg_uapi_set *set, struct value v)
{
    struct prefix p;
    bool remove = v.n > 0 && v.s[0] == '-';
    if (remove)
        v = (struct value){v.s + 1, v.n - 1};
    if (!memchr(v.s, '/', v.n) || prefix_parse(&p, v.s, v.n) != TEXT_OK)
        return uapi_fail(set, -EINVAL, "an allowed IP is 10.0.0.0/8 or fd00::/8, with - before it to remove it");
    int r = section_need_peer(set);
    if (r < 0 || set->section != SECTION_PEER)
        return r;
    uint8_t size = (uint8_t)addr_len(p.family);
    if (remove)
        wg_allowedips_remove(set->peer, p.ip, size, p.bits);
    else if (wg_allowedips_insert(set->peer, p.ip, size, p.bits) < 0)
        return uapi_fail(set, -ENOMEM, "no memory for another allowed IP");
    return 0;
}

static int set_protocol_version(struct wg_uapi_set *set, struct value v)
{
    return value_is(v, "1") ? 0 : uapi_fail(set, -EINVAL, "only protocol version 1 is known");
}

/* ---- lines ---- */

static const struct {
    const char *name;
    bool device;
    int (*set)(struct wg_uapi_set *set, struct value v);
} keys[] = {
    {"private_key", true, set_private_key},
    {"listen_port", true, set_listen_port},
    {"fwmark", true, set_fwmark},
    {"replace_peers", true, set_replace_peers},
    {"preshared_key", false, set_preshared_key},
    {"endpoint", false, set_endpoint},
    {"persistent_keepalive_interval", false, set_keepalive},
    {"replace_allowed_ips", false, set_replace_allowed},
    {"allowed_ip", false, set_allowed_ip},
    {"update_only", false, set_update_only},
    {"remove", false, set_remove},
    {"protocol_version", false, set_protocol_version},
};

int wg_uapi_set_line(struct wg_uapi_set *set, const char *line, size_t n)
{
    const char *equals = memchr(line, '=', n);
    if (!equals)
        return uapi_fail(set, -EPROTO, "a line is key=value");
    struct value name = {line, (size_t)(equals - line)}, v = {equals + 1, n - name.n - 1};
    if (set->section == SECTION_PEER) {
        set->peer = wg_device_peer(set->dev, set->key); /* another connection may have removed it between two lines */
        if (!set->peer)
            set->section = SECTION_IGNORED;
    }
    if (value_is(name, "public_key"))
        return set_public_key(set, v);
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
        if (value_is(name, keys[i].name)) {
            if (keys[i].device == (set->section == SECTION_DEVICE))
                return keys[i].set(set, v);
            return uapi_fail(set, -EINVAL,
                             keys[i].device ? "this key belongs before the first public_key"
                                            : "this key belongs after a public_key");
        }
    return uapi_fail(set, -EINVAL, "an unknown key");
}

void wg_uapi_set_begin(struct wg_uapi_set *set, struct wg_device *dev, const struct wg_now *now, enum wg_uapi_mode mode,
                       unsigned flags)
{
    *set = (struct wg_uapi_set){.dev = dev, .now = now, .mode = mode, .flags = flags, .section = SECTION_DEVICE};
    if (mode == WG_UAPI_SYNC)
        for (struct wg_peer *peer = dev->first; peer; peer = peer->list_next)
            peer->stale = true;
}

int wg_uapi_set_end(struct wg_uapi_set *set, bool ok)
{
    struct wg_device *dev = set->dev;
    if (set->section == SECTION_PEER && !wg_device_peer(dev, set->key))
        set->section = SECTION_IGNORED;
    int r = set->section == SECTION_DEVICE ? 0 : section_end(set, ok);
    if (set->mode != WG_UAPI_SYNC)
        return r;
    ok = ok && r == 0;
    for (struct wg_peer *peer = dev->first, *next; peer; peer = next) {
        next = peer->list_next;
        if (peer->stale && ok)
            wg_peer_remove(peer);
        peer->stale = false;
    }
    if (ok && !set->seen_key)
        r = wg_device_set_private_key(dev, NULL);
    if (ok && r == 0 && !set->seen_mark)
        r = change_fwmark(set, 0);
    return r;
}

int wg_uapi_set_text(struct wg_device *dev, const struct wg_now *now, enum wg_uapi_mode mode, unsigned flags,
                     const char *text, size_t n, unsigned *line, const char **error)
{
    struct wg_uapi_set set;
    unsigned number = 0;
    int r = 0;
    wg_uapi_set_begin(&set, dev, now, mode, flags);
    for (const char *at = text, *end = text + n; at < end && r == 0;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        number++;
        if (length)
            r = wg_uapi_set_line(&set, at, length);
        at += length + 1;
    }
    int ended = wg_uapi_set_end(&set, r == 0);
    if (line)
        *line = number;
    if (error)
        *error = set.error;
    return r ? r : ended;
}
