#include "billing/journal_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"

#define NAME_BYTES 24
#define LOCK_NAME  "lock"
/* One unfinished segment at a time: a fixed name, overwritten by the next try. */
#define TEMP_NAME "next.tmp"

static ssize_t real_pwrite(void *arg, int fd, const void *data, size_t len, off_t at)
{
    (void)arg;
    return pwrite(fd, data, len, at);
}

static int real_fdatasync(void *arg, int fd)
{
    (void)arg;
    return fdatasync(fd);
}

const struct journal_io journal_io_real = {.pwrite = real_pwrite, .fdatasync = real_fdatasync};

static void segment_name(uint64_t number, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%016" PRIx64 ".seg", number);
}

static enum status status_of(int err)
{
    return err == ENOSPC || err == EDQUOT ? ST_NO_SPACE : ST_IO;
}

enum status journal_dir_open(struct journal_dir *d, const char *path, const struct journal_io *io,
                             struct reason *why)
{
    struct journal_dir dir = {.io = io, .fd = -1, .lock_fd = -1};
    enum status s;

    if (mkdir(path, 0700) == -1 && errno != EEXIST)
        return fail(why, status_of(errno), "%s: %s", path, strerror(errno));
    dir.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir.fd == -1)
        return fail(why, ST_IO, "%s: %s", path, strerror(errno));
    dir.lock_fd = openat(dir.fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (dir.lock_fd == -1) {
        s = fail(why, status_of(errno), "%s/%s: %s", path, LOCK_NAME, strerror(errno));
        goto failed;
    }
    if (flock(dir.lock_fd, LOCK_EX | LOCK_NB) == -1) {
        s = fail(why, ST_CONFLICT, "%s is in use by another process", path);
        goto failed;
    }
    if (unlinkat(dir.fd, TEMP_NAME, 0) == -1 && errno != ENOENT) {
        s = fail(why, ST_IO, "%s/%s: %s", path, TEMP_NAME, strerror(errno));
        goto failed;
    }
    *d = dir;
    return ST_OK;
failed:
    journal_dir_close(&dir);
    return s;
}

void journal_dir_close(struct journal_dir *d)
{
    if (d->lock_fd != -1)
        close(d->lock_fd);
    if (d->fd != -1)
        close(d->fd);
    d->fd = d->lock_fd = -1;
}

static bool parse_name(const char *name, uint64_t *number)
{
    char again[NAME_BYTES];
    uint64_t n;

    if (sscanf(name, "%16" SCNx64, &n) != 1)
        return false;
    segment_name(n, again);
    *number = n;
    return strcmp(name, again) == 0;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static enum status collect(DIR *dir, struct buf *numbers, struct reason *why)
{
    struct dirent *e;
    uint64_t number;

    for (errno = 0; (e = readdir(dir)) != NULL; errno = 0)
        if (parse_name(e->d_name, &number))
            buf_append(numbers, &number, sizeof number);
    if (errno != 0)
        return fail(why, ST_IO, "the journal's folder can't be read: %s", strerror(errno));
    return numbers->failed ? ST_NO_MEMORY : ST_OK;
}

enum status journal_dir_list(const struct journal_dir *d, uint64_t **out, size_t *n,
                             struct reason *why)
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd == -1 ? NULL : fdopendir(fd);
    struct buf numbers;
    enum status s;

    if (dir == NULL) {
        if (fd != -1)
            close(fd);
        return fail(why, ST_IO, "the journal's folder can't be read: %s", strerror(errno));
    }
    buf_init(&numbers);
    s = collect(dir, &numbers, why);
    closedir(dir);
    if (s != ST_OK) {
        buf_dispose(&numbers);
        return s;
    }
    *n = numbers.len / sizeof **out;
    *out = (uint64_t *)(void *)numbers.data;
    if (*n > 1)
        qsort(*out, *n, sizeof **out, compare_numbers);
    return ST_OK;
}

static enum status write_all(const struct journal_dir *d, int fd, const char *data, size_t len,
                             size_t at)
{
    while (len > 0) {
        ssize_t n = d->io->pwrite(d->io->arg, fd, data, len, (off_t)at);

        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0)
            return status_of(n == 0 ? ENOSPC : errno);
        data += n;
        at += (size_t)n;
        len -= (size_t)n;
    }
    return ST_OK;
}

enum status journal_segment_write(const struct journal_dir *d, int fd, const void *data, size_t len,
                                  size_t at)
{
    enum status s = write_all(d, fd, data, len, at);

    if (s != ST_OK && ftruncate(fd, (off_t)at) == -1)
        log_error(NULL, "journal.cut", "a half record stays at offset %zu: %s", at,
                  strerror(errno));
    return s;
}

enum status journal_segment_sync(const struct journal_dir *d, int fd)
{
    return d->io->fdatasync(d->io->arg, fd) == -1 ? status_of(errno) : ST_OK;
}

enum status journal_segment_create(const struct journal_dir *d, uint64_t number, const void *data,
                                   size_t len, int *fd)
{
    int file = openat(d->fd, TEMP_NAME, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    char name[NAME_BYTES];
    enum status s;

    if (file == -1)
        return status_of(errno);
    segment_name(number, name);
    s = write_all(d, file, data, len, 0);
    if (s == ST_OK)
        s = journal_segment_sync(d, file);
    if (s == ST_OK && renameat(d->fd, TEMP_NAME, d->fd, name) == -1)
        s = status_of(errno);
    if (s == ST_OK && fsync(d->fd) == -1) {
        /* The name may be lost in a crash: nothing may rely on this segment. */
        s = status_of(errno);
        journal_segment_delete(d, number);
    }
    if (s != ST_OK) {
        close(file);
        unlinkat(d->fd, TEMP_NAME, 0);
        return s;
    }
    *fd = file;
    return ST_OK;
}

void journal_segment_delete(const struct journal_dir *d, uint64_t number)
{
    char name[NAME_BYTES];

    segment_name(number, name);
    if (unlinkat(d->fd, name, 0) == -1 && errno != ENOENT)
        log_warn(NULL, "journal.delete", "segment=%s: %s", name, strerror(errno));
}

bool journal_segment_exists(int dir_fd, uint64_t number)
{
    char name[NAME_BYTES];

    segment_name(number, name);
    return faccessat(dir_fd, name, F_OK, 0) == 0;
}

static enum status load(int fd, const char *name, size_t from, size_t max_bytes, struct buf *out,
                        struct reason *why)
{
    struct stat st;
    size_t left;

    if (fstat(fd, &st) == -1)
        return fail(why, ST_IO, "segment %s: %s", name, strerror(errno));
    if (st.st_size < (off_t)from || (size_t)st.st_size > JOURNAL_SEGMENT_MAX_BYTES)
        return fail(why, ST_CORRUPT, "segment %s has an impossible size: %lld", name,
                    (long long)st.st_size);
    left = (size_t)st.st_size - from;
    if (max_bytes != 0 && left > max_bytes)
        left = max_bytes;
    if (!buf_reserve(out, left))
        return ST_NO_MEMORY;
    while (left > 0) {
        ssize_t n = pread(fd, out->data + out->len, left, (off_t)from);

        if (n == -1 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(why, ST_IO, "segment %s: %s", name, n == 0 ? "short" : strerror(errno));
        out->len += (size_t)n;
        from += (size_t)n;
        left -= (size_t)n;
    }
    return ST_OK;
}

enum status journal_segment_load(int dir_fd, uint64_t number, size_t from, size_t max_bytes,
                                 struct buf *out, struct reason *why)
{
    char name[NAME_BYTES];
    enum status s;
    int fd;

    segment_name(number, name);
    fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return fail(why, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "segment %s: %s", name,
                    strerror(errno));
    s = load(fd, name, from, max_bytes, out, why);
    close(fd);
    return s;
}

enum status journal_segment_head(int dir_fd, uint64_t number, struct journal_head *out,
                                 struct reason *why)
{
    struct journal_view v;
    struct buf data;
    enum status s;

    buf_init(&data);
    s = journal_segment_load(dir_fd, number, 0, JOURNAL_HEAD_BYTES, &data, why);
    if (s == ST_OK && journal_view_init(&v, data.data, data.len) != ST_OK)
        s = fail(why, ST_CORRUPT,
                 "journal segment %016" PRIx64 ".seg is damaged at offset 0: no valid head",
                 number);
    if (s == ST_OK)
        *out = v.head;
    buf_dispose(&data);
    return s;
}
