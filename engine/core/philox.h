/* Philox4x32-10, a counter-based generator: 128 bits of counter and 64 of key to 128 random bits
 * (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Pure. */
#ifndef ENGINE_CORE_PHILOX_H
#define ENGINE_CORE_PHILOX_H

#include <stdint.h>

/* Replaces the counter by its random bits. Multipliers and key increments from the paper. */
static inline void philox4x32(uint32_t counter[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t a = (uint64_t)0xD2511F53u * counter[0], b = (uint64_t)0xCD9E8D57u * counter[2];
        uint32_t c1 = counter[1], c3 = counter[3];

        counter[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
        counter[3] = (uint32_t)a;
    }
}

#endif
