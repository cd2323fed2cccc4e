/* Statements and macros. */
#include "engine/text/jinja_eval.h"

#include <string.h>

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };

static enum flow exec_body(struct jinja *j, const struct stmt *s);

struct jinja_scope *jinja_scope_new(struct jinja *j, struct jinja_scope *parent)
{
    struct jinja_scope *s = j->free_scopes;

    if (s != NULL)
        j->free_scopes = s->parent;
    else
        s = jinja_alloc(j, 1, sizeof *s);
    if (s != NULL)
        *s = (struct jinja_scope){.parent = parent};
    return s;
}

/* The frame's block has ended. */
static void release(struct jinja *j, struct jinja_scope *s)
{
    if (s->is_captured)
        return;
    while (s->vars != NULL) {
        struct jinja_binding *b = s->vars;

        s->vars = b->next;
        b->next = j->free_bindings;
        j->free_bindings = b;
    }
    s->parent = j->free_scopes;
    j->free_scopes = s;
}

static struct jinja_binding *new_binding(struct jinja *j)
{
    struct jinja_binding *b = j->free_bindings;

    if (b == NULL)
        return jinja_alloc(j, 1, sizeof *b);
    j->free_bindings = b->next;
    return b;
}

void jinja_bind(struct jinja *j, const char *name, struct jval v)
{
    struct jinja_binding *b;
    size_t seen = 0;

    for (b = j->scope->vars; b != NULL; b = b->next) {
        if (!jinja_charge(j, seen++ % 8 == 0))
            return;
        if (strcmp(b->name, name) == 0) {
            b->value = v;
            return;
        }
    }
    b = jinja_charge(j, 1) ? new_binding(j) : NULL;
    if (b == NULL)
        return;
    *b = (struct jinja_binding){j->scope->vars, name, v};
    j->scope->vars = b;
}

static void assign(struct jinja *j, const struct expr *target, struct jval v);

static void assign_attribute(struct jinja *j, const struct expr *target, struct jval v)
{
    struct jval ns = jinja_lookup_name(j, target->a->name);
    struct jval key = jv_str(js_cstr(j, target->name));

    if (ns.type != JT_NAMESPACE)
        jinja_raise(j, "cannot assign attribute on non-namespace object");
    else
        jv_dict_put(j, ns.dict, key, v);
}

static void assign_tuple(struct jinja *j, const struct expr *target, struct jval v)
{
    struct jseq items = jv_iterate(j, v);

    if (j->status != ST_OK)
        return;
    if (items.n < target->n_args)
        jinja_raise(j, "not enough values to unpack (expected %zu, got %zu)", target->n_args,
                    items.n);
    if (items.n > target->n_args)
        jinja_raise(j, "too many values to unpack (expected %zu)", target->n_args);
    for (size_t i = 0; i < target->n_args && j->status == ST_OK; i++)
        assign(j, target->args[i], items.items[i]);
}

static void assign(struct jinja *j, const struct expr *target, struct jval v)
{
    if (target->kind == EXPR_NAME)
        jinja_bind(j, target->name, v);
    else if (target->kind == EXPR_ATTR)
        assign_attribute(j, target, v);
    else
        assign_tuple(j, target, v);
}

/* Every byte of output goes through here, also what a block or a macro keeps for itself. */
static void print(struct jinja *j, const struct jstr *s)
{
    if (s->len > j->output_max || j->out->len > j->output_max - s->len)
        jinja_stop(j, ST_TOO_LARGE, "produces too much text");
    else
        jt_add_str(j->out, s);
}

/* Runs a body in a frame of its own and returns what it printed. */
static const struct jstr *capture(struct jinja *j, const struct stmt *body,
                                  struct jinja_scope *frame)
{
    struct jinja_scope *outer = j->scope;
    struct jtext *out = j->out, text;

    if (frame == NULL)
        return &js_empty;
    jt_init(&text, j);
    j->scope = frame;
    j->out = &text;
    exec_body(j, body);
    j->out = out;
    j->scope = outer;
    release(j, frame);
    return jt_finish(&text);
}

static enum flow exec_if(struct jinja *j, const struct stmt *s)
{
    for (; s != NULL; s = s->or_else) {
        if (jv_is_true(jinja_eval(j, s->expr)))
            return exec_body(j, s->body);
        if (s->or_else == NULL || !s->or_else->is_elif)
            return exec_body(j, s->or_else);
    }
    return FLOW_NEXT;
}

/* The items that pass the loop's own condition, which sees the target but not `loop`. */
static struct jseq filter_items(struct jinja *j, const struct stmt *s, struct jseq all)
{
    struct jinja_scope *outer = j->scope;
    struct jseq kept = {.kind = SEQ_LIST};

    for (size_t i = 0; i < all.n && j->status == ST_OK; i++) {
        j->scope = jinja_scope_new(j, outer);
        if (j->scope == NULL)
            break;
        assign(j, s->target, all.items[i]);
        if (jv_is_true(jinja_eval(j, s->cond)))
            jv_seq_push(j, &kept, all.items[i]);
        release(j, j->scope);
    }
    j->scope = outer;
    return kept;
}

static enum flow exec_in_frame(struct jinja *j, const struct stmt *body)
{
    struct jinja_scope *outer = j->scope, *frame = jinja_scope_new(j, outer);
    enum flow flow = FLOW_NEXT;

    if (frame == NULL)
        return flow;
    j->scope = frame;
    flow = exec_body(j, body);
    j->scope = outer;
    release(j, frame);
    return flow;
}

static void exec_pass(struct jinja *j, const struct stmt *s, struct jloop *loop, enum flow *flow)
{
    struct jinja_scope *outer = j->scope, *frame = jinja_scope_new(j, outer);

    if (frame == NULL)
        return;
    j->scope = frame;
    jinja_bind(j, "loop", (struct jval){.type = JT_LOOP, .loop = loop});
    assign(j, s->target, loop->items[loop->i]);
    *flow = exec_body(j, s->body);
    j->scope = outer;
    release(j, frame);
}

static enum flow exec_for(struct jinja *j, const struct stmt *s)
{
    struct jseq items = jv_iterate(j, jinja_eval(j, s->expr));
    struct jloop *loop = jinja_alloc(j, 1, sizeof *loop);
    enum flow flow = FLOW_NEXT;

    if (s->cond != NULL)
        items = filter_items(j, s, items);
    if (loop == NULL || j->status != ST_OK)
        return FLOW_NEXT;
    *loop = (struct jloop){.items = items.items, .n = items.n, .changed = jv_missing()};
    for (; loop->i < loop->n && flow != FLOW_BREAK && j->status == ST_OK; loop->i++)
        exec_pass(j, s, loop, &flow);
    return items.n == 0 ? exec_in_frame(j, s->or_else) : FLOW_NEXT;
}

static enum flow exec_with(struct jinja *j, const struct stmt *s)
{
    struct jinja_scope *outer = j->scope, *frame = jinja_scope_new(j, outer);
    enum flow flow = FLOW_NEXT;

    for (size_t i = 0; frame != NULL && i < s->n_targets; i++) {
        struct jval v = jinja_eval(j, s->values[i]);

        j->scope = frame;
        assign(j, s->targets[i], v);
        j->scope = outer;
    }
    if (frame == NULL)
        return flow;
    j->scope = frame;
    flow = exec_body(j, s->body);
    j->scope = outer;
    release(j, frame);
    return flow;
}

static void exec_macro(struct jinja *j, const struct stmt *s)
{
    struct jmacro *m = jinja_alloc(j, 1, sizeof *m);

    if (m == NULL)
        return;
    *m = (struct jmacro){.stmt = s, .scope = j->scope};
    for (struct jinja_scope *c = j->scope; c != NULL; c = c->parent)
        c->is_captured = true;
    jinja_bind(j, s->macro.name, (struct jval){.type = JT_MACRO, .macro = m});
}

static void exec_set_block(struct jinja *j, const struct stmt *s)
{
    const struct jstr *text = capture(j, s->body, jinja_scope_new(j, j->scope));

    assign(j, s->target, jinja_apply_filters(j, s->expr, text));
}

static void exec_filter_block(struct jinja *j, const struct stmt *s)
{
    const struct jstr *text = capture(j, s->body, jinja_scope_new(j, j->scope));

    print(j, jinja_str(j, jinja_apply_filters(j, s->expr, text)));
}

static enum flow exec_one(struct jinja *j, const struct stmt *s)
{
    switch (s->kind) {
    case STMT_TEXT:
        print(j, &s->text);
        break;
    case STMT_PRINT:
        print(j, jinja_str(j, jinja_eval(j, s->expr)));
        break;
    case STMT_IF:
        return exec_if(j, s);
    case STMT_FOR:
        return exec_for(j, s);
    case STMT_SET:
        assign(j, s->target, jinja_eval(j, s->expr));
        break;
    case STMT_SET_BLOCK:
        exec_set_block(j, s);
        break;
    case STMT_FILTER_BLOCK:
        exec_filter_block(j, s);
        break;
    case STMT_MACRO:
        exec_macro(j, s);
        break;
    case STMT_WITH:
        return exec_with(j, s);
    case STMT_SCOPE:
        return exec_in_frame(j, s->body);
    case STMT_BREAK:
        return FLOW_BREAK;
    case STMT_CONTINUE:
        return FLOW_CONTINUE;
    }
    return FLOW_NEXT;
}

static enum flow exec_body(struct jinja *j, const struct stmt *s)
{
    enum flow flow = FLOW_NEXT;

    if (j->depth >= JINJA_EVAL_DEPTH_MAX) {
        jinja_stop(j, ST_TOO_LARGE, "nests too deeply");
        return flow;
    }
    j->depth++;
    for (; s != NULL && flow == FLOW_NEXT; s = s->next) {
        j->line = s->line;
        if (!jinja_charge(j, 1))
            break;
        flow = exec_one(j, s);
    }
    j->depth--;
    return flow;
}

void jinja_run_body(struct jinja *j, const struct stmt *body)
{
    exec_body(j, body);
}

/* Index of the keyword argument for a parameter; n_named: not given. */
static size_t find_named(const struct jargs *args, const char *name)
{
    size_t i = 0;

    while (i < args->n_named && strcmp(args->names[i], name) != 0)
        i++;
    return i;
}

static void bind_params(struct jinja *j, const struct jmacro_def *def, const struct jargs *args)
{
    size_t used = 0;

    if (args->n_pos > def->n_params)
        jinja_raise(j, "macro '%s' takes not more than %zu argument(s)", def->name, def->n_params);
    for (size_t i = 0; i < def->n_params && j->status == ST_OK; i++) {
        size_t named = i < args->n_pos ? args->n_named : find_named(args, def->params[i]);
        struct jval v;

        if (i < args->n_pos)
            v = args->pos[i];
        else if (named < args->n_named)
            v = args->named[named];
        else if (def->defaults[i] != NULL)
            v = jinja_eval(j, def->defaults[i]);
        else
            v = jv_undefined(j, def->params[i]);
        used += named < args->n_named;
        jinja_bind(j, def->params[i], v);
    }
    if (j->status == ST_OK && used != args->n_named)
        jinja_raise(j, "macro '%s' got a keyword argument that it does not take", def->name);
}

struct jval jinja_call_macro(struct jinja *j, const struct jmacro *m, const struct jargs *args)
{
    struct jinja_scope *outer = j->scope, *frame = jinja_scope_new(j, m->scope);
    unsigned line = j->line;
    const struct jstr *text;

    if (frame == NULL)
        return jv_none();
    if (j->macro_depth >= JINJA_MACRO_DEPTH_MAX) {
        jinja_stop(j, ST_TOO_LARGE, "calls macros too deeply");
        return jv_none();
    }
    j->macro_depth++;
    j->scope = frame;
    bind_params(j, &m->stmt->macro, args);
    text = capture(j, m->stmt->body, frame);
    j->scope = outer;
    j->macro_depth--;
    j->line = line;
    return jv_str(text);
}
