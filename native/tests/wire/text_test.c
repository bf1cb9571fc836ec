#include "../check.h"
#include "packets.h"
#include "wire/text.h"

#define S(literal) literal, sizeof(literal) - 1

static void hex(void)
{
    uint8_t out[4];
    CHECK_EQ(text_hex_decode(S("00fFAa19"), out, 4), TEXT_OK);
    CHECK_MEM(out, "\x00\xff\xaa\x19", 4);
    CHECK_EQ(text_hex_decode(S("00ffaa1"), out, 4), TEXT_LENGTH);
    CHECK_EQ(text_hex_decode(S("00ffaa1900"), out, 4), TEXT_LENGTH);
    CHECK_EQ(text_hex_decode(S(""), out, 4), TEXT_EMPTY);
    for (int c = 0; c < 256; c++) {
        char s[2] = {'7', (char)c};
        bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
        CHECK_EQ(text_hex_decode(s, 2, out, 1), digit ? TEXT_OK : TEXT_CHARACTER);
        uint8_t byte = (uint8_t)c;
        char back[3], want[3];
        text_hex_encode(back, &byte, 1);
        snprintf(want, sizeof want, "%02x", (unsigned)c);
        CHECK_STR(back, want);
    }
}

static void base64(void)
{
    static const struct {
        const char *text, *bytes;
        size_t len;
        enum text_error e;
    } cases[] = {
        /* RFC 4648 10 */
        {"Zg==", "f", 1, TEXT_OK},
        {"Zm8=", "fo", 2, TEXT_OK},
        {"Zm9v", "foo", 3, TEXT_OK},
        {"Zm9vYg==", "foob", 4, TEXT_OK},
        {"Zm9vYmFy", "foobar", 6, TEXT_OK},
        /* what users paste */
        {"Zg", "f", 1, TEXT_OK},
        {"Zg=", "f", 1, TEXT_OK},
        {"Zm8", "fo", 2, TEXT_OK},
        {"-_-_", "\xfb\xff\xbf", 3, TEXT_OK},
        {"+/-_", "\xfb\xff\xbf", 3, TEXT_OK},
        /* no encoding of anything */
        {"", "", 0, TEXT_EMPTY},
        {"=", "", 0, TEXT_LENGTH},
        {"Z", "", 0, TEXT_LENGTH},
        {"Zm9vY", "", 0, TEXT_LENGTH},
        {"Zm9v=", "", 0, TEXT_LENGTH},
        {"Zm8==", "", 0, TEXT_LENGTH},
        {"Zh==", "", 0, TEXT_CHARACTER},
        {"Zm9=", "", 0, TEXT_CHARACTER},
        {"Zm 8", "", 0, TEXT_CHARACTER},
        {"Z=8v", "", 0, TEXT_CHARACTER},
        {"Zm9vYmFyYmF6", "", 0, TEXT_SPACE},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        uint8_t out[8];
        size_t len = 99;
        CHECK_EQ(text_base64_decode(cases[i].text, strlen(cases[i].text), out, 8, &len), cases[i].e);
        if (cases[i].e == TEXT_OK) {
            CHECK_EQ(len, cases[i].len);
            CHECK_MEM(out, cases[i].bytes, cases[i].len);
        }
    }
    for (size_t n = 1; n < 70; n++) {
        uint8_t bytes[70], back[70];
        char text[TEXT_BASE64_SIZE(70)];
        random_fill(bytes, n);
        text_base64_encode(text, bytes, n);
        CHECK_EQ(strlen(text) + 1, TEXT_BASE64_SIZE(n));
        CHECK_EQ(text_base64_exact(text, strlen(text), back, n), TEXT_OK);
        CHECK_MEM(back, bytes, n);
        CHECK_EQ(text_base64_exact(text, strlen(text), back, n - 1), TEXT_LENGTH);
    }
}

static void percent(void)
{
    char out[64];
    size_t len;
    CHECK_EQ(text_percent_decode(S("a%0Ab%25%ff"), out, sizeof out, &len), TEXT_OK);
    CHECK_EQ(len, 5);
    CHECK_MEM(out, "a\nb%\xff", 5);
    CHECK_EQ(text_percent_decode(S("a%0"), out, sizeof out, &len), TEXT_CHARACTER);
    CHECK_EQ(text_percent_decode(S("%zz"), out, sizeof out, &len), TEXT_CHARACTER);
    CHECK_EQ(text_percent_decode(S("abc"), out, 2, &len), TEXT_SPACE);
    CHECK_EQ(text_percent_encode(S(" a b%\n "), out, sizeof out, &len), TEXT_OK);
    CHECK_STR(out, "%20a b%25%0A%20");
    CHECK_EQ(text_percent_encode(S(""), out, 1, &len), TEXT_OK);
    CHECK_EQ(text_percent_encode(S("ab"), out, 2, &len), TEXT_SPACE);
    CHECK_EQ(text_percent_encode(S("ab"), out, 3, &len), TEXT_OK);
    CHECK_EQ(text_percent_encode(S("%"), out, 3, &len), TEXT_SPACE);
    for (int i = 0; i < 500; i++) {
        char raw[20], back[20];
        size_t n = random_below(21), back_len;
        random_fill((uint8_t *)raw, n);
        CHECK_EQ(text_percent_encode(raw, n, out, sizeof out, &len), TEXT_OK);
        CHECK_EQ(text_percent_decode(out, len, back, sizeof back, &back_len), TEXT_OK);
        CHECK(back_len == n && memcmp(back, raw, n) == 0);
    }
}

static void numbers(void)
{
    uint64_t v = 7;
    CHECK_EQ(text_decimal(S("0"), 0, 10, &v), TEXT_OK);
    CHECK_EQ(v, 0);
    CHECK_EQ(text_decimal(S("18446744073709551615"), 0, UINT64_MAX, &v), TEXT_OK);
    CHECK(v == UINT64_MAX);
    CHECK_EQ(text_decimal(S("18446744073709551616"), 0, UINT64_MAX, &v), TEXT_RANGE);
    CHECK_EQ(text_decimal(S("99999999999999999999999"), 0, UINT64_MAX, &v), TEXT_RANGE);
    CHECK_EQ(text_decimal(S("65536"), 0, 65535, &v), TEXT_RANGE);
    CHECK_EQ(text_decimal(S("0"), 1, 65535, &v), TEXT_RANGE);
    CHECK_EQ(text_decimal(S(""), 0, 1, &v), TEXT_EMPTY);
    CHECK_EQ(text_decimal(S("-1"), 0, 1, &v), TEXT_CHARACTER);
    CHECK_EQ(text_decimal(S("+1"), 0, 1, &v), TEXT_CHARACTER);
    CHECK_EQ(text_decimal(S(" 1"), 0, 1, &v), TEXT_CHARACTER);
    CHECK_EQ(text_decimal(S("1a"), 0, 99, &v), TEXT_CHARACTER);
    CHECK_EQ(text_decimal(S("0x1"), 0, 99, &v), TEXT_CHARACTER);
    CHECK(v == UINT64_MAX);
    CHECK_EQ(text_number(S("0xCa6c"), 0, UINT32_MAX, &v), TEXT_OK);
    CHECK_EQ(v, 51820);
    CHECK_EQ(text_number(S("51820"), 0, UINT32_MAX, &v), TEXT_OK);
    CHECK_EQ(text_number(S("0x"), 0, UINT32_MAX, &v), TEXT_CHARACTER);
    CHECK_EQ(text_number(S("0x1ffffffff"), 0, UINT32_MAX, &v), TEXT_RANGE);
}

int main(void)
{
    hex();
    base64();
    percent();
    numbers();
    CHECK_STR(text_error_name(TEXT_RANGE), "is out of range");
    return check_done();
}
