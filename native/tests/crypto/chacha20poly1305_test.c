/* Every implementation of ChaCha20-Poly1305 that this CPU can run: known answers, agreement with the portable one over
 * random batches, and forged packets. */
#include "tests/check.h"

#include <stdlib.h>

#include "crypto/chacha20poly1305.h"
#include "crypto/random.h"
#include "crypto/sha256.h"
#include "tests/crypto/hex.h"
#include "wire/bytes.h"

#include "crypto_vectors.h"

enum { MAX_PLAIN = 9000, MAX_BATCH = 64, SLOT = MAX_PLAIN + CHACHA_TAG + 64 };

/* One slot a packet, so that what is written beside a packet is seen. */
static uint8_t plain[MAX_BATCH][SLOT], sealed[MAX_BATCH][SLOT], expected[MAX_BATCH][SLOT], opened[MAX_BATCH][SLOT];
static uint8_t joined[MAX_BATCH * SLOT];

static void test_known(void)
{
    static uint8_t key[32], nonce[24], ad[64], text[2048], want[2064], got[2064];
    for (size_t i = 0; i < ARRAY_COUNT(aead_cases) + ARRAY_COUNT(xaead_cases); i++) {
        bool extended = i >= ARRAY_COUNT(aead_cases);
        const struct aead_case *c = extended ? &xaead_cases[i - ARRAY_COUNT(aead_cases)] : &aead_cases[i];
        void (*seal)(uint8_t *, const uint8_t *, size_t, const uint8_t *, size_t, const uint8_t *, const uint8_t *) =
            extended ? xchacha_seal : chacha_seal;
        bool (*open)(uint8_t *, const uint8_t *, size_t, const uint8_t *, size_t, const uint8_t *, const uint8_t *) =
            extended ? xchacha_open : chacha_open;
        hex_bytes(key, c->key);
        hex_bytes(nonce, c->nonce);
        size_t ad_len = hex_bytes(ad, c->ad), n = hex_bytes(text, c->plain);
        CHECK_EQ(hex_bytes(want, c->sealed), n + CHACHA_TAG);
        size_t forged = n && i % 2 ? i % MIN(n, 1024u) : n + i % CHACHA_TAG; /* a byte of the text or of the tag */
        seal(got, text, n, ad_len ? ad : NULL, ad_len, nonce, key);
        if (!CHECK(memcmp(got, want, n + CHACHA_TAG) == 0))
            fprintf(stderr, "    %s by %s\n", c->name, chacha_selected());
        CHECK(open(got, got, n + CHACHA_TAG, ad_len ? ad : NULL, ad_len, nonce, key)); /* in place */
        CHECK_MEM(got, text, n);
        memset(got, 0x33, sizeof got);
        want[forged] ^= 1 << i % 8;
        CHECK(!open(got, want, n + CHACHA_TAG, ad_len ? ad : NULL, ad_len, nonce, key));
        CHECK(n < 16 || memcmp(got, text, n) != 0);
        CHECK(!open(got, want, i % CHACHA_TAG, NULL, 0, nonce, key)); /* shorter than a tag */
        if (!extended && !ad_len && load_le32(nonce) == 0) { /* such a case is a packet, too */
            want[forged] ^= 1 << i % 8;
            struct chacha_job jobs[9]; /* enough of them for the vectors, which leave small batches to others */
            for (unsigned k = 0; k < ARRAY_COUNT(jobs); k++)
                jobs[k] = (struct chacha_job){
                    .dst = sealed[k], .src = text, .len = (uint32_t)n, .counter = load_le64(nonce + 4)};
            chacha_seal_batch(key, jobs, ARRAY_COUNT(jobs));
            for (unsigned k = 0; k < ARRAY_COUNT(jobs); k++)
                if (!CHECK(memcmp(sealed[k], want, n + CHACHA_TAG) == 0))
                    fprintf(stderr, "    %s as a batch by %s\n", c->name, chacha_selected());
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(hchacha_cases); i++) {
        hex_bytes(key, hchacha_cases[i].key);
        hex_bytes(nonce, hchacha_cases[i].nonce);
        hex_bytes(want, hchacha_cases[i].out);
        hchacha(got, key, nonce);
        CHECK_MEM(got, want, 32);
    }
}

static void test_known_batches(void)
{
    for (size_t i = 0; i < ARRAY_COUNT(batch_cases); i++) {
        const struct batch_case *c = &batch_cases[i];
        struct chacha_job jobs[MAX_BATCH];
        uint8_t key[32], want[32], got[32];
        size_t total = 0;
        hex_bytes(key, c->key);
        hex_bytes(want, c->sha256);
        for (unsigned k = 0; k < c->n; k++) {
            for (unsigned j = 0; j < c->lengths[k]; j++)
                plain[k][j] = (7 * k + 3 * j) % 251;
            jobs[k] = (struct chacha_job){
                .dst = joined + total, .src = plain[k], .len = c->lengths[k], .counter = c->counter + k};
            total += c->lengths[k] + CHACHA_TAG;
        }
        chacha_seal_batch(key, jobs, c->n);
        CHECK(sha256(got, joined, total));
        if (!CHECK(memcmp(got, want, sizeof want) == 0))
            fprintf(stderr, "    batch '%s' by %s\n", c->name, chacha_selected());
    }
}

static uint32_t random_length(struct random *r, unsigned shape)
{
    static const uint32_t usual[] = {0, 32, 40, 64, 80, 128, 256, 576, 1280, 1420, 1424, 1500, 8920};
    switch (shape % 4) {
    case 0:
        return random_below(r, MAX_PLAIN + 1);
    case 1:
        return random_below(r, 200);
    case 2:
        return usual[random_below(r, ARRAY_COUNT(usual))];
    default:
        return 1420 - 16 * (random_below(r, 8) == 0);
    }
}

/* One random batch through the named implementation and through the portable one. */
static void test_random_batch(struct random *r, const char *name, unsigned turn)
{
    struct chacha_job jobs[MAX_BATCH], again[MAX_BATCH];
    uint8_t key[32];
    unsigned n = turn < 2 * MAX_BATCH ? turn / 2 + 1 : random_below(r, MAX_BATCH) + 1;
    bool in_place = turn & 1;
    uint64_t counter = (uint64_t)random_u32(r) << (turn % 3 * 16);
    random_bytes(r, key, sizeof key);
    for (unsigned i = 0; i < n; i++) {
        uint32_t len = random_length(r, turn / 2 + turn / 8);
        unsigned shift_in = random_below(r, 32), shift_out = in_place ? shift_in : random_below(r, 32);
        random_bytes(r, plain[i], MIN(len + 32, 64u));
        for (uint32_t j = 64; j < len + shift_in; j++) /* cheaper than drawing it all */
            plain[i][j] = (uint8_t)(plain[i][j - 64] * 5 + j + i);
        memset(sealed[i], 0xa5, SLOT);
        memset(expected[i], 0xa5, SLOT);
        if (in_place)
            memcpy(sealed[i] + shift_out, plain[i] + shift_in, len);
        jobs[i] = (struct chacha_job){.dst = sealed[i] + shift_out,
                                      .src = in_place ? sealed[i] + shift_out : plain[i] + shift_in,
                                      .len = len,
                                      .counter = counter + i * (turn % 5 ? 1 : 0x100000001)};
        again[i] = jobs[i];
        again[i].dst = expected[i] + shift_out;
        again[i].src = plain[i] + shift_in;
    }
    CHECK(chacha_select_name("portable"));
    chacha_seal_batch(key, again, n);
    CHECK(chacha_select_name(name));
    chacha_seal_batch(key, jobs, n);
    for (unsigned i = 0; i < n; i++)
        if (!CHECK(memcmp(sealed[i], expected[i], SLOT) == 0)) /* nothing beside the packet was written either */
            fprintf(stderr, "    turn %u, packet %u of %u, %u bytes, by %s\n", turn, i, n, jobs[i].len, name);

    /* Some packets are forged: one bit anywhere, or another counter. */
    bool forged[MAX_BATCH] = {0};
    unsigned forgeries = 0;
    for (unsigned i = 0; i < n; i++) {
        struct chacha_job *j = &jobs[i];
        uint32_t len = again[i].len + CHACHA_TAG;
        uint32_t how = turn % 4 ? random_below(r, 6) : 5;
        j->src = j->dst;
        j->len = len;
        j->ok = random_below(r, 2);
        if (how < 2) {
            uint32_t bit = random_below(r, 8 * (how ? len : CHACHA_TAG));
            j->dst[len - 1 - bit / 8] ^= 1 << bit % 8;
        } else if (how == 2) {
            j->counter ^= (uint64_t)1 << random_below(r, 64);
        } else if (how == 3) {
            j->len = random_below(r, MIN(len, 40u)); /* cut, mostly below a tag */
        }
        forged[i] = how < 4;
        forgeries += forged[i];
        if (!in_place)
            j->dst = opened[i] + random_below(r, 32);
        memset(opened[i], 0x5a, SLOT);
    }
    CHECK_EQ(chacha_open_batch(key, jobs, n), forgeries);
    for (unsigned i = 0; i < n; i++) {
        CHECK_EQ(jobs[i].ok, !forged[i]);
        bool same = memcmp(jobs[i].dst, again[i].src, again[i].len) == 0;
        if (!CHECK(forged[i] ? !same || again[i].len < 16 : same))
            fprintf(stderr, "    turn %u, packet %u of %u, %u bytes, by %s\n", turn, i, n, again[i].len, name);
        if (!in_place && !forged[i]) {
            const uint8_t *end = jobs[i].dst + again[i].len;
            for (unsigned k = 0; k < 32; k++)
                CHECK(end[k] == 0x5a && (jobs[i].dst - 1 - k < opened[i] || jobs[i].dst[-1 - (int)k] == 0x5a));
        }
    }
}

/* Packets at the very end of their memory: an implementation that reads or writes whole vectors beyond is caught by the
 * address sanitizer where it can see it, and by the guard bytes for writes. */
static void test_exact_memory(const char *name)
{
    uint8_t key[32] = {9};
    for (unsigned n = 1; n <= 17; n += 4) {
        for (uint32_t len = 0; len < 300; len += n == 1 ? 1 : 13) {
            struct chacha_job jobs[17];
            for (unsigned i = 0; i < n; i++) {
                uint8_t *p = malloc(len + CHACHA_TAG);
                memset(p, (int)i, len);
                jobs[i] = (struct chacha_job){.dst = p, .src = p, .len = len, .counter = i};
            }
            chacha_seal_batch(key, jobs, n);
            for (unsigned i = 0; i < n; i++)
                jobs[i].len += CHACHA_TAG;
            CHECK_EQ(chacha_open_batch(key, jobs, n), 0);
            for (unsigned i = 0; i < n; i++) {
                bool same = true;
                for (uint32_t k = 0; k < len; k++)
                    same = same && jobs[i].dst[k] == i;
                if (!CHECK(same))
                    fprintf(stderr, "    %u bytes, batch of %u, by %s\n", len, n, name);
                free(jobs[i].dst);
            }
        }
    }
}

/* Every length around the ends of blocks, in batches of equal packets: opening writes the text and not a byte more. */
static void test_lengths(const char *name)
{
    static const unsigned batches[] = {1, 3, 8, 17};
    uint8_t key[32] = {7};
    for (unsigned b = 0; b < ARRAY_COUNT(batches); b++) {
        for (uint32_t len = 0; len < 200; len++) {
            struct chacha_job jobs[17];
            unsigned n = batches[b];
            for (unsigned i = 0; i < n; i++) {
                memset(plain[i], (int)(i + len), len);
                jobs[i] = (struct chacha_job){.dst = sealed[i], .src = plain[i], .len = len, .counter = i};
            }
            chacha_seal_batch(key, jobs, n);
            for (unsigned i = 0; i < n; i++) {
                memset(opened[i], 0x5a, len + 64);
                jobs[i].src = sealed[i];
                jobs[i].dst = opened[i];
                jobs[i].len = len + CHACHA_TAG;
            }
            CHECK_EQ(chacha_open_batch(key, jobs, n), 0);
            bool right = true;
            for (unsigned i = 0; i < n; i++) {
                right = right && memcmp(opened[i], plain[i], len) == 0;
                for (unsigned k = 0; k < 64; k++)
                    right = right && opened[i][len + k] == 0x5a;
            }
            if (!CHECK(right))
                fprintf(stderr, "    %u bytes, batch of %u, by %s\n", len, n, name);
        }
    }
}

int main(void)
{
    const char *const *names = chacha_names();
    unsigned ran = 0;
    const char *best = "portable"; /* the first of the list that runs here */
    CHECK(!chacha_select_name("no such thing"));
    CHECK(!chacha_usable("no such thing"));
    for (unsigned i = 0; names[i]; i++) {
        if (!chacha_usable(names[i])) {
            printf("skipped: %s, which this CPU cannot run\n", names[i]);
            CHECK(!chacha_select_name(names[i]));
            continue;
        }
        struct random r;
        uint8_t seed[32] = {8, 4, 3, 9};
        CHECK(chacha_select_name(names[i]));
        CHECK_STR(chacha_selected(), names[i]);
        if (ran == 0)
            best = names[i];
        test_known();
        test_known_batches();
        test_exact_memory(names[i]);
        test_lengths(names[i]);
        random_seed(&r, seed);
        for (unsigned turn = 0; turn < 300; turn++)
            test_random_batch(&r, names[i], turn);
        ran++;
        printf("%s: ran\n", names[i]);
    }
    CHECK(ran >= 2);
    CHECK_STR(chacha_select(~0u), best);
    CHECK_STR(chacha_select(0), "portable");
    return check_done();
}
