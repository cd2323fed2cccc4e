#include "tests/lib/test_folder.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app/supervise/files.h"

char test_folder[] = "/tmp/sluice-test-XXXXXX";

int test_folder_make(void **state)
{
    (void)state;
    return mkdtemp(test_folder) == NULL ? -1 : 0;
}

int test_folder_remove(void **state)
{
    (void)state;
    return folder_remove(test_folder, NULL) == ST_OK ? 0 : -1;
}

int test_folder_remove_empty(void **state)
{
    (void)state;
    return rmdir(test_folder);
}

const char *in_test_folder(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned at;
    char *out = paths[at++ % 4];

    assert((size_t)snprintf(out, sizeof paths[0], "%s/%s", test_folder, name) < sizeof paths[0]);
    return out;
}
