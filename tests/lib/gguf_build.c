#include "tests/lib/gguf_build.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "tests/lib/splitmix64.h"

void gguf_build_init(struct gguf_build *b)
{
    *b = (struct gguf_build){.version = 3, .alignment = 32};
    buf_init(&b->kv);
    buf_init(&b->infos);
    buf_init(&b->data);
}

void gguf_build_dispose(struct gguf_build *b)
{
    buf_dispose(&b->kv);
    buf_dispose(&b->infos);
    buf_dispose(&b->data);
}

static void put_string(struct buf *b, const char *s)
{
    buf_put_u64(b, strlen(s));
    buf_puts(b, s);
}

static void put_f32(struct buf *b, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    buf_put_u32(b, bits);
}

void gguf_build_key(struct gguf_build *b, const char *key, enum gguf_type type)
{
    put_string(&b->kv, key);
    buf_put_u32(&b->kv, type);
    b->n_kv++;
}

void gguf_build_u32(struct gguf_build *b, const char *key, uint32_t v)
{
    gguf_build_key(b, key, GGUF_U32);
    buf_put_u32(&b->kv, v);
}

void gguf_build_f32(struct gguf_build *b, const char *key, float v)
{
    gguf_build_key(b, key, GGUF_F32);
    put_f32(&b->kv, v);
}

void gguf_build_bool(struct gguf_build *b, const char *key, bool v)
{
    gguf_build_key(b, key, GGUF_BOOL);
    buf_put_u8(&b->kv, v);
}

void gguf_build_string(struct gguf_build *b, const char *key, const char *v)
{
    gguf_build_key(b, key, GGUF_STRING);
    put_string(&b->kv, v);
}

void gguf_build_strings(struct gguf_build *b, const char *key, const char *const *v, size_t n)
{
    gguf_build_key(b, key, GGUF_ARRAY);
    buf_put_u32(&b->kv, GGUF_STRING);
    buf_put_u64(&b->kv, n);
    for (size_t i = 0; i < n; i++)
        put_string(&b->kv, v[i]);
}

void gguf_build_i32s(struct gguf_build *b, const char *key, const int32_t *v, size_t n)
{
    gguf_build_key(b, key, GGUF_ARRAY);
    buf_put_u32(&b->kv, GGUF_I32);
    buf_put_u64(&b->kv, n);
    for (size_t i = 0; i < n; i++)
        buf_put_u32(&b->kv, (uint32_t)v[i]);
}

static void pad(struct buf *b, size_t alignment)
{
    while (b->len % alignment != 0)
        buf_putc(b, 0);
}

void gguf_build_tensor(struct gguf_build *b, const char *name, uint32_t type, uint32_t n_dims,
                       const uint64_t *dims, const void *data, size_t bytes)
{
    pad(&b->data, b->alignment);
    put_string(&b->infos, name);
    buf_put_u32(&b->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        buf_put_u64(&b->infos, dims[i]);
    buf_put_u32(&b->infos, type);
    buf_put_u64(&b->infos, b->data.len);
    buf_append(&b->data, data, bytes);
    b->n_tensors++;
}

float gguf_build_uniform(uint64_t *seed)
{
    return (float)(splitmix64(seed) >> 40) * 0x1p-23f - 1.0f;
}

static bool has_quantizer(enum tensor_type type)
{
    return type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16 || type == TENSOR_Q8_0 ||
           type == TENSOR_Q4_1;
}

void gguf_build_random(struct gguf_build *b, const char *name, enum tensor_type type, uint64_t rows,
                       uint64_t cols, float centre, float scale, uint64_t *seed)
{
    const uint64_t dims[2] = {cols, rows};
    size_t n = (size_t)(rows == 0 ? cols : rows * cols);
    struct buf values, stored;

    buf_init(&values);
    buf_init(&stored);
    for (size_t i = 0; i < n; i++) {
        float v = centre + scale * gguf_build_uniform(seed);

        buf_append(&values, &v, sizeof v);
    }
    assert(!values.failed);
    if (has_quantizer(type))
        gguf_build_quantize(type, (const float *)(const void *)values.data, n, &stored);
    else
        gguf_build_random_blocks(type, scale / sqrtf(3.0f), n, seed, &stored);
    gguf_build_tensor(b, name, type, rows == 0 ? 1 : 2, dims, stored.data, stored.len);
    buf_dispose(&values);
    buf_dispose(&stored);
}

void gguf_build_finish(const struct gguf_build *b, struct buf *out)
{
    size_t start = out->len;

    buf_puts(out, "GGUF");
    buf_put_u32(out, b->version);
    buf_put_u64(out, b->n_tensors);
    buf_put_u64(out, b->n_kv);
    buf_append(out, b->kv.data, b->kv.len);
    buf_append(out, b->infos.data, b->infos.len);
    while ((out->len - start) % b->alignment != 0)
        buf_putc(out, 0);
    buf_append(out, b->data.data, b->data.len);
    assert(!b->kv.failed && !b->infos.failed && !b->data.failed && !out->failed);
}

/* Rounds to nearest even; the values of tests don't overflow. */
static uint16_t to_f16(float v)
{
    uint32_t bits, mantissa;
    int32_t exponent;

    memcpy(&bits, &v, sizeof bits);
    exponent = (int32_t)(bits >> 23 & 0xFF) - 127 + 15;
    if (exponent <= 0) /* subnormal: in units of 2^-24 */
        return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)lrintf(fabsf(v) * 0x1p24f));
    assert(exponent < 31);
    mantissa = ((uint32_t)exponent << 23 | (bits & 0x7FFFFF)) + 0xFFF + (bits >> 13 & 1);
    return (uint16_t)((bits >> 16 & 0x8000) | mantissa >> 13);
}

static uint16_t to_bf16(float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

enum { BLOCK = 32 };

/* d (f16), 32 signed bytes; value = d * q. */
static void put_q8_0(const float *x, struct buf *out)
{
    float max = 0.0f, d;

    for (int i = 0; i < BLOCK; i++)
        max = fmaxf(max, fabsf(x[i]));
    d = max / 127.0f;
    buf_put_u16(out, to_f16(d));
    for (int i = 0; i < BLOCK; i++)
        buf_put_u8(out, (uint8_t)(int8_t)(d > 0.0f ? lrintf(x[i] / d) : 0));
}

static uint8_t q4(float x, float d, float min)
{
    long q = d > 0.0f ? lrintf((x - min) / d) : 0;

    return (uint8_t)(q < 0 ? 0 : q > 15 ? 15 : q);
}

/* d (f16), m (f16), 16 bytes: the low nibbles are elements 0..15, the high ones 16..31; value =
 * d * q + m. */
static void put_q4_1(const float *x, struct buf *out)
{
    float min = x[0], max = x[0], d;

    for (int i = 1; i < BLOCK; i++) {
        min = fminf(min, x[i]);
        max = fmaxf(max, x[i]);
    }
    d = (max - min) / 15.0f;
    buf_put_u16(out, to_f16(d));
    buf_put_u16(out, to_f16(min));
    for (int i = 0; i < BLOCK / 2; i++)
        buf_put_u8(out, (uint8_t)(q4(x[i], d, min) | q4(x[i + BLOCK / 2], d, min) << 4));
}

void gguf_build_quantize(enum tensor_type type, const float *x, size_t n, struct buf *out)
{
    size_t step = type == TENSOR_Q8_0 || type == TENSOR_Q4_1 ? BLOCK : 1;

    assert(n % step == 0);
    for (size_t i = 0; i < n; i += step) {
        switch (type) {
        case TENSOR_F32:
            put_f32(out, x[i]);
            break;
        case TENSOR_F16:
            buf_put_u16(out, to_f16(x[i]));
            break;
        case TENSOR_BF16:
            buf_put_u16(out, to_bf16(x[i]));
            break;
        case TENSOR_Q8_0:
            put_q8_0(x + i, out);
            break;
        case TENSOR_Q4_1:
            put_q4_1(x + i, out);
            break;
        default:
            assert(!"a type without a quantizer");
        }
    }
}

/* Where a block has its half-precision scales, the deviation of values at d = 1 with every code and
 * factor equally likely, and the m that centres them. */
static const struct {
    enum tensor_type type;
    int d_at, m_at; /* m_at -1: none */
    float deviation, m_per_d;
} random_types[] = {
    {TENSOR_Q4_0, 0, -1, 4.6f, 0},      {TENSOR_Q4_1, 0, 2, 4.6f, -7.5f},
    {TENSOR_Q5_0, 0, -1, 9.2f, 0},      {TENSOR_Q5_1, 0, 2, 9.2f, -15.5f},
    {TENSOR_Q8_0, 0, -1, 74.0f, 0},     {TENSOR_Q2_K, 80, 82, 13.9f, 1.5f},
    {TENSOR_Q3_K, 108, -1, 43.0f, 0},   {TENSOR_Q4_K, 0, 2, 258.0f, 7.5f},
    {TENSOR_Q5_K, 0, 2, 527.0f, 15.5f}, {TENSOR_Q6_K, 208, -1, 1366.0f, 0},
    {TENSOR_IQ4_NL, 0, -1, 67.0f, 0},   {TENSOR_IQ4_XS, 0, -1, 1246.0f, 0},
};

static void put_half_at(struct buf *out, size_t at, float v)
{
    uint16_t h = to_f16(v);

    memcpy(out->data + at, &h, sizeof h);
}

void gguf_build_random_blocks(enum tensor_type type, float deviation, size_t n, uint64_t *seed,
                              struct buf *out)
{
    uint32_t elements = 0, bytes = 0;
    size_t i = 0;
    float d;

    while (random_types[i].type != type)
        assert(++i < COUNT_OF(random_types));
    assert(tensor_type_block(type, &elements, &bytes) && n % elements == 0);
    d = deviation / random_types[i].deviation;
    for (size_t b = 0; b < n / elements; b++) {
        size_t start = out->len;

        for (uint32_t k = 0; k < bytes; k++)
            buf_put_u8(out, (uint8_t)splitmix64(seed));
        assert(!out->failed);
        put_half_at(out, start + (size_t)random_types[i].d_at, d);
        if (random_types[i].m_at != -1)
            put_half_at(out, start + (size_t)random_types[i].m_at, d * random_types[i].m_per_d);
    }
}
