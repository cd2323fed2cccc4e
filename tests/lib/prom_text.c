#include "tests/lib/prom_text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

/* name="value",… up to the closing brace; values are escaped. */
static const char *skip_labels(const char *p)
{
    while (*p != '}') {
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz_");

        assert(n > 0);
        p += n;
        assert(memcmp(p, "=\"", 2) == 0);
        for (p += 2; *p != '"'; p++) {
            assert(*p != '\n' && *p != '\0');
            if (*p == '\\') {
                p++;
                assert(*p == '\\' || *p == '"' || *p == 'n');
            }
        }
        p++;
        if (*p == ',')
            p++;
        else
            assert(*p == '}');
    }
    return p;
}

/* Does `name` belong to the family: itself, or its histogram's. */
static bool belongs(const char *name, const char *family, const char *type)
{
    static const char *const suffixes[] = {"_bucket", "_sum", "_count"};
    size_t n = strlen(family);

    if (strcmp(type, "histogram") != 0)
        return strcmp(name, family) == 0;
    for (size_t i = 0; i < COUNT_OF(suffixes); i++)
        if (strncmp(name, family, n) == 0 && strcmp(name + n, suffixes[i]) == 0)
            return true;
    return false;
}

static void parse_sample(struct prom_page *p, const char *line)
{
    struct prom_sample *s = &p->samples[p->n++];
    const char *at = line, *labels;
    char *end;

    assert(p->n < PROM_SAMPLES_MAX);
    while (is_name_char(*at))
        at++;
    assert(at > line && (size_t)(at - line) < sizeof s->name);
    memcpy(s->name, line, (size_t)(at - line));
    if (*at == '{') {
        labels = ++at;
        at = skip_labels(at);
        assert((size_t)(at - labels) < sizeof s->labels);
        memcpy(s->labels, labels, (size_t)(at - labels));
        at++;
    }
    assert(*at == ' ');
    snprintf(s->value, sizeof s->value, "%s", at + 1);
    s->number = strtod(at + 1, &end);
    assert(end > at + 1 && *end == '\0');
    assert(p->n_families > 0);
    assert(belongs(s->name, p->families[p->n_families - 1], p->types[p->n_families - 1]));
}

/* "# HELP name text" and then "# TYPE name type", each family once. */
static void parse_comment(struct prom_page *p, const char *line)
{
    char name[PROM_NAME_BYTES], type[16];
    int n;

    if (sscanf(line, "# HELP %63s", name) == 1) {
        for (size_t i = 0; i < p->n_families; i++)
            assert(strcmp(p->families[i], name) != 0);
        assert(p->n_families < COUNT_OF(p->families));
        snprintf(p->families[p->n_families++], PROM_NAME_BYTES, "%s", name);
        return;
    }
    n = sscanf(line, "# TYPE %63s %15s", name, type);
    assert(n == 2);
    assert(strcmp(name, p->families[p->n_families - 1]) == 0);
    assert(strcmp(type, "counter") == 0 || strcmp(type, "gauge") == 0 ||
           strcmp(type, "histogram") == 0);
    snprintf(p->types[p->n_families - 1], sizeof p->types[0], "%s", type);
}

struct prom_page *prom_parse(struct buf *b)
{
    struct prom_page *p = calloc(1, sizeof *p);
    char *text = strdup(buf_cstr(b)), *save = NULL;

    assert(p != NULL && text != NULL);
    assert(!b->failed);
    assert(text[b->len - 1] == '\n');
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        if (line[0] == '#')
            parse_comment(p, line);
        else
            parse_sample(p, line);
    free(text);
    return p;
}

size_t prom_count(const struct prom_page *p, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        n += strcmp(p->samples[i].name, name) == 0;
    return n;
}

const struct prom_sample *prom_find(const struct prom_page *p, const char *name, const char *part)
{
    const struct prom_sample *found = NULL;

    for (size_t i = 0; i < p->n; i++) {
        const struct prom_sample *s = &p->samples[i];

        if (strcmp(s->name, name) != 0 || strstr(s->labels, part) == NULL)
            continue;
        assert(found == NULL);
        found = s;
    }
    assert(found != NULL);
    return found;
}

double prom_number(const struct prom_page *p, const char *name, const char *part)
{
    return prom_find(p, name, part)->number;
}
