/* Handling of secret bytes: comparison whose time does not depend on them, and wiping that the compiler keeps. */
#ifndef FV_CRYPTO_SECRET_H
#define FV_CRYPTO_SECRET_H

#include <stdbool.h>
#include <stddef.h>

/* Overwrites n bytes with zeros, even where they are never read again. */
void secret_wipe(void *p, size_t n);

/* True when the n bytes at a and b are the same. */
bool secret_equal(const void *a, const void *b, size_t n);

/* True when the n bytes at p are all zero. */
bool secret_is_zero(const void *p, size_t n);

#endif
