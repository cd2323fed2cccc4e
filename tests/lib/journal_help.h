/* For tests of the journal: sample records, writes that wait for their answer, and a folder. */
#ifndef TESTS_LIB_JOURNAL_HELP_H
#define TESTS_LIB_JOURNAL_HELP_H

#include "base/loop.h"
#include "billing/journal.h"

#define TEMP_DIR_BYTES 64
/* A folder of our own; temp_dir_remove deletes it with the files in it. Failures abort. */
void temp_dir_make(char out[TEMP_DIR_BYTES]);
void temp_dir_remove(const char *dir);
void temp_dir_clear(const char *dir);
/* DIR/NUMBER.seg with these bytes, and back (heap). */
void segment_put(const char *dir, uint64_t number, const void *data, size_t len);
char *segment_get(const char *dir, uint64_t number, size_t *len);
size_t segment_count(const char *dir);

/* The n-th id: the same for the same n. */
struct id sample_id(unsigned n);
struct billing_admission sample_admission(unsigned n);
/* 10 + n prompt tokens, n output tokens. */
struct billing_final sample_final(unsigned n);

/* Submits and runs the loop until the answer. */
enum status admit_and_wait(struct journal *j, struct loop *l, const struct billing_admission *a);
enum status finish_and_wait(struct journal *j, struct loop *l, const struct billing_final *f);
/* Everything that is there to post, at most `max`. */
size_t take_all(struct journal *j, struct usage_row *rows, size_t max);
/* A journal in `dir`, which must open. */
struct journal *open_journal(const char *dir, size_t segment_bytes, size_t rows_in_memory,
                             const struct journal_io *io);

#endif
