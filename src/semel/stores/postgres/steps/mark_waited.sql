-- mark_waited: somebody waits for these records: whoever changes one says so on the channel.
--
-- writes      records
-- parameters  1 now, or NULL for the server's; 2 addresses
-- answers     address and token of those that are underway; who waits for another has waited long enough
--
-- The mark is on the record itself: a settlement either sees it or was first, and then this sees the settlement.

WITH clock AS MATERIALIZED (
    {clock}
), asked AS MATERIALIZED (
    SELECT * FROM unnest($2::bytea[]) AS a (address)
), marked AS (
    UPDATE records AS r SET waited = true
    FROM asked AS a CROSS JOIN clock
    WHERE r.address = a.address AND NOT r.waited AND r.state = 'pending' AND r.lease_until > clock.now_us
    RETURNING r.address, r.token
)
SELECT address, token FROM marked
UNION ALL
SELECT r.address, r.token FROM asked AS a CROSS JOIN clock JOIN records AS r ON r.address = a.address
WHERE r.waited AND r.state = 'pending' AND r.lease_until > clock.now_us
