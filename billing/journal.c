#include "billing/journal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "billing/journal_writer.h"

/* How often a journal that could not write tries again by itself. */
#define RETRY_MS 500
/* Progress records that wait for the thread: one per open request and turn at most. */
#define PROGRESS_MAX 4096

struct journal {
    struct journal_dir dir;
    struct row_source rows;
    struct journal_writer writer; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock: */
    struct write_list inbox;
    struct journal_progress *progress;
    size_t n_progress;
    uint64_t posted_seq;
    bool stopping;
    /* The thread's: what the inbox is exchanged with. */
    struct journal_progress *progress_taken;
    /* Constant after the start: */
    uint64_t replayed, replayed_seq;
};

/* ---- the thread ---- */

static void wait_for_work(struct journal *j)
{
    struct timespec until;

    if (atomic_load(&j->writer.ok)) {
        pthread_cond_wait(&j->wake, &j->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += RETRY_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&j->wake, &j->lock, &until);
}

static bool has_work(struct journal *j)
{
    /* A mark that can't be written is no reason to try without pause. */
    bool has_mark = j->posted_seq != j->writer.posted_written && atomic_load(&j->writer.ok);

    return j->inbox.head != NULL || j->n_progress > 0 || has_mark || j->stopping;
}

/* Waits for work and takes all of it. False: stopping, and nothing is left to write. */
static bool take(struct journal *j, struct journal_input *in)
{
    bool go_on;

    pthread_mutex_lock(&j->lock);
    if (!has_work(j))
        wait_for_work(j);
    in->writes.head = j->inbox.head; /* only read, so its tail doesn't matter */
    write_list_init(&j->inbox);
    in->progress = j->progress;
    in->n_progress = j->n_progress;
    j->progress = j->progress_taken;
    j->progress_taken = in->progress;
    j->n_progress = 0;
    in->posted_seq = j->posted_seq;
    go_on = !j->stopping || in->writes.head != NULL;
    pthread_mutex_unlock(&j->lock);
    return go_on;
}

static void *run(void *arg)
{
    struct journal *j = arg;
    struct journal_input in;

    while (take(j, &in))
        journal_writer_turn(&j->writer, &in);
    /* The last marks and progress; what fails here is read again by the next replay. */
    journal_writer_turn(&j->writer, &in);
    return NULL;
}

/* ---- opening and closing ---- */

static void free_journal(struct journal *j)
{
    journal_writer_dispose(&j->writer);
    if (j->rows.ring != NULL)
        row_source_dispose(&j->rows);
    free(j->progress);
    free(j->progress_taken);
    journal_dir_close(&j->dir);
    pthread_cond_destroy(&j->wake);
    pthread_mutex_destroy(&j->lock);
    free(j);
}

static struct journal *alloc_journal(const struct journal_config *cfg)
{
    struct journal *j = calloc(1, sizeof *j);
    pthread_condattr_t attr;

    if (j == NULL)
        return NULL;
    j->dir.fd = j->dir.lock_fd = -1;
    j->progress = calloc(PROGRESS_MAX, sizeof *j->progress);
    j->progress_taken = calloc(PROGRESS_MAX, sizeof *j->progress_taken);
    write_list_init(&j->inbox);
    journal_writer_init(&j->writer, &j->dir, &j->rows, cfg->segment_bytes);
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->wake, &attr);
    pthread_condattr_destroy(&attr);
    if (j->progress != NULL && j->progress_taken != NULL)
        return j;
    free_journal(j);
    return NULL;
}

/* Takes over what replay found. */
static enum status adopt(struct journal *j, struct replay *r, const struct journal_config *cfg,
                         struct reason *why)
{
    size_t rows_in_memory = cfg->rows_in_memory != 0 ? cfg->rows_in_memory : ROW_SOURCE_MAX;
    uint64_t interrupted = r->live.count;
    enum status s =
        row_source_init(&j->rows, &j->dir, rows_in_memory, r->posted_seq, r->last_final_seq);

    if (s == ST_OK)
        s = journal_writer_start(&j->writer, r, cfg);
    if (s != ST_OK)
        return fail(why, s, "the journal can't be written: %s", status_text(s));
    j->posted_seq = r->posted_seq;
    j->replayed = r->n_unposted + interrupted;
    j->replayed_seq = j->rows.last_seq;
    if (j->replayed > 0)
        log_info(NULL, "journal.replayed", "interrupted=%" PRIu64 " unposted=%" PRIu64, interrupted,
                 j->replayed);
    return ST_OK;
}

static enum status open_and_replay(struct journal *j, const struct journal_config *cfg,
                                   struct reason *why)
{
    const struct journal_io *io = cfg->io != NULL ? cfg->io : &journal_io_real;
    struct replay r;
    enum status s = journal_dir_open(&j->dir, cfg->dir, io, why);

    if (s == ST_OK)
        s = replay_run(&j->dir, &r, why);
    if (s != ST_OK)
        return s;
    s = adopt(j, &r, cfg, why);
    replay_dispose(&r);
    return s;
}

enum status journal_open(const struct journal_config *cfg, struct journal **out, struct reason *why)
{
    struct journal *j = alloc_journal(cfg);
    enum status s;

    if (j == NULL)
        return fail(why, ST_NO_MEMORY, "%s", status_text(ST_NO_MEMORY));
    s = open_and_replay(j, cfg, why);
    if (s == ST_OK && pthread_create(&j->thread, NULL, run, j) != 0)
        s = fail(why, ST_NO_MEMORY, "no thread for the journal");
    if (s != ST_OK) {
        free_journal(j);
        return s;
    }
    pthread_setname_np(j->thread, "journal");
    *out = j;
    return ST_OK;
}

void journal_close(struct journal *j)
{
    pthread_mutex_lock(&j->lock);
    j->stopping = true;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
    free_journal(j);
}

/* ---- from other threads ---- */

void journal_submit(struct journal *j, struct billing_write *w)
{
    bool valid = w->kind == JOURNAL_WRITE_FINAL ? usage_final_is_valid(&w->record.final)
                                                : usage_admission_is_valid(&w->record.admission);

    if (!valid) {
        write_answer(w, ST_INVALID);
        return;
    }
    pthread_mutex_lock(&j->lock);
    write_list_add(&j->inbox, w);
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

void journal_progress(struct journal *j, const struct journal_progress *p)
{
    if (!journal_progress_is_valid(p))
        return;
    pthread_mutex_lock(&j->lock);
    if (j->n_progress < PROGRESS_MAX)
        j->progress[j->n_progress++] = *p;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

struct row_source *journal_rows(struct journal *j)
{
    return &j->rows;
}

void journal_posted(struct journal *j, uint64_t up_to_seq, uint64_t n_rows)
{
    atomic_fetch_sub(&j->writer.unposted, n_rows);
    pthread_mutex_lock(&j->lock);
    j->posted_seq = up_to_seq;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

void journal_stats(struct journal *j, struct journal_stats *out)
{
    out->admitted = atomic_load(&j->writer.admitted);
    out->finished = atomic_load(&j->writer.finished);
    out->commits = atomic_load(&j->writer.commits);
    out->commit_us_sum = atomic_load(&j->writer.commit_us_sum);
    out->unposted = atomic_load(&j->writer.unposted);
    out->replayed = j->replayed;
    out->replayed_seq = j->replayed_seq;
    out->is_ok = atomic_load(&j->writer.ok);
}
