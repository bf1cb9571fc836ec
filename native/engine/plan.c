#include "engine/plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crypto/secret.h"
#include "io/log.h"
#include "wire/addr.h"
#include "wire/bytes.h"
#include "wire/text.h"

const char *const plan_type_names[] = {"engine", "wireguard", "nat", "network", "resolver"};
_Static_assert(ARRAY_COUNT(plan_type_names) == PLAN_TYPES, "a name for every type");

/* What `needs=` may ask of this engine. */
static const char *const plan_needs[] = {"wireguard", "multihop", "nat", "network", "resolver"};

struct key_rule {
    const char *key;
    enum plan_type type;
    bool repeated;
};
/* A [wireguard] section's keys from private_key on belong to the configuration protocol and are checked there. */
static const struct key_rule key_rules[] = {
    {"nice", PLAN_ENGINE, false},       {"workers", PLAN_ENGINE, false},   {"cpu", PLAN_ENGINE, false},
    {"memory", PLAN_ENGINE, false},     {"log_level", PLAN_ENGINE, false}, {"log_format", PLAN_ENGINE, false},
    {"state", PLAN_ENGINE, false},      {"control", PLAN_ENGINE, false},   {"feature_off", PLAN_ENGINE, false},
    {"on_stop", PLAN_ENGINE, false},    {"on_crash", PLAN_ENGINE, false},  {"mtu", PLAN_WIREGUARD, false},
    {"detour", PLAN_WIREGUARD, false},  {"tun", PLAN_WIREGUARD, false},    {"source4", PLAN_WIREGUARD, false},
    {"source6", PLAN_WIREGUARD, false}, {"lan4", PLAN_NAT, true},          {"lan6", PLAN_NAT, true},
    {"entries", PLAN_NAT, false},       {"mss", PLAN_NAT, false},          {"sysctl", PLAN_NETWORK, true},
    {"route", PLAN_NETWORK, true},      {"address", PLAN_NETWORK, true},   {"link", PLAN_NETWORK, true},
    {"rule", PLAN_NETWORK, true},       {"server", PLAN_RESOLVER, true},   {"host", PLAN_RESOLVER, true},
};

static int fail(struct plan_error *error, unsigned line, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct plan_error *error, unsigned line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    error->line = line;
    return -EINVAL;
}

/* --- cutting the text into sections and lines --- */

static int parse_needs(char *value, unsigned line, struct plan_error *error)
{
    for (char *word = value; *word;) {
        size_t n = strcspn(word, ",");
        bool known = false;
        for (size_t i = 0; i < ARRAY_COUNT(plan_needs); i++)
            known |= strlen(plan_needs[i]) == n && memcmp(plan_needs[i], word, n) == 0;
        if (!known)
            return fail(error, line,
                        "needs '%.*s', which this engine does not have: use an engine of the plan's version",
                        (int)MIN(n, 40), word);
        word += n + (word[n] == ',');
    }
    return 0;
}

static int add_section(struct plan *plan, char *header, size_t n, unsigned line, struct plan_error *error)
{
    if (header[n - 1] != ']')
        return fail(error, line, "a section header ends with ']'");
    header[n - 1] = 0;
    char *name = strchr(header, ' ');
    if (name)
        *name++ = 0;
    int type = -1;
    for (int i = 0; i < PLAN_TYPES; i++)
        if (strcmp(header + 1, plan_type_names[i]) == 0)
            type = i;
    if (type < 0)
        return fail(error, line, "unknown section type '%.40s'", header + 1);
    bool named = type == PLAN_WIREGUARD || type == PLAN_NAT;
    if (named != (name != NULL))
        return fail(error, line, named ? "[%s NAME] needs a name" : "[%s] has no name", plan_type_names[type]);
    size_t length = name ? strlen(name) : 0;
    if (name && (text_percent_decode(name, length, name, length + 1, &length) != TEXT_OK || !length))
        return fail(error, line, "the section's name is not percent-encoded text");
    if (name)
        name[length] = 0;
    if (named && (length >= TUN_NAME || strchr(name, '/') || strchr(name, ' ')))
        return fail(error, line, "'%.40s' cannot be an interface's name: at most %d characters, no '/' and no space",
                    name, TUN_NAME - 1);
    if (plan_find(plan, (enum plan_type)type, name ? name : ""))
        return fail(error, line, "section [%s%s%.40s] stands twice", plan_type_names[type], name ? " " : "",
                    name ? name : "");
    plan->sections[plan->section_count++] =
        (struct plan_section){.type = (enum plan_type)type, .name = name ? name : "", .line = line};
    return 0;
}

static int add_line(struct plan *plan, unsigned *lines, char *text, size_t n, unsigned line, struct plan_error *error)
{
    char *value = memchr(text, '=', n);
    size_t length;
    if (!value)
        return fail(error, line, "neither a section header nor key=value");
    *value++ = 0;
    if (text_percent_decode(value, n - (size_t)(value - text), value, n, &length) != TEXT_OK)
        return fail(error, line, "the value of '%.40s' is not percent-encoded text", text);
    value[length] = 0;
    if (memchr(value, 0, length))
        return fail(error, line, "the value of '%.40s' holds a NUL byte", text);
    if (!plan->section_count) {
        if (strcmp(text, "plan") == 0 && *lines == 0)
            return strcmp(value, "1") ? fail(error, line, "plan version '%.20s': this engine reads version 1", value)
                                      : (++*lines, 0);
        if (strcmp(text, "needs") == 0 && *lines == 1)
            return ++*lines, parse_needs(value, line, error);
        return fail(error, line, "a plan begins with plan=1 and needs=...");
    }
    struct plan_section *section = &plan->sections[plan->section_count - 1];
    if (!section->count)
        section->lines = plan->lines + *lines;
    bool protocol = section->type == PLAN_WIREGUARD && section->count &&
                    (strcmp(section->lines[section->count - 1].key, "private_key") == 0 ||
                     section->lines[section->count - 1].line & 0x80000000u);
    protocol |= section->type == PLAN_WIREGUARD && strcmp(text, "private_key") == 0;
    if (!protocol) {
        const struct key_rule *rule = NULL;
        for (size_t i = 0; i < ARRAY_COUNT(key_rules); i++)
            if (key_rules[i].type == section->type && strcmp(key_rules[i].key, text) == 0)
                rule = &key_rules[i];
        if (!rule)
            return fail(error, line, "[%s] has no key '%.40s'%s", plan_type_names[section->type], text,
                        section->type == PLAN_WIREGUARD ? " before private_key" : "");
        for (unsigned i = 0; i < section->count && !rule->repeated; i++)
            if (strcmp(section->lines[i].key, text) == 0)
                return fail(error, line, "'%s' stands twice in its section", text);
    }
    /* The top bit marks the protocol's lines until parse_wireguard has gathered them. */
    plan->lines[(*lines)++] = (struct plan_line){text, value, line | (protocol ? 0x80000000u : 0)};
    section->count++;
    return 0;
}

static int cut(struct plan *plan, struct plan_error *error)
{
    unsigned line = 0, lines = 0;
    for (char *at = plan->words, *end = plan->words + plan->length; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((newline ? newline : end) - at);
        line++;
        if (n > PLAN_LINE)
            return fail(error, line, "the line has %zu bytes, %d are the most", n, PLAN_LINE);
        at[n] = 0;
        if (memchr(at, 0, n))
            return fail(error, line, "the line holds a NUL byte");
        int result = 0;
        if (n && at[0] == '[')
            result = add_section(plan, at, n, line, error);
        else if (n && at[0] != '#')
            result = add_line(plan, &lines, at, n, line, error);
        if (result)
            return result;
        at += n + 1;
    }
    if (lines < 2)
        return fail(error, 0, "not a plan: it begins with plan=1 and needs=...");
    return 0;
}

/* --- values --- */

static int read_number(const struct plan_line *line, uint64_t min, uint64_t max, uint64_t *out,
                       struct plan_error *error)
{
    if (text_decimal(line->value, strlen(line->value), min, max, out) != TEXT_OK)
        return fail(error, line->line, "'%s' is a number from %llu to %llu", line->key, (unsigned long long)min,
                    (unsigned long long)max);
    return 0;
}

static int read_choice(const struct plan_line *line, const char *no, const char *yes, bool *out,
                       struct plan_error *error)
{
    *out = strcmp(line->value, yes) == 0;
    if (!*out && strcmp(line->value, no) != 0)
        return fail(error, line->line, "'%s' is %s or %s", line->key, no, yes);
    return 0;
}

static int read_cpus(struct plan_engine *engine, const struct plan_line *line, struct plan_error *error)
{
    unsigned count = 0;
    for (const char *at = line->value; *at; count++) {
        size_t n = strcspn(at, ",");
        uint64_t cpu;
        if (count == WORKERS_MAX || text_decimal(at, n, 0, 4095, &cpu) != TEXT_OK)
            return fail(error, line->line, "'cpu' is a list of at most %d CPU numbers, as in 0,1", WORKERS_MAX);
        engine->cpu[count] = (int)cpu;
        engine->cpu_set = true;
        at += n + (at[n] == ',');
    }
    return 0;
}

static int read_nice(struct plan_engine *engine, const struct plan_line *line, struct plan_error *error)
{
    bool minus = line->value[0] == '-';
    uint64_t number;
    if (text_decimal(line->value + minus, strlen(line->value + minus), 0, minus ? 20 : 19, &number) != TEXT_OK)
        return fail(error, line->line, "'nice' is a number from -20 to 19");
    engine->nice = minus ? -(int)number : (int)number;
    return 0;
}

static int parse_engine(struct plan *plan, struct plan_error *error)
{
    struct plan_engine *engine = &plan->engine;
    const struct plan_section *section = plan_find(plan, PLAN_ENGINE, "");
    *engine = (struct plan_engine){.workers = 1,
                                   .nice = PLAN_NICE,
                                   .memory = 16 << 20,
                                   .log_level = LOG_INFO,
                                   .state = "",
                                   .control = "",
                                   .feature_off = "",
                                   .crash_closed = true};
    for (unsigned i = 0; i < WORKERS_MAX; i++)
        engine->cpu[i] = -1;
    for (unsigned i = 0; section && i < section->count; i++) {
        const struct plan_line *line = &section->lines[i];
        uint64_t number = 0;
        int result = 0;
        if (strcmp(line->key, "workers") == 0) {
            result = read_number(line, 1, WORKERS_MAX, &number, error);
            engine->workers = (unsigned)number;
        } else if (strcmp(line->key, "nice") == 0) {
            result = read_nice(engine, line, error);
        } else if (strcmp(line->key, "cpu") == 0) {
            result = read_cpus(engine, line, error);
        } else if (strcmp(line->key, "memory") == 0) {
            result = read_number(line, PLAN_MEMORY_MIN, SIZE_MAX / 2, &number, error);
            engine->memory = (size_t)number;
        } else if (strcmp(line->key, "log_level") == 0) {
            engine->log_level = log_level_parse(line->value);
            if (engine->log_level < 0)
                result = fail(error, line->line, "'log_level' is error, warning, info or debug");
        } else if (strcmp(line->key, "log_format") == 0) {
            result = read_choice(line, "text", "json", &engine->log_json, error);
        } else if (strcmp(line->key, "on_stop") == 0) {
            result = read_choice(line, "open", "closed", &engine->stop_closed, error);
        } else if (strcmp(line->key, "on_crash") == 0) {
            result = read_choice(line, "open", "closed", &engine->crash_closed, error);
        } else if (strcmp(line->key, "state") == 0) {
            engine->state = line->value;
        } else if (strcmp(line->key, "control") == 0) {
            engine->control = line->value;
        } else {
            engine->feature_off = line->value;
        }
        if (result)
            return result;
    }
    if (engine->memory / engine->workers < PLAN_MEMORY_MIN)
        return fail(error, section ? section->line : 0, "memory= is at least %d for each of the %u workers",
                    PLAN_MEMORY_MIN, engine->workers);
    return 0;
}

static int read_source(const struct plan_line *line, uint8_t family, uint8_t *out, bool *set, struct plan_error *error)
{
    struct addr a;
    if (!*line->value)
        return 0;
    if (addr_parse_ip(&a, line->value, strlen(line->value)) != TEXT_OK || a.family != family || a.scope)
        return fail(error, line->line, "'%s' is an IPv%u address without a prefix length", line->key, family);
    memcpy(out, a.ip, addr_len(family));
    *set = true;
    return 0;
}

static int parse_wireguard(struct plan *plan, const struct plan_section *section, char **text, struct plan_error *error)
{
    struct plan_wireguard *wireguard = &plan->wireguard[plan->wireguard_count++];
    *wireguard = (struct plan_wireguard){.name = section->name, .mtu = 1420, .detour = "", .tun = true, .text = *text};
    for (unsigned i = 0; i < section->count; i++) {
        struct plan_line *line = &section->lines[i];
        uint64_t number = 0;
        int result = 0;
        if (line->line & 0x80000000u) {
            line->line &= 0x7fffffffu;
            if (!wireguard->line)
                wireguard->line = line->line;
            *text += sprintf(*text, "%s=%s\n", line->key, line->value);
            wireguard->length = (size_t)(*text - wireguard->text);
        } else if (strcmp(line->key, "mtu") == 0) {
            result = read_number(line, 576, 65535, &number, error);
            wireguard->mtu = (unsigned)number;
        } else if (strcmp(line->key, "detour") == 0) {
            wireguard->detour = line->value;
        } else if (strcmp(line->key, "tun") == 0) {
            result = read_choice(line, "false", "true", &wireguard->tun, error);
        } else if (strcmp(line->key, "source4") == 0) {
            result = read_source(line, 4, wireguard->source4, &wireguard->source4_set, error);
        } else {
            result = read_source(line, 6, wireguard->source6, &wireguard->source6_set, error);
        }
        if (result)
            return result;
    }
    if (!wireguard->line)
        return fail(error, section->line, "[wireguard %s] has no private_key", section->name);
    return 0;
}

/* Every detour names a section, and none comes back to itself. */
static int check_detours(const struct plan *plan, struct plan_error *error)
{
    for (unsigned i = 0; i < plan->wireguard_count; i++) {
        const struct plan_wireguard *at = &plan->wireguard[i];
        for (unsigned steps = 0; *at->detour; steps++) {
            const struct plan_wireguard *next = NULL;
            for (unsigned k = 0; k < plan->wireguard_count; k++)
                if (strcmp(plan->wireguard[k].name, at->detour) == 0)
                    next = &plan->wireguard[k];
            const struct plan_section *section = plan_find(plan, PLAN_WIREGUARD, at->name);
            if (!next)
                return fail(error, section->line, "detour=%.40s of [wireguard %s] names no [wireguard] section",
                            at->detour, at->name);
            if (steps > plan->wireguard_count)
                return fail(error, section->line, "the detours of [wireguard %s] form a circle", at->name);
            at = next;
        }
    }
    for (unsigned i = 0; i < plan->section_count; i++) {
        const struct plan_section *nat = &plan->sections[i];
        if (nat->type == PLAN_NAT && !plan_find(plan, PLAN_WIREGUARD, nat->name))
            return fail(error, nat->line, "[nat %s] names no [wireguard] section", nat->name);
    }
    return 0;
}

static int parse(struct plan *plan, struct plan_error *error)
{
    int result = cut(plan, error);
    if (!result)
        result = parse_engine(plan, error);
    char *text = plan->uapi;
    for (unsigned i = 0; i < plan->section_count && !result; i++)
        if (plan->sections[i].type == PLAN_WIREGUARD)
            result = parse_wireguard(plan, &plan->sections[i], &text, error);
    return result ? result : check_detours(plan, error);
}

int plan_parse(struct plan *plan, const char *text, size_t n, struct plan_error *error)
{
    memset(plan, 0, sizeof *plan);
    if (n > PLAN_MAX)
        return fail(error, 0, "the plan has %zu bytes, %d are the most", n, PLAN_MAX);
    size_t lines = 1;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    plan->length = n;
    plan->text = malloc(n + 1);
    plan->words = malloc(n + 1);
    plan->uapi = malloc(n + 2);
    plan->sections = calloc(lines, sizeof *plan->sections);
    plan->lines = calloc(lines, sizeof *plan->lines);
    plan->wireguard = calloc(lines, sizeof *plan->wireguard);
    int result = -ENOMEM;
    if (plan->text && plan->words && plan->uapi && plan->sections && plan->lines && plan->wireguard) {
        if (n) { /* no bytes may be no pointer */
            memcpy(plan->text, text, n);
            memcpy(plan->words, text, n);
        }
        plan->words[n] = 0;
        result = parse(plan, error);
    }
    if (result)
        plan_free(plan);
    return result;
}

void plan_free(struct plan *plan)
{
    if (plan->text)
        secret_wipe(plan->text, plan->length);
    if (plan->words)
        secret_wipe(plan->words, plan->length);
    if (plan->uapi)
        secret_wipe(plan->uapi, plan->length);
    free(plan->text);
    free(plan->words);
    free(plan->uapi);
    free(plan->sections);
    free(plan->lines);
    free(plan->wireguard);
    memset(plan, 0, sizeof *plan);
}

const struct plan_section *plan_find(const struct plan *plan, enum plan_type type, const char *name)
{
    for (unsigned i = 0; i < plan->section_count; i++)
        /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): there is room for a section in every line */
        if (plan->sections[i].type == type && plan->sections[i].name && strcmp(plan->sections[i].name, name) == 0)
            return &plan->sections[i];
    return NULL;
}
