#include "wire/addr.h"
#include "wire/bytes.h"

/* "1.2.3.4": four decimals without leading zeros (where some programs read octal, none is right). */
static enum text_error parse4(const char *s, size_t n, uint8_t ip[4])
{
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        size_t begin = at;
        while (at < n && s[at] >= '0' && s[at] <= '9')
            at++;
        uint64_t v;
        if (at == begin || (at - begin > 1 && s[begin] == '0'))
            return TEXT_CHARACTER;
        if (text_decimal(s + begin, at - begin, 0, 255, &v) != TEXT_OK)
            return TEXT_RANGE;
        ip[i] = (uint8_t)v;
        if (i < 3 && (at == n || s[at++] != '.'))
            return TEXT_CHARACTER;
    }
    return at == n ? TEXT_OK : TEXT_CHARACTER;
}

static int hex_digit_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* RFC 4291 2.2: groups, at most one "::", an IPv4 tail. */
static enum text_error parse6(const char *s, size_t n, uint8_t ip[16])
{
    uint8_t head[16];
    size_t at = 0, have = 0, gap = SIZE_MAX;
    if (n >= 2 && s[0] == ':' && s[1] == ':') {
        gap = 0;
        at = 2;
    }
    while (at < n) {
        size_t begin = at;
        uint32_t v = 0;
        for (int d; at < n && (d = hex_digit_value(s[at])) >= 0; at++) {
            if (at - begin == 4)
                return TEXT_CHARACTER;
            v = v << 4 | (uint32_t)d;
        }
        if (at < n && s[at] == '.') {
            if (have > 12)
                return TEXT_LENGTH;
            enum text_error e = parse4(s + begin, n - begin, head + have);
            if (e)
                return e;
            have += 4;
            break;
        }
        if (at == begin)
            return TEXT_CHARACTER;
        if (have == 16)
            return TEXT_LENGTH;
        store_be16(head + have, (uint16_t)v);
        have += 2;
        if (at == n)
            break;
        if (s[at++] != ':')
            return TEXT_CHARACTER;
        if (at < n && s[at] == ':') {
            if (gap != SIZE_MAX)
                return TEXT_CHARACTER;
            gap = have;
            at++;
        } else if (at == n) {
            return TEXT_CHARACTER;
        }
    }
    if (gap == SIZE_MAX ? have != 16 : have > 14)
        return TEXT_LENGTH;
    if (gap == SIZE_MAX)
        gap = have;
    memset(ip, 0, 16);
    memcpy(ip, head, gap);
    memcpy(ip + 16 - (have - gap), head + gap, have - gap);
    return TEXT_OK;
}

enum text_error addr_parse_ip(struct addr *a, const char *s, size_t n)
{
    if (n == 0)
        return TEXT_EMPTY;
    struct addr r = {0};
    enum text_error e;
    if (!memchr(s, ':', n)) {
        r.family = 4;
        e = parse4(s, n, r.ip);
    } else {
        r.family = 6;
        const char *zone = memchr(s, '%', n);
        size_t ip_len = zone ? (size_t)(zone - s) : n;
        e = parse6(s, ip_len, r.ip);
        if (e == TEXT_OK && zone) {
            uint64_t scope;
            e = text_decimal(zone + 1, n - ip_len - 1, 0, UINT32_MAX, &scope);
            if (e == TEXT_OK)
                r.scope = (uint32_t)scope;
        }
    }
    if (e == TEXT_OK)
        *a = r;
    return e;
}

enum text_error addr_parse(struct addr *a, const char *s, size_t n)
{
    if (n == 0)
        return TEXT_EMPTY;
    const char *colon = memrchr(s, ':', n);
    if (!colon)
        return TEXT_LENGTH;
    const char *ip = s;
    size_t ip_len = (size_t)(colon - s);
    if (s[0] == '[') {
        if (ip_len < 2 || s[ip_len - 1] != ']')
            return TEXT_CHARACTER;
        ip++;
        ip_len -= 2;
        if (!memchr(ip, ':', ip_len))
            return TEXT_CHARACTER; /* brackets are for IPv6 */
    } else if (memchr(s, ':', ip_len)) {
        return TEXT_CHARACTER; /* IPv6 without brackets: where the port begins is a guess */
    }
    uint64_t port;
    struct addr r;
    enum text_error e = text_decimal(colon + 1, n - (size_t)(colon + 1 - s), 0, 65535, &port);
    if (e == TEXT_OK)
        e = addr_parse_ip(&r, ip, ip_len);
    if (e)
        return e;
    r.port = (uint16_t)port;
    *a = r;
    return TEXT_OK;
}

enum text_error prefix_parse(struct prefix *p, const char *s, size_t n)
{
    if (n == 0)
        return TEXT_EMPTY;
    const char *slash = memchr(s, '/', n);
    size_t ip_len = slash ? (size_t)(slash - s) : n;
    if (memchr(s, '%', ip_len))
        return TEXT_CHARACTER;
    struct addr a;
    enum text_error e = addr_parse_ip(&a, s, ip_len);
    uint64_t bits = 0;
    if (e == TEXT_OK) {
        bits = a.family == 4 ? 32 : 128;
        if (slash)
            e = text_decimal(slash + 1, n - ip_len - 1, 0, bits, &bits);
    }
    if (e)
        return e;
    *p = (struct prefix){.family = a.family, .bits = (uint8_t)bits};
    memcpy(p->ip, a.ip, sizeof p->ip);
    return TEXT_OK;
}

static char *put_decimal(char *out, uint32_t v)
{
    char digits[10];
    int n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *out++ = digits[--n];
    return out;
}

static char *put4(char *out, const uint8_t *ip)
{
    for (int i = 0; i < 4; i++) {
        if (i)
            *out++ = '.';
        out = put_decimal(out, ip[i]);
    }
    return out;
}

/* RFC 5952 4: lower case, no leading zeros, "::" for the longest run (the first of equals) of two or more groups. */
static char *put6(char *out, const uint8_t *ip)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(ip, mapped, 12) == 0) {
        memcpy(out, "::ffff:", 7);
        return put4(out + 7, ip + 12);
    }
    int best = 8, best_len = 1;
    for (int i = 0; i < 8; i++) {
        int k = i;
        while (k < 8 && load_be16(ip + 2 * k) == 0)
            k++;
        if (k - i > best_len) {
            best = i;
            best_len = k - i;
        }
    }
    for (int i = 0; i < 8; i++) {
        if (i == best) {
            *out++ = ':';
            *out++ = ':';
            i += best_len - 1;
            continue;
        }
        if (i && i != best + best_len)
            *out++ = ':';
        uint32_t v = load_be16(ip + 2 * i);
        for (int shift = v > 0xfff ? 12 : v > 0xff ? 8 : v > 0xf ? 4 : 0; shift >= 0; shift -= 4)
            *out++ = "0123456789abcdef"[v >> shift & 15];
    }
    return out;
}

static char *put_ip(char *out, const struct addr *a)
{
    if (a->family == 4)
        return put4(out, a->ip);
    out = put6(out, a->ip);
    if (a->scope) {
        *out++ = '%';
        out = put_decimal(out, a->scope);
    }
    return out;
}

size_t addr_format_ip(const struct addr *a, char *out)
{
    char *end = put_ip(out, a);
    *end = 0;
    return (size_t)(end - out);
}

size_t addr_format(const struct addr *a, char *out)
{
    char *end = out;
    if (a->family != 4)
        *end++ = '[';
    end = put_ip(end, a);
    if (a->family != 4)
        *end++ = ']';
    *end++ = ':';
    end = put_decimal(end, a->port);
    *end = 0;
    return (size_t)(end - out);
}

size_t prefix_format(const struct prefix *p, char *out)
{
    char *end = p->family == 4 ? put4(out, p->ip) : put6(out, p->ip);
    *end++ = '/';
    end = put_decimal(end, p->bits);
    *end = 0;
    return (size_t)(end - out);
}

bool addr_equal_ip(const struct addr *a, const struct addr *b)
{
    return a->family == b->family && a->scope == b->scope && memcmp(a->ip, b->ip, addr_len(a->family)) == 0;
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
    return a->port == b->port && addr_equal_ip(a, b);
}

void addr_unmap(struct addr *a)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (a->family != 6 || memcmp(a->ip, mapped, 12) != 0)
        return;
    a->family = 4;
    a->scope = 0;
    memcpy(a->ip, a->ip + 12, 4);
    memset(a->ip + 4, 0, 12);
}

bool addr_is_link_local(const struct addr *a)
{
    if (a->family == 4)
        return a->ip[0] == 169 && a->ip[1] == 254;
    return a->ip[0] == 0xfe && (a->ip[1] & 0xc0) == 0x80;
}

uint32_t addr_hash(const struct addr *a, uint32_t seed)
{
    uint64_t h = (uint64_t)seed << 32 | (uint32_t)a->port << 8 | a->family;
    h = (h ^ a->scope) * 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < addr_len(a->family); i += 4)
        h = ((h ^ h >> 29) ^ load_be32(a->ip + i)) * 0x9e3779b97f4a7c15;
    return (uint32_t)(h >> 32) ^ (uint32_t)h;
}

void prefix_mask(struct prefix *p)
{
    for (unsigned i = 0; i < sizeof p->ip; i++) {
        unsigned keep = p->bits > i * 8 ? MIN(p->bits - i * 8, 8u) : 0;
        p->ip[i] &= (uint8_t)(0xff00 >> keep);
    }
}

bool prefix_contains(const struct prefix *p, uint8_t family, const uint8_t *ip)
{
    if (p->family != family)
        return false;
    unsigned whole = p->bits / 8, rest = p->bits % 8;
    return memcmp(p->ip, ip, whole) == 0 && (!rest || ((p->ip[whole] ^ ip[whole]) & (uint8_t)(0xff00 >> rest)) == 0);
}
