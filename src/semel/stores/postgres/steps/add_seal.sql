-- add_seal: write the next seal, and which records its events belong to.
--
-- writes      seals, traces
-- parameters  the seal's columns
-- answers     nothing; fails if somebody else sealed meanwhile, because numbers are unique

WITH added AS (
    INSERT INTO seals (number, first_seq, last_seq, events, hash, at_us)
    VALUES ($1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bytea, $6::bigint)
)
INSERT INTO traces (record, seq)
SELECT hashtextextended(record_id, 0), seq FROM events WHERE seq BETWEEN $2::bigint AND $3::bigint
