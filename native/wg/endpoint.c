/* Endpoints as text, and a peer's endpoint as a snapshot that any thread may take (a sequence lock: the count is odd
 * while the owner writes; a reader that saw it odd or changed reads again). */
#include "wg/wg.h"

#include <errno.h>

#include "wg/peer.h"
#include "wire/addr.h"
#include "wire/bytes.h"

_Static_assert(sizeof(struct wg_endpoint) == 4 * WG_ENDPOINT_WORDS, "an endpoint is copied by words");

int wg_endpoint_parse(struct wg_endpoint *e, const char *text, size_t n)
{
    struct addr a;
    if (addr_parse(&a, text, n) != TEXT_OK || a.port == 0)
        return -EINVAL;
    addr_unmap(&a);
    *e = (struct wg_endpoint){.family = a.family, .port = a.port, .scope = a.scope};
    memcpy(e->address, a.ip, addr_len(a.family));
    return 0;
}

size_t wg_endpoint_format(const struct wg_endpoint *e, char text[WG_ENDPOINT_TEXT])
{
    char full[ADDR_TEXT_SIZE];
    struct addr a = {.family = e->family, .port = e->port, .scope = e->scope};
    text[0] = '\0';
    if (e->family == WG_FAMILY_NONE)
        return 0;
    memcpy(a.ip, e->address, addr_len(a.family));
    size_t n = addr_format(&a, full);
    if (n >= WG_ENDPOINT_TEXT) /* not with an unmapped address: 1 + 39 + 1 + 10 + 2 + 5 */
        return 0;
    memcpy(text, full, n + 1);
    return n;
}

bool wg_endpoint_get(const struct wg_endpoint_lock *lock, struct wg_endpoint *e)
{
    uint32_t words[WG_ENDPOINT_WORDS], before, after;
    do {
        before = __atomic_load_n(&lock->count, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; i < WG_ENDPOINT_WORDS; i++)
            words[i] = __atomic_load_n(&lock->words[i], __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = __atomic_load_n(&lock->count, __ATOMIC_RELAXED);
    } while (before != after || before & 1);
    memcpy(e, words, sizeof *e);
    return e->family != WG_FAMILY_NONE;
}

/* The owner alone writes, so it may compare without the lock: nothing is written where nothing has changed. */
bool wg_endpoint_put(struct wg_endpoint_lock *lock, const struct wg_endpoint *e)
{
    if (memcmp(lock->words, e, sizeof *e) == 0)
        return false;
    uint32_t words[WG_ENDPOINT_WORDS];
    memcpy(words, e, sizeof words);
    __atomic_store_n(&lock->count, lock->count + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (unsigned i = 0; i < WG_ENDPOINT_WORDS; i++)
        __atomic_store_n(&lock->words[i], words[i], __ATOMIC_RELAXED);
    __atomic_store_n(&lock->count, lock->count + 1, __ATOMIC_RELEASE);
    return true;
}
