/* DNS names and answers: the example of RFC 1035 section 4.1.4, answers made by hand, and every way to lie in one. */
#include <errno.h>

#include "tests/check.h"
#include "wire/bytes.h"
#include "wire/dns.h"

static struct dns_name name(const char *text)
{
    struct dns_name n = {0};

    CHECK_EQ(dns_name_parse(&n, text, strlen(text)), 0);
    return n;
}

static void names(void)
{
    struct dns_name n;
    char text[300], out[DNS_TEXT_SIZE];
    static const char *const bad[] = {"", ".", "..", "a..b", ".a", "a b", "a\xc3\xa9", "a/b", "a*b", "a.b.."};

    n = name("Www.Example.COM.");
    CHECK_EQ(n.length, 17);
    CHECK_MEM(n.bytes,
              "\x03www\x07"
              "example\x03"
              "com",
              17);
    CHECK_EQ(dns_name_format(&n, out), 15);
    CHECK_STR(out, "www.example.com");
    n = name("_x-1.a");
    CHECK_EQ(n.length, 8);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        CHECK_EQ(dns_name_parse(&n, bad[i], strlen(bad[i])), -EINVAL);
    /* A label of 63 and one of 64; a name of 253 characters (255 bytes) and one of 254. */
    memset(text, 'a', sizeof text);
    CHECK_EQ(dns_name_parse(&n, text, 63), 0);
    CHECK_EQ(dns_name_parse(&n, text, 64), -EINVAL);
    text[63] = text[127] = text[191] = '.';
    CHECK_EQ(dns_name_parse(&n, text, 253), 0);
    CHECK_EQ(n.length, 255);
    CHECK_EQ(dns_name_format(&n, out), 253);
    CHECK_EQ(dns_name_parse(&n, text, 254), -EINVAL);
}

static void query(void)
{
    static const uint8_t want[] = {0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 'v', 'p', 'n', 1, 'x', 0, 0, 28, 0, 1};
    uint8_t out[DNS_QUERY_SIZE];
    struct dns_name n = name("vpn.x");

    CHECK_EQ(dns_query_build(out, 0x1234, &n, DNS_AAAA), sizeof want);
    CHECK_MEM(out, want, sizeof want);
}

/* A message under construction. */
static uint8_t message[2048];
static size_t length;

static void bytes(const void *data, size_t n)
{
    memcpy(message + length, data, n);
    length += n;
}

static void begin(uint16_t flags, unsigned answers, unsigned authority)
{
    length = 12;
    memset(message, 0, sizeof message);
    store_be16(message, 0x1234);
    store_be16(message + 2, flags);
    store_be16(message + 4, 1);
    store_be16(message + 6, (uint16_t)answers);
    store_be16(message + 8, (uint16_t)authority);
    bytes("\x03vpn\x01x\x00\x00\x01\x00\x01", 11); /* vpn.x A IN, at 12 */
}

static void record(const void *owner, size_t owner_length, uint16_t type, uint32_t ttl, const void *data, size_t n)
{
    uint8_t fixed[10];

    bytes(owner, owner_length);
    store_be16(fixed, type);
    store_be16(fixed + 2, 1);
    store_be32(fixed + 4, ttl);
    store_be16(fixed + 8, (uint16_t)n);
    bytes(fixed, 10);
    bytes(data, n);
}

static struct dns_answer answer;

static enum dns_result parse(void)
{
    struct dns_name n = name("vpn.x");

    return dns_answer_parse(&answer, message, length, 0x1234, &n, DNS_A);
}

#define SELF "\xc0\x0c", 2
#define SOA_DATA "\x01m\x00\x01h\x00\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\x3c", 26 /* minimum: 60 */

static void answers(void)
{
    struct dns_name other;
    char text[DNS_TEXT_SIZE];

    /* 1: two addresses, the lesser TTL */
    begin(0x8180, 2, 0);
    record(SELF, DNS_A, 300, "\xc0\x00\x02\x01", 4);
    record(SELF, DNS_A, 60, "\xc0\x00\x02\x02", 4);
    CHECK_EQ(parse(), DNS_FOUND);
    CHECK_EQ(answer.count, 2);
    CHECK_EQ(answer.ttl, 60);
    CHECK_MEM(answer.addresses[1].ip, "\xc0\x00\x02\x02", 4);
    CHECK_EQ(answer.addresses[0].family, 4);
    /* 2: an alias behind its target, in upper case, the address first */
    begin(0x8180, 2, 0);
    record("\x01"
           "Y\x00",
           3, DNS_A, 300, "\xc0\x00\x02\x01", 4);
    record(SELF, DNS_CNAME, 30, "\x01y\x00", 3);
    CHECK_EQ(parse(), DNS_FOUND);
    CHECK_EQ(answer.ttl, 30);
    /* 3: an alias that is left open */
    begin(0x8180, 1, 0);
    record(SELF, DNS_CNAME, 30, "\x01y\xc0\x10", 4);
    CHECK_EQ(parse(), DNS_ALIAS);
    dns_name_format(&answer.target, text);
    CHECK_STR(text, "y.x");
    CHECK_EQ(answer.ttl, 30);
    /* 4: an alias that was followed to a name without such an address */
    begin(0x8180, 1, 1);
    record(SELF, DNS_CNAME, 30, "\x01y\x00", 3);
    record("\x00", 1, DNS_SOA, 3600, SOA_DATA);
    CHECK_EQ(parse(), DNS_NO_DATA);
    CHECK_EQ(answer.ttl, 60);
    /* 5: aliases in a ring */
    begin(0x8180, 2, 0);
    record(SELF, DNS_CNAME, 30, "\x01y\x00", 3);
    record("\x01y\x00", 3, DNS_CNAME, 30, "\xc0\x0c", 2);
    CHECK_EQ(parse(), DNS_MALFORMED);
    /* 6: no such name, with and without an SOA */
    begin(0x8183, 0, 1);
    record("\x00", 1, DNS_SOA, 10, SOA_DATA);
    CHECK_EQ(parse(), DNS_NO_NAME);
    CHECK_EQ(answer.ttl, 10);
    begin(0x8183, 0, 0);
    CHECK_EQ(parse(), DNS_NO_NAME);
    CHECK_EQ(answer.ttl, 0);
    /* 7: no data */
    begin(0x8180, 0, 0);
    CHECK_EQ(parse(), DNS_NO_DATA);
    /* 8: truncated; refused; server failure */
    begin(0x8380, 0, 0);
    CHECK_EQ(parse(), DNS_TRUNCATED);
    begin(0x8185, 0, 0);
    CHECK_EQ(parse(), DNS_FAILED);
    CHECK_EQ(answer.rcode, 5);
    /* 9: other people's records are passed over */
    begin(0x8180, 2, 0);
    record("\x01z\x00", 3, DNS_A, 300, "\x0a\x00\x00\x01", 4);
    record(SELF, DNS_A, 300, "\xc0\x00\x02\x01", 4);
    CHECK_EQ(parse(), DNS_FOUND);
    CHECK_EQ(answer.count, 1);
    /* 10: more addresses than are kept */
    begin(0x8180, 40, 0);
    for (int i = 0; i < 40; i++)
        record(SELF, DNS_A, 300, "\xc0\x00\x02\x01", 4);
    CHECK_EQ(parse(), DNS_FOUND);
    CHECK_EQ(answer.count, DNS_ADDRESSES);
    /* 11: a TTL with its top bit set is none */
    begin(0x8180, 1, 0);
    record(SELF, DNS_A, 0x80000001, "\xc0\x00\x02\x01", 4);
    CHECK_EQ(parse(), DNS_FOUND);
    CHECK_EQ(answer.ttl, 0);
    /* 12: an IPv4-mapped AAAA is IPv4 */
    begin(0x8180, 1, 0);
    message[12 + 7 + 1] = 28;
    record(SELF, DNS_AAAA, 300, "\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\x00\x02\x01", 16);
    other = name("vpn.x");
    CHECK_EQ(dns_answer_parse(&answer, message, length, 0x1234, &other, DNS_AAAA), DNS_FOUND);
    CHECK_EQ(answer.addresses[0].family, 4);
}

static void lies(void)
{
    struct dns_name n = name("vpn.x"), other = name("vpn.y");

    /* 1: not the answer to this question */
    begin(0x8180, 0, 0);
    CHECK_EQ(dns_answer_parse(&answer, message, length, 0x1235, &n, DNS_A), DNS_MISMATCH);
    CHECK_EQ(dns_answer_parse(&answer, message, length, 0x1234, &other, DNS_A), DNS_MISMATCH);
    CHECK_EQ(dns_answer_parse(&answer, message, length, 0x1234, &n, DNS_AAAA), DNS_MISMATCH);
    CHECK_EQ(dns_answer_parse(&answer, message, 11, 0x1234, &n, DNS_A), DNS_MISMATCH);
    CHECK_EQ(dns_answer_parse(&answer, message, length - 1, 0x1234, &n, DNS_A), DNS_MISMATCH);
    store_be16(message + 4, 2);
    CHECK_EQ(parse(), DNS_MISMATCH);
    begin(0x0180, 0, 0); /* a question */
    CHECK_EQ(parse(), DNS_MISMATCH);
    begin(0x8980, 0, 0); /* another opcode */
    CHECK_EQ(parse(), DNS_MISMATCH);
    /* 2: more records promised than there are */
    begin(0x8180, 2, 0);
    record(SELF, DNS_A, 300, "\xc0\x00\x02\x01", 4);
    CHECK_EQ(parse(), DNS_MALFORMED);
    CHECK_EQ(answer.count, 0);
    /* 3: an address of five bytes */
    begin(0x8180, 1, 0);
    record(SELF, DNS_A, 300, "\xc0\x00\x02\x01\x01", 5);
    CHECK_EQ(parse(), DNS_MALFORMED);
    /* 4: a pointer at itself, forwards, into the header, over the end */
    static const char *const pointers[] = {"\xc0\x17", "\xc0\x20", "\xc0\x05", "\xff\xff"};
    for (size_t i = 0; i < ARRAY_COUNT(pointers); i++) {
        begin(0x8180, 1, 0);
        CHECK_EQ(length, 0x17);
        record(pointers[i], 2, DNS_A, 300, "\xc0\x00\x02\x01", 4);
        CHECK_EQ(parse(), DNS_MALFORMED);
    }
    /* 5: two pointers at each other */
    begin(0x8180, 2, 0);
    record("\x01z\xc0\x0c", 4, DNS_A, 1, "\xc0\x1b\xc0\x1b", 4);
    record("\xc0\x25", 2, DNS_A, 1, "\0\0\0\0", 4);
    CHECK(parse() == DNS_MALFORMED || answer.count == 0);
    /* 6: label types 01 and 10 */
    begin(0x8180, 1, 0);
    record("\x41z\x00", 3, DNS_A, 300, "\xc0\x00\x02\x01", 4);
    CHECK_EQ(parse(), DNS_MALFORMED);
    /* 7: an alias longer or shorter than its data */
    begin(0x8180, 1, 0);
    record(SELF, DNS_CNAME, 30, "\x01y\x00\x00", 4);
    CHECK_EQ(parse(), DNS_MALFORMED);
    begin(0x8180, 1, 0);
    record(SELF, DNS_CNAME, 30, "\x03y", 2);
    CHECK_EQ(parse(), DNS_MALFORMED);
    /* 8: every cut of a good answer */
    begin(0x8180, 2, 0);
    record(SELF, DNS_CNAME, 30, "\x01y\xc0\x10", 4);
    record("\xc0\x23", 2, DNS_A, 300, "\xc0\x00\x02\x01", 4);
    CHECK_EQ(parse(), DNS_FOUND);
    size_t whole = length;
    for (length = 0; length < whole; length++) {
        enum dns_result result = parse();
        CHECK(result == (length < 23 ? DNS_MISMATCH : DNS_MALFORMED));
    }
}

int main(void)
{
    names();
    query();
    answers();
    lies();
    return check_done();
}
