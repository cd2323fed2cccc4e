-- A fourth scope, bit 8: raw prompts of the key may hold control tokens.
ALTER TABLE api_keys DROP CONSTRAINT api_keys_scopes_check;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_scopes_check CHECK (scopes BETWEEN 1 AND 15);
