/* Chat templates: our Jinja interpreter (the language as Jinja 3 documents it, in the sandboxed,
 * trim_blocks and lstrip_blocks mode in which Hugging Face's chat templates are rendered). A
 * construct that it doesn't know refuses the template at load, with its name. Rendering is bounded
 * in steps, output, memory and depth. A struct template is immutable and may render on any thread.
 */
#ifndef ENGINE_TEXT_TEMPLATE_H
#define ENGINE_TEXT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct template;

/* ST_UNSUPPORTED names the construct, ST_INVALID the line of a syntax error. */
MUST_CHECK enum status template_new(const char *source, size_t len, struct template **out,
                                    struct reason *why);
void template_free(struct template *t); /* NULL is fine */

/* Rendered text as stretches that remember where they came from: from_template is set on bytes that
 * are literal in the template or are string constants in its expressions (and bos_token,
 * eos_token, and the role of a message where it is one of the protocol's words, since templates
 * build control tokens like <|user|> from it), clear on bytes that come from values of the request.
 * The tokenizer matches control tokens only in the former. */
struct rendered_span {
    size_t start, len; /* into text */
    bool from_template;
};
struct rendered {
    char *text; /* valid UTF-8, NUL-terminated */
    size_t len;
    struct rendered_span *spans; /* ascending, together the whole text */
    size_t n_spans;
};
void rendered_dispose(struct rendered *r);

struct template_input {
    const json_t *messages;  /* array of objects; role and content checked by the caller */
    const json_t *tools;     /* array, or NULL: the template sees none */
    const json_t *documents; /* array of objects, or NULL: the template sees none */
    const json_t *extra;     /* object of further variables (chat_template_kwargs), or NULL */
    const char *bos_token, *eos_token;
    bool add_generation_prompt;
    bool continue_final_message; /* end in the last message, after its text */
    long long now_s;             /* Unix time for strftime_now */
    size_t output_max_bytes;     /* 0: 16 MiB */
};

/* ST_INVALID with the template's own message: it called raise_exception. ST_INVALID naming the
 * field: chat_template_kwargs (`extra` has a name that is taken), continue_final_message (together
 * with add_generation_prompt, or the last message's text can't be found in what was rendered).
 * ST_TOO_LARGE, ST_TIMEOUT: a bound was reached. Other failures of the template on this input:
 * ST_INVALID and what happened. */
MUST_CHECK enum status template_render(const struct template *t, const struct template_input *in,
                                       struct rendered *out, struct reason *why);

#endif
