-- resolve: a person or a probe says whether the attempts that we saw happened.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then one array each: 4 address, 5 the token seen, 6 the new token, 7 whether it happened, 8 outcome,
--             9 window, NULL for ever, 10 by whom
-- answers     as in answer.sql
--
-- A new token: the owner that comes back is no longer the one who may write.

WITH clock AS MATERIALIZED (
    {clock}
), asked AS MATERIALIZED (
    SELECT * FROM unnest(
        $4::bytea[], $5::bytea[], $6::bytea[], $7::boolean[], $8::bytea[], $9::bigint[], $10::text[]
    ) WITH ORDINALITY AS a (address, seen, token, happened, outcome, window_us, by_whom, position)
), changed AS (
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
    RETURNING r.*, a.position, 'resolved' AS kind
), noted AS (
    {event}
)
{answer}
