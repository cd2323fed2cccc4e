#include "billing/row_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum status row_source_init(struct row_source *s, const struct journal_dir *dir, size_t max,
                            uint64_t posted_seq, uint64_t last_seq)
{
    memset(s, 0, sizeof *s);
    s->ring = calloc(max, sizeof *s->ring);
    if (s->ring == NULL)
        return ST_NO_MEMORY;
    s->dir = dir;
    s->max = max;
    s->taken_seq = posted_seq;
    s->last_seq = last_seq;
    s->on_disk = last_seq > posted_seq;
    pthread_mutex_init(&s->lock, NULL);
    buf_init(&s->data);
    live_table_init(&s->admissions);
    return ST_OK;
}

static void close_segment(struct row_source *s)
{
    live_table_dispose(&s->admissions);
    buf_dispose(&s->data);
    s->is_open = false;
}

void row_source_dispose(struct row_source *s)
{
    close_segment(s);
    pthread_mutex_destroy(&s->lock);
    free(s->ring);
}

void row_source_push(struct row_source *s, const struct usage_row *row)
{
    pthread_mutex_lock(&s->lock);
    s->last_seq = row->seq;
    if (!s->on_disk && s->n < s->max)
        s->ring[(s->first + s->n++) % s->max] = *row;
    else
        s->on_disk = true;
    pthread_mutex_unlock(&s->lock);
}

/* ---- reading the journal again ---- */

/* Takes in what was written since. *has_next: another segment follows, so this one is complete and
 * ends where that one's head says. */
static enum status refresh(struct row_source *s, bool *has_next, struct reason *why)
{
    struct journal_head next;
    enum status st;
    bool found = journal_segment_exists(s->dir->fd, s->number + 1);

    st = journal_segment_load(s->dir->fd, s->number, s->data.len, 0, &s->data, why);
    if (st == ST_OK && found)
        st = journal_segment_head(s->dir->fd, s->number + 1, &next, why);
    if (st != ST_OK)
        return st;
    s->view.data = (const uint8_t *)s->data.data;
    s->view.len = s->data.len;
    if (found && next.prev_end < s->view.len)
        s->view.len = next.prev_end;
    *has_next = found;
    return ST_OK;
}

static enum status open_segment(struct row_source *s, uint64_t number, struct reason *why)
{
    enum status st;
    bool has_next;

    close_segment(s);
    st = journal_segment_load(s->dir->fd, number, 0, 0, &s->data, why);
    if (st != ST_OK)
        return st;
    if (journal_view_init(&s->view, s->data.data, s->data.len) != ST_OK)
        return fail(why, ST_CORRUPT, "journal segment %016" PRIx64 ".seg: no valid head", number);
    s->number = number;
    s->is_open = true;
    return refresh(s, &has_next, why);
}

/* Opens the newest segment that begins before the next row: a final record's own segment holds its
 * admission too. */
static enum status open_first(struct row_source *s, struct reason *why)
{
    uint64_t *numbers = NULL, chosen;
    struct journal_head head;
    size_t n;
    enum status st = journal_dir_list(s->dir, &numbers, &n, why);

    if (st == ST_OK && n == 0)
        st = fail(why, ST_CORRUPT, "the journal has no segment");
    chosen = st == ST_OK ? numbers[0] : 0;
    for (size_t i = 1; st == ST_OK && i < n; i++) {
        st = journal_segment_head(s->dir->fd, numbers[i], &head, why);
        if (st != ST_OK || head.first_seq > s->taken_seq + 1)
            break;
        chosen = numbers[i];
    }
    free(numbers);
    return st == ST_OK ? open_segment(s, chosen, why) : st;
}

/* At the end of what is known of this segment: more of it, or the next one. */
static enum status advance(struct row_source *s, struct reason *why)
{
    size_t before = s->view.len;
    bool has_next;
    enum status st = refresh(s, &has_next, why);

    if (st != ST_OK || s->view.len > before)
        return st;
    if (has_next && s->view.pos == s->view.len)
        return open_segment(s, s->number + 1, why);
    return fail(why, ST_CORRUPT, "journal segment %016" PRIx64 ".seg can't be read at offset %zu",
                s->number, s->view.pos);
}

static enum status use_record(struct row_source *s, const struct journal_record *rec,
                              struct usage_row *row, bool *made, struct reason *why)
{
    struct live *e;

    *made = false;
    if (rec->type == JOURNAL_ADMISSION)
        return live_table_add(&s->admissions, &rec->admission) == NULL ? ST_NO_MEMORY : ST_OK;
    if (rec->type != JOURNAL_FINAL)
        return ST_OK;
    e = live_table_find(&s->admissions, &rec->final.id);
    if (e == NULL)
        return fail(why, ST_CORRUPT,
                    "journal segment %016" PRIx64 ".seg: a final record without admission",
                    s->number);
    *made = rec->seq > s->taken_seq;
    if (*made)
        *row = (struct usage_row){.seq = rec->seq, .admission = e->admission, .final = rec->final};
    live_table_remove(&s->admissions, e);
    return ST_OK;
}

static enum status read_rows(struct row_source *s, uint64_t up_to, struct usage_row *rows,
                             size_t max, size_t *n, struct reason *why)
{
    struct journal_record rec;
    bool made, has_next;
    enum status st = s->is_open ? refresh(s, &has_next, why) : ST_NOT_FOUND;

    for (;;) {
        /* Not open yet, or deleted since, because all its rows were posted. */
        if (st == ST_NOT_FOUND)
            st = open_first(s, why);
        if (st != ST_OK || *n == max || s->taken_seq >= up_to)
            break;
        if (journal_next(&s->view, &rec) != SCAN_RECORD) {
            st = advance(s, why);
            continue;
        }
        st = use_record(s, &rec, &rows[*n], &made, why);
        if (st == ST_OK && made) {
            s->taken_seq = rec.seq;
            ++*n;
        }
    }
    if (st != ST_OK)
        close_segment(s);
    return st;
}

/* ---- */

static size_t take_from_ring(struct row_source *s, struct usage_row *rows, size_t max)
{
    size_t n = 0;

    for (; n < max && s->n > 0; n++, s->n--) {
        rows[n] = s->ring[s->first];
        s->first = (s->first + 1) % s->max;
    }
    if (n > 0)
        s->taken_seq = rows[n - 1].seq;
    return n;
}

enum status row_source_take(struct row_source *s, struct usage_row *rows, size_t max, size_t *n,
                            struct reason *why)
{
    uint64_t up_to;
    bool on_disk;
    enum status st;

    pthread_mutex_lock(&s->lock);
    *n = take_from_ring(s, rows, max);
    on_disk = s->on_disk;
    up_to = s->last_seq;
    pthread_mutex_unlock(&s->lock);
    if (*n > 0 || !on_disk)
        return ST_OK;

    st = read_rows(s, up_to, rows, max, n, why);
    if (st != ST_OK) {
        /* Rows that were read before the failure are good; the next call meets it again. */
        return *n > 0 ? ST_OK : st;
    }
    if (s->taken_seq < up_to)
        return ST_OK;
    pthread_mutex_lock(&s->lock);
    s->on_disk = s->last_seq != up_to;
    on_disk = s->on_disk;
    pthread_mutex_unlock(&s->lock);
    if (!on_disk)
        close_segment(s);
    return ST_OK;
}
