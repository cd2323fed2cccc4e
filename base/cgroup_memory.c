#include "base/cgroup_memory.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

/* Longer lines are passed over: a mount of many layers has long ones, a control group hasn't. */
#define LINE_BYTES 8192
/* A machine of many containers has some thousand mounts. */
#define LINES_MAX 65536

/* "No limit" of version 1 is the most whole pages below 2^63; pages have 1 MiB at most. */
#define UNLIMITED_BYTES ((size_t)INT64_MAX - ((size_t)1 << 20))

/* All numbers include the groups below. */
static const struct hierarchy {
    const char *fs_type;
    const char *controller; /* NULL: one hierarchy has them all */
    const char *limit, *usage, *inactive_file, *active_file;
} hierarchies[] = {
    [CGROUP_V2] = {"cgroup2", NULL, "memory.max", "memory.current", "inactive_file", "active_file"},
    [CGROUP_V1] = {"cgroup", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                   "total_inactive_file", "total_active_file"},
};

/* ---- lines ---- */

static bool has_word(const char *list, size_t len, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list, *end = list + len; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t width = (size_t)((comma != NULL ? comma : end) - at);

        if (width == n && memcmp(at, word, n) == 0)
            return true;
        at += width + 1;
    }
    return false;
}

static bool copy_path(char *out, size_t size, const char *path)
{
    return path[0] == '/' && (size_t)snprintf(out, size, "%s", path) < size;
}

/* NUMBER:CONTROLLERS:GROUP; version 2 is number 0 without controllers. */
bool cgroup_line_group(enum cgroup_version version, const char *line, char *group, size_t size)
{
    const char *controller = hierarchies[version].controller;
    size_t digits = strspn(line, "0123456789"), len;
    const char *list = line + digits + 1;

    if (digits == 0 || line[digits] != ':')
        return false;
    len = strcspn(list, ":");
    if (list[len] != ':')
        return false;
    if (controller == NULL ? len != 0 || strncmp(line, "0:", 2) != 0
                           : !has_word(list, len, controller))
        return false;
    return copy_path(group, size, list + len + 1);
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Spaces, tabs, newlines and backslashes of paths are \ooo there. */
static bool unescape(char *field)
{
    char *out = field;

    for (const char *in = field; *in != '\0'; in++) {
        if (*in != '\\') {
            *out++ = *in;
            continue;
        }
        if (!is_octal(in[1]) || !is_octal(in[2]) || !is_octal(in[3]))
            return false;
        *out++ = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
        in += 3;
    }
    *out = '\0';
    return true;
}

/* The next field, which ends at a space; NULL: there is none. */
static char *take_field(char **rest)
{
    char *field = strsep(rest, " ");

    return field != NULL && field[0] != '\0' ? field : NULL;
}

/* ID PARENT DEVICE GROUP FOLDER OPTIONS [TAG ...] - TYPE SOURCE OPTIONS */
bool cgroup_line_mount(enum cgroup_version version, const char *line, struct cgroup_mount *out)
{
    const struct hierarchy *h = &hierarchies[version];
    char copy[LINE_BYTES], *rest = copy, *fields[6], *field, *options;

    if ((size_t)snprintf(copy, sizeof copy, "%s", line) >= sizeof copy)
        return false;
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        if ((fields[i] = take_field(&rest)) == NULL)
            return false;
    do {
        field = take_field(&rest);
        if (field == NULL)
            return false;
    } while (strcmp(field, "-") != 0);
    field = take_field(&rest);
    if (field == NULL || strcmp(field, h->fs_type) != 0 || take_field(&rest) == NULL)
        return false;
    options = take_field(&rest);
    if (options == NULL ||
        (h->controller != NULL && !has_word(options, strlen(options), h->controller)))
        return false;
    return unescape(fields[3]) && unescape(fields[4]) &&
           copy_path(out->group, sizeof out->group, fields[3]) &&
           copy_path(out->folder, sizeof out->folder, fields[4]);
}

bool cgroup_bytes(const char *text, size_t *out)
{
    size_t digits = strspn(text, "0123456789"), value = 0;

    if (digits == 0 || (text[digits] != '\0' && strcmp(text + digits, "\n") != 0))
        return false;
    for (size_t i = 0; i < digits; i++)
        if (!size_mul(value, 10, &value) || !size_add(value, (size_t)(text[i] - '0'), &value))
            return false;
    *out = value;
    return true;
}

/* ---- files ---- */

/* Whole lines without their newline, until `on_line` is true. */
static bool find_line(const char *path, bool (*on_line)(void *ctx, const char *line), void *ctx)
{
    bool is_begin = true, is_found = false;
    char line[LINE_BYTES];
    FILE *f = fopen(path, "re");

    if (f == NULL)
        return false;
    for (size_t i = 0; i < LINES_MAX && !is_found && fgets(line, sizeof line, f) != NULL; i++) {
        size_t len = strcspn(line, "\n");
        bool is_end = line[len] == '\n';

        line[len] = '\0';
        is_found = is_begin && is_end && on_line(ctx, line);
        is_begin = is_end;
    }
    fclose(f);
    return is_found;
}

static bool join(char *out, size_t size, const char *folder, const char *name)
{
    return (size_t)snprintf(out, size, "%s/%s", folder, name) < size;
}

static bool read_bytes(const char *folder, const char *name, size_t *out)
{
    char path[PATH_MAX], text[32]; /* 20 digits are the most */
    size_t len;
    FILE *f;

    if (!join(path, sizeof path, folder, name))
        return false;
    f = fopen(path, "re");
    if (f == NULL)
        return false;
    len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[len] = '\0';
    return strlen(text) == len && cgroup_bytes(text, out);
}

/* ---- one group ---- */

struct file_cache {
    const struct hierarchy *h;
    bool has_inactive, has_active;
    size_t inactive_bytes, active_bytes;
};

static bool take_key(const char *line, const char *key, size_t *out)
{
    size_t len = strlen(key);

    return strncmp(line, key, len) == 0 && line[len] == ' ' && cgroup_bytes(line + len + 1, out);
}

static bool on_stat(void *ctx, const char *line)
{
    struct file_cache *c = ctx;

    c->has_inactive |= take_key(line, c->h->inactive_file, &c->inactive_bytes);
    c->has_active |= take_key(line, c->h->active_file, &c->active_bytes);
    return c->has_inactive && c->has_active;
}

/* What is on the lists of file pages can be had: the kernel drops or writes it before it kills.
 * Both lists, since weights that an engine has mapped and reads all the time are on the active one.
 * (Files in a tmpfs, and locked pages, are on neither.) Unknown: all of it, which bounds least. */
static size_t cache_bytes(const struct hierarchy *h, const char *folder)
{
    struct file_cache c = {.h = h};
    char path[PATH_MAX];
    size_t sum;

    if (!join(path, sizeof path, folder, "memory.stat") || !find_line(path, on_stat, &c) ||
        !size_add(c.inactive_bytes, c.active_bytes, &sum))
        return SIZE_MAX;
    return sum;
}

static void tighten(const struct hierarchy *h, const char *folder, struct cgroup_bound *out)
{
    size_t limit, usage = 0, cache, used, left;

    if (!read_bytes(folder, h->limit, &limit) || limit >= UNLIMITED_BYTES)
        return;
    (void)read_bytes(folder, h->usage, &usage);
    cache = cache_bytes(h, folder);
    used = usage > cache ? usage - cache : 0;
    left = limit > used ? limit - used : 0;
    if (out->file == NULL || left < out->free_bytes)
        *out = (struct cgroup_bound){.file = h->limit, .limit_bytes = limit, .free_bytes = left};
}

/* ---- from the process's own group upwards ---- */

struct search {
    enum cgroup_version version;
    char group[PATH_MAX];
    struct cgroup_mount mount;
};

static bool on_group(void *ctx, const char *line)
{
    struct search *s = ctx;

    return cgroup_line_group(s->version, line, s->group, sizeof s->group);
}

static bool on_mount(void *ctx, const char *line)
{
    struct search *s = ctx;

    return cgroup_line_mount(s->version, line, &s->mount);
}

static bool has_parent_step(const char *path)
{
    for (const char *at = strstr(path, "/.."); at != NULL; at = strstr(at + 1, "/.."))
        if (at[3] == '/' || at[3] == '\0')
            return true;
    return false;
}

/* The group's path below what the mount shows. A group that isn't below it is outside of the
 * namespace: then what is mounted is all that can be seen, and most likely the container's. */
static const char *path_below(const struct search *s)
{
    size_t len = strlen(s->mount.group);

    if (s->mount.group[len - 1] == '/')
        len--; /* all groups */
    if (strncmp(s->group, s->mount.group, len) != 0 || has_parent_step(s->group) ||
        (s->group[len] != '/' && s->group[len] != '\0'))
        return "";
    return s->group + len;
}

static bool find(const char *root, struct search *s)
{
    char path[PATH_MAX];

    return join(path, sizeof path, root, "proc/self/cgroup") && find_line(path, on_group, s) &&
           join(path, sizeof path, root, "proc/self/mountinfo") && find_line(path, on_mount, s);
}

static void walk(const char *root, enum cgroup_version version, struct cgroup_bound *out)
{
    struct search s = {.version = version};
    char folder[2 * PATH_MAX];
    const char *below;
    size_t top;

    if (!find(root, &s))
        return;
    below = path_below(&s);
    top = strlen(root) + strlen(s.mount.folder);
    if ((size_t)snprintf(folder, sizeof folder, "%s%s%s", root, s.mount.folder, below) >=
        sizeof folder)
        return;
    tighten(&hierarchies[version], folder, out);
    while (strlen(folder) > top) {
        *strrchr(folder, '/') = '\0'; /* what is below the mount begins with one */
        tighten(&hierarchies[version], folder, out);
    }
}

/* Both: a machine may have version 2 mounted beside a version 1 that has the memory. */
void cgroup_memory_bound(const char *root, struct cgroup_bound *out)
{
    *out = (struct cgroup_bound){0};
    for (size_t i = 0; i < COUNT_OF(hierarchies); i++)
        walk(root, (enum cgroup_version)i, out);
}
