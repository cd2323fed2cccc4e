#include "billing/usage_insert.h"

#include <string.h>

#include "base/size.h"

/* The row's text comes as JSON of usage_row_put_json; the two stamps travel as text, because a
 * number of seconds would be a float. Posting again changes nothing. */
static const char insert_sql[] =
    "INSERT INTO usage_events"
    " (id, admitted_at, ended_at, tenant_id, project_id, key_id, model, endpoint,"
    "  client_request_id, stream, outcome, finish_reason, prompt_tokens, cached_tokens,"
    "  output_tokens, ttft_us, price_id, currency, cost_nanos) "
    "SELECT id, admitted_at, ended_at, tenant_id, project_id, key_id, model, endpoint,"
    "       client_request_id, stream, outcome, finish_reason, prompt_tokens, cached_tokens,"
    "       output_tokens, ttft_us, price_id, currency, cost_nanos"
    "  FROM jsonb_to_recordset($1::jsonb) AS r("
    "       id uuid, admitted_at timestamptz, ended_at timestamptz, tenant_id bigint,"
    "       project_id bigint, key_id bigint, model text, endpoint text, client_request_id text,"
    "       stream boolean, outcome text, finish_reason text, prompt_tokens bigint,"
    "       cached_tokens bigint, output_tokens bigint, ttft_us bigint, price_id bigint,"
    "       currency text, cost_nanos bigint) "
    "ON CONFLICT (id, admitted_at) DO NOTHING";

enum status usage_insert(struct pg *pg, const char *rows, struct reason *why)
{
    const char *params[] = {rows};

    return pg_exec(pg, insert_sql, 1, params, NULL, why);
}

/* Classes of SQLSTATE; PostgreSQL's appendix A. */
static const char *const faults_of_rows[] = {
    "22",    /* data exception: out of range, bad text */
    "23",    /* integrity constraint, no partition for it */
    "54",    /* program limit: too large for an index */
    "P0001", /* a trigger raised it */
};

bool usage_is_refused(const struct pg *pg, enum status s)
{
    const char *state = pg_sqlstate(pg);

    if (s != ST_INVALID && s != ST_CONFLICT)
        return false;
    for (size_t i = 0; i < COUNT_OF(faults_of_rows); i++)
        if (strncmp(state, faults_of_rows[i], strlen(faults_of_rows[i])) == 0)
            return true;
    return false;
}
