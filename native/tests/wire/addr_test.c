#include "../check.h"
#include "packets.h"
#include "wire/addr.h"

#include <arpa/inet.h>

static enum text_error parse(struct addr *a, const char *s)
{
    return addr_parse(a, s, strlen(s));
}

static void with_port(void)
{
    static const struct {
        const char *in, *out;
        enum text_error e;
    } cases[] = {
        {"1.2.3.4:51820", "1.2.3.4:51820", TEXT_OK},
        {"[2001:db8::1]:51820", "[2001:db8::1]:51820", TEXT_OK},
        {"[fe80::1%3]:1", "[fe80::1%3]:1", TEXT_OK},
        {"[FE80:0:0:0:0:0:0:1%4294967295]:65535", "[fe80::1%4294967295]:65535", TEXT_OK},
        {"[::ffff:1.2.3.4]:5", "[::ffff:1.2.3.4]:5", TEXT_OK},
        {"[::]:0", "[::]:0", TEXT_OK},
        {"", NULL, TEXT_EMPTY},
        {"1.2.3.4", NULL, TEXT_LENGTH},
        {"1.2.3.4:", NULL, TEXT_EMPTY},
        {"1.2.3.4:65536", NULL, TEXT_RANGE},
        {"1.2.3.4:-1", NULL, TEXT_CHARACTER},
        {"1.2.3:1", NULL, TEXT_CHARACTER},
        {"1.2.3.4.5:1", NULL, TEXT_CHARACTER},
        {"1.2.3.256:1", NULL, TEXT_RANGE},
        {"1.2.3.04:1", NULL, TEXT_CHARACTER},
        {"[1.2.3.4]:1", NULL, TEXT_CHARACTER},
        {"2001:db8::1:51820", NULL, TEXT_CHARACTER},
        {"[2001:db8::1:51820", NULL, TEXT_CHARACTER},
        {"[2001:db8::1%eth0]:1", NULL, TEXT_CHARACTER},
        {"[2001:db8::1%]:1", NULL, TEXT_EMPTY},
        {"[2001:db8::1%4294967296]:1", NULL, TEXT_RANGE},
        {"[]:1", NULL, TEXT_CHARACTER},
        {"vpn.example:51820", NULL, TEXT_CHARACTER},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct addr a = {0};
        char text[ADDR_TEXT_SIZE];
        if (!CHECK(parse(&a, cases[i].in) == cases[i].e))
            fprintf(stderr, "    case '%s': %s\n", cases[i].in, text_error_name(parse(&a, cases[i].in)));
        if (cases[i].out && addr_format(&a, text))
            CHECK_STR(text, cases[i].out);
    }
}

/* libc's inet_pton and inet_ntop are the judges; its few different habits are named. */
static void against_libc(void)
{
    static const char *const texts[] = {
        "::",
        "::1",
        "1::",
        "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7::",
        "::2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "1::2::3",
        ":1",
        "1:",
        ":::",
        "::1:",
        "12345::",
        "g::",
        "1:2:3:4:5:6:1.2.3.4",
        "1:2:3:4:5:6:7:1.2.3.4",
        "::1.2.3.4",
        "::1.2.3",
        "::1.2.3.4.5",
        "::1.2.3.4:5",
        "fe80::%1",
        "1:0:0:2:0:0:0:3",
        "1:0:2:3:4:5:6:7",
        "0:0:1:0:0:1:0:0",
        "::ffff:0:1",
        "64:ff9b::1.2.3.4",
        "1:2:3:4:5:6:7:",
        "1:2:3:4:5:6:7:8:",
        "1:2:3:4:5:6:7::8",
        "::1:2:3:4:5:6:7:8",
        "1:2:3:4::5:6:7:8",
    };
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct addr a;
        uint8_t want[16];
        bool libc = inet_pton(AF_INET6, texts[i], want) == 1;
        bool ours = addr_parse_ip(&a, texts[i], strlen(texts[i])) == TEXT_OK;
        if (strchr(texts[i], '%') || strcmp(texts[i], "1:2:3:4:5:6:7::8") == 0 ||
            strcmp(texts[i], "1:2:3:4::5:6:7:8") == 0)
            libc = ours; /* zones; and "::" for no group at all, which glibc's versions see differently */
        if (!CHECK(ours == libc))
            fprintf(stderr, "    '%s': libc %d\n", texts[i], libc);
        if (ours && libc && !strchr(texts[i], '%') && inet_pton(AF_INET6, texts[i], want) == 1)
            CHECK_MEM(a.ip, want, 16);
    }
    for (int i = 0; i < 5000; i++) {
        struct addr a = {.family = 6}, back;
        for (int k = 0; k < 16; k += 2)
            store_be16(a.ip + k, (uint16_t)(random_below(3) ? 0 : random_u32() >> random_below(16)));
        if (i % 100 == 0)
            memcpy(a.ip, (uint8_t[12]){[10] = 0xff, [11] = 0xff}, 12);
        char ours[ADDR_TEXT_SIZE], libc[INET6_ADDRSTRLEN];
        inet_ntop(AF_INET6, a.ip, libc, sizeof libc);
        size_t n = addr_format_ip(&a, ours);
        if (!(libc[0] == ':' && libc[1] == ':' && strchr(libc, '.') && strncmp(libc, "::ffff:", 7) != 0))
            CHECK_STR(ours, libc); /* glibc writes the deprecated ::1.2.3.4 */
        CHECK_EQ(addr_parse_ip(&back, ours, n), TEXT_OK);
        CHECK(addr_equal(&a, &back));

        a = (struct addr){.family = 4};
        random_fill(a.ip, 4);
        n = addr_format_ip(&a, ours);
        inet_ntop(AF_INET, a.ip, libc, sizeof libc);
        CHECK_STR(ours, libc);
        CHECK(addr_parse_ip(&back, ours, n) == TEXT_OK && addr_equal(&a, &back));
    }
}

static void prefixes(void)
{
    static const struct {
        const char *in, *out;
        enum text_error e;
    } cases[] = {
        {"10.1.2.3/8", "10.0.0.0/8", TEXT_OK},
        {"10.1.2.3", "10.1.2.3/32", TEXT_OK},
        {"0.0.0.0/0", "0.0.0.0/0", TEXT_OK},
        {"fd12:3456::1/12", "fd10::/12", TEXT_OK},
        {"::/0", "::/0", TEXT_OK},
        {"::1", "::1/128", TEXT_OK},
        {"10.0.0.0/33", NULL, TEXT_RANGE},
        {"::/129", NULL, TEXT_RANGE},
        {"10.0.0.0/", NULL, TEXT_EMPTY},
        {"10.0.0.0/255.0.0.0", NULL, TEXT_CHARACTER},
        {"fe80::%1/64", NULL, TEXT_CHARACTER},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct prefix p;
        char text[PREFIX_TEXT_SIZE];
        CHECK_EQ(prefix_parse(&p, cases[i].in, strlen(cases[i].in)), cases[i].e);
        if (cases[i].out) {
            prefix_mask(&p);
            prefix_format(&p, text);
            CHECK_STR(text, cases[i].out);
        }
    }
    struct prefix p;
    prefix_parse(&p, "10.20.30.40/29", 14);
    CHECK(prefix_contains(&p, 4, (const uint8_t[]){10, 20, 30, 47}));
    CHECK(!prefix_contains(&p, 4, (const uint8_t[]){10, 20, 30, 48}));
    CHECK(!prefix_contains(&p, 6, (const uint8_t[16]){10, 20, 30, 41}));
    prefix_parse(&p, "::/0", 4);
    CHECK(prefix_contains(&p, 6, (const uint8_t[16]){0xff}));
}

int main(void)
{
    with_port();
    against_libc();
    prefixes();
    struct addr a;
    parse(&a, "[::ffff:9.8.7.6]:5");
    addr_unmap(&a);
    struct addr b;
    parse(&b, "9.8.7.6:5");
    CHECK(addr_equal(&a, &b));
    CHECK_EQ(addr_hash(&a, 1), addr_hash(&b, 1));
    b.port++;
    CHECK(addr_equal_ip(&a, &b) && !addr_equal(&a, &b));
    parse(&a, "[fe80::1%2]:1");
    CHECK(addr_is_link_local(&a));
    return check_done();
}
