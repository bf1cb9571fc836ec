/* The configuration protocol, get: in pieces, so that 10,000 peers need no large buffer. The place where a get stands
 * is on the device's list; when the peer or prefix it stands on goes, it moves on to the next one. */
#include "wg/wg.h"

#include <stdio.h>

#include "crypto/secret.h"
#include "wg/device.h"
#include "wire/addr.h"
#include "wire/bytes.h"

enum { GET_DEVICE, GET_PEER, GET_ALLOWED };

#define ALLOWED_LINE_MAX (sizeof "allowed_ip=\n" + PREFIX_TEXT_SIZE)

void wg_uapi_get_begin(struct wg_uapi_get *get, struct wg_device *dev)
{
    *get = (struct wg_uapi_get){.dev = dev, .next = dev->gets, .peer = dev->first, .state = GET_DEVICE};
    dev->gets = get;
}

void wg_uapi_get_end(struct wg_uapi_get *get)
{
    for (struct wg_uapi_get **at = &get->dev->gets; *at; at = &(*at)->next)
        if (*at == get) {
            *at = get->next;
            return;
        }
}

void wg_uapi_get_peer_gone(struct wg_device *dev, const struct wg_peer *peer)
{
    for (struct wg_uapi_get *get = dev->gets; get; get = get->next)
        if (get->peer == peer) {
            get->peer = peer->list_next;
            get->state = get->state == GET_DEVICE ? GET_DEVICE : GET_PEER;
        }
}

void wg_uapi_get_allowed_gone(struct wg_device *dev, const struct wg_allowed *allowed)
{
    for (struct wg_uapi_get *get = dev->gets; get; get = get->next)
        if (get->allowed == allowed)
            get->allowed = allowed->next;
}

static size_t get_key(char *out, size_t size, const char *name, const uint8_t key[32])
{
    char hex[65];
    text_hex_encode(hex, key, 32);
    int n = snprintf(out, size, "%s=%s\n", name, hex);
    secret_wipe(hex, sizeof hex);
    return (size_t)n;
}

static size_t get_device(const struct wg_device *dev, char *out, size_t size)
{
    size_t n = 0;
    if (dev->has_key)
        n += get_key(out + n, size - n, "private_key", dev->identity.private_key);
    n += (size_t)snprintf(out + n, size - n, "listen_port=%u\n", dev->port);
    if (dev->fwmark)
        n += (size_t)snprintf(out + n, size - n, "fwmark=%u\n", (unsigned)dev->fwmark);
    return n;
}

static size_t get_peer(const struct wg_peer *peer, char *out, size_t size)
{
    struct wg_endpoint e;
    char text[WG_ENDPOINT_TEXT];
    size_t n = get_key(out, size, "public_key", peer->public_key);
    n += get_key(out + n, size - n, "preshared_key", peer->preshared_key);
    n += (size_t)snprintf(out + n, size - n, "protocol_version=1\n");
    if (wg_peer_endpoint(peer, &e)) {
        wg_endpoint_format(&e, text);
        n += (size_t)snprintf(out + n, size - n, "endpoint=%s\n", text);
    }
    n += (size_t)snprintf(out + n, size - n,
                          "last_handshake_time_sec=%lld\nlast_handshake_time_nsec=%u\ntx_bytes=%llu\nrx_bytes=%llu\n"
                          "persistent_keepalive_interval=%u\n",
                          (long long)peer->handshake_sec, (unsigned)peer->handshake_nsec,
                          (unsigned long long)peer->tx_bytes, (unsigned long long)peer->rx_bytes,
                          peer->persistent_keepalive);
    return n;
}

static size_t get_allowed(const struct wg_allowed *a, char *out, size_t size)
{
    struct prefix p = {.family = a->size == 4 ? 4 : 6, .bits = a->cidr};
    char text[PREFIX_TEXT_SIZE];
    memcpy(p.ip, a->bits, a->size);
    prefix_format(&p, text);
    return (size_t)snprintf(out, size, "allowed_ip=%s\n", text);
}

size_t wg_uapi_get_read(struct wg_uapi_get *get, char *buffer, size_t size)
{
    size_t n = 0;
    for (;;) {
        char *out = buffer + n;
        size_t room = size - n;
        if (room < (get->state == GET_ALLOWED ? ALLOWED_LINE_MAX : WG_UAPI_GET_MIN))
            return n;
        if (get->state == GET_DEVICE) {
            n += get_device(get->dev, out, room);
            get->state = GET_PEER;
        } else if (!get->peer) {
            return n;
        } else if (get->state == GET_PEER) {
            n += get_peer(get->peer, out, room);
            get->allowed = get->peer->allowed.first;
            get->state = GET_ALLOWED;
        } else if (get->allowed) {
            const struct wg_allowed *a = get->allowed;
            n += get_allowed(a, out, room);
            get->allowed = a->next;
        } else {
            get->peer = get->peer->list_next;
            get->state = GET_PEER;
        }
    }
}
