#include "billing/journal_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

/* ---- lists of writes ---- */

void write_list_init(struct write_list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

void write_list_add(struct write_list *l, struct billing_write *w)
{
    w->next = NULL;
    *l->tail = w;
    l->tail = &w->next;
}

static void on_write_done(struct loop_message *m)
{
    struct billing_write *w = CONTAINER_OF(m, struct billing_write, message);

    w->on_done(w);
}

void write_answer(struct billing_write *w, enum status s)
{
    w->status = s;
    w->message.on_message = on_write_done;
    loop_post(w->loop, &w->message);
}

/* ---- records ---- */

/* base 0: a new segment's image, of which nothing is durable yet. */
static struct journal_stamp next_stamp(struct journal_writer *j, size_t base)
{
    return (struct journal_stamp){
        .generation = j->generation, .seq = j->next_seq++, .durable = base == 0 ? 0 : j->durable};
}

static void put_final(struct journal_writer *j, size_t base, struct live *e)
{
    struct journal_stamp s = next_stamp(j, base);

    e->final_seq = s.seq;
    journal_put_final(&j->out, base, &s, &e->final);
}

static void put_admission(struct journal_writer *j, size_t base, const struct live *e)
{
    struct journal_stamp s = next_stamp(j, base);

    journal_put_admission(&j->out, base, &s, &e->admission);
}

static void put_progress(struct journal_writer *j, size_t base, const struct journal_progress *p)
{
    struct journal_stamp s = next_stamp(j, base);

    journal_put_progress(&j->out, base, &s, p);
}

static void put_posted(struct journal_writer *j, size_t base, uint64_t seq)
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
static void put_image(struct journal_writer *j, uint64_t posted_seq)
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

static bool has_room_for_old(struct journal_writer *j)
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

static void retire_segment(struct journal_writer *j)
{
    if (j->fd == -1)
        return;
    close(j->fd);
    j->old[j->n_old++] =
        (struct replay_segment){.number = j->number, .last_final_seq = j->last_final_seq};
    j->fd = -1;
}

/* Final records that the disk has now become rows. */
static void finish(struct journal_writer *j, struct live *e)
{
    struct usage_row row = {.seq = e->final_seq, .admission = e->admission, .final = e->final};

    j->last_final_seq = e->final_seq;
    live_table_remove(&j->live, e);
    atomic_fetch_add(&j->finished, 1);
    atomic_fetch_add(&j->unposted, 1);
    row_source_push(j->rows, &row);
}

static void finish_image(struct journal_writer *j)
{
    struct live *next;

    for (struct live *e = live_table_next(&j->live, NULL); e != NULL; e = next) {
        next = live_table_next(&j->live, e);
        if (e->has_final)
            finish(j, e);
    }
}

static enum status new_segment(struct journal_writer *j, uint64_t posted_seq)
{
    uint64_t seq_before = j->next_seq;
    enum status s = ST_NO_MEMORY;
    int fd = -1;

    put_image(j, posted_seq);
    if (!j->out.failed && has_room_for_old(j))
        s = journal_segment_create(j->dir, j->number + 1, j->out.data, j->out.len, &fd);
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

static void delete_posted(struct journal_writer *j, uint64_t posted_seq)
{
    size_t n = 0;

    while (n < j->n_old && j->old[n].last_final_seq <= posted_seq)
        journal_segment_delete(j->dir, j->old[n++].number);
    j->n_old -= n;
    memmove(j->old, j->old + n, j->n_old * sizeof j->old[0]);
}

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
            put_final(j, j->end, live_table_find(&j->live, &w->record.final.id));
        else
            put_admission(j, j->end, live_table_find(&j->live, &w->record.admission.id));
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
        put_progress(j, j->end, p);
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
            finish(j, e);
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
    enum status s = new_segment(j, posted_seq);

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
        put_posted(j, j->end, in->posted_seq);
    if (atomic_load(&j->ok)) {
        s = commit(j, &l, has_final);
        if (s == ST_OK)
            j->posted_written = in->posted_seq;
        set_ok(j, s == ST_OK, s);
    }
    if (s != ST_OK) {
        s = new_segment(j, in->posted_seq);
        set_ok(j, s == ST_OK, s);
    }
    if (s != ST_OK)
        forget_admissions(j, &l);
    answer_all(j, &l, s);
    if (s == ST_OK && j->end >= j->full)
        rotate(j, in->posted_seq);
    delete_posted(j, in->posted_seq);
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
    s = new_segment(j, r->posted_seq);
    if (s != ST_OK)
        return s;
    atomic_store(&j->finished, 0); /* by this process */
    delete_posted(j, r->posted_seq);
    return ST_OK;
}
