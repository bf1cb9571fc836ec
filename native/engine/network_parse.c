/* The lines of [network]: iproute2's words -> struct network_item. Pure text. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/network.h"
#include "wire/bytes.h"

#define WORDS_MAX 64
#define VALUE_SIZE 1024

struct words {
    char text[VALUE_SIZE]; /* the value, cut at its spaces */
    const char *word[WORDS_MAX];
    size_t count, next;
    const char *key;
    char *error;
    size_t size;
};

static const char *const network_kind_names[] = {
    [NETWORK_SYSCTL] = "sysctl", [NETWORK_LINK] = "link", [NETWORK_ADDRESS] = "address",
    [NETWORK_ROUTE] = "route",   [NETWORK_RULE] = "rule",
};
_Static_assert(ARRAY_COUNT(network_kind_names) == NETWORK_KIND_COUNT, "a name per kind");

const char *network_kind_name(enum network_kind kind)
{
    return (size_t)kind < NETWORK_KIND_COUNT ? network_kind_names[kind] : "?";
}

__attribute__((format(printf, 2, 3))) static int words_fail(struct words *w, const char *format, ...)
{
    va_list arguments;
    int n = snprintf(w->error, w->size, "%s: ", w->key);

    va_start(arguments, format);
    if (n > 0 && (size_t)n < w->size)
        vsnprintf(w->error + n, w->size - (size_t)n, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

static int words_split(struct words *w, const char *value)
{
    char *at = w->text;

    if (strlen(value) >= sizeof w->text)
        return words_fail(w, "longer than %zu bytes", sizeof w->text - 1);
    memcpy(w->text, value, strlen(value) + 1);
    for (;;) {
        while (*at == ' ' || *at == '\t')
            *at++ = '\0';
        if (!*at)
            break;
        if (w->count == WORDS_MAX)
            return words_fail(w, "more than %d words", WORDS_MAX);
        w->word[w->count++] = at;
        while (*at && *at != ' ' && *at != '\t')
            at++;
    }
    return w->count ? 0 : words_fail(w, "is empty");
}

/* The next word, or NULL. */
static const char *words_take(struct words *w)
{
    return w->next < w->count ? w->word[w->next++] : NULL;
}

/* The next word is eaten when it is this one. */
static bool words_accept(struct words *w, const char *word)
{
    if (w->next >= w->count || strcmp(w->word[w->next], word) != 0)
        return false;
    w->next++;
    return true;
}

/* --- Values that follow a word --- */

static int take_number(struct words *w, const char *after, uint32_t low, uint32_t high, uint32_t *value)
{
    const char *word = words_take(w);
    char *end;

    if (!word)
        return words_fail(w, "'%s' wants a number after it", after);
    errno = 0;
    unsigned long long n = strtoull(word, &end, 0);
    if (word[0] < '0' || word[0] > '9' || *end || errno || n < low || n > high)
        return words_fail(w, "'%s %s': not a number from %u to %u", after, word, low, high);
    *value = (uint32_t)n;
    return 0;
}

static int take_device(struct words *w, const char *after, char device[IF_NAMESIZE])
{
    const char *word = words_take(w);

    if (!word)
        return words_fail(w, "'%s' wants an interface name after it", after);
    if (strlen(word) >= IF_NAMESIZE || strchr(word, '/') || strcmp(word, ".") == 0 || strcmp(word, "..") == 0)
        return words_fail(w, "'%s %s': not an interface name (1 to %d characters, no '/')", after, word,
                          IF_NAMESIZE - 1);
    memset(device, 0, IF_NAMESIZE);
    memcpy(device, word, strlen(word));
    return 0;
}

static int take_table(struct words *w, const char *after, uint32_t *table)
{
    if (words_accept(w, "main"))
        *table = RT_TABLE_MAIN;
    else if (words_accept(w, "default"))
        *table = RT_TABLE_DEFAULT;
    else if (words_accept(w, "local"))
        *table = RT_TABLE_LOCAL;
    else
        return take_number(w, after, 1, UINT32_MAX, table);
    return 0;
}

static int take_scope(struct words *w, uint8_t *scope)
{
    static const struct {
        const char *name;
        uint8_t scope;
    } names[] = {
        {"global", RT_SCOPE_UNIVERSE}, {"site", RT_SCOPE_SITE}, {"link", RT_SCOPE_LINK}, {"host", RT_SCOPE_HOST}};
    uint32_t n;

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (words_accept(w, names[i].name)) {
            *scope = names[i].scope;
            return 0;
        }
    }
    int error = take_number(w, "scope", 0, 255, &n);
    *scope = (uint8_t)n;
    return error;
}

/* ADDRESS or ADDRESS/LENGTH; without a length it is a host. network: bits beyond the length must be zero. */
static int parse_prefix(struct words *w, const char *text, bool network, struct netlink_prefix *prefix)
{
    char address[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    unsigned bits, length = 0;

    *prefix = (struct netlink_prefix){.family = memchr(text, ':', n) ? AF_INET6 : AF_INET};
    bits = prefix->family == AF_INET ? 32 : 128;
    if (n >= sizeof address)
        return words_fail(w, "'%s' is not an address", text);
    memcpy(address, text, n);
    address[n] = '\0';
    if (inet_pton(prefix->family, address, prefix->address) != 1)
        return words_fail(w, "'%s' is not an address", text);
    if (slash) {
        const char *digit = slash + 1;
        for (; *digit >= '0' && *digit <= '9' && length <= 128; digit++)
            length = length * 10 + (unsigned)(*digit - '0');
        if (digit == slash + 1 || *digit || length > bits)
            return words_fail(w, "'%s': the prefix length is from 0 to %u", text, bits);
    }
    prefix->length = (uint8_t)(slash ? length : bits);
    for (unsigned bit = prefix->length; network && bit < bits; bit++) {
        if (prefix->address[bit / 8] & (0x80 >> bit % 8))
            return words_fail(w, "'%s' has address bits beyond its prefix length", text);
    }
    return 0;
}

static int take_prefix(struct words *w, const char *after, bool network, struct netlink_prefix *prefix)
{
    const char *word = words_take(w);

    return word ? parse_prefix(w, word, network, prefix) : words_fail(w, "'%s' wants an address after it", after);
}

static int take_host(struct words *w, const char *after, struct netlink_prefix *prefix)
{
    const char *word = words_take(w);

    if (!word || strchr(word, '/'))
        return words_fail(w, "'%s' wants an address without a prefix length after it", after);
    return parse_prefix(w, word, false, prefix);
}

/* Two parts of a line must be of one family. */
static int agree(struct words *w, uint8_t *family, uint8_t other, const char *what)
{
    if (*family && other && *family != other)
        return words_fail(w, "%s is %s and the rest is %s", what, other == AF_INET ? "IPv4" : "IPv6",
                          *family == AF_INET ? "IPv4" : "IPv6");
    if (other)
        *family = other;
    return 0;
}

/* --- The lists --- */

static int plan_add(struct network_plan *plan, const struct network_item *item)
{
    if (plan->count == plan->capacity) {
        size_t capacity = plan->capacity ? plan->capacity * 2 : 8;
        struct network_item *grown = realloc(plan->items, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        plan->items = grown;
        plan->capacity = capacity;
    }
    plan->items[plan->count++] = *item;
    return 0;
}

void network_plan_free(struct network_plan *plan)
{
    free(plan->items);
    *plan = (struct network_plan){0};
}

/* --- The five kinds of line --- */

static int parse_address(struct network_plan *plan, struct words *w)
{
    struct network_item item = {.kind = NETWORK_ADDRESS};
    struct netlink_address *a = &item.address;
    const char *word = words_take(w);
    int error = parse_prefix(w, word, false, &a->local);

    while (!error && (word = words_take(w))) {
        if (strcmp(word, "dev") == 0)
            error = take_device(w, word, item.device);
        else if (strcmp(word, "peer") == 0)
            error = take_prefix(w, word, false, &a->peer);
        else if (strcmp(word, "broadcast") == 0 || strcmp(word, "brd") == 0)
            error = take_host(w, word, &a->broadcast);
        else if (strcmp(word, "scope") == 0)
            error = take_scope(w, &a->scope);
        else if (strcmp(word, "nodad") == 0)
            a->flags |= IFA_F_NODAD;
        else if (strcmp(word, "noprefixroute") == 0)
            a->flags |= IFA_F_NOPREFIXROUTE;
        else
            error = words_fail(w, "'%s' is not one of dev, peer, broadcast, scope, nodad, noprefixroute", word);
    }
    if (error)
        return error;
    if (!item.device[0])
        return words_fail(w, "lacks 'dev NAME'");
    uint8_t family = a->local.family;
    if ((error = agree(w, &family, a->peer.family, "the peer")) ||
        (error = agree(w, &family, a->broadcast.family, "the broadcast address")))
        return error;
    if (a->broadcast.family == AF_INET6)
        return words_fail(w, "IPv6 has no broadcast address");
    if (a->peer.family)
        a->local.length = a->peer.length; /* the kernel keeps one length, the peer's */
    return plan_add(plan, &item);
}

static int parse_link(struct network_plan *plan, struct words *w)
{
    struct network_item item = {.kind = NETWORK_LINK, .link = {.up = -1}};
    const char *word;

    (void)words_accept(w, "dev");
    int error = take_device(w, "link", item.device);
    while (!error && (word = words_take(w))) {
        if (strcmp(word, "up") == 0)
            item.link.up = 1;
        else if (strcmp(word, "down") == 0)
            item.link.up = 0;
        else if (strcmp(word, "mtu") == 0)
            error = take_number(w, word, 68, 65535, &item.link.mtu);
        else if (strcmp(word, "txqueuelen") == 0)
            error = take_number(w, word, 1, 1u << 20, &item.link.txqueuelen);
        else
            error = words_fail(w, "'%s' is not one of up, down, mtu, txqueuelen", word);
    }
    if (!error && item.link.up < 0 && !item.link.mtu && !item.link.txqueuelen)
        return words_fail(w, "sets nothing on %s (up, down, mtu, txqueuelen)", item.device);
    return error ? error : plan_add(plan, &item);
}

/* "-4" and "-6" before a route or rule, as `ip -6 route`; 0: not said. */
static uint8_t take_family(struct words *w)
{
    return words_accept(w, "-4") ? AF_INET : words_accept(w, "-6") ? AF_INET6 : 0;
}

static const struct {
    const char *name;
    uint8_t route, rule;
} refusals[] = {
    {"unreachable", RTN_UNREACHABLE, FR_ACT_UNREACHABLE},
    {"blackhole", RTN_BLACKHOLE, FR_ACT_BLACKHOLE},
    {"prohibit", RTN_PROHIBIT, FR_ACT_PROHIBIT},
};

/* A line without a family is two objects. */
static int add_by_family(struct network_plan *plan, struct network_item *item, uint8_t family)
{
    static const uint8_t families[] = {AF_INET, AF_INET6};
    int error = 0;

    for (size_t i = 0; i < ARRAY_COUNT(families) && !error; i++) {
        if (family && families[i] != family)
            continue;
        item->optional = !family && families[i] == AF_INET6;
        if (item->kind == NETWORK_ROUTE) {
            item->route.family = families[i];
            if (!item->route.destination.length)
                item->route.destination = (struct netlink_prefix){.family = families[i]};
        } else {
            item->rule.family = families[i];
        }
        error = plan_add(plan, item);
    }
    return error;
}

static int parse_route(struct network_plan *plan, struct words *w)
{
    struct network_item item = {
        .kind = NETWORK_ROUTE, .route = {.type = RTN_UNICAST, .protocol = NETLINK_PROTOCOL_FV, .table = RT_TABLE_MAIN}};
    struct netlink_route *route = &item.route;
    bool scope_said = false;
    const char *word;
    int error = 0;
    uint8_t family = take_family(w);

    (void)words_accept(w, "unicast");
    for (size_t i = 0; i < ARRAY_COUNT(refusals); i++) {
        if (words_accept(w, refusals[i].name))
            route->type = refusals[i].route;
    }
    word = words_take(w);
    if (!word)
        return words_fail(w, "lacks its destination (a prefix, or 'default')");
    if (strcmp(word, "default") != 0 && ((error = parse_prefix(w, word, true, &route->destination)) ||
                                         (error = agree(w, &family, route->destination.family, "the destination"))))
        return error;
    while (!error && (word = words_take(w))) {
        if (strcmp(word, "via") == 0) {
            bool other = words_accept(w, "inet6") || words_accept(w, "inet");
            error = take_host(w, word, &route->via);
            if (!error && !other)
                error = agree(w, &family, route->via.family, "the next hop");
        } else if (strcmp(word, "dev") == 0) {
            error = take_device(w, word, item.device);
        } else if (strcmp(word, "table") == 0) {
            error = take_table(w, word, &route->table);
        } else if (strcmp(word, "metric") == 0 || strcmp(word, "priority") == 0 || strcmp(word, "preference") == 0) {
            error = take_number(w, word, 0, UINT32_MAX, &route->metric);
        } else if (strcmp(word, "src") == 0) {
            error = take_host(w, word, &route->source);
            if (!error)
                error = agree(w, &family, route->source.family, "the source");
        } else if (strcmp(word, "mtu") == 0) {
            error = take_number(w, word, 68, 65535, &route->mtu);
        } else if (strcmp(word, "advmss") == 0) {
            error = take_number(w, word, 1, 65535, &route->advmss);
        } else if (strcmp(word, "scope") == 0) {
            error = take_scope(w, &route->scope);
            scope_said = true;
        } else if (strcmp(word, "onlink") == 0) {
            route->flags_onlink = 1;
        } else {
            error = words_fail(w, "'%s' is not one of via, dev, table, metric, src, mtu, advmss, scope, onlink", word);
        }
    }
    if (error)
        return error;
    if (route->type == RTN_UNICAST && !item.device[0] && !route->via.family)
        return words_fail(w, "lacks 'dev NAME' or 'via ADDRESS'");
    if (route->type != RTN_UNICAST && (item.device[0] || route->via.family))
        return words_fail(w, "a route that refuses has no 'dev' and no 'via'");
    if (!scope_said && route->type == RTN_UNICAST && !route->via.family)
        route->scope = RT_SCOPE_LINK;
    return add_by_family(plan, &item, family);
}

static int parse_mark(struct words *w, struct netlink_rule *rule)
{
    const char *word = words_take(w);
    char *end;

    if (!word)
        return words_fail(w, "'fwmark' wants MARK or MARK/MASK after it");
    errno = 0;
    unsigned long long mark = strtoull(word, &end, 0), mask = UINT32_MAX;
    bool good = word[0] >= '0' && word[0] <= '9' && end != word;
    if (good && *end == '/') {
        const char *text = end + 1;
        mask = strtoull(text, &end, 0);
        good = text[0] >= '0' && text[0] <= '9';
    }
    if (!good || *end || errno || mark > UINT32_MAX || mask > UINT32_MAX)
        return words_fail(w, "'fwmark %s': not MARK or MARK/MASK of 32 bits each", word);
    rule->has_mark = true;
    rule->mark = (uint32_t)mark;
    rule->mask = (uint32_t)mask;
    return 0;
}

static int parse_rule(struct network_plan *plan, struct words *w)
{
    struct network_item item = {.kind = NETWORK_RULE,
                                .rule = {.protocol = NETLINK_PROTOCOL_FV, .suppress_prefixlength = -1}};
    struct netlink_rule *rule = &item.rule;
    bool has_priority = false;
    uint8_t refuses = 0; /* FR_ACT_*, 0: looks a table up */
    uint8_t family = take_family(w);
    const char *word;
    uint32_t n = 0;
    int error = 0;

    while (!error && (word = words_take(w))) {
        size_t refusal = 0;
        while (refusal < ARRAY_COUNT(refusals) && strcmp(word, refusals[refusal].name) != 0)
            refusal++;
        if (strcmp(word, "not") == 0) {
            rule->invert = true;
        } else if (strcmp(word, "from") == 0 || strcmp(word, "to") == 0) {
            struct netlink_prefix *prefix = word[0] == 'f' ? &rule->from : &rule->to;
            if (words_accept(w, "all"))
                continue;
            error = take_prefix(w, word, true, prefix);
            if (!error)
                error = agree(w, &family, prefix->family, word);
            if (!error && prefix->length == 0)
                *prefix = (struct netlink_prefix){0};
        } else if (strcmp(word, "iif") == 0 || strcmp(word, "dev") == 0) {
            error = take_device(w, word, rule->iif);
        } else if (strcmp(word, "oif") == 0) {
            error = take_device(w, word, rule->oif);
        } else if (strcmp(word, "fwmark") == 0) {
            error = parse_mark(w, rule);
        } else if (strcmp(word, "table") == 0 || strcmp(word, "lookup") == 0) {
            error = take_table(w, word, &rule->table);
        } else if (strcmp(word, "priority") == 0 || strcmp(word, "pref") == 0 || strcmp(word, "preference") == 0 ||
                   strcmp(word, "order") == 0) {
            error = take_number(w, word, 1, 32765, &rule->priority);
            has_priority = true;
        } else if (strcmp(word, "suppress_prefixlength") == 0) {
            error = take_number(w, word, 0, 128, &n);
            rule->suppress_prefixlength = (int32_t)n;
        } else if (refusal < ARRAY_COUNT(refusals)) {
            refuses = refusals[refusal].rule;
        } else {
            error = words_fail(w,
                               "'%s' is not one of priority, not, from, to, iif, oif, fwmark, table, "
                               "suppress_prefixlength, unreachable, blackhole, prohibit",
                               word);
        }
    }
    if (error)
        return error;
    if (!has_priority)
        return words_fail(w, "lacks 'priority N' (1 to 32765)");
    if (!refuses && !rule->table)
        return words_fail(w, "lacks 'table N'");
    if (refuses && (rule->suppress_prefixlength >= 0 || rule->table))
        return words_fail(w, "a rule that refuses has no 'table' and no 'suppress_prefixlength'");
    rule->action = refuses ? refuses : FR_ACT_TO_TBL;
    return add_by_family(plan, &item, family);
}

/* "net.ipv4.conf.eth0/1.rp_filter" and "net/ipv4/conf/eth0.1/rp_filter" are the same, as sysctl(8) has it: the first
 * separator decides, the other one is a character. */
static int parse_sysctl(struct network_plan *plan, struct words *w, const char *value)
{
    struct network_item item = {.kind = NETWORK_SYSCTL};
    const char *equal = strchr(value, '=');
    char *key = item.sysctl.key, *out = item.sysctl.value;
    size_t n = equal ? (size_t)(equal - value) : 0;

    if (!equal)
        return words_fail(w, "'%s' lacks '=VALUE'", value);
    while (n && value[n - 1] == ' ')
        n--;
    if (n >= sizeof item.sysctl.key)
        return words_fail(w, "the key is longer than %zu bytes", sizeof item.sysctl.key - 1);
    memcpy(key, value, n);
    if (key[strcspn(key, "./")] == '.') {
        for (char *c = key; *c; c++)
            *c = *c == '.' ? '/' : *c == '/' ? '.' : *c;
    }
    if (strncmp(key, "net/", 4) != 0 || strstr(key, "//") || strstr(key, "/../") || strchr(key, ' ') ||
        key[n - 1] == '/' || (n > 3 && strcmp(key + n - 3, "/..") == 0))
        return words_fail(w, "'%.*s' is not a key below net.", (int)n, value);
    /* What the kernel prints has tabs; words are compared, so one space stands between them. */
    w->count = w->next = 0;
    int error = words_split(w, equal + 1);
    size_t length = 0;
    for (size_t i = 0; !error && i < w->count; i++) {
        size_t word = strlen(w->word[i]);
        if (length + word + 2 > sizeof item.sysctl.value)
            return words_fail(w, "the value of %s is longer than %zu bytes", key, sizeof item.sysctl.value - 1);
        if (i)
            out[length++] = ' ';
        memcpy(out + length, w->word[i], word);
        length += word;
    }
    return error ? error : plan_add(plan, &item);
}

int network_parse_line(struct network_plan *plan, const char *key, const char *value, char *error, size_t size)
{
    struct words w = {.key = key, .error = error, .size = size};

    if (size)
        error[0] = '\0';
    int result = words_split(&w, value);
    if (result)
        return result;
    if (strcmp(key, "address") == 0)
        return parse_address(plan, &w);
    if (strcmp(key, "link") == 0)
        return parse_link(plan, &w);
    if (strcmp(key, "route") == 0)
        return parse_route(plan, &w);
    if (strcmp(key, "rule") == 0)
        return parse_rule(plan, &w);
    if (strcmp(key, "sysctl") == 0)
        return parse_sysctl(plan, &w, value);
    return words_fail(&w, "is not a key of [network] (address, link, route, rule, sysctl)");
}
