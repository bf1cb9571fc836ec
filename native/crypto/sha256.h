/* SHA-256 of a whole message, for the files that a plan names by digest. */
#ifndef FV_CRYPTO_SHA256_H
#define FV_CRYPTO_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_OUT = 32 };

/* False only when libcrypto has no memory. */
bool sha256(uint8_t out[SHA256_OUT], const void *p, size_t n);

#endif
