/* The trie: the vectors, numbered one-line cases, and random sets against a linear search. */
#include "wg/allowedips.c"

#include "tests/check.h"
#include "vectors_wireguard.h"
#include "wire/addr.h"

static struct wg_device *dev;
static struct wg_peer *peers[8]; /* A to H */

static void setup(void)
{
    uint8_t seed[32] = {3}, key[32] = {0};
    dev = wg_device_new(seed, NULL);
    for (unsigned i = 0; i < ARRAY_COUNT(peers); i++) {
        key[0] = (uint8_t)(i + 1);
        peers[i] = wg_peer_new(dev, key);
    }
}

static void teardown(void)
{
    wg_device_free(dev);
}

static void parse(const char *text, struct prefix *p)
{
    CHECK_EQ(prefix_parse(p, text, strlen(text)), TEXT_OK);
}

static void insert(const char *text, char who)
{
    struct prefix p;
    parse(text, &p);
    CHECK_EQ(wg_allowedips_insert(peers[who - 'A'], p.ip, (uint8_t)addr_len(p.family), p.bits), 0);
}

static void drop(const char *text, char who)
{
    struct prefix p;
    parse(text, &p);
    wg_allowedips_remove(peers[who - 'A'], p.ip, (uint8_t)addr_len(p.family), p.bits);
}

static char lookup(const char *text)
{
    struct prefix p;
    parse(text, &p);
    struct wg_peer *peer = p.family == 4 ? wg_allowedips_lookup4(dev, p.ip) : wg_allowedips_lookup6(dev, p.ip);
    for (unsigned i = 0; i < ARRAY_COUNT(peers); i++)
        if (peers[i] == peer)
            return (char)('A' + i);
    return '-';
}

static void test_vectors(void)
{
    const struct vector *v = vector_at(&vectors_wireguard, "allowed_ips");
    const struct vector *in = vector_at(v, "insert"), *then = vector_at(v, "then_insert"),
                        *masks = vector_at(v, "masks");
    static const char *const lookups[] = {"lookup", "then_lookup", "final_lookup"};
    setup();
    for (size_t i = 0; i < in->count; i++)
        insert(vector_text(&in->children[i], "0"), vector_text(&in->children[i], "1")[0]);
    for (unsigned stage = 0; stage < 3; stage++) {
        if (stage == 1)
            for (size_t i = 0; i < then->count; i++)
                insert(vector_text(&then->children[i], "0"), vector_text(&then->children[i], "1")[0]);
        if (stage == 2)
            wg_allowedips_remove_peer(peers[vector_text(v, "then_remove_peer")[0] - 'A']);
        const struct vector *l = vector_at(v, lookups[stage]);
        for (size_t i = 0; i < l->count; i++)
            CHECK_EQ(lookup(vector_text(&l->children[i], "0")), vector_text(&l->children[i], "1")[0]);
    }
    for (size_t i = 0; i < masks->count; i++) {
        struct prefix given, want;
        uint8_t bits[16];
        parse(vector_text(&masks->children[i], "0"), &given);
        parse(vector_text(&masks->children[i], "1"), &want);
        allowed_mask(bits, given.ip, (unsigned)addr_len(given.family), given.bits);
        CHECK_MEM(bits, want.ip, addr_len(given.family));
    }
    teardown();
}

/* '+': insert, '-': remove, '?': look up, '!': all of a peer's. */
static const struct {
    int number;
    char what;
    const char *prefix;
    char who;
} cases[] = {
    {1, '?', "10.0.0.1", '-'},              /* an empty trie */
    {2, '?', "::1", '-'},
    {3, '+', "10.0.0.0/8", 'A'},
    {4, '?', "10.255.255.255", 'A'},
    {5, '?', "11.0.0.0", '-'},
    {6, '?', "9.255.255.255", '-'},
    {7, '+', "10.0.0.77/24", 'B'},          /* host bits masked; inside A */
    {8, '?', "10.0.0.1", 'B'},
    {9, '?', "10.0.1.1", 'A'},
    {10, '-', "10.0.0.0/24", 'A'},          /* not A's: nothing happens */
    {11, '?', "10.0.0.1", 'B'},
    {12, '-', "10.0.0.99/24", 'B'},         /* host bits masked here too */
    {13, '?', "10.0.0.1", 'A'},
    {14, '+', "0.0.0.0/0", 'C'},            /* above what is there */
    {15, '?', "11.0.0.0", 'C'},
    {16, '?', "10.0.0.1", 'A'},
    {17, '+', "0.0.0.0/0", 'D'},            /* moves */
    {18, '?', "11.0.0.0", 'D'},
    {19, '!', "", 'C'},                     /* C has nothing left */
    {20, '?', "11.0.0.0", 'D'},
    {21, '+', "10.0.0.1/32", 'E'},
    {22, '+', "10.0.0.0/32", 'F'},          /* the other leaf of the same /31 */
    {23, '?', "10.0.0.1", 'E'},
    {24, '?', "10.0.0.0", 'F'},
    {25, '?', "10.0.0.2", 'A'},
    {26, '+', "10.0.0.0/31", 'G'},          /* a branch gets an owner */
    {27, '!', "", 'E'},
    {28, '?', "10.0.0.1", 'G'},
    {29, '!', "", 'G'},
    {30, '?', "10.0.0.1", 'A'},
    {31, '?', "10.0.0.0", 'F'},
    {32, '!', "", 'A'},
    {33, '?', "10.0.0.1", 'D'},
    {34, '!', "", 'D'},
    {35, '?', "10.0.0.1", '-'},
    {36, '?', "10.0.0.0", 'F'},
    {37, '!', "", 'F'},
    {38, '?', "10.0.0.0", '-'},
    {39, '+', "::/0", 'A'},
    {40, '+', "fd00::/64", 'B'},            /* the edge of the upper word */
    {41, '+', "fd00::/65", 'C'},
    {42, '+', "fd00::1/128", 'D'},
    {43, '+', "fd00::/63", 'E'},
    {44, '?', "fd00::8000:0:0:1", 'B'},
    {45, '?', "fd00::2", 'C'},
    {46, '?', "fd00::1", 'D'},
    {47, '?', "fd00:0:0:1::", 'E'},
    {48, '?', "fd00:0:0:2::", 'A'},
    {49, '?', "10.0.0.1", '-'},             /* families are apart */
    {50, '!', "", 'C'},
    {51, '?', "fd00::2", 'B'},
};

static void test_cases(void)
{
    setup();
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        if (cases[i].what == '+')
            insert(cases[i].prefix, cases[i].who);
        else if (cases[i].what == '-')
            drop(cases[i].prefix, cases[i].who);
        else if (cases[i].what == '!')
            wg_allowedips_remove_peer(peers[cases[i].who - 'A']);
        else if (!CHECK(lookup(cases[i].prefix) == cases[i].who))
            fprintf(stderr, "    case %d\n", cases[i].number);
    }
    teardown();
}

static void test_mark_and_sweep(void)
{
    setup();
    insert("10.0.0.0/8", 'A');
    insert("11.0.0.0/8", 'A');
    insert("12.0.0.0/8", 'A');
    wg_allowedips_mark(peers[0]);
    CHECK_EQ(lookup("10.0.0.1"), 'A'); /* no gap */
    insert("11.0.0.0/8", 'A');
    insert("13.0.0.0/8", 'A');
    insert("12.0.0.0/8", 'B');         /* taken over while marked: not A's to sweep */
    wg_allowedips_sweep(peers[0]);
    CHECK_EQ(lookup("10.0.0.1"), '-');
    CHECK_EQ(lookup("11.0.0.1"), 'A');
    CHECK_EQ(lookup("12.0.0.1"), 'B');
    CHECK_EQ(lookup("13.0.0.1"), 'A');
    insert("11.0.0.0/9", 'C');
    wg_allowedips_sweep(peers[1]);
    CHECK_EQ(lookup("12.0.0.1"), 'B');
    teardown();
}

/* ---- random sets against the definition ---- */

struct row {
    struct prefix p;
    unsigned who;
};

static unsigned random_rows(struct row *rows, unsigned size, uint64_t seed)
{
    uint64_t x = seed;
    unsigned n = 0, wrong = 0;
    for (unsigned step = 0; step < 4000; step++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        struct prefix p = {.family = x & 1 ? 4 : 6};
        p.bits = (uint8_t)((x >> 8) % (p.family == 4 ? 33 : 129));
        for (unsigned i = 0; i < addr_len(p.family); i++)
            p.ip[i] = (uint8_t)((x >> (16 + i % 4 * 8)) & 0x83); /* few bits: many of them meet */
        unsigned who = (unsigned)(x >> 50) % ARRAY_COUNT(peers), what = (unsigned)(x >> 56) % 8, at;
        prefix_mask(&p);
        uint8_t len = (uint8_t)addr_len(p.family);
        for (at = 0; at < n && (rows[at].p.family != p.family || rows[at].p.bits != p.bits ||
                                memcmp(rows[at].p.ip, p.ip, 16) != 0);)
            at++;
        if (what == 0) {
            wg_allowedips_remove(peers[who], p.ip, len, p.bits);
            if (at < n && rows[at].who == who)
                rows[at] = rows[--n];
        } else if (what == 1 && step % 64 == 0) {
            wg_allowedips_remove_peer(peers[who]);
            for (unsigned i = 0; i < n;)
                if (rows[i].who == who)
                    rows[i] = rows[--n];
                else
                    i++;
        } else if (what < 5 && n < size) {
            wg_allowedips_insert(peers[who], p.ip, len, p.bits);
            rows[at] = (struct row){p, who};
            n += at == n;
        } else { /* look the address up */
            struct wg_peer *want = NULL;
            int best = -1;
            for (unsigned i = 0; i < n; i++)
                if (prefix_contains(&rows[i].p, p.family, p.ip) && rows[i].p.bits > best) {
                    best = rows[i].p.bits;
                    want = peers[rows[i].who];
                }
            wrong += (len == 4 ? wg_allowedips_lookup4(dev, p.ip) : wg_allowedips_lookup6(dev, p.ip)) != want;
        }
        if (step % 100 == 0) {
            wg_device_retire(dev);
            wg_device_reclaim(dev);
        }
    }
    for (unsigned i = 0; i < ARRAY_COUNT(peers); i++) { /* the peers' own lists agree */
        unsigned listed = 0, counted = 0;
        for (struct wg_allowed *a = peers[i]->allowed.first; a; a = a->next)
            listed++;
        for (unsigned j = 0; j < n; j++)
            counted += rows[j].who == i;
        wrong += listed != counted;
        wg_allowedips_remove_peer(peers[i]);
    }
    return wrong;
}

static void test_random(void)
{
    static struct row rows[600];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        setup();
        CHECK_EQ(random_rows(rows, ARRAY_COUNT(rows), seed * 0x9e3779b97f4a7c15ull), 0);
        CHECK(dev->allowedips.root4 == NULL && dev->allowedips.root6 == NULL); /* no node is left behind */
        teardown();
    }
}

int main(void)
{
    test_vectors();
    test_cases();
    test_mark_and_sweep();
    test_random();
    return check_done();
}
