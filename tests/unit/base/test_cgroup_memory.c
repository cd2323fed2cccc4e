/* What control groups leave, by made-up trees of their files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/supervise/files.h"
#include "base/cgroup_memory.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define MIB      ((size_t)1 << 20)
#define V2_MOUNT "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
#define V1_CPU   "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
#define OTHERS   "22 20 0:5 / /proc rw - proc proc rw\n"
#define V2_STAT  "anon 1\nfile 2\nkernel 3\ninactive_file %zu\nactive_file %zu\nunevictable 0\n"
#define V1_STAT                                                                                    \
    "cache 1\ninactive_file 1\nactive_file 1\ntotal_inactive_file %zu\ntotal_active_file %zu\n"
#define V1_NOLIMIT "9223372036854771712\n"

static char root[256];

static int make_root(void **state)
{
    struct reason why;

    (void)state;
    snprintf(root, sizeof root, "%s", in_test_folder("root"));
    return folder_make(root, 0755, &why) == ST_OK ? 0 : -1;
}

static int remove_root(void **state)
{
    struct reason why;

    (void)state;
    return folder_remove(root, &why) == ST_OK ? 0 : -1;
}

static void put(const char *path, const char *text)
{
    char full[1024];
    struct reason why;
    FILE *f;

    snprintf(full, sizeof full, "%s%s", root, path);
    *strrchr(full, '/') = '\0';
    assert_int_equal(folder_make(full, 0755, &why), ST_OK);
    snprintf(full, sizeof full, "%s%s", root, path);
    f = fopen(full, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void put_number(const char *folder, const char *name, size_t bytes)
{
    char path[512], text[32];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(text, sizeof text, "%zu\n", bytes);
    put(path, text);
}

static void put_stat(const char *folder, const char *format, size_t inactive_mib, size_t active_mib)
{
    char path[512], text[512];

    snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (format[0] == 'a')
        snprintf(text, sizeof text, V2_STAT, inactive_mib * MIB, active_mib * MIB);
    else
        snprintf(text, sizeof text, V1_STAT, inactive_mib * MIB, active_mib * MIB);
    put(path, text);
}

/* Without file cache. */
static void put_v2(const char *folder, size_t limit_mib, size_t usage_mib)
{
    put_number(folder, "memory.max", limit_mib * MIB);
    put_number(folder, "memory.current", usage_mib * MIB);
    put_stat(folder, V2_STAT, 0, 0);
}

static void put_v1(const char *folder, size_t limit_mib, size_t usage_mib)
{
    put_number(folder, "memory.limit_in_bytes", limit_mib * MIB);
    put_number(folder, "memory.usage_in_bytes", usage_mib * MIB);
    put_stat(folder, V1_STAT, 0, 0);
}

static void put_self(const char *groups, const char *mounts)
{
    put("/proc/self/cgroup", groups);
    put("/proc/self/mountinfo", mounts);
}

static void assert_bound(const char *file, size_t limit_mib, size_t free_mib)
{
    struct cgroup_bound b;

    cgroup_memory_bound(root, &b);
    assert_non_null(b.file);
    assert_string_equal(b.file, file);
    assert_int_equal(b.limit_bytes, limit_mib * MIB);
    assert_int_equal(b.free_bytes, free_mib * MIB);
}

static void assert_unbound(void)
{
    struct cgroup_bound b;

    cgroup_memory_bound(root, &b);
    assert_null(b.file);
}

static void version_2_in_a_container_is_the_root_of_its_namespace(void **state)
{
    (void)state;
    put_self("0::/\n", OTHERS V2_MOUNT);
    put_v2("/sys/fs/cgroup", 2048, 148);
    assert_bound("memory.max", 2048, 1900);
}

/* Weights that an engine reads all the time are active file pages. */
static void file_cache_is_free(void **state)
{
    (void)state;
    put_self("0::/\n", V2_MOUNT);
    put_v2("/sys/fs/cgroup", 1000, 900);
    put_stat("/sys/fs/cgroup", V2_STAT, 200, 500);
    assert_bound("memory.max", 1000, 800);
    put_stat("/sys/fs/cgroup", V2_STAT, 600, 500); /* counted a moment later */
    assert_bound("memory.max", 1000, 1000);
}

static void version_1_counts_the_groups_below(void **state)
{
    (void)state;
    put_self("5:cpu:/other\n4:cpuset,memory:/a\n1:name=systemd:/x\n", V1_CPU V1_MOUNT);
    put_v1("/sys/fs/cgroup/memory/a", 1000, 900);
    put_stat("/sys/fs/cgroup/memory/a", V1_STAT, 100, 300);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NOLIMIT);
    assert_bound("memory.limit_in_bytes", 1000, 500);
}

static void the_tightest_level_bounds(void **state)
{
    (void)state;
    put_self("0::/pod/box/inner\n", V2_MOUNT);
    put("/sys/fs/cgroup/pod/box/inner/memory.max", "max\n");
    put_v2("/sys/fs/cgroup/pod/box", 500, 100);
    put_v2("/sys/fs/cgroup/pod", 800, 700); /* others of it have most */
    assert_bound("memory.max", 800, 100);
    put_v2("/sys/fs/cgroup/pod", 800, 100);
    assert_bound("memory.max", 500, 400);
    put_v2("/sys/fs/cgroup/pod/box/inner", 50, 40);
    assert_bound("memory.max", 50, 10);
    put_v2("/sys/fs/cgroup", 3, 1); /* the mount itself is the last one */
    assert_bound("memory.max", 3, 2);
    put_v2("/sys/fs", 1, 1); /* above it is nothing */
    assert_bound("memory.max", 3, 2);
}

static void a_group_over_its_limit_has_no_room(void **state)
{
    (void)state;
    put_self("0::/\n", V2_MOUNT);
    put_v2("/sys/fs/cgroup", 100, 101);
    assert_bound("memory.max", 100, 0);
}

static void no_limit_bounds_nothing(void **state)
{
    (void)state;
    put_self("0::/\n", V2_MOUNT);
    put("/sys/fs/cgroup/memory.max", "max\n");
    assert_unbound();
    put_self("4:memory:/\n", V1_MOUNT);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NOLIMIT);
    assert_unbound();
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854710272\n"); /* 64 KiB pages */
    assert_unbound();
}

/* Version 2 is mounted beside it, without its memory controller. */
static void both_versions_are_looked_at(void **state)
{
    (void)state;
    put_self("4:memory:/a\n0::/\n",
             V1_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put_v1("/sys/fs/cgroup/memory/a", 70, 20);
    assert_bound("memory.limit_in_bytes", 70, 50);
    put_v2("/sys/fs/cgroup/unified", 60, 20);
    assert_bound("memory.max", 60, 40);
}

/* Without a namespace of its own a container sees its group mounted, by its path outside. */
static void a_mount_that_shows_a_part_begins_there(void **state)
{
    (void)state;
    put_self("4:memory:/docker/c0/inner\n",
             "35 31 0:32 /docker/c0 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put_v1("/sys/fs/cgroup/memory", 90, 10);
    put_v1("/sys/fs/cgroup/memory/inner", 40, 10);
    assert_bound("memory.limit_in_bytes", 40, 30);
    put("/proc/self/cgroup", "4:memory:/docker/c0\n");
    assert_bound("memory.limit_in_bytes", 90, 80);
    put("/proc/self/cgroup", "4:memory:/docker/c0x/inner\n"); /* not below it */
    assert_bound("memory.limit_in_bytes", 90, 80);
}

static void a_group_outside_of_the_namespace_is_not_followed(void **state)
{
    (void)state;
    put_self("0::/../up\n", V2_MOUNT);
    put_v2("/sys/fs/cgroup", 90, 10);
    put_v2("/sys/fs/up", 5, 1);
    assert_bound("memory.max", 90, 80);
}

static void a_path_with_escapes_is_found(void **state)
{
    (void)state;
    put_self("0::/\n", "30 20 0:26 / /c\\040g rw - cgroup2 none rw\n");
    put_v2("/c g", 90, 10);
    assert_bound("memory.max", 90, 80);
}

static void what_is_missing_bounds_nothing(void **state)
{
    (void)state;
    assert_unbound();
    put("/proc/self/cgroup", "0::/a\n");
    assert_unbound();
    put("/proc/self/mountinfo", V2_MOUNT);
    assert_unbound();
    put("/sys/fs/cgroup/a/memory.max", "104857600\n");
    assert_bound("memory.max", 100, 100); /* of which nothing is known to be used */
    put_number("/sys/fs/cgroup/a", "memory.current", 30 * MIB);
    assert_bound("memory.max", 100, 100); /* all of that may be file cache */
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 0\n");
    assert_bound("memory.max", 100, 100);
    put_stat("/sys/fs/cgroup/a", V2_STAT, 0, 0);
    assert_bound("memory.max", 100, 70);
    put("/proc/self/cgroup", "0::/a/gone (deleted)\n");
    assert_bound("memory.max", 100, 70);
}

static void damage_bounds_nothing(void **state)
{
    static const char *const limits[] = {"",
                                         "\n",
                                         "-1\n",
                                         "+5\n",
                                         " 5\n",
                                         "5 \n",
                                         "5\n6",
                                         "0x10\n",
                                         "5.5\n",
                                         "99999999999999999999\n",
                                         "100000000000000000000000000000000000000000\n"};
    static const char *const groups[] = {"",      "0::\n",   "0::a\n", "::/\n",
                                         "0:/\n", "0:x:/\n", "1::/\n", "0::/" /* cut */};
    static const char *const mounts[] = {
        "",
        "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2\n",
        "30 20 0:26 / - cgroup2 c rw\n",
        "30 20 0:26 / /sys/fs/cgroup rw shared:1 cgroup2 cgroup2 rw\n",
        "30 20 0:26 / sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "30 20 0:26 / /sys/fs/cgroup\\09 rw - cgroup2 cgroup2 rw\n",
        "30 20 0:26 / /sys/fs/cgroup rw - cgroup22 cgroup2 rw\n"};

    (void)state;
    put_self("0::/\n", V2_MOUNT);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        put("/sys/fs/cgroup/memory.max", limits[i]);
        assert_unbound();
    }
    put_v2("/sys/fs/cgroup", 100, 30);
    assert_bound("memory.max", 100, 70);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        put_self(groups[i], V2_MOUNT);
        assert_unbound();
    }
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        put_self("0::/\n", mounts[i]);
        assert_unbound();
    }
}

/* The end of a line that is too long is no line of its own. */
static void lines_that_are_too_long_are_passed_over(void **state)
{
    char *text = malloc(20000 + sizeof V2_MOUNT);

    (void)state;
    assert_non_null(text);
    memset(text, 'x', 20000);
    memcpy(text + 8191, V2_MOUNT, sizeof V2_MOUNT); /* where a buffer of 8 KiB begins anew */
    put_self("0::/\n", text);
    put_v2("/sys/fs/cgroup", 100, 30);
    assert_unbound();
    text[8190] = '\n';
    put_self("0::/\n", text);
    assert_bound("memory.max", 100, 70);
    free(text);
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOT(version_2_in_a_container_is_the_root_of_its_namespace),
        IN_ROOT(file_cache_is_free),
        IN_ROOT(version_1_counts_the_groups_below),
        IN_ROOT(the_tightest_level_bounds),
        IN_ROOT(a_group_over_its_limit_has_no_room),
        IN_ROOT(no_limit_bounds_nothing),
        IN_ROOT(both_versions_are_looked_at),
        IN_ROOT(a_mount_that_shows_a_part_begins_there),
        IN_ROOT(a_group_outside_of_the_namespace_is_not_followed),
        IN_ROOT(a_path_with_escapes_is_found),
        IN_ROOT(what_is_missing_bounds_nothing),
        IN_ROOT(damage_bounds_nothing),
        IN_ROOT(lines_that_are_too_long_are_passed_over),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove_empty);
}
