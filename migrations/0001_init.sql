-- Who exists: tenants, their projects and keys, and the log of changes that gateways follow.

CREATE TABLE tenants (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
    -- share of the engine; 1000 is ordinary
    weight integer NOT NULL DEFAULT 1000 CHECK (weight BETWEEN 1 AND 1000000),
    -- limits: 0 is none; the bound is what the token buckets count exactly (quota/bucket.lua)
    requests_per_min bigint NOT NULL DEFAULT 0 CHECK (requests_per_min BETWEEN 0 AND 100000000),
    tokens_per_min bigint NOT NULL DEFAULT 0 CHECK (tokens_per_min BETWEEN 0 AND 100000000),
    concurrency bigint NOT NULL DEFAULT 0 CHECK (concurrency BETWEEN 0 AND 1000000),
    created_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz
);

CREATE TABLE projects (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    name text NOT NULL CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
    requests_per_min bigint NOT NULL DEFAULT 0 CHECK (requests_per_min BETWEEN 0 AND 100000000),
    tokens_per_min bigint NOT NULL DEFAULT 0 CHECK (tokens_per_min BETWEEN 0 AND 100000000),
    concurrency bigint NOT NULL DEFAULT 0 CHECK (concurrency BETWEEN 0 AND 1000000),
    created_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz,
    UNIQUE (tenant_id, name),
    -- what api_keys refers to, so that a key's project is its tenant's
    UNIQUE (tenant_id, id)
);

CREATE TABLE api_keys (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL REFERENCES tenants ON DELETE RESTRICT,
    project_id bigint NOT NULL,
    public_id text NOT NULL UNIQUE CHECK (public_id ~ '^[0-9A-Za-z]{16}$'),
    -- HMAC-SHA-256 of the secret under the pepper; the secret itself is stored nowhere
    mac bytea NOT NULL CHECK (octet_length(mac) = 32),
    -- names the pepper the key was made under, without giving it away (auth/keys.c)
    pepper_id text NOT NULL CHECK (pepper_id ~ '^[0-9a-f]{16}$'),
    name text NOT NULL DEFAULT '' CHECK (length(name) <= 200),
    -- bits: 1 inference, 2 usage, 4 platform
    scopes integer NOT NULL CHECK (scopes BETWEEN 1 AND 7),
    requests_per_min bigint NOT NULL DEFAULT 0 CHECK (requests_per_min BETWEEN 0 AND 100000000),
    tokens_per_min bigint NOT NULL DEFAULT 0 CHECK (tokens_per_min BETWEEN 0 AND 100000000),
    concurrency bigint NOT NULL DEFAULT 0 CHECK (concurrency BETWEEN 0 AND 1000000),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    disabled_at timestamptz,
    FOREIGN KEY (tenant_id, project_id) REFERENCES projects (tenant_id, id) ON DELETE RESTRICT
);
CREATE INDEX api_keys_by_project ON api_keys (tenant_id, project_id);

-- The change log. Its numbers are in commit order and without gaps: they come from one row, which a
-- transaction keeps locked from its last step to its commit. A follower that has seen n has seen
-- everything up to n.
CREATE TABLE change_counter (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    position bigint NOT NULL
);
INSERT INTO change_counter (position) VALUES (0);

CREATE TABLE changes (
    position bigint PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL CHECK (kind IN ('tenant', 'project', 'key')),
    tenant_id bigint NOT NULL,
    -- of the key; '' for the other kinds
    public_id text NOT NULL DEFAULT ''
);

-- Argument: the kind. The log keeps its last 100,000 rows; whoever is further behind starts over.
CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    row_json jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
    new_position bigint;
BEGIN
    UPDATE change_counter SET position = position + 1 RETURNING position INTO new_position;
    INSERT INTO changes (position, kind, tenant_id, public_id)
    VALUES (new_position, TG_ARGV[0],
            (row_json ->> CASE WHEN TG_ARGV[0] = 'tenant' THEN 'id' ELSE 'tenant_id' END)::bigint,
            coalesce(row_json ->> 'public_id', ''));
    DELETE FROM changes WHERE position <= new_position - 100000;
    NOTIFY sluice_changes;
    RETURN NULL;
END
$$;

-- Deferred to the commit, so that the counter's lock is the last that a transaction takes: two
-- administrators can't deadlock on it.
CREATE CONSTRAINT TRIGGER tenants_change AFTER INSERT OR UPDATE OR DELETE ON tenants
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change('tenant');
CREATE CONSTRAINT TRIGGER projects_change AFTER INSERT OR UPDATE OR DELETE ON projects
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change('project');
CREATE CONSTRAINT TRIGGER api_keys_change AFTER INSERT OR UPDATE OR DELETE ON api_keys
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_change('key');
