/* Answers of name servers. The question is made from the message itself where it has one, so that the parser goes on
 * behind the match; the first byte chooses the type. */
#include <stdlib.h>

#include "wire/bytes.h"
#include "wire/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dns_name name = {0}, parsed;
    struct dns_answer answer;
    char text[DNS_TEXT_SIZE];
    size_t at = DNS_HEADER;

    if (size < 1 + DNS_HEADER)
        return 0;
    enum dns_type type = *data++ & 1 ? DNS_AAAA : DNS_A;
    size--;
    while (at < size && data[at] && data[at] < 64 && at + 1 + data[at] < size && at - DNS_HEADER + data[at] < 200) {
        for (size_t end = at + 1 + data[at]; at < end; at++) {
            uint8_t byte = data[at];
            name.bytes[name.length++] = byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte + 32) : byte;
        }
    }
    name.bytes[name.length++] = 0;
    enum dns_result result = dns_answer_parse(&answer, data, size, load_be16(data), &name, type);
    if (answer.count > DNS_ADDRESSES || (result == DNS_FOUND && !answer.count) ||
        (result == DNS_ALIAS && !answer.target.length))
        abort();
    dns_name_format(&answer.target, text);
    (void)dns_name_parse(&parsed, (const char *)data, size);
    return 0;
}
