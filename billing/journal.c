#include "billing/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "billing/replay.h"

/* How often a journal that could not write tries again by itself. */
#define RETRY_MS 500
/* Progress records that wait for the thread: one per open request and turn at most. */
#define PROGRESS_MAX 4096

struct write_list {
    struct billing_write *head, **tail;
};

struct progress_list {
    struct journal_progress items[PROGRESS_MAX];
    size_t n;
};

struct journal {
    struct journal_dir dir;
    size_t segment_bytes;
    struct row_source rows;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock: */
    struct write_list inbox;
    struct progress_list *progress;
    uint64_t posted_seq;
    bool stopping;

    /* The thread's own: */
    struct progress_list *progress_taken;
    struct live_table live;
    struct replay_segment *old; /* complete segments, oldest first */
    size_t n_old, cap_old;
    int fd; /* the segment that is written, -1: none */
    uint64_t number, generation, next_seq;
    uint64_t last_final_seq; /* in this segment */
    size_t end;              /* its bytes */
    size_t durable;          /* of these, known to be on the disk; a record ends here */
    uint64_t durable_seq;
    size_t full; /* a new segment is due at this size */
    uint64_t posted_written;
    struct buf out;

    atomic_uint_least64_t admitted, finished, commits, commit_us_sum, unposted;
    uint64_t replayed, replayed_seq;
    atomic_bool ok;
};

static void list_init(struct write_list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

static void list_add(struct write_list *l, struct billing_write *w)
{
    w->next = NULL;
    *l->tail = w;
    l->tail = &w->next;
}

static struct billing_write *list_pop(struct write_list *l)
{
    struct billing_write *w = l->head;

    if (w == NULL)
        return NULL;
    l->head = w->next;
    if (l->head == NULL)
        l->tail = &l->head;
    return w;
}

static void on_write_done(struct loop_message *m)
{
    struct billing_write *w = CONTAINER_OF(m, struct billing_write, message);

    w->on_done(w);
}

static void answer(struct billing_write *w, enum status s)
{
    w->status = s;
    w->message.on_message = on_write_done;
    loop_post(w->loop, &w->message);
}

/* ---- records ---- */

/* base 0: a new segment's image, of which nothing is durable yet. */
static struct journal_stamp next_stamp(struct journal *j, size_t base)
{
    return (struct journal_stamp){
        .generation = j->generation, .seq = j->next_seq++, .durable = base == 0 ? 0 : j->durable};
}

static void put_final(struct journal *j, size_t base, struct live *e)
{
    struct journal_stamp s = next_stamp(j, base);

    e->final_seq = s.seq;
    journal_put_final(&j->out, base, &s, &e->final);
}

static void put_admission(struct journal *j, size_t base, const struct live *e)
{
    struct journal_stamp s = next_stamp(j, base);

    journal_put_admission(&j->out, base, &s, &e->admission);
}

static void put_progress(struct journal *j, size_t base, const struct journal_progress *p)
{
    struct journal_stamp s = next_stamp(j, base);

    journal_put_progress(&j->out, base, &s, p);
}

static void put_posted(struct journal *j, size_t base, uint64_t seq)
{
    struct journal_stamp s = next_stamp(j, base);

    journal_put_posted(&j->out, base, &s, seq);
}

static bool has_progress(const struct live *e)
{
    return e->progress.prompt_tokens > 0 || e->progress.output_tokens > 0;
}

/* ---- a new segment ---- */

/* Everything that is open, into `out`; the head comes last, because it says where the rest ends. */
static void put_image(struct journal *j, uint64_t posted_seq)
{
    struct journal_head head = {.generation = j->generation,
                                .number = j->number + 1,
                                .first_seq = j->next_seq,
                                .prev_end = j->durable,
                                .prev_seq = j->durable_seq};
    struct buf front;

    buf_init(&front);
    buf_clear(&j->out);
    journal_put_head(&j->out, &head);
    put_posted(j, 0, posted_seq);
    for (struct live *e = live_table_next(&j->live, NULL); e != NULL;
         e = live_table_next(&j->live, e)) {
        put_admission(j, 0, e);
        if (has_progress(e))
            put_progress(j, 0, &e->progress);
        if (e->has_final)
            put_final(j, 0, e);
    }
    head.image_end = j->out.len;
    journal_put_head(&front, &head);
    if (front.failed)
        j->out.failed = true;
    if (!j->out.failed)
        memcpy(j->out.data, front.data, front.len);
    buf_dispose(&front);
}

static bool has_room_for_old(struct journal *j)
{
    size_t cap = j->cap_old == 0 ? 16 : 2 * j->cap_old;
    struct replay_segment *p;

    if (j->n_old < j->cap_old)
        return true;
    p = realloc(j->old, cap * sizeof *p);
    if (p == NULL)
        return false;
    j->old = p;
    j->cap_old = cap;
    return true;
}

static void retire_segment(struct journal *j)
{
    if (j->fd == -1)
        return;
    close(j->fd);
    j->old[j->n_old++] =
        (struct replay_segment){.number = j->number, .last_final_seq = j->last_final_seq};
    j->fd = -1;
}

/* Final records that the disk has now become rows. */
static void finish(struct journal *j, struct live *e)
{
    struct usage_row row = {.seq = e->final_seq, .admission = e->admission, .final = e->final};

    j->last_final_seq = e->final_seq;
    live_table_remove(&j->live, e);
    atomic_fetch_add(&j->finished, 1);
    atomic_fetch_add(&j->unposted, 1);
    row_source_push(&j->rows, &row);
}

static void finish_image(struct journal *j)
{
    struct live *next;

    for (struct live *e = live_table_next(&j->live, NULL); e != NULL; e = next) {
        next = live_table_next(&j->live, e);
        if (e->has_final)
            finish(j, e);
    }
}

static enum status new_segment(struct journal *j, uint64_t posted_seq)
{
    uint64_t seq_before = j->next_seq;
    enum status s = ST_NO_MEMORY;
    int fd = -1;

    put_image(j, posted_seq);
    if (!j->out.failed && has_room_for_old(j))
        s = journal_segment_create(&j->dir, j->number + 1, j->out.data, j->out.len, &fd);
    if (s != ST_OK) {
        j->next_seq = seq_before;
        return s;
    }
    retire_segment(j);
    j->fd = fd;
    j->number++;
    j->last_final_seq = 0;
    j->end = j->durable = j->out.len;
    j->durable_seq = j->next_seq - 1;
    /* Twice the open requests at least, or a full house would fill segment after segment. */
    j->full = j->segment_bytes > 2 * j->end ? j->segment_bytes : 2 * j->end;
    j->posted_written = posted_seq;
    finish_image(j);
    return ST_OK;
}

static void delete_posted(struct journal *j, uint64_t posted_seq)
{
    size_t n = 0;

    while (n < j->n_old && j->old[n].last_final_seq <= posted_seq)
        journal_segment_delete(&j->dir, j->old[n++].number);
    j->n_old -= n;
    memmove(j->old, j->old + n, j->n_old * sizeof j->old[0]);
}

/* ---- one turn ---- */

static enum status accept_admission(struct journal *j, const struct billing_admission *a)
{
    if (live_table_find(&j->live, &a->id) != NULL)
        return ST_CONFLICT;
    return live_table_add(&j->live, a) == NULL ? ST_NO_MEMORY : ST_OK;
}

static enum status accept_final(struct journal *j, const struct billing_final *f)
{
    struct live *e = live_table_find(&j->live, &f->id);

    if (e == NULL)
        return ST_NOT_FOUND;
    if (e->has_final)
        return ST_CONFLICT;
    e->final = *f;
    e->final.admitted_at_us = e->admission.admitted_at_us;
    e->has_final = true;
    return ST_OK;
}

/* Takes the writes into the table of open requests and their records into `out`; what is refused is
 * answered and leaves the list. */
static void gather_writes(struct journal *j, struct write_list *l, bool *has_final)
{
    struct write_list kept;
    struct billing_write *w;

    list_init(&kept);
    *has_final = false;
    while ((w = list_pop(l)) != NULL) {
        bool is_final = w->kind == JOURNAL_WRITE_FINAL;
        enum status s = is_final ? accept_final(j, &w->record.final)
                                 : accept_admission(j, &w->record.admission);

        if (s != ST_OK) {
            answer(w, s);
            continue;
        }
        if (is_final)
            put_final(j, j->end, live_table_find(&j->live, &w->record.final.id));
        else
            put_admission(j, j->end, live_table_find(&j->live, &w->record.admission.id));
        *has_final |= is_final;
        list_add(&kept, w);
    }
    *l = kept;
    if (l->head == NULL)
        l->tail = &l->head;
}

static void gather_progress(struct journal *j)
{
    for (size_t i = 0; i < j->progress_taken->n; i++) {
        const struct journal_progress *p = &j->progress_taken->items[i];
        struct live *e = live_table_find(&j->live, &p->id);

        if (e == NULL || e->has_final)
            continue;
        e->progress = *p;
        put_progress(j, j->end, p);
    }
    j->progress_taken->n = 0;
}

static enum status write_out(struct journal *j)
{
    enum status s;

    if (j->out.failed)
        return ST_NO_MEMORY;
    if (j->out.len == 0)
        return ST_OK;
    s = journal_segment_write(&j->dir, j->fd, j->out.data, j->out.len, j->end);
    if (s == ST_OK)
        j->end += j->out.len;
    return s;
}

static enum status sync_segment(struct journal *j)
{
    int64_t start_ns = clock_mono_ns();
    enum status s = journal_segment_sync(&j->dir, j->fd);

    if (s != ST_OK)
        return s;
    j->durable = j->end;
    j->durable_seq = j->next_seq - 1;
    atomic_fetch_add(&j->commits, 1);
    atomic_fetch_add(&j->commit_us_sum, (uint64_t)(clock_mono_ns() - start_ns) / 1000);
    return ST_OK;
}

static void set_ok(struct journal *j, bool ok, enum status s)
{
    if (atomic_exchange(&j->ok, ok) == ok)
        return;
    if (ok)
        log_info(NULL, "journal.recovered", "segment=%016" PRIx64, j->number);
    else
        log_error(NULL, "journal.failed", "segment=%016" PRIx64 " status=%s", j->number,
                  status_name(s));
}

/* Rows of the final records of this turn, in the order of their sequence. After a new segment they
 * are rows already. */
static void finish_writes(struct journal *j, const struct write_list *l)
{
    for (const struct billing_write *w = l->head; w != NULL; w = w->next) {
        struct live *e;

        if (w->kind != JOURNAL_WRITE_FINAL)
            continue;
        e = live_table_find(&j->live, &w->record.final.id);
        if (e != NULL)
            finish(j, e);
    }
}

static void answer_all(struct journal *j, struct write_list *l, enum status s)
{
    struct billing_write *w;

    while ((w = list_pop(l)) != NULL) {
        if (w->kind == JOURNAL_WRITE_ADMISSION && s == ST_OK)
            atomic_fetch_add(&j->admitted, 1);
        answer(w, s);
    }
}

/* Admissions that the disk did not take are forgotten: their requests never reached the engine. */
static void forget_admissions(struct journal *j, const struct write_list *l)
{
    for (const struct billing_write *w = l->head; w != NULL; w = w->next) {
        struct live *e = w->kind == JOURNAL_WRITE_ADMISSION
                             ? live_table_find(&j->live, &w->record.admission.id)
                             : NULL;

        if (e != NULL)
            live_table_remove(&j->live, e);
    }
}

/* The usual way: one write, one sync when a final record is among it. */
static enum status commit(struct journal *j, const struct write_list *l, bool has_final)
{
    enum status s = write_out(j);

    if (s == ST_OK && has_final)
        s = sync_segment(j);
    if (s == ST_OK && has_final)
        finish_writes(j, l);
    return s;
}

/* What this turn wrote is safe either way. */
static void rotate(struct journal *j, uint64_t posted_seq)
{
    enum status s = new_segment(j, posted_seq);

    set_ok(j, s == ST_OK, s);
}

static void turn(struct journal *j, struct write_list *l, uint64_t posted_seq)
{
    enum status s = ST_IO;
    bool has_final;

    buf_clear(&j->out);
    gather_writes(j, l, &has_final);
    gather_progress(j);
    if (posted_seq != j->posted_written)
        put_posted(j, j->end, posted_seq);
    if (atomic_load(&j->ok)) {
        s = commit(j, l, has_final);
        if (s == ST_OK)
            j->posted_written = posted_seq;
        set_ok(j, s == ST_OK, s);
    }
    if (s != ST_OK) {
        s = new_segment(j, posted_seq);
        set_ok(j, s == ST_OK, s);
    }
    if (s != ST_OK)
        forget_admissions(j, l);
    answer_all(j, l, s);
    if (s == ST_OK && j->end >= j->full)
        rotate(j, posted_seq);
    delete_posted(j, posted_seq);
}

/* ---- the thread ---- */

static void wait_for_work(struct journal *j)
{
    struct timespec until;

    if (atomic_load(&j->ok)) {
        pthread_cond_wait(&j->wake, &j->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += RETRY_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&j->wake, &j->lock, &until);
}

/* Waits for work and takes all of it. False: stopping, and nothing is left. */
static bool take(struct journal *j, struct write_list *l, uint64_t *posted_seq)
{
    struct progress_list *p;
    bool has_mark, go_on;

    pthread_mutex_lock(&j->lock);
    /* A mark that can't be written is no reason to try without pause. */
    has_mark = j->posted_seq != j->posted_written && atomic_load(&j->ok);
    if (j->inbox.head == NULL && j->progress->n == 0 && !has_mark && !j->stopping)
        wait_for_work(j);
    list_init(l);
    if (j->inbox.head != NULL) {
        *l = j->inbox;
        list_init(&j->inbox);
    }
    p = j->progress;
    j->progress = j->progress_taken;
    j->progress_taken = p;
    *posted_seq = j->posted_seq;
    go_on = !j->stopping || l->head != NULL;
    pthread_mutex_unlock(&j->lock);
    return go_on;
}

static void *run(void *arg)
{
    struct journal *j = arg;
    struct write_list l;
    uint64_t posted_seq;

    while (take(j, &l, &posted_seq))
        turn(j, &l, posted_seq);
    /* The last marks and progress; what fails here is read again by the next replay. */
    turn(j, &l, posted_seq);
    return NULL;
}

/* ---- opening and closing ---- */

/* Every request that the last process left open ends now: with what its last progress record says,
 * at that record's time. */
static void interrupt_open(struct journal *j)
{
    for (struct live *e = live_table_next(&j->live, NULL); e != NULL;
         e = live_table_next(&j->live, e)) {
        e->has_final = true;
        e->final = (struct billing_final){.id = e->admission.id,
                                          .admitted_at_us = e->admission.admitted_at_us,
                                          .ended_at_us = e->progress.at_us,
                                          .outcome = OUTCOME_INTERRUPTED,
                                          .prompt_tokens = e->progress.prompt_tokens,
                                          .output_tokens = e->progress.output_tokens,
                                          .ttft_us = -1};
    }
}

/* Takes over what replay found; r is empty afterwards. */
static enum status adopt(struct journal *j, struct replay *r, size_t rows_in_memory)
{
    enum status s =
        row_source_init(&j->rows, &j->dir, rows_in_memory, r->posted_seq, r->last_final_seq);

    if (s != ST_OK)
        return s;
    j->live = r->live;
    live_table_init(&r->live);
    j->old = r->segments;
    j->n_old = j->cap_old = r->n_segments;
    r->segments = NULL;
    j->number = r->next_number - 1;
    j->next_seq = r->next_seq;
    j->durable = r->prev_end;
    j->durable_seq = r->prev_seq;
    j->posted_seq = r->posted_seq;
    j->replayed = r->n_unposted + j->live.count;
    atomic_store(&j->unposted, r->n_unposted);
    return ST_OK;
}

static enum status start_generation(struct journal *j, struct reason *why)
{
    uint64_t interrupted = j->live.count;
    enum status s;

    random_bytes(&j->generation, sizeof j->generation);
    interrupt_open(j);
    s = new_segment(j, j->posted_seq);
    if (s != ST_OK)
        return fail(why, s, "the journal can't be written: %s", status_text(s));
    atomic_store(&j->finished, 0);
    j->replayed_seq = j->rows.last_seq;
    delete_posted(j, j->posted_seq);
    if (j->replayed > 0)
        log_info(NULL, "journal.replayed", "interrupted=%" PRIu64 " unposted=%" PRIu64, interrupted,
                 j->replayed);
    return ST_OK;
}

static void free_journal(struct journal *j)
{
    if (j->fd != -1)
        close(j->fd);
    if (j->rows.ring != NULL)
        row_source_dispose(&j->rows);
    live_table_dispose(&j->live);
    buf_dispose(&j->out);
    free(j->old);
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
    j->fd = j->dir.fd = j->dir.lock_fd = -1;
    j->segment_bytes = cfg->segment_bytes;
    j->progress = calloc(1, sizeof *j->progress);
    j->progress_taken = calloc(1, sizeof *j->progress_taken);
    list_init(&j->inbox);
    buf_init(&j->out);
    live_table_init(&j->live);
    atomic_store(&j->ok, true);
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

enum status journal_open(const struct journal_config *cfg, struct journal **out, struct reason *why)
{
    const struct journal_io *io = cfg->io != NULL ? cfg->io : &journal_io_real;
    size_t rows = cfg->rows_in_memory != 0 ? cfg->rows_in_memory : ROW_SOURCE_MAX;
    struct journal *j = alloc_journal(cfg);
    struct replay r;
    enum status s;

    if (j == NULL)
        return ST_NO_MEMORY;
    s = journal_dir_open(&j->dir, cfg->dir, io, why);
    if (s == ST_OK)
        s = replay_run(&j->dir, &r, why);
    if (s == ST_OK) {
        s = adopt(j, &r, rows);
        replay_dispose(&r);
    }
    if (s == ST_OK)
        s = start_generation(j, why);
    if (s == ST_OK && pthread_create(&j->thread, NULL, run, j) != 0)
        s = ST_NO_MEMORY;
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
        answer(w, ST_INVALID);
        return;
    }
    pthread_mutex_lock(&j->lock);
    list_add(&j->inbox, w);
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

void journal_progress(struct journal *j, const struct journal_progress *p)
{
    pthread_mutex_lock(&j->lock);
    if (j->progress->n < PROGRESS_MAX)
        j->progress->items[j->progress->n++] = *p;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

struct row_source *journal_rows(struct journal *j)
{
    return &j->rows;
}

void journal_posted(struct journal *j, uint64_t up_to_seq, uint64_t n_rows)
{
    atomic_fetch_sub(&j->unposted, n_rows);
    pthread_mutex_lock(&j->lock);
    j->posted_seq = up_to_seq;
    pthread_cond_signal(&j->wake);
    pthread_mutex_unlock(&j->lock);
}

void journal_stats(struct journal *j, struct journal_stats *out)
{
    out->admitted = atomic_load(&j->admitted);
    out->finished = atomic_load(&j->finished);
    out->commits = atomic_load(&j->commits);
    out->commit_us_sum = atomic_load(&j->commit_us_sum);
    out->unposted = atomic_load(&j->unposted);
    out->replayed = j->replayed;
    out->replayed_seq = j->replayed_seq;
    out->is_ok = atomic_load(&j->ok);
}
