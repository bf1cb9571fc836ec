#include "wire/text.h"
#include "wire/bytes.h"

static const char *const error_names[] = {
    [TEXT_OK] = "is fine",
    [TEXT_EMPTY] = "is empty",
    [TEXT_LENGTH] = "has the wrong length",
    [TEXT_CHARACTER] = "has a character that does not belong",
    [TEXT_RANGE] = "is out of range",
    [TEXT_SPACE] = "is too long",
};
_Static_assert(ARRAY_COUNT(error_names) == TEXT_ERROR_COUNT, "a name for every error");

const char *text_error_name(enum text_error e)
{
    return error_names[e];
}

/* All ones where low <= c <= high, else 0; without a branch. c, low, high < 256. */
static inline int32_t between(int32_t c, int32_t low, int32_t high)
{
    return ((low - 1 - c) & (c - high - 1)) >> 31;
}

/* 0..15, or -1. */
static inline int32_t hex_value(uint8_t c)
{
    int32_t v = -1;
    v += between(c, '0', '9') & (c - '0' + 1);
    v += between(c, 'a', 'f') & (c - 'a' + 11);
    v += between(c, 'A', 'F') & (c - 'A' + 11);
    return v;
}

enum text_error text_hex_decode(const char *s, size_t n, uint8_t *out, size_t out_len)
{
    if (n == 0 && out_len)
        return TEXT_EMPTY;
    if (n != 2 * out_len)
        return TEXT_LENGTH;
    int32_t bad = 0;
    for (size_t i = 0; i < out_len; i++) {
        int32_t high = hex_value((uint8_t)s[2 * i]), low = hex_value((uint8_t)s[2 * i + 1]);
        bad |= high | low;
        out[i] = (uint8_t)((uint32_t)high << 4 | ((uint32_t)low & 15));
    }
    return bad < 0 ? TEXT_CHARACTER : TEXT_OK;
}

static inline char hex_digit(uint32_t v)
{
    return (char)('0' + v + (((9u - v) >> 8) & ('a' - '0' - 10)));
}

void text_hex_encode(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        *out++ = hex_digit(bytes[i] >> 4);
        *out++ = hex_digit(bytes[i] & 15);
    }
    *out = 0;
}

/* 0..63, or -1. */
static inline int32_t base64_value(uint8_t c)
{
    int32_t v = -1;
    v += between(c, 'A', 'Z') & (c - 'A' + 1);
    v += between(c, 'a', 'z') & (c - 'a' + 27);
    v += between(c, '0', '9') & (c - '0' + 53);
    v += (between(c, '+', '+') | between(c, '-', '-')) & 63;
    v += (between(c, '/', '/') | between(c, '_', '_')) & 64;
    return v;
}

enum text_error text_base64_decode(const char *s, size_t n, uint8_t *out, size_t size, size_t *len)
{
    size_t pad = 0;
    while (pad < 2 && pad < n && s[n - 1 - pad] == '=')
        pad++;
    n -= pad;
    if (n == 0)
        return pad ? TEXT_LENGTH : TEXT_EMPTY;
    size_t rest = n % 4, bytes = n / 4 * 3 + (rest ? rest - 1 : 0);
    if (rest == 1 || (pad && rest + pad > 4) || (pad && rest == 0))
        return TEXT_LENGTH;
    if (bytes > size)
        return TEXT_SPACE;
    int32_t bad = 0;
    uint32_t bits = 0;
    size_t have = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t v = base64_value((uint8_t)s[i]);
        bad |= v;
        bits = bits << 6 | ((uint32_t)v & 63);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[at++] = (uint8_t)(bits >> have);
            bits &= (1u << have) - 1;
        }
    }
    if (bad < 0 || bits)
        return TEXT_CHARACTER;
    *len = at;
    return TEXT_OK;
}

enum text_error text_base64_exact(const char *s, size_t n, uint8_t *out, size_t out_len)
{
    size_t len;
    enum text_error e = text_base64_decode(s, n, out, out_len, &len);
    if (e == TEXT_SPACE)
        return TEXT_LENGTH;
    return e == TEXT_OK && len != out_len ? TEXT_LENGTH : e;
}

static inline char base64_digit(uint32_t v)
{
    int32_t c = (int32_t)v, d = 0;
    d += between(c, 0, 25) & (c + 'A');
    d += between(c, 26, 51) & (c - 26 + 'a');
    d += between(c, 52, 61) & (c - 52 + '0');
    d += between(c, 62, 62) & '+';
    d += between(c, 63, 63) & '/';
    return (char)d;
}

void text_base64_encode(char *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        size_t left = MIN(n - i, (size_t)3);
        uint32_t v = (uint32_t)bytes[i] << 16;
        if (left > 1)
            v |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2)
            v |= bytes[i + 2];
        *out++ = base64_digit(v >> 18);
        *out++ = base64_digit(v >> 12 & 63);
        *out++ = left > 1 ? base64_digit(v >> 6 & 63) : '=';
        *out++ = left > 2 ? base64_digit(v & 63) : '=';
    }
    *out = 0;
}

enum text_error text_percent_decode(const char *s, size_t n, char *out, size_t size, size_t *len)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '%') {
            uint8_t byte;
            if (n - i < 3 || text_hex_decode(s + i + 1, 2, &byte, 1) != TEXT_OK)
                return TEXT_CHARACTER;
            c = (char)byte;
            i += 2;
        }
        if (at == size)
            return TEXT_SPACE;
        out[at++] = c;
    }
    *len = at;
    return TEXT_OK;
}

enum text_error text_percent_encode(const char *s, size_t n, char *out, size_t size, size_t *len)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)s[i];
        bool edge_space = c == ' ' && (i == 0 || i == n - 1), plain = c >= 0x20 && c <= 0x7e && c != '%' && !edge_space;
        if (size < (plain ? 2u : 4u) || at > size - (plain ? 2 : 4)) /* the terminating 0 too */
            return TEXT_SPACE;
        if (plain) {
            out[at++] = (char)c;
        } else {
            out[at++] = '%';
            out[at++] = digits[c >> 4];
            out[at++] = digits[c & 15];
        }
    }
    if (at == size)
        return TEXT_SPACE;
    out[at] = 0;
    *len = at;
    return TEXT_OK;
}

static enum text_error number(const char *s, size_t n, uint64_t base, uint64_t min, uint64_t max, uint64_t *out)
{
    if (n == 0)
        return TEXT_EMPTY;
    uint64_t v = 0;
    bool over = false;
    for (size_t i = 0; i < n; i++) {
        int32_t d = hex_value((uint8_t)s[i]);
        if (d < 0 || (uint64_t)d >= base)
            return TEXT_CHARACTER;
        over |= v > (UINT64_MAX - (uint64_t)d) / base;
        v = v * base + (uint64_t)d;
    }
    if (over || v < min || v > max)
        return TEXT_RANGE;
    *out = v;
    return TEXT_OK;
}

enum text_error text_decimal(const char *s, size_t n, uint64_t min, uint64_t max, uint64_t *out)
{
    return number(s, n, 10, min, max, out);
}

enum text_error text_number(const char *s, size_t n, uint64_t min, uint64_t max, uint64_t *out)
{
    if (n > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'))
        return number(s + 2, n - 2, 16, min, max, out);
    return number(s, n, 10, min, max, out);
}
