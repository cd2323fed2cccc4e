#include "engine/model/gguf.h"

#include <stdio.h>

#include "base/size.h"

/* Ids of the format; the gaps are types that it has withdrawn. `elements` 0: known by name only. */
static const struct {
    const char *name;
    uint32_t elements, bytes;
} types[] = {
    [0] = {"F32", 1, 4},       [1] = {"F16", 1, 2},       [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},    [4] = {"Q4_2", 0, 0},      [5] = {"Q4_3", 0, 0},
    [6] = {"Q5_0", 32, 22},    [7] = {"Q5_1", 32, 24},    [8] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 0, 0},      [10] = {"Q2_K", 256, 84},  [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144}, [13] = {"Q5_K", 256, 176}, [14] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 0, 0},     [16] = {"IQ2_XXS", 0, 0},  [17] = {"IQ2_XS", 0, 0},
    [18] = {"IQ3_XXS", 0, 0},  [19] = {"IQ1_S", 0, 0},    [20] = {"IQ4_NL", 32, 18},
    [21] = {"IQ3_S", 0, 0},    [22] = {"IQ2_S", 0, 0},    [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 0, 0},       [25] = {"I16", 0, 0},      [26] = {"I32", 0, 0},
    [27] = {"I64", 0, 0},      [28] = {"F64", 0, 0},      [29] = {"IQ1_M", 0, 0},
    [30] = {"BF16", 1, 2},     [34] = {"TQ1_0", 0, 0},    [35] = {"TQ2_0", 0, 0},
    [39] = {"MXFP4", 0, 0},
};

const char *tensor_type_name(uint32_t type)
{
    return type < COUNT_OF(types) ? types[type].name : NULL;
}

bool tensor_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes)
{
    if (type >= COUNT_OF(types) || types[type].elements == 0)
        return false;
    *elements = types[type].elements;
    *bytes = types[type].bytes;
    return true;
}

void tensor_type_list(char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (uint32_t i = 0; i < COUNT_OF(types) && at < size; i++)
        if (types[i].elements != 0)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at == 0 ? "" : ", ", types[i].name);
}
