#include "flow/resolver_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/bytes.h"

struct piece {
    const char *text;
    size_t n;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next line without its comment. */
static bool line_next(const char **text, size_t *n, struct piece *line)
{
    if (*n == 0)
        return false;
    const char *end = memchr(*text, '\n', *n);
    size_t length = end ? (size_t)(end - *text) : *n;
    line->text = *text;
    line->n = length;
    for (size_t i = 0; i < length; i++) {
        if (line->text[i] == '#' || line->text[i] == ';') {
            line->n = i;
            break;
        }
    }
    *text += end ? length + 1 : length;
    *n -= end ? length + 1 : length;
    return true;
}

static bool word_next(struct piece *line, struct piece *word)
{
    while (line->n && is_space(*line->text)) {
        line->text++;
        line->n--;
    }
    *word = (struct piece){.text = line->text};
    while (line->n && !is_space(*line->text)) {
        line->text++;
        line->n--;
        word->n++;
    }
    return word->n != 0;
}

void resolver_names_free(struct resolver_names *names)
{
    free(names->hosts);
    *names = (struct resolver_names){0};
}

int resolver_names_add(struct resolver_names *names, const char *name, size_t n, const struct addr *address)
{
    struct resolver_host host = {.address = *address};

    if (dns_name_parse(&host.name, name, n))
        return -EINVAL;
    if (names->count == RESOLVER_HOSTS)
        return -ENOSPC;
    if (names->count == names->capacity) {
        size_t capacity = names->capacity ? names->capacity * 2 : 8;
        struct resolver_host *grown = realloc(names->hosts, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        names->hosts = grown;
        names->capacity = capacity;
    }
    names->hosts[names->count++] = host;
    return 0;
}

int resolver_names_file(struct resolver_names *names, const char *text, size_t n)
{
    struct piece line, word;
    struct addr address;
    int count = 0;

    while (line_next(&text, &n, &line)) {
        if (!word_next(&line, &word) || addr_parse_ip(&address, word.text, word.n) != TEXT_OK)
            continue;
        while (word_next(&line, &word)) {
            int error = resolver_names_add(names, word.text, word.n, &address);
            if (error == -ENOMEM)
                return error;
            count += error == 0;
        }
    }
    return count;
}

/* "localhost" and all below it are this host, whatever a server says (RFC 6761 section 6.3). */
static bool is_localhost(const struct dns_name *name)
{
    static const uint8_t tail[] = "\x09localhost"; /* its own ending zero is the name's */

    return name->length >= sizeof tail && memcmp(name->bytes + name->length - sizeof tail, tail, sizeof tail) == 0;
}

bool resolver_names_has(const struct resolver_names *names, const struct dns_name *name)
{
    for (size_t i = 0; i < names->count; i++) {
        if (dns_name_equal(&names->hosts[i].name, name))
            return true;
    }
    return is_localhost(name);
}

unsigned resolver_names_find(const struct resolver_names *names, const struct dns_name *name, uint8_t family,
                             struct addr *addresses, unsigned room)
{
    unsigned count = 0;
    bool any = false;

    for (size_t i = 0; i < names->count; i++) {
        if (!dns_name_equal(&names->hosts[i].name, name))
            continue;
        any = true;
        if (names->hosts[i].address.family == family && count < room)
            addresses[count++] = names->hosts[i].address;
    }
    if (!any && is_localhost(name) && room) {
        addresses[0] = (struct addr){.family = family};
        if (family == 4)
            store_be32(addresses[0].ip, 0x7f000001);
        else
            addresses[0].ip[15] = 1;
        count = 1;
    }
    return count;
}

bool resolver_names_server(const char **text, size_t *n, struct addr *server)
{
    struct piece line, word;

    while (line_next(text, n, &line)) {
        if (word_next(&line, &word) && word.n == 10 && memcmp(word.text, "nameserver", 10) == 0 &&
            word_next(&line, &word) && addr_parse_ip(server, word.text, word.n) == TEXT_OK) {
            server->port = DNS_PORT;
            return true;
        }
    }
    return false;
}
