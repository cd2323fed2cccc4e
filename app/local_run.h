/* A model on a device of this very process, for the commands that work without a server (generate,
 * score, bench): a fixed number of sequences, each with consecutive KV pages. One thread. */
#ifndef APP_LOCAL_RUN_H
#define APP_LOCAL_RUN_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/core/device.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

#define EXIT_FAILED 1
#define EXIT_USAGE  2

/* The options that all of these commands take; getopt_long values above any character. */
struct local_options {
    const char *model_path;
    enum device_mode mode;
    enum kv_type kv_type;
    const char *isa;
    unsigned n_threads;
    bool json;
};
enum {
    LOCAL_MODEL = 256,
    LOCAL_MODE,
    LOCAL_KV_TYPE,
    LOCAL_ISA,
    LOCAL_THREADS,
    LOCAL_JSON,
    LOCAL_HELP,
    LOCAL_END
};
#define LOCAL_OPTIONS                                                                              \
    {"model", required_argument, NULL, LOCAL_MODEL},                                               \
        {"mode", required_argument, NULL, LOCAL_MODE},                                             \
        {"kv-type", required_argument, NULL, LOCAL_KV_TYPE},                                       \
        {"isa", required_argument, NULL, LOCAL_ISA},                                               \
        {"threads", required_argument, NULL, LOCAL_THREADS},                                       \
        {"json", no_argument, NULL, LOCAL_JSON},                                                   \
    {                                                                                              \
        "help", no_argument, NULL, LOCAL_HELP                                                      \
    }
#define LOCAL_HELP_TEXT                                                                            \
    "  --model PATH       the GGUF file or Hugging Face folder (required)\n"                       \
    "  --mode MODE        fast (default) or exact\n"                                               \
    "  --kv-type TYPE     auto (default: f16, f32 in mode exact), f16 or q8\n"                     \
    "  --isa NAME         auto (default), scalar, avx2 or avx512\n"                                \
    "  --threads N        compute threads (default: all cores, all but one of more than two)\n"    \
    "  --json             one JSON object instead of text for people\n"

/* Takes one option that getopt_long returned. False (and a sentence on standard error): it is not
 * among these, or its value is bad. */
MUST_CHECK bool local_option(struct local_options *o, int option, const char *value);
/* "auto", "f16" or "q8". */
MUST_CHECK bool local_kv_type(const char *name, enum kv_type *out);
/* A whole decimal number in [min, max]. */
MUST_CHECK bool local_number(const char *text, long long min, long long max, long long *out);
/* Reads the file ("-": standard input), at most `limit` bytes. The caller frees *text (NUL after
 * its end). */
MUST_CHECK enum status local_read(const char *path, size_t limit, char **text, size_t *len,
                                  struct reason *why);

struct local_run {
    struct model *model;
    struct device *device;
    uint32_t n_sequences, max_tokens, max_rows;
    uint32_t pages_each; /* of a sequence */
    struct step_row *rows;
    struct step_sequence *sequences;
    uint32_t *pages;
    struct step_output output; /* of the last step */
};

/* Room for n_sequences of max_tokens each, max_rows tokens a step. On failure nothing is left. */
MUST_CHECK enum status local_run_open(struct local_run *r, const struct local_options *o,
                                      uint32_t n_sequences, uint32_t max_tokens, uint32_t max_rows,
                                      struct reason *why);
void local_run_close(struct local_run *r);

enum local_want { WANT_NONE, WANT_LAST, WANT_ALL };

/* Adjacent tokens of one sequence, for one step. */
struct local_feed {
    uint32_t sequence;
    const int32_t *ids;
    uint32_t n;
    uint32_t position; /* of ids[0] */
    enum local_want want;
    uint32_t output_index;
};
/* One step over all feeds (their n together at most max_rows); results in r->output. */
MUST_CHECK enum status local_step(struct local_run *r, const struct local_feed *feeds,
                                  uint32_t n_feeds, bool want_logits);
/* Feeds ids[0..n) of a sequence from position 0 in chunks of max_rows; the last wants a sample. */
MUST_CHECK enum status local_prefill(struct local_run *r, uint32_t sequence, const int32_t *ids,
                                     uint32_t n);

#endif
