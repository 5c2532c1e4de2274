-- settle: record how calls ended, for as long as their windows.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then one array each: 4 address, 5 token, 6 state, 7 outcome, 8 window, NULL for ever, 9 by whom
-- answers     as in answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS MATERIALIZED (
    SELECT * FROM unnest($4::bytea[], $5::bytea[], $6::text[], $7::bytea[], $8::bigint[], $9::text[])
        WITH ORDINALITY AS a (address, token, state, outcome, window_us, by_whom, position)
), changed AS (
    UPDATE records AS r SET
        state = a.state,
        lease_until = NULL,
        settled_at = clock.now_us,
        expires_at = clock.now_us + a.window_us,
        outcome = a.outcome,
        note = '',
        by_whom = a.by_whom,
        due = least(r.due, clock.now_us + a.window_us)
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.token AND r.state IN ('waiting', 'pending', 'in_doubt')
    RETURNING r.*, a.position, 'settled' AS kind
), noted AS (
    {event}
)
{answer}
