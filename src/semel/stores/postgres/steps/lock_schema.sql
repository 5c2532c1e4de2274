-- lock_schema: nobody else migrates this schema until the transaction ends.
--
-- parameters  1 schema
-- answers     nothing of interest

SELECT pg_advisory_xact_lock(hashtextextended('semel schema ' || $1::text, 0))::text
