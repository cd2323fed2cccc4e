-- Prices and usage rows. A usage row is written once, by the poster, from the journal; it is never
-- updated. It has no foreign keys on purpose: a row outlives the key, project or tenant it names, and
-- nothing that an administrator deletes may stop a bill.

-- Nano-units of the currency per million tokens (and per request). A change of price is a new row
-- with a later effective_from: a request keeps the price in force when it was admitted. model '*' is
-- the price of every model that has no row of its own.
CREATE TABLE prices (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model          text NOT NULL CHECK (length(model) BETWEEN 1 AND 95),
    -- At most a million currency units per million tokens: a typo is refused, and no row overflows.
    input_nanos    bigint NOT NULL CHECK (input_nanos BETWEEN 0 AND 1000000000000000),
    cached_nanos   bigint NOT NULL CHECK (cached_nanos BETWEEN 0 AND 1000000000000000),
    output_nanos   bigint NOT NULL CHECK (output_nanos BETWEEN 0 AND 1000000000000000),
    request_nanos  bigint NOT NULL DEFAULT 0 CHECK (request_nanos BETWEEN 0 AND 1000000000000000),
    currency       text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    effective_from timestamptz NOT NULL DEFAULT now(),
    UNIQUE (model, effective_from)
);

CREATE TABLE usage_events (
    id                uuid NOT NULL,
    admitted_at       timestamptz NOT NULL,
    ended_at          timestamptz NOT NULL,
    tenant_id         bigint NOT NULL,
    project_id        bigint NOT NULL,
    key_id            bigint NOT NULL,
    model             text NOT NULL,
    endpoint          text NOT NULL,
    client_request_id text,
    stream            boolean NOT NULL,
    outcome           text NOT NULL
                      CHECK (outcome IN ('completed', 'cancelled', 'failed', 'interrupted')),
    finish_reason     text,
    prompt_tokens     bigint NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens     bigint NOT NULL CHECK (cached_tokens BETWEEN 0 AND prompt_tokens),
    output_tokens     bigint NOT NULL CHECK (output_tokens >= 0),
    ttft_us           bigint CHECK (ttft_us >= 0),
    price_id          bigint NOT NULL,
    currency          text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    cost_nanos        bigint NOT NULL CHECK (cost_nanos >= 0),
    posted_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, admitted_at)
) PARTITION BY RANGE (admitted_at);

CREATE INDEX usage_events_tenant_time ON usage_events (tenant_id, admitted_at);
CREATE INDEX usage_events_time ON usage_events (admitted_at);

-- Makes the partition of the month (UTC) that holds `at`. The table is built beside its parent and then
-- attached: ATTACH waits for no reader, where CREATE … PARTITION OF would wait for the longest report
-- and hold up everyone behind it. The lock lets concurrent creators come one after the other.
CREATE FUNCTION usage_partition(at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first timestamptz := date_trunc('month', at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    past  timestamptz := (date_trunc('month', at AT TIME ZONE 'UTC') + interval '1 month')
                         AT TIME ZONE 'UTC';
    part  text := 'usage_events_' || to_char(at AT TIME ZONE 'UTC', 'YYYY_MM');
BEGIN
    IF to_regclass(part) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('sluice.usage_partition'));
    IF to_regclass(part) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE usage_events INCLUDING ALL)', part);
    EXECUTE format('ALTER TABLE usage_events ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                   part, first, past);
END
$$;

-- What the demonstration model costs, and every other model until it has a row of its own:
-- 0.10 per million prompt tokens (half of that from the cache), 0.40 per million output tokens.
INSERT INTO prices (model, input_nanos, cached_nanos, output_nanos, currency, effective_from) VALUES
    ('smollm2-135m-instruct', 100000000, 50000000, 400000000, 'USD', '2025-01-01T00:00:00Z'),
    ('*', 100000000, 50000000, 400000000, 'USD', '2025-01-01T00:00:00Z');
