-- settle: record how calls ended, for as long as their windows.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command: address, token, state, outcome, window (NULL: for ever), by whom; the fence of
--             the record as its caller knows it, or NULL
-- answers     as in parts/many/answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, token bytea, state text, outcome bytea, window_us bigint, by_whom text, fence bigint
}, changed AS (
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
    RETURNING {changed}, 'settled' AS kind, CASE WHEN r.fence = a.fence THEN NULL ELSE r END AS whole
), noted AS (
    {event}
)
{answer}
