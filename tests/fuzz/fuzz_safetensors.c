/* A safetensors file from a stranger. Tensors that were accepted can be read in full. Seeds are
 * made by tests/fuzz/seeds_hf.py. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch_tensors(const struct safetensors *st)
{
    volatile uint8_t sum = 0;

    for (size_t i = 0; i < st->names.n; i++) {
        const struct tensor *t = &st->tensors[i];

        sum = (uint8_t)(sum + *(const uint8_t *)t->data + ((const uint8_t *)t->data)[t->bytes - 1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy aligned as a mapping is. */
    void *copy = malloc(size > 0 ? size : 1);
    struct safetensors st;

    if (copy == NULL)
        return 0;
    memcpy(copy, data, size);
    if (safetensors_read(&st, copy, size, NULL) == ST_OK) {
        touch_tensors(&st);
        safetensors_dispose(&st);
    }
    free(copy);
    return 0;
}
