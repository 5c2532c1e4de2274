-- release: nothing happened in these entries: free the keys, except where an earlier entry is still in doubt.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command: address, token, window (NULL: for ever)
-- answers     as in parts/many/answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, token bytea, window_us bigint
}, changed AS (
    UPDATE records AS r SET
        state = CASE WHEN r.entries > 1 THEN 'in_doubt' ELSE 'released' END,
        entered_at = CASE WHEN r.entries > 1 THEN r.entered_at END,
        lease_until = NULL,
        expires_at = CASE WHEN r.entries > 1 THEN r.expires_at ELSE clock.now_us + a.window_us END,
        note = CASE WHEN r.entries > 1
            THEN 'a later entry was refused, which says nothing about the earlier one' ELSE '' END,
        entries = CASE WHEN r.entries > 1 THEN r.entries ELSE 0 END,
        due = CASE WHEN r.entries > 1 THEN r.due ELSE least(r.due, clock.now_us + a.window_us) END
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.token AND r.state IN ('waiting', 'pending', 'in_doubt')
        AND (
            r.entries <= 1
            OR r.note <> 'a later entry was refused, which says nothing about the earlier one'
        )
    RETURNING {changed}, 'released' AS kind, r AS whole
), noted AS (
    {event}
)
{answer}
