/* Random numbers of a seed, the same on every machine: splitmix64 (Steele, Lea, Flood, 2014). Any
 * seed is a good one. */
#ifndef TESTS_LIB_SPLITMIX64_H
#define TESTS_LIB_SPLITMIX64_H

#include <stdint.h>

static inline uint64_t splitmix64(uint64_t *seed)
{
    uint64_t z = *seed += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

#endif
