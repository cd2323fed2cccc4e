#include "engine/text/trie.h"

#include <assert.h>
#include <stdlib.h>

#include "base/size.h"

/* The largest Unigram vocabularies (250,000 tokens of eight bytes) have two million. */
#define NODES_MAX ((size_t)1 << 22)

struct trie_edge {
    uint32_t key;  /* node and byte; NODES_MAX leaves room for both */
    uint32_t node; /* TRIE_ROOT: a free slot */
};

enum status trie_init(struct trie *t, size_t bytes)
{
    size_t n_nodes = bytes + 1, slots = 8;

    if (bytes >= NODES_MAX)
        return ST_TOO_LARGE;
    while (slots < 2 * n_nodes)
        slots *= 2;
    t->mask = slots - 1;
    t->edges = calloc(slots, sizeof *t->edges);
    t->ids = malloc(n_nodes * sizeof *t->ids);
    if (t->edges == NULL || t->ids == NULL)
        return ST_NO_MEMORY;
    t->ids[TRIE_ROOT] = -1;
    t->n_nodes = 1;
    return ST_OK;
}

void trie_dispose(struct trie *t)
{
    free(t->edges);
    free(t->ids);
}

static struct trie_edge *find_edge(const struct trie *t, uint32_t node, unsigned char byte)
{
    uint32_t key = node << 8 | byte;
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15u) >> 32) & t->mask;

    while (t->edges[i].node != TRIE_ROOT && t->edges[i].key != key)
        i = (i + 1) & t->mask;
    return &t->edges[i];
}

void trie_add(struct trie *t, const char *text, size_t len, int32_t id)
{
    uint32_t node = TRIE_ROOT;

    for (size_t i = 0; i < len; i++) {
        const unsigned char byte = (unsigned char)text[i];
        struct trie_edge *e = find_edge(t, node, byte);

        if (e->node == TRIE_ROOT) {
            assert(t->n_nodes <= t->mask);
            t->ids[t->n_nodes] = -1;
            *e = (struct trie_edge){node << 8 | byte, t->n_nodes++};
        }
        node = e->node;
    }
    t->ids[node] = id;
}

uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char byte)
{
    return find_edge(t, node, byte)->node;
}

int32_t trie_longest(const struct trie *t, uint32_t node, const char *text, size_t len,
                     size_t *match_len)
{
    int32_t found = -1;

    for (size_t i = 0; i < len; i++) {
        node = trie_step(t, node, (unsigned char)text[i]);
        if (node == TRIE_ROOT)
            break;
        if (t->ids[node] == -1)
            continue;
        found = t->ids[node];
        *match_len = i + 1;
    }
    return found;
}
