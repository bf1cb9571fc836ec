/* Time of sealing and opening a packet, by implementation, size and batch: built, not run by the tests.
 *
 *   bench_chacha [--json] [--impl NAME] [--size N] [--batch N] [--ms N] [--samples N]
 *
 * Each figure is the median of the samples after a warm-up, in nanoseconds of this thread's CPU time per packet, so that a
 * busy neighbour costs little; the spread printed is the middle half (quartiles). Packets lie one after the other in a
 * buffer, source and destination apart, as they do between the TUN and the socket. Besides the implementations behind
 * chacha_seal_batch it times libcrypto's EVP, one packet at a time with the context kept, which is what a program gets that
 * uses OpenSSL as documented. */
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "crypto/blake2s.h"
#include "crypto/chacha20poly1305.h"
#include "crypto/x25519.h"
#include "wire/bytes.h"

enum { MAX_SIZE = 9000, MAX_BATCH = 64, SLOT = 9216, MAX_SAMPLES = 1000 };

static uint8_t plain[MAX_BATCH * SLOT], sealed[MAX_BATCH * SLOT], opened[MAX_BATCH * SLOT];
static uint8_t key[CHACHA_KEY] = "not a secret: a benchmark's key.";
static struct chacha_job sealing[MAX_BATCH], opening[MAX_BATCH];
static unsigned batch = 32, samples = 31, sample_ms = 10;
static bool json;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Cycles per nanosecond at this moment: of dependent rotations each takes a cycle. The best of some tries, for a neighbour can
 * only make it slower. */
static double cycles_per_ns(void)
{
    double best = 0;
    for (unsigned try = 0; try < 5; try++) {
        uint64_t x = now_ns(), start = x;
        const unsigned turns = 100000;
        for (unsigned i = 0; i < turns; i++)
            for (unsigned k = 0; k < 8; k++) {
                x = x << 7 | x >> 57;
                __asm__ volatile("" : "+r"(x));
            }
        uint64_t took = now_ns() - start;
        best = MAX(best, 8.0 * turns / (double)MAX(took, 1u));
    }
    return best;
}

static void report(const char *what, const char *name, unsigned size, unsigned n, void (*run)(void))
{
    double value[MAX_SAMPLES], clock = cycles_per_ns();
    uint64_t turns = 1, took = 0;
    for (;; turns *= 2) { /* how many turns a sample takes; warms up as well */
        uint64_t start = now_ns();
        for (uint64_t i = 0; i < turns; i++)
            run();
        took = now_ns() - start;
        if (took > sample_ms * (uint64_t)1000000)
            break;
    }
    for (unsigned s = 0; s < samples; s++) {
        uint64_t start = now_ns();
        for (uint64_t i = 0; i < turns; i++)
            run();
        value[s] = (double)(now_ns() - start) / (double)turns / n;
    }
    qsort(value, samples, sizeof value[0], by_value);
    double median = value[samples / 2], low = value[samples / 4], high = value[samples - 1 - samples / 4];
    if (json)
        printf("{\"what\":\"%s\",\"impl\":\"%s\",\"size\":%u,\"batch\":%u,\"ns\":%.1f,\"ns_q1\":%.1f,\"ns_q3\":%.1f,"
               "\"cycles\":%.0f,\"samples\":%u}\n",
               what, name, size, n, median, low, high, median * clock, samples);
    else
        printf("%-10s %-10s %5u bytes  x%-3u %9.1f ns (%.1f-%.1f) %7.0f cycles %6.2f Gbit/s\n", what, name, size, n,
               median, low, high, median * clock, size ? size * 8 / median : 0);
    fflush(stdout);
}

static void run_seal(void)
{
    for (unsigned i = 0; i < batch; i++)
        sealing[i].counter += batch;
    chacha_seal_batch(key, sealing, batch);
}

static void run_open(void)
{
    if (chacha_open_batch(key, opening, batch)) {
        fprintf(stderr, "bench_chacha: %s does not open what it sealed\n", chacha_selected());
        exit(1);
    }
}

static EVP_CIPHER_CTX *evp;

static void evp_check(bool ok)
{
    if (!ok) {
        fprintf(stderr, "bench_chacha: EVP refused\n");
        exit(1);
    }
}

static void run_evp_seal(void)
{
    for (struct chacha_job *j = sealing; j < sealing + batch; j++) {
        uint8_t nonce[12] = {0};
        int n;
        store_le64(nonce + 4, j->counter);
        evp_check(EVP_EncryptInit_ex(evp, NULL, NULL, key, nonce) == 1 &&
                  EVP_EncryptUpdate(evp, j->dst, &n, j->src, (int)j->len) == 1 &&
                  EVP_EncryptFinal_ex(evp, j->dst + n, &n) == 1 &&
                  EVP_CIPHER_CTX_ctrl(evp, EVP_CTRL_AEAD_GET_TAG, CHACHA_TAG, j->dst + j->len) == 1);
    }
}

static void run_evp_open(void)
{
    for (struct chacha_job *j = opening; j < opening + batch; j++) {
        uint8_t nonce[12] = {0}, tag[CHACHA_TAG];
        int n, len = (int)j->len - CHACHA_TAG;
        store_le64(nonce + 4, j->counter);
        memcpy(tag, j->src + len, sizeof tag);
        evp_check(EVP_DecryptInit_ex(evp, NULL, NULL, key, nonce) == 1 &&
                  EVP_CIPHER_CTX_ctrl(evp, EVP_CTRL_AEAD_SET_TAG, CHACHA_TAG, tag) == 1 &&
                  EVP_DecryptUpdate(evp, j->dst, &n, j->src, len) == 1 && EVP_DecryptFinal_ex(evp, tag, &n) == 1);
    }
}

static void set_size(unsigned size)
{
    unsigned stride = ROUND_UP(size + CHACHA_TAG + 16, 16); /* WireGuard's header lies before each packet */
    for (unsigned i = 0; i < batch; i++) {
        sealing[i] =
            (struct chacha_job){.dst = sealed + i * stride + 16, .src = plain + i * stride, .len = size, .counter = i};
        opening[i] = (struct chacha_job){
            .dst = opened + i * stride + 16, .src = sealing[i].dst, .len = size + CHACHA_TAG, .counter = i};
    }
}

static void reset_sealed(void)
{
    for (unsigned i = 0; i < batch; i++)
        sealing[i].counter = i;
    chacha_seal_batch(key, sealing, batch);
}

static uint8_t point[32] = {9}, scalar[32] = {1, 2, 3}, mac[16], message[116];

static void run_x25519(void)
{
    x25519(point, scalar, point);
}

static void run_x25519_evp(void)
{
    size_t n = 32;
    EVP_PKEY *ours = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, scalar, 32);
    EVP_PKEY *theirs = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, point, 32);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(ours, NULL);
    evp_check(ctx && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, theirs) == 1 &&
              EVP_PKEY_derive(ctx, point, &n) == 1);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(theirs);
    EVP_PKEY_free(ours);
}

static void run_mac1(void)
{
    blake2s(mac, 16, key, 32, message, sizeof message);
}

/* The same MAC by the documented way. */
static void run_mac1_evp(void)
{
    static EVP_MAC *method;
    size_t out = 16;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t("size", &out), OSSL_PARAM_construct_end()};
    if (!method)
        method = EVP_MAC_fetch(NULL, "BLAKE2SMAC", NULL);
    EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(method);
    evp_check(EVP_MAC_init(ctx, key, 32, params) == 1 && EVP_MAC_update(ctx, message, sizeof message) == 1 &&
              EVP_MAC_final(ctx, mac, &out, sizeof mac) == 1);
    EVP_MAC_CTX_free(ctx);
}

static unsigned number(const char *text, unsigned low, unsigned high)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*end || end == text || v < low || v > high) {
        fprintf(stderr, "bench_chacha: '%s' is not a number from %u to %u\n", text, low, high);
        exit(2);
    }
    return (unsigned)v;
}

int main(int argc, char **argv)
{
    static const unsigned sizes[] = {64, 128, 256, 576, 1280, 1420, 2304, 4096, 8920};
    const char *only = NULL;
    unsigned only_size = 0;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (more && strcmp(argv[i], "--impl") == 0)
            only = argv[++i];
        else if (more && strcmp(argv[i], "--size") == 0)
            only_size = number(argv[++i], 1, MAX_SIZE);
        else if (more && strcmp(argv[i], "--batch") == 0)
            batch = number(argv[++i], 1, MAX_BATCH);
        else if (more && strcmp(argv[i], "--ms") == 0)
            sample_ms = number(argv[++i], 1, 10000);
        else if (more && strcmp(argv[i], "--samples") == 0)
            samples = number(argv[++i], 1, MAX_SAMPLES);
        else {
            fprintf(stderr, "usage: bench_chacha [--json] [--impl NAME] [--size N] [--batch N] [--ms N] [--samples N]\n"
                            "NAME: evp, other (X25519, BLAKE2s) or one of:");
            for (const char *const *n = chacha_names(); *n; n++)
                fprintf(stderr, " %s", *n);
            fprintf(stderr, "\n");
            return 2;
        }
    }
    evp = EVP_CIPHER_CTX_new();
    evp_check(evp && EVP_CipherInit_ex(evp, EVP_chacha20_poly1305(), NULL, key, NULL, 1) == 1);
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        unsigned size = only_size ? only_size : sizes[s];
        set_size(size);
        for (const char *const *name = chacha_names(); *name; name++) {
            if ((only && strcmp(only, *name) != 0) || !chacha_select_name(*name))
                continue;
            report("seal", *name, size, batch, run_seal);
            reset_sealed();
            report("open", *name, size, batch, run_open);
        }
        if (!only || strcmp(only, "evp") == 0) {
            report("seal", "evp", size, batch, run_evp_seal);
            reset_sealed();
            report("open", "evp", size, batch, run_evp_open);
        }
        if (only_size)
            break;
    }
    EVP_CIPHER_CTX_free(evp);
    if (!only || strcmp(only, "other") == 0) {
        report("x25519", "fv", 32, 1, run_x25519);
        report("x25519", "evp", 32, 1, run_x25519_evp);
        report("mac1", "fv", sizeof message, 1, run_mac1);
        report("mac1", "evp", sizeof message, 1, run_mac1_evp);
    }
    return 0;
}
