#include "engine/cpu/masks.h"

#include <stdlib.h>
#include <string.h>

enum status masks_init(struct masks *m, uint32_t max_sequences, uint32_t n_vocab)
{
    *m = (struct masks){.max_sequences = max_sequences, .words = ((size_t)n_vocab + 31) / 32};
    m->given = calloc(max_sequences, sizeof *m->given);
    m->bits = calloc(max_sequences, m->words * sizeof *m->bits);
    return m->given != NULL && m->bits != NULL ? ST_OK : ST_NO_MEMORY;
}

size_t masks_bytes(uint32_t max_sequences, uint32_t n_vocab)
{
    return max_sequences * (sizeof(bool) + ((size_t)n_vocab + 31) / 32 * sizeof(uint32_t));
}

void masks_dispose(struct masks *m)
{
    free(m->bits);
    free(m->given);
    *m = (struct masks){0};
}

void masks_clear(struct masks *m)
{
    memset(m->given, 0, m->max_sequences * sizeof *m->given);
}

static bool samples_masked(const struct device_step *step, uint32_t row)
{
    return step->rows[row].want == ROW_SAMPLE && step->sequences[step->rows[row].sequence].masked;
}

static void copy_mask(struct masks *m, const struct device_step *step, const struct row_mask *mask)
{
    uint32_t sequence = step->rows[mask->row].sequence;

    memcpy(m->bits + sequence * m->words, mask->bits, m->words * sizeof *m->bits);
}

enum status masks_add(struct masks *m, const struct device_step *step, const struct row_mask *masks,
                      uint32_t n)
{
    uint32_t taken = 0;

    for (; taken < n; taken++) {
        uint32_t row = masks[taken].row;

        if (row >= step->n_rows || !samples_masked(step, row) || m->given[step->rows[row].sequence])
            break;
        m->given[step->rows[row].sequence] = true;
    }
    if (taken < n) {
        while (taken-- > 0)
            m->given[step->rows[masks[taken].row].sequence] = false;
        return ST_INVALID;
    }
    for (uint32_t i = 0; i < n; i++)
        copy_mask(m, step, &masks[i]);
    return ST_OK;
}

bool masks_are_complete(const struct masks *m, const struct device_step *step)
{
    for (uint32_t i = 0; i < step->n_rows; i++)
        if (samples_masked(step, i) && !m->given[step->rows[i].sequence])
            return false;
    return true;
}

const uint32_t *masks_of(const struct masks *m, const struct device_step *step, uint32_t sequence)
{
    return step->sequences[sequence].masked ? m->bits + sequence * m->words : NULL;
}
