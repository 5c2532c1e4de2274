-- list_records: records of a tenant whose window is open, newest first.
--
-- reads       records by age
-- parameters  1 now, or NULL for the server's; 2 tenant; 3, 4 created_at and id before which, the largest values for
--             "from the newest"; then filters, NULL for none: 5 scope, 6 key, 7 tool, 8 array of states;
--             9 how many at most
-- answers     records
--
-- A lapsed record counts as in doubt, swept or not. The time is asked for aside, because a join with it would have the
-- whole tenant sorted for one page.

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT {record}
FROM records AS r
WHERE hashtextextended(r.tenant, 0) = hashtextextended($2::text COLLATE "C", 0)
    AND r.tenant = $2::text
    AND r.created_at <= $3::bigint
    AND (r.created_at < $3::bigint OR r.id < $4::text)
    AND ($5::text IS NULL OR r.scope = $5::text)
    AND ($6::text IS NULL OR r.key = $6::text)
    AND ($7::text IS NULL OR r.tool = $7::text)
    AND (
        $8::text[] IS NULL
        OR CASE WHEN r.lease_until <= (SELECT now_us FROM clock) THEN 'in_doubt' ELSE r.state END = ANY ($8::text[])
    )
    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now_us FROM clock))
ORDER BY r.created_at DESC, r.id DESC
LIMIT $9::bigint
