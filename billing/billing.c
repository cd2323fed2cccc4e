#include "billing/billing.h"

#include <stdlib.h>

#include "base/clock.h"
#include "billing/journal.h"
#include "billing/poster.h"
#include "billing/prices.h"
#include "billing/usage_query.h"
#include "billing/usage_row.h"

#define SEGMENT_BYTES ((size_t)16 << 20)
/* Replay holds one segment in memory, and reads back none above JOURNAL_SEGMENT_MAX_BYTES. */
#define SEGMENT_BYTES_MAX ((size_t)256 << 20)

struct billing {
    struct journal *journal;
    struct prices prices;
    struct poster *poster;
    struct pg_pool *pool;
};

enum status billing_open(const struct billing_config *cfg, struct billing **out, struct reason *why)
{
    struct journal_config jc = {
        .dir = cfg->journal_dir,
        .segment_bytes = cfg->segment_bytes != 0 ? cfg->segment_bytes : SEGMENT_BYTES,
        .on_interrupted = cfg->on_interrupted,
        .arg = cfg->arg,
    };
    struct billing *b = calloc(1, sizeof *b);
    enum status s;

    if (b == NULL)
        return fail(why, ST_NO_MEMORY, "%s", status_text(ST_NO_MEMORY));
    if (jc.segment_bytes > SEGMENT_BYTES_MAX)
        jc.segment_bytes = SEGMENT_BYTES_MAX;
    b->pool = cfg->pool;
    prices_init(&b->prices);
    s = journal_open(&jc, &b->journal, why);
    if (s == ST_OK) {
        s = poster_start(cfg->conninfo, cfg->post_ms, b->journal, &b->prices, &b->poster);
        if (s != ST_OK)
            journal_close(b->journal);
    }
    if (s != ST_OK) {
        prices_dispose(&b->prices);
        free(b);
        return s;
    }
    *out = b;
    return ST_OK;
}

void billing_close(struct billing *b, int64_t deadline_ms)
{
    poster_stop(b->poster, deadline_ms);
    journal_close(b->journal);
    prices_dispose(&b->prices);
    free(b);
}

bool billing_is_ready(const struct billing *b)
{
    struct journal_stats j;

    journal_stats(b->journal, &j);
    return poster_is_ready(b->poster) && j.is_ok;
}

enum status billing_price(struct billing *b, const char *model, struct price *out)
{
    return prices_find(&b->prices, model, clock_wall_us(), out);
}

void billing_admit(struct billing *b, struct billing_write *w, const struct billing_admission *a)
{
    w->kind = JOURNAL_WRITE_ADMISSION;
    w->record.admission = *a;
    /* The one text that a client chooses freely. */
    usage_clean_text(w->record.admission.client_request_id);
    journal_submit(b->journal, w);
}

void billing_finish(struct billing *b, struct billing_write *w, const struct billing_final *f)
{
    w->kind = JOURNAL_WRITE_FINAL;
    w->record.final = *f;
    journal_submit(b->journal, w);
}

void billing_progress(struct billing *b, const struct id *id, int64_t prompt_tokens,
                      int64_t cached_tokens, int64_t output_tokens)
{
    struct journal_progress p = {.id = *id,
                                 .at_us = clock_wall_us(),
                                 .prompt_tokens = prompt_tokens,
                                 .cached_tokens = cached_tokens,
                                 .output_tokens = output_tokens};

    journal_progress(b->journal, &p);
}

void billing_stats(struct billing *b, struct billing_stats *out)
{
    struct journal_stats j;

    journal_stats(b->journal, &j);
    *out = (struct billing_stats){.admitted = j.admitted,
                                  .finished = j.finished,
                                  .posted = poster_posted(b->poster),
                                  .set_aside = poster_set_aside(b->poster),
                                  .replayed = j.replayed,
                                  .unposted = j.unposted,
                                  .commits = j.commits,
                                  .commit_us_sum = j.commit_us_sum,
                                  .journal_ok = j.is_ok,
                                  .postgres_ok = poster_is_ok(b->poster)};
}

enum status billing_usage(struct billing *b, struct usage_query *q)
{
    return usage_query_submit(b->pool, q, clock_wall_ms() / 1000);
}
