#include "wg/allowedips.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wg/device.h"
#include "wire/bytes.h"

static unsigned allowed_bit(const uint8_t *bits, unsigned at)
{
    return bits[at / 8] >> (7 - at % 8) & 1;
}

/* Leading bits in which a and b agree, at most limit. */
static unsigned allowed_common(const uint8_t *a, const uint8_t *b, unsigned limit)
{
    unsigned n = 0;
    for (; n + 8 <= limit && a[n / 8] == b[n / 8]; n += 8)
        ;
    while (n < limit && allowed_bit(a, n) == allowed_bit(b, n))
        n++;
    return n;
}

static void allowed_mask(uint8_t *dst, const uint8_t *src, unsigned size, unsigned cidr)
{
    memset(dst, 0, size);
    memcpy(dst, src, cidr / 8);
    if (cidr % 8)
        dst[cidr / 8] = src[cidr / 8] & (uint8_t)(0xff << (8 - cidr % 8));
}

static struct wg_allowed *allowed_new(const uint8_t *address, uint8_t size, uint8_t cidr)
{
    struct wg_allowed *a = calloc(1, offsetof(struct wg_allowed, bits) + size);
    if (a) {
        a->cidr = cidr;
        a->size = size;
        allowed_mask(a->bits, address, size, cidr);
    }
    return a;
}

static void allowed_link(struct wg_allowed *a, struct wg_peer *peer)
{
    struct wg_allowed_list *list = &peer->allowed;
    a->next = NULL;
    a->prev = list->last;
    *(list->last ? &list->last->next : &list->first) = a;
    list->last = a;
}

static void allowed_unlink(struct wg_allowed *a)
{
    struct wg_allowed_list *list = &a->peer->allowed;
    wg_uapi_get_allowed_gone(a->peer->dev, a);
    *(a->prev ? &a->prev->next : &list->first) = a->next;
    *(a->next ? &a->next->prev : &list->last) = a->prev;
    a->next = a->prev = NULL;
}

static void allowed_publish(struct wg_allowed **where, struct wg_allowed *a)
{
    __atomic_store_n(where, a, __ATOMIC_RELEASE);
}

static void allowed_give(struct wg_allowed *a, struct wg_peer *peer)
{
    __atomic_store_n(&a->peer, peer, __ATOMIC_RELEASE);
}

static void allowed_retire(struct wg_device *dev, struct wg_allowed *a)
{
    a->next = dev->fresh.allowed;
    dev->fresh.allowed = a;
}

static struct wg_allowed **allowed_root(struct wg_device *dev, uint8_t size)
{
    return size == 4 ? &dev->allowedips.root4 : &dev->allowedips.root6;
}

/* The node of exactly this prefix is *end, or end is the place where it would have to go. *parent (may be NULL): the
 * link to the node above. */
static struct wg_allowed **allowed_find(struct wg_allowed **root, const uint8_t *bits, unsigned cidr,
                                        struct wg_allowed ***parent)
{
    struct wg_allowed **at = root, **above = NULL;
    while (*at && (*at)->cidr < cidr && allowed_common((*at)->bits, bits, (*at)->cidr) == (*at)->cidr) {
        above = at;
        at = &(*at)->child[allowed_bit(bits, (*at)->cidr)];
    }
    if (parent)
        *parent = above;
    return at;
}

static bool allowed_is(const struct wg_allowed *a, const uint8_t *bits, unsigned cidr)
{
    return a && a->cidr == cidr && memcmp(a->bits, bits, a->size) == 0;
}

int wg_allowedips_insert(struct wg_peer *peer, const uint8_t *address, uint8_t size, uint8_t cidr)
{
    uint8_t bits[16];
    allowed_mask(bits, address, size, cidr);
    struct wg_allowed **at = allowed_find(allowed_root(peer->dev, size), bits, cidr, NULL), *here = *at;

    if (allowed_is(here, bits, cidr)) {
        here->stale = false;
        if (here->peer == peer)
            return 0;
        if (here->peer)
            allowed_unlink(here);
        allowed_link(here, peer);
        allowed_give(here, peer);
        return 0;
    }

    struct wg_allowed *leaf = allowed_new(bits, size, cidr), *top = leaf;
    if (!leaf)
        return -ENOMEM;
    if (here) {
        unsigned common = allowed_common(here->bits, bits, MIN(here->cidr, cidr));
        if (common == cidr) { /* the new prefix holds the old one */
            leaf->child[allowed_bit(here->bits, cidr)] = here;
        } else {
            top = allowed_new(bits, size, (uint8_t)common);
            if (!top) {
                free(leaf);
                return -ENOMEM;
            }
            top->child[allowed_bit(bits, common)] = leaf;
            top->child[allowed_bit(here->bits, common)] = here;
        }
    }
    allowed_link(leaf, peer);
    leaf->peer = peer;
    allowed_publish(at, top);
    return 0;
}

/* Takes the peer off node *at and the node out where it is not needed for branching. */
static void allowed_drop(struct wg_device *dev, struct wg_allowed **at, struct wg_allowed **parent)
{
    struct wg_allowed *a = *at, *above = parent ? *parent : NULL;
    allowed_unlink(a);
    allowed_give(a, NULL);
    a->stale = false;
    if (a->child[0] && a->child[1])
        return;
    allowed_publish(at, a->child[0] ? a->child[0] : a->child[1]);
    allowed_retire(dev, a);
    if (above && !above->peer && !(above->child[0] && above->child[1])) {
        allowed_publish(parent, above->child[0] ? above->child[0] : above->child[1]);
        allowed_retire(dev, above);
    }
}

void wg_allowedips_remove(struct wg_peer *peer, const uint8_t *address, uint8_t size, uint8_t cidr)
{
    uint8_t bits[16];
    struct wg_allowed **parent;
    allowed_mask(bits, address, size, cidr);
    struct wg_allowed **at = allowed_find(allowed_root(peer->dev, size), bits, cidr, &parent);
    if (allowed_is(*at, bits, cidr) && (*at)->peer == peer)
        allowed_drop(peer->dev, at, parent);
}

void wg_allowedips_mark(struct wg_peer *peer)
{
    for (struct wg_allowed *a = peer->allowed.first; a; a = a->next)
        a->stale = true;
}

void wg_allowedips_sweep(struct wg_peer *peer)
{
    struct wg_allowed *next;
    for (struct wg_allowed *a = peer->allowed.first; a; a = next) {
        next = a->next;
        if (a->stale)
            wg_allowedips_remove(peer, a->bits, a->size, a->cidr);
    }
}

void wg_allowedips_remove_peer(struct wg_peer *peer)
{
    wg_allowedips_mark(peer);
    wg_allowedips_sweep(peer);
}

static struct wg_allowed *allowed_load(struct wg_allowed *const *where)
{
    return __atomic_load_n(where, __ATOMIC_ACQUIRE);
}

struct wg_peer *wg_allowedips_lookup4(struct wg_device *dev, const uint8_t address[4])
{
    uint32_t want = load_be32(address);
    struct wg_peer *found = NULL;
    for (struct wg_allowed *a = allowed_load(&dev->allowedips.root4); a;) {
        if (a->cidr && (load_be32(a->bits) ^ want) >> (32 - a->cidr))
            break;
        struct wg_peer *peer = __atomic_load_n(&a->peer, __ATOMIC_ACQUIRE);
        found = peer ? peer : found;
        if (a->cidr == 32)
            break;
        a = allowed_load(&a->child[want >> (31 - a->cidr) & 1]);
    }
    return found;
}

/* The first n bits of both agree. */
static bool allowed_match6(const uint8_t *a, const uint8_t *b, unsigned n)
{
    uint64_t high = load_be64(a) ^ load_be64(b), low = load_be64(a + 8) ^ load_be64(b + 8);
    if (n == 0)
        return true;
    if (n <= 64)
        return high >> (64 - n) == 0;
    return high == 0 && low >> (128 - n) == 0;
}

struct wg_peer *wg_allowedips_lookup6(struct wg_device *dev, const uint8_t address[16])
{
    struct wg_peer *found = NULL;
    for (struct wg_allowed *a = allowed_load(&dev->allowedips.root6); a;) {
        if (!allowed_match6(a->bits, address, a->cidr))
            break;
        struct wg_peer *peer = __atomic_load_n(&a->peer, __ATOMIC_ACQUIRE);
        found = peer ? peer : found;
        if (a->cidr == 128)
            break;
        a = allowed_load(&a->child[allowed_bit(address, a->cidr)]);
    }
    return found;
}
