/* Two ways to the same routine. In a static build libcrypto's ossl_x25519 is linked directly (FV_LIBCRYPTO_DIRECT, found
 * by Meson); the EVP way allocates two keys and a context, and making a key object from a private key computes its
 * public key too, which nearly doubles the time of an exchange (tests/crypto/bench_chacha prints both). */
#include "crypto/x25519.h"

#include <string.h>

#include "crypto/secret.h"

#ifdef FV_LIBCRYPTO_DIRECT

int ossl_x25519(uint8_t out[32], const uint8_t priv[32], const uint8_t pub[32]);
void ossl_x25519_public_from_private(uint8_t out[32], const uint8_t priv[32]);

bool x25519(uint8_t out[X25519_KEY], const uint8_t priv[X25519_KEY], const uint8_t pub[X25519_KEY])
{
    uint8_t shared[X25519_KEY];
    ossl_x25519(shared, priv, pub);
    memcpy(out, shared, sizeof shared);
    secret_wipe(shared, sizeof shared);
    return !secret_is_zero(out, X25519_KEY);
}

bool x25519_base(uint8_t out[X25519_KEY], const uint8_t priv[X25519_KEY])
{
    uint8_t pub[X25519_KEY];
    ossl_x25519_public_from_private(pub, priv);
    memcpy(out, pub, sizeof pub);
    return true;
}

#else

#include <openssl/err.h>
#include <openssl/evp.h>

#include "crypto/libcrypto.h"

bool x25519(uint8_t out[X25519_KEY], const uint8_t priv[X25519_KEY], const uint8_t pub[X25519_KEY])
{
    uint8_t shared[X25519_KEY] = {0};
    size_t n = sizeof shared;
    libcrypto_start();
    EVP_PKEY *ours = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, priv, X25519_KEY);
    EVP_PKEY *theirs = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, pub, X25519_KEY);
    EVP_PKEY_CTX *ctx = ours ? EVP_PKEY_CTX_new(ours, NULL) : NULL;
    bool ok = ctx && theirs && EVP_PKEY_derive_init(ctx) == 1 && EVP_PKEY_derive_set_peer(ctx, theirs) == 1 &&
              EVP_PKEY_derive(ctx, shared, &n) == 1 && !secret_is_zero(shared, sizeof shared);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(theirs);
    EVP_PKEY_free(ours);
    if (!ok) {
        ERR_clear_error(); /* a peer's bad point must not pile up in libcrypto's error queue */
        memset(shared, 0, sizeof shared);
    }
    memcpy(out, shared, sizeof shared);
    secret_wipe(shared, sizeof shared);
    return ok;
}

bool x25519_base(uint8_t out[X25519_KEY], const uint8_t priv[X25519_KEY])
{
    size_t n = X25519_KEY;
    libcrypto_start();
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, priv, X25519_KEY);
    bool ok = key && EVP_PKEY_get_raw_public_key(key, out, &n) == 1;
    EVP_PKEY_free(key);
    if (!ok)
        memset(out, 0, X25519_KEY);
    return ok;
}

#endif
