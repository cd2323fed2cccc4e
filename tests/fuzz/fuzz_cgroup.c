/* The lines of /proc/PID/cgroup and mountinfo and the numbers of control groups, on any bytes: what
 * is accepted is an absolute path that fits, or digits. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_path(const char *path, size_t size)
{
    if (path[0] != '/' || memchr(path, '\0', size) == NULL)
        abort();
}

static void check_lines(enum cgroup_version version, const char *line)
{
    struct cgroup_mount mount;
    char group[64];

    if (cgroup_line_group(version, line, group, sizeof group))
        check_path(group, sizeof group);
    if (cgroup_line_mount(version, line, &mount)) {
        check_path(mount.group, sizeof mount.group);
        check_path(mount.folder, sizeof mount.folder);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = malloc(len + 1); /* exact, so that a look past the end is seen */
    size_t bytes;

    if (text == NULL)
        return 0;
    if (len > 0)
        memcpy(text, data, len);
    text[len] = '\0';
    check_lines(CGROUP_V2, text);
    check_lines(CGROUP_V1, text);
    if (cgroup_bytes(text, &bytes) && (text[0] < '0' || text[0] > '9'))
        abort();
    free(text);
    return 0;
}
