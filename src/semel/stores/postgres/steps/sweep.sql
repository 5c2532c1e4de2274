-- sweep: mark records as in doubt whose lease ran out, remove those whose window is over, and file anew what the sweeper
-- came upon too early.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             4 how many records to look at, of each of the two lists
-- answers     for each: what it was (lapsed, closed, early), tenant, scope, key, whether somebody was told
--
-- All kinds in one pass over what is due: a pass for each would go through the others' backlog every time. Locked rows
-- are somebody else's, who changes or sweeps them just now.

WITH clock AS MATERIALIZED (
    {clock}
), due_now AS MATERIALIZED (
    SELECT d.address FROM records AS d
    WHERE d.due <= (SELECT now_us FROM clock)
    ORDER BY d.due
    LIMIT $4::bigint
    FOR UPDATE OF d SKIP LOCKED
), closing_now AS MATERIALIZED (
    SELECT c.address FROM records AS c
    WHERE c.closes <= (SELECT now_us FROM clock)
    ORDER BY c.closes
    LIMIT $4::bigint
    FOR UPDATE OF c SKIP LOCKED
), looked_at AS MATERIALIZED (
    SELECT address FROM due_now UNION SELECT address FROM closing_now
), lapsed AS (
    UPDATE records AS r SET
        state = 'in_doubt', lease_until = NULL, note = 'the lease lapsed without a sign of life', due = NULL
    FROM looked_at
    WHERE r.address = looked_at.address AND r.lease_until <= (SELECT now_us FROM clock)
    RETURNING r.*, 'lapsed' AS kind
), closed AS (
    DELETE FROM records AS r USING looked_at
    WHERE r.address = looked_at.address AND r.expires_at <= (SELECT now_us FROM clock)
    RETURNING r.*, 'closed' AS kind
), early AS (
    UPDATE records AS r SET
        due = CASE WHEN r.state IN ('waiting', 'pending', 'in_doubt') THEN coalesce(r.lease_until, r.expires_at) END,
        closes = CASE WHEN r.state NOT IN ('waiting', 'pending', 'in_doubt') THEN r.expires_at END
    FROM looked_at
    WHERE r.address = looked_at.address
        AND (r.lease_until IS NULL OR r.lease_until > (SELECT now_us FROM clock))
        AND (r.expires_at IS NULL OR r.expires_at > (SELECT now_us FROM clock))
    RETURNING r.*
), changed AS (
    SELECT * FROM lapsed UNION ALL SELECT * FROM closed
), noted AS (
    {event}
)
SELECT r.kind, r.tenant, r.scope, r.key,
    CASE WHEN r.waited AND r.kind = 'lapsed' THEN pg_notify($3::text, encode(r.address, 'hex'))::text END
FROM changed AS r
UNION ALL
SELECT 'early', r.tenant, r.scope, r.key, NULL FROM early AS r
