-- write_meta: a fact of this store; its id and its key stay what they were.
--
-- writes      meta
-- parameters  1 name, 2 value
-- answers     nothing

INSERT INTO meta (name, value) VALUES ($1::text, $2::bytea)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE meta.name IN ('version', 'works_with')
