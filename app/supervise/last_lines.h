/* The last lines of a log that say something, each cut: what a person wants to read of a process
 * that has died. One thread. */
#ifndef APP_SUPERVISE_LAST_LINES_H
#define APP_SUPERVISE_LAST_LINES_H

#include <stddef.h>

#define LAST_LINES      5
#define LAST_LINE_BYTES 180

/* Zeroed: none. */
struct last_lines {
    unsigned n;
    char text[LAST_LINES][LAST_LINE_BYTES]; /* (n), oldest first */
};

/* An empty one says nothing; when there is no room the oldest goes. */
void last_lines_add(struct last_lines *l, const char *line, size_t len);
/* Those at the end of a file; none where it can't be read. */
void last_lines_read(struct last_lines *l, const char *path);
/* The newest; "" when there is none. */
const char *last_lines_newest(const struct last_lines *l);

#endif
