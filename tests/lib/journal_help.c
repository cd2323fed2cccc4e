#include "tests/lib/journal_help.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "tests/lib/poll_loop.h"

#define ANSWER_MS 10000

static void must(bool good, const char *what)
{
    if (good)
        return;
    perror(what);
    abort();
}

void temp_dir_make(char out[TEMP_DIR_BYTES])
{
    /* In memory where that can be: these tests sync thousands of times, and prove nothing about the
     * disk under them. */
    snprintf(out, TEMP_DIR_BYTES, "%s/sluice-journal-XXXXXX",
             access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(out) != NULL, "mkdtemp");
}

void temp_dir_clear(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    must(d != NULL, dir);
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            must(unlinkat(dirfd(d), e->d_name, 0) == 0, e->d_name);
    closedir(d);
}

void temp_dir_remove(const char *dir)
{
    temp_dir_clear(dir);
    must(rmdir(dir) == 0, dir);
}

static void segment_path(const char *dir, uint64_t number, char out[128])
{
    snprintf(out, 128, "%s/%016" PRIx64 ".seg", dir, number);
}

void segment_put(const char *dir, uint64_t number, const void *data, size_t len)
{
    char path[128];
    int fd;

    segment_path(dir, number, path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd != -1 && write(fd, data, len) == (ssize_t)len, path);
    close(fd);
}

char *segment_get(const char *dir, uint64_t number, size_t *len)
{
    char path[128];
    struct stat st;
    char *data;
    int fd;

    segment_path(dir, number, path);
    fd = open(path, O_RDONLY);
    must(fd != -1 && fstat(fd, &st) == 0, path);
    data = malloc((size_t)st.st_size + 1);
    must(data != NULL && read(fd, data, (size_t)st.st_size) == st.st_size, path);
    close(fd);
    *len = (size_t)st.st_size;
    return data;
}

size_t segment_count(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    size_t n = 0;

    must(d != NULL, dir);
    while ((e = readdir(d)) != NULL)
        n += strstr(e->d_name, ".seg") != NULL;
    closedir(d);
    return n;
}

struct id sample_id(unsigned n)
{
    struct id id = {{0x01, 0x90, 0, 0, 0, 0, 0x70, 0, 0x80}};

    for (int i = 0; i < 4; i++)
        id.bytes[12 + i] = (uint8_t)(n >> (24 - 8 * i));
    return id;
}

struct billing_admission sample_admission(unsigned n)
{
    struct billing_admission a = {.id = sample_id(n),
                                  .admitted_at_us = INT64_C(1750000000000000) + n,
                                  .tenant_id = 1 + n % 3,
                                  .project_id = 2,
                                  .key_id = 3,
                                  .model = "a-model",
                                  .endpoint = "chat.completions",
                                  .stream = n % 2 == 0,
                                  .prompt_tokens = 10 + n,
                                  .output_cap = 1000,
                                  .price = {.id = 4,
                                            .input_nanos = 100000000,
                                            .cached_nanos = 50000000,
                                            .output_nanos = 400000000,
                                            .currency = "USD"}};

    snprintf(a.client_request_id, sizeof a.client_request_id, "client-%u", n);
    return a;
}

struct billing_final sample_final(unsigned n)
{
    return (struct billing_final){.id = sample_id(n),
                                  .admitted_at_us = INT64_C(1750000000000000) + n,
                                  .ended_at_us = INT64_C(1750000001000000) + n,
                                  .outcome = OUTCOME_COMPLETED,
                                  .finish_reason = "stop",
                                  .prompt_tokens = 10 + n,
                                  .output_tokens = n,
                                  .ttft_us = 5000};
}

struct waiting {
    struct billing_write w;
    bool done;
};

static void on_done(struct billing_write *w)
{
    CONTAINER_OF(w, struct waiting, w)->done = true;
}

static bool is_done(void *arg)
{
    return ((struct waiting *)arg)->done;
}

static enum status submit_and_wait(struct journal *j, struct loop *l, struct waiting *x)
{
    x->w.loop = l;
    x->w.on_done = on_done;
    journal_submit(j, &x->w);
    must(poll_loop_run_until(l, is_done, x, ANSWER_MS), "an answer of the journal");
    return x->w.status;
}

enum status admit_and_wait(struct journal *j, struct loop *l, const struct billing_admission *a)
{
    struct waiting x = {.w = {.kind = JOURNAL_WRITE_ADMISSION, .record = {.admission = *a}}};

    return submit_and_wait(j, l, &x);
}

enum status finish_and_wait(struct journal *j, struct loop *l, const struct billing_final *f)
{
    struct waiting x = {.w = {.kind = JOURNAL_WRITE_FINAL, .record = {.final = *f}}};

    return submit_and_wait(j, l, &x);
}

size_t take_all(struct journal *j, struct usage_row *rows, size_t max)
{
    size_t total = 0, n = 1;
    struct reason why;

    while (n > 0 && total < max) {
        must(row_source_take(journal_rows(j), rows + total, max - total, &n, &why) == ST_OK,
             why.text);
        total += n;
    }
    return total;
}

struct journal *open_journal(const char *dir, size_t segment_bytes, size_t rows_in_memory,
                             const struct journal_io *io)
{
    struct journal_config cfg = {
        .dir = dir, .segment_bytes = segment_bytes, .rows_in_memory = rows_in_memory, .io = io};
    struct journal *j = NULL;
    struct reason why = {.text = ""};

    if (journal_open(&cfg, &j, &why) != ST_OK) {
        fprintf(stderr, "journal_open: %s\n", why.text);
        abort();
    }
    return j;
}
