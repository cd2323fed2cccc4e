-- The class of a key's requests in the engine's queue: 0 goes before 1, 1 before 2 (waiting ones age up).
-- A key's and not a tenant's: a tenant gives its batch jobs a key of their own, and they wait behind what
-- its users are waiting for.
ALTER TABLE api_keys ADD COLUMN priority smallint NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 2);
