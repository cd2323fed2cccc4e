#include "engine/cpu/kernels.h"

#include <math.h>
#include <string.h>

#include "engine/cpu/half.h"
#include "engine/cpu/scalar.h"

#define LANES 8 /* partial sums of a float dot product, as the 8 lanes of AVX2 */

static float lanes_total(const float s[LANES])
{
    float a = (s[0] + s[4]) + (s[2] + s[6]), b = (s[1] + s[5]) + (s[3] + s[7]);

    return a + b;
}

static float dot(const float *a, const float *b, size_t n)
{
    float s[LANES] = {0};

    for (size_t k = 0; k < n; k += LANES)
        for (int l = 0; l < LANES; l++)
            s[l] += a[k + (size_t)l] * b[k + (size_t)l];
    return lanes_total(s);
}

static void put(const struct outputs *out, size_t col, size_t row, float v)
{
    float *y = out->y + col * out->ld + row;

    *y = out->add ? *y + v : v;
}

static void dot_rows(const float *w, size_t ldw, uint32_t n_rows, const float *x, size_t ldx,
                     uint32_t n_cols, size_t k_pad, const struct outputs *out)
{
    for (size_t c = 0; c < n_cols; c++)
        for (size_t r = 0; r < n_rows; r++)
            put(out, c, r, dot(w + r * ldw, x + c * ldx, k_pad));
}

/* What the vector conversion gives: nearest even; out of range and NaN give the least integer,
 * which the packing to 8 bits saturates. */
static int8_t to_int8(float v)
{
    float r = rintf(v);

    return r >= -128 && r <= 127 ? (int8_t)r : -128;
}

static void quantize(const float *x, size_t k, struct quants *q, uint32_t col)
{
    for (size_t b = 0; b < k / QUANT_BLOCK; b++, x += QUANT_BLOCK) {
        int8_t *out = q->q + col * q->ldq + b * QUANT_BLOCK;
        size_t at = col * q->ldb + b;
        uint32_t top = 0; /* of magnitudes as integers: NaN counts as the largest */
        int32_t sum = 0;
        float most, inverse;

        for (int i = 0; i < QUANT_BLOCK; i++) {
            uint32_t magnitude = bits_of_float(x[i]) & 0x7fffffff;

            top = magnitude > top ? magnitude : top;
        }
        most = float_of_bits(top);
        inverse = most != 0 ? 127.0f / most : 0;
        for (int i = 0; i < QUANT_BLOCK; i++) {
            out[i] = to_int8(x[i] * inverse);
            sum += out[i];
            if (i == QUANT_BLOCK / 2 - 1)
                q->low_sum[at] = sum;
        }
        q->d[at] = most / 127.0f;
        q->sum[at] = sum;
        q->d_sum[at] = q->d[at] * (float)sum;
    }
}

static void rmsnorm(const float *x, const float *weight, uint32_t n, float eps, float *out)
{
    float s[LANES] = {0}, scale;

    for (uint32_t i = 0; i < n; i++)
        s[i % LANES] += x[i] * x[i];
    scale = 1.0f / sqrtf(lanes_total(s) / (float)n + eps);
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

static void rope(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos, const float *sin,
                 uint32_t rope_dims)
{
    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        for (uint32_t i = 0; i < rope_dims; i += 2) {
            float a = x[i], b = x[i + 1];

            x[i] = a * cos[i] + b * sin[i];
            x[i + 1] = b * cos[i + 1] + a * sin[i + 1];
        }
}

static void rope_halves(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos,
                        const float *sin, uint32_t rope_dims)
{
    uint32_t half = rope_dims / 2;

    for (uint32_t h = 0; h < n_heads; h++, x += head_dim)
        for (uint32_t i = 0; i < half; i++) {
            float a = x[i], b = x[i + half];

            x[i] = a * cos[i] - b * sin[i];
            x[i + half] = b * cos[i] + a * sin[i];
        }
}

/* With tanh(u) written out: 0.5 (1 + tanh(u)) = 1 / (1 + exp(-2u)), u = sqrt(2 / pi) (g + c g^3).
 */
static void gelu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i], u = GELU_SCALE * (g + GELU_CUBIC * g * g * g);

        gate[i] = g / (1.0f + expf(-2.0f * u)) * up[i];
    }
}

static void soft_cap(float *x, uint32_t n, float cap)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

static void silu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void softmax(float *p, uint32_t n, float *max, float *sum)
{
    float s[LANES] = {0}, top = p[0];

    for (uint32_t i = 1; i < n; i++)
        top = p[i] > top ? p[i] : top;
    for (uint32_t i = 0; i < n; i++) {
        p[i] = expf(p[i] - top);
        s[i % LANES] += p[i];
    }
    for (uint32_t i = n; i % LANES != 0; i++)
        p[i] = 0;
    *max = top;
    *sum = lanes_total(s);
}

static void scale_add(float *acc, float a, const float *other, float b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        acc[i] = acc[i] * a + other[i] * b;
}

static void store_f16(void *k_page, void *v_page, uint32_t t, const float *k, const float *v,
                      uint32_t head_dim, uint32_t head_pad)
{
    uint16_t *kp = k_page, *vp = (uint16_t *)v_page + (size_t)t * head_pad;

    for (uint32_t d = 0; d < head_dim; d++) {
        kp[d * KV_TOKENS + t] = f32_to_f16(k[d]);
        vp[d] = f32_to_f16(v[d]);
    }
}

static void store_f32(void *k_page, void *v_page, uint32_t t, const float *k, const float *v,
                      uint32_t head_dim, uint32_t head_pad)
{
    float *kp = k_page, *vp = (float *)v_page + (size_t)t * head_pad;

    for (uint32_t d = 0; d < head_dim; d++) {
        kp[d * KV_TOKENS + t] = k[d];
        vp[d] = v[d];
    }
}

static void qk_page_f16(const float *const *q, float *const *scores, uint32_t n_queries,
                        const void *k_page, uint32_t head_dim)
{
    const uint16_t *k = k_page;

    for (uint32_t i = 0; i < n_queries; i++)
        for (uint32_t t = 0; t < KV_TOKENS; t++) {
            float acc = 0;

            for (uint32_t d = 0; d < head_dim; d++)
                acc += q[i][d] * f16_to_f32(k[d * KV_TOKENS + t]);
            scores[i][t] = acc;
        }
}

static void qk_page_f32(const float *const *q, float *const *scores, uint32_t n_queries,
                        const void *k_page, uint32_t head_dim)
{
    const float *k = k_page;

    for (uint32_t i = 0; i < n_queries; i++)
        for (uint32_t t = 0; t < KV_TOKENS; t++) {
            float acc = 0;

            for (uint32_t d = 0; d < head_dim; d++)
                acc += q[i][d] * k[d * KV_TOKENS + t];
            scores[i][t] = acc;
        }
}

static void pv_page_f16(const float *const *p, float *const *acc, uint32_t n_queries,
                        uint32_t n_tokens, const void *v_page, uint32_t head_pad)
{
    const uint16_t *v = v_page;

    for (uint32_t t = 0; t < n_tokens; t++, v += head_pad)
        for (uint32_t i = 0; i < n_queries; i++)
            for (uint32_t d = 0; d < head_pad; d++)
                acc[i][d] += p[i][t] * f16_to_f32(v[d]);
}

static void pv_page_f32(const float *const *p, float *const *acc, uint32_t n_queries,
                        uint32_t n_tokens, const void *v_page, uint32_t head_pad)
{
    const float *v = v_page;

    for (uint32_t t = 0; t < n_tokens; t++, v += head_pad)
        for (uint32_t i = 0; i < n_queries; i++)
            for (uint32_t d = 0; d < head_pad; d++)
                acc[i][d] += p[i][t] * v[d];
}

const struct kernels kernels_scalar = {
    .name = "scalar",
    .decode = scalar_decode,
    .packed = scalar_packed,
    .dot_rows = dot_rows,
    .quantize = quantize,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .rope_halves = rope_halves,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .soft_cap = soft_cap,
    .softmax = softmax,
    .scale_add = scale_add,
    .kv_f16 = {sizeof(uint16_t), 0, store_f16, qk_page_f16, pv_page_f16},
    .kv_f32 = {sizeof(float), 0, store_f32, qk_page_f32, pv_page_f32},
    .kv_q8 = {sizeof(int8_t), sizeof(float), scalar_store_q8, scalar_qk_page_q8, scalar_pv_page_q8},
};
