/* A parser of Prometheus' text format 0.0.4 for tests, stricter than the format: each family has
 * HELP and TYPE lines and stands together. What breaks that aborts. */
#ifndef TESTS_LIB_PROM_TEXT_H
#define TESTS_LIB_PROM_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

#define PROM_SAMPLES_MAX  1024
#define PROM_FAMILIES_MAX 128
#define PROM_NAME_BYTES   64
#define PROM_LABEL_BYTES  192

struct prom_sample {
    char name[PROM_NAME_BYTES];
    char labels[PROM_LABEL_BYTES]; /* what stands between the braces */
    char value[32];
    double number;
};

struct prom_page {
    struct prom_sample samples[PROM_SAMPLES_MAX];
    size_t n;
    char families[PROM_FAMILIES_MAX][PROM_NAME_BYTES]; /* in their order */
    char types[PROM_FAMILIES_MAX][16];
    size_t n_families;
};

/* The caller frees it with free(). */
struct prom_page *prom_parse(struct buf *b);
/* Series of that name. */
size_t prom_count(const struct prom_page *p, const char *name);
/* The one series of that name whose labels hold `part`; that there is one is asserted. */
const struct prom_sample *prom_find(const struct prom_page *p, const char *name, const char *part);
double prom_number(const struct prom_page *p, const char *name, const char *part);

#endif
