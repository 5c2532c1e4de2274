-- park: the owners cannot tell whether it happened.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command: address, token, note
-- answers     as in parts/many/answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, token bytea, note text
}, changed AS (
    UPDATE records AS r SET state = 'in_doubt', lease_until = NULL, note = a.note
    FROM asked AS a
    WHERE r.address = a.address AND r.token = a.token
        AND (
            r.state = 'pending'
            OR (r.state = 'in_doubt' AND r.note = 'the lease lapsed without a sign of life')
        )
    RETURNING {changed}, 'parked' AS kind, r AS whole
), noted AS (
    {event}
)
{answer}
