#include "engine/cpu/cpu.h"

#include <stddef.h>
#include <string.h>

#include "base/size.h"
#include "engine/cpu/kernels.h"

static bool has_scalar(void)
{
    return true;
}

/* F16C, which compilers have no portable name for, came a generation before AVX2. */
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* Machines with AVX-512 but without VNNI run AVX2: the products are what costs, and there the
 * wider vectors without dpbusd gain little. */
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Best first. */
static const struct {
    const struct kernels *kernels;
    bool (*has)(void);
} table[] = {
    {&kernels_avx512, has_avx512},
    {&kernels_avx2, has_avx2},
    {&kernels_scalar, has_scalar},
};

const struct kernels *kernels_for(const char *isa)
{
    bool any = isa == NULL || strcmp(isa, "auto") == 0;

    for (size_t i = 0; i < COUNT_OF(table); i++)
        if ((any || strcmp(isa, table[i].kernels->name) == 0) && table[i].has())
            return table[i].kernels;
    return NULL;
}

bool cpu_has_isa(const char *isa)
{
    return isa != NULL && strcmp(isa, "auto") != 0 && kernels_for(isa) != NULL;
}
