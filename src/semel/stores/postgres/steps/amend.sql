-- amend: a person gives or corrects the results of what a person resolved as happened.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then one array each: 4 address, 5 the token seen, 6 the new token, 7 outcome, 8 by whom
-- answers     as in answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS MATERIALIZED (
    SELECT * FROM unnest($4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::text[])
        WITH ORDINALITY AS a (address, seen, token, outcome, by_whom, position)
), changed AS (
    UPDATE records AS r SET
        token = a.token,
        outcome = a.outcome,
        note = 'amended',
        by_whom = a.by_whom
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.seen AND r.state = 'done'
        AND (r.note = 'amended' OR (r.note = 'resolved' AND r.by_whom <> 'probe'))
        AND (r.expires_at IS NULL OR r.expires_at > clock.now_us)
    RETURNING r.*, a.position, 'amended' AS kind
), noted AS (
    {event}
)
{answer}
