/* DNS messages (RFC 1035) as far as a stub resolver needs them: names, a question for A or AAAA, and the answer to it.
 *
 * A name is kept as on the wire, uncompressed, in lower case: labels of a length byte and 1 to 63 bytes, ended by a zero
 * byte, 255 bytes at most. Answers are matched strictly (id, one question, its name, type and class) and parsed with
 * every length checked; compression pointers only lead backwards. No EDNS: an answer that does not fit 512 bytes comes
 * truncated, and TCP has it. */
#ifndef FV_WIRE_DNS_H
#define FV_WIRE_DNS_H

#include "wire/addr.h"

enum {
    DNS_PORT = 53,
    DNS_HEADER = 12,
    DNS_NAME_SIZE = 255,
    DNS_TEXT_SIZE =
        264,   /* a name as text, terminated; a byte that is not printable is \DDD, and many of them are cut */
    DNS_QUERY_SIZE = DNS_HEADER + DNS_NAME_SIZE + 4,
    DNS_UDP_SIZE = 512,    /* the longest answer by UDP without EDNS; more than that may come and is read */
    DNS_ADDRESSES = 16,    /* kept of one answer */
    DNS_CHAIN = 12         /* CNAMEs followed */
};

enum dns_type { DNS_A = 1, DNS_CNAME = 5, DNS_SOA = 6, DNS_AAAA = 28 };

struct dns_name {
    uint8_t length; /* the ending zero included; 0: none */
    uint8_t bytes[DNS_NAME_SIZE];
};

/* Text -> name; a dot at the end is allowed, the root is not. -EINVAL: empty label, label over 63 bytes, name over 255,
 * a byte beyond letters, digits, '-' and '_' (names of other scripts come in their xn-- form). */
int dns_name_parse(struct dns_name *name, const char *text, size_t n);
/* Name -> text without the last dot; returns its length. */
size_t dns_name_format(const struct dns_name *name, char out[DNS_TEXT_SIZE]);
bool dns_name_equal(const struct dns_name *a, const struct dns_name *b);

/* Writes a question with recursion desired; returns its length. */
size_t dns_query_build(uint8_t out[DNS_QUERY_SIZE], uint16_t id, const struct dns_name *name, enum dns_type type);

enum dns_result {
    DNS_FOUND,      /* addresses, and for how long they are good */
    DNS_NO_DATA,    /* the name is there and has no such address */
    DNS_NO_NAME,    /* there is no such name (NXDOMAIN) */
    DNS_ALIAS,      /* a CNAME whose target's addresses are not in the answer: ask for target */
    DNS_TRUNCATED,  /* ask by TCP */
    DNS_FAILED,     /* the server cannot or will not (SERVFAIL, REFUSED, ...) */
    DNS_MISMATCH,   /* not the answer to this question: as if it had not come */
    DNS_MALFORMED,  /* an answer to this question that does not parse */
    DNS_RESULT_COUNT
};
extern const char *const dns_result_names[DNS_RESULT_COUNT];

struct dns_answer {
    struct addr addresses[DNS_ADDRESSES]; /* port 0 */
    unsigned count;
    uint32_t ttl;           /* seconds; of NO_DATA and NO_NAME by the SOA (RFC 2308), 0 without one: not to be kept */
    struct dns_name target; /* of DNS_ALIAS */
    uint8_t rcode;
};

enum dns_result dns_answer_parse(struct dns_answer *answer, const uint8_t *message, size_t n, uint16_t id,
                                 const struct dns_name *name, enum dns_type type);

#endif
