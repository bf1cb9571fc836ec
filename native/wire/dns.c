#include "wire/dns.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"

enum { CLASS_IN = 1, FLAG_RESPONSE = 0x8000, FLAG_TRUNCATED = 0x0200, FLAG_RECURSE = 0x0100, OPCODE = 0x7800 };
enum { RCODE_OK = 0, RCODE_NO_NAME = 3 };

const char *const dns_result_names[] = {
    [DNS_FOUND] = "found",       [DNS_NO_DATA] = "no such record", [DNS_NO_NAME] = "no such name",
    [DNS_ALIAS] = "alias",       [DNS_TRUNCATED] = "truncated",    [DNS_FAILED] = "server failure",
    [DNS_MISMATCH] = "mismatch", [DNS_MALFORMED] = "malformed",
};
_Static_assert(ARRAY_COUNT(dns_result_names) == DNS_RESULT_COUNT, "a name per result");

static uint8_t lower(uint8_t byte)
{
    return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte + 32) : byte;
}

int dns_name_parse(struct dns_name *name, const char *text, size_t n)
{
    size_t at = 0, label = 0; /* label: where the current one's length byte is */

    if (n && text[n - 1] == '.')
        n--;
    /* A length byte before the first label, the zero behind the last one. */
    if (n == 0 || n + 2 > DNS_NAME_SIZE)
        return -EINVAL;
    name->bytes[at++] = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = lower((uint8_t)text[i]);
        if (byte == '.') {
            if (name->bytes[label] == 0)
                return -EINVAL;
            label = at;
            name->bytes[at++] = 0;
            continue;
        }
        bool good = (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '-' || byte == '_';
        if (!good || name->bytes[label] == 63)
            return -EINVAL;
        name->bytes[label]++;
        name->bytes[at++] = byte;
    }
    if (name->bytes[label] == 0)
        return -EINVAL;
    name->bytes[at++] = 0;
    name->length = (uint8_t)at;
    return 0;
}

size_t dns_name_format(const struct dns_name *name, char out[DNS_TEXT_SIZE])
{
    size_t n = 0;

    for (size_t at = 0; at < name->length && name->bytes[at];) {
        size_t label = name->bytes[at++];
        if (n)
            out[n++] = '.';
        for (; label && at < name->length; label--, at++) {
            uint8_t byte = name->bytes[at];
            if (n + 5 > DNS_TEXT_SIZE)
                break;
            if (byte > 0x20 && byte < 0x7f && byte != '.' && byte != '\\') {
                out[n++] = (char)byte;
                continue;
            }
            out[n++] = '\\';
            out[n++] = (char)('0' + byte / 100);
            out[n++] = (char)('0' + byte / 10 % 10);
            out[n++] = (char)('0' + byte % 10);
        }
        if (n + 5 > DNS_TEXT_SIZE)
            break;
    }
    out[n] = '\0';
    return n;
}

bool dns_name_equal(const struct dns_name *a, const struct dns_name *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

size_t dns_query_build(uint8_t out[DNS_QUERY_SIZE], uint16_t id, const struct dns_name *name, enum dns_type type)
{
    memset(out, 0, DNS_HEADER);
    store_be16(out, id);
    store_be16(out + 2, FLAG_RECURSE);
    store_be16(out + 4, 1);
    memcpy(out + DNS_HEADER, name->bytes, name->length);
    store_be16(out + DNS_HEADER + name->length, (uint16_t)type);
    store_be16(out + DNS_HEADER + name->length + 2, CLASS_IN);
    return DNS_HEADER + name->length + 4u;
}

/* Reads the name at *at, in lower case, and moves *at behind it where it stands. A pointer must lead to before the
 * place where the labels read so far began: such a chain ends by itself. */
static bool read_name(const uint8_t *message, size_t n, size_t *at, struct dns_name *name)
{
    size_t from = *at, limit = *at, length = 0;
    bool jumped = false;

    for (;;) {
        if (from >= n)
            return false;
        uint8_t byte = message[from];
        if (byte >= 0xc0) {
            if (from + 2 > n)
                return false;
            size_t to = load_be16(message + from) & 0x3fffu;
            if (to >= limit || to < DNS_HEADER)
                return false;
            if (!jumped)
                *at = from + 2;
            jumped = true;
            from = limit = to;
            continue;
        }
        if (byte > 63 || from + 1 + byte > n || length + 1 + byte > DNS_NAME_SIZE)
            return false;
        name->bytes[length++] = byte;
        from++;
        for (unsigned i = 0; i < byte; i++)
            name->bytes[length++] = lower(message[from++]);
        if (byte == 0)
            break;
    }
    if (!jumped)
        *at = from;
    name->length = (uint8_t)length;
    return true;
}

struct record {
    struct dns_name owner;
    uint16_t type, class;
    uint32_t ttl;
    size_t data, length; /* where its data is */
};

static bool read_record(const uint8_t *message, size_t n, size_t *at, struct record *r)
{
    if (!read_name(message, n, at, &r->owner) || n - *at < 10)
        return false;
    r->type = load_be16(message + *at);
    r->class = load_be16(message + *at + 2);
    r->ttl = load_be32(message + *at + 4);
    /* RFC 2181 section 8: the top bit set means zero. */
    if (r->ttl >> 31)
        r->ttl = 0;
    r->length = load_be16(message + *at + 8);
    r->data = *at + 10;
    if (r->length > n - r->data)
        return false;
    *at = r->data + r->length;
    return true;
}

static void take_address(struct dns_answer *answer, const uint8_t *data, enum dns_type type)
{
    struct addr *a = &answer->addresses[answer->count];

    if (answer->count == DNS_ADDRESSES)
        return;
    *a = (struct addr){.family = type == DNS_A ? 4 : 6};
    memcpy(a->ip, data, addr_len(a->family));
    addr_unmap(a);
    answer->count++;
}

/* The answer section, once per step of the alias chain, since records may stand in any order. */
static enum dns_result read_answers(struct dns_answer *answer, const uint8_t *message, size_t n, size_t start,
                                    unsigned records, struct dns_name *current, enum dns_type type)
{
    struct record r;

    answer->ttl = UINT32_MAX;
    for (unsigned hop = 0; hop <= DNS_CHAIN; hop++) {
        struct dns_name next = {0};
        size_t at = start;
        for (unsigned i = 0; i < records; i++) {
            if (!read_record(message, n, &at, &r))
                return DNS_MALFORMED;
            if (r.class != CLASS_IN || !dns_name_equal(&r.owner, current))
                continue;
            if (r.type == type) {
                if (r.length != (type == DNS_A ? 4u : 16u))
                    return DNS_MALFORMED;
                take_address(answer, message + r.data, type);
                answer->ttl = MIN(answer->ttl, r.ttl);
            } else if (r.type == DNS_CNAME && !next.length) {
                size_t data = r.data;
                if (!read_name(message, n, &data, &next) || data != r.data + r.length)
                    return DNS_MALFORMED;
                answer->ttl = MIN(answer->ttl, r.ttl);
            }
        }
        if (answer->count)
            return DNS_FOUND;
        if (!next.length)
            return hop ? DNS_ALIAS : DNS_NO_DATA;
        *current = next;
    }
    return DNS_MALFORMED; /* a loop */
}

/* How long "no" holds: the lesser of the SOA's TTL and its last field (RFC 2308 section 5); 0 without an SOA. */
static bool read_negative(struct dns_answer *answer, const uint8_t *message, size_t n, size_t at, unsigned records)
{
    struct record r;
    struct dns_name ignored;

    answer->ttl = 0;
    for (unsigned i = 0; i < records; i++) {
        if (!read_record(message, n, &at, &r))
            return false;
        if (r.type != DNS_SOA || r.class != CLASS_IN)
            continue;
        size_t data = r.data;
        bool names = read_name(message, n, &data, &ignored); /* the primary server, then the mailbox */
        names = names && read_name(message, n, &data, &ignored);
        if (!names || data + 20 != r.data + r.length)
            return false;
        answer->ttl = MIN(r.ttl, load_be32(message + data + 16));
        break;
    }
    return true;
}

enum dns_result dns_answer_parse(struct dns_answer *answer, const uint8_t *message, size_t n, uint16_t id,
                                 const struct dns_name *name, enum dns_type type)
{
    struct dns_name asked, current = *name;
    struct record r;
    size_t at = DNS_HEADER;

    answer->count = 0;
    answer->ttl = 0;
    answer->target.length = 0;
    answer->rcode = 0;
    if (n < DNS_HEADER || load_be16(message) != id)
        return DNS_MISMATCH;
    uint16_t flags = load_be16(message + 2);
    unsigned answers = load_be16(message + 6), authority = load_be16(message + 8);
    if (!(flags & FLAG_RESPONSE) || (flags & OPCODE) || load_be16(message + 4) != 1 ||
        !read_name(message, n, &at, &asked) || n - at < 4 || !dns_name_equal(&asked, name) ||
        load_be16(message + at) != type || load_be16(message + at + 2) != CLASS_IN)
        return DNS_MISMATCH;
    at += 4;
    answer->rcode = flags & 15;
    if (flags & FLAG_TRUNCATED)
        return DNS_TRUNCATED;
    if (answer->rcode != RCODE_OK && answer->rcode != RCODE_NO_NAME)
        return DNS_FAILED;
    enum dns_result result = read_answers(answer, message, n, at, answers, &current, type);
    if (result == DNS_FOUND || result == DNS_MALFORMED) {
        if (result == DNS_MALFORMED)
            answer->count = 0;
        return result;
    }
    uint32_t alias_ttl = answer->ttl;
    for (unsigned i = 0; i < answers; i++) {
        if (!read_record(message, n, &at, &r))
            return DNS_MALFORMED;
    }
    if (!read_negative(answer, message, n, at, authority))
        return DNS_MALFORMED;
    if (answer->rcode == RCODE_NO_NAME)
        return DNS_NO_NAME;
    /* An alias with an SOA beside it: the server has followed it and its end has no such address (RFC 2308 section 2). */
    if (result == DNS_ALIAS && !answer->ttl) {
        answer->target = current;
        answer->ttl = alias_ttl;
        return DNS_ALIAS;
    }
    return DNS_NO_DATA;
}
