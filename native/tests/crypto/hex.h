/* Hexadecimal text of the vectors to bytes. */
#ifndef FV_TESTS_CRYPTO_HEX_H
#define FV_TESTS_CRYPTO_HEX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes strlen(hex) / 2 bytes, returns how many. A vector that is not hexadecimal ends the test. */
static inline size_t hex_bytes(uint8_t *out, const char *hex)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0}, *end;
        out[i] = (uint8_t)strtoul(pair, &end, 16);
        if (end != pair + 2) {
            fprintf(stderr, "vector is not hexadecimal: %s\n", pair);
            exit(2);
        }
    }
    return n;
}

#endif
