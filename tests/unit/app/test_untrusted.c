#include "app/untrusted.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"
#include "engine/core/lockdown.h"

/* The file that the work may read, and one that it may not. */
#define GIVEN "tests/lsan.supp"
#define OTHER "tests/tsan.supp"

struct outcome {
    enum status status;
    int exit_code;
    struct buf said;
    struct reason why;
};

static struct outcome run(int (*work)(void *arg), void *arg)
{
    const struct untrusted_work w = {
        .path = GIVEN,
        .run = work,
        .arg = arg,
        .limits = {.cpu_s = 1, .data_bytes = (size_t)64 << 20, .output_bytes = 1 << 20}};
    struct outcome o = {.exit_code = -1};

    buf_init(&o.said);
    o.status = untrusted_run(&w, &o.said, &o.exit_code, &o.why);
    return o;
}

static void expect_death(int (*work)(void *arg), const char *words)
{
    struct outcome o = run(work, NULL);

    assert_int_equal(o.status, ST_CORRUPT);
    assert_int_equal(o.exit_code, -1);
    if (strstr(o.why.text, words) == NULL)
        fail_msg("no \"%s\" in: %s", words, o.why.text);
    buf_dispose(&o.said);
}

static int say(void *arg)
{
    printf("said %s\n", (const char *)arg);
    fputs("and complained\n", stderr);
    return 1;
}

static void test_what_it_says_and_its_exit_code_come_back(void **state)
{
    struct outcome o = run(say, (void *)(uintptr_t) "so");

    (void)state;
    assert_int_equal(o.status, ST_OK);
    assert_int_equal(o.exit_code, 1);
    assert_non_null(strstr(buf_cstr(&o.said), "said so\n"));
    assert_non_null(strstr(buf_cstr(&o.said), "and complained\n"));
    buf_dispose(&o.said);
}

static int steer(void *arg)
{
    (void)arg;
    fputs("a\033[2J\tb\r\177\302\233c\303\251\n",
          stdout); /* C2 9B: a C1 control; C3 A9: a letter */
    return 0;
}

static void test_nothing_it_says_steers_a_terminal(void **state)
{
    struct outcome o = run(steer, NULL);

    (void)state;
    assert_string_equal(buf_cstr(&o.said), "a?[2J?b??\302?c\303\251\n");
    buf_dispose(&o.said);
}

static int read_given(void *arg)
{
    (void)arg;
    return open(GIVEN, O_RDONLY) == -1;
}

static int read_other(void *arg)
{
    (void)arg;
    return open(OTHER, O_RDONLY) == -1 && errno == EACCES;
}

static void test_it_reads_its_file_and_no_other(void **state)
{
    struct outcome o = run(read_given, NULL);

    (void)state;
    assert_int_equal(o.exit_code, 0);
    buf_dispose(&o.said);
    if (lockdown_is_wide())
        skip();
    o = run(read_other, NULL);
    assert_int_equal(o.exit_code, 1);
    buf_dispose(&o.said);
}

static int call_home(void *arg)
{
    (void)arg;
    return socket(AF_INET, SOCK_STREAM, 0);
}

static void test_a_forbidden_system_call_is_named_as_the_cause(void **state)
{
    (void)state;
    expect_death(call_home, "signal 31");
}

static int spin(void *arg)
{
    (void)arg;
    for (volatile bool go_on = true; go_on;)
        continue;
    return 0;
}

static void test_work_without_end_is_stopped_by_its_limit(void **state)
{
    (void)state;
    expect_death(spin, "more than 1 s of processor time");
}

static int crash(void *arg)
{
    (void)arg;
    signal(SIGSEGV, SIG_DFL); /* no sanitizer's report */
    return raise(SIGSEGV);
}

static void test_a_crash_is_named(void **state)
{
    (void)state;
    if (lockdown_is_wide())
        skip(); /* the sanitizer ends it first */
    expect_death(crash, "signal 11");
}

static int allocate(void *arg)
{
    (void)arg;
    for (size_t n = 0; n < 1000; n++) {
        char *p = malloc(1 << 20);

        if (p == NULL)
            return n < 64 ? 0 : 1;
        memset(p, 1, 1 << 20);
    }
    return 1;
}

static void test_memory_ends_at_its_limit(void **state)
{
    struct outcome o;

    (void)state;
    if (lockdown_is_wide())
        skip();
    o = run(allocate, NULL);
    assert_int_equal(o.status, ST_OK);
    assert_int_equal(o.exit_code, 0);
    buf_dispose(&o.said);
}

static int flood(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1 << 20; i++)
        fputs("a line of no interest\n", stdout);
    return 0;
}

static void test_who_says_too_much_is_stopped(void **state)
{
    (void)state;
    expect_death(flood, "more than 1048576 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_says_and_its_exit_code_come_back),
        cmocka_unit_test(test_nothing_it_says_steers_a_terminal),
        cmocka_unit_test(test_it_reads_its_file_and_no_other),
        cmocka_unit_test(test_a_forbidden_system_call_is_named_as_the_cause),
        cmocka_unit_test(test_work_without_end_is_stopped_by_its_limit),
        cmocka_unit_test(test_a_crash_is_named),
        cmocka_unit_test(test_memory_ends_at_its_limit),
        cmocka_unit_test(test_who_says_too_much_is_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
