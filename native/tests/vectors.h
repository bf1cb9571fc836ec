/* Test vectors as a tree (made from JSON by tests/vectors/to_header.py) and how a test reads it: by a path of keys and
 * list positions, "handshakes.0.initiator.trace.h_after_e". A path that does not exist ends the test: a mistyped name must
 * not pass for an empty vector. */
#ifndef FV_TESTS_VECTORS_H
#define FV_TESTS_VECTORS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vector {
    const char *key;
    const struct vector *children; /* of an object or a list */
    size_t count;
    uint64_t number;               /* integers and booleans */
    const char *text;              /* strings */
    size_t size;
    const uint8_t *bytes;          /* strings that can be hex, else NULL */
    size_t length;
};

/* NULL: no such path. */
static inline const struct vector *vector_find(const struct vector *v, const char *path)
{
    while (v && *path) {
        size_t n = strcspn(path, ".");
        const struct vector *found = NULL;
        for (size_t i = 0; i < v->count && !found; i++)
            if (strlen(v->children[i].key) == n && memcmp(v->children[i].key, path, n) == 0)
                found = &v->children[i];
        v = found;
        path += path[n] ? n + 1 : n;
    }
    return v;
}

static inline const struct vector *vector_at(const struct vector *v, const char *path)
{
    const struct vector *found = vector_find(v, path);
    if (!found) {
        fprintf(stderr, "the vectors have no %s\n", path);
        exit(1);
    }
    return found;
}

static inline const char *vector_text(const struct vector *v, const char *path)
{
    const struct vector *found = vector_at(v, path);
    if (!found->text) {
        fprintf(stderr, "%s is no string\n", path);
        exit(1);
    }
    return found->text;
}

static inline const uint8_t *vector_bytes(const struct vector *v, const char *path)
{
    const struct vector *found = vector_at(v, path);
    if (!found->bytes) {
        fprintf(stderr, "%s is no hex\n", path);
        exit(1);
    }
    return found->bytes;
}

static inline uint64_t vector_number(const struct vector *v, const char *path)
{
    const struct vector *found = vector_at(v, path);
    return found->text ? strtoull(found->text, NULL, 10) : found->number;
}

#endif
