/* The choice of an implementation, and what needs none. */
#include "crypto/chacha20poly1305.h"

#include <string.h>

#include "crypto/chacha20poly1305_impl.h"
#include "crypto/secret.h"
#include "wire/bytes.h"

/* Best first; what x86-64 has comes before the others. */
#ifdef FV_CHACHA_X86
#define X86_IMPLS(others) &chacha_avx512, &chacha_avx2, others
#define X86_NAMES(others) "avx512", "avx2", others
#else
#define X86_IMPLS(others) others
#define X86_NAMES(others) others
#endif
static const struct chacha_impl *const impls[] = {X86_IMPLS(&chacha_libcrypto), &chacha_portable};
static const char *const names[] = {X86_NAMES("libcrypto"), "portable", NULL};
_Static_assert(ARRAY_COUNT(names) == ARRAY_COUNT(impls) + 1, "one name for each implementation");

/* Written at start; a first call that finds nothing chosen writes what every other thread would write too. */
static const struct chacha_impl *chosen;

const char *const *chacha_names(void)
{
    return names;
}

static const struct chacha_impl *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(impls); i++)
        if (strcmp(impls[i]->name, name) == 0)
            return impls[i];
    return NULL;
}

bool chacha_usable(const char *name)
{
    const struct chacha_impl *impl = find(name);
    return impl && impl->usable();
}

static void choose(const struct chacha_impl *impl)
{
    __atomic_store_n(&chosen, impl, __ATOMIC_RELAXED);
}

const char *chacha_select(unsigned allowed)
{
    size_t i = 0;
    while (i < ARRAY_COUNT(impls) - 1 && !((allowed >> i & 1) && impls[i]->usable()))
        i++;
    choose(impls[i]);
    return impls[i]->name;
}

bool chacha_select_name(const char *name)
{
    const struct chacha_impl *impl = find(name);
    if (!impl || !impl->usable())
        return false;
    choose(impl);
    return true;
}

static inline const struct chacha_impl *current(void)
{
    const struct chacha_impl *impl = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    if (__builtin_expect(!impl, 0)) {
        chacha_select(~0u);
        impl = __atomic_load_n(&chosen, __ATOMIC_RELAXED);
    }
    return impl;
}

const char *chacha_selected(void)
{
    return current()->name;
}

void chacha_seal_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    if (n)
        current()->seal_batch(key, jobs, n);
}

unsigned chacha_open_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    return n ? current()->open_batch(key, jobs, n) : 0;
}

void chacha_seal(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                 const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    current()->seal(dst, src, n, ad, ad_len, nonce, key);
}

bool chacha_open(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                 const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    return n >= CHACHA_TAG && current()->open(dst, src, n, ad, ad_len, nonce, key);
}

/* draft-irtf-cfrg-xchacha-03, 2.3: a subkey, and the nonce's rest behind four zero bytes. */
static void xchacha_derive(uint8_t subkey[32], uint8_t short_nonce[12], const uint8_t nonce[24], const uint8_t key[32])
{
    hchacha(subkey, key, nonce);
    memset(short_nonce, 0, 4);
    memcpy(short_nonce + 4, nonce + 16, 8);
}

void xchacha_seal(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                  const uint8_t nonce[XCHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    uint8_t subkey[32], short_nonce[12];
    xchacha_derive(subkey, short_nonce, nonce, key);
    chacha_seal(dst, src, n, ad, ad_len, short_nonce, subkey);
    secret_wipe(subkey, sizeof subkey);
}

bool xchacha_open(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                  const uint8_t nonce[XCHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    uint8_t subkey[32], short_nonce[12];
    xchacha_derive(subkey, short_nonce, nonce, key);
    bool ok = chacha_open(dst, src, n, ad, ad_len, short_nonce, subkey);
    secret_wipe(subkey, sizeof subkey);
    return ok;
}
