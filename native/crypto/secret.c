#include "crypto/secret.h"

#include <stdint.h>
#include <string.h>

void secret_wipe(void *p, size_t n)
{
    memset(p, 0, n);
    __asm__ volatile("" : : "r"(p) : "memory"); /* the compiler must take it that somebody reads the zeros */
}

/* Every byte is or-ed in and only the sum is looked at; the barrier keeps the compiler from leaving early. */
static bool none_set(uint8_t bits)
{
    __asm__ volatile("" : "+r"(bits));
    return bits == 0;
}

bool secret_equal(const void *a, const void *b, size_t n)
{
    const uint8_t *x = a, *y = b;
    uint8_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits |= x[i] ^ y[i];
    return none_set(bits);
}

bool secret_is_zero(const void *p, size_t n)
{
    const uint8_t *x = p;
    uint8_t bits = 0;
    for (size_t i = 0; i < n; i++)
        bits |= x[i];
    return none_set(bits);
}
