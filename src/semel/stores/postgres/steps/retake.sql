-- retake: enter again, or for the first time after an approval, in place of the attempts that we saw.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command: address, the token seen, the new token, lease, how long ago the first entry may
--             have been at most, or NULL
-- answers     as in parts/many/answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, seen bytea, token bytea, lease_us bigint, within_us bigint
}, changed AS (
    UPDATE records AS r SET
        state = 'pending',
        token = a.token,
        fence = greatest(r.fence + 1, clock.now_us),
        attempts = r.attempts + 1,
        entries = r.entries + 1,
        entered_at = coalesce(r.entered_at, clock.now_us),
        lease_until = clock.now_us + a.lease_us,
        expires_at = NULL,
        note = '',
        by_whom = '',
        due = least(r.due, clock.now_us + a.lease_us)
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.seen
        AND (r.state IN ('waiting', 'in_doubt') OR r.lease_until <= clock.now_us)
        AND (a.within_us IS NULL OR coalesce(r.entered_at, clock.now_us) + a.within_us > clock.now_us)
    RETURNING {changed}, 'retaken' AS kind, r AS whole
), noted AS (
    {event}
)
{answer}
