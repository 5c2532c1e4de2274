-- park: the owners cannot tell whether it happened.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then one array each: 4 address, 5 token, 6 note
-- answers     as in answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS MATERIALIZED (
    SELECT * FROM unnest($4::bytea[], $5::bytea[], $6::text[])
        WITH ORDINALITY AS a (address, token, note, position)
), changed AS (
    UPDATE records AS r SET state = 'in_doubt', lease_until = NULL, note = a.note
    FROM asked AS a
    WHERE r.address = a.address AND r.token = a.token
        AND (
            r.state = 'pending'
            OR (r.state = 'in_doubt' AND r.note = 'the lease lapsed without a sign of life')
        )
    RETURNING r.*, a.position, 'parked' AS kind
), noted AS (
    {event}
)
{answer}
