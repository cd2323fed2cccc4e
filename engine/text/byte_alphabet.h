/* GPT-2's byte alphabet: byte-level vocabularies write each byte as a printable character.
 * Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 onwards in order. Any
 * thread. */
#ifndef ENGINE_TEXT_BYTE_ALPHABET_H
#define ENGINE_TEXT_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BYTE_ALPHABET_CHAR_MAX 2 /* bytes of UTF-8 that a byte takes in the alphabet */

/* -1: the character stands for no byte. */
int byte_alphabet_decode(uint32_t cp);
/* Decodes a token's text into bytes; out has room for len. False (and out is undefined): it has
 * characters outside the alphabet, or is no UTF-8. */
bool byte_alphabet_decode_text(const char *text, size_t len, char *out, size_t *out_len);
/* Writes the alphabet's spelling of `len` bytes; out has room for BYTE_ALPHABET_CHAR_MAX * len. */
size_t byte_alphabet_encode_text(const char *bytes, size_t len, char *out);

#endif
