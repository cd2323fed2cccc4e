/* Small files and folders of the launcher. Reasons name the path. */
#ifndef APP_SUPERVISE_FILES_H
#define APP_SUPERVISE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

bool file_exists(const char *path);
/* Written beside its place, synced and renamed: a reader sees the old file or the whole new one,
 * and nobody sees a secret with another mode. */
MUST_CHECK enum status file_write(const char *path, const void *data, size_t len, mode_t mode,
                                  struct reason *why);
/* The first `size` - 1 bytes, NUL-terminated, without white space at the end. */
MUST_CHECK enum status file_read(const char *path, char *out, size_t size);
/* One that is larger than this takes the name PATH.1; what had that is lost. */
void file_put_aside(const char *path, off_t bytes_max);
/* Made with its parents where missing; an existing one keeps its mode. */
MUST_CHECK enum status folder_make(const char *path, mode_t mode, struct reason *why);
/* With all that is in it; follows no link. Missing is fine. */
MUST_CHECK enum status folder_remove(const char *path, struct reason *why);

#endif
