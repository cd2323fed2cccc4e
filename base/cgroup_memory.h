/* How much memory the control groups of this process leave it: where a container or a service has a
 * limit, the kernel kills what needs more, however much the machine has. Both versions, as
 * cgroup-v2.rst ("Memory Interface Files") and cgroup-v1/memory.rst of the kernel's documentation
 * describe them; where they are mounted: proc(5). Nothing here fails: what is missing, damaged or
 * not ours to read bounds nothing. Any thread; it must be able to read /proc/self and the groups,
 * so a process that locks itself in asks first. */
#ifndef BASE_CGROUP_MEMORY_H
#define BASE_CGROUP_MEMORY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct cgroup_bound {
    const char *file; /* that has the limit: memory.max, memory.limit_in_bytes; NULL: no limit */
    size_t limit_bytes;
    size_t free_bytes; /* what is left of it once the kernel has dropped the group's file cache */
};

/* The tightest of the process's own group and those above it, as far as they can be seen. `root` is
 * the folder in which proc and the groups are found: "" but in tests. */
void cgroup_memory_bound(const char *root, struct cgroup_bound *out);

/* ---- what its files say; public for tests ---- */

enum cgroup_version { CGROUP_V2, CGROUP_V1 };

struct cgroup_mount {
    char group[PATH_MAX];  /* the one that is seen at `folder` */
    char folder[PATH_MAX]; /* where */
};

/* The group in a line of /proc/PID/cgroup that is about memory in this version. False: another line
 * or none at all. */
bool cgroup_line_group(enum cgroup_version version, const char *line, char *group, size_t size);
/* Likewise of a line of /proc/PID/mountinfo. */
bool cgroup_line_mount(enum cgroup_version version, const char *line, struct cgroup_mount *out);
/* Decimal digits, perhaps a newline, and nothing else. */
bool cgroup_bytes(const char *text, size_t *out);

#endif
