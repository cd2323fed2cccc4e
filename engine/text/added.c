#include "engine/text/added.h"

#include <stdlib.h>
#include <string.h>

/* Real added tokens have some dozens of bytes. The bound keeps matching at one position short. */
#define ADDED_BYTES_MAX 256

struct added_node {
    int32_t child, sibling; /* -1: none */
    int32_t id;             /* token that ends here; -1: none */
    unsigned char byte;
};

/* Nodes that the tokens need at most. */
static enum status count_nodes(const struct vocab *v, size_t *out, struct reason *why)
{
    size_t n = 1;

    for (uint32_t i = 0; i < v->n; i++) {
        const struct vocab_token *t = &v->tokens[i];

        if (!vocab_is_added(v, (int32_t)i))
            continue;
        if (t->piece_len == 0 || t->piece_len > ADDED_BYTES_MAX)
            return fail(why, ST_CORRUPT, "added token %u has %u bytes, not 1 to %d", i,
                        t->piece_len, ADDED_BYTES_MAX);
        n += t->piece_len;
    }
    *out = n;
    return ST_OK;
}

static int32_t find_child(const struct added *a, int32_t node, unsigned char byte)
{
    int32_t i = node == 0 ? a->first[byte] : a->nodes[node].child;

    while (i != -1 && a->nodes[i].byte != byte)
        i = a->nodes[i].sibling;
    return i;
}

static int32_t add_child(struct added *a, int32_t node, unsigned char byte, int32_t i)
{
    int32_t *list = node == 0 ? &a->first[byte] : &a->nodes[node].child;

    a->nodes[i] = (struct added_node){.child = -1, .sibling = *list, .id = -1, .byte = byte};
    *list = i;
    return i;
}

static void insert(struct added *a, const struct vocab_token *t, int32_t id, int32_t *n)
{
    int32_t node = 0;

    for (uint32_t i = 0; i < t->piece_len; i++) {
        unsigned char byte = (unsigned char)t->piece[i];
        int32_t child = find_child(a, node, byte);

        node = child != -1 ? child : add_child(a, node, byte, (*n)++);
    }
    a->nodes[node].id = id;
}

enum status added_init(struct added *a, const struct vocab *v, struct reason *why)
{
    size_t n_nodes = 1;
    int32_t n = 1;
    enum status s;

    *a = (struct added){.vocab = v};
    memset(a->first, -1, sizeof a->first);
    s = count_nodes(v, &n_nodes, why);
    if (s != ST_OK)
        return s;
    a->nodes = calloc(n_nodes, sizeof *a->nodes);
    if (a->nodes == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for added tokens");
    a->nodes[0].id = -1;
    for (uint32_t i = 0; i < v->n; i++)
        if (vocab_is_added(v, (int32_t)i))
            insert(a, &v->tokens[i], (int32_t)i, &n);
    return ST_OK;
}

void added_dispose(struct added *a)
{
    free(a->nodes);
}

size_t added_skip(const struct added *a, const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && a->first[(unsigned char)text[n]] == -1)
        n++;
    return n;
}

int32_t added_match(const struct added *a, const char *text, size_t len, size_t control_len,
                    size_t *match_len)
{
    int32_t node = 0, found = -1;

    for (size_t i = 0; i < len; i++) {
        int32_t id;

        node = find_child(a, node, (unsigned char)text[i]);
        if (node == -1)
            break;
        id = a->nodes[node].id;
        if (id == -1 || (vocab_is_control(a->vocab, id) && i >= control_len))
            continue;
        found = id;
        *match_len = i + 1;
    }
    return found;
}
