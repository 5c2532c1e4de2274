-- count_unsettled: how many records are waiting, pending or in doubt, by tenant, tool and state.
--
-- reads       records stopped; of records by due those that are due by now, or all if live pending ones are asked for
-- parameters  1 now, or NULL for the server's; 2 tenant or NULL; 3 array of states; 4 whether live pending records are
--             asked for
-- answers     tenant, tool, state, count
--
-- A lapsed record counts as in doubt, swept or not; a question that is over does not count.

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT r.tenant, r.tool, r.stands, count(*)
FROM (
    SELECT s.tenant, s.tool, s.state AS stands FROM records AS s
    WHERE s.stopped IS NOT NULL
        AND (s.expires_at IS NULL OR s.expires_at > (SELECT now_us FROM clock))
    UNION ALL
    SELECT p.tenant, p.tool, CASE WHEN p.lease_until <= (SELECT now_us FROM clock) THEN 'in_doubt' ELSE p.state END
    FROM records AS p
    WHERE p.due <= (SELECT CASE WHEN $4::boolean THEN 9223372036854775807 ELSE now_us END FROM clock)
        AND p.state = 'pending'
) AS r
WHERE ($2::text IS NULL OR r.tenant = $2::text) AND r.stands = ANY ($3::text[])
GROUP BY r.tenant, r.tool, r.stands
