/* libcrypto's assembly where it is called directly: the routines choose by a word of capabilities, which a constructor of
 * libcrypto fills in. Called past EVP and from a static archive, nothing but the linker's good will brings that constructor
 * along: without it every packet would be sealed without NEON or AVX2, and no other test would tell. */
#include "tests/check.h"

#include <stdlib.h>

#include "crypto/chacha20poly1305.h"
#include "crypto/libcrypto.h"

#if defined(FV_LIBCRYPTO_DIRECT) && (defined(__arm__) || defined(__aarch64__))
#include <sys/auxv.h>

extern unsigned int OPENSSL_armcap_P; /* arm_arch.h of OpenSSL, not installed; bit 0: NEON */

static bool libcrypto_has_vectors(void)
{
    return OPENSSL_armcap_P & 1;
}

static bool cpu_has_vectors(void)
{
#ifdef __aarch64__
    return getauxval(AT_HWCAP) & 1 << 1; /* HWCAP_ASIMD */
#else
    return getauxval(AT_HWCAP) & 1 << 12; /* HWCAP_NEON */
#endif
}

#elif defined(FV_LIBCRYPTO_DIRECT) && defined(__x86_64__)

extern unsigned int OPENSSL_ia32cap_P[]; /* OPENSSL_ia32cap(3): the third word is EBX of CPUID's leaf 7, bit 5: AVX2 */

static bool libcrypto_has_vectors(void)
{
    return OPENSSL_ia32cap_P[2] & 1 << 5;
}

static bool cpu_has_vectors(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}

#else
#define NOTHING_TO_ASK
#endif

int main(void)
{
#ifdef NOTHING_TO_ASK
    printf("needs libcrypto's routines called directly (a static build)\n");
    return 77;
#else
    libcrypto_start();
    CHECK_EQ(libcrypto_has_vectors(), cpu_has_vectors());
    CHECK(chacha_usable("libcrypto"));
    const char *expected = getenv("FV_EXPECT_VECTORS"); /* said by who chose the processor that is emulated */
    if (expected)
        CHECK_EQ(cpu_has_vectors(), *expected == '1');
    return check_done();
#endif
}
