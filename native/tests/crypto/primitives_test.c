/* Known answers for BLAKE2s, HMAC, WireGuard's KDF, X25519, SHA-256; the random generator; secret.h. */
#include "tests/check.h"

#include "crypto/blake2s.h"
#include "crypto/chacha20poly1305_impl.h"
#include "crypto/random.h"
#include "crypto/secret.h"
#include "crypto/sha256.h"
#include "crypto/x25519.h"
#include "tests/crypto/hex.h"
#include "wire/bytes.h"

#include "crypto_vectors.h"

static void test_blake2s(void)
{
    for (size_t i = 0; i < ARRAY_COUNT(blake2s_cases); i++) {
        const struct blake2s_case *c = &blake2s_cases[i];
        uint8_t key[32], input[1024], want[32], got[32];
        size_t key_len = hex_bytes(key, c->key), n = hex_bytes(input, c->input);
        CHECK_EQ(hex_bytes(want, c->digest), c->out);
        blake2s(got, c->out, key, key_len, input, n);
        CHECK_MEM(got, want, c->out);
        for (size_t step = 1; step <= 129; step += 16) { /* in pieces, across the block's edges */
            struct blake2s s;
            blake2s_init(&s, c->out, key, key_len);
            for (size_t at = 0; at < n; at += step)
                blake2s_update(&s, input + at, MIN(step, n - at));
            blake2s_final(&s, got);
            CHECK_MEM(got, want, c->out);
        }
    }
    for (size_t i = 0; i < ARRAY_COUNT(hmac_cases); i++) {
        const struct hmac_case *c = &hmac_cases[i];
        uint8_t key[128], input[128], want[32], got[32];
        size_t key_len = hex_bytes(key, c->key), n = hex_bytes(input, c->input);
        hex_bytes(want, c->digest);
        blake2s_hmac(got, key, key_len, input, n);
        CHECK_MEM(got, want, 32);
    }
    for (size_t i = 0; i < ARRAY_COUNT(kdf_cases); i++) {
        const struct kdf_case *c = &kdf_cases[i];
        uint8_t key[32], input[128], want[3][32], got[3][32];
        const char *outputs[3] = {c->t1, c->t2, c->t3};
        size_t n = hex_bytes(input, c->input);
        hex_bytes(key, c->key);
        blake2s_kdf(c->n, got[0], got[1], got[2], key, input, n);
        for (unsigned k = 0; k < c->n; k++) {
            hex_bytes(want[k], outputs[k]);
            CHECK_MEM(got[k], want[k], 32);
        }
        blake2s_kdf(1, key, NULL, NULL, key, input, n); /* the chaining key in place */
        CHECK_MEM(key, want[0], 32);
    }
}

static void test_x25519(void)
{
    for (size_t i = 0; i < ARRAY_COUNT(x25519_cases); i++) {
        const struct x25519_case *c = &x25519_cases[i];
        uint8_t priv[32], pub[32], want[32], got[32];
        hex_bytes(priv, c->private);
        hex_bytes(pub, c->public);
        hex_bytes(want, c->shared);
        CHECK(x25519(got, priv, pub));
        CHECK_MEM(got, want, 32);
        hex_bytes(want, c->base);
        CHECK(x25519_base(got, priv));
        CHECK_MEM(got, want, 32);
        x25519_clamp(priv);
        CHECK(x25519_base(got, priv));
        CHECK_MEM(got, want, 32);
        CHECK(x25519_base(priv, priv)); /* in place */
        CHECK_MEM(priv, want, 32);
    }
    for (size_t i = 0; i < ARRAY_COUNT(x25519_refused); i++) {
        uint8_t priv[32], pub[32], got[32];
        memset(priv, 0x42, sizeof priv);
        memset(got, 0x55, sizeof got);
        hex_bytes(pub, x25519_refused[i]);
        CHECK(!x25519(got, priv, pub));
        CHECK(secret_is_zero(got, sizeof got));
    }
    /* RFC 7748, 5.2: k = u = 9, then k, u = f(k, u), k; after 1 and 1,000 turns. */
    uint8_t k[32] = {9}, u[32] = {9}, next[32], want[32];
    for (unsigned turn = 1; turn <= 1000; turn++) {
        x25519(next, k, u);
        memcpy(u, k, 32);
        memcpy(k, next, 32);
        if (turn == 1) {
            hex_bytes(want, "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079");
            CHECK_MEM(k, want, 32);
        }
    }
    hex_bytes(want, "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51");
    CHECK_MEM(k, want, 32);
}

static void test_sha256(void)
{
    uint8_t got[32], want[32];
    hex_bytes(want, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256(got, "abc", 3));
    CHECK_MEM(got, want, 32);
    hex_bytes(want, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    CHECK(sha256(got, "", 0));
    CHECK_MEM(got, want, 32);
}

static void test_random(void)
{
    struct random a, b;
    uint8_t seed[32] = {1, 2, 3}, x[1000], y[1000], stream[5 * 64];
    static const uint8_t nonce[12];
    random_seed(&a, seed);
    random_seed(&b, seed);
    random_bytes(&a, x, sizeof x);
    for (size_t at = 0; at < sizeof y; at += 7) /* the same bytes whatever the pieces */
        random_bytes(&b, y + at, MIN((size_t)7, sizeof y - at));
    CHECK_MEM(x, y, sizeof x);
    /* what is handed out is the keystream from block 1 on; then the first half of block 0 is the key */
    for (uint32_t i = 0; i < 5; i++)
        chacha_block(stream + 64 * i, seed, i, nonce);
    CHECK_MEM(x, stream + 64, RANDOM_BUFFER);
    chacha_block(stream + 64, stream, 1, nonce);
    CHECK_MEM(x + RANDOM_BUFFER, stream + 64, 64);
    CHECK(secret_is_zero(a.buffer, RANDOM_BUFFER - a.left)); /* drawn bytes are gone */
    CHECK(a.left > 0);

    random_reseed(&b, "", 0);
    CHECK_EQ(b.left, RANDOM_BUFFER);
    random_bytes(&a, x, 64);
    random_bytes(&b, y, 64);
    CHECK(memcmp(x, y, 64) != 0);
    unsigned seen[5] = {0};
    for (unsigned i = 0; i < 5000; i++) {
        uint32_t v = random_below(&a, 5);
        CHECK(v < 5);
        seen[v % 5]++;
    }
    for (unsigned i = 0; i < 5; i++)
        CHECK(seen[i] > 850 && seen[i] < 1150);
    CHECK_EQ(random_below(&a, 1), 0);
    uint32_t bits = 0;
    for (unsigned i = 0; i < 64; i++)
        bits |= random_below(&a, 0);
    CHECK_EQ(bits, 0xffffffff);
}

static void test_secret(void)
{
    uint8_t a[33] = {0}, b[33] = {0};
    CHECK(secret_is_zero(a, sizeof a));
    CHECK(secret_is_zero(a, 0));
    for (unsigned i = 0; i < sizeof a * 8; i++) {
        a[i / 8] ^= 1 << i % 8;
        CHECK(!secret_equal(a, b, sizeof a));
        CHECK(!secret_is_zero(a, sizeof a));
        a[i / 8] = 0;
    }
    CHECK(secret_equal(a, b, sizeof a));
    memset(a, 7, sizeof a);
    secret_wipe(a, 32);
    CHECK(secret_is_zero(a, 32));
    CHECK_EQ(a[32], 7);
}

int main(void)
{
    test_blake2s();
    test_x25519();
    test_sha256();
    test_random();
    test_secret();
    return check_done();
}
