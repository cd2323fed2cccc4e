/* Every tensor type: decoded to the bits that the format's own library gives
 * (tests/data/tensor_types.json, made by tools/oracle_types.py), and repacked so that products are
 * those of the decoded weights; for each instruction set. */
#include "base/buf.h"
#include "base/id.h"
#include "base/json.h"
#include "base/size.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/packed.h"
#include "tests/lib/gguf_build.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const all_isas[] = {"scalar", "avx2", "avx512"};

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void put_hex(const char *hex, struct buf *out)
{
    for (; hex[0] != 0 && hex[1] != 0; hex += 2)
        buf_put_u8(out, (uint8_t)(digit(hex[0]) << 4 | digit(hex[1])));
    assert_false(out->failed);
}

static void same_values(const char *isa, uint32_t type, const json_t *c)
{
    struct buf blocks, want;
    float *got;
    size_t n;

    buf_init(&blocks);
    buf_init(&want);
    put_hex(json_string_value(json_object_get(c, "blocks")), &blocks);
    put_hex(json_string_value(json_object_get(c, "values")), &want);
    n = want.len / sizeof *got;
    got = calloc(n, sizeof *got);
    assert_true(got != NULL && n >= 32);
    kernels_for(isa)->decode[type](blocks.data, got, n);
    for (size_t i = 0; i < n; i++)
        if (memcmp(got + i, want.data + i * sizeof *got, sizeof *got) != 0)
            fail_msg("%s, %s: element %zu is %a", isa, tensor_type_name(type), i, (double)got[i]);
    free(got);
    buf_dispose(&blocks);
    buf_dispose(&want);
}

static void rows_decode_to_the_formats_own_bits(void **state)
{
    json_t *data = json_load_file("tests/data/tensor_types.json", JSON_ALLOW_NUL, NULL);
    uint32_t elements, bytes, n = 0;

    (void)state;
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        if (!tensor_type_block(type, &elements, &bytes))
            continue;
        for (size_t i = 0; i < COUNT_OF(all_isas); i++)
            if (cpu_has_isa(all_isas[i]))
                same_values(
                    all_isas[i], type,
                    json_object_get(json_object_get(data, "types"), tensor_type_name(type)));
        n++;
    }
    assert_int_equal(n, 15);
    json_decref(data);
}

#define K    768u /* three super-blocks */
#define ROWS 21u  /* the last group has 5 */
#define COLS 5u

struct product_case {
    uint32_t type;
    struct buf file; /* (ROWS, K) as in a file */
    uint8_t *data;   /* packed */
    struct packed w;
    int8_t q[COLS * K];
    float d[COLS * K / 32], d_sum[COLS * K / 32];
    int32_t sum[COLS * K / 32], low_sum[COLS * K / 32];
    struct quants x;
};

static void product_init(struct product_case *c, uint32_t type)
{
    uint64_t seed = type;
    float x[K];
    size_t row_bytes;

    memset(c, 0, sizeof *c);
    c->type = type;
    buf_init(&c->file);
    gguf_build_random_blocks(type, 0.1f, (size_t)ROWS * K, &seed, &c->file);
    row_bytes = c->file.len / ROWS;
    c->w.n_blocks = K / QUANT_BLOCK;
    c->w.group_bytes = packed_group_bytes(type, K);
    c->data = calloc(packed_groups(ROWS), c->w.group_bytes);
    assert_non_null(c->data);
    for (uint32_t r = 0; r < ROWS; r += PACK_ROWS)
        packed_fill(type, (const uint8_t *)c->file.data + r * row_bytes, row_bytes,
                    ROWS - r < PACK_ROWS ? ROWS - r : PACK_ROWS, K,
                    c->data + r / PACK_ROWS * c->w.group_bytes);
    c->w.data = c->data;
    c->x = (struct quants){.q = c->q,
                           .d = c->d,
                           .d_sum = c->d_sum,
                           .sum = c->sum,
                           .low_sum = c->low_sum,
                           .ldq = K,
                           .ldb = K / QUANT_BLOCK};
    for (uint32_t col = 0; col < COLS; col++) {
        for (uint32_t i = 0; i < K; i++)
            x[i] = gguf_build_uniform(&seed);
        kernels_scalar.quantize(x, K, &c->x, col);
    }
}

static void product_dispose(struct product_case *c)
{
    buf_dispose(&c->file);
    free(c->data);
}

/* Of decoded weights and the quantized activations, in double. */
static double true_product(const struct product_case *c, uint32_t row, uint32_t col)
{
    float w[K];
    double sum = 0;

    kernels_scalar.decode[c->type](c->file.data + row * (c->file.len / ROWS), w, K);
    for (uint32_t i = 0; i < K; i++)
        sum += (double)w[i] * c->d[col * c->x.ldb + i / 32] * c->q[col * K + i];
    return sum;
}

static void check_products(const struct product_case *c, const char *isa)
{
    uint32_t ld = packed_groups(ROWS) * PACK_ROWS;
    float y[COLS * 24];
    struct outputs out = {.y = y, .ld = ld};

    assert_int_equal(ld, 24);
    kernels_for(isa)->packed[c->type](&c->w, 0, packed_groups(ROWS), &c->x, COLS, &out);
    for (uint32_t col = 0; col < COLS; col++)
        for (uint32_t row = 0; row < ld; row++) {
            double want = row < ROWS ? true_product(c, row, col) : 0, got = y[col * ld + row];

            if (fabs(got - want) > 2e-6 * (1 + fabs(want)))
                fail_msg("%s, %s: row %u of column %u is %g, not %g", isa,
                         tensor_type_name(c->type), row, col, got, want);
        }
}

static void packed_products_are_those_of_decoded_weights(void **state)
{
    (void)state;
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        struct product_case c;

        if (!quant_is(type))
            continue;
        product_init(&c, type);
        for (size_t i = 0; i < COUNT_OF(all_isas); i++)
            if (cpu_has_isa(all_isas[i]))
                check_products(&c, all_isas[i]);
        product_dispose(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_decode_to_the_formats_own_bits),
        cmocka_unit_test(packed_products_are_those_of_decoded_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
