/* Files of the repository that travel inside the binary (migrations/NAME.sql, quota/NAME.lua): made
 * by tools/embed.sh at build. Immutable; any thread. */
#ifndef BASE_EMBEDDED_H
#define BASE_EMBEDDED_H

struct embedded_file {
    const char *name; /* path from the repository's root; NULL ends the table */
    const char *data; /* NUL-terminated */
    const char *end;  /* data + length */
};

extern const struct embedded_file embedded_files[];

#endif
