/* A temporary folder of a test program: one for its group, by cmocka_run_group_tests's set-up and
 * teardown. */
#ifndef TESTS_LIB_TEST_FOLDER_H
#define TESTS_LIB_TEST_FOLDER_H

/* Its path, short enough for sockets in it; made by test_folder_make. */
extern char test_folder[];

int test_folder_make(void **state);
/* With all that is in it. */
int test_folder_remove(void **state);
/* Fails where the tests have left something in it. */
int test_folder_remove_empty(void **state);

/* "FOLDER/name", valid until the fourth call after this one. */
const char *in_test_folder(const char *name);

#endif
