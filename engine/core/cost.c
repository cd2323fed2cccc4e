#include "engine/core/cost.h"

uint64_t cost_rows_ns(const struct cost *c, uint32_t position, uint32_t n)
{
    uint64_t attended = (uint64_t)n * position + (uint64_t)n * ((uint64_t)n + 1) / 2;

    return c->row_ns * n + c->attended_ns * attended;
}

uint32_t cost_rows_in(const struct cost *c, uint32_t position, uint32_t most, uint64_t ns)
{
    uint32_t low = 0, high = most;

    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;

        if (cost_rows_ns(c, position, middle) <= ns)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
