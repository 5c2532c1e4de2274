-- list_all_unsettled: records of all tenants that are waiting, pending or in doubt, newest first.
--
-- reads       records stopped; of records by due those that are due by now, or all if live pending ones are asked for
-- parameters  1-9 as for list_records, the states given; 10 whether live pending records are asked for
-- answers     records
--
-- A lapsed record counts as in doubt, swept or not: its `due` is not later than the end of its lease.

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT {record}
FROM (
    (
        SELECT s.* FROM records AS s
        WHERE s.stopped IS NOT NULL
            AND $2::text IS NULL
            AND s.stopped <= $3::bigint
            AND (s.stopped < $3::bigint OR s.id < $4::text)
            AND ($5::text IS NULL OR s.scope = $5::text)
            AND ($6::text IS NULL OR s.key = $6::text)
            AND ($7::text IS NULL OR s.tool = $7::text)
            AND s.state = ANY ($8::text[])
            AND (s.expires_at IS NULL OR s.expires_at > (SELECT now_us FROM clock))
        ORDER BY s.stopped DESC, s.id DESC
        LIMIT $9::bigint
    )
    UNION ALL
    SELECT p.* FROM records AS p
    WHERE p.due <= (SELECT CASE WHEN $10::boolean THEN 9223372036854775807 ELSE now_us END FROM clock)
        AND p.state = 'pending'
        AND (p.created_at < $3::bigint OR (p.created_at = $3::bigint AND p.id < $4::text))
        AND ($5::text IS NULL OR p.scope = $5::text)
        AND ($6::text IS NULL OR p.key = $6::text)
        AND ($7::text IS NULL OR p.tool = $7::text)
        AND CASE WHEN p.lease_until <= (SELECT now_us FROM clock) THEN 'in_doubt' ELSE p.state END = ANY ($8::text[])
) AS r
ORDER BY r.created_at DESC, r.id DESC
LIMIT $9::bigint
