-- amend: a person gives or corrects the results of what a person resolved as happened.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command: address, the token seen, the new token, outcome, by whom
-- answers     as in parts/many/answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, seen bytea, token bytea, outcome bytea, by_whom text
}, changed AS (
    UPDATE records AS r SET
        token = a.token,
        outcome = a.outcome,
        note = 'amended',
        by_whom = a.by_whom
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.seen AND r.state = 'done'
        AND (r.note = 'amended' OR (r.note = 'resolved' AND r.by_whom <> 'probe'))
        AND (r.expires_at IS NULL OR r.expires_at > clock.now_us)
    RETURNING {changed}, 'amended' AS kind, r AS whole
), noted AS (
    {event}
)
{answer}
