/* The C unit tests' whole harness: a failed check says what and where, the program goes on and exits 1 at its end.
 * A test program is `int main(void) { CHECK(...); ...; return check_done(); }`. */
#ifndef FV_TESTS_CHECK_H
#define FV_TESTS_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static unsigned check_count, check_failures;

static inline bool check_report(bool ok, const char *file, int line, const char *text)
{
    check_count++;
    if (!ok) {
        check_failures++;
        fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
    }
    return ok;
}

static inline void check_dump(const char *name, const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    fprintf(stderr, "    %s:", name);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "%s%02x", i % 32 ? "" : "\n      ", b[i]);
    fputc('\n', stderr);
}

#define CHECK(cond) check_report((cond), __FILE__, __LINE__, #cond)

/* Two integers: both are printed when they differ. */
#define CHECK_EQ(got, want) \
    do { \
        long long check_g = (long long)(got), check_w = (long long)(want); \
        if (!check_report(check_g == check_w, __FILE__, __LINE__, #got " == " #want)) \
            fprintf(stderr, "    got %lld, want %lld\n", check_g, check_w); \
    } while (0)

/* n bytes at each of two places. */
#define CHECK_MEM(got, want, n) \
    do { \
        if (!check_report(memcmp((got), (want), (n)) == 0, __FILE__, __LINE__, #got " == " #want)) { \
            check_dump("got ", (got), (n)); \
            check_dump("want", (want), (n)); \
        } \
    } while (0)

#define CHECK_STR(got, want) \
    do { \
        const char *check_g = (got), *check_w = (want); \
        if (!check_report(strcmp(check_g, check_w) == 0, __FILE__, __LINE__, #got " == " #want)) \
            fprintf(stderr, "    got  '%s'\n    want '%s'\n", check_g, check_w); \
    } while (0)

static inline int check_done(void)
{
    printf("%u checks, %u failed\n", check_count, check_failures);
    return check_failures != 0;
}

#endif
