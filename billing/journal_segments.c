#include "billing/journal_segments.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- records ---- */

/* base 0: a new segment's image, of which nothing is durable yet. */
static struct journal_stamp next_stamp(struct journal_writer *j, size_t base)
{
    return (struct journal_stamp){
        .generation = j->generation, .seq = j->next_seq++, .durable = base == 0 ? 0 : j->durable};
}

void segment_put_final(struct journal_writer *j, size_t base, struct live *e)
{
    struct journal_stamp s = next_stamp(j, base);

    e->final_seq = s.seq;
    journal_put_final(&j->out, base, &s, &e->final);
}

void segment_put_admission(struct journal_writer *j, size_t base, const struct live *e)
{
    struct journal_stamp s = next_stamp(j, base);

    journal_put_admission(&j->out, base, &s, &e->admission);
}

void segment_put_progress(struct journal_writer *j, size_t base, const struct journal_progress *p)
{
    struct journal_stamp s = next_stamp(j, base);

    journal_put_progress(&j->out, base, &s, p);
}

void segment_put_posted(struct journal_writer *j, size_t base, uint64_t seq)
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
    segment_put_posted(j, 0, posted_seq);
    for (struct live *e = live_table_next(&j->live, NULL); e != NULL;
         e = live_table_next(&j->live, e)) {
        segment_put_admission(j, 0, e);
        if (has_progress(e))
            segment_put_progress(j, 0, &e->progress);
        if (e->has_final)
            segment_put_final(j, 0, e);
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
void segment_finish(struct journal_writer *j, struct live *e)
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
            segment_finish(j, e);
    }
}

enum status segment_begin(struct journal_writer *j, uint64_t posted_seq)
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

void segment_delete_posted(struct journal_writer *j, uint64_t posted_seq)
{
    size_t n = 0;

    while (n < j->n_old && j->old[n].last_final_seq <= posted_seq)
        journal_segment_delete(j->dir, j->old[n++].number);
    j->n_old -= n;
    memmove(j->old, j->old + n, j->n_old * sizeof j->old[0]);
}
