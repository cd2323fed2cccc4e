/* Steps of model_open that have files of their own. Private to engine/model. */
#ifndef ENGINE_MODEL_MODEL_FILE_H
#define ENGINE_MODEL_MODEL_FILE_H

#include "base/status.h"
#include "engine/model/gguf.h"

/* Refuses, by name, metadata that asks for other mathematics than ours. */
MUST_CHECK enum status model_check_keys(const struct gguf *g, struct reason *why);
/* The revision (see struct model): hex and NUL. */
MUST_CHECK enum status model_hash(const struct gguf *g, char out[65], struct reason *why);

#endif
