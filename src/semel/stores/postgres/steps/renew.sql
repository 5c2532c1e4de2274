-- renew: a sign of life. A record that was swept as lapsed, and only so, is pending again; only that has an event.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command: address, token, lease
-- answers     as in parts/many/answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, token bytea, lease_us bigint
}, renewed AS (
    UPDATE records AS r SET
        lease_until = clock.now_us + a.lease_us,
        note = '',
        due = least(r.due, clock.now_us + a.lease_us)
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.token AND r.state = 'pending'
    RETURNING {changed}, NULL::text AS kind, r AS whole
), revived AS (
    UPDATE records AS r SET
        state = 'pending',
        lease_until = clock.now_us + a.lease_us,
        note = '',
        due = least(r.due, clock.now_us + a.lease_us)
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND r.token = a.token
        AND r.state = 'in_doubt' AND r.note = 'the lease lapsed without a sign of life'
    RETURNING {changed}, 'revived' AS kind, r AS whole
), changed AS (
    SELECT * FROM renewed UNION ALL SELECT * FROM revived
), noted AS (
    {event}
)
{answer}
