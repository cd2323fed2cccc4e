/* Overflow-checked size arithmetic: nothing from outside becomes a size before it went through
 * these (false: it would overflow, *out untouched). Any thread. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNT_OF(array)                 (sizeof(array) / sizeof(array)[0])
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline __attribute__((warn_unused_result)) bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline __attribute__((warn_unused_result)) bool size_add(size_t a, size_t b, size_t *out)
{
    size_t r;

    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline int64_t int64_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t int64_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
