/* Text forms of bytes and numbers: hex, base64, percent-encoding, decimals.
 *
 * Input is a pointer and a length, never a terminated string; output goes to the caller's memory. Digits of hex and
 * base64 are turned by arithmetic without branches or table look-ups on their value, because keys pass here. */
#ifndef FV_WIRE_TEXT_H
#define FV_WIRE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum text_error {
    TEXT_OK,
    TEXT_EMPTY,     /* nothing where a value is needed */
    TEXT_LENGTH,    /* too few or too many characters for the value wanted */
    TEXT_CHARACTER, /* a character that does not belong */
    TEXT_RANGE,     /* a number outside its range */
    TEXT_SPACE,     /* the caller's memory is too small for the result */
    TEXT_ERROR_COUNT,
};

/* "is empty", "has the wrong length", ...: to be put after the name of what was read. */
const char *text_error_name(enum text_error e);

/* Exactly out_len bytes from exactly 2 * out_len hex digits of either case. */
enum text_error text_hex_decode(const char *s, size_t n, uint8_t *out, size_t out_len);
/* 2 * n lower-case digits and a terminating 0: out has 2 * n + 1 bytes. */
void text_hex_encode(char *out, const uint8_t *bytes, size_t n);

/* RFC 4648, both alphabets ("+/" and "-_", even mixed), padding present, short or missing. What cannot be the end of
 * an encoding (a lone last character, bits set beyond the last byte) is an error. *len: bytes written. */
enum text_error text_base64_decode(const char *s, size_t n, uint8_t *out, size_t size, size_t *len);
/* Exactly out_len bytes, e.g. 32 for a key of 43 or 44 characters. */
enum text_error text_base64_exact(const char *s, size_t n, uint8_t *out, size_t out_len);
#define TEXT_BASE64_SIZE(n) (((n) + 2) / 3 * 4 + 1)
/* Standard alphabet, padded, terminated: out has TEXT_BASE64_SIZE(n) bytes. */
void text_base64_encode(char *out, const uint8_t *bytes, size_t n);

/* RFC 3986 2.1. `out` may be `s`; *len: bytes written, not terminated. A '%' without two hex digits is an error. */
enum text_error text_percent_decode(const char *s, size_t n, char *out, size_t size, size_t *len);
/* The plan's encoding: bytes outside 0x20..0x7e, '%' and the first and last character where it is a space. Terminated;
 * out_size >= 3 * n + 1 always suffices. */
enum text_error text_percent_encode(const char *s, size_t n, char *out, size_t size, size_t *len);

/* Decimal digits only (no sign, no space), min <= value <= max. *out is untouched on error. */
enum text_error text_decimal(const char *s, size_t n, uint64_t min, uint64_t max, uint64_t *out);
/* The same with an optional "0x" for hex, as WireGuard's fwmark is written. */
enum text_error text_number(const char *s, size_t n, uint64_t min, uint64_t max, uint64_t *out);

#endif
