-- find_schema: whether there is such a schema.
--
-- parameters  1 schema
-- answers     how many

SELECT count(*) FROM pg_namespace WHERE nspname = $1::text
