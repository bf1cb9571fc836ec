#include "crypto/libcrypto.h"

#include <openssl/crypto.h>

void libcrypto_start(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL);
}
