/* How fv starts libcrypto: without its configuration file and without its exit handler, so that it opens no file and
 * runs nothing behind our back. Idempotent, thread-safe and cheap; every EVP call in this folder comes after it. */
#ifndef FV_CRYPTO_LIBCRYPTO_H
#define FV_CRYPTO_LIBCRYPTO_H

void libcrypto_start(void);

#endif
