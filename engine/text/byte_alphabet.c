#include "engine/text/byte_alphabet.h"

#include "base/utf8.h"

/* Bytes that stand for themselves: '!'..'~', 0xA1..0xAC, 0xAE..0xFF. The ranges between them, in
 * order, have the characters from U+0100. */
static const struct {
    uint32_t first, last; /* bytes */
    uint32_t cp;          /* of the first */
} shifted[] = {
    {0x00, 0x20, 0x100},
    {0x7F, 0xA0, 0x121},
    {0xAD, 0xAD, 0x143},
};
#define N_SHIFTED (sizeof shifted / sizeof shifted[0])

static bool is_shifted(uint32_t byte)
{
    return byte <= 0x20 || (byte >= 0x7F && byte <= 0xA0) || byte == 0xAD;
}

int byte_alphabet_decode(uint32_t cp)
{
    for (size_t i = 0; i < N_SHIFTED; i++)
        if (cp >= shifted[i].cp && cp - shifted[i].cp <= shifted[i].last - shifted[i].first)
            return (int)(shifted[i].first + (cp - shifted[i].cp));
    return cp <= 0xFF && !is_shifted(cp) ? (int)cp : -1;
}

static uint32_t encode_byte(uint32_t byte)
{
    for (size_t i = 0; i < N_SHIFTED; i++)
        if (byte >= shifted[i].first && byte <= shifted[i].last)
            return shifted[i].cp + (byte - shifted[i].first);
    return byte;
}

bool byte_alphabet_decode_text(const char *text, size_t len, char *out, size_t *out_len)
{
    size_t n = 0;

    for (size_t i = 0; i < len;) {
        uint32_t cp = 0;
        int bytes = utf8_decode(text + i, len - i, &cp);
        int byte = bytes > 0 ? byte_alphabet_decode(cp) : -1;

        if (byte == -1)
            return false;
        out[n++] = (char)byte;
        i += (size_t)bytes;
    }
    *out_len = n;
    return true;
}

size_t byte_alphabet_encode_text(const char *bytes, size_t len, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += utf8_encode(encode_byte((unsigned char)bytes[i]), out + n);
    return n;
}
