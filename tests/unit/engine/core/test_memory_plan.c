/* What engines need together: sums, shared files, what is taken already, and the refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/core/memory_plan.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define MIB         ((size_t)1 << 20)
#define ROOM(bytes) (&(const struct memory_room){.available_bytes = (bytes)})

static struct memory_need need(uint64_t inode, size_t mapped_mib, size_t packed_mib, size_t kv_mib,
                               size_t scratch_mib)
{
    return (struct memory_need){.id = "m",
                                .inode = inode,
                                .mapped_bytes = mapped_mib * MIB,
                                .packed_bytes = packed_mib * MIB,
                                .kv_bytes = kv_mib * MIB,
                                .scratch_bytes = scratch_mib * MIB};
}

static void engines_of_different_files_add_up(void **state)
{
    const struct memory_need needs[] = {need(1, 100, 20, 30, 4), need(2, 200, 50, 60, 7)};
    struct memory_sum s;

    (void)state;
    memory_sum(needs, 2, &s);
    assert_int_equal(s.mapped_bytes, 300 * MIB);
    assert_int_equal(s.packed_bytes, 70 * MIB);
    assert_int_equal(s.kv_bytes, 90 * MIB);
    assert_int_equal(s.scratch_bytes, 11 * MIB);
    assert_int_equal(s.needed_bytes, 471 * MIB);
}

static void a_file_counts_once_and_all_else_for_each(void **state)
{
    const struct memory_need needs[] = {need(1, 10, 90, 30, 4), need(2, 5, 0, 0, 1),
                                        need(1, 100, 0, 30, 4), need(1, 100, 0, 30, 4)};
    struct memory_need other_disk = need(1, 100, 0, 0, 0);
    struct memory_sum s;

    (void)state;
    memory_sum(needs, 4, &s);
    assert_int_equal(s.mapped_bytes, 105 * MIB);
    assert_int_equal(s.packed_bytes, 90 * MIB);
    assert_int_equal(s.kv_bytes, 90 * MIB);
    assert_int_equal(s.needed_bytes, (105 + 90 + 90 + 13) * MIB);

    other_disk.device = 7; /* the same number on another file system is another file */
    memory_sum((struct memory_need[]){needs[2], other_disk}, 2, &s);
    assert_int_equal(s.mapped_bytes, 200 * MIB);
}

static void files_without_a_number_are_nobody_elses(void **state)
{
    const struct memory_need needs[] = {need(0, 100, 0, 0, 0), need(0, 100, 0, 0, 0)};
    struct memory_sum s;

    (void)state;
    memory_sum(needs, 2, &s);
    assert_int_equal(s.mapped_bytes, 200 * MIB);
}

static void what_is_taken_is_not_needed_again(void **state)
{
    struct memory_need needs[] = {need(1, 100, 20, 30, 4), need(2, 0, 10, 10, 0)};
    struct memory_sum s;

    (void)state;
    needs[0].held_bytes = 25 * MIB;
    needs[1].held_bytes = 500 * MIB; /* a process has more than these: no other's need gets less */
    memory_sum(needs, 2, &s);
    assert_int_equal(s.held_bytes, 45 * MIB);
    assert_int_equal(s.needed_bytes, (100 + 54 - 25) * MIB);
}

static void what_fits_exactly_is_accepted(void **state)
{
    const struct memory_need m = need(1, 100, 20, 30, 4);
    struct reason why = {0};

    (void)state;
    assert_int_equal(memory_check(&m, 1, ROOM(154 * MIB), "m", &why), ST_OK);
    assert_int_equal(memory_check(&m, 1, ROOM(154 * MIB - 1), "m", &why), ST_NO_MEMORY);
    assert_int_equal(memory_check(&m, 1, ROOM(0), "m", &why), ST_OK); /* unknown */
}

static void the_refusal_has_the_arithmetic(void **state)
{
    struct memory_need m = need(1, 100, 20, 30, 4);
    struct reason why = {0};

    (void)state;
    m.held_bytes = 9 * MIB;
    assert_int_equal(memory_check(&m, 1, ROOM(120 * MIB), "model a beside 2 more", &why),
                     ST_NO_MEMORY);
    assert_non_null(strstr(why.text,
                           "model a beside 2 more: weights 100 + repacked weights 20 + KV "
                           "30 + buffers 4 - taken already 9 = 145 MiB, but only 120 MiB "
                           "are available"));
}

static void a_limit_is_named_in_the_refusal_and_the_table(void **state)
{
    const struct memory_room room = {
        .available_bytes = 120 * MIB,
        .bound = {.file = "memory.max", .limit_bytes = 200 * MIB, .free_bytes = 120 * MIB}};
    struct memory_need m = need(1, 100, 20, 30, 4);
    struct reason why = {0};
    struct buf out;

    (void)state;
    assert_int_equal(memory_check(&m, 1, &room, "model a", &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "= 154 MiB, but only 120 MiB are available within the control "
                                     "group's limit of 200 MiB (memory.max): give less"));
    buf_init(&out);
    memory_table(&m, 1, &room, &out);
    assert_non_null(strstr(buf_cstr(&out), " 120\nwithin the control group's limit "));
    assert_non_null(strstr(buf_cstr(&out), " 200   (memory.max)\n"));
    buf_dispose(&out);
}

/* The tighter of the two is what there is, and only a limit that is the tighter one is named. */
static void the_room_is_the_smaller_of_machine_and_limit(void **state)
{
    struct cgroup_bound bound = {0};
    struct memory_room r = memory_room_within(&bound);

    (void)state;
    assert_true(r.available_bytes > MIB);
    assert_null(r.bound.file);
    bound = (struct cgroup_bound){
        .file = "memory.max", .limit_bytes = SIZE_MAX, .free_bytes = SIZE_MAX};
    r = memory_room_within(&bound);
    assert_true(r.available_bytes > MIB && r.available_bytes < SIZE_MAX);
    assert_null(r.bound.file);
    bound.free_bytes = MIB;
    r = memory_room_within(&bound);
    assert_int_equal(r.available_bytes, MIB);
    assert_string_equal(r.bound.file, "memory.max");
    bound.free_bytes = 0; /* full: not unknown, which would let everything in */
    assert_true(memory_room_within(&bound).available_bytes > 0);
}

static void sums_beyond_memory_do_not_wrap(void **state)
{
    struct memory_need needs[] = {need(1, 0, 0, 0, 0), need(2, 0, 0, 0, 0)};
    struct reason why = {0};
    struct memory_sum s;

    (void)state;
    needs[0].kv_bytes = SIZE_MAX - 5;
    needs[1].kv_bytes = 10;
    memory_sum(needs, 2, &s);
    assert_int_equal(s.needed_bytes, SIZE_MAX);
    assert_int_equal(memory_check(needs, 2, ROOM(SIZE_MAX - 1), "m", &why), ST_NO_MEMORY);
}

static void the_table_has_a_line_each_and_one_together(void **state)
{
    struct memory_need needs[] = {need(1, 100, 20, 30, 4), need(1, 100, 0, 30, 4)};
    struct buf out;

    (void)state;
    needs[1].id = "n";
    buf_init(&out);
    memory_table(needs, 2, ROOM(1000 * MIB), &out);
    assert_non_null(strstr(buf_cstr(&out), "\nm "));
    assert_non_null(strstr(buf_cstr(&out), "\nn "));
    assert_non_null(strstr(buf_cstr(&out), " 188\n")); /* 100 + 20 + 60 + 8 */
    assert_non_null(strstr(buf_cstr(&out), " 1000\n"));
    buf_dispose(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_of_different_files_add_up),
        cmocka_unit_test(a_file_counts_once_and_all_else_for_each),
        cmocka_unit_test(files_without_a_number_are_nobody_elses),
        cmocka_unit_test(what_is_taken_is_not_needed_again),
        cmocka_unit_test(what_fits_exactly_is_accepted),
        cmocka_unit_test(the_refusal_has_the_arithmetic),
        cmocka_unit_test(a_limit_is_named_in_the_refusal_and_the_table),
        cmocka_unit_test(the_room_is_the_smaller_of_machine_and_limit),
        cmocka_unit_test(sums_beyond_memory_do_not_wrap),
        cmocka_unit_test(the_table_has_a_line_each_and_one_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
