-- Usage rows that Postgres refused for a fault of their own (a constraint, a value out of range): set aside,
-- so that the rows behind them are posted. `sluice usage --dead-letters` shows them; --retry-dead-letters
-- posts them once the cause is gone. No constraint here may refuse what the other table refused.
CREATE TABLE usage_dead_letters (
    request_id uuid PRIMARY KEY,
    row        bytea NOT NULL, -- the row's JSON, byte for byte as it was refused
    reason     text NOT NULL,
    tries      bigint NOT NULL DEFAULT 1,
    refused_at timestamptz NOT NULL DEFAULT now(),
    tried_at   timestamptz NOT NULL DEFAULT now()
);
