#include "app/supervise/last_lines.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Lines may be longer than what is kept of them. */
#define TAIL_BYTES 8192

void last_lines_add(struct last_lines *l, const char *line, size_t len)
{
    while (len > 0 && line[len - 1] == ' ')
        len--;
    if (len == 0)
        return;
    if (l->n == LAST_LINES)
        memmove(l->text[0], l->text[1], sizeof l->text - sizeof l->text[0]);
    else
        l->n++;
    if (len > LAST_LINE_BYTES - 1)
        len = LAST_LINE_BYTES - 1;
    memcpy(l->text[l->n - 1], line, len);
    l->text[l->n - 1][len] = '\0';
}

static size_t read_tail(const char *path, char out[TAIL_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd == -1)
        return 0;
    if (lseek(fd, -TAIL_BYTES, SEEK_END) == -1)
        lseek(fd, 0, SEEK_SET);
    n = read(fd, out, TAIL_BYTES);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

void last_lines_read(struct last_lines *l, const char *path)
{
    char tail[TAIL_BYTES];
    const char *end = tail + read_tail(path, tail);

    memset(l, 0, sizeof *l);
    for (const char *at = tail; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        if (stop == NULL)
            stop = end;
        last_lines_add(l, at, (size_t)(stop - at));
        at = stop + 1;
    }
}

const char *last_lines_newest(const struct last_lines *l)
{
    return l->n > 0 ? l->text[l->n - 1] : "";
}
