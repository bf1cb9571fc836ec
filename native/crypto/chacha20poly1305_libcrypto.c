/* ChaCha20-Poly1305 by libcrypto. In a static build its assembly routines are called directly (FV_LIBCRYPTO_DIRECT, found
 * by Meson: the archives of every architecture export them), which spares what EVP costs per packet; elsewhere EVP, with
 * one context per batch. */
#include <string.h>

#include "crypto/chacha20poly1305_impl.h"
#include "crypto/libcrypto.h"
#include "crypto/secret.h"
#include "wire/bytes.h"

#ifdef FV_LIBCRYPTO_DIRECT

/* crypto/chacha.h and crypto/poly1305.h of OpenSSL 3.0; neither is installed. */
void ChaCha20_ctr32(unsigned char *out, const unsigned char *in, size_t n, const unsigned int key[8],
                    const unsigned int counter[4]);
struct poly1305_context;
size_t Poly1305_ctx_size(void);
void Poly1305_Init(struct poly1305_context *ctx, const unsigned char key[32]);
void Poly1305_Update(struct poly1305_context *ctx, const unsigned char *in, size_t n);
void Poly1305_Final(struct poly1305_context *ctx, unsigned char mac[16]);

/* Room for its context: 24 doubles and some words in 3.0 (248 bytes on 64-bit). */
union poly {
    uint8_t room[512];
    uint64_t align[64];
};

static struct poly1305_context *poly_context(union poly *p)
{
    return (struct poly1305_context *)(void *)p->room;
}

static bool libcrypto_usable(void)
{
    return Poly1305_ctx_size() <= sizeof(union poly);
}

static void key_words(unsigned int words[8], const uint8_t key[CHACHA_KEY])
{
    for (unsigned i = 0; i < 8; i++)
        words[i] = load_le32(key + 4 * i);
}

static void update_padded(union poly *p, const uint8_t *m, size_t n)
{
    static const uint8_t zeros[16];
    Poly1305_Update(poly_context(p), m, n);
    if (n % 16)
        Poly1305_Update(poly_context(p), zeros, 16 - n % 16);
}

/* The tag of n ciphertext bytes under the one-time key of block 0. */
static void compute_tag(uint8_t tag[CHACHA_TAG], const uint8_t otk[32], const uint8_t *cipher, size_t n,
                        const uint8_t *ad, size_t ad_len)
{
    union poly p;
    uint8_t lengths[16];
    Poly1305_Init(poly_context(&p), otk);
    if (ad_len)
        update_padded(&p, ad, ad_len);
    update_padded(&p, cipher, n);
    store_le64(lengths, ad_len);
    store_le64(lengths + 8, n);
    Poly1305_Update(poly_context(&p), lengths, sizeof lengths);
    Poly1305_Final(poly_context(&p), tag); /* wipes its context */
}

static void seal_words(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                       unsigned int counter[4], const unsigned int key[8])
{
    static const uint8_t zeros[32];
    uint8_t otk[32];
    counter[0] = 0;
    ChaCha20_ctr32(otk, zeros, sizeof otk, key, counter);
    counter[0] = 1;
    if (n)
        ChaCha20_ctr32(dst, src, n, key, counter);
    compute_tag(dst + n, otk, dst, n, ad, ad_len);
    secret_wipe(otk, sizeof otk);
}

static bool open_words(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                       unsigned int counter[4], const unsigned int key[8])
{
    static const uint8_t zeros[32];
    uint8_t otk[32], tag[CHACHA_TAG];
    n -= CHACHA_TAG;
    counter[0] = 0;
    ChaCha20_ctr32(otk, zeros, sizeof otk, key, counter);
    compute_tag(tag, otk, src, n, ad, ad_len);
    bool ok = secret_equal(tag, src + n, CHACHA_TAG);
    counter[0] = 1;
    if (ok && n)
        ChaCha20_ctr32(dst, src, n, key, counter);
    secret_wipe(otk, sizeof otk);
    secret_wipe(tag, sizeof tag);
    return ok;
}

static void libcrypto_seal(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                           const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    unsigned int words[8], counter[4] = {0, load_le32(nonce), load_le32(nonce + 4), load_le32(nonce + 8)};
    key_words(words, key);
    seal_words(dst, src, n, ad, ad_len, counter, words);
    secret_wipe(words, sizeof words);
}

static bool libcrypto_open(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                           const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    unsigned int words[8], counter[4] = {0, load_le32(nonce), load_le32(nonce + 4), load_le32(nonce + 8)};
    key_words(words, key);
    bool ok = open_words(dst, src, n, ad, ad_len, counter, words);
    secret_wipe(words, sizeof words);
    return ok;
}

static void libcrypto_seal_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    unsigned int words[8];
    key_words(words, key);
    for (struct chacha_job *j = jobs; j < jobs + n; j++) {
        unsigned int counter[4] = {0, 0, (unsigned int)j->counter, (unsigned int)(j->counter >> 32)};
        seal_words(j->dst, j->src, j->len, NULL, 0, counter, words);
    }
    secret_wipe(words, sizeof words);
}

static unsigned libcrypto_open_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    unsigned int words[8];
    unsigned failed = 0;
    key_words(words, key);
    for (struct chacha_job *j = jobs; j < jobs + n; j++) {
        unsigned int counter[4] = {0, 0, (unsigned int)j->counter, (unsigned int)(j->counter >> 32)};
        j->ok = j->len >= CHACHA_TAG && open_words(j->dst, j->src, j->len, NULL, 0, counter, words);
        failed += !j->ok;
    }
    secret_wipe(words, sizeof words);
    return failed;
}

#else

#include <openssl/evp.h>

static bool libcrypto_usable(void)
{
    return true;
}

/* A context with the key set, or NULL when there is no memory: the portable code takes over then. */
static EVP_CIPHER_CTX *context(const uint8_t key[CHACHA_KEY], int sealing)
{
    libcrypto_start();
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    if (ctx && EVP_CipherInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key, NULL, sealing) != 1) {
        EVP_CIPHER_CTX_free(ctx);
        ctx = NULL;
    }
    return ctx;
}

/* A single message below the first is sooner done in C than a context is made; EVP takes lengths as int. */
enum { EVP_WORTH = 512, EVP_LIMIT = 1 << 30 };

static bool evp_seal(EVP_CIPHER_CTX *ctx, uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                     const uint8_t nonce[CHACHA_NONCE])
{
    int out;
    return EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, nonce) == 1 &&
           (!ad_len || EVP_EncryptUpdate(ctx, NULL, &out, ad, (int)ad_len) == 1) &&
           (!n || EVP_EncryptUpdate(ctx, dst, &out, src, (int)n) == 1) &&
           EVP_EncryptFinal_ex(ctx, dst + n, &out) == 1 &&
           EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, CHACHA_TAG, dst + n) == 1;
}

/* EVP deciphers while it authenticates: what it wrote for a forged message is wiped. */
static bool evp_open(EVP_CIPHER_CTX *ctx, uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                     const uint8_t nonce[CHACHA_NONCE])
{
    int out;
    uint8_t tag[CHACHA_TAG], unused[CHACHA_TAG];
    n -= CHACHA_TAG;
    memcpy(tag, src + n, sizeof tag);
    bool ok = EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, nonce) == 1 &&
              EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, CHACHA_TAG, tag) == 1 &&
              (!ad_len || EVP_DecryptUpdate(ctx, NULL, &out, ad, (int)ad_len) == 1) &&
              (!n || EVP_DecryptUpdate(ctx, dst, &out, src, (int)n) == 1) &&
              EVP_DecryptFinal_ex(ctx, unused, &out) == 1;
    if (!ok)
        secret_wipe(dst, n);
    return ok;
}

/* The cipher cannot fail once its context stands; if it does all the same, nothing of the message leaves. */
static void seal_or_wipe(EVP_CIPHER_CTX *ctx, uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad,
                         size_t ad_len, const uint8_t nonce[CHACHA_NONCE])
{
    if (!evp_seal(ctx, dst, src, n, ad, ad_len, nonce))
        secret_wipe(dst, n + CHACHA_TAG);
}

static void libcrypto_seal(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                           const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    EVP_CIPHER_CTX *ctx = n >= EVP_WORTH && n < EVP_LIMIT && ad_len < EVP_LIMIT ? context(key, 1) : NULL;
    if (ctx)
        seal_or_wipe(ctx, dst, src, n, ad, ad_len, nonce);
    else
        chacha_portable.seal(dst, src, n, ad, ad_len, nonce, key);
    EVP_CIPHER_CTX_free(ctx);
}

static bool libcrypto_open(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                           const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    EVP_CIPHER_CTX *ctx = n >= EVP_WORTH && n < EVP_LIMIT && ad_len < EVP_LIMIT ? context(key, 0) : NULL;
    bool ok =
        ctx ? evp_open(ctx, dst, src, n, ad, ad_len, nonce) : chacha_portable.open(dst, src, n, ad, ad_len, nonce, key);
    EVP_CIPHER_CTX_free(ctx);
    return ok;
}

static void libcrypto_seal_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    uint8_t nonce[CHACHA_NONCE] = {0};
    EVP_CIPHER_CTX *ctx = context(key, 1);
    for (struct chacha_job *j = jobs; ctx && j < jobs + n; j++) {
        store_le64(nonce + 4, j->counter);
        seal_or_wipe(ctx, j->dst, j->src, j->len, NULL, 0, nonce);
    }
    if (!ctx)
        chacha_portable.seal_batch(key, jobs, n);
    EVP_CIPHER_CTX_free(ctx);
}

static unsigned libcrypto_open_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    uint8_t nonce[CHACHA_NONCE] = {0};
    unsigned failed = 0;
    EVP_CIPHER_CTX *ctx = context(key, 0);
    if (!ctx)
        return chacha_portable.open_batch(key, jobs, n);
    for (struct chacha_job *j = jobs; j < jobs + n; j++) {
        store_le64(nonce + 4, j->counter);
        j->ok = j->len >= CHACHA_TAG && evp_open(ctx, j->dst, j->src, j->len, NULL, 0, nonce);
        failed += !j->ok;
    }
    EVP_CIPHER_CTX_free(ctx);
    return failed;
}

#endif

const struct chacha_impl chacha_libcrypto = {
    .name = "libcrypto",
    .usable = libcrypto_usable,
    .seal_batch = libcrypto_seal_batch,
    .open_batch = libcrypto_open_batch,
    .seal = libcrypto_seal,
    .open = libcrypto_open,
};
