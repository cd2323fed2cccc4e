/* The CPU device: the reference and the default. Kernels in scalar, AVX2 and AVX-512 variants
 * chosen at run time (struct device_config.isa forces one); each is tested against scalar. */
#ifndef ENGINE_CPU_CPU_H
#define ENGINE_CPU_CPU_H

#include <stdbool.h>

#include "engine/core/device.h"

extern const struct device_ops cpu_device_ops;

/* Whether this machine runs "scalar", "avx2" or "avx512" kernels. */
bool cpu_has_isa(const char *isa);

#endif
