"""The layer rule of native/ (docs/layers.md): calls go down the list, and the protocol cores touch nothing but bytes.

Two proofs. The includes of each folder name only folders below it. And the undefined symbols of the objects of the
sans-IO folders are on a list: what the C library does to memory and strings, what libcrypto computes, what the
sanitizers and the compiler insert, and what folders below define. A system call, a clock, a random number or an
allocation shows up there whatever header it came from.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.machine import ROOT

NATIVE = ROOT / "native"

# folder -> the folders whose headers it may include, besides its own.
MAY_INCLUDE: dict[str, set[str]] = {
    "wire": set(),
    "crypto": {"wire"},
    "wg": {"crypto", "wire"},
    "tls": {"crypto", "wire"},
    "quic": {"tls", "crypto", "wire"},
    "proxy": {"tls", "quic", "crypto", "wire"},
    "io": {"wire"},
    "flow": {"io", "proxy", "quic", "tls", "wg", "crypto", "wire"},
    "engine": {"flow", "io", "proxy", "quic", "tls", "wg", "crypto", "wire"},
}
# crypto may call libcrypto and nothing else of the world; the rest of the cores see libcrypto only through crypto.
SANS_IO = ["wire", "crypto", "wg", "tls", "quic", "proxy"]

# The C library's pure functions: memory, strings, numbers. snprintf is here and printf is not. abort and __assert_fail
# end the program, which is no input or output of a protocol.
C_LIBRARY = set(
    """
    memcpy memmove memset memcmp memchr memrchr memmem explicit_bzero bcmp
    strlen strnlen strcmp strncmp strcasecmp strncasecmp strchr strrchr strstr strspn strcspn strcpy strncpy stpcpy
    strtoul strtoull strtol strtoll qsort bsearch snprintf vsnprintf sscanf
    __memcpy_chk __memmove_chk __memset_chk __snprintf_chk __vsnprintf_chk __strcpy_chk __strncpy_chk __stpcpy_chk
    __isoc99_sscanf __isoc23_sscanf __isoc23_strtoul __isoc23_strtoull __isoc23_strtol __isoc23_strtoll
    __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc tolower toupper
    inet_pton inet_ntop abort __assert_fail __stack_chk_fail _GLOBAL_OFFSET_TABLE_ __errno_location
    """.split()
)
ALLOCATES = {"malloc", "calloc", "realloc", "free"}
# What one file may call besides, and why. An allocation belongs here: setup may allocate, packets may not.
EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "crypto/libcrypto": ({"OPENSSL_init_crypto"}, "called first, to keep libcrypto from opening its configuration"),
    "crypto/x25519": (
        {"ossl_x25519", "ossl_x25519_public_from_private"},
        "libcrypto's X25519 without EVP's allocations",
    ),
    "wg/allowedips": (ALLOCATES, "a node for each allowed IP, when it is configured"),
    "wg/device": (ALLOCATES, "a device and its table of peers"),
    "wg/handshake": (ALLOCATES, "the handshake's state of a peer, while one is under way"),
    "wg/keypair": (ALLOCATES, "the index table of a device, and a key pair for each handshake"),
    "wg/peer": (ALLOCATES, "a peer and its endpoint's host name"),
    "wg/ratelimit": (ALLOCATES, "the table of sources, when a device comes under load for the first time"),
    "wg/timers": (ALLOCATES, "the heap grows with the number of peers"),
}

# libcrypto, as far as it computes. Anything that draws randomness, opens a file or reads the clock is forbidden by
# name, so that a wide allowance (EVP_*) cannot let it in.
LIBCRYPTO_ALLOWED = re.compile(
    r"EVP_\w+|HMAC\w*|SHA\d*_\w+|OPENSSL_(cleanse|ia32cap_P|armcap_P|sk_\w+)|CRYPTO_(memcmp|free|clear_free|malloc|zalloc)"
    r"|ChaCha20_ctr32\w*|[Pp]oly1305_\w+|OSSL_PARAM_\w+|OSSL_LIB_CTX_(new|free)|OSSL_PROVIDER_(load|unload)"
    r"|X509_\w+|d2i_\w+|i2d_\w+|ASN1_\w+|OBJ_\w+|GENERAL_NAME\w*|BN_\w+|EC_\w+|ERR_(clear_error|peek_error|get_error)"
)
LIBCRYPTO_FORBIDDEN = re.compile(
    r"RAND_\w+|BN_\w*rand\w*|EVP_RAND_\w+|\w+_(load|LOOKUP)_\w+|BIO_\w+"
    r"|EVP_PKEY_(Q_)?keygen\w*|EVP_PKEY_generate|EC_KEY_generate_key|RSA_generate_\w+"
    r"|X509_(verify_cert|cmp_current_time|cmp_time|cmp_timeframe|time_adj\w*|gmtime_adj)"
)
# Inserted by compilers: 64-bit arithmetic and atomics on 32-bit ARM, the sanitizers, coverage, CPU detection.
COMPILER = re.compile(
    r"__(asan|ubsan|sanitizer|sancov|gcov|tsan|aeabi|sync|atomic|llvm|cpu)_\w+|__\w+[sdt]i[234]?|__tls_get_addr"
)


def folders() -> list[str]:
    return sorted(p.name for p in NATIVE.iterdir() if p.name in MAY_INCLUDE)


def sources(folder: str) -> list[Path]:
    return sorted(p for p in (NATIVE / folder).rglob("*.[chS]"))


def test_every_folder_has_a_place_in_the_list() -> None:
    known = {*MAY_INCLUDE, "tests", "fuzz", "cross"}
    assert sorted(p.name for p in NATIVE.iterdir() if p.is_dir() and p.name not in known) == []


@pytest.mark.parametrize("folder", folders())
def test_includes_go_down(folder: str) -> None:
    allowed = MAY_INCLUDE[folder] | {folder}
    wrong = []
    for path in sources(folder):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if match is None:
                continue
            target = match[1].split("/")[0] if "/" in match[1] else folder
            if target not in allowed:
                wrong.append(
                    f"{path.relative_to(ROOT)}:{number}: includes {match[1]}; {folder} may use {sorted(allowed)}"
                )
    assert wrong == []


@pytest.mark.parametrize("folder", [f for f in folders() if f in SANS_IO and f != "crypto"])
def test_only_crypto_includes_libcrypto(folder: str) -> None:
    wrong = [str(p.relative_to(ROOT)) for p in sources(folder) if re.search(r"#\s*include\s+<openssl/", p.read_text())]
    assert wrong == []


def symbols(path: Path, *options: str) -> set[str]:
    listing = subprocess.run(["nm", *options, str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.split()}


def objects(build: Path, folder: str) -> list[Path]:
    return sorted((build / "native" / folder).glob(f"libfv_{folder}.a.p/*.o"))


def is_allowed(symbol: str, folder: str, name: str) -> bool:
    if LIBCRYPTO_FORBIDDEN.fullmatch(symbol):
        return False
    if symbol in C_LIBRARY or COMPILER.fullmatch(symbol):
        return True
    if symbol in EXCEPTIONS.get(f"{folder}/{name}", (set(), ""))[0]:
        return True
    return folder == "crypto" and LIBCRYPTO_ALLOWED.fullmatch(symbol) is not None


@pytest.mark.parametrize("folder", [f for f in folders() if f in SANS_IO])
def test_undefined_symbols(folder: str, build: Path) -> None:
    files = objects(build, folder)
    have_sources = any(p.suffix == ".c" for p in sources(folder))
    assert bool(files) or not have_sources, f"no object of native/{folder} in {build}: run ./task build"
    below = MAY_INCLUDE[folder] | {folder}
    defined = set().union(*(symbols(o, "--defined-only", "--extern-only") for f in below for o in objects(build, f)))
    wrong = []
    for path in files:
        name = path.name.removesuffix(".o").removesuffix(".c")
        for symbol in sorted(symbols(path, "--undefined-only") - defined):
            if not is_allowed(symbol, folder, name):
                wrong.append(f"native/{folder}/{name}.c calls {symbol}")
    assert not wrong, "\n".join(wrong)


REFUSED = """
    time clock_gettime gettimeofday getrandom arc4random rand open openat read write socket sendmsg ioctl syscall
    printf fprintf getenv getaddrinfo malloc calloc free
    RAND_bytes RAND_priv_bytes BN_rand EVP_RAND_generate EVP_PKEY_keygen EVP_PKEY_Q_keygen
    X509_cmp_current_time X509_verify_cert PEM_read_bio_X509 BIO_new_file BIO_read_filename
    SSL_CTX_load_verify_locations X509_STORE_load_file OPENSSL_init_crypto
""".split()
ACCEPTED = "EVP_EncryptUpdate ChaCha20_ctr32 Poly1305_Init memcpy __udivdi3 __asan_load4 __aeabi_uldivmod".split()


@pytest.mark.parametrize("symbol", REFUSED)
def test_the_list_refuses(symbol: str) -> None:
    """The list itself: what it must catch, so that a pattern that grows too wide does not go unseen."""
    assert not is_allowed(symbol, "crypto", "any")
    assert not is_allowed(symbol, "wg", "any")


@pytest.mark.parametrize("symbol", ACCEPTED)
def test_the_list_accepts(symbol: str) -> None:
    assert is_allowed(symbol, "crypto", "any")
