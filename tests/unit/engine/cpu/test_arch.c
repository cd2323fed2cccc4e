/* Every architecture and tensor type in exact mode against a float32 reference, on small random
 * models in both file formats (tools/make_model.py; references by tools/oracle_arch.py), and
 * mutants of each structure flag that the comparison must catch. Needs SLUICE_TEST_MODELS, the
 * folder of the models. */
#include "base/json.h"
#include "base/size.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/forward.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS_MAX 256u
#define PAGES      (TOKENS_MAX / KV_PAGE_TOKENS)
#define MEAN_MAX   0.001 /* nat: of |difference| of the targets' log-probabilities */
#define DATA       "tests/data/arch"

/* Sanitizers look at memory and threads, and compute slowly: some models are enough for that. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED true
#define CHUNKED_EACH 6
#else
#define IS_SANITIZED false
#define CHUNKED_EACH 1
#endif

struct entry {
    json_t *data;
    const char *gguf, *folder; /* below SLUICE_TEST_MODELS; folder may be NULL */
    int32_t ids[TOKENS_MAX + 1];
    uint32_t n;       /* inputs: the first n ids */
    uint32_t context; /* what the device is opened for */
};

static struct entry entries[64];
static size_t n_entries;

static bool have_models(void)
{
    const char *path = getenv("SLUICE_TEST_MODELS");

    return path != NULL && path[0] != '\0';
}

static void read_entry(const char *file)
{
    struct entry *e = &entries[n_entries++];
    const json_t *ids;
    char path[320];

    snprintf(path, sizeof path, DATA "/%s", file);
    e->data = json_load_file(path, 0, NULL);
    ids = json_object_get(e->data, "ids");
    e->gguf = json_string_value(json_object_get(e->data, "gguf"));
    e->folder = json_string_value(json_object_get(e->data, "folder"));
    e->n = (uint32_t)json_array_size(json_object_get(e->data, "logprobs"));
    assert_true(e->n >= 32 && e->n <= TOKENS_MAX && json_array_size(ids) == e->n + 1);
    for (uint32_t i = 0; i <= e->n; i++)
        e->ids[i] = (int32_t)json_integer_value(json_array_get(ids, i));
    e->context = (uint32_t)json_integer_value(json_object_get(e->data, "context_tokens"));
}

static int load(void **state)
{
    struct dirent *d;
    DIR *dir = opendir(DATA);

    (void)state;
    while (dir != NULL && (d = readdir(dir)) != NULL)
        if (strlen(d->d_name) > 5 && strcmp(d->d_name + strlen(d->d_name) - 5, ".json") == 0 &&
            n_entries < COUNT_OF(entries))
            read_entry(d->d_name);
    if (dir != NULL)
        closedir(dir);
    return n_entries > 0 ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    while (n_entries > 0)
        json_decref(entries[--n_entries].data);
    return 0;
}

/* One sequence through a forward pass. */
struct run {
    struct model *file;
    struct model model; /* the file's, or changed by a mutant */
    struct arch arch;
    struct kernels kernels;
    struct pool *pool;
    struct forward forward;
    uint32_t chunk; /* rows of a step */
    uint32_t shift; /* of every position but the first */
};

static void open_model(struct run *r, const char *name)
{
    struct reason why = {{0}, {0}};
    char path[512];

    memset(r, 0, sizeof *r);
    snprintf(path, sizeof path, "%s/%s", getenv("SLUICE_TEST_MODELS"), name);
    if (model_open(path, &r->file, &why) != ST_OK)
        fail_msg("%s: %s", name, why.text);
    r->model = *r->file;
    r->arch = *r->file->arch;
    r->model.arch = &r->arch;
    r->kernels = *kernels_for("auto");
    r->chunk = 64;
}

static void open_forward(struct run *r, const struct entry *e, enum device_mode mode)
{
    struct device_config cfg = {.model = &r->model,
                                .mode = mode,
                                .max_rows = 64,
                                .max_sequences = 1,
                                .max_context = e->context};
    struct reason why = {{0}, {0}};

    assert_int_equal(pool_open(2, &r->pool, &why), ST_OK);
    if (forward_open(&r->forward, &cfg, &r->kernels, r->pool, PAGES, &why) != ST_OK)
        fail_msg("%s", why.text);
}

static void close_run(struct run *r)
{
    forward_close(&r->forward);
    pool_close(r->pool);
    model_close(r->file);
}

/* Logits after each id, to out (n, n_vocab). */
static void feed(struct run *r, const struct entry *e, float *out)
{
    uint32_t pages[PAGES], wanted[64], n_vocab = r->model.shape.n_vocab;
    struct step_row rows[64];
    struct step_sequence seq = {.n_pages = PAGES};

    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    for (uint32_t at = 0; at < e->n; at += r->chunk) {
        uint32_t m = e->n - at < r->chunk ? e->n - at : r->chunk;
        struct device_step step = {.n_rows = m,
                                   .n_sequences = 1,
                                   .n_pages = PAGES,
                                   .rows = rows,
                                   .sequences = &seq,
                                   .pages = pages};

        for (uint32_t i = 0; i < m; i++) {
            rows[i] = (struct step_row){.id = e->ids[at + i],
                                        .position = at + i + (at + i > 0 ? r->shift : 0),
                                        .want = ROW_SAMPLE};
            wanted[i] = i;
        }
        forward_run(&r->forward, &step, e->ids + at);
        forward_logits(&r->forward, wanted, m, 0);
        for (uint32_t i = 0; i < m; i++)
            memcpy(out + (size_t)(at + i) * n_vocab,
                   r->forward.logits.data + i * r->forward.logits.ld, n_vocab * sizeof *out);
    }
}

static float *logits_of(struct run *r, const struct entry *e)
{
    float *out = malloc((size_t)e->n * r->model.shape.n_vocab * sizeof *out);

    assert_non_null(out);
    feed(r, e, out);
    return out;
}

/* Mean |difference| of the targets' log-probabilities from the reference's; *max out. */
static double difference(struct run *r, const struct entry *e, double *max)
{
    const json_t *want = json_object_get(e->data, "logprobs");
    uint32_t n_vocab = r->model.shape.n_vocab;
    float *logits = logits_of(r, e);
    double sum = 0;

    *max = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        float got = sampler_logprob(logits + (size_t)i * n_vocab, n_vocab, e->ids[i + 1]);
        double diff = fabs((double)got - json_real_value(json_array_get(want, i)));

        sum += isnan(diff) ? 1e9 : diff;
        *max = diff > *max ? diff : *max;
    }
    free(logits);
    return sum / e->n;
}

static void check_exact(const struct entry *e, const char *name)
{
    double mean, max;
    struct run r;

    open_model(&r, name);
    open_forward(&r, e, DEVICE_EXACT);
    mean = difference(&r, e, &max);
    printf("%s at %u tokens: mean %.6f, maximum %.6f nat\n", name, e->context, mean, max);
    assert_true(mean <= MEAN_MAX);
    close_run(&r);
}

static void exact_mode_agrees_with_the_reference(void **state)
{
    (void)state;
    if (!have_models())
        skip();
    for (size_t i = 0; i < n_entries; i++) {
        check_exact(&entries[i], entries[i].gguf);
        if (entries[i].folder != NULL)
            check_exact(&entries[i], entries[i].folder);
    }
}

static void check_chunks(const struct entry *e, enum device_mode mode)
{
    static const uint32_t chunks[] = {1, 7, 33};
    float *whole, *parts;
    struct run r;

    open_model(&r, e->gguf);
    open_forward(&r, e, mode);
    whole = logits_of(&r, e);
    for (size_t c = 0; c < COUNT_OF(chunks); c++) {
        r.chunk = chunks[c];
        parts = logits_of(&r, e);
        assert_memory_equal(whole, parts, (size_t)e->n * r.model.shape.n_vocab * sizeof *whole);
        free(parts);
    }
    free(whole);
    close_run(&r);
}

/* A sequence's logits don't depend on how it was cut into steps. */
static void chunks_change_no_bit(void **state)
{
    (void)state;
    if (!have_models())
        skip();
    for (size_t i = 0; i < n_entries; i += CHUNKED_EACH) {
        check_chunks(&entries[i], DEVICE_EXACT);
        check_chunks(&entries[i], DEVICE_FAST);
    }
}

/* ---- mutants: each says whether it changes anything of this model ---- */

static bool mutate_rope_base(struct run *r)
{
    r->model.shape.rope.base *= 2;
    return true;
}

static bool mutate_window_base(struct run *r)
{
    if (r->model.shape.rope.window_base == 0)
        return false;
    r->model.shape.rope.window_base = r->model.shape.rope.base;
    return true;
}

static bool mutate_position(struct run *r)
{
    r->shift = 1;
    return true;
}

static bool mutate_pairs(struct run *r)
{
    r->model.shape.rope.pairs =
        r->model.shape.rope.pairs == ROPE_HALVES ? ROPE_ADJACENT : ROPE_HALVES;
    return true;
}

static bool mutate_scaling(struct run *r)
{
    struct model_rope *rope = &r->model.shape.rope;

    if (rope->scaling == ROPE_PLAIN && rope->divisors == NULL)
        return false;
    rope->scaling = ROPE_PLAIN;
    rope->divisors = NULL;
    return true;
}

static bool mutate_window(struct run *r)
{
    if (r->model.shape.window == 0)
        return false;
    r->model.shape.window++;
    return true;
}

static bool mutate_activation(struct run *r)
{
    r->arch.activation =
        r->arch.activation == ACTIVATION_SILU ? ACTIVATION_GELU_TANH : ACTIVATION_SILU;
    return true;
}

/* The norms of a head and of all heads differ in what they divide by. */
static bool mutate_qk_norm(struct run *r)
{
    if (r->arch.qk_norm == QK_NORM_NONE)
        return false;
    for (uint32_t i = 0; i < r->model.shape.n_layers; i++)
        r->model.layers[i].attn_q_norm = r->model.layers[i].attn_k_norm = NULL;
    return true;
}

static bool mutate_norm_place(struct run *r)
{
    for (uint32_t i = 0; i < r->model.shape.n_layers; i++) {
        struct model_layer *l = &r->model.layers[i];
        const struct tensor *before = l->attn_norm;

        l->attn_norm = l->attn_post_norm;
        l->attn_post_norm = before;
    }
    return true;
}

static bool mutate_bias(struct run *r)
{
    if (!r->arch.qkv_bias)
        return false;
    for (uint32_t i = 0; i < r->model.shape.n_layers; i++)
        r->model.layers[i].attn_q_bias = r->model.layers[i].attn_v_bias = NULL;
    return true;
}

static bool mutate_attention_cap(struct run *r)
{
    bool capped = r->model.shape.attention_cap != 0;

    r->model.shape.attention_cap = 0;
    return capped;
}

static bool mutate_logit_cap(struct run *r)
{
    bool capped = r->model.shape.logit_cap != 0;

    r->model.shape.logit_cap = 0;
    return capped;
}

static bool mutate_attention_scale(struct run *r)
{
    r->model.shape.attention_scale *= 1.1f;
    return true;
}

static bool mutate_embedding_scale(struct run *r)
{
    bool scaled = r->model.shape.embedding_scale != 1.0f;

    r->model.shape.embedding_scale = 1.0f;
    return scaled;
}

static bool mutate_residual_scale(struct run *r)
{
    bool scaled = r->model.shape.residual_scale != 1.0f;

    r->model.shape.residual_scale = 1.0f;
    return scaled;
}

static bool mutate_logit_scale(struct run *r)
{
    bool scaled = r->model.shape.logit_scale != 1.0f;

    r->model.shape.logit_scale = 1.0f;
    return scaled;
}

static const struct {
    const char *name;
    bool (*mutate)(struct run *r);
} mutants[] = {
    {"RoPE base", mutate_rope_base},
    {"RoPE base of windowed layers", mutate_window_base},
    {"positions off by one", mutate_position},
    {"RoPE pairs", mutate_pairs},
    {"RoPE scaling", mutate_scaling},
    {"window off by one", mutate_window},
    {"activation", mutate_activation},
    {"no QK norm", mutate_qk_norm},
    {"place of the attention's norms", mutate_norm_place},
    {"no bias", mutate_bias},
    {"no attention cap", mutate_attention_cap},
    {"no logit cap", mutate_logit_cap},
    {"attention scale", mutate_attention_scale},
    {"no embedding scale", mutate_embedding_scale},
    {"no residual scale", mutate_residual_scale},
    {"no logit scale", mutate_logit_scale},
};

/* False: this model has nothing that the mutant changes. */
static bool check_mutant(const struct entry *e, size_t m)
{
    double mean, max;
    struct run r;
    bool applies;

    open_model(&r, e->gguf);
    applies = mutants[m].mutate(&r);
    if (applies) {
        open_forward(&r, e, DEVICE_EXACT);
        mean = difference(&r, e, &max);
        if (!(mean > MEAN_MAX))
            fail_msg("%s: the mutant \"%s\" moves it by %.6f nat only", e->gguf, mutants[m].name,
                     mean);
    }
    close_run(&r);
    return applies;
}

/* Quantized models and second contexts add nothing here. */
static void every_mutant_of_a_structure_flag_is_caught(void **state)
{
    (void)state;
    if (!have_models() || IS_SANITIZED)
        skip();
    for (size_t m = 0; m < COUNT_OF(mutants); m++) {
        size_t n = 0;

        for (size_t i = 0; i < n_entries; i++)
            if (entries[i].folder != NULL && entries[i].n >= 128)
                n += check_mutant(&entries[i], m);
        if (n == 0)
            fail_msg("no model has what the mutant \"%s\" changes", mutants[m].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_mode_agrees_with_the_reference),
        cmocka_unit_test(chunks_change_no_bit),
        cmocka_unit_test(every_mutant_of_a_structure_flag_is_caught),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
