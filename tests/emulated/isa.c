/* In place of engine/cpu/isa.c in the emulated tests: every instruction set is there. */
#include "engine/cpu/cpu.h"

#include <stddef.h>
#include <string.h>

#include "base/size.h"
#include "engine/cpu/kernels.h"

const struct kernels *kernels_for(const char *isa)
{
    static const struct kernels *const all[] = {&kernels_avx512, &kernels_avx2, &kernels_scalar};

    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (isa == NULL || strcmp(isa, "auto") == 0 || strcmp(isa, all[i]->name) == 0)
            return all[i];
    return NULL;
}

bool cpu_has_isa(const char *isa)
{
    return isa != NULL && strcmp(isa, "auto") != 0 && kernels_for(isa) != NULL;
}
