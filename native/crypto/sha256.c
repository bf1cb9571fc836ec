#include "crypto/sha256.h"

#include <openssl/evp.h>

#include "crypto/libcrypto.h"

bool sha256(uint8_t out[SHA256_OUT], const void *p, size_t n)
{
    libcrypto_start();
    return EVP_Digest(p, n, out, NULL, EVP_sha256(), NULL) == 1;
}
