/* The inside of struct engine, shared by engine.c (models, links) and prepare.c (text work). */
#ifndef ENGINE_ENGINE_STATE_H
#define ENGINE_ENGINE_STATE_H

#include "base/worker.h"
#include "engine/backend/backend.h"
#include "engine/engine.h"
#include "engine/model/model.h"
#include "engine/tenant_share.h"
#include "engine/text/template.h"
#include "engine/text/tokenizer.h"

/* A model as this side has it: `pub` is what callers see and hold. */
struct served_model {
    struct engine_model pub;
    struct model *model;
    struct tokenizer *tokenizer;
    struct template *template; /* NULL: the file has none; chat is refused */
    unsigned content_forms;    /* of template: engine/text/template_content.h */
    struct stats_cell stats;
    struct backend_target target;
    const struct backend_ops *backend;
};

struct engine {
    struct served_model *models; /* in a stable order */
    size_t n_models;
    struct worker *text;
    struct tenant_share share; /* of the text queue */
};

static inline const struct served_model *served_model_of(const struct engine_model *m)
{
    return (const struct served_model *)m; /* pub is its first member */
}

#endif
