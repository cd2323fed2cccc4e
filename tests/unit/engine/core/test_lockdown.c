/* The lock, from inside: each try is made by a child that locks in first. */
#include "engine/core/lockdown.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"
#include "engine/core/lockdown_probe.h"

/* nobody, on every Linux */
#define PLAIN_USER 65534

enum { MODEL, SECRET, WRITABLE, PART_1, PART_2, BLOB, N_FILES };

struct rig {
    char dir[64];
    char files[N_FILES][128];
    char folder[128], good_link[192], bad_link[192]; /* of a Hugging Face cache */
    struct lockdown_targets targets;
    /* How a child locks in. */
    struct lockdown_config cfg;
    uid_t user;
    int missing; /* a system call that the machine lacks; -1: none */
    bool in_chroot;
    /* What a custom try looks at. */
    const char *path;
    enum status begun;
    struct reason why;
};

static struct rig rig;

/* ---- files ---- */

static void put_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);

    assert_int_not_equal(fd, -1);
    assert_int_equal(fchmod(fd, 0666), 0);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
}

static void put_folder(const char *name)
{
    char path[192];

    snprintf(path, sizeof path, "%s/%s", rig.dir, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

static void make_cache(void)
{
    put_folder("cache");
    put_folder("cache/blobs");
    put_folder("cache/snapshots");
    put_folder("cache/snapshots/main");
    snprintf(rig.folder, sizeof rig.folder, "%s/cache/snapshots/main", rig.dir);
    snprintf(rig.good_link, sizeof rig.good_link, "%s/model.safetensors", rig.folder);
    snprintf(rig.bad_link, sizeof rig.bad_link, "%s/config.json", rig.folder);
    assert_int_equal(symlink("../../blobs/b10b", rig.good_link), 0);
    assert_int_equal(symlink(rig.files[SECRET], rig.bad_link), 0);
}

static int set_up(void **state)
{
    static const char *const names[N_FILES] = {"model.gguf",
                                               "sluice.yaml",
                                               "writable",
                                               "m-00001-of-00002.gguf",
                                               "m-00002-of-00002.gguf",
                                               "cache/blobs/b10b"};

    (void)state;
    memset(&rig, 0, sizeof rig);
    strcpy(rig.dir, "/tmp/sluice-lock-XXXXXX");
    assert_non_null(mkdtemp(rig.dir));
    assert_int_equal(chmod(rig.dir, 0777), 0);
    for (int i = 0; i < N_FILES; i++)
        snprintf(rig.files[i], sizeof rig.files[i], "%s/%s", rig.dir, names[i]);
    make_cache();
    for (int i = 0; i < N_FILES; i++)
        put_file(rig.files[i]);
    rig.targets = (struct lockdown_targets){rig.files[SECRET], rig.files[WRITABLE]};
    rig.cfg = (struct lockdown_config){
        .want = LOCKDOWN_AUTO, .model_path = rig.files[MODEL], .max_fds = 64};
    rig.missing = -1;
    return 0;
}

static int tear_down(void **state)
{
    static const char *const folders[] = {"cache/snapshots/main", "cache/snapshots", "cache/blobs",
                                          "cache", "."};
    char path[192];

    (void)state;
    unlink(rig.good_link);
    unlink(rig.bad_link);
    for (int i = 0; i < N_FILES; i++)
        unlink(rig.files[i]);
    for (size_t i = 0; i < COUNT_OF(folders) - 1; i++) {
        snprintf(path, sizeof path, "%s/%s", rig.dir, folders[i]);
        rmdir(path);
    }
    return rmdir(rig.dir);
}

/* ---- locking, in the child ---- */

/* A machine without a system call: it answers `error`. */
static bool take_away(int call, int error)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

    return ctx != NULL && seccomp_rule_add(ctx, SCMP_ACT_ERRNO((uint32_t)error), call, 0) == 0 &&
           seccomp_load(ctx) == 0;
}

static bool prepare(void)
{
    /* A filter needs no_new_privs or a capability, which a plain user lacks. */
    if (rig.missing != -1 && !take_away(rig.missing, rig.missing == SYS_unshare ? EPERM : ENOSYS))
        return false;
    if (rig.in_chroot && (chroot(rig.dir) == -1 || chdir("/") == -1))
        return false;
    return rig.user == 0 || (setgid(rig.user) == 0 && setuid(rig.user) == 0);
}

static int lock_first(void *arg)
{
    struct lockdown *l = arg;

    if (!prepare())
        return -1;
    return lockdown_begin(l, &rig.cfg, &rig.why) == ST_OK ? 0 : -1;
}

static int lock_parsed(void *arg)
{
    if (lock_first(arg) == -1)
        return -1;
    return lockdown_parsed(arg, &rig.why) == ST_OK ? 0 : -1;
}

static int lock_for_good(void *arg)
{
    if (lock_parsed(arg) == -1)
        return -1;
    return lockdown_finish(arg, &rig.why) == ST_OK ? 0 : -1;
}

static int lock_nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* Runs one try of the test's own; `want` as lockdown_probe_held has it, -1: it must succeed. */
static void expect(int (*attempt)(const struct lockdown_targets *), int (*lock)(void *), int want)
{
    const struct lockdown_probe p = {.attempt = attempt};
    struct lockdown l;
    struct lockdown_result r = lockdown_probe_run(&p, &rig.targets, lock, &l);

    if (want == -1 ? r.outcome != LOCKDOWN_ESCAPED : !lockdown_probe_held(&r, want))
        fail_msg("outcome %d error %d, wanted %d", r.outcome, r.error, want);
}

/* ---- the ways out ---- */

static void expect_all_held(int (*lock)(void *), bool first)
{
    struct lockdown l;

    if (lockdown_is_wide())
        skip();
    for (size_t i = 0; i < lockdown_probes_count; i++) {
        const struct lockdown_probe *p = &lockdown_probes[i];
        struct lockdown_result r = lockdown_probe_run(p, &rig.targets, lock, &l);

        if (!lockdown_probe_held(&r, first ? p->first : p->refusal))
            fail_msg("%s: outcome %d, error %d", p->name, r.outcome, r.error);
    }
}

static void test_no_way_leads_out_once_locked(void **state)
{
    (void)state;
    expect_all_held(lock_for_good, false);
}

static void test_no_way_leads_out_while_the_model_is_read(void **state)
{
    (void)state;
    expect_all_held(lock_first, true);
}

static void test_no_way_leads_out_for_a_plain_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip(); /* the other tests are this one */
    rig.user = PLAIN_USER;
    expect_all_held(lock_for_good, false);
}

static void test_no_way_leads_out_of_a_bare_chroot(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    rig.in_chroot = true;
    rig.cfg.model_path = "/model.gguf";
    rig.targets = (struct lockdown_targets){"/sluice.yaml", "/writable"};
    expect_all_held(lock_for_good, false);
}

static void test_without_a_lock_nothing_is_held(void **state)
{
    (void)state;
    for (size_t i = 0; i < lockdown_probes_count; i++) {
        const struct lockdown_probe *p = &lockdown_probes[i];
        struct lockdown_result r;

        put_file(rig.files[WRITABLE]); /* a try removes it */
        r = lockdown_probe_run(p, &rig.targets, lock_nothing, NULL);
        if (lockdown_probe_held(&r, p->refusal))
            fail_msg("%s says nothing: it is held without a lock", p->name);
    }
}

/* ---- threads ---- */

static _Atomic int thread_may_try;

static void *try_in_thread(void *arg)
{
    (void)arg;
    while (!atomic_load(&thread_may_try))
        sched_yield();
    bind(-1, NULL, 0); /* the list that it was started under allows it */
    atomic_store(&thread_may_try, 0);
    return NULL;
}

static int lock_with_thread(void *arg)
{
    pthread_t t;

    if (lock_parsed(arg) == -1 || pthread_create(&t, NULL, try_in_thread, NULL) != 0)
        return -1;
    return lockdown_finish(arg, &rig.why) == ST_OK ? 0 : -1;
}

static int try_thread(const struct lockdown_targets *t)
{
    (void)t;
    atomic_store(&thread_may_try, 1);
    while (atomic_load(&thread_may_try))
        sched_yield();
    return 0;
}

static void test_threads_that_run_already_are_locked_in_too(void **state)
{
    (void)state;
    expect(try_thread, lock_with_thread, 0);
}

static void *do_nothing(void *arg)
{
    return arg;
}

static int try_new_thread(const struct lockdown_targets *t)
{
    pthread_t thread;

    (void)t;
    return pthread_create(&thread, NULL, do_nothing, NULL);
}

static void test_no_thread_begins_after_the_lock(void **state)
{
    (void)state;
    if (lockdown_is_wide())
        skip();
    expect(try_new_thread, lock_parsed, -1);
    expect(try_new_thread, lock_for_good, 0);
}

/* ---- which files ---- */

static int try_path(const struct lockdown_targets *t)
{
    (void)t;
    return open(rig.path, O_RDONLY) == -1 ? errno : 0;
}

static void expect_readable(const char *path, int (*lock)(void *), bool is_readable)
{
    rig.path = path;
    expect(try_path, lock, is_readable ? -1 : EACCES);
}

static bool lacks_landlock(void)
{
    return lockdown_is_wide() || syscall(SYS_landlock_create_ruleset, NULL, 0, 1) == -1;
}

static void test_the_model_alone_is_readable_and_only_while_it_is_read(void **state)
{
    (void)state;
    if (lacks_landlock())
        skip();
    expect_readable(rig.files[MODEL], lock_first, true);
    expect_readable(rig.files[WRITABLE], lock_first, false);
    expect_readable(rig.files[MODEL], lock_parsed, false);
    expect_readable(rig.files[MODEL], lock_for_good, false);
}

static void test_all_parts_of_a_split_model_are_readable(void **state)
{
    (void)state;
    if (lacks_landlock())
        skip();
    rig.cfg.model_path = rig.files[PART_1];
    expect_readable(rig.files[PART_2], lock_first, true);
    expect_readable(rig.files[MODEL], lock_first, false);
}

static void test_links_of_a_folder_lead_to_the_cache_alone(void **state)
{
    (void)state;
    if (lacks_landlock())
        skip();
    rig.cfg.model_path = rig.folder;
    expect_readable(rig.good_link, lock_first, true);
    expect_readable(rig.bad_link, lock_first, false);
}

static int try_bind(const struct lockdown_targets *t)
{
    (void)t;
    return bind(STDIN_FILENO, NULL, 0) == -1 ? errno : 0;
}

static void test_binding_ends_with_the_lock(void **state)
{
    (void)state;
    if (lockdown_is_wide())
        skip();
    expect(try_bind, lock_parsed, ENOTSOCK); /* allowed, but of no use here */
    expect(try_bind, lock_for_good, 0);
}

/* ---- what was inherited ---- */

static const char *secret_value;

static int try_environment(const struct lockdown_targets *t)
{
    (void)t;
    return getenv("SLUICE_TEST_SECRET") == NULL && secret_value[0] == '\0' ? 0 : EPERM;
}

static void test_the_environment_is_wiped(void **state)
{
    (void)state;
    setenv("SLUICE_TEST_SECRET", "hunter2", 1);
    secret_value = getenv("SLUICE_TEST_SECRET");
    expect(try_environment, lock_for_good, -1);
    assert_string_equal(getenv("SLUICE_TEST_SECRET"), "hunter2");
    unsetenv("SLUICE_TEST_SECRET");
}

static int inherited[3];

static int try_descriptors(const struct lockdown_targets *t)
{
    char c;

    (void)t;
    for (int i = 0; i < 3; i++) {
        bool is_open = read(inherited[i], &c, 1) == 1 || errno != EBADF;

        if (is_open != (i == 1))
            return EPERM;
    }
    return 0;
}

static void test_inherited_descriptors_are_closed_but_the_known(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        inherited[i] = open(rig.files[SECRET], O_RDONLY);
    rig.cfg.keep_fds = &inherited[1];
    rig.cfg.n_keep_fds = 1;
    expect(try_descriptors, lock_for_good, -1);
    for (int i = 0; i < 3; i++)
        close(inherited[i]);
}

static int try_limits(const struct lockdown_targets *t)
{
    struct rlimit core, files;

    (void)t;
    getrlimit(RLIMIT_CORE, &core);
    getrlimit(RLIMIT_NOFILE, &files);
    return core.rlim_max == 0 && files.rlim_max <= 64 ? 0 : EPERM;
}

static void test_limits_hold(void **state)
{
    (void)state;
    expect(try_limits, lock_for_good, -1);
}

static int try_state(const struct lockdown_targets *t)
{
    (void)t;
    return prctl(PR_GET_DUMPABLE) == 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : EPERM;
}

static int lock_without_seccomp(void *arg)
{
    rig.missing = SYS_seccomp;
    return lock_for_good(arg);
}

static void test_nobody_looks_into_it_and_it_gains_nothing(void **state)
{
    (void)state;
    /* With the filter it can't even ask. */
    expect(try_state, lock_without_seccomp, -1);
}

/* ---- a bug of ours ---- */

static int abort_here(const struct lockdown_targets *t)
{
    (void)t;
    signal(SIGABRT, SIG_DFL); /* cmocka takes it */
    abort();
}

static void test_a_failed_assertion_still_ends_as_one(void **state)
{
    const struct lockdown_probe p = {.attempt = abort_here};
    struct lockdown l;
    struct lockdown_result r = lockdown_probe_run(&p, &rig.targets, lock_for_good, &l);

    (void)state;
    assert_int_equal(r.outcome, LOCKDOWN_BROKEN);
    assert_int_equal(r.error, SIGABRT);
}

/* ---- what a machine lacks ---- */

/* How a begin went, in a child that lacks a system call; 0: as the test wants. */
static struct {
    enum lockdown_want want;
    int missing;
    const char *says;
    bool starts;
} machine;

static int describe_machine(void *arg)
{
    struct lockdown *l = arg;
    char text[160] = "";
    enum status s;

    rig.missing = machine.missing;
    rig.cfg.want = machine.want;
    if (!prepare())
        return -1;
    s = lockdown_begin(l, &rig.cfg, &rig.why);
    lockdown_describe(l, text, sizeof text);
    if (s != (machine.starts ? ST_OK : ST_UNSUPPORTED))
        return -1;
    if (strstr(machine.starts ? text : rig.why.text, machine.says) != NULL)
        return 0;
    fprintf(stderr, "no %s in: %s%s\n", machine.says, text, rig.why.text);
    return -1;
}

static int try_nothing(const struct lockdown_targets *t)
{
    (void)t;
    return 0;
}

static void test_what_a_machine_lacks_is_said_or_refused(void **state)
{
    static const struct {
        int missing;
        const char *said, *refused;
    } rows[] = {
        {SYS_landlock_create_ruleset, "landlock=off(ENOSYS)", "Landlock"},
        {SYS_unshare, "netns=off(EPERM)", "network namespace"},
        {SYS_seccomp, "seccomp=off(", "seccomp"}, /* libseccomp has errors of its own */
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        machine.missing = rows[i].missing;
        machine.want = LOCKDOWN_AUTO;
        machine.says = rows[i].said;
        machine.starts = true;
        expect(try_nothing, describe_machine, -1);
        machine.want = LOCKDOWN_REQUIRE;
        machine.says = rows[i].refused;
        machine.starts = false;
        expect(try_nothing, describe_machine, -1);
    }
}

static void test_without_landlock_the_rest_holds(void **state)
{
    (void)state;
    rig.missing = SYS_landlock_create_ruleset;
    expect_all_held(lock_for_good, false);
}

int main(void)
{
#define LOCK_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LOCK_TEST(test_no_way_leads_out_once_locked),
        LOCK_TEST(test_no_way_leads_out_while_the_model_is_read),
        LOCK_TEST(test_no_way_leads_out_for_a_plain_user),
        LOCK_TEST(test_no_way_leads_out_of_a_bare_chroot),
        LOCK_TEST(test_without_a_lock_nothing_is_held),
        LOCK_TEST(test_threads_that_run_already_are_locked_in_too),
        LOCK_TEST(test_no_thread_begins_after_the_lock),
        LOCK_TEST(test_the_model_alone_is_readable_and_only_while_it_is_read),
        LOCK_TEST(test_all_parts_of_a_split_model_are_readable),
        LOCK_TEST(test_links_of_a_folder_lead_to_the_cache_alone),
        LOCK_TEST(test_binding_ends_with_the_lock),
        LOCK_TEST(test_the_environment_is_wiped),
        LOCK_TEST(test_inherited_descriptors_are_closed_but_the_known),
        LOCK_TEST(test_limits_hold),
        LOCK_TEST(test_nobody_looks_into_it_and_it_gains_nothing),
        LOCK_TEST(test_a_failed_assertion_still_ends_as_one),
        LOCK_TEST(test_what_a_machine_lacks_is_said_or_refused),
        LOCK_TEST(test_without_landlock_the_rest_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
