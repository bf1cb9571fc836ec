/* ChaCha20-Poly1305 (RFC 8439): batches of packets under one key, which is WireGuard's data path, and single messages.
 *
 * A batch is sealed or opened by one of several implementations with the same results. Which one is chosen once, at
 * start; when nobody chooses, the first call takes the best one that this CPU has. */
#ifndef FV_CRYPTO_CHACHA20POLY1305_H
#define FV_CRYPTO_CHACHA20POLY1305_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHACHA_KEY = 32, CHACHA_TAG = 16, CHACHA_NONCE = 12, XCHACHA_NONCE = 24 };

/* One packet of a batch: n plaintext bytes at src <-> n + 16 bytes at dst. The nonce is 4 zero bytes and the counter in
 * little-endian order, the additional data is empty. dst is src (in place) or the two do not overlap; no two packets
 * of a batch overlap. No alignment is asked for. */
struct chacha_job {
    uint8_t *dst;
    const uint8_t *src;
    uint32_t len; /* of src: plaintext when sealing; ciphertext with its tag when opening */
    bool ok;      /* written by chacha_open_batch */
    uint64_t counter;
};

void chacha_seal_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n);

/* Sets every job's ok and returns how many failed. What is at a failed job's dst is not plaintext: it is left as it was
 * (in place: the ciphertext) or wiped. */
unsigned chacha_open_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n);

/* One message with additional data (ad may be NULL when ad_len is 0): n bytes at src to n + 16 at dst. dst is src or they
 * do not overlap. */
void chacha_seal(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                 const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY]);
/* n bytes with the tag at src to n - 16 at dst. On false dst holds no plaintext: it is as it was or wiped. */
bool chacha_open(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                 const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY]);

/* The same with XChaCha20's 24-byte nonce (draft-irtf-cfrg-xchacha-03). */
void xchacha_seal(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                  const uint8_t nonce[XCHACHA_NONCE], const uint8_t key[CHACHA_KEY]);
bool xchacha_open(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                  const uint8_t nonce[XCHACHA_NONCE], const uint8_t key[CHACHA_KEY]);

/* HChaCha20: a subkey from a key and the first 16 bytes of a long nonce. */
void hchacha(uint8_t out[32], const uint8_t key[CHACHA_KEY], const uint8_t nonce[16]);

/* The implementations' names, best first, NULL at the end: those that are compiled in, whether this CPU has what they
 * need or not. */
const char *const *chacha_names(void);
/* True when this CPU can run the named implementation; false also for an unknown name. */
bool chacha_usable(const char *name);
/* Takes the best usable implementation whose bit in `allowed` is set (bit i: entry i of chacha_names(); the last entry,
 * "portable", is taken when nothing else is left). Returns its name. Call before threads start. */
const char *chacha_select(unsigned allowed);
/* Takes one by name; false when it is unknown or this CPU cannot run it, and then the choice stays as it was. */
bool chacha_select_name(const char *name);
/* The name of the one in use. */
const char *chacha_selected(void);

#endif
