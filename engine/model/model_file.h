/* Steps of model_open that have files of their own. Private to engine/model. */
#ifndef ENGINE_MODEL_MODEL_FILE_H
#define ENGINE_MODEL_MODEL_FILE_H

#include "base/status.h"
#include "engine/model/model.h"

/* The file's architecture. Refuses, by name, metadata that asks for other mathematics than ours. */
MUST_CHECK enum status model_check_keys(const struct gguf *g, const struct arch **arch,
                                        struct reason *why);
/* "ARCH.SUFFIX" into key. */
#define MODEL_KEY_MAX 96
void model_key(const struct arch *arch, const char *suffix, char key[MODEL_KEY_MAX]);
/* The key holds exactly this text. */
bool model_key_is(const struct gguf *g, const char *key, const char *want);
/* Sizes, factors and RoPE from the metadata, and the vocabulary's size from the embedding; not the
 * tensors that m->shape.rope names. */
MUST_CHECK enum status model_read_shape(struct model *m, struct reason *why);
/* Finds and measures every tensor; allocates m->layers. */
MUST_CHECK enum status model_bind(struct model *m, struct reason *why);
/* The revision (see struct model): hex and NUL. */
MUST_CHECK enum status model_hash(const struct gguf *g, char out[65], struct reason *why);

#endif
