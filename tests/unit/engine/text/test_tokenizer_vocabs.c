/* Real vocabularies, which tools/fetch_references.sh fetches into the folder that
 * SLUICE_TEST_VOCABS names (without it: skipped), against two references: the token vectors that
 * come with them, and tests/data/tokenizer_vocabs.json, made by tools/oracle_vocabs.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "base/utf8.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct vocabulary {
    char path[512]; /* without its ending */
    const char *name;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
};

/* The folder; NULL: the tests are to be skipped. */
static const char *folder(void)
{
    const char *path = getenv("SLUICE_TEST_VOCABS");
    char file[512];
    FILE *f = NULL;

    if (path == NULL || *path == 0)
        return NULL;
    snprintf(file, sizeof file, "%s/ggml-vocab-llama-bpe.gguf", path);
    f = fopen(file, "rb");
    if (f == NULL)
        return NULL;
    fclose(f);
    return path;
}

static void open_vocabulary(struct vocabulary *v, const char *file)
{
    struct reason why = {0};

    *v = (struct vocabulary){.name = file};
    snprintf(v->path, sizeof v->path, "%s/%s", folder(), file);
    if (gguf_open(v->path, &v->gguf, &why) != ST_OK ||
        tokenizer_new(v->gguf, &v->tokenizer, &why) != ST_OK)
        fail_msg("%s: %s", file, why.text);
}

static void close_vocabulary(struct vocabulary *v)
{
    tokenizer_free(v->tokenizer);
    gguf_close(v->gguf);
}

static struct token_ids encode(const struct vocabulary *v, const char *text, size_t len)
{
    const struct text_span span = {text, len, false};
    struct token_ids ids = {0};
    enum status s = tokenizer_encode(v->tokenizer, &span, 1, 0, 2 * len + 16, &ids);

    if (s != ST_OK)
        fail_msg("%s: %s", v->name, status_name(s));
    return ids;
}

/* ---- the vectors that come with them ---- */

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text;
    long len;

    if (f == NULL)
        return NULL;
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    len = ftell(f);
    rewind(f);
    text = calloc(1, (size_t)len + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)len, f), len);
    fclose(f);
    return text;
}

static char *read_beside(const struct vocabulary *v, const char *ending)
{
    char path[sizeof v->path + 8];

    snprintf(path, sizeof path, "%s%s", v->path, ending);
    return read_file(path);
}

/* A line of ids, as the vector gives them. */
static void same_line(const struct vocabulary *v, size_t i, const struct token_ids *ids, char **at)
{
    char *end = *at + strcspn(*at, "\n");

    for (size_t k = 0; k < ids->n; k++) {
        char *next;
        long want = strtol(*at, &next, 10);

        if (next == *at || next > end || want != ids->ids[k])
            fail_msg("%s: text %zu: id %zu is %d", v->name, i, k, ids->ids[k]);
        *at = next;
    }
    if (strspn(*at, " ") != (size_t)(end - *at))
        fail_msg("%s: text %zu: %zu ids are too few", v->name, i, ids->n);
    *at = *end == 0 ? end : end + 1;
}

static size_t same_vectors(const struct vocabulary *v)
{
    static const char mark[] = "\n__ggml_vocab_test__\n";
    char *inp = read_beside(v, ".inp"), *out = read_beside(v, ".out");
    char *text = inp, *line = out;
    size_t n = 0;

    while (inp != NULL && out != NULL && *line != 0) {
        char *end = strstr(text, mark);
        size_t len = end != NULL ? (size_t)(end - text) : strlen(text);
        struct token_ids ids = encode(v, text, len);

        same_line(v, n++, &ids, &line);
        token_ids_dispose(&ids);
        if (end == NULL)
            break;
        text = end + strlen(mark);
    }
    free(inp);
    free(out);
    return n;
}

static void gives_the_ids_that_come_with_the_vocabularies(void **state)
{
    json_t *data = json_load_file("tests/data/tokenizer_vocabs.json", 0, NULL);
    const json_t *vocabs = json_object_get(data, "vocabs");

    (void)state;
    if (folder() == NULL) {
        json_decref(data);
        skip();
    }
    assert_true(json_array_size(vocabs) >= 10);
    for (size_t i = 0; i < json_array_size(vocabs); i++) {
        const json_t *want = json_array_get(vocabs, i);
        struct vocabulary v;

        open_vocabulary(&v, json_string_value(json_object_get(want, "file")));
        assert_true(same_vectors(&v) >= (json_is_true(json_object_get(want, "vectors")) ? 40 : 0));
        close_vocabulary(&v);
    }
    json_decref(data);
}

/* ---- the reference's ---- */

/* FNV-1a over the ids' little-endian bytes. */
static void hash_ids(const struct token_ids *ids, char out[17])
{
    uint64_t h = 0xCBF29CE484222325u;

    for (size_t i = 0; i < ids->n; i++)
        for (int k = 0; k < 4; k++)
            h = (h ^ ((uint32_t)ids->ids[i] >> 8 * k & 0xFF)) * 0x100000001B3u;
    snprintf(out, 17, "%016llx", (unsigned long long)h);
}

static bool decodes_to(const struct vocabulary *v, const struct token_ids *ids, const char *text,
                       size_t len)
{
    struct detok *d = NULL;
    struct buf out;
    bool same;

    buf_init(&out);
    assert_int_equal(detok_new(v->tokenizer, NULL, 0, &d), ST_OK);
    for (size_t i = 0; i < ids->n; i++) {
        assert_false(detok_feed(d, ids->ids[i], &out));
        assert_true(utf8_is_valid(out.data, out.len));
    }
    detok_flush(d, &out);
    same = out.len == len && (len == 0 || memcmp(out.data, text, len) == 0);
    buf_dispose(&out);
    detok_free(d);
    return same;
}

static void same_text(const struct vocabulary *v, const json_t *want, size_t i, const char *text,
                      size_t len)
{
    const char *hash = json_string_value(json_array_get(json_object_get(want, "hashes"), i));
    bool decodes = json_string_value(json_object_get(want, "decodes"))[i] == '1';
    struct token_ids ids = encode(v, text, len);
    char got[17];

    hash_ids(&ids, got);
    if (strcmp(got, hash) != 0)
        fail_msg("%s: text %zu has other ids (%zu of them)", v->name, i, ids.n);
    if (decodes && !decodes_to(v, &ids, text, len))
        fail_msg("%s: text %zu does not come back", v->name, i);
    token_ids_dispose(&ids);
}

/* Blocks that Unicode had filled by version 10, so that every table knows them alike. */
static const uint32_t ranges[][2] = {
    {0x1, 0x17F},       {0x300, 0x36F},     {0x391, 0x3A1},     {0x400, 0x52F},
    {0x5D0, 0x5EA},     {0x621, 0x652},     {0x660, 0x669},     {0x905, 0x939},
    {0x93E, 0x94D},     {0xE01, 0xE3A},     {0x1100, 0x11FF},   {0x1E00, 0x1EFF},
    {0x2000, 0x2064},   {0x20A0, 0x20BF},   {0x2100, 0x218B},   {0x2190, 0x23FE},
    {0x2500, 0x27BF},   {0x2E80, 0x2E99},   {0x3000, 0x303F},   {0x3041, 0x3096},
    {0x30A0, 0x30FF},   {0x3400, 0x4DB5},   {0x4E00, 0x9FEA},   {0xA000, 0xA48C},
    {0xAC00, 0xD7A3},   {0xE000, 0xF8FF},   {0xF900, 0xFA6D},   {0xFB00, 0xFB06},
    {0xFE00, 0xFE0F},   {0xFF01, 0xFFBE},   {0x10280, 0x1029C}, {0x10400, 0x1049D},
    {0x1D400, 0x1D454}, {0x1D7CE, 0x1D7FF}, {0x1F300, 0x1F64F}, {0x20000, 0x2A6D6},
    {0xE0020, 0xE007F}, {0xF0000, 0xFFFFD},
};

/* As random_text in tools/oracle_vocabs.py: splitmix64, a range, a place in it. */
static void random_text(uint64_t state, size_t bytes, struct buf *out)
{
    while (out->len < bytes) {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        const uint32_t *range;
        char c[4];

        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        range = ranges[(z >> 32) % COUNT_OF(ranges)];
        buf_append(out, c, utf8_encode(range[0] + (uint32_t)z % (range[1] - range[0] + 1), c));
    }
}

static void same_random_text(const struct vocabulary *v, const json_t *data, const json_t *want)
{
    struct token_ids ids;
    struct buf text;
    char got[17];

    buf_init(&text);
    random_text((uint64_t)json_integer_value(json_object_get(data, "seed")),
                (size_t)json_integer_value(json_object_get(data, "long_bytes")), &text);
    ids = encode(v, text.data, text.len);
    hash_ids(&ids, got);
    if (strcmp(got, json_string_value(json_object_get(want, "long"))) != 0)
        fail_msg("%s: random text has other ids (%zu of them)", v->name, ids.n);
    token_ids_dispose(&ids);
    buf_dispose(&text);
}

static void gives_the_ids_of_the_reference(void **state)
{
    json_t *data = json_load_file("tests/data/tokenizer_vocabs.json", JSON_ALLOW_NUL, NULL);
    const json_t *vocabs = json_object_get(data, "vocabs"), *texts = json_object_get(data, "texts");

    (void)state;
    if (folder() == NULL) {
        json_decref(data);
        skip();
    }
    assert_true(json_array_size(texts) > 200);
    for (size_t i = 0; i < json_array_size(vocabs); i++) {
        const json_t *want = json_array_get(vocabs, i);
        struct vocabulary v;

        open_vocabulary(&v, json_string_value(json_object_get(want, "file")));
        for (size_t k = 0; k < json_array_size(texts); k++) {
            const json_t *text = json_array_get(texts, k);

            same_text(&v, want, k, json_string_value(text), json_string_length(text));
        }
        same_random_text(&v, data, want);
        close_vocabulary(&v);
    }
    json_decref(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_ids_that_come_with_the_vocabularies),
        cmocka_unit_test(gives_the_ids_of_the_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
