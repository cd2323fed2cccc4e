#include "billing/journal_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "billing/journal_segments.h"

/* ---- one turn ---- */

static enum status accept_admission(struct journal_writer *j, const struct billing_admission *a)
{
    if (live_table_find(&j->live, &a->id) != NULL)
        return ST_CONFLICT;
    return live_table_add(&j->live, a) == NULL ? ST_NO_MEMORY : ST_OK;
}

static enum status accept_final(struct journal_writer *j, const struct billing_final *f)
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
 * answered, the rest is in `kept`. */
static void gather_writes(struct journal_writer *j, const struct write_list *l,
                          struct write_list *kept, bool *has_final)
{
    write_list_init(kept);
    *has_final = false;
    for (struct billing_write *w = l->head, *next; w != NULL; w = next) {
        bool is_final = w->kind == JOURNAL_WRITE_FINAL;
        enum status s = is_final ? accept_final(j, &w->record.final)
                                 : accept_admission(j, &w->record.admission);

        next = w->next;
        if (s != ST_OK) {
            write_answer(w, s);
            continue;
        }
        if (is_final)
            segment_put_final(j, j->end, live_table_find(&j->live, &w->record.final.id));
        else
            segment_put_admission(j, j->end, live_table_find(&j->live, &w->record.admission.id));
        *has_final |= is_final;
        write_list_add(kept, w);
    }
}

static void gather_progress(struct journal_writer *j, const struct journal_input *in)
{
    for (size_t i = 0; i < in->n_progress; i++) {
        const struct journal_progress *p = &in->progress[i];
        struct live *e = live_table_find(&j->live, &p->id);

        if (e == NULL || e->has_final)
            continue;
        e->progress = *p;
        segment_put_progress(j, j->end, p);
    }
}

static enum status write_out(struct journal_writer *j)
{
    enum status s;

    if (j->out.failed)
        return ST_NO_MEMORY;
    if (j->out.len == 0)
        return ST_OK;
    s = journal_segment_write(j->dir, j->fd, j->out.data, j->out.len, j->end);
    if (s == ST_OK)
        j->end += j->out.len;
    return s;
}

static enum status sync_segment(struct journal_writer *j)
{
    int64_t start_ns = clock_mono_ns();
    enum status s = journal_segment_sync(j->dir, j->fd);

    if (s != ST_OK)
        return s;
    j->durable = j->end;
    j->durable_seq = j->next_seq - 1;
    atomic_fetch_add(&j->commits, 1);
    atomic_fetch_add(&j->commit_us_sum, (uint64_t)(clock_mono_ns() - start_ns) / 1000);
    return ST_OK;
}

static void set_ok(struct journal_writer *j, bool ok, enum status s)
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
static void finish_writes(struct journal_writer *j, const struct write_list *l)
{
    for (const struct billing_write *w = l->head; w != NULL; w = w->next) {
        struct live *e;

        if (w->kind != JOURNAL_WRITE_FINAL)
            continue;
        e = live_table_find(&j->live, &w->record.final.id);
        if (e != NULL)
            segment_finish(j, e);
    }
}

static void answer_all(struct journal_writer *j, const struct write_list *l, enum status s)
{
    for (struct billing_write *w = l->head, *next; w != NULL; w = next) {
        next = w->next;
        if (w->kind == JOURNAL_WRITE_ADMISSION && s == ST_OK)
            atomic_fetch_add(&j->admitted, 1);
        write_answer(w, s);
    }
}

/* Admissions that the disk did not take are forgotten: their requests never reached the engine. */
static void forget_admissions(struct journal_writer *j, const struct write_list *l)
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
static enum status commit(struct journal_writer *j, const struct write_list *l, bool has_final)
{
    enum status s = write_out(j);

    if (s == ST_OK && has_final)
        s = sync_segment(j);
    if (s == ST_OK && has_final)
        finish_writes(j, l);
    return s;
}

/* What this turn wrote is safe either way. */
static void rotate(struct journal_writer *j, uint64_t posted_seq)
{
    enum status s = segment_begin(j, posted_seq);

    set_ok(j, s == ST_OK, s);
}

void journal_writer_turn(struct journal_writer *j, const struct journal_input *in)
{
    struct write_list l;
    enum status s = ST_IO;
    bool has_final;

    buf_clear(&j->out);
    gather_writes(j, &in->writes, &l, &has_final);
    gather_progress(j, in);
    if (in->posted_seq != j->posted_written)
        segment_put_posted(j, j->end, in->posted_seq);
    if (atomic_load(&j->ok)) {
        s = commit(j, &l, has_final);
        if (s == ST_OK)
            j->posted_written = in->posted_seq;
        set_ok(j, s == ST_OK, s);
    }
    if (s != ST_OK) {
        s = segment_begin(j, in->posted_seq);
        set_ok(j, s == ST_OK, s);
    }
    if (s != ST_OK)
        forget_admissions(j, &l);
    answer_all(j, &l, s);
    if (s == ST_OK && j->end >= j->full)
        rotate(j, in->posted_seq);
    segment_delete_posted(j, in->posted_seq);
}

/* ---- the start ---- */

/* Every request that the last process left open ends now, unless somebody holds it: with what its
 * last progress record says, at that record's time. */
static void interrupt_open(struct journal_writer *j, const struct journal_config *cfg)
{
    for (struct live *e = live_table_next(&j->live, NULL); e != NULL;
         e = live_table_next(&j->live, e)) {
        e->final = (struct billing_final){.id = e->admission.id,
                                          .admitted_at_us = e->admission.admitted_at_us,
                                          .ended_at_us = e->progress.at_us,
                                          .outcome = OUTCOME_INTERRUPTED,
                                          .prompt_tokens = e->progress.prompt_tokens,
                                          .cached_tokens = e->progress.cached_tokens,
                                          .output_tokens = e->progress.output_tokens,
                                          .ttft_us = -1};
        e->has_final =
            cfg->on_interrupted == NULL || !cfg->on_interrupted(cfg->arg, &e->admission, &e->final);
    }
}

void journal_writer_init(struct journal_writer *j, const struct journal_dir *dir,
                         struct row_source *rows, size_t segment_bytes)
{
    memset(j, 0, sizeof *j);
    j->dir = dir;
    j->rows = rows;
    j->segment_bytes = segment_bytes;
    j->fd = -1;
    live_table_init(&j->live);
    buf_init(&j->out);
    atomic_store(&j->ok, true);
}

void journal_writer_dispose(struct journal_writer *j)
{
    if (j->fd != -1)
        close(j->fd);
    live_table_dispose(&j->live);
    buf_dispose(&j->out);
    free(j->old);
}

enum status journal_writer_start(struct journal_writer *j, struct replay *r,
                                 const struct journal_config *cfg)
{
    enum status s;

    j->live = r->live;
    live_table_init(&r->live);
    j->old = r->segments;
    j->n_old = j->cap_old = r->n_segments;
    r->segments = NULL;
    j->number = r->next_number - 1;
    j->next_seq = r->next_seq;
    j->durable = r->prev_end;
    j->durable_seq = r->prev_seq;
    atomic_store(&j->unposted, r->n_unposted);
    random_bytes(&j->generation, sizeof j->generation);
    interrupt_open(j, cfg);
    s = segment_begin(j, r->posted_seq);
    if (s != ST_OK)
        return s;
    atomic_store(&j->finished, 0); /* by this process */
    segment_delete_posted(j, r->posted_seq);
    return ST_OK;
}
