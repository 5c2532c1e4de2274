-- resolve: a person or a probe says whether the attempts that we saw happened.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command: address, the token seen, the new token, whether it happened, outcome,
--             window (NULL: for ever), by whom
-- answers     as in parts/many/answer.sql
--
-- A new token: the owner that comes back is no longer the one who may write.

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, seen bytea, token bytea, happened boolean, outcome bytea, window_us bigint, by_whom text
}, changed AS (
    UPDATE records AS r SET
        state = CASE WHEN a.happened THEN 'done' ELSE 'cleared' END,
        token = a.token,
        entries = CASE WHEN a.happened THEN r.entries ELSE 0 END,
        entered_at = CASE WHEN a.happened THEN r.entered_at END,
        lease_until = NULL,
        settled_at = CASE WHEN a.happened THEN clock.now_us END,
        expires_at = clock.now_us + a.window_us,
        outcome = CASE WHEN a.happened THEN a.outcome ELSE r.outcome END,
        note = 'resolved',
        by_whom = a.by_whom,
        due = least(r.due, clock.now_us + a.window_us)
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.seen
        AND (r.state = 'in_doubt' OR r.lease_until <= clock.now_us)
    RETURNING {changed}, 'resolved' AS kind, r AS whole
), noted AS (
    {event}
)
{answer}
