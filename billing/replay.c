#include "billing/replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Sequences of final records that are not marked as posted, oldest first. */
struct finals {
    struct buf seqs; /* of uint64_t */
    size_t first;    /* bytes before it are posted */
};

static void finals_add(struct finals *f, uint64_t seq)
{
    buf_append(&f->seqs, &seq, sizeof seq);
}

static void finals_drop_up_to(struct finals *f, uint64_t posted_seq)
{
    uint64_t seq;

    for (; f->first < f->seqs.len; f->first += sizeof seq) {
        memcpy(&seq, f->seqs.data + f->first, sizeof seq);
        if (seq > posted_seq)
            return;
    }
    buf_clear(&f->seqs);
    f->first = 0;
}

static enum status apply_final(struct replay *r, struct replay_segment *seg, struct finals *finals,
                               const struct journal_record *rec)
{
    struct live *e = live_table_find(&r->live, &rec->final.id);

    /* Every segment begins with the open requests, so a final record's admission is always before
     * it.
     */
    if (e == NULL)
        return ST_CORRUPT;
    live_table_remove(&r->live, e);
    seg->last_final_seq = rec->seq;
    finals_add(finals, rec->seq);
    return finals->seqs.failed ? ST_NO_MEMORY : ST_OK;
}

static void apply_progress(struct replay *r, const struct journal_progress *p)
{
    struct live *e = live_table_find(&r->live, &p->id);

    if (e != NULL)
        e->progress = *p;
}

static enum status apply(struct replay *r, struct replay_segment *seg, struct finals *finals,
                         const struct journal_record *rec)
{
    switch (rec->type) {
    case JOURNAL_ADMISSION:
        return live_table_add(&r->live, &rec->admission) == NULL ? ST_NO_MEMORY : ST_OK;
    case JOURNAL_PROGRESS:
        apply_progress(r, &rec->progress);
        return ST_OK;
    case JOURNAL_FINAL:
        return apply_final(r, seg, finals, rec);
    case JOURNAL_POSTED:
        if (rec->posted_seq >= rec->seq)
            return ST_CORRUPT;
        if (rec->posted_seq > r->posted_seq)
            r->posted_seq = rec->posted_seq;
        finals_drop_up_to(finals, r->posted_seq);
        return ST_OK;
    }
    return ST_CORRUPT;
}

static enum status corrupt(struct reason *why, uint64_t number, size_t offset, const char *what)
{
    return fail(why, ST_CORRUPT, "journal segment %016" PRIx64 ".seg is damaged at offset %zu: %s",
                number, offset, what);
}

/* Reads v's records up to its end; a damaged place ends it with *damaged set. */
static enum status read_records(struct replay *r, struct journal_view *v,
                                struct replay_segment *seg, struct finals *finals, bool *damaged,
                                struct reason *why)
{
    struct journal_record rec;
    enum journal_scan scan;
    size_t at = v->pos;

    while ((scan = journal_next(v, &rec)) == SCAN_RECORD) {
        enum status s = apply(r, seg, finals, &rec);

        if (s == ST_CORRUPT)
            return corrupt(why, seg->number, at, "a record that does not fit those before it");
        if (s != ST_OK)
            return s;
        at = v->pos;
    }
    *damaged = scan == SCAN_DAMAGED;
    return ST_OK;
}

/* The last segment: what a crash left unfinished at its end is cut. */
static enum status end_last(struct replay *r, const struct journal_view *v, bool damaged,
                            uint64_t number, struct reason *why)
{
    if (damaged && !journal_tail_is_torn(v))
        return corrupt(why, number, v->pos, "what follows shows that it was whole");
    if (damaged)
        log_warn(NULL, "journal.torn_tail", "segment=%016" PRIx64 ".seg offset=%zu cut_bytes=%zu",
                 number, v->pos, v->len - v->pos);
    r->prev_end = v->pos;
    r->prev_seq = v->next_seq - 1;
    return ST_OK;
}

/* A segment with a successor: exactly the bytes and the sequence that the successor names. */
static enum status read_inner(struct replay *r, struct journal_view *v, struct replay_segment *seg,
                              const struct journal_head *next, struct finals *finals,
                              struct reason *why)
{
    bool damaged = false;
    enum status s;

    if (next->prev_end > v->len)
        return corrupt(why, seg->number, v->len, "it ends too early");
    if (next->prev_end < v->pos)
        return corrupt(why, seg->number + 1, 0, "its head does not fit the segment before");
    v->len = next->prev_end;
    s = read_records(r, v, seg, finals, &damaged, why);
    if (s != ST_OK)
        return s;
    if (damaged)
        return corrupt(why, seg->number, v->pos, "no valid record");
    if (next->prev_seq != v->next_seq - 1 || next->first_seq <= next->prev_seq)
        return corrupt(why, seg->number + 1, 0, "its sequence does not fit the segment before");
    return ST_OK;
}

static enum status read_segment(struct replay *r, const struct journal_dir *d, size_t i,
                                struct finals *finals, struct reason *why)
{
    struct replay_segment *seg = &r->segments[i];
    struct journal_head next;
    struct journal_view v;
    bool damaged = false;
    struct buf data;
    enum status s;

    buf_init(&data);
    s = journal_segment_load(d->fd, seg->number, 0, 0, &data, why);
    if (s != ST_OK)
        goto out;
    if (journal_view_init(&v, data.data, data.len) != ST_OK || v.head.number != seg->number ||
        v.head.first_seq == 0) {
        s = corrupt(why, seg->number, 0, "no valid head");
        goto out;
    }
    if (v.head.image_end > v.len) {
        s = corrupt(why, seg->number, v.len, "it ends too early");
        goto out;
    }
    if (i + 1 < r->n_segments) {
        s = journal_segment_head(d->fd, seg[1].number, &next, why);
        if (s == ST_OK)
            s = read_inner(r, &v, seg, &next, finals, why);
    } else {
        s = read_records(r, &v, seg, finals, &damaged, why);
        if (s == ST_OK)
            s = end_last(r, &v, damaged, seg->number, why);
    }
    r->next_seq = v.next_seq;
    if (seg->last_final_seq != 0)
        r->last_final_seq = seg->last_final_seq;
out:
    buf_dispose(&data);
    return s;
}

static enum status list_segments(struct replay *r, const struct journal_dir *d, struct reason *why)
{
    uint64_t *numbers = NULL;
    enum status s = journal_dir_list(d, &numbers, &r->n_segments, why);

    if (s != ST_OK)
        return s;
    r->segments = calloc(r->n_segments + 1, sizeof *r->segments);
    if (r->segments == NULL)
        s = ST_NO_MEMORY;
    for (size_t i = 0; s == ST_OK && i < r->n_segments; i++) {
        r->segments[i].number = numbers[i];
        if (i > 0 && numbers[i] != numbers[i - 1] + 1)
            s = fail(why, ST_CORRUPT, "journal segment %016" PRIx64 ".seg is missing",
                     numbers[i - 1] + 1);
    }
    if (s == ST_OK && r->n_segments > 0)
        r->next_number = numbers[r->n_segments - 1] + 1;
    free(numbers);
    return s;
}

enum status replay_run(const struct journal_dir *d, struct replay *out, struct reason *why)
{
    struct replay r = {.next_number = 1, .next_seq = 1};
    struct finals finals = {.first = 0};
    enum status s;

    buf_init(&finals.seqs);
    live_table_init(&r.live);
    s = list_segments(&r, d, why);
    for (size_t i = 0; s == ST_OK && i < r.n_segments; i++)
        s = read_segment(&r, d, i, &finals, why);
    r.n_unposted = (finals.seqs.len - finals.first) / sizeof(uint64_t);
    buf_dispose(&finals.seqs);
    if (s != ST_OK) {
        replay_dispose(&r);
        return s;
    }
    *out = r;
    return ST_OK;
}

void replay_dispose(struct replay *r)
{
    live_table_dispose(&r->live);
    free(r->segments);
    r->segments = NULL;
    r->n_segments = 0;
}
