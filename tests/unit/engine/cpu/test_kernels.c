/* Each instruction set against scalar, and each against itself in other shapes, bit for bit. */
#include "base/buf.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/half.h"
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

#define K      512u /* inputs: two super-blocks */
#define BLOCKS (K / QUANT_BLOCK)
#define COLS   11u
#define GROUPS 3u
#define ROWS   (GROUPS * PACK_ROWS)

static uint64_t seed = 1;

static void fill(float *x, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = scale * gguf_build_uniform(&seed);
}

static bool close_to(float a, float b, float tolerance)
{
    return fabsf(a - b) <= tolerance * (1 + fabsf(b));
}

/* The table a test runs on; skips where this machine lacks it. */
static const struct kernels *table_of(void **state)
{
    const char *isa = *state;

    if (!cpu_has_isa(isa)) {
        printf("[ NOTE     ] this machine has no %s: its kernels were only compiled\n", isa);
        skip();
    }
    return kernels_for(isa);
}

static void test_rows_decode_the_same(void **state)
{
    const struct kernels *k = table_of(state);
    float x[K], a[K], b[K];
    struct buf data;

    buf_init(&data);
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        if (kernels_scalar.decode[type] == NULL)
            continue;
        buf_clear(&data);
        fill(x, K, 3);
        if (quant_is(type))
            gguf_build_random_blocks(type, 1, K, &seed, &data);
        else
            gguf_build_quantize(type, x, K, &data);
        kernels_scalar.decode[type](data.data, a, K);
        k->decode[type](data.data, b, K);
        assert_memory_equal(a, b, sizeof a);
    }
    buf_dispose(&data);
}

static void test_every_half_decodes_the_same(void **state)
{
    const struct kernels *k = table_of(state);
    static uint16_t halves[65536];
    static float a[65536], b[65536];

    for (uint32_t i = 0; i < 65536; i++)
        halves[i] = (uint16_t)i;
    kernels_scalar.decode[TENSOR_F16](halves, a, 65536);
    k->decode[TENSOR_F16](halves, b, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        if (isnan(a[i])) {
            assert_true(isnan(b[i]));
            continue;
        }
        assert_memory_equal(&a[i], &b[i], sizeof a[i]);
        assert_int_equal(f32_to_f16(a[i]), i);
    }
}

struct packed_case {
    struct packed w;
    uint8_t *data;
    struct quants x;
    float y[COLS * ROWS];
};

static void set_half(uint8_t *p, float v)
{
    uint16_t h = f32_to_f16(v);

    memcpy(p, &h, sizeof h);
}

static float scale_for(bool unit)
{
    return unit ? 1.0f : 0.01f * gguf_build_uniform(&seed);
}

/* A block of a group: scales are of the size that real ones have, or 1 for exact sums. */
static void set_scales(const struct quant_form *f, uint8_t *scales, uint32_t b, bool unit)
{
    for (uint32_t r = 0; r < PACK_ROWS; r++)
        for (int m = 0; m <= (f->min ? 1 : 0); m++) {
            set_half(scales + packed_f16_at(f, b, m == 1) + 2 * r, scale_for(unit));
            for (uint32_t span = 0; f->super && span < packed_spans(f); span++)
                scales[packed_factor_at(f, b, span, m == 1) + r] =
                    unit ? 1 : (uint8_t)(int8_t)(5 * gguf_build_uniform(&seed) + (m == 1 ? 5 : 0));
        }
}

/* Any codes that the type has; those of the first group are the ones that make the largest sums. */
static void set_codes(const struct quant_form *f, uint8_t *codes, bool worst)
{
    uint8_t most = f->level == LEVEL_SIGNED ? 0x80 : f->level == LEVEL_TABLE ? 0 : f->max_code;
    uint8_t mask = f->max_code;

    if (!packed_is_bytes(f)) {
        most = (uint8_t)(most | most << 4);
        mask = (uint8_t)(mask | mask << 4);
    }
    for (size_t i = 0; i < BLOCKS * packed_code_bytes(f); i++)
        codes[i] = worst ? most : (uint8_t)(128 * gguf_build_uniform(&seed) + 128) & mask;
}

static void set_column(struct quants *x, uint32_t col)
{
    float values[K];

    fill(values, K, 2);
    for (uint32_t i = 0; i < K && col < 2; i++) /* all the same: 127, then -127 */
        values[i] = col == 0 ? 1 : -1;
    kernels_scalar.quantize(values, K, x, col);
}

static void packed_init(struct packed_case *c, uint32_t type, bool unit_scales)
{
    const struct quant_form *f = &quant_forms[type];

    memset(c, 0, sizeof *c);
    c->w.n_blocks = BLOCKS;
    c->w.group_bytes = packed_group_bytes(type, K);
    c->data = calloc(GROUPS, c->w.group_bytes);
    assert_non_null(c->data);
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint8_t *group = c->data + g * c->w.group_bytes;

        set_codes(f, group, g == 0);
        for (uint32_t b = 0; b < BLOCKS; b++)
            set_scales(f, group + BLOCKS * packed_code_bytes(f), b, unit_scales);
    }
    c->w.data = c->data;
    c->x = (struct quants){.q = malloc(COLS * K),
                           .d = malloc(COLS * BLOCKS * sizeof(float)),
                           .d_sum = malloc(COLS * BLOCKS * sizeof(float)),
                           .sum = malloc(COLS * BLOCKS * sizeof(int32_t)),
                           .low_sum = malloc(COLS * BLOCKS * sizeof(int32_t)),
                           .ldq = K,
                           .ldb = BLOCKS};
    for (uint32_t col = 0; col < COLS; col++)
        set_column(&c->x, col);
    for (uint32_t i = 0; unit_scales && i < COLS * BLOCKS; i++) {
        c->x.d[i] = 1;
        c->x.d_sum[i] = (float)c->x.sum[i];
    }
}

static void packed_dispose(struct packed_case *c)
{
    free(c->data);
    free(c->x.q);
    free(c->x.d);
    free(c->x.d_sum);
    free(c->x.sum);
    free(c->x.low_sum);
}

static void run_packed(packed_matmul *f, struct packed_case *c, uint32_t first_col, uint32_t n_cols,
                       float *y, bool add)
{
    struct quants x = c->x;
    struct outputs out = {.y = y, .ld = ROWS, .add = add};

    x.q += first_col * x.ldq;
    x.d += first_col * x.ldb;
    x.d_sum += first_col * x.ldb;
    x.sum += first_col * x.ldb;
    x.low_sum += first_col * x.ldb;
    f(&c->w, 0, GROUPS, &x, n_cols, &out);
}

static void check_packed(packed_matmul *scalar, packed_matmul *f, uint32_t type)
{
    float a[COLS * ROWS], b[COLS * ROWS], one[ROWS];
    struct packed_case c;

    packed_init(&c, type, true);
    run_packed(scalar, &c, 0, COLS, a, false);
    run_packed(f, &c, 0, COLS, b, false);
    assert_memory_equal(a, b, sizeof a); /* integers: exactly */
    packed_dispose(&c);

    packed_init(&c, type, false);
    run_packed(scalar, &c, 0, COLS, a, false);
    run_packed(f, &c, 0, COLS, b, false);
    for (size_t i = 0; i < COLS * ROWS; i++)
        assert_true(close_to(b[i], a[i], 1e-5f));
    for (uint32_t first = 0; first < COLS; first++)
        for (uint32_t n = 1; first + n <= COLS; n++) { /* any columns, any number of them */
            run_packed(f, &c, first, n, a, false);
            assert_memory_equal(a, b + first * ROWS, n * ROWS * sizeof *a);
        }
    for (uint32_t g = 0; g < GROUPS; g++) { /* a group alone */
        struct outputs out = {.y = a, .ld = ROWS};

        f(&c.w, g, g + 1, &c.x, COLS, &out);
    }
    assert_memory_equal(a, b, sizeof a);
    memcpy(one, b, sizeof one);
    run_packed(f, &c, 0, 1, one, true);
    for (uint32_t r = 0; r < ROWS; r++)
        assert_true(one[r] == b[r] + b[r]);
    packed_dispose(&c);
}

static void test_packed_products(void **state)
{
    const struct kernels *k = table_of(state);

    for (uint32_t type = 0; type < TENSOR_TYPES; type++)
        if (quant_is(type))
            check_packed(kernels_scalar.packed[type], k->packed[type], type);
}

static void test_quantize_is_the_same(void **state)
{
    const struct kernels *k = table_of(state);
    static const float odd[] = {0, NAN, INFINITY, 1e-38f, -1e30f};
    int8_t qa[K], qb[K];
    float da[BLOCKS], db[BLOCKS], sa[BLOCKS], sb[BLOCKS], x[K];
    int32_t ia[BLOCKS], ib[BLOCKS], la[BLOCKS], lb[BLOCKS];
    struct quants a = {qa, da, sa, ia, la, K, BLOCKS}, b = {qb, db, sb, ib, lb, K, BLOCKS};

    for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++) {
        fill(x, K, 5);
        memset(x + 64, 0, 32 * sizeof *x);
        x[37] = odd[o];
        kernels_scalar.quantize(x, K, &a, 0);
        k->quantize(x, K, &b, 0);
        assert_memory_equal(ia, ib, sizeof ia);
        assert_memory_equal(la, lb, sizeof la);
        assert_memory_equal(qa, qb, sizeof qa);
        assert_true(isfinite(odd[o]) == (isfinite(da[1]) != 0));
        assert_true(isfinite(odd[o]) == (isfinite(db[1]) != 0));
        assert_true(da[0] == db[0] && sa[0] == sb[0] && da[2] == 0 && db[2] == 0);
    }
}

static void test_dot_rows(void **state)
{
    const struct kernels *k = table_of(state);
    float w[DOT_ROWS * K], x[COLS * K], a[COLS * DOT_ROWS], b[COLS * DOT_ROWS], c[COLS * DOT_ROWS];
    struct outputs oa = {.y = a, .ld = DOT_ROWS}, ob = {.y = b, .ld = DOT_ROWS},
                   oc = {.y = c, .ld = DOT_ROWS};

    fill(w, DOT_ROWS * K, 1);
    fill(x, COLS * K, 1);
    kernels_scalar.dot_rows(w, K, DOT_ROWS, x, K, COLS, K, &oa);
    k->dot_rows(w, K, DOT_ROWS, x, K, COLS, K, &ob);
    for (size_t i = 0; i < COLS * DOT_ROWS; i++)
        assert_true(close_to(b[i], a[i], 1e-5f));
    for (uint32_t col = 0; col < COLS; col++)
        for (uint32_t row = 0; row < DOT_ROWS; row++) {
            k->dot_rows(w + row * K, K, 1, x + col * K, K, 1, K, &oc);
            assert_memory_equal(c, b + col * DOT_ROWS + row, sizeof *c);
        }
}

static void test_norm_and_rope(void **state)
{
    const struct kernels *k = table_of(state);
    float x[83], w[83], a[83], b[83], cos[20], sin[20];

    for (uint32_t n = 1; n <= 83; n++) {
        fill(x, 83, 2);
        fill(w, 83, 1);
        kernels_scalar.rmsnorm(x, w, n, 1e-5f, a);
        k->rmsnorm(x, w, n, 1e-5f, b);
        for (uint32_t i = 0; i < n; i++)
            assert_true(close_to(b[i], a[i], 1e-5f));
    }
    fill(cos, 20, 1);
    fill(sin, 20, 1);
    memcpy(a, x, sizeof a);
    memcpy(b, x, sizeof b);
    kernels_scalar.rope(a, 3, 26, cos, sin, 20);
    k->rope(b, 3, 26, cos, sin, 20);
    for (uint32_t i = 0; i < 83; i++)
        assert_true(close_to(b[i], a[i], 1e-5f));
    for (uint32_t h = 0; h < 3; h++) /* what lies past rope_dims stays */
        assert_memory_equal(b + h * 26 + 20, x + h * 26 + 20, 6 * sizeof *x);
}

/* The other half of a pair lies rope_dims / 2 further on: odd numbers of vectors, and tails. */
static void test_rope_of_halves(void **state)
{
    static const uint32_t dims[] = {2, 16, 22, 48, 50};
    const struct kernels *k = table_of(state);
    float x[2 * 52], a[2 * 52], b[2 * 52], cos[25], sin[25];

    fill(cos, 25, 1);
    fill(sin, 25, 1);
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
        fill(x, 2 * 52, 2);
        memcpy(a, x, sizeof a);
        memcpy(b, x, sizeof b);
        kernels_scalar.rope_halves(a, 2, 52, cos, sin, dims[d]);
        k->rope_halves(b, 2, 52, cos, sin, dims[d]);
        assert_true(close_to(a[0], x[0] * cos[0] - x[dims[d] / 2] * sin[0], 1e-6f));
        for (uint32_t i = 0; i < 2 * 52; i++)
            assert_true(close_to(b[i], a[i], 1e-5f));
        for (uint32_t h = 0; h < 2; h++)
            assert_memory_equal(b + h * 52 + dims[d], x + h * 52 + dims[d],
                                (52 - dims[d]) * sizeof *x);
    }
}

static void test_soft_cap(void **state)
{
    const struct kernels *k = table_of(state);
    float x[45], a[45], one;

    fill(x, 45, 200);
    x[1] = 0;
    x[2] = 1e30f;
    x[3] = -1e30f;
    memcpy(a, x, sizeof a);
    k->soft_cap(a, 45, 30);
    for (uint32_t i = 0; i < 45; i++) {
        assert_true(close_to(a[i], 30 * tanhf(x[i] / 30), 1e-5f));
        one = x[i];
        k->soft_cap(&one, 1, 30);
        assert_memory_equal(&one, a + i, sizeof one);
    }
    one = NAN;
    k->soft_cap(&one, 1, 30);
    assert_true(isnan(one));
}

static void check_gate(void (*scalar)(float *gate, const float *up, uint32_t n),
                       void (*kernel)(float *gate, const float *up, uint32_t n))
{
    float g[45], u[45], a[45], b[45], one;

    fill(g, 45, 60);
    fill(u, 45, 2);
    g[3] = -500;
    g[4] = 500;
    g[5] = 0;
    memcpy(a, g, sizeof a);
    memcpy(b, g, sizeof b);
    scalar(a, u, 45);
    kernel(b, u, 45);
    for (uint32_t i = 0; i < 45; i++) {
        assert_true(close_to(b[i], a[i], 1e-5f));
        one = g[i];
        kernel(&one, u + i, 1);
        assert_memory_equal(&one, b + i, sizeof one);
    }
    one = NAN;
    kernel(&one, u, 1);
    assert_true(isnan(one));
}

static void test_activations_do_not_depend_on_the_place(void **state)
{
    const struct kernels *k = table_of(state);
    float g = 1.5f, up = 2;

    check_gate(kernels_scalar.silu_mul, k->silu_mul);
    check_gate(kernels_scalar.gelu_mul, k->gelu_mul);
    kernels_scalar.gelu_mul(&g, &up, 1);
    assert_true(close_to(g, 2 * 1.3995715f, 1e-6f)); /* by tanh itself */
}

static void test_softmax(void **state)
{
    const struct kernels *k = table_of(state);
    float x[256], a[256], b[256], ma, mb, sa, sb;

    for (uint32_t n = 1; n <= 256; n += n < 40 ? 1 : 27) {
        fill(x, 256, 40);
        memcpy(a, x, sizeof a);
        memcpy(b, x, sizeof b);
        kernels_scalar.softmax(a, n, &ma, &sa);
        k->softmax(b, n, &mb, &sb);
        assert_true(ma == mb && close_to(sb, sa, 1e-5f));
        for (uint32_t i = 0; i < n; i++)
            assert_true(close_to(b[i], a[i], 1e-6f));
        for (uint32_t i = n; i % 8 != 0; i++)
            assert_true(b[i] == 0);
    }
    x[2] = NAN;
    k->softmax(x, 9, &mb, &sb);
    assert_true(isnan(sb));
}

/* Weighted values of the first 11 tokens for 1 to 4 queries: as scalar's, and as each alone. */
static void check_values(const struct kv_kernels *s, const struct kv_kernels *k,
                         const uint8_t *part_s, const uint8_t *part_k, uint32_t head_dim,
                         uint32_t pad)
{
    float p[4][16], acc_s[4][160] = {{0}}, start[4][160];
    const float *weights[4] = {p[0], p[1], p[2], p[3]};
    float *out_s[4] = {acc_s[0], acc_s[1], acc_s[2], acc_s[3]};

    fill(p[0], 4 * 16, 1);
    fill(start[0], 4 * 160, 1);
    memcpy(acc_s, start, sizeof acc_s);
    s->pv_page(weights, out_s, 4, 11, part_s, pad);
    for (uint32_t n = 1; n <= 4; n++) {
        float acc_k[4][160], alone[160], *out_alone = alone;
        float *out_k[4] = {acc_k[0], acc_k[1], acc_k[2], acc_k[3]};

        memcpy(acc_k, start, sizeof acc_k);
        k->pv_page(weights, out_k, n, 11, part_k, pad);
        for (uint32_t i = 0; i < n; i++) {
            memcpy(alone, start[i], sizeof alone);
            k->pv_page(weights + i, &out_alone, 1, 11, part_k, pad);
            assert_memory_equal(alone, acc_k[i], sizeof alone);
            for (uint32_t d = 0; d < head_dim; d++)
                assert_true(close_to(acc_k[i][d], acc_s[i][d], 1e-5f));
        }
    }
}

/* One page: stored token by token, scored for 1 to 4 queries, weighted. */
static void check_pages(const struct kv_kernels *s, const struct kv_kernels *k, uint32_t head_dim)
{
    uint32_t pad = (head_dim + 7) & ~7u;
    size_t v_at = KV_TOKENS * (s->scale_bytes + s->element_bytes * head_dim);
    size_t bytes = v_at + KV_TOKENS * (s->scale_bytes + s->element_bytes * pad);
    uint8_t *page_s = calloc(1, bytes), *page_k = calloc(1, bytes);
    float key[160], value[160], q[4][160], scores_s[4][16], scores_k[4][16], one[16];
    const float *queries[4] = {q[0], q[1], q[2], q[3]};
    float *out_s[4] = {scores_s[0], scores_s[1], scores_s[2], scores_s[3]};
    float *out_k[4] = {scores_k[0], scores_k[1], scores_k[2], scores_k[3]}, *out_one[1] = {one};

    assert_true(page_s != NULL && page_k != NULL);
    for (uint32_t t = 0; t < KV_TOKENS; t++) {
        fill(key, head_dim, 1);
        fill(value, head_dim, 1);
        s->store(page_s, page_s + v_at, t, key, value, head_dim, pad);
        k->store(page_k, page_k + v_at, t, key, value, head_dim, pad);
    }
    assert_memory_equal(page_s, page_k, bytes);
    for (int i = 0; i < 4; i++)
        fill(q[i], head_dim, 1);
    s->qk_page(queries, out_s, 4, page_s, head_dim);
    for (uint32_t n = 1; n <= 4; n++) {
        k->qk_page(queries, out_k, n, page_k, head_dim);
        for (uint32_t i = 0; i < n; i++) {
            k->qk_page(queries + i, out_one, 1, page_k, head_dim);
            assert_memory_equal(one, scores_k[i], sizeof one);
            for (int t = 0; t < 16; t++)
                assert_true(close_to(scores_k[i][t], scores_s[i][t], 1e-5f));
        }
    }
    check_values(s, k, page_s + v_at, page_k + v_at, head_dim, pad);
    free(page_s);
    free(page_k);
}

static void test_pages(void **state)
{
    static const uint32_t dims[] = {2, 8, 16, 26, 64, 80, 96, 128, 160};
    const struct kernels *k = table_of(state);

    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        check_pages(&kernels_scalar.kv_f16, &k->kv_f16, dims[i]);
        check_pages(&kernels_scalar.kv_f32, &k->kv_f32, dims[i]);
        check_pages(&kernels_scalar.kv_q8, &k->kv_q8, dims[i]);
    }
}

#define Q8_DIM   26u
#define Q8_PAD   32u
#define Q8_K     (KV_TOKENS * (sizeof(float) + Q8_DIM))
#define Q8_BYTES (Q8_K + KV_TOKENS * (sizeof(float) + Q8_PAD))

struct q8_page {
    _Alignas(float) uint8_t bytes[Q8_BYTES];
};

static void store_q8(const struct kernels *k, struct q8_page *page, uint32_t t, const float *key,
                     const float *value)
{
    k->kv_q8.store(page->bytes, page->bytes + Q8_K, t, key, value, Q8_DIM, Q8_PAD);
}

/* Keys as the page holds them, by scores of unit queries. */
static void keys_of(const struct kernels *k, const struct q8_page *page,
                    float out[Q8_DIM][KV_TOKENS])
{
    for (uint32_t d = 0; d < Q8_DIM; d++) {
        float q[Q8_DIM] = {0}, *scores = out[d];
        const float *query = q;

        q[d] = 1;
        k->kv_q8.qk_page(&query, &scores, 1, page->bytes, Q8_DIM);
    }
}

static void test_8_bits_are_as_close_as_they_can_be(void **state)
{
    const struct kernels *k = table_of(state);
    float key[KV_TOKENS][Q8_DIM], value[KV_TOKENS][Q8_DIM], back[Q8_DIM][KV_TOKENS];
    struct q8_page page = {0};

    for (uint32_t t = 0; t < KV_TOKENS; t++) {
        fill(key[t], Q8_DIM, ldexpf(1, 4 * (int)t - 30)); /* each of another size */
        fill(value[t], Q8_DIM, ldexpf(1, 30 - 4 * (int)t));
        key[t][3] = -ldexpf(1, 4 * (int)t - 30);
        value[t][25] = ldexpf(1, 30 - 4 * (int)t);
        store_q8(k, &page, t, key[t], value[t]);
    }
    keys_of(k, &page, back);
    for (uint32_t t = 0; t < KV_TOKENS; t++) {
        float p[KV_TOKENS] = {0}, v[Q8_PAD] = {0}, *acc = v;
        const float *weights = p;

        p[t] = 1;
        k->kv_q8.pv_page(&weights, &acc, 1, KV_TOKENS, page.bytes + Q8_K, Q8_PAD);
        for (uint32_t d = 0; d < Q8_DIM; d++) { /* half a step of the token's own largest value */
            assert_true(fabsf(back[d][t] - key[t][d]) <= 0.501f / 127 * -key[t][3]);
            assert_true(fabsf(v[d] - value[t][d]) <= 0.501f / 127 * value[t][25]);
        }
    }
}

/* A page filled in another order, and one with another neighbour. */
static void test_8_bits_of_a_token_depend_on_it_alone(void **state)
{
    const struct kernels *k = table_of(state);
    float key[KV_TOKENS][Q8_DIM], value[KV_TOKENS][Q8_DIM];
    struct q8_page a = {0}, b = {0};

    for (uint32_t t = 0; t < KV_TOKENS; t++) {
        fill(key[t], Q8_DIM, 1 + (float)t);
        fill(value[t], Q8_DIM, 20 - (float)t);
        store_q8(k, &a, t, key[t], value[t]);
    }
    for (uint32_t t = KV_TOKENS; t-- > 0;)
        store_q8(k, &b, t, key[t], value[t]);
    assert_memory_equal(&a, &b, sizeof a);
    for (uint32_t d = 0; d < Q8_DIM; d++)
        key[5][d] *= -1000;
    store_q8(k, &b, 5, key[5], value[5]);
    for (size_t i = 0; i < Q8_K; i++) {
        size_t token = i < KV_TOKENS * sizeof(float) ? i / sizeof(float) : i % KV_TOKENS;

        assert_true(token == 5 || a.bytes[i] == b.bytes[i]);
    }
    assert_memory_equal(a.bytes + Q8_K, b.bytes + Q8_K, Q8_BYTES - Q8_K);
    assert_memory_not_equal(a.bytes, b.bytes, Q8_K);
}

/* Damage reaches the scores of its own token and its weighted values; zeros and what is next to
 * them stay numbers. */
static void test_8_bits_hide_no_damage(void **state)
{
    const struct kernels *k = table_of(state);
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, 0, 1e-40f, -1e-30f, 3e38f};

    for (size_t o = 0; o < sizeof odd / sizeof odd[0]; o++) {
        float x[Q8_DIM] = {0}, back[Q8_DIM][KV_TOKENS], p[KV_TOKENS] = {0}, v[Q8_PAD] = {0},
              *acc = v;
        const float *weights = p;
        struct q8_page page = {0}, same = {0};
        bool damaged = false, bad = isfinite(odd[o]) == 0;

        x[7] = odd[o];
        p[4] = 1;
        store_q8(k, &page, 4, x, x);
        store_q8(&kernels_scalar, &same, 4, x, x);
        keys_of(k, &page, back);
        k->kv_q8.pv_page(&weights, &acc, 1, KV_TOKENS, page.bytes + Q8_K, Q8_PAD);
        for (uint32_t d = 0; d < Q8_DIM; d++) {
            assert_true(back[d][3] == 0 && back[d][5] == 0);
            damaged = damaged || !isfinite(back[d][4]);
            assert_true(bad || (back[d][4] != 0) == (d == 7 && fabsf(odd[o]) > 0x1p-100f));
        }
        assert_true(damaged == bad && bad == !isfinite(v[7]));
        assert_true(bad || memcmp(&page, &same, sizeof page) == 0);
    }
}

#define FOR_ISA(test, isa)                                                                         \
    {                                                                                              \
#test " " isa, test, NULL, NULL, (void *)(uintptr_t)isa                                    \
    }
#define FOR_EACH_ISA(test) FOR_ISA(test, "scalar"), FOR_ISA(test, "avx2"), FOR_ISA(test, "avx512")

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOR_EACH_ISA(test_rows_decode_the_same),
        FOR_EACH_ISA(test_every_half_decodes_the_same),
        FOR_EACH_ISA(test_packed_products),
        FOR_EACH_ISA(test_quantize_is_the_same),
        FOR_EACH_ISA(test_dot_rows),
        FOR_EACH_ISA(test_norm_and_rope),
        FOR_EACH_ISA(test_rope_of_halves),
        FOR_EACH_ISA(test_soft_cap),
        FOR_EACH_ISA(test_activations_do_not_depend_on_the_place),
        FOR_EACH_ISA(test_softmax),
        FOR_EACH_ISA(test_pages),
        FOR_EACH_ISA(test_8_bits_are_as_close_as_they_can_be),
        FOR_EACH_ISA(test_8_bits_of_a_token_depend_on_it_alone),
        FOR_EACH_ISA(test_8_bits_hide_no_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
