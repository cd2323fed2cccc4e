/* The Llama forward pass as plainly as it can be written, in double, for the tests of the device:
 * one sequence, no cache, weights decoded by the scalar row kernels. Included by one test. */
#ifndef TESTS_UNIT_ENGINE_CPU_REFERENCE_H
#define TESTS_UNIT_ENGINE_CPU_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/kernels.h"
#include "engine/model/model.h"

static void reference_row(const struct tensor *t, uint64_t row, float *out)
{
    const char *data = (const char *)t->data + row * (t->bytes / t->dims[1]);

    kernels_scalar.decode[t->type](data, out, t->dims[0]);
}

/* y = W x */
static void reference_product(const struct tensor *w, const double *x, double *y)
{
    float *row = malloc(w->dims[0] * sizeof *row);

    for (uint64_t r = 0; r < w->dims[1]; r++) {
        reference_row(w, r, row);
        y[r] = 0;
        for (uint64_t i = 0; i < w->dims[0]; i++)
            y[r] += row[i] * x[i];
    }
    free(row);
}

static void reference_norm(const struct model_shape *s, const struct tensor *w, const double *x,
                           double *y)
{
    const float *weight = w->data;
    double sum = 0;

    for (uint32_t i = 0; i < s->n_embd; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < s->n_embd; i++)
        y[i] = x[i] / sqrt(sum / s->n_embd + s->norm_eps) * weight[i];
}

static void reference_rope(const struct model_shape *s, double *x, uint32_t n_heads, uint32_t pos)
{
    for (uint32_t h = 0; h < n_heads; h++, x += s->head_dim)
        for (uint32_t i = 0; i < s->rope.dims; i += 2) {
            double angle = pos * pow(s->rope.base, -(double)i / s->rope.dims);
            double a = x[i], b = x[i + 1];

            x[i] = a * cos(angle) - b * sin(angle);
            x[i + 1] = a * sin(angle) + b * cos(angle);
        }
}

/* One head of one token over the keys and values of all tokens up to it. */
static void reference_head(const struct model_shape *s, const double *q, const double *k,
                           const double *v, uint32_t n_tokens, double *out)
{
    size_t ld = (size_t)s->n_kv_heads * s->head_dim;
    double *p = malloc(n_tokens * sizeof *p), max = -INFINITY, sum = 0;

    for (uint32_t t = 0; t < n_tokens; t++) {
        p[t] = 0;
        for (uint32_t d = 0; d < s->head_dim; d++)
            p[t] += q[d] * k[t * ld + d];
        p[t] /= sqrt(s->head_dim);
        max = p[t] > max ? p[t] : max;
    }
    memset(out, 0, s->head_dim * sizeof *out);
    for (uint32_t t = 0; t < n_tokens; t++)
        sum += p[t] = exp(p[t] - max);
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t d = 0; d < s->head_dim; d++)
            out[d] += p[t] / sum * v[t * ld + d];
    free(p);
}

struct reference_state {
    double *x, *normed, *q, *attended, *gate, *up, *y;
};

static void reference_ffn(const struct model_shape *s, const struct model_layer *l,
                          struct reference_state *st, double *x)
{
    reference_norm(s, l->ffn_norm, x, st->normed);
    reference_product(l->ffn_gate, st->normed, st->gate);
    reference_product(l->ffn_up, st->normed, st->up);
    for (uint32_t i = 0; i < s->n_ff; i++)
        st->gate[i] = st->gate[i] / (1 + exp(-st->gate[i])) * st->up[i];
    reference_product(l->ffn_down, st->gate, st->y);
    for (uint32_t i = 0; i < s->n_embd; i++)
        x[i] += st->y[i];
}

static void reference_layer(const struct model_shape *s, const struct model_layer *l,
                            struct reference_state *st, uint32_t n, double *k, double *v)
{
    size_t ld = (size_t)s->n_kv_heads * s->head_dim, group = s->n_heads / s->n_kv_heads;

    for (uint32_t t = 0; t < n; t++) {
        double *x = st->x + (size_t)t * s->n_embd;

        reference_norm(s, l->attn_norm, x, st->normed);
        reference_product(l->attn_q, st->normed, st->q);
        reference_product(l->attn_k, st->normed, k + t * ld);
        reference_product(l->attn_v, st->normed, v + t * ld);
        reference_rope(s, st->q, s->n_heads, t);
        reference_rope(s, k + t * ld, s->n_kv_heads, t);
        for (size_t h = 0; h < s->n_heads; h++)
            reference_head(s, st->q + h * s->head_dim, k + h / group * s->head_dim,
                           v + h / group * s->head_dim, t + 1, st->attended + h * s->head_dim);
        reference_product(l->attn_output, st->attended, st->y);
        for (uint32_t i = 0; i < s->n_embd; i++)
            x[i] += st->y[i];
        reference_ffn(s, l, st, x);
    }
}

/* out: (n, n_vocab) */
static void reference_logits(const struct model *m, const int32_t *ids, uint32_t n, double *out)
{
    const struct model_shape *s = &m->shape;
    size_t heads = (size_t)s->n_heads * s->head_dim, kv = (size_t)s->n_kv_heads * s->head_dim;
    size_t wide = s->n_embd + heads + s->n_ff, total = n * s->n_embd + 6 * wide + 2 * n * kv;
    double *block = calloc(total, sizeof *block), *p = block;
    float *row = calloc(s->n_embd, sizeof *row);
    struct reference_state st = {.x = p};

    p += (size_t)n * s->n_embd;
    st.normed = p;
    st.q = p + wide;
    st.attended = p + 2 * wide;
    st.gate = p + 3 * wide;
    st.up = p + 4 * wide;
    st.y = p + 5 * wide;
    p += 6 * wide;
    for (uint32_t t = 0; t < n; t++) {
        reference_row(m->token_embd, (uint64_t)ids[t], row);
        for (uint32_t i = 0; i < s->n_embd; i++)
            st.x[(size_t)t * s->n_embd + i] = row[i];
    }
    for (uint32_t l = 0; l < s->n_layers; l++)
        reference_layer(s, &m->layers[l], &st, n, p, p + n * kv);
    for (uint32_t t = 0; t < n; t++) {
        reference_norm(s, m->output_norm, st.x + (size_t)t * s->n_embd, st.normed);
        reference_product(m->output, st.normed, out + (size_t)t * s->n_vocab);
    }
    free(row);
    free(block);
}

#endif
