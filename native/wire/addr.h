/* Internet addresses with port and scope, and prefixes; as numbers in memory and as text.
 *
 * One struct for both families, compared and hashed without looking at padding. IPv4 addresses use ip[0..3], the rest
 * is zero. An IPv4-mapped IPv6 address (::ffff:a.b.c.d) is never kept: addr_unmap at the socket's edge. */
#ifndef FV_WIRE_ADDR_H
#define FV_WIRE_ADDR_H

#include "wire/text.h"

struct addr {
    uint8_t family; /* 4, 6; 0: none */
    uint16_t port;
    uint32_t scope; /* interface index of a link-local IPv6 address, else 0 */
    uint8_t ip[16];
};

struct prefix {
    uint8_t family; /* 4, 6; 0: none */
    uint8_t bits;   /* 0..32, 0..128 */
    uint8_t ip[16]; /* host bits as given; prefix_mask clears them */
};

/* "[2001:db8::1%4294967295]:65535" and its 0, with room for a v4-mapped tail. */
#define ADDR_TEXT_SIZE 72
#define PREFIX_TEXT_SIZE 56

/* Bytes of an address: 4 or 16. */
static inline size_t addr_len(uint8_t family)
{
    return family == 4 ? 4 : 16;
}

/* "1.2.3.4" or "2001:db8::1" or "fe80::1%3": no port, no brackets. Port 0. */
enum text_error addr_parse_ip(struct addr *a, const char *s, size_t n);
/* "1.2.3.4:51820", "[2001:db8::1]:51820", "[fe80::1%3]:51820" (scope by number). */
enum text_error addr_parse(struct addr *a, const char *s, size_t n);
/* "10.0.0.0/8", "fd00::/64"; without "/" the whole address. */
enum text_error prefix_parse(struct prefix *p, const char *s, size_t n);

/* RFC 5952 text, terminated; returns its length. out has ADDR_TEXT_SIZE (PREFIX_TEXT_SIZE) bytes. */
size_t addr_format_ip(const struct addr *a, char *out);
size_t addr_format(const struct addr *a, char *out); /* with port, and brackets around IPv6 */
size_t prefix_format(const struct prefix *p, char *out);

bool addr_equal(const struct addr *a, const struct addr *b);    /* port and scope too */
bool addr_equal_ip(const struct addr *a, const struct addr *b); /* family, scope and address */
/* ::ffff:a.b.c.d becomes a.b.c.d; anything else stays. */
void addr_unmap(struct addr *a);
bool addr_is_link_local(const struct addr *a);
uint32_t addr_hash(const struct addr *a, uint32_t seed);

void prefix_mask(struct prefix *p);
/* ip: 4 or 16 bytes by family. */
bool prefix_contains(const struct prefix *p, uint8_t family, const uint8_t *ip);

#endif
